"""The 3D-NAND string that the circuits share: parameters and netlist pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.levels import boundary
from nandcosim.spice.circuit import Knob, Params, parameter
from nandcosim.spice.netlists import find_netlist, read_netlist

__all__ = ["THRESHOLD", "StringParams", "add_string", "new_netlist", "shifts", "wordlines"]

#: Process corners as parameters of the shipped card (assumed: +-25 mV, -+8 % mobility).
CORNERS: dict[str, dict[str, float]] = {
    "tt": {"dvthn": 0.0, "dvthp": 0.0, "mobn": 1.0, "mobp": 1.0},
    "ss": {"dvthn": 0.025, "dvthp": 0.025, "mobn": 0.92, "mobp": 0.92},
    "ff": {"dvthn": -0.025, "dvthp": -0.025, "mobn": 1.08, "mobp": 1.08},
    "sf": {"dvthn": 0.025, "dvthp": -0.025, "mobn": 0.92, "mobp": 1.08},
    "fs": {"dvthn": -0.025, "dvthp": 0.025, "mobn": 1.08, "mobp": 0.92},
}


class StringParams(Params):
    """Parameters of a string, its cells, its levels and how its wordlines are driven."""

    cells: int = parameter(
        128,
        unit="1",
        ge=1,
        le=1024,
        meaning="cells in series",
        source="stated: D-NOVA Table 2 (128 wordlines)",
    )
    bits: int = parameter(
        4,
        unit="1",
        ge=1,
        le=4,
        meaning="bits a cell; 2**bits threshold levels",
        source="stated: D-NOVA Table 1 (QLC)",
    )
    window: float = parameter(
        0.96,
        unit="V",
        ge=0.05,
        le=8.0,
        meaning="span of all levels; spacing is window / 2**bits",
        source="derived: 16 levels and alpha <= 3 below V_PASS = 1.20 V, D-NOVA section 5.2",
    )
    v_base: float = parameter(
        0.1,
        unit="V",
        ge=-2.0,
        le=2.0,
        meaning="wordline voltage of level 0",
        source="stated: D-NOVA section 5.2, V_WL = 0.1 + (q + alpha) spacing",
    )
    v_pass: float = parameter(
        1.2,
        unit="V",
        ge=0.0,
        le=10.0,
        meaning="voltage of unselected wordlines and select lines",
        source="stated: D-NOVA section 5.2",
    )
    v_boundary: float | None = parameter(
        None,
        unit="V",
        meaning="gate voltage of the decision boundary; from the level map if unset",
        source="calibrated: nandcosim calibrate",
    )
    levels: str = parameter(
        "planar16lp",
        unit="",
        meaning="level map: a shipped name or a path",
        source="calibrated: nandcosim calibrate",
    )
    m: int = parameter(
        1,
        unit="1",
        ge=1,
        le=64,
        meaning="wordlines driven at once",
        source="stated: D-NOVA section 3.2 (1 to 8)",
    )
    position: float = parameter(
        0.5,
        unit="1",
        ge=0.0,
        le=1.0,
        meaning="place of the active wordlines; 0 bitline side, 1 source side",
        source="assumed: mid string",
    )
    stored: int = parameter(
        8,
        unit="1",
        ge=0,
        le=15,
        meaning="level stored in the active cells",
        source="assumed: mid window",
    )
    margin: float = parameter(
        1.5,
        unit="level",
        ge=-20.0,
        le=20.0,
        meaning="wordline above the boundary of the critical cells: q + alpha - r - 1/2",
        source="derived: alpha = 2 and r = q, D-NOVA section 5.4",
    )
    critical: int = parameter(
        1,
        unit="1",
        ge=1,
        le=64,
        meaning="how many of the m active cells sit at `margin` (from the bitline side)",
        source="assumed: one cell decides",
    )
    companion_margin: float = parameter(
        1.5,
        unit="level",
        ge=-20.0,
        le=20.0,
        meaning="margin of the other active cells",
        source="derived: they match the query, alpha = 2",
    )
    pattern: Literal["spread", "erased", "programmed"] = parameter(
        "spread",
        unit="",
        meaning="levels of the unselected cells: all in turn, lowest, highest",
        source="assumed: uniform data",
    )
    corner: Literal["tt", "ss", "ff", "sf", "fs"] = parameter(
        "tt",
        unit="",
        meaning="process corner, nMOS then pMOS: typical, slow, fast",
        source="assumed: 25 mV and 8 % mobility a corner",
    )
    temperature: float = parameter(
        27.0,
        unit="degC",
        ge=-55.0,
        le=150.0,
        meaning="temperature of all devices",
        source="assumed: the card's nominal",
    )
    card: str = parameter(
        "planar16lp",
        unit="",
        meaning="model card with cell, nper, pper: a shipped name or a path",
        source="sourced: PTM 16 nm LP, see the file",
    )
    cell: str = parameter(
        "nand_cell",
        unit="",
        meaning="subcircuit of one cell: a shipped name or a path",
        source="assumed: see the file",
    )
    w_cell: float = parameter(
        100e-9,
        unit="m",
        ge=1e-9,
        le=1e-5,
        meaning="effective channel width of a cell",
        source="assumed: circumference of a 32 nm pillar",
    )
    l_cell: float = parameter(
        30e-9,
        unit="m",
        ge=1e-9,
        le=1e-5,
        meaning="gate length of a cell",
        source="assumed: half of a 60 nm wordline pitch",
    )
    c_cell: float = parameter(
        20e-18,
        unit="F",
        ge=0.0,
        le=1e-15,
        meaning="parasitic capacitance of a channel node",
        source="assumed",
    )
    r_bl: float = parameter(
        1e3,
        unit="ohm",
        ge=0.1,
        le=1e6,
        meaning="series resistance of bitline and contact",
        source="assumed",
    )
    r_sl: float = parameter(
        100.0,
        unit="ohm",
        ge=0.1,
        le=1e6,
        meaning="resistance of the source line",
        source="assumed",
    )

    @model_validator(mode="after")
    def _fits(self) -> StringParams:
        if self.m > self.cells:
            raise ValueError(f"m = {self.m} wordlines in a string of cells = {self.cells}")
        if self.critical > self.m:
            raise ValueError(f"critical = {self.critical} cells of m = {self.m} active ones")
        if self.stored >= 2**self.bits:
            raise ValueError(f"stored = {self.stored} is no level of {2**self.bits}")
        return self

    @property
    def level_count(self) -> int:
        """Number of threshold levels."""
        return int(2**self.bits)

    @property
    def spacing(self) -> float:
        """Level spacing in V."""
        return self.window / self.level_count

    @property
    def first(self) -> int:
        """Index of the first active cell, counted from the bitline."""
        return round(self.position * (self.cells - self.m))

    @property
    def active(self) -> np.ndarray:
        """Indices of the active cells."""
        return np.arange(self.first, self.first + self.m)

    @property
    def unselected(self) -> np.ndarray:
        """Indices of the cells at the pass voltage."""
        return np.setdiff1d(np.arange(self.cells), self.active)


THRESHOLD = Knob(
    name="threshold",
    unit="level",
    meaning="error of each cell's stored threshold, added to its level",
    size=lambda params: params.cells,
    groups={
        "active": lambda params: params.active,
        "critical": lambda params: params.active[: params.critical],
        "unselected": lambda params: params.unselected,
    },
)


def stored_levels(params: StringParams) -> np.ndarray:
    """Nominal level of every cell, shape (cells,)."""
    top = params.level_count - 1
    levels: np.ndarray
    if params.pattern == "erased":
        levels = np.zeros(params.cells)
    elif params.pattern == "programmed":
        levels = np.full(params.cells, float(top))
    else:  # a stride coprime with the level count visits every level, neighbours far apart
        levels = np.mod(7.0 * np.arange(params.cells), params.level_count)
    levels[params.active] = params.stored
    return levels


def shifts(params: StringParams, threshold: np.ndarray) -> np.ndarray:
    """Voltage of every cell's stored charge in V, shape (cells,).

    Parameters
    ----------
    params : StringParams
    threshold : ndarray
        Error of the stored level, in level spacings, shape (cells,).
    """
    levels = stored_levels(params) + threshold
    return np.asarray(params.v_base + (levels + 0.5) * params.spacing - boundary(params))


def wordlines(params: StringParams) -> np.ndarray:
    """Wordline voltage of every cell in V, shape (cells,)."""
    margins = np.full(params.m, params.companion_margin)
    margins[: params.critical] = params.margin
    volts = np.full(params.cells, params.v_pass)
    # t = q + alpha = r + 1/2 + margin, so that margin 0 is the boundary of level r
    volts[params.active] = params.v_base + (params.stored + 0.5 + margins) * params.spacing
    return volts


def shift_elements(params: StringParams, threshold: np.ndarray) -> dict[str, float]:
    """ngspice name of every shift source -> its value in V."""
    values = shifts(params, threshold)
    return {f"v.xcell{index}.vshift": float(value) for index, value in enumerate(values)}


def new_netlist(title: str, params: StringParams, *cells: str) -> Netlist:
    """Start a netlist: corner parameters, the card, the cell and further subcircuits."""
    netlist = Netlist(title)
    for name, value in CORNERS[params.corner].items():
        netlist.parameter(name, repr(value))
    paths = [find_netlist(params.card, "models", ".lib")]
    paths += [find_netlist(name, "cells", ".cir") for name in (params.cell, *cells)]
    # Inlined, so that the deck is complete on its own and its digest covers the files.
    netlist.raw_spice = "\n".join(read_netlist(path).rstrip() for path in paths) + "\n"
    return netlist


def string_files(params: StringParams, *cells: str) -> tuple[str, ...]:
    """Files that decide what the deck holds: those `new_netlist` inlines, and the level map."""
    paths = [find_netlist(params.card, "models", ".lib")]
    paths += [find_netlist(name, "cells", ".cir") for name in (params.cell, *cells)]
    if params.v_boundary is None:
        paths.append(find_netlist(params.levels, "models", ".levels.toml"))
    return tuple(map(str, paths))


def add_string(
    netlist: Netlist,
    params: StringParams,
    knobs: Mapping[str, np.ndarray],
    bitline: str,
    select: str,
) -> None:
    """Add a string between `bitline` and the source line, gated by the node `select`.

    Adds nodes ``wlpass`` and ``wl<i>`` for the active wordlines, ``ch<i>`` for the channel
    above cell i, and the source line ``sl``.
    """
    ground = netlist.gnd
    select_size: dict[str, Any] = {"w": params.w_cell, "l": 3 * params.l_cell}
    netlist.V("pass", "wlpass", ground, params.v_pass)
    volts = wordlines(params)
    active = {int(index) for index in params.active}
    for index in sorted(active):
        netlist.V(f"wl{index}", f"wl{index}", ground, float(volts[index]))
    netlist.R("bl", bitline, "sd", params.r_bl)
    netlist.M("ssl", "sd", select, "ch0", ground, model="cell", **select_size)
    for index, shift in enumerate(shifts(params, knobs["threshold"])):
        wordline = f"wl{index}" if index in active else "wlpass"
        netlist.X(
            f"cell{index}",
            _subcircuit(params),
            f"ch{index}",
            wordline,
            f"ch{index + 1}",
            ground,
            w=params.w_cell,
            l=params.l_cell,
            shift=float(shift),
            cpar=params.c_cell,
        )
    netlist.M("gsl", f"ch{params.cells}", select, "sl", ground, model="cell", **select_size)
    netlist.R("sl", "sl", ground, params.r_sl)


def _subcircuit(params: StringParams) -> str:
    """Name of the cell's subcircuit: that of its file."""
    return find_netlist(params.cell, "cells", ".cir").stem
