"""Compute-in-memory in the string: input on the source line, weight in the cell, CAM as gate.

One string: its current against the input x, for a cell that the read pulse finds so far
above or below its state (NASiC, Fig. 4(e), 6(d), 7(d)). `circuits.cim_unit` puts eight of
them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist
from scipy.optimize import brentq

from circuits.chain import add_chain, chain_files, new_netlist, shift_source
from circuits.gated_string import (
    GatedParams,
    cam_shifts,
    cim_shifts,
    nodeset,
    search_nodes,
    search_voltages,
    shift_at,
)
from nandcosim.errors import SimulationError
from nandcosim.spice.circuit import Circuit, DcSweep, Knob, Response, SweptSource, parameter
from nandcosim.spice.engine import Engine, full_knobs
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status

__all__ = [
    "INPUTS",
    "INPUT_SWEEP",
    "THRESHOLD",
    "CimParams",
    "CimString",
    "CimStringParams",
    "add_source_line",
    "add_wordlines",
    "read_voltage",
    "source_line_voltages",
    "stored_shifts",
]

#: Inputs of one run, the four levels of the source line.
INPUTS = (0, 1, 2, 3)

#: The source that counts through them, 1 V each.
INPUT_SWEEP = SweptSource("vx", float(INPUTS[0]), float(INPUTS[-1]), len(INPUTS))


class CimParams(GatedParams):
    """Parameters of a string that multiplies."""

    query: int = parameter(
        1,
        unit="1",
        ge=0,
        le=2**16 - 1,
        meaning="identifier searched for in the CAM layers",
        source="assumed: the default entry, a match",
    )
    read_margin: float = parameter(
        0.7,
        unit="level",
        ge=0.0,
        le=1.0,
        meaning="read voltage above the boundary of the highest state that is to conduct",
        source="calibrated: even steps against leakage of the next state, see the page",
    )
    position: float = parameter(
        0.5,
        unit="1",
        ge=0.0,
        le=1.0,
        meaning="place of the selected cell; 0 next to the CAM layers, 1 source side",
        source="assumed: mid string",
    )
    v_x1: float = parameter(
        0.02836,
        unit="V",
        ge=0.0,
        le=5.0,
        meaning="bitline above source line at the input x = 1",
        source="calibrated: nandcosim calibrate cim_string",
    )
    v_x2: float = parameter(
        0.04616,
        unit="V",
        ge=0.0,
        le=5.0,
        meaning="bitline above source line at the input x = 2",
        source="calibrated: nandcosim calibrate cim_string",
    )
    v_x3: float = parameter(
        0.06,
        unit="V",
        ge=0.0,
        le=5.0,
        meaning="bitline above source line at the input x = 3",
        source="derived: v_bl, so that the source line is then at ground",
    )

    @model_validator(mode="after")
    def _query_and_levels_fit(self) -> CimParams:
        if self.query >= self.codes:
            raise ValueError(f"query = {self.query} is none of the {self.codes} identifiers")
        if not self.v_x1 < self.v_x2 < self.v_x3 <= self.v_bl:
            raise ValueError("expected v_x1 < v_x2 < v_x3 <= v_bl")
        return self

    @property
    def selected(self) -> int:
        """Index of the selected cell, counted from the bitline."""
        return self.cam_cells + round(self.position * (self.cells - self.cam_cells - 1))

    @property
    def unselected(self) -> np.ndarray:
        """Indices of the cells at the pass voltage."""
        return np.setdiff1d(np.arange(self.cam_cells, self.cells), [self.selected])


THRESHOLD = Knob(
    name="threshold",
    unit="V",
    meaning="error of each cell's threshold",
    size=lambda params: params.cells,
    groups={
        "cam": lambda params: np.arange(params.cam_cells),
        "selected": lambda params: np.array([params.selected]),
        "unselected": lambda params: params.unselected,
    },
)


def read_voltage(params: CimParams, pulse: int) -> float:
    """Voltage of the selected wordline in V in read pulse 1 to m - 1.

    State s is to conduct in the pulses j > s, so pulse j lies between the boundaries of
    the states j - 1 and j.
    """
    spacing = params.window / params.states
    return float(params.v_base + (pulse - 0.5 + params.read_margin) * spacing)


def source_line_voltages(params: CimParams) -> tuple[float, ...]:
    """Voltage of the source line in V for each of `INPUTS`; for 0 it is the bitline's."""
    return tuple(params.v_bl - drop for drop in (0.0, params.v_x1, params.v_x2, params.v_x3))


def stored_shifts(params: CimParams, state: int) -> np.ndarray:
    """Nominal voltage of every cell's stored charge in V, the selected one in `state`."""
    values = np.concatenate([cam_shifts(params), cim_shifts(params)])
    values[params.selected] = shift_at(params, np.asarray(state), params.window / params.states)
    return values


def add_source_line(netlist: Netlist, params: CimParams) -> None:
    """Add the source line ``sl``: ``vx`` counts through the inputs, an ideal driver follows."""
    netlist.V("x", "x", netlist.gnd, float(INPUTS[-1]))
    levels = zip(INPUTS, source_line_voltages(params), strict=True)
    points = ",".join(f"{x},{volts!r}" for x, volts in levels)
    netlist.B("sl", "slx", netlist.gnd, voltage_expression=f"pwl(v(x),{points})")
    netlist.R("sl", "sl", "slx", params.r_sl)


def add_wordlines(netlist: Netlist, params: CimParams) -> list[str]:
    """Add search and pass voltages; return every cell's wordline, ``read`` the selected one's."""
    netlist.V("pass", "pass", netlist.gnd, params.v_pass)
    nodes = search_nodes(params)
    for node, volts in zip(nodes, search_voltages(params, params.query), strict=True):
        netlist.V(node, node, netlist.gnd, float(volts))
    nodes += ["pass"] * (params.cells - params.cam_cells)
    nodes[params.selected] = "read"
    return nodes


class CimStringParams(CimParams):
    """Parameters of `CimString`."""

    step: int = parameter(
        1,
        unit="1",
        ge=-6,
        le=7,
        meaning="read pulse less stored state: the cell is to conduct from 1",
        source="derived: pulse and state matter by their difference only (tested)",
    )


class CimString(Circuit):
    """One string with its bitline held, at every input in turn."""

    name = "cim_string"
    summary = "CAM-gated CIM string: current against the input on the source line"
    Params = CimStringParams
    knobs = (THRESHOLD,)
    responses_declared = tuple(
        Response(f"i_x{x}", "A", f"current from the bitline at input {x}") for x in INPUTS
    )

    def build(
        self, params: CimStringParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("cim_string: every input in turn", params)
        netlist.V("bl", "bl", netlist.gnd, params.v_bl)
        add_source_line(netlist, params)
        wordlines = add_wordlines(netlist, params)
        netlist.V("read", "read", netlist.gnd, read_voltage(params, params.step))
        values = stored_shifts(params, 0) + knobs["threshold"]
        add_chain(netlist, params, values, wordlines, bitline="bl", source="sl", select="pass")
        netlist.raw_spice += nodeset(params.v_bl, params)
        return netlist

    def elements(
        self, params: CimStringParams, knobs: Mapping[str, np.ndarray]
    ) -> dict[str, float]:
        values = stored_shifts(params, 0) + knobs["threshold"]
        return {shift_source(index): float(value) for index, value in enumerate(values)}

    def analysis(self, params: CimStringParams, wanted: frozenset[str] | None = None) -> DcSweep:
        return DcSweep(INPUT_SWEEP)

    def saved(self, params: CimStringParams) -> tuple[str, ...]:
        return ("i(vbl)",)

    def responses(self, waveforms: Waveforms, params: CimStringParams) -> dict[str, float]:
        current = -waveforms["i(vbl)"]
        return {f"i_x{x}": float(i) for x, i in zip(INPUTS, current, strict=True)}

    def measures(self, params: CimStringParams) -> tuple[str, ...]:
        return tuple(
            line
            for x in INPUTS
            for line in (
                f".meas dc into_x{x} find i(vbl) at={x}",
                f".meas dc i_x{x} param='-into_x{x}'",
            )
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params)

    def calibrate(self, params: CimStringParams, engine: Engine, out: Path) -> dict[str, float]:
        """Find the source-line levels and write them as sweep parameters.

        The conducting string's current is to be proportional to the input: a third and two
        thirds of the current at v_x3.

        Parameters
        ----------
        params : CimStringParams
        engine : Engine
        out : Path
            A TOML file with the table ``[parameters]``.

        Returns
        -------
        dict
            ``v_x1`` and ``v_x2`` in V, to 1 uV.

        Raises
        ------
        SimulationError
            If a run fails.
        """

        def current(drop: float) -> float:
            # one level at a time, in the place of v_x3
            trial = params.model_copy(update={"v_x1": drop / 3, "v_x2": drop / 2, "v_x3": drop})
            outcome = engine.sample(self, trial)
            if outcome.status is not Status.OK:
                raise SimulationError(f"calibrate: {outcome.status.label}: {outcome.reason}")
            return outcome.responses["i_x3"]

        full = current(params.v_x3)
        found = {
            f"v_x{x}": float(
                brentq(lambda v, x=x: current(v) - x / 3 * full, 1e-4, params.v_x3, xtol=1e-6)
            )
            for x in (1, 2)
        }
        lines = "".join(f"{name} = {volts!r}\n" for name, volts in found.items())
        out.write_text(f"# Written by `nandcosim calibrate`.\n[parameters]\n{lines}")
        return found
