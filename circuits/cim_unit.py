"""The unit of compute-in-memory: eight strings that carry one signed weight (NASiC, Fig. 6, 7).

Block A has four strings of one source select line, each with a cell of the weight; block B
is programmed to the complement. They share wordlines and the source line; each block has a
bitline of its own, and the difference of the two currents, summed over the read pulses, is
the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import add_chain, chain_files, new_netlist, shift_source
from circuits.cim_string import (
    INPUT_SWEEP,
    INPUTS,
    CimParams,
    add_source_line,
    add_wordlines,
    read_voltage,
    stored_shifts,
)
from circuits.gated_string import nodeset
from nandcosim.encodings import STRINGS, complement, string_states
from nandcosim.spice.circuit import Circuit, DcSweep, Knob, Response, SweptSource, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.result import Waveforms

__all__ = ["BLOCKS", "THRESHOLDS", "CimUnit", "UnitParams", "add_strings", "unit_elements"]

BLOCKS = ("a", "b")


class UnitParams(CimParams):
    """Parameters of `CimUnit`."""

    weight: int = parameter(
        6,
        unit="1",
        ge=-14,
        le=14,
        meaning="weight of the unit, at most 2 (states - 1) in magnitude",
        source="assumed: the largest of 4-state cells",
    )

    @model_validator(mode="after")
    def _weight_fits(self) -> UnitParams:
        largest = 2 * (self.states - 1)
        if abs(self.weight) > largest:
            raise ValueError(f"weight = {self.weight} is beyond {largest}, states = {self.states}")
        return self


THRESHOLDS = Knob(
    name="threshold",
    unit="V",
    meaning="error of each cell's threshold, string after string, block A first",
    size=lambda params: len(BLOCKS) * STRINGS * params.cells,
)


def string_names() -> Iterator[tuple[str, str]]:
    """Block and name of every string."""
    return ((block, f"{block}{index}_") for block in BLOCKS for index in range(STRINGS))


def unit_shifts(params: CimParams, weight: int, threshold: np.ndarray) -> np.ndarray:
    """Voltage of every cell's stored charge in V, shape (8, cells)."""
    block_a = string_states(weight, params.states)
    states = [*block_a, *complement(block_a, params.states)]
    nominal = np.stack([stored_shifts(params, int(state)) for state in states])
    return np.asarray(nominal + threshold.reshape(nominal.shape))


def unit_elements(params: CimParams, weight: int, threshold: np.ndarray) -> dict[str, float]:
    """ngspice name of every cell's shift -> its value in V."""
    values = unit_shifts(params, weight, threshold)
    return {
        shift_source(index, name): float(value)
        for (_, name), row in zip(string_names(), values, strict=True)
        for index, value in enumerate(row)
    }


def add_strings(
    netlist: Netlist,
    params: CimParams,
    weight: int,
    threshold: np.ndarray,
    wordlines: Sequence[str],
) -> None:
    """Add the eight strings between the nodes ``bl<block>`` and ``sl``, selected by ``pass``."""
    values = unit_shifts(params, weight, threshold)
    for (block, name), row in zip(string_names(), values, strict=True):
        add_chain(
            netlist,
            params,
            row,
            wordlines,
            bitline=f"bl{block}",
            source="sl",
            select="pass",
            name=name,
        )


class CimUnit(Circuit):
    """Eight strings with their bitlines held, at every input and read pulse in turn."""

    name = "cim_unit"
    summary = "dual block of eight CAM-gated CIM strings: the product of input and weight"
    Params = UnitParams
    knobs = (THRESHOLDS,)
    responses_declared = (
        *(Response(f"y_x{x}", "A", f"i_a less i_b over all pulses at input {x}") for x in INPUTS),
        Response("i_a", "A", "current of block A summed over the pulses at input 3"),
        Response("i_b", "A", "current of block B summed over the pulses at input 3"),
    )

    def build(self, params: UnitParams, knobs: Mapping[str, np.ndarray] | None = None) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("cim_unit: every input and read pulse in turn", params)
        for block in BLOCKS:
            netlist.V(f"bl{block}", f"bl{block}", netlist.gnd, params.v_bl)
        add_source_line(netlist, params)
        wordlines = add_wordlines(netlist, params)
        netlist.V("read", "read", netlist.gnd, read_voltage(params, 1))
        add_strings(netlist, params, params.weight, knobs["threshold"], wordlines)
        for _, name in string_names():
            netlist.raw_spice += nodeset(params.v_bl, params, name)
        return netlist

    def elements(self, params: UnitParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        return unit_elements(params, params.weight, knobs["threshold"])

    def analysis(self, params: UnitParams, wanted: frozenset[str] | None = None) -> DcSweep:
        pulses = params.states - 1
        first, last = (read_voltage(params, pulse) for pulse in (1, pulses))
        return DcSweep(INPUT_SWEEP, SweptSource("vread", first, last, pulses))

    def saved(self, params: UnitParams) -> tuple[str, ...]:
        return tuple(f"i(vbl{block})" for block in BLOCKS)

    def responses(self, waveforms: Waveforms, params: UnitParams) -> dict[str, float]:
        shape = (params.states - 1, len(INPUTS))
        i_a, i_b = (-waveforms[name].reshape(shape).sum(axis=0) for name in self.saved(params))
        products = {f"y_x{x}": float(y) for x, y in zip(INPUTS, i_a - i_b, strict=True)}
        return {**products, "i_a": float(i_a[-1]), "i_b": float(i_b[-1])}

    def measures(self, params: UnitParams) -> tuple[str, ...]:
        # sums over the pulses are beyond .meas, which sees both sweeps as one
        return tuple(
            line
            for block in BLOCKS
            for line in (
                f".meas dc into_{block} min i(vbl{block})",
                f".meas dc i_{block}_largest param='-into_{block}'",
            )
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params)
