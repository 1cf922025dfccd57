"""Errors of the array's sums against input dimension, spread, interleaving and converter.

::

    python -m nandcosim.systems.nasic.array_study errors
    python -m nandcosim.systems.nasic.array_study leakage --set adc_bits=10

prints a table, in the Markdown of the documentation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors, split_settings
from nandcosim.systems.nasic.array import Mode, ReadoutFields, multiply
from nandcosim.systems.nasic.array_errors import COMPONENTS, error_statistics, leaking
from nandcosim.systems.nasic.currents import load
from nandcosim.systems.nasic.digits import InputCode, WeightCode
from nandcosim.tables.table import Tables, load_tables

__all__ = ["STUDIES"]

#: Technique and states of the rows of the tables.
CELLS = (("base", 2), ("t1", 2), ("t1t2", 2), ("t1t2t3", 3), ("t1t2t3", 4), ("t1t2t3", 8))
ROWS = (32, 128, 512)

Row = Sequence[object]
Settings = dict[str, Any]


def linearity(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Units: current of a string, largest INL, spread of a product at the largest input."""
    yield (
        "cells",
        "weights",
        "lsb (nA)",
        "largest INL (LSB)",
        "INL of full scale (%)",
        "sd at the largest input (LSB)",
    )
    for name, config in _kinds(settings):
        currents = load(tables, config)
        code = WeightCode.of(config)
        largest = abs(currents.inl).max().item()
        full = code.largest * float(currents.inl["level"].max())
        spread = currents.unit_sd.isel(level=-1)
        least, most = spread.min().item(), spread.max().item()
        yield (
            name, 2 * code.largest + 1, f"{currents.lsb.item() * 1e9:.2f}", f"{largest:.3f}",
            f"{100 * largest / full:.2f}", f"{least:.3f} to {most:.3f}",
        )  # fmt: skip


def errors(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Partial sums: deviations in LSB, by component and input dimension."""
    yield "cells", "N", "ADC step (strings)", *COMPONENTS, "N of half an LSB", "output error (%)"
    for name, config in _kinds(settings):
        currents = load(tables, config)
        found = error_statistics(config, currents, xr.DataArray(list(ROWS), dims="rows"))
        for rows, one in zip(ROWS, (found.isel(rows=i) for i in range(len(ROWS))), strict=True):
            deviations = [f"{value:.3f}" for value in one["partial_sd"].values]
            yield (
                name, rows, f"{one['adc_step'].item():.2f}", *deviations,
                f"{one['half_lsb_rows'].item():.1f}", f"{100 * one['output_total'].item():.1f}",
            )  # fmt: skip


def outputs(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Output error (%) against spread of the current and input dimension."""
    yield "cells", "sigma", *(f"N = {rows}" for rows in (8, *ROWS))
    for name, config in _kinds({"sigma": (0.05, 0.1, 0.15, 0.2)} | settings):
        rows = xr.DataArray([8, *ROWS], dims="rows")
        total = error_statistics(config, load(tables, config), rows)["output_total"]
        for sigma in np.atleast_1d(config.sigma):
            at = total.sel(sigma=sigma) if "sigma" in total.dims else total
            yield name, sigma, *(f"{100 * value:.2f}" for value in at.values)


def leakage(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Leakage of mismatched experts in a partial sum, over one LSB, and its share of an output."""
    yield "cells", "CAM bits", "I", "leaking experts", "leakage (LSB)", "share of the variance (%)"
    asked = {"interleave": (4, 16, 64), "cam_bits": (1, 2, 3)} | settings
    for name, config in _kinds(asked, ("t1", "t1t2t3")):
        currents = load(tables, config)
        found = error_statistics(config, currents).assign(leaking=leaking(config))
        for _, point in config.points(("cam_bits", "interleave")):
            at = {n: getattr(point, n) for n in ("cam_bits", "interleave") if n in found.dims}
            one = found.sel(at)
            yield (
                name, point.cam_bits, point.interleave, f"{one['leaking'].item():.2f}",
                f"{one['partial_sd'].sel(component='leakage').item():.3f}",
                f"{100 * one['leakage_share'].item():.2f}",
            )  # fmt: skip


def choices(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Output error (%) by range of the converter, offset, and rule of the spread."""
    yield "cells", "as configured", "full range", "nominal offset", "sigma by threshold"
    changes: tuple[Settings, ...] = (
        {}, {"adc_range": "full"}, {"offset_rule": "nominal"}, {"spread_rule": "threshold"},
    )  # fmt: skip
    for name, config in _kinds(settings):
        if config.states == 8:
            continue  # its table ends at a spread of 0.106
        found = (config.model_copy(update=change) for change in changes)
        yield (
            name,
            *(
                f"{100 * error_statistics(each, load(tables, each))['output_total'].item():.1f}"
                for each in found
            ),
        )


def modes(settings: Settings, tables: Tables) -> Iterator[Row]:
    """Output error (%) of both modes of `multiply` against the closed form, random data."""
    yield "cells", "closed form", "cells", "moments", "cells, bell-shaped data"
    for name, config in _kinds(settings):
        currents = load(tables, config)
        regions = xr.DataArray(min(int(config.array("interleave")), 4))
        predicted = error_statistics(config, currents, interleave=regions)["output_total"].item()
        found = [predicted]
        asked: tuple[tuple[bool, Mode], ...] = (
            (False, "cells"), (False, "moments"), (True, "cells"),
        )  # fmt: skip
        for bell, mode in asked:
            x, weights = _data(config, bell)
            exact = x @ weights
            y = multiply(x, weights, config, currents, mode=mode)
            found.append(float((y - exact).std() / exact.std()))
        yield name, *(f"{100 * value:.2f}" for value in found)


def _data(config: ReadoutFields, bell: bool) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (50, 512) and weights (512, 100): uniform, or normal with the limit at 3.5 sigma."""
    rng = np.random.default_rng(1)

    def drawn(limit: int, shape: tuple[int, int]) -> np.ndarray:
        if not bell:
            return rng.integers(-limit, limit + 1, shape)
        return np.rint(rng.normal(0, limit / 3.5, shape)).clip(-limit, limit).astype(int)

    x = drawn(InputCode.of(config).high, (50, 512))
    return x, drawn(WeightCode.of(config).limit, (512, 100))


STUDIES: dict[str, Callable[[Settings, Tables], Iterator[Row]]] = {
    "linearity": linearity,
    "errors": errors,
    "outputs": outputs,
    "leakage": leakage,
    "choices": choices,
    "modes": modes,
}


def _kinds(
    settings: Settings, techniques: Sequence[str] = ("base", "t1", "t1t2", "t1t2t3")
) -> Iterator[tuple[str, ReadoutFields]]:
    """The rows' cells with their configurations."""
    for technique, states in CELLS:
        if technique in techniques:
            asked = settings | {"technique": technique, "states": states}
            yield f"{technique}, m = {states}", ReadoutFields.checked(asked, "--set")


def _markdown(rows: Iterable[Row]) -> Iterator[str]:
    for i, row in enumerate(rows):
        yield f"| {' | '.join(str(cell) for cell in row)} |"
        if i == 0:
            yield "|" + " --- |" * len(row)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print a study of the array's errors."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nasic.array_study", description=main.__doc__
    )
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    given = ReadoutFields.from_settings(split_settings(options.set), "--set")
    asked = {name: getattr(given, name) for name in split_settings(options.set)}
    for line in _markdown(STUDIES[options.study](asked, load_tables())):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
