"""Small, fast circuits for the tests of the layers above ngspice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nandcosim.spice.circuit import Circuit, Knob, Params, Response, Transient, parameter

if TYPE_CHECKING:
    from PySpice.Spice.Netlist import Circuit as Netlist

    from nandcosim.spice.result import Waveforms


class RCParams(Params):
    """Parameters of `RCDischarge`."""

    resistance: float = parameter(
        1e3, unit="ohm", meaning="discharge resistance", source="assumed: test", ge=1.0, le=1e6
    )
    capacitance: float = parameter(
        1e-9, unit="F", meaning="capacitance", source="assumed: test", ge=1e-15, le=1e-3
    )
    precharge: float = parameter(
        1.0, unit="V", meaning="voltage at time zero", source="assumed: test", ge=0.1, le=5.0
    )
    temperature: float = parameter(
        27.0, unit="degC", meaning="temperature", source="assumed: test", ge=-40.0, le=150.0
    )
    stages: int = parameter(
        2, unit="1", meaning="resistors in series", source="assumed: test", ge=1, le=16
    )
    corner: str = parameter("tt", unit="", meaning="process corner", source="assumed: test")


class RCDischarge(Circuit):
    """A capacitor that discharges through `stages` resistors in series.

    The voltage at time t is ``precharge * exp(-t / (R C))``.
    """

    name = "rc_discharge"
    summary = "RC discharge"
    Params = RCParams
    knobs = (
        Knob(
            "excess",
            "1",
            "relative excess of each resistor",
            size=lambda params: int(params.stages),
            groups={"first": lambda params: np.array([0])},
        ),
        Knob("kill", "1", "not used by this circuit"),
    )
    responses_declared = (
        Response("t_half", "s", "time of half the precharge voltage", optional=True),
        Response("v_end", "V", "voltage at the stop time"),
    )

    def build(self, params: Any, knobs: Mapping[str, np.ndarray] | None = None) -> Netlist:
        from PySpice.Spice.Netlist import Circuit as Netlist

        if knobs is None:
            knobs = {"excess": np.zeros(params.stages), "kill": np.zeros(1)}
        values = self.elements(params, knobs)
        netlist = Netlist(self.name)
        netlist.raw_spice = f".ic v(n0)={params.precharge!r}\n"
        netlist.C("1", "n0", netlist.gnd, params.capacitance)
        for i in range(params.stages):
            low = netlist.gnd if i == params.stages - 1 else f"n{i + 1}"
            netlist.R(str(i), f"n{i}", low, values[f"r{i}"])
        return netlist

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        each = params.resistance / params.stages
        return {f"r{i}": float(each * (1.0 + excess)) for i, excess in enumerate(knobs["excess"])}

    def analysis(self, params: Any, wanted: frozenset[str] | None = None) -> Transient:
        stop = params.resistance * params.capacitance
        return Transient(stop=stop, step=stop / 100, max_step=stop / 50)

    def saved(self, params: Any) -> tuple[str, ...]:
        return ("v(n0)",)

    def responses(self, waveforms: Waveforms, params: Any) -> dict[str, float]:
        time, voltage = waveforms.time, waveforms["v(n0)"]
        below = voltage <= params.precharge / 2
        t_half = float("nan")
        if below.any():
            i = int(np.argmax(below))
            part = (voltage[i - 1] - params.precharge / 2) / (voltage[i - 1] - voltage[i])
            t_half = float(time[i - 1] + part * (time[i] - time[i - 1]))
        return {"t_half": t_half, "v_end": float(voltage[-1])}


class KillingCircuit(RCDischarge):
    """Kills its own process where the knob ``kill`` is positive."""

    name = "killing"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        if knobs["kill"][0] > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().elements(params, knobs)


class RaisingCircuit(RCDischarge):
    """Raises a foreign exception where the knob ``kill`` is positive, until it is repaired."""

    name = "raising"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        if knobs["kill"][0] > 0 and "RAISING_CIRCUIT_IS_REPAIRED" not in os.environ:
            raise ZeroDivisionError("an accident in user code")
        return super().elements(params, knobs)


class BadlyMeasuredCircuit(RCDischarge):
    """Its measurement raises although the run succeeded."""

    name = "badly_measured"

    def responses(self, waveforms: Waveforms, params: Any) -> dict[str, float]:
        raise IndexError("no such edge")


class SlowCircuit(RCDischarge):
    """Takes a twentieth of a second a sample, so that a test can interfere."""

    name = "slow"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        time.sleep(0.05)
        return super().elements(params, knobs)


class HangingCircuit(RCDischarge):
    """Never returns where the knob ``kill`` is positive, and heeds no time limit."""

    name = "hanging"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        if knobs["kill"][0] > 0:
            threading.Event().wait()
        return super().elements(params, knobs)


class StuckLibraryCircuit(RCDischarge):
    """Leaves libngspice as if it had not stopped, where the knob ``kill`` is positive."""

    name = "stuck_library"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        if knobs["kill"][0] > 0:
            from nandcosim.spice.shared import SharedBackend

            SharedBackend._dead = "libngspice did not stop"
        return super().elements(params, knobs)


class ShortedParams(RCParams):
    """Parameters of `ShortedCircuit`."""

    shorted: int = parameter(
        0, unit="1", meaning="1: two sources disagree", source="assumed: test", ge=0, le=1
    )


class ShortedCircuit(RCDischarge):
    """With ``shorted = 1`` it has no solution: two ideal sources in parallel."""

    name = "shorted"
    Params = ShortedParams

    def build(self, params: Any, knobs: Mapping[str, np.ndarray] | None = None) -> Netlist:
        netlist = super().build(params, knobs)
        if params.shorted:
            netlist.V("1", "a", netlist.gnd, 1.0)
            netlist.V("2", "a", netlist.gnd, 2.0)
        return netlist
