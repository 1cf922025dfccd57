"""A sense operation: precharged bitline, sense amplifier and buffer, and when they act.

What the circuits that sense a string through a bitline share: parameters, netlist pieces
and the timing of precharge, select and strobe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import LevelParams
from nandcosim.spice.circuit import Knob, StopWhen, parameter
from nandcosim.spice.netlists import find_netlist

__all__ = ["SENSE_KNOBS", "SenseParams", "Timing", "add_sensing", "known", "sense_elements"]


class SenseParams(LevelParams):
    """Parameters of the bitline, its sense amplifier and their timing."""

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
    def _trips(self) -> SenseParams:
        if self.v_trip >= self.vdd:
            raise ValueError(f"v_trip = {self.v_trip} V is not below vdd = {self.vdd} V")
        return self


SENSE_KNOBS = (
    Knob("sa_n", "V", "threshold mismatch of the sense inverter's nMOS"),
    Knob("sa_p", "V", "threshold mismatch of the sense inverter's pMOS"),
)


@dataclass(frozen=True)
class Timing:
    """Instants of the senses of one read in s, shape (senses,); the first precharge is at 0."""

    precharge: np.ndarray
    select: np.ndarray
    strobe: np.ndarray

    @classmethod
    def of(cls, params: SenseParams, senses: int = 1) -> Timing:
        start = np.arange(senses) * (params.t_pre + params.t_sense)
        return cls(start, start + params.t_pre, start + params.t_pre + params.t_sense)


def add_sensing(
    netlist: Netlist, params: SenseParams, knobs: Mapping[str, np.ndarray], senses: int = 1
) -> None:
    """Add supply, precharge and select signals, bitline and sense path.

    Nodes: ``vdd``, ``pch``, ``sel``, ``bl``, ``out``. The operation starts from a discharged
    bitline and string; of several senses each ends as the next one's precharge begins.
    """
    ground, edge = netlist.gnd, params.t_pre / 200
    netlist.V("dd", "vdd", ground, params.vdd)
    # precharge is active low; the string is selected as it ends
    width, period = params.t_sense - edge, params.t_pre + params.t_sense
    step = f"{params.t_pre!r} {edge!r} {edge!r} "
    step += "1 2" if senses == 1 else f"{width!r} {period!r}"
    netlist.V("pch", "pch", ground, f"0 pulse(0 {params.vdd!r} {step})")
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
    # The nodesets are only a first guess: without them one operating point in four needs
    # gmin stepping.
    guesses = [f".nodeset v(ch{index})=0" for index in range(params.cells + 1)]
    netlist.raw_spice += "\n".join([".ic v(bl)=0", *guesses, ""])


def sense_elements(knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """ngspice name of everything that `SENSE_KNOBS` change -> its value in V."""
    return {"v.xsense.vmn": float(knobs["sa_n"][0]), "v.xsense.vmp": float(knobs["sa_p"][0])}


def known(params: SenseParams) -> StopWhen:
    """When bit and crossing times of a single sense are known.

    Once the output has risen and the bitline is below the trip point nothing takes them
    back, since the bitline only falls. A mismatched sense amplifier may trip before the
    bitline is there: wait for both.
    """
    return StopWhen(
        (
            ("v(sel)", ">", 0.9 * params.v_pass),
            ("v(out)", ">", 0.9 * params.vdd),
            ("v(bl)", "<", 0.99 * params.v_trip),
        )
    )
