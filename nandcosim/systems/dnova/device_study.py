"""Print what a device holds and what its controller must remember.

::

    python -m nandcosim.systems.dnova.device_study --vectors 2680000 --nlist 1024 --nprobe 64

One line a quantity of `nandcosim.systems.dnova.device.describe_device`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import xarray as xr

from nandcosim.studies import one_line_errors, split_settings
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.device import DeviceFields, check_fits, describe_device

__all__ = ["DeviceConfig", "main"]


class DeviceConfig(Config, DeviceFields):
    """All fields of a search and of the device it runs on."""


def _text(values: xr.DataArray) -> str:
    """Values along the extra dimensions, named; those of `sram` by stage and part."""
    if values.ndim == 0:
        value = values.item()
        return str(value) if isinstance(value, bool | int) else f"{value:.6g}"
    dim = values.dims[0]
    parts = [f"{key} {_text(values.sel({dim: key}))}" for key in values[dim].values.tolist()]
    return (", " if values.ndim == 1 else "; ").join(parts)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print capacity, metadata, SRAM and area; exit code 2 if the index does not fit."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.device_study", description=main.__doc__
    )
    parser.add_argument("--vectors", type=int, default=2_680_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--nlist", type=int, default=1024)
    parser.add_argument("--nprobe", type=int, default=64)
    parser.add_argument("--k2", type=int, default=1000)
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="field of the device"
    )
    options = parser.parse_args(arguments)
    settings = split_settings(options.set)
    config = DeviceConfig.from_settings(settings, "--set")
    index = (options.dimension, options.vectors, options.nlist)
    device = describe_device(config, *index, options.nprobe, options.k2)
    for name, values in device.data_vars.items():
        unit = "" if values.attrs["units"] == "1" else f" {values.attrs['units']}"
        print(f"{name:<24} {_text(values)}{unit}  ({values.attrs['long_name']})")
    check_fits(config, *index)


if __name__ == "__main__":
    sys.exit(main())
