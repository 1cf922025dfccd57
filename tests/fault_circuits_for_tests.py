"""Circuits whose samples go wrong in ngspice itself, and one with a netlist file."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from circuits_for_tests import RCDischarge, RCParams

from nandcosim.spice.circuit import Transient, parameter


class EndlessParams(RCParams):
    """Parameters of `EndlessCircuit`."""

    endless: int = parameter(
        0, unit="1", meaning="1: steps without end", source="assumed: test", ge=0, le=1
    )


class EndlessCircuit(RCDischarge):
    """With ``endless = 1`` its transient has more steps than anybody waits for."""

    name = "endless"
    Params = EndlessParams

    def analysis(self, params: Any, wanted: frozenset[str] | None = None) -> Transient:
        usual = super().analysis(params, wanted)
        return replace(usual, max_step=usual.max_step * 1e-9) if params.endless else usual


class CardCircuit(RCDischarge):
    """Depends on the file that the environment variable ``TEST_CARD`` names."""

    name = "card"

    def files(self, params: Any) -> tuple[str, ...]:
        return (os.environ["TEST_CARD"],)
