"""The chain of a 3D-NAND string: select transistor, cells in series, select transistor.

What the circuits share: the physical parameters, the level map's place in them, and the
netlist pieces. Which cells are driven, and how, is each circuit's own matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.card import CardParams, card_files, card_netlist
from nandcosim.spice.circuit import parameter
from nandcosim.spice.netlists import find_netlist, find_subcircuit

__all__ = ["ChainParams", "LevelParams", "add_chain", "chain_files", "new_netlist", "shift_source"]


class ChainParams(CardParams):
    """Physical parameters of a string."""

    cells: int = parameter(
        128,
        unit="1",
        ge=1,
        le=1024,
        meaning="cells in series",
        source="stated: D-NOVA Table 2 (128 wordlines)",
    )
    v_pass: float = parameter(
        1.2,
        unit="V",
        ge=0.0,
        le=10.0,
        meaning="voltage of unselected wordlines and select lines",
        source="stated: D-NOVA section 5.2",
    )
    cell: str = parameter(
        "nand_cell",
        unit="",
        meaning="subcircuit of one cell: a shipped name or a path",
        source="assumed: see the file",
    )
    select: str = parameter(
        "select_transistor",
        unit="",
        meaning="subcircuit of a select transistor: a shipped name or a path",
        source="assumed: a cell's channel, three times as long",
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


class LevelParams(ChainParams):
    """A string whose cells store one of 2**bits threshold levels."""

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

    @property
    def level_count(self) -> int:
        """Number of threshold levels."""
        return int(2**self.bits)

    @property
    def spacing(self) -> float:
        """Level spacing in V."""
        return self.window / self.level_count


def new_netlist(title: str, params: ChainParams, *subcircuits: str) -> Netlist:
    """Start a netlist: corner parameters, the card, the cell, the select transistor and more.

    Parameters
    ----------
    title : str
    params : ChainParams
    *subcircuits : str
        Further subcircuits, shipped names or paths.
    """
    return card_netlist(title, params, params.cell, params.select, *subcircuits)


def chain_files(params: ChainParams, *subcircuits: str) -> tuple[str, ...]:
    """Files that `new_netlist` inlines or includes, and the level map where it decides."""
    files = card_files(params, params.cell, params.select, *subcircuits)
    if isinstance(params, LevelParams) and params.v_boundary is None:
        files += (str(find_netlist(params.levels, "models", ".levels.toml")),)
    return files


def add_chain(
    netlist: Netlist,
    params: ChainParams,
    shifts: np.ndarray,
    wordlines: Sequence[str],
    *,
    bitline: str,
    source: str,
    select: str,
    name: str = "",
) -> None:
    """Add a string from the node `bitline` to the node `source`.

    Adds the nodes ``sd<name>`` behind the bitline's resistance and ``ch<name><i>`` above
    cell i, counted from the bitline; its cells are the elements ``xcell<name><i>``.

    Parameters
    ----------
    netlist : Netlist
    params : ChainParams
    shifts : ndarray, shape (cells,)
        Voltage of every cell's stored charge in V.
    wordlines : sequence of str, shape (cells,)
        Node of every cell's wordline.
    bitline, source, select : str
        Nodes; `select` gates both select transistors.
    name : str
        Tells the strings of one netlist apart.
    """
    ground = netlist.gnd
    size: dict[str, Any] = {"w": params.w_cell, "l": 3 * params.l_cell}
    fet, cell = find_subcircuit(params.select).stem, find_subcircuit(params.cell).stem
    top, bottom = f"ch{name}0", f"ch{name}{params.cells}"
    netlist.R(f"bl{name}", bitline, f"sd{name}", params.r_bl)
    netlist.X(f"ssl{name}", fet, f"sd{name}", select, top, ground, **size)
    for index, (shift, wordline) in enumerate(zip(shifts, wordlines, strict=True)):
        netlist.X(
            f"cell{name}{index}",
            cell,
            f"ch{name}{index}",
            wordline,
            f"ch{name}{index + 1}",
            ground,
            w=params.w_cell,
            l=params.l_cell,
            shift=float(shift),
            cpar=params.c_cell,
        )
    netlist.X(f"gsl{name}", fet, bottom, select, source, ground, **size)


def shift_source(index: int, name: str = "") -> str:
    """The ngspice name of the source that carries the shift of cell `index`."""
    return f"v.xcell{name}{index}.vshift"
