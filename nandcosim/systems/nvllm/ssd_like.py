"""In-flash inference in SSD-like chips: Cambricon-LLM in closed form, AiF by its bandwidth.

**Cambricon-LLM** (Yu et al., MICRO 2024, section V). One compute core a die multiplies pages
where they are read; the pages of other planes cross the channel in slices, between the
vectors that the cores need, to an NPU. A tile of H by W weights gives every core one page::

    H        = sqrt(cores a channel * page),  W = channels * H
    t        = t_read + (W / channels) / b                      channel bandwidth b
    in flash = channels * cores a channel * page / t            bytes a second
    sliced   = channels * b * (1 - (H + W / channels) / (t_read * b))

All weights are read at the sum of the two rates; the NPU then attends over a KV cache in DRAM.

**AiF** (Lee et al., ISCA 2025), as NVLLM has it: planes * page / page time bytes a second,
times an efficiency set to the tokens a second that NVLLM section 4.3 states. It predicts
nothing for LLaMA2-7B, and scales with the weights for other models.

Prefill is modelled for neither: NVLLM section 4.4 has no data on it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from nandcosim.systems.config import setting
from nandcosim.systems.nand import Count, Positive
from nandcosim.systems.nvllm.hardware import DramFields

__all__ = [
    "SSD_LIKE_SYSTEMS",
    "SsdLikeFields",
    "cambricon_energy",
    "cambricon_rates",
    "decode_time",
    "platforms",
    "published_speeds",
]

SSD_LIKE_SYSTEMS = ("cambricon_llm", "aif", "aif_minus")

Size = Literal["s", "m", "l"]
Rates = Literal["closed_form", "calibrated"]
_NotNegative = Annotated[float, Field(ge=0.0)]
_Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
_Value = xr.DataArray | float


class SsdLikeFields(DramFields):
    """Fields of the SSD-like baselines; of `DramFields` they use `kv_bytes`, `dram_energy`."""

    cambricon_size: Size | tuple[Size, ...] = setting(
        "s", unit="", meaning="Cambricon-LLM-S, -M or -L: its channels, chips and dies",
        origin="derived: Table 1 has 8 channels x 2 chips x 2 dies x 2 planes, Cambricon-LLM-S",
    )  # fmt: skip
    cambricon_rate: Rates | tuple[Rates, ...] = setting(
        "closed_form", unit="", meaning="rate of weights: as the closed form has it, or times an "
        "efficiency a size",
        origin="calibrated: with calibrated, to Cambricon-LLM Fig. 9 (geometric mean a size)",
    )  # fmt: skip
    cambricon_page_bytes: Count | tuple[Count, ...] = setting(
        16_384, unit="B", meaning="page of Cambricon-LLM", origin="stated: Table 1, 16 KiB"
    )
    cambricon_read_time: Positive | tuple[Positive, ...] = setting(
        30e-6, unit="s", meaning="page read of Cambricon-LLM",
        origin="sourced: Cambricon-LLM, MICRO 2024, Table II",
    )  # fmt: skip
    cambricon_channel_bandwidth: Positive | tuple[Positive, ...] = setting(
        1e9, unit="B/s", meaning="flash channel of Cambricon-LLM",
        origin="sourced: Cambricon-LLM, MICRO 2024, Table II, 1000 MT/s of 8 bits",
    )  # fmt: skip
    cambricon_dram_bandwidth: Positive | tuple[Positive, ...] = setting(
        40e9, unit="B/s", meaning="DRAM of Cambricon-LLM's NPU",
        origin="sourced: Cambricon-LLM, MICRO 2024, as IFC-cambricon-llm has it",
    )  # fmt: skip
    cambricon_npu_ops: Positive | tuple[Positive, ...] = setting(
        2e12, unit="1/s", meaning="operations a second of Cambricon-LLM's NPU",
        origin="sourced: Cambricon-LLM, MICRO 2024, 16 x 16 at 1 GHz, given as 2 TOPS",
    )  # fmt: skip
    cambricon_array_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        2.25e-12, unit="J", meaning="array of Cambricon-LLM, a bit read",
        origin="sourced: D-NOVA Table 1, 294.9 nJ a page, if the page is 16 KiB (18 pJ if 2 KB)",
    )  # fmt: skip
    cambricon_channel_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        10e-12, unit="J", meaning="flash channel of Cambricon-LLM, a bit",
        origin="assumed: not stated; 6 to 10 pJ, unverified",
    )  # fmt: skip
    aif_planes: Count | tuple[Count, ...] = setting(
        64, unit="1", meaning="planes of AiF",
        origin="stated: Table 1, 8 channels x 2 chips x 4 planes",
    )  # fmt: skip
    aif_page_bytes: Count | tuple[Count, ...] = setting(
        16_384, unit="B", meaning="page of AiF", origin="stated: Table 1, 16 KiB"
    )
    aif_page_time: Positive | tuple[Positive, ...] = setting(
        10.24e-6, unit="s", meaning="page read of AiF",
        origin="derived: section 4.3, 102.4 GB/s of 64 planes with 16 KiB",
    )  # fmt: skip
    aif_efficiency: _Fraction | tuple[_Fraction, ...] = setting(
        0.845, unit="1", meaning="share of its internal bandwidth that AiF turns into tokens",
        origin="calibrated: to N2, 13.1 tokens/s on LLaMA2-7B",
    )  # fmt: skip
    aif_minus_efficiency: _Fraction | tuple[_Fraction, ...] = setting(
        0.632, unit="1", meaning="as aif_efficiency, without its ECC and read optimisations",
        origin="calibrated: to N2, 9.8 tokens/s on LLaMA2-7B",
    )  # fmt: skip


# ---------------------------------------------------------------- data


@cache
def _data() -> dict[str, Any]:
    file = resources.files("nandcosim.systems.nvllm") / "data" / "cambricon.toml"
    return tomllib.loads(file.read_text())


def published_speeds() -> xr.DataArray:
    """Published decode speeds of Cambricon-LLM (tokens/s) over ``model``, ``cambricon_size``.

    The 21 points of its Fig. 9, given with one decimal.
    """
    table = _data()["tokens_per_second"]
    sizes = platforms()["cambricon_size"]
    return xr.DataArray(
        [[speeds[size] for size in sizes.values] for speeds in table.values()],
        dims=("model", "cambricon_size"),
        coords={"model": list(table), "cambricon_size": sizes},
        attrs={"units": "1/s", "long_name": "decode speed, published"},
    )


def platforms() -> xr.Dataset:
    """Cambricon-LLM's sizes over ``cambricon_size``: its Table II, and the fitted ``efficiency``.

    ``channels``; ``chips`` a channel, ``dies`` a chip, ``planes`` a die.
    """
    table = _data()["platforms"]
    names = next(iter(table.values()))
    return xr.Dataset(
        {n: ("cambricon_size", [float(row[n]) for row in table.values()]) for n in names},
        coords={"cambricon_size": list(table)},
    )


def _platform(config: SsdLikeFields) -> xr.Dataset:
    sizes = config.array("cambricon_size")
    chosen = platforms().sel(cambricon_size=sizes)
    return chosen if sizes.dims else chosen.drop_vars("cambricon_size")


# ---------------------------------------------------------------- time


def cambricon_rates(config: SsdLikeFields) -> xr.Dataset:
    """Weights that Cambricon-LLM works through.

    Returns
    -------
    xarray.Dataset
        ``tile_height``, ``tile_width`` (weights); ``in_flash`` and ``sliced`` (B/s), the
        rates at which cores multiply and at which weights cross to the NPU;
        ``crossing``, share of the weights that do; ``vectors``, bytes of inputs and
        results that cross for a byte multiplied in flash.
    """
    platform = _platform(config)
    channels, cores = platform["channels"], platform["chips"] * platform["dies"]
    page, read = config.array("cambricon_page_bytes"), config.array("cambricon_read_time")
    bandwidth = config.array("cambricon_channel_bandwidth")
    height = np.sqrt(cores * page)
    width = channels * height
    vectors = height + width / channels  # bytes a channel and tile
    efficiency = platform["efficiency"].where(config.array("cambricon_rate") == "calibrated", 1.0)
    tile_time = read + width / channels / bandwidth
    in_flash = efficiency * channels * cores * page / tile_time
    free = np.maximum(1 - vectors / (read * bandwidth), 0.0)
    sliced = efficiency * channels * bandwidth * free
    found = xr.Dataset(
        {
            "tile_height": height,
            "tile_width": width,
            "in_flash": in_flash,
            "sliced": sliced,
            "crossing": sliced / (in_flash + sliced),
            "vectors": vectors / (cores * page),
        }
    )
    for name, (unit, meaning) in _RATES.items():
        found[name].attrs = {"units": unit, "long_name": meaning}
    return found


def decode_time(config: SsdLikeFields, shapes: xr.Dataset, context: _Value) -> xr.Dataset:
    """Time of one decoded token (s).

    Parameters
    ----------
    config : SsdLikeFields
    shapes : xarray.Dataset
        ``ffn_weights``, ``attention_weights``, ``head_weights``, ``kv_values``, ``layers``,
        ``heads``, ``head_dim``, along ``model`` or not; a weight is one byte.
    context : DataArray or float
        Tokens attended to; AiF's time does not depend on it.

    Returns
    -------
    xarray.Dataset
        One variable a system, over the axes of all three.
    """
    weights, rates = _weights(shapes), cambricon_rates(config)
    streamed = weights / (rates["in_flash"] + rates["sliced"])
    internal = (
        config.array("aif_planes") * config.array("aif_page_bytes") / config.array("aif_page_time")
    )
    return xr.Dataset(
        {
            "cambricon_llm": streamed + _attention_time(config, shapes, context),
            "aif": weights / (internal * config.array("aif_efficiency")),
            "aif_minus": weights / (internal * config.array("aif_minus_efficiency")),
        }
    )


def _attention_time(config: SsdLikeFields, shapes: xr.Dataset, context: _Value) -> xr.DataArray:
    """KV cache out of DRAM, then its products on the NPU (s)."""
    read = shapes["kv_values"] * config.array("kv_bytes") / config.array("cambricon_dram_bandwidth")
    operations = 4 * shapes["layers"] * shapes["heads"] * shapes["head_dim"]
    return (read + operations / config.array("cambricon_npu_ops")) * context


def _weights(shapes: xr.Dataset) -> xr.DataArray:
    return shapes["ffn_weights"] + shapes["attention_weights"] + shapes["head_weights"]


# ---------------------------------------------------------------- energy


def cambricon_energy(config: SsdLikeFields, shapes: xr.Dataset, context: _Value) -> xr.DataArray:
    """Energy of the data that a token moves in Cambricon-LLM (J), along ``path``.

    ``nand``: every weight out of the array. ``io``: over the channels, the weights that
    cross and the vectors for the others. ``dram``: KV cache read, and a token of it written.
    Parameters as `decode_time`.
    """
    weights, rates = _weights(shapes), cambricon_rates(config)
    crossing = weights * (rates["crossing"] + (1 - rates["crossing"]) * rates["vectors"])
    cached = shapes["kv_values"] * config.array("kv_bytes") * (context + 1.0)
    paths = {
        "nand": weights * config.array("cambricon_array_energy"),
        "io": crossing * config.array("cambricon_channel_energy"),
        "dram": cached * config.array("dram_energy"),
    }
    return 8 * xr.Dataset(paths).to_dataarray("path")


_RATES = {
    "tile_height": ("1", "height of a tile, weights"),
    "tile_width": ("1", "width of a tile, weights"),
    "in_flash": ("B/s", "weights multiplied in flash"),
    "sliced": ("B/s", "weights sent to the NPU in slices"),
    "crossing": ("1", "share of the weights that cross the channels"),
    "vectors": ("1", "bytes of vectors on the channels a byte multiplied in flash"),
}
