"""DTS sensing: precharged bitline, string, sense amplifier and output buffer.

m wordlines are driven at once by query voltages, all others pass. The string
conducts when every active cell does; the bit at the output buffer says whether the
bitline fell below the trip point before the strobe (D-NOVA sections 3.2 and 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist
from scipy.optimize import brentq

from circuits.chain import chain_files, new_netlist
from circuits.levels import write_level_map
from circuits.string import SOURCE_LINE, THRESHOLD, StringParams, add_string, string_elements
from nandcosim.errors import SimulationError
from nandcosim.spice.circuit import (
    Circuit,
    Knob,
    Marks,
    Response,
    StopWhen,
    Transient,
    parameter,
)
from nandcosim.spice.engine import Engine, full_knobs
from nandcosim.spice.measure import crossing, integral, value_at
from nandcosim.spice.netlists import find_netlist
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status

__all__ = ["DtsSense", "DtsSenseParams"]


class DtsSenseParams(StringParams):
    """Parameters of `DtsSense`."""

    vdd: float = parameter(
        0.8,
        unit="V",
        ge=0.3,
        le=5.0,
        meaning="supply, and precharge level of the bitline",
        source="derived: twice the 0.40 V trip point; nominal supply of PTM-MG 14 nm",
    )
    v_trip: float = parameter(
        0.4,
        unit="V",
        ge=0.01,
        le=5.0,
        meaning="bitline voltage whose crossing is timed",
        source="stated: D-NOVA section 5.2",
    )
    c_bl: float = parameter(
        200e-15,
        unit="F",
        ge=1e-15,
        le=1e-11,
        meaning="bitline capacitance, scaled domain",
        source="assumed: large against the string's own, so that charge sharing is small",
    )
    t_pre: float = parameter(
        2e-6,
        unit="s",
        ge=1e-9,
        le=1e-4,
        meaning="precharge time",
        source="assumed: over ten time constants of the precharge transistor",
    )
    t_sense: float = parameter(
        20e-6,
        unit="s",
        ge=1e-8,
        le=1e-2,
        meaning="from selecting the string to the strobe",
        source="assumed: within the 24 us read margin that D-NOVA section 6.7 cites",
    )
    c_load: float = parameter(
        5e-15,
        unit="F",
        ge=0.0,
        le=1e-12,
        meaning="load of the output buffer",
        source="assumed: the sensing latch",
    )
    sense_path: str = parameter(
        "sense_path",
        unit="",
        meaning="subcircuit of precharge, sense amplifier and buffer: a shipped name or a path",
        source="assumed: see the file",
    )
    max_step: float = parameter(
        1e-6,
        unit="s",
        ge=1e-10,
        le=1e-3,
        meaning="largest time step; a twentieth where the sense amplifier's output is measured",
        source="derived: crossing time within 1e-3 of that at a 25th of it (tested)",
    )

    @model_validator(mode="after")
    def _trips(self) -> DtsSenseParams:
        if self.v_trip >= self.vdd:
            raise ValueError(f"v_trip = {self.v_trip} V is not below vdd = {self.vdd} V")
        return self


@dataclass(frozen=True)
class _Timing:
    """Instants of one sense operation in s; precharge starts it."""

    select: float
    strobe: float

    @classmethod
    def of(cls, params: DtsSenseParams) -> _Timing:
        return cls(params.t_pre, params.t_pre + params.t_sense)


class DtsSense(Circuit):
    """One bitline's sense operation, from precharge to strobe."""

    name = "dts_sense"
    summary = "multi-wordline DTS sensing: bitline, 128-cell string, sense amplifier, buffer"
    Params = DtsSenseParams
    knobs = (
        THRESHOLD,
        SOURCE_LINE,
        Knob("sa_n", "V", "threshold mismatch of the sense inverter's nMOS"),
        Knob("sa_p", "V", "threshold mismatch of the sense inverter's pMOS"),
    )
    responses_declared = (
        Response("bit", "1", "output buffer at the strobe: 1 conducts (pass), 0 blocks"),
        Response("t_cross", "s", "from selecting the string to the trip point", optional=True),
        Response("t_out", "s", "from selecting the string to the output's rise", optional=True),
        Response("v_trip_out", "V", "bitline voltage at the output's rise", optional=True),
        Response("v_strobe", "V", "bitline voltage at the strobe"),
        Response("e_sense", "J", "energy from the supply, precharge to strobe"),
    )

    def build(
        self, params: DtsSenseParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        timing = _Timing.of(params)
        edge = params.t_pre / 200
        netlist = new_netlist("dts_sense: multi-wordline sensing", params, params.sense_path)
        ground = netlist.gnd
        netlist.V("dd", "vdd", ground, params.vdd)
        # precharge is active low; the string is selected as it ends
        high, step = params.vdd, f"{timing.select!r} {edge!r} {edge!r} 1 2"
        netlist.V("pch", "pch", ground, f"0 pulse(0 {high!r} {step})")
        netlist.V("sel", "sel", ground, f"0 pulse(0 {params.v_pass!r} {step})")
        netlist.C("bl", "bl", ground, params.c_bl)
        netlist.X(
            "sense",
            find_netlist(params.sense_path, "cells", ".cir").stem,
            "bl",
            "out",
            "pch",
            "vdd",
            mn=float(knobs["sa_n"][0]),
            mp=float(knobs["sa_p"][0]),
            cload=params.c_load,
        )
        add_string(netlist, params, knobs, "bl", "sel")
        # The operation starts from a discharged bitline and string. The nodesets are only a
        # first guess: without them one operating point in four needs gmin stepping.
        guesses = [f".nodeset v(ch{index})=0" for index in range(params.cells + 1)]
        netlist.raw_spice += "\n".join([".ic v(bl)=0", *guesses, ""])
        return netlist

    def elements(self, params: DtsSenseParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        values = string_elements(params, knobs)
        values["v.xsense.vmn"] = float(knobs["sa_n"][0])
        values["v.xsense.vmp"] = float(knobs["sa_p"][0])
        return values

    def analysis(self, params: DtsSenseParams, wanted: frozenset[str] | None = None) -> Transient:
        timing = _Timing.of(params)
        wanted = wanted or frozenset(r.name for r in self.responses_declared)
        # The bitline alone is smooth and lets the solver stride; what passes through the
        # sense amplifier switches in a fraction of that step.
        coarse = wanted <= {"bit", "t_cross", "v_strobe"}
        max_step = params.max_step if coarse else params.max_step / 20
        # Once the output has risen and the bitline is below the trip point, the bit and the
        # crossing times are known; the bitline only falls, so nothing takes them back. A
        # mismatched sense amplifier may trip before the bitline is there: wait for both.
        decided = wanted <= {"bit", "t_cross", "t_out", "v_trip_out"}
        known = StopWhen(
            (
                ("v(sel)", ">", 0.9 * params.v_pass),
                ("v(out)", ">", 0.9 * params.vdd),
                ("v(bl)", "<", 0.99 * params.v_trip),
            )
        )
        return Transient(
            stop=timing.strobe,
            step=timing.strobe / 200,
            max_step=max_step,
            stop_when=known if decided else None,
        )

    def saved(self, params: DtsSenseParams) -> tuple[str, ...]:
        return ("v(bl)", "v(out)", "v(sel)", "v(pch)", "i(vdd)")

    def responses(self, waveforms: Waveforms, params: DtsSenseParams) -> dict[str, float]:
        timing = _Timing.of(params)
        time, bitline, out = waveforms.time, waveforms["v(bl)"], waveforms["v(out)"]
        cross = crossing(time, bitline, params.v_trip, rising=False, after=timing.select)
        rise = crossing(time, out, params.vdd / 2, rising=True, after=timing.select)
        stopped = time[-1] < timing.strobe * (1 - 1e-9)
        nan = float("nan")
        # a bitline that was not precharged says nothing about the string
        charged = value_at(time, bitline, timing.select) > 0.9 * params.vdd
        power = -params.vdd * waveforms["i(vdd)"]
        return {
            "bit": float(out[-1] > params.vdd / 2) if charged else nan,
            "t_cross": cross - timing.select,
            "t_out": rise - timing.select,
            "v_trip_out": nan if np.isnan(rise) else value_at(time, bitline, rise),
            "v_strobe": nan if stopped else float(bitline[-1]),
            "e_sense": nan if stopped else integral(time, power),
        }

    def marks(self, params: DtsSenseParams) -> Marks:
        timing = _Timing.of(params)
        return Marks(
            instants={"precharge": 0.0, "select": timing.select, "strobe": timing.strobe},
            levels={"trip point": params.v_trip},
        )

    def measures(self, params: DtsSenseParams) -> tuple[str, ...]:
        select = _Timing.of(params).select
        return (
            f".meas tran t_bitline when v(bl)={params.v_trip!r} fall=1 td={select!r}",
            f".meas tran t_cross param='t_bitline-{select!r}'",
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params, params.sense_path)

    def calibrate(self, params: DtsSenseParams, engine: Engine, out: Path) -> dict[str, float]:
        """Find the gate voltage of the decision boundary and add it to a level map.

        The nominal string with one active wordline, at margin 0, is to bring its
        bitline to the trip point exactly at the strobe.

        Parameters
        ----------
        params : DtsSenseParams
        engine : Engine
        out : Path
            The level-map file, made or added to.

        Returns
        -------
        dict
            ``v_boundary`` in V, to 1 uV.

        Raises
        ------
        SimulationError
            If a run fails, or no gate voltage up to the pass voltage is a boundary.
        """
        nominal = params.model_copy(
            update={"m": 1, "critical": 1, "margin": 0.0, "temperature": 27.0, "corner": "tt"}
        )

        def excess(v_boundary: float) -> float:
            trial = nominal.model_copy(update={"v_boundary": v_boundary})
            outcome = engine.sample(self, trial, wanted=frozenset({"v_strobe"}))
            if outcome.status is not Status.OK:
                raise SimulationError(f"calibrate: {outcome.status.label}: {outcome.reason}")
            return outcome.responses["v_strobe"] - params.v_trip

        low, high = 0.0, params.v_pass
        if excess(low) * excess(high) > 0:
            never = "never" if excess(high) > 0 else "always"
            raise SimulationError(
                f"calibrate: the bitline {never} reaches {params.v_trip} V for gate voltages "
                f"of {low} to {high} V"
            )
        found = float(brentq(excess, low, high, xtol=1e-6))
        conditions = ("vdd", "v_trip", "v_pass", "c_bl", "t_sense", "w_cell", "l_cell")
        write_level_map(out, params, found, {name: getattr(params, name) for name in conditions})
        return {"v_boundary": found}
