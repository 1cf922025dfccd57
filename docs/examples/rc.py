"""The smallest circuit: a capacitor discharges through a resistor with some mismatch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PySpice.Spice.Netlist import Circuit as Netlist

from nandcosim.spice.circuit import Circuit, Knob, Params, Response, Transient, parameter
from nandcosim.spice.measure import crossing
from nandcosim.spice.result import Waveforms


class RcParams(Params):
    """Parameters of `RcDischarge`."""

    r: float = parameter(
        1e3, unit="ohm", ge=1.0, le=1e9, meaning="resistance", source="assumed: example"
    )
    c: float = parameter(
        1e-12, unit="F", ge=1e-15, le=1e-6, meaning="capacitance", source="assumed: example"
    )


class RcDischarge(Circuit):
    """Discharge from 1 V; the knob changes the resistance without a new deck."""

    name = "rc"
    summary = "capacitor discharged through a resistor"
    Params = RcParams
    knobs = (Knob("dr", "1", "relative error of the resistance"),)
    responses_declared = (
        Response("t_half", "s", "time to half of the first voltage", optional=True),
    )

    def build(self, params: RcParams, knobs: Mapping[str, np.ndarray] | None = None) -> Netlist:
        values = self.elements(params, knobs or {"dr": np.zeros(1)})
        netlist = Netlist("rc discharge")
        netlist.R("1", "out", netlist.gnd, values["r1"])
        netlist.C("1", "out", netlist.gnd, params.c)
        netlist.raw_spice = ".ic v(out)=1\n"
        return netlist

    def elements(self, params: RcParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        return {"r1": params.r * (1.0 + float(knobs["dr"][0]))}

    def analysis(self, params: RcParams, wanted: frozenset[str] | None = None) -> Transient:
        tau = params.r * params.c
        return Transient(stop=5 * tau, step=tau / 100, max_step=tau / 100)

    def saved(self, params: RcParams) -> tuple[str, ...]:
        return ("v(out)",)

    def responses(self, waveforms: Waveforms, params: RcParams) -> dict[str, float]:
        return {"t_half": crossing(waveforms.time, waveforms["v(out)"], 0.5, rising=False)}
