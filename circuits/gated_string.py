"""A string whose topmost wordlines are CAM layers and whose other cells hold weights.

What `cam_string` and the circuits of compute-in-memory share: parameters, stored charge,
search voltages (NASiC, Fig. 4).
"""

from __future__ import annotations

import numpy as np
from pydantic import model_validator

from circuits.chain import LevelParams
from circuits.levels import Pattern, boundary, pattern_levels
from nandcosim.encodings import cam_cell, layer_codes, parse_layers
from nandcosim.spice.circuit import parameter

__all__ = [
    "GatedParams",
    "cam_shifts",
    "cam_spacing",
    "cim_shifts",
    "nodeset",
    "search_nodes",
    "search_voltages",
    "shift_at",
]

#: Levels of the pattern of cells nobody reads, before they become states.
PATTERN_LEVELS = 16


class GatedParams(LevelParams):
    """Parameters of a string with CAM layers on top and cells with weights below."""

    bits: int = parameter(
        4,
        unit="1",
        ge=1,
        le=4,
        meaning="level map that places the boundary: that of cells of 2**bits levels",
        source="assumed: the shipped maps of one string are within 10 mV",
    )
    layers: str = parameter(
        "2",
        unit="",
        meaning="bits of every CAM layer from the bitline, joined by +, as in 1+2",
        source="stated: NASiC, 1 to 3 bits, several layers in series",
    )
    entry: int = parameter(
        1,
        unit="1",
        ge=0,
        le=2**16 - 1,
        meaning="identifier stored in the CAM layers",
        source="assumed: it has a neighbour on either side",
    )
    search_margin: float = parameter(
        0.5,
        unit="level",
        ge=0.0,
        le=1.0,
        meaning="search voltage of a match above the boundary, in levels of that CAM cell",
        source="derived: half way between match and mismatch",
    )
    states: int = parameter(
        4,
        unit="1",
        ge=2,
        le=8,
        meaning="states of the cells that hold weights",
        source="stated: NASiC Fig. 7, 2 to m",
    )
    pattern: Pattern = parameter(
        "spread",
        unit="",
        meaning="states of the unselected cells: all in turn, lowest, highest",
        source="assumed: uniform data",
    )
    v_bl: float = parameter(
        0.06,
        unit="V",
        ge=0.001,
        le=5.0,
        meaning="voltage the bitline is held at",
        source="calibrated: small against the overdrive, so that the string is a resistance",
    )

    @model_validator(mode="after")
    def _cam_fits(self) -> GatedParams:
        if self.entry >= self.codes:
            raise ValueError(f"entry = {self.entry} is none of the {self.codes} identifiers")
        if self.cam_cells >= self.cells:
            raise ValueError(f"cells = {self.cells}: {self.cam_cells} of them are CAM transistors")
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of every CAM layer."""
        return parse_layers(self.layers)

    @property
    def codes(self) -> int:
        """Number of identifiers."""
        return int(2 ** sum(self.widths))

    @property
    def cam_cells(self) -> int:
        """Transistors of all the CAM layers."""
        return 2 * len(self.widths)


def shift_at(params: GatedParams, level: np.ndarray, spacing: float | np.ndarray) -> np.ndarray:
    """As `circuits.levels.shift_of`, for cells of another spacing."""
    return np.asarray(params.v_base + (level + 0.5) * spacing - boundary(params))


def cam_spacing(params: GatedParams) -> np.ndarray:
    """Level spacing of each CAM transistor in V, shape (cam_cells,)."""
    return np.asarray(params.window / 2.0 ** np.repeat(params.widths, 2))


def cam_shifts(params: GatedParams) -> np.ndarray:
    """Nominal voltage of the CAM transistors' stored charge in V, shape (cam_cells,)."""
    return shift_at(params, _cam_levels(params, params.entry), cam_spacing(params))


def cim_shifts(params: GatedParams) -> np.ndarray:
    """Nominal voltage of the other cells' stored charge in V, none of them selected."""
    count = params.cells - params.cam_cells
    levels = pattern_levels(params.pattern, count, PATTERN_LEVELS)
    states = np.floor(levels * params.states / PATTERN_LEVELS)
    return shift_at(params, states, params.window / params.states)


def search_voltages(params: GatedParams, query: int) -> np.ndarray:
    """Voltage of the CAM transistors' wordlines in V, shape (cam_cells,)."""
    above = _cam_levels(params, query) + 0.5 + params.search_margin
    return np.asarray(params.v_base + above * cam_spacing(params))


def _cam_levels(params: GatedParams, code: int) -> np.ndarray:
    return cam_cell(layer_codes(code, params.widths), params.widths).ravel()


def search_nodes(params: GatedParams) -> list[str]:
    """Nodes of the CAM transistors' wordlines, from the bitline."""
    return [f"search{index}" for index in range(params.cam_cells)]


def nodeset(volts: float, params: GatedParams, name: str = "") -> str:
    """``.nodeset`` lines of a string's channel: nothing flows, it is at the bitline's voltage.

    A first guess, without which most operating points need gmin stepping.
    """
    nodes = range(params.cells + 1)
    return "".join(f".nodeset v(ch{name}{index})={volts!r}\n" for index in nodes)
