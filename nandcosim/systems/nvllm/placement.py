"""Where a model's weights lie: flash, DRAM, and whether they fit.

All weights are stored in flash, which keeps them. A policy says which of them are copied
into DRAM once, at initialisation, and read from there (section 3.5). The KV cache is in
DRAM. Every weight takes one byte (INT8).

Two kinds of weights that the paper does not mention are placed by assumption. A table of
input embeddings of its own stays in flash: a token reads one row of it. Norms, biases and
learnt positions are always copied, since the NPU normalises.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.arrays import described, maximum, stacked
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.wording import unknown_value

__all__ = ["PARTS", "POLICIES", "check_fits", "copy_cost", "place", "usable_share"]

#: Kinds of weights, each a variable ``<part>_weights`` of `models.shapes`.
PARTS = ("attention", "ffn", "head", "embedding", "other")

#: Parts that each policy copies into DRAM.
POLICIES: Mapping[str, tuple[str, ...]] = {
    "ffn_in_flash": ("attention", "other"),
    "head_in_dram": ("attention", "head", "other"),
    "all_in_flash": ("other",),
    "all_in_dram": PARTS,
}


def place(
    config: HardwareFields,
    shapes: xr.Dataset,
    policy: str | xr.DataArray = "ffn_in_flash",
    context: float | xr.DataArray = 0,
    *,
    parity_bits: float | xr.DataArray = 0,
) -> xr.Dataset:
    """Bytes of a model in flash and in DRAM.

    Parameters
    ----------
    config : HardwareFields
    shapes : xarray.Dataset
        Of `models.shapes`.
    policy : str or str DataArray
        Of `POLICIES`; ``ffn_in_flash`` is the paper's, FFN and head read in flash.
    context : float or DataArray
        Tokens in the KV cache.
    parity_bits : float or DataArray
        Of a segment; 0 stores weights without parity.

    Returns
    -------
    xarray.Dataset
        Over the axes of all arguments, in bytes: ``weights`` by ``part``, and
        ``copied``, those of them in DRAM; ``kv_cache``; ``flash``, what all weights take
        there with their parity, and ``dram``; ``flash_capacity`` and ``dram_capacity``.

    Raises
    ------
    InputError
        If a policy is unknown, or no segment with its parity fits into a page.
    """
    policy = _checked(policy)
    weights = stacked({part: shapes[f"{part}_weights"] for part in PARTS}, "part")
    copied = weights * stacked({part: policy.isin(_copying(part)) for part in PARTS}, "part")
    kv_cache = shapes["kv_values"] * config.array("kv_bytes") * context
    planes = config.array("clusters") * config.array("planes_per_cluster")
    stored = weights.sum("part") / usable_share(config, parity_bits)
    found = xr.Dataset(
        {
            "weights": weights,
            "copied": copied,
            "kv_cache": kv_cache,
            "flash": stored,
            "dram": copied.sum("part") + kv_cache,
            "flash_capacity": planes * config.array("plane_capacity"),
            "dram_capacity": config.array("dram_capacity"),
        }
    )
    return described(found, {name: ("B", meaning) for name, meaning in _MEANINGS.items()})


def usable_share(config: HardwareFields, parity_bits: float | xr.DataArray = 0) -> xr.DataArray:
    """Share of the flash that weights may take.

    A page has floor(page bits / (segment bits + parity bits)) segments; with the parity in
    a spare area, floor(page bytes / segment bytes).

    Raises
    ------
    InputError
        If a page is too small for one segment.
    """
    page, segment = config.array("page_bytes"), config.array("segment_bytes")
    in_page = config.array("parity_place") == "page"
    segments = 8 * page // (8 * segment + parity_bits * in_page)
    if (segments < 1).any():
        raise InputError(
            f"nvllm: page_bytes = {config.page_bytes}, allowed: enough for a segment of "
            f"{config.segment_bytes} B and its parity"
        )
    share: xr.DataArray = segments * segment / page
    return share


def check_fits(placed: xr.Dataset) -> None:
    """Refuse a placement that does not fit.

    Parameters
    ----------
    placed : xarray.Dataset
        Of `place`.

    Raises
    ------
    InputError
        Naming the point that lacks most, what it needs and what there is.
    """
    for memory in ("flash", "dram"):
        needed, capacity = xr.broadcast(placed[memory], placed[f"{memory}_capacity"])
        worst = (needed / capacity).argmax(...)
        needed, capacity = needed.isel(worst), capacity.isel(worst)
        if needed > capacity:
            point = ", ".join(f"{name} = {needed[name].item()}" for name in needed.coords)
            raise InputError(
                f"nvllm: {point or 'the model'}: {memory} needed {_gib(needed)}, "
                f"allowed: {_gib(capacity)} or less"
            )


def copy_cost(config: HardwareFields, placed: xr.Dataset, page_cost: xr.Dataset) -> xr.Dataset:
    """Time and energy of the copy into DRAM at initialisation (section 3.5).

    The slowest of the planes, the link and the DRAM sets the time. Parity in the page is
    read with the weights.

    Parameters
    ----------
    config : HardwareFields
    placed : xarray.Dataset
        Of `place`.
    page_cost : xarray.Dataset
        ``read_time`` (s, a page) and ``bit_energy`` (J, a bit read) of `rber.page_cost`.

    Returns
    -------
    xarray.Dataset
        ``time`` (s) and ``energy`` (J).
    """
    copied = placed["copied"].sum("part")
    read = copied * placed["flash"] / placed["weights"].sum("part")
    planes = config.array("clusters") * config.array("planes_per_cluster")
    times = (
        read * page_cost["read_time"] / (planes * config.array("page_bytes")),
        copied / config.array("link_bandwidth"),
        copied / (config.array("dram_bandwidth") * config.array("dram_efficiency")),
    )
    moved = config.array("link_energy") + config.array("dram_energy")
    energy = 8 * (read * page_cost["bit_energy"] + copied * moved)
    found = xr.Dataset({"time": functools.reduce(maximum, times), "energy": energy})
    meaning = "copy of weights into DRAM"
    return described(found, {"time": ("s", meaning), "energy": ("J", meaning)})


_MEANINGS = {
    "weights": "weights",
    "copied": "weights copied into DRAM",
    "kv_cache": "KV cache",
    "flash": "all weights and their parity in flash",
    "dram": "copied weights and KV cache in DRAM",
    "flash_capacity": "flash capacity",
    "dram_capacity": "DRAM capacity",
}


def _copying(part: str) -> list[str]:
    return [policy for policy, parts in POLICIES.items() if part in parts]


def _checked(policy: str | xr.DataArray) -> xr.DataArray:
    named = xr.DataArray(policy)
    for name in np.unique(named.values):
        if name not in POLICIES:
            raise InputError(f"policy: {unknown_value(str(name), POLICIES)}")
    return named


def _gib(size: xr.DataArray) -> str:
    return f"{size.item() / 2**30:.4g} GiB"
