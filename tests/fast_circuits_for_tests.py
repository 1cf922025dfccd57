"""Circuits with a fast model, which errs where it is told to, and one that takes its time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from circuits_for_tests import KillingCircuit, RCDischarge, RCParams

from nandcosim.spice.circuit import parameter
from nandcosim.spice.fast import FastModel, FastSamples
from nandcosim.sweep import parse_spec
from nandcosim.sweep.spec import SweepSpec

SAMPLES = 40


class FastRCParams(RCParams):
    """Parameters of `FastRC`."""

    wrong_above: float = parameter(
        9.0, unit="1", meaning="excess[0] above which the model errs", source="assumed: test"
    )
    valid_below: float = parameter(
        9.0, unit="1", meaning="excess[1] below which it is valid", source="assumed: test"
    )


class ClosedForm(FastModel):
    """An RC discharge in closed form, 10 % off where ``excess[0] > wrong_above``."""

    def __init__(self, params: FastRCParams) -> None:
        self.params = params

    def sample_many(self, knobs: Mapping[str, np.ndarray]) -> FastSamples:
        params, excess = self.params, knobs["excess"]
        stop = params.resistance * params.capacitance
        tau = stop * (1.0 + excess.mean(axis=1))
        wrong = np.where(excess[:, 0] > params.wrong_above, 1.1, 1.0)
        responses = {
            "t_half": wrong * tau * np.log(2.0),
            "v_end": params.precharge * np.exp(-stop / tau),
        }
        return FastSamples(responses, excess[:, 1] < params.valid_below)

    def agrees(
        self,
        knobs: Mapping[str, np.ndarray],
        fast: Mapping[str, float],
        full: Mapping[str, float],
    ) -> bool:
        return all(abs(fast[name] / full[name] - 1.0) < 1e-2 for name in fast)


class FastRC(RCDischarge):
    """`RCDischarge` with a fast model."""

    name = "fast_rc"
    Params = FastRCParams
    fast_responses = frozenset({"t_half", "v_end"})

    def fast(self, params: Any, backend: Any) -> FastModel:
        return ClosedForm(params)


class FastKilling(KillingCircuit):
    """Kills its process where ngspice is to run a sample whose knob ``kill`` is positive."""

    name = "fast_killing"
    Params = FastRCParams
    fast_responses = frozenset({"t_half", "v_end"})

    def fast(self, params: Any, backend: Any) -> FastModel:
        return ClosedForm(params)


class PausingRC(RCDischarge):
    """Takes a tenth of a second a sample, as a long string does, and next to no CPU time."""

    name = "pausing"

    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        time.sleep(0.1)
        return super().elements(params, knobs)


class Modelless(FastRC):
    """Has a fast model in general, and none at these parameters."""

    name = "modelless"

    def fast(self, params: Any, backend: Any) -> None:
        return None


def spec_of(circuit: str = "FastRC", **changes: Any) -> SweepSpec:
    """A sweep of one of these circuits in which every case of the fast engine occurs."""
    document: dict[str, Any] = {
        "circuit": f"fast_circuits_for_tests:{circuit}",
        "samples": SAMPLES,
        "seed": 5,
        "engine": "fast",
        "audit": 0.1,
        "parameters": {"wrong_above": 0.1, "valid_below": 0.13},
        "axes": {"precharge": [1.0, 2.0]},
        "random": [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1}],
    }
    return parse_spec({**document, **changes})
