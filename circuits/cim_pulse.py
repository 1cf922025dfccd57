"""The read pulses of a CIM unit in time: when its current has settled, and what that costs.

Everything rises from ground at once; then the selected wordline steps through the read
voltages (NASiC, Fig. 7(d)). t1 is the time of the first pulse, t2 that of each further one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import chain_files, new_netlist
from circuits.cim_string import INPUTS, CimParams, read_voltage, source_line_voltages
from circuits.cim_unit import BLOCKS, THRESHOLDS, add_strings, unit_elements
from circuits.gated_string import search_nodes, search_voltages
from nandcosim.spice.circuit import Circuit, Marks, Response, Transient, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.measure import integral
from nandcosim.spice.result import Waveforms

__all__ = ["CimPulse", "CimPulseParams"]

#: Time constants that a pulse is held for, to see its current settle.
HELD = 12.0


class CimPulseParams(CimParams):
    """Parameters of `CimPulse`."""

    x: int = parameter(
        3,
        unit="1",
        ge=INPUTS[0],
        le=INPUTS[-1],
        meaning="input on the source line",
        source="assumed: the largest current",
    )
    tau_pass: float = parameter(
        6e-6,
        unit="s",
        ge=1e-9,
        le=1e-3,
        meaning="time constant of the pass, select and search lines",
        source="assumed: order of the wordline RC that 3D-FPIM gives a 16.5 KB page",
    )
    tau_read: float = parameter(
        6e-6,
        unit="s",
        ge=1e-9,
        le=1e-3,
        meaning="time constant of the selected wordline",
        source="derived: a wordline like the others, tau_pass",
    )
    tau_bl: float = parameter(
        1e-7,
        unit="s",
        ge=1e-9,
        le=1e-3,
        meaning="time constant of bitlines and source line",
        source="assumed: short against the wordlines",
    )
    tolerance: float = parameter(
        0.01,
        unit="1",
        ge=1e-3,
        le=0.5,
        meaning="share of the unit's full current within which it counts as settled",
        source="assumed: half an LSB of 6 bits; an 8-bit converter needs 0.002",
    )

    @property
    def weight(self) -> int:
        """Weight of which block A conducts in two strings from pulse 1, in four from pulse 2."""
        return 2 * (self.states - 2)

    @property
    def starts(self) -> np.ndarray:
        """Start of every pulse and the end of the last one in s, shape (states,)."""
        slowest = max(self.tau_pass, self.tau_read)
        held = [HELD * slowest] + [HELD * self.tau_read] * (self.states - 2)
        return np.cumsum([0.0, *held])


class CimPulse(Circuit):
    """A unit from rest through all its read pulses."""

    name = "cim_pulse"
    summary = "read pulses of a CIM unit: settling times t1 and t2, energy"
    Params = CimPulseParams
    knobs = (THRESHOLDS,)
    responses_declared = (
        Response("t1", "s", "from rest until the currents of the first pulse have settled"),
        Response("t2", "s", "longest settling of a further pulse", optional=True),
        Response("e_bl", "J", "energy from the bitlines until each pulse has settled"),
        Response("e_wl", "J", "energy from wordlines and select lines into the unit's gates"),
        Response("i_first", "A", "settled current of block A in the first pulse"),
        Response("i_last", "A", "settled current of block A in the last pulse"),
    )

    def build(
        self, params: CimPulseParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("cim_pulse: all read pulses of a unit", params)
        ground = netlist.gnd
        for node in ("bla", "blb"):
            netlist.V(node, node, ground, _rise(params.v_bl, 0.0, params.tau_bl))
        line = source_line_voltages(params)[params.x]
        netlist.V("sl", "slx", ground, _rise(line, 0.0, params.tau_bl))
        netlist.R("sl", "sl", "slx", params.r_sl)
        netlist.V("pass", "pass", ground, _rise(params.v_pass, 0.0, params.tau_pass))
        nodes = search_nodes(params)
        for node, volts in zip(nodes, search_voltages(params, params.query), strict=True):
            netlist.V(node, node, ground, _rise(float(volts), 0.0, params.tau_pass))
        # one source a pulse, in series: each adds its step
        below, volts = ground, 0.0
        for pulse in range(1, params.states):
            node = "read" if pulse == params.states - 1 else f"read{pulse}"
            step = read_voltage(params, pulse) - volts
            start = float(params.starts[pulse - 1])
            netlist.V(f"read{pulse}", node, below, _rise(step, start, params.tau_read))
            below, volts = node, read_voltage(params, pulse)
        nodes += ["pass"] * (params.cells - params.cam_cells)
        nodes[params.selected] = "read"
        add_strings(netlist, params, params.weight, knobs["threshold"], nodes)
        # the trapezoidal rule rings on the capacitive currents, by more than the tolerance
        netlist.raw_spice += ".options method=gear\n"
        return netlist

    def elements(self, params: CimPulseParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        return unit_elements(params, params.weight, knobs["threshold"])

    def analysis(self, params: CimPulseParams, wanted: frozenset[str] | None = None) -> Transient:
        stop = float(params.starts[-1])
        return Transient(stop, stop / 1000, min(params.tau_pass, params.tau_read) / 5)

    def saved(self, params: CimPulseParams) -> tuple[str, ...]:
        lines = ["pass", *search_nodes(params)]
        reads = [f"read{pulse}" for pulse in range(1, params.states)]
        currents = [f"bl{block}" for block in BLOCKS] + lines + reads[-1:]
        voltages = ["bla", "read", *lines]
        return (*(f"v({n})" for n in voltages), *(f"i(v{n})" for n in currents))

    def responses(self, waveforms: Waveforms, params: CimPulseParams) -> dict[str, float]:
        time = waveforms.time
        currents = np.stack([-waveforms[f"i(vbl{block})"] for block in BLOCKS])
        spans = list(zip(params.starts[:-1], params.starts[1:], strict=True))
        held = [(time >= start) & (time <= stop) for start, stop in spans]
        within = params.tolerance * currents[:, -1].sum()
        settling = [_settling(time[at], currents[:, at], within) for at in held]
        power = waveforms["v(bla)"] * currents.sum(axis=0)
        spent = sum(
            integral(time[at & (time <= start + t)], power[at & (time <= start + t)])
            for at, (start, _), t in zip(held, spans, settling, strict=True)
        )
        lines = ["pass", *search_nodes(params)]
        gates = sum(-waveforms[f"v({n})"] * waveforms[f"i(v{n})"] for n in lines)
        gates = gates - waveforms["v(read)"] * waveforms[f"i(vread{params.states - 1})"]
        return {
            "t1": settling[0],
            "t2": max(settling[1:], default=float("nan")),
            "e_bl": float(spent),
            "e_wl": integral(time, gates),
            "i_first": float(currents[0, held[0]][-1]),
            "i_last": float(currents[0, -1]),
        }

    def measures(self, params: CimPulseParams) -> tuple[str, ...]:
        # one step before a pulse's end: .meas interpolates, and the next point is another pulse's
        step = self.analysis(params).max_step
        ends = {"first": params.starts[1], "last": params.starts[-1]}
        return tuple(
            line
            for pulse, end in ends.items()
            for line in (
                f".meas tran into_{pulse} find i(vbla) at={float(end - step)!r}",
                f".meas tran i_{pulse} param='-into_{pulse}'",
            )
        )

    def marks(self, params: CimPulseParams) -> Marks:
        starts = enumerate(params.starts[:-1], start=1)
        return Marks(instants={f"pulse {pulse}": float(start) for pulse, start in starts})

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params)


def _rise(volts: float, start: float, tau: float) -> str:
    """A step at `start` through an RC; the second edge of ngspice's EXP lies beyond the run."""
    return f"exp(0 {volts!r} {start!r} {tau!r} 1 {tau!r})"


def _settling(time: np.ndarray, currents: np.ndarray, within: float) -> float:
    """Time from the first point until every current stays `within` its last value, in s."""
    error = np.abs(currents - currents[:, -1:]).max(axis=0)
    off = np.flatnonzero(error > within)
    if not off.size:
        return 0.0
    last = slice(off[-1], off[-1] + 2)
    return float(np.interp(-within, -error[last], time[last]) - time[0])
