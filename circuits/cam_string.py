"""Content-addressable memory in the string: two transistors in series a cell (NASiC, Fig. 4).

A cell's two transistors conduct together only if the stored identifier equals the one
searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import add_chain, chain_files, new_netlist, shift_source
from circuits.gated_string import (
    GatedParams,
    cam_shifts,
    cam_spacing,
    cim_shifts,
    nodeset,
    search_nodes,
)
from nandcosim.spice.circuit import Circuit, DcSweep, Knob, Response, SweptSource, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.result import Waveforms

__all__ = ["CamString", "CamStringParams"]

#: Identifiers that the responses of one sample can name.
MOST_CODES = 16

CAM = Knob(
    "cam",
    "level",
    "error of each CAM transistor's threshold, in levels of its own cell",
    size=lambda params: params.cam_cells,
)
CIM = Knob(
    "cim",
    "V",
    "error of the other cells' thresholds",
    size=lambda params: params.cells - params.cam_cells,
)


class CamStringParams(GatedParams):
    """Parameters of `CamString`."""

    i_ref: float = parameter(
        3.2e-9,
        unit="A",
        ge=1e-15,
        le=1e-3,
        meaning="string current from which a match is sensed",
        source="calibrated: a 2-bit cell with one transistor at its boundary (tested)",
    )

    @model_validator(mode="after")
    def _codes_fit(self) -> CamStringParams:
        if self.codes > MOST_CODES:
            raise ValueError(f"layers = {self.layers!r}: more than {MOST_CODES} identifiers")
        return self


class CamString(Circuit):
    """One string whose CAM layers are searched for every identifier in turn."""

    name = "cam_string"
    summary = "CAM cells on top of a CIM string: current against the identifier searched for"
    Params = CamStringParams
    knobs = (CAM, CIM)
    responses_declared = (
        Response("i_match", "A", "string current where query = entry"),
        Response("i_worst", "A", "largest string current of the other queries"),
        Response("i_other", "A", "string current summed over the other queries"),
        Response("on_off", "1", "i_match over i_worst"),
        Response("mask", "1", "sum of 2**query over the queries sensed as a match"),
        Response("missed", "1", "1 if query = entry is not sensed as a match"),
        Response("false_matches", "1", "other queries sensed as a match"),
        *(
            Response(f"i_q{query}", "A", f"string current at query {query}", optional=True)
            for query in range(MOST_CODES)
        ),
    )

    def build(
        self, params: CamStringParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("cam_string: every identifier searched for in turn", params)
        ground = netlist.gnd
        netlist.V("bl", "bl", ground, params.v_bl)
        netlist.V("pass", "pass", ground, params.v_pass)
        # The source counts through the identifiers, 1 V each; ideal drivers make the search
        # voltages of it.
        netlist.V("query", "query", ground, float(params.entry))
        for index, (node, volts) in enumerate(
            zip(search_nodes(params), _drivers(params), strict=True)
        ):
            netlist.B(f"search{index}", node, ground, voltage_expression=volts)
        wordlines = search_nodes(params) + ["pass"] * (params.cells - params.cam_cells)
        values = self._shifts(params, knobs)
        add_chain(netlist, params, values, wordlines, bitline="bl", source="sl", select="pass")
        netlist.R("sl", "sl", ground, params.r_sl)
        netlist.raw_spice += nodeset(params.v_bl, params)
        return netlist

    @staticmethod
    def _shifts(params: CamStringParams, knobs: Mapping[str, np.ndarray]) -> np.ndarray:
        cam = cam_shifts(params) + knobs["cam"] * cam_spacing(params)
        return np.concatenate([cam, cim_shifts(params) + knobs["cim"]])

    def elements(
        self, params: CamStringParams, knobs: Mapping[str, np.ndarray]
    ) -> dict[str, float]:
        values = self._shifts(params, knobs)
        return {shift_source(index): float(value) for index, value in enumerate(values)}

    def analysis(self, params: CamStringParams, wanted: frozenset[str] | None = None) -> DcSweep:
        return DcSweep(SweptSource("vquery", 0.0, float(params.codes - 1), params.codes))

    def saved(self, params: CamStringParams) -> tuple[str, ...]:
        return ("i(vbl)",)

    def responses(self, waveforms: Waveforms, params: CamStringParams) -> dict[str, float]:
        current = -waveforms["i(vbl)"]
        match, others = float(current[params.entry]), np.delete(current, params.entry)
        worst = float(others.max())
        sensed = current > params.i_ref
        return {
            "i_match": match,
            "i_worst": worst,
            "i_other": float(others.sum()),
            "on_off": match / worst,
            "mask": float((2 ** np.flatnonzero(sensed)).sum()),
            "missed": float(not sensed[params.entry]),
            "false_matches": float(np.delete(sensed, params.entry).sum()),
            **{
                f"i_q{query}": float(current[query]) if query < params.codes else float("nan")
                for query in range(MOST_CODES)
            },
        }

    def measures(self, params: CamStringParams) -> tuple[str, ...]:
        return tuple(
            line
            for query in range(params.codes)
            for line in (
                f".meas dc into_q{query} find i(vbl) at={query}",
                f".meas dc i_q{query} param='-into_q{query}'",
            )
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params)


def _drivers(params: GatedParams) -> list[str]:
    """Expressions of the search voltages in V(query): `search_voltages` written for ngspice."""
    made = []
    below = params.codes
    for bits in params.widths:
        above, below = below, below >> bits
        spacing = params.window / 2**bits
        digits = [f"floor((v(query)+0.5)/{size})" for size in (below, above)]
        code = f"({digits[0]}-{2**bits}*{digits[1]})"
        for level in (code, f"({2**bits - 1}-{code})"):
            first = params.v_base + (0.5 + params.search_margin) * spacing
            made.append(f"{first!r}+{spacing!r}*{level}")
    return made
