"""A string of which m wordlines are driven at once: parameters and netlist pieces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import LevelParams, add_chain, shift_source
from circuits.levels import Pattern, pattern_levels, shift_of
from nandcosim.spice.circuit import Knob, parameter

__all__ = ["SOURCE_LINE", "THRESHOLD", "StringParams", "add_string", "shifts", "wordlines"]


class StringParams(LevelParams):
    """Parameters of a string and how its wordlines are driven."""

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
    pattern: Pattern = parameter(
        "spread",
        unit="",
        meaning="levels of the unselected cells: all in turn, lowest, highest",
        source="assumed: uniform data",
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

#: Adds to the ground that the string discharges into.
SOURCE_LINE = Knob("source_line", "V", "noise voltage on the source line, constant over a sense")


def stored_levels(params: StringParams) -> np.ndarray:
    """Nominal level of every cell, shape (cells,)."""
    levels = pattern_levels(params.pattern, params.cells, params.level_count)
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
    return shift_of(params, stored_levels(params) + threshold)


def wordlines(params: StringParams) -> np.ndarray:
    """Wordline voltage of every cell in V, shape (cells,)."""
    margins = np.full(params.m, params.companion_margin)
    margins[: params.critical] = params.margin
    volts = np.full(params.cells, params.v_pass)
    # t = q + alpha = r + 1/2 + margin, so that margin 0 is the boundary of level r
    volts[params.active] = params.v_base + (params.stored + 0.5 + margins) * params.spacing
    return volts


def string_elements(params: StringParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """ngspice name of everything that the knobs of a string change -> its value in V."""
    values = shifts(params, knobs["threshold"])
    sources = {shift_source(index): float(value) for index, value in enumerate(values)}
    return sources | {"vslnoise": float(knobs["source_line"][0])}


def add_string(
    netlist: Netlist,
    params: StringParams,
    knobs: Mapping[str, np.ndarray],
    bitline: str,
    select: str,
) -> None:
    """Add a string between `bitline` and the source line, gated by the node `select`.

    Adds nodes ``wlpass`` and ``wl<i>`` for the active wordlines, ``ch<i>`` for the channel
    above cell i, and the source line ``sl`` with its resistance and noise.
    """
    ground = netlist.gnd
    netlist.V("pass", "wlpass", ground, params.v_pass)
    volts = wordlines(params)
    nodes = ["wlpass"] * params.cells
    for index in map(int, params.active):
        nodes[index] = f"wl{index}"
        netlist.V(nodes[index], nodes[index], ground, float(volts[index]))
    values = shifts(params, knobs["threshold"])
    add_chain(netlist, params, values, nodes, bitline=bitline, source="sl", select=select)
    netlist.R("sl", "sl", "slnoise", params.r_sl)
    netlist.V("slnoise", "slnoise", ground, float(knobs["source_line"][0]))
