"""The page buffer's sensing path and its own mismatch: trip point, delay, energy, kick-back.

One run has two parts. First the bitline is held by a source and ramped slowly through the
trip point, which gives the input-referred offset. Then one decision: the bitline is
precharged, pulled to `overdrive` below the nominal trip point and left floating, and the
strobed latch takes what the sense inverter says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.card import CardParams, card_files, card_netlist
from nandcosim.spice.circuit import Circuit, Knob, Marks, Response, Transient, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.measure import crossing, integral, value_at
from nandcosim.spice.netlists import find_netlist
from nandcosim.spice.result import Waveforms

__all__ = ["SenseAmp", "SenseAmpParams", "pelgrom"]

#: Rise and fall time of the control signals in s, and the settling they are given.
EDGE = 20e-12

#: How long the bitline is held at ground before the precharge, and the latch is watched
#: after it has closed, in s.
REST = 20e-9

#: Step control for charges of femtocoulombs: ngspice takes every charge below chgtol, by
#: default 10 fC, for accurate, and would step over the latch's switching.
STEP_CONTROL = ".options chgtol=1e-16 trtol=1"

#: Resistance through which the bitline is held in ohm: time constants of picoseconds.
HOLD = 10.0


class SenseAmpParams(CardParams):
    """Parameters of `SenseAmp`."""

    overdrive: float = parameter(
        0.05,
        unit="V",
        ge=-1.0,
        le=1.0,
        meaning="how far below v_trip the bitline is when it is sensed; negative: above",
        source="assumed: some twice the offset's standard deviation",
    )
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
        meaning="nominal trip point; offset and overdrive count from here",
        source="stated: D-NOVA section 5.2",
    )
    a_vt: float = parameter(
        1.5e-9,
        unit="V m",
        ge=0.0,
        le=1e-7,
        meaning="Pelgrom constant of the threshold; 1e-9 V m is 1 mV um",
        source="assumed: 1 to 2 mV um for a gate oxide of 1.2 nm, about 1 mV um a nm",
    )
    a_beta: float = parameter(
        1e-8,
        unit="m",
        ge=0.0,
        le=1e-6,
        meaning="Pelgrom constant of the current factor; 1e-8 m is 1 % um",
        source="assumed: 1 % um, nearly the same in every CMOS generation",
    )
    w_n: float = parameter(
        50e-9,
        unit="m",
        ge=10e-9,
        le=1e-5,
        meaning="width of the sense inverter's nMOS",
        source="assumed: sense_path, trips at half of the supply",
    )
    l_n: float = parameter(
        40e-9,
        unit="m",
        ge=10e-9,
        le=1e-5,
        meaning="length of the sense inverter's nMOS",
        source="assumed: sense_path",
    )
    w_p: float = parameter(
        500e-9,
        unit="m",
        ge=10e-9,
        le=1e-5,
        meaning="width of the sense inverter's pMOS",
        source="assumed: sense_path, trips at half of the supply",
    )
    l_p: float = parameter(
        40e-9,
        unit="m",
        ge=10e-9,
        le=1e-5,
        meaning="length of the sense inverter's pMOS",
        source="assumed: sense_path",
    )
    c_bl: float = parameter(
        200e-15,
        unit="F",
        ge=1e-15,
        le=1e-11,
        meaning="bitline capacitance, scaled domain",
        source="assumed: as in dts_sense",
    )
    c_kick: float = parameter(
        0.05e-15,
        unit="F",
        ge=0.0,
        le=1e-13,
        meaning="wiring capacitance between the latch's output and the bitline",
        source="assumed: some 0.3 um of neighbouring wire",
    )
    c_load: float = parameter(
        5e-15,
        unit="F",
        ge=0.0,
        le=1e-12,
        meaning="load of the latch",
        source="assumed: as in dts_sense",
    )
    t_ramp: float = parameter(
        1e-3,
        unit="s",
        ge=1e-6,
        le=1.0,
        meaning="duration of the ramp through the trip point",
        source="derived: trip point within 0.2 mV of the DC transfer curve's (tested)",
    )
    ramp_span: float = parameter(
        0.2,
        unit="V",
        ge=0.01,
        le=2.0,
        meaning="the ramp runs from v_trip + ramp_span to v_trip - ramp_span",
        source="assumed: over six standard deviations of the offset",
    )
    t_pre: float = parameter(
        2e-6,
        unit="s",
        ge=1e-9,
        le=1e-4,
        meaning="precharge time",
        source="assumed: over ten time constants of the precharge transistor",
    )
    t_step: float = parameter(
        0.1e-9,
        unit="s",
        ge=0.1e-9,
        le=1e-6,
        meaning="how long the bitline is pulled to its sensing level before it floats",
        source="assumed: short against the delay at 0.2 V of overdrive",
    )
    t_strobe: float = parameter(
        0.0,
        unit="s",
        ge=0.0,
        le=1e-3,
        meaning="from the bitline's step to the opening of the latch",
        source="assumed: open from the start, which shows the sense inverter's own delay",
    )
    strobe_width: float = parameter(
        1e-6,
        unit="s",
        ge=1e-9,
        le=1e-3,
        meaning="how long the latch is open",
        source="assumed: long against the delay at 1 mV of overdrive",
    )
    page_buffer: str = parameter(
        "page_buffer",
        unit="",
        meaning="subcircuit of precharge, sense inverter and latch: a shipped name or a path",
        source="assumed: see the file",
    )
    max_step: float = parameter(
        5e-6,
        unit="s",
        ge=1e-10,
        le=1e-2,
        meaning="largest time step",
        source="derived: 1/200 of the ramp; trip point within 0.1 mV, the rest 1 % (tested)",
    )

    @model_validator(mode="after")
    def _fits(self) -> SenseAmpParams:
        if not 0 <= self.v_trip - self.overdrive <= self.vdd:
            raise ValueError(
                f"v_trip - overdrive = {self.v_trip - self.overdrive:g} V is not within 0 to "
                f"vdd = {self.vdd} V"
            )
        return self

    @property
    def sigmas(self) -> dict[str, tuple[float, float]]:
        """Standard deviations of threshold (V) and of ln(current factor), by transistor."""
        return {
            "n": pelgrom(self.a_vt, self.a_beta, self.w_n, self.l_n),
            "p": pelgrom(self.a_vt, self.a_beta, self.w_p, self.l_p),
        }


def pelgrom(a_vt: float, a_beta: float, width: float, length: float) -> tuple[float, float]:
    """Mismatch of one transistor by area scaling.

    M. J. M. Pelgrom, A. C. J. Duinmaijer, A. P. G. Welbers, IEEE J. Solid-State Circuits
    24(5), 1989, equation 5 without the distance term: sigma = A / sqrt(W L).

    Parameters
    ----------
    a_vt, a_beta : float
        In V m and in m.
    width, length : float
        In m.

    Returns
    -------
    threshold : float
        Standard deviation of the threshold in V.
    current_factor : float
        Relative standard deviation of the current factor.
    """
    root = math.sqrt(width * length)
    return a_vt / root, a_beta / root


@dataclass(frozen=True)
class _Timing:
    """Instants of a run in s."""

    reset: float  # end of the ramp: the bitline is held at ground
    precharge: float
    between: float
    step: float
    release: float
    strobe: float
    close: float
    stop: float

    @classmethod
    def of(cls, params: SenseAmpParams) -> _Timing:
        reset = params.t_ramp
        precharge = reset + REST
        step = precharge + params.t_pre
        release = step + params.t_step
        strobe = step + params.t_strobe
        close = strobe + params.strobe_width
        between = (precharge + step) / 2
        return cls(reset, precharge, between, step, release, strobe, close, close + REST)


class SenseAmp(Circuit):
    """Trip point of a page buffer's sense amplifier, and one decision of it."""

    name = "sense_amp"
    summary = "page buffer: offset by mismatch, delay against overdrive, energy, kick-back"
    Params = SenseAmpParams
    knobs = (
        Knob("vt_n", "1", "threshold mismatch of the sense nMOS, in its standard deviations"),
        Knob("vt_p", "1", "threshold mismatch of the sense pMOS, in its standard deviations"),
        Knob("beta_n", "1", "ln of the sense nMOS' current factor, in its standard deviations"),
        Knob("beta_p", "1", "ln of the sense pMOS' current factor, in its standard deviations"),
    )
    responses_declared = (
        Response("v_trip", "V", "bitline voltage at which the sense inverter switches"),
        Response("offset", "V", "that voltage minus the nominal trip point"),
        Response("bit", "1", "latched output: 1 conducts (pass), 0 blocks"),
        Response("t_delay", "s", "from bitline step or strobe to the latched rise", optional=True),
        Response("e_sense", "J", "from supply and control drivers, precharge to latched"),
        Response("v_kick", "V", "largest disturbance of the floating bitline"),
    )

    def build(
        self, params: SenseAmpParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        values = self.elements(params, full_knobs(self, params, knobs))
        timing = _Timing.of(params)
        high = params.vdd
        netlist = card_netlist("sense_amp: page buffer of one bitline", params, params.page_buffer)
        netlist.raw_spice += f"{STEP_CONTROL}\n"
        ground = netlist.gnd
        netlist.V("dd", "vdd", ground, high)
        # The bitline's driver conducts while v(hold) is 1, at the voltage v(level).
        start, end = params.v_trip + params.ramp_span, params.v_trip - params.ramp_span
        sensed = params.v_trip - params.overdrive
        # ground in between; to the sensing level while the bitline is not held
        level = _steps((timing.reset, end), (timing.reset + EDGE, 0.0), (timing.between, sensed))
        netlist.V("level", "level", ground, f"{start!r} pwl(0 {start!r} {' '.join(level)})")
        held = ((timing.precharge, 0.0), (timing.step, 1.0), (timing.release, 0.0))
        hold = _steps((0.0, 1.0), *held)
        netlist.V("hold", "hold", ground, f"1 pwl({' '.join(hold)})")
        netlist.B("hold", "bl", ground, i=f"v(hold)*(v(bl)-v(level))/{HOLD!r}")
        netlist.C("bl", "bl", ground, params.c_bl)
        # active low
        precharge = _steps((0.0, high), (timing.precharge, 0.0), (timing.step - EDGE, high))
        netlist.V("pch", "pch", ground, f"{high!r} pwl({' '.join(precharge)})")
        # Open during the precharge, which resets the latch, and again at the strobe.
        strobe = [(0.0, high), (timing.step - 2 * EDGE, 0.0), (timing.strobe, high)]
        if params.t_strobe == 0:
            strobe = strobe[:1]
        levels = _steps(*strobe, (timing.close, 0.0))
        netlist.V("stb", "stb", ground, f"{high!r} pwl({' '.join(levels)})")
        netlist.X(
            "pb",
            find_netlist(params.page_buffer, "cells", ".cir").stem,
            "bl",
            "out",
            "pch",
            "stb",
            "vdd",
            w_n=params.w_n,
            l_n=params.l_n,
            w_p=params.w_p,
            l_p=params.l_p,
            mn=values["v.xpb.vmn"],
            mp=values["v.xpb.vmp"],
            bn=values["v.xpb.vbn"],
            bp=values["v.xpb.vbp"],
            ckick=params.c_kick,
            cload=params.c_load,
        )
        return netlist

    def elements(self, params: SenseAmpParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        values = {}
        for kind, (threshold, current_factor) in params.sigmas.items():
            values[f"v.xpb.vm{kind}"] = threshold * float(knobs[f"vt_{kind}"][0])
            # log-normal: a current factor is never negative
            excess = math.expm1(current_factor * float(knobs[f"beta_{kind}"][0]))
            values[f"v.xpb.vb{kind}"] = excess
        return values

    def analysis(self, params: SenseAmpParams, wanted: frozenset[str] | None = None) -> Transient:
        timing = _Timing.of(params)
        trip_only = wanted is not None and wanted <= {"v_trip", "offset"}
        stop = timing.reset if trip_only else timing.stop
        return Transient(stop=stop, step=params.max_step, max_step=params.max_step)

    def saved(self, params: SenseAmpParams) -> tuple[str, ...]:
        currents = ("i(vdd)", "i(vpch)", "i(vstb)")
        return ("v(bl)", "v(xpb.so)", "v(out)", "v(pch)", "v(stb)", *currents)

    def responses(self, waveforms: Waveforms, params: SenseAmpParams) -> dict[str, float]:
        timing = _Timing.of(params)
        time, bitline, out = waveforms.time, waveforms["v(bl)"], waveforms["v(out)"]
        half = params.vdd / 2
        switch = crossing(time, waveforms["v(xpb.so)"], half, rising=True)
        in_ramp = switch < timing.reset
        trip = value_at(time, bitline, switch) if in_ramp else float("nan")
        found = {"v_trip": trip, "offset": trip - params.v_trip}
        if time[-1] < timing.stop * (1 - 1e-9):
            return found | dict.fromkeys(("bit", "t_delay", "e_sense", "v_kick"), float("nan"))
        reference = max(timing.step, timing.strobe)
        rise = crossing(time, out, half, rising=True, after=reference)
        # a latch that the precharge did not reset says nothing about this decision
        reset = value_at(time, out, timing.step) < half
        floating = bitline[time > timing.release + EDGE]
        return found | {
            "bit": float(out[-1] > half) if reset else float("nan"),
            "t_delay": rise - reference,
            "e_sense": _energy(waveforms, params, timing.precharge),
            "v_kick": float(np.abs(floating - floating[0]).max()),
        }

    def marks(self, params: SenseAmpParams) -> Marks:
        timing = _Timing.of(params)
        return Marks(
            instants={
                "precharge": timing.precharge,
                "bitline step": timing.step,
                "strobe closes": timing.close,
            },
            levels={"trip point": params.v_trip},
        )

    def measures(self, params: SenseAmpParams) -> tuple[str, ...]:
        half, timing = params.vdd / 2, _Timing.of(params)
        reference = max(timing.step, timing.strobe)
        return (
            f".meas tran v_trip find v(bl) when v(xpb.so)={half!r} rise=1",
            f".meas tran t_rise when v(out)={half!r} rise=1 td={reference!r}",
            f".meas tran t_delay param='t_rise-{reference!r}'",
        )

    def files(self, params: SenseAmpParams) -> tuple[str, ...]:
        return card_files(params, params.page_buffer)


def _steps(*levels: tuple[float, float]) -> list[str]:
    """Points of a PWL source that goes to each level at its instant, within `EDGE`."""
    points = [f"{levels[0][0]!r} {levels[0][1]!r}"]
    for (_, before), (instant, after) in pairwise(levels):
        points.append(f"{instant!r} {before!r} {instant + EDGE!r} {after!r}")
    return points


def _energy(waveforms: Waveforms, params: SenseAmpParams, start: float) -> float:
    """Energy from the supply and the drivers of the control signals after `start` in J.

    A driver draws from the supply what its line dumps to ground as it falls: V times that
    charge, C V^2 for a capacitance. Only falling edges count, so that nothing is recovered.
    """
    used = waveforms.time >= start
    time = waveforms.time[used]
    energy = integral(time, -params.vdd * waveforms["i(vdd)"][used])
    for name in ("pch", "stb"):
        falling = np.diff(waveforms[f"v({name})"][used]) < 0
        current = waveforms[f"i(v{name})"][used]
        charge = ((current[1:] + current[:-1]) / 2 * np.diff(time))[falling].sum()
        energy += params.vdd * float(charge)
    return energy
