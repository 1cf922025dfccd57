"""A 3D-NAND string with its bitline held: what current does it conduct?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import chain_files, new_netlist
from circuits.string import SOURCE_LINE, THRESHOLD, StringParams, add_string, string_elements
from nandcosim.spice.circuit import Circuit, DcSweep, Response, SweptSource, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.result import Waveforms

__all__ = ["NandString", "NandStringParams"]

#: Points of the current-voltage curve, its end included.
CURVE_POINTS = 9


class NandStringParams(StringParams):
    """Parameters of `NandString`."""

    v_bl: float = parameter(
        0.4,
        unit="V",
        ge=0.001,
        le=5.0,
        meaning="voltage the bitline is held at",
        source="stated: D-NOVA section 5.2, the sense trip point",
    )


class NandString(Circuit):
    """String of cells and two select transistors; the bitline is an ideal source."""

    name = "nand_string"
    summary = "3D-NAND string, bitline held: conducted current"
    Params = NandStringParams
    knobs = (THRESHOLD, SOURCE_LINE)
    responses_declared = (
        Response("i_string", "A", "current drawn from the bitline"),
        Response("r_string", "ohm", "bitline voltage over string current"),
    )

    def build(
        self, params: NandStringParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("nand_string: string with its bitline held", params)
        netlist.V("bl", "bl", netlist.gnd, params.v_bl)
        netlist.V("sel", "sel", netlist.gnd, params.v_pass)
        add_string(netlist, params, knobs, "bl", "sel")
        return netlist

    def elements(
        self, params: NandStringParams, knobs: Mapping[str, np.ndarray]
    ) -> dict[str, float]:
        return string_elements(params, knobs)

    def analysis(self, params: NandStringParams, wanted: frozenset[str] | None = None) -> DcSweep:
        # From zero upwards: each point is the next one's first guess.
        return DcSweep(SweptSource("vbl", 0.0, params.v_bl, CURVE_POINTS))

    def saved(self, params: NandStringParams) -> tuple[str, ...]:
        return ("v(ch0)", "i(vbl)")

    def responses(self, waveforms: Waveforms, params: NandStringParams) -> dict[str, float]:
        current = -float(waveforms["i(vbl)"][-1])
        return {
            "i_string": current,
            "r_string": params.v_bl / current if current > 0 else float("nan"),
        }

    def measures(self, params: NandStringParams) -> tuple[str, ...]:
        return (
            # the current is largest at the end; at=v_bl would miss it by rounding
            ".meas dc i_source min i(vbl)",
            ".meas dc i_string param='-i_source'",
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params)
