"""How many cycles a token takes on the experts' matrices, and what they activate, in closed form.

A layer's experts are two matrices one after the other, ``in`` (gate and up: hidden inputs) and
``out`` (down). `mapping.place` says how many experts share a bitline and in how many row cycles an
expert's rows are taken, N at a time (N of `input_dimension`)::

    cycles  passes row_cycles serial_inputs      of a matrix, one after the other
    width   2 outputs digits                     bitlines of an expert's rows

A *pass* is what all planes of a matrix do at once. Base has all experts side by side on the page,
and computes as much of that as fits the planes. Under T1 every plane searches for one expert, whose
row groups take interleave times width bitlines side by side. Experts that are always on are
searched like those routed to. Active experts are taken as spread evenly over planes and
interleaved groups; `routing` has what happens when they are not.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.arrays import ceil, described, floor, maximum, minimum, stacked, where
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nand import Count, Share
from nandcosim.systems.nasic.digits import input_cycles, levels
from nandcosim.systems.nasic.hardware import ArrayFields, ConverterFields
from nandcosim.systems.nasic.mapping import MappingFields, unit

__all__ = [
    "CycleFields",
    "at_ratio",
    "counts",
    "input_dimension",
    "selects_experts",
    "used_states",
]

#: Spread and input dimension from which the rule of the paper is scaled (Fig. 8, section on
#: energy): errors of a sum grow as sigma sqrt(N).
_SIGMA, _ROWS = 0.15, 128

InputRule = Literal["paper", "measured", "given"]
Redundancy = Literal["all", "bitlines", "planes"]
Search = Literal["planes", "serial"]


class _OwnFields(SystemConfig):
    input_rule: InputRule | tuple[InputRule, ...] = setting(
        "paper", unit="", meaning="input dimension: 128 (0.15 / sigma)^2; as measured on a model; "
        "or input_rows",
        origin="stated: 128 at 0.15 (section on energy); the square is derived: independent errors",
    )  # fmt: skip
    input_rows: Count | tuple[Count, ...] = setting(
        128, unit="1", meaning="inputs whose products are added on a bitline at once (N), with "
        "input_rule=given",
        origin="stated: section on energy, at sigma = 0.15",
    )  # fmt: skip
    input_cap: Literal["blocks", "adc"] | tuple[Literal["blocks", "adc"], ...] = setting(
        "blocks", unit="", meaning="what else bounds the input dimension: blocks of a plane; or "
        "also the converter, whose steps are then no coarser than a string's smallest current",
        origin="assumed: not stated; 8 bits resolve 128 binary currents",
    )  # fmt: skip
    redundancy: Redundancy | tuple[Redundancy, ...] = setting(
        "all", unit="", meaning="what Base does for experts not routed to: all of it; wordlines "
        "only, their bitlines rest; or nothing on planes that hold no routed expert",
        origin="stated: Fig. 4(a), operations are executed across all experts; others assumed",
    )  # fmt: skip
    search: Search | tuple[Search, ...] = setting(
        "planes", unit="", meaning="CAM searches: one a plane at once, or one in the whole device",
        origin="assumed: not stated; planes have drivers of their own",
    )  # fmt: skip
    ratio: Share | tuple[Share, ...] = setting(
        0.0, unit="1", meaning="share of the experts routed to (r), by more or fewer experts that "
        "are not; 0: the model's",
        origin="stated: Fig. 8(c), an axis; which of its two numbers varies is assumed",
    )  # fmt: skip


class CycleFields(_OwnFields, MappingFields, ConverterFields):
    """Rows of a cycle, and how Base and the CAM treat experts not routed to."""


# ---------------------------------------------------------------- techniques


def selects_experts(config: MappingFields) -> xr.DataArray:
    """Whether only active experts compute: unless all lie side by side on the page (`scheme`)."""
    scheme, base = config.array("scheme"), config.array("technique") == "base"
    return (scheme != "conventional") & ~((scheme == "technique") & base)


def used_states(config: ArrayFields) -> xr.DataArray:
    """States of a weight cell: `states` with T3, else 2."""
    return where(config.array("technique") == "t1t2t3", config.array("states"), 2)


# ---------------------------------------------------------------- workload and input dimension


def at_ratio(config: CycleFields, shapes: xr.Dataset) -> xr.Dataset:
    """Shapes with as many experts that a token is routed to `ratio` of them; idempotent.

    Parameters
    ----------
    config : CycleFields
    shapes : xarray.Dataset
        From `moe.moe_shapes`; its ``ratio`` is dropped, as that is an axis here, and so is
        what counts weights other than those of experts.
    """
    ratio, top_k = config.array("ratio"), shapes["top_k"]
    free = maximum(top_k, (top_k / where(ratio > 0, ratio, 1)).round())
    experts = where(ratio > 0, free, shapes["experts"])
    changed = {"experts": experts}
    if "routed_weights" in shapes:
        changed["routed_weights"] = shapes["routed_weights"] / shapes["experts"] * experts
    gone = ["ratio", "router_weights", "parameters"]
    return shapes.drop_vars(gone, errors="ignore").assign(changed)


def input_dimension(config: CycleFields, measured: xr.DataArray | None = None) -> xr.DataArray:
    """Inputs whose products are added on a bitline at once (N), a whole number from 1.

    Parameters
    ----------
    config : CycleFields
    measured : DataArray, optional
        With ``input_rule=measured``: over axes of `config`, rounded down.

    Raises
    ------
    InputError
        If the rule is ``measured`` and there is none.
    """
    rule, sigma = config.array("input_rule"), config.array("sigma")
    if measured is None:
        if (rule == "measured").any():
            raise InputError("input_rule: found 'measured' without a measured input dimension")
        measured = xr.DataArray(np.nan)
    # A relative 1e-9, so that 128 (0.15 / 0.075)^2 is 512 in floating point too.
    by_paper = _ROWS * (_SIGMA / maximum(sigma, 1e-9)) ** 2 * (1 + 1e-9)
    wanted = where(rule == "measured", measured, config.array("input_rows"))
    wanted = where(rule == "paper", by_paper, wanted)
    largest = unit(config)["parallel"] * (levels(config) - 1)
    resolved = 2 ** config.array("adc_bits") / largest
    capped = where(config.array("input_cap") == "adc", minimum(wanted, resolved), wanted)
    found = maximum(floor(minimum(capped, config.array("blocks"))), 1.0)
    return found.assign_attrs(units="1", long_name="inputs added on a bitline at once")


# ---------------------------------------------------------------- cycles


def counts(config: CycleFields, shapes: xr.Dataset, placed: xr.Dataset) -> xr.Dataset:
    """What one token makes of the experts of one layer.

    Parameters
    ----------
    config : CycleFields
    shapes : xarray.Dataset
        From `at_ratio`.
    placed : xarray.Dataset
        From `mapping.place`, of the same shapes.

    Returns
    -------
    xarray.Dataset
        Over the axes and ``matrix``. ``serial_inputs``: digits of an input, one after the
        other. For one of them: ``row_cycles``, cycles one after the other; ``starts``,
        planes that start a cycle; ``activations``, blocks whose wordlines rise;
        ``columns``, bitlines sensed; ``pairs``, pairs of bitline and row that may conduct;
        ``useful_pairs``, those of active experts.
    """
    selects = selects_experts(config)
    depth = stacked({"in": shapes["hidden"], "out": shapes["expert_ffn"]}, "matrix")
    gates = (shapes["ffn_matrices"] - 1) * shapes["expert_ffn"]
    outputs = stacked({"in": gates, "out": shapes["hidden"]}, "matrix")
    always_on = ceil(shapes["shared_ffn"] / shapes["expert_ffn"])
    experts, active = shapes["experts"] + always_on, shapes["top_k"] + always_on
    lines = unit(config)["digits"] * unit(config)["lines"]
    segment = floor(config.array("bitlines") / placed["interleaved"])
    parts = outputs / floor(segment / lines)  # of a page that an expert takes in a segment
    base = _side_by_side(config, placed, parts, experts, active)
    cam = _searched(config, placed, parts, experts, active)
    pages = where(selects, cam["pages"], base["pages"])
    groups = ceil(depth / placed["rows"])
    width = outputs * lines
    computing = where(selects, active, base["experts"]) * width
    found = xr.Dataset(
        {
            "serial_inputs": input_cycles(config),
            "row_cycles": where(selects, cam["passes"], base["passes"]) * placed["row_cycles"],
            "starts": pages * placed["row_cycles"],
            "activations": pages * depth,
            "columns": computing * groups,
            "pairs": computing * depth,
            "useful_pairs": active * width * depth,
        }
    )
    return described(found, _COUNTS)


def _side_by_side(
    config: CycleFields,
    placed: xr.Dataset,
    parts: xr.DataArray,
    experts: xr.DataArray,
    active: xr.DataArray,
) -> xr.Dataset:
    """Base: pages that start, passes of all planes over them, experts that compute."""
    redundancy, all_pages = config.array("redundancy"), placed["pages"]
    by_planes = redundancy == "planes"
    pages = where(by_planes, minimum(active * ceil(parts), all_pages), all_pages)
    with_neighbours = minimum(active * maximum(floor(1 / parts), 1), experts)
    computing = where(by_planes, with_neighbours, active)
    return xr.Dataset(
        {
            "pages": pages,
            "passes": ceil(pages / placed["planes_at_work"]),
            "experts": where(redundancy == "all", experts, computing),
        }
    )


def _searched(
    config: CycleFields,
    placed: xr.Dataset,
    parts: xr.DataArray,
    experts: xr.DataArray,
    active: xr.DataArray,
) -> xr.Dataset:
    """T1: pages that all searches start, and passes of all planes over them."""
    planes, of_a_search = placed["planes_at_work"], ceil(parts)
    alone = ceil(of_a_search / planes)
    # Experts of one interleaved group share their bitlines: they are searched one by one.
    of_a_group = ceil(active / ceil(experts / placed["interleaved"]))
    at_once = maximum(ceil(active * of_a_search / planes), of_a_group * alone)
    serial = config.array("search") == "serial"
    passes = where(serial, active * alone, at_once)
    return xr.Dataset({"pages": active * of_a_search, "passes": passes})


_COUNTS = {
    "serial_inputs": ("1", "digits of an input, one after the other"),
    "row_cycles": ("1", "cycles one after the other, for one input digit"),
    "starts": ("1", "planes that start a cycle, for one input digit"),
    "activations": ("1", "blocks whose wordlines rise, for one input digit"),
    "columns": ("1", "bitlines sensed, for one input digit"),
    "pairs": ("1", "bitlines and rows that may conduct, for one input digit"),
    "useful_pairs": ("1", "of them those of active experts"),
}
