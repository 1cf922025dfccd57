"""DTS sensing: precharged bitline, string, sense amplifier and output buffer.

m wordlines are driven at once by query voltages, all others pass. The string
conducts when every active cell does; the bit at the output buffer says whether the
bitline fell below the trip point before the strobe (D-NOVA sections 3.2 and 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PySpice.Spice.Netlist import Circuit as Netlist
from scipy.optimize import brentq

from circuits.chain import chain_files, new_netlist
from circuits.levels import write_level_map
from circuits.sensing import SENSE_KNOBS, SenseParams, add_sensing, known, sense_elements
from circuits.string import SOURCE_LINE, THRESHOLD, StringParams, add_string, string_elements
from nandcosim.errors import SimulationError
from nandcosim.spice.circuit import (
    Circuit,
    Marks,
    Response,
    Transient,
)
from nandcosim.spice.engine import Backend, Engine, full_knobs
from nandcosim.spice.fast import FastModel
from nandcosim.spice.measure import crossing, integral, value_at
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status

__all__ = ["DtsSense", "DtsSenseParams"]


class DtsSenseParams(StringParams, SenseParams):
    """Parameters of `DtsSense`."""


class DtsSense(Circuit):
    """One bitline's sense operation, from precharge to strobe."""

    name = "dts_sense"
    summary = "multi-wordline DTS sensing: bitline, 128-cell string, sense amplifier, buffer"
    Params = DtsSenseParams
    knobs = (
        THRESHOLD,
        SOURCE_LINE,
        *SENSE_KNOBS,
    )
    responses_declared = (
        Response("bit", "1", "output buffer at the strobe: 1 conducts (pass), 0 blocks"),
        Response("t_cross", "s", "from selecting the string to the trip point", optional=True),
        Response("t_out", "s", "from selecting the string to the output's rise", optional=True),
        Response("v_trip_out", "V", "bitline voltage at the output's rise", optional=True),
        Response("v_strobe", "V", "bitline voltage at the strobe"),
        Response("e_sense", "J", "energy from the supply, precharge to strobe"),
    )
    fast_responses = frozenset({"bit", "t_cross"})

    def build(
        self, params: DtsSenseParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("dts_sense: multi-wordline sensing", params, params.sense_path)
        add_sensing(netlist, params, knobs)
        add_string(netlist, params, knobs, "bl", "sel")
        return netlist

    def elements(self, params: DtsSenseParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        return string_elements(params, knobs) | sense_elements(knobs)

    def analysis(self, params: DtsSenseParams, wanted: frozenset[str] | None = None) -> Transient:
        strobe = params.t_pre + params.t_sense
        wanted = wanted or frozenset(r.name for r in self.responses_declared)
        # The bitline alone is smooth and lets the solver stride; what passes through the
        # sense amplifier switches in a fraction of that step.
        coarse = wanted <= {"bit", "t_cross", "v_strobe"}
        max_step = params.max_step if coarse else params.max_step / 20
        decided = wanted <= {"bit", "t_cross", "t_out", "v_trip_out"}
        return Transient(
            stop=strobe,
            step=strobe / 200,
            max_step=max_step,
            stop_when=known(params) if decided else None,
        )

    def saved(self, params: DtsSenseParams) -> tuple[str, ...]:
        return ("v(bl)", "v(out)", "v(sel)", "v(pch)", "i(vdd)")

    def responses(self, waveforms: Waveforms, params: DtsSenseParams) -> dict[str, float]:
        select, strobe = params.t_pre, params.t_pre + params.t_sense
        time, bitline, out = waveforms.time, waveforms["v(bl)"], waveforms["v(out)"]
        cross = crossing(time, bitline, params.v_trip, rising=False, after=select)
        rise = crossing(time, out, params.vdd / 2, rising=True, after=select)
        stopped = time[-1] < strobe * (1 - 1e-9)
        nan = float("nan")
        # a bitline that was not precharged says nothing about the string
        charged = value_at(time, bitline, select) > 0.9 * params.vdd
        power = -params.vdd * waveforms["i(vdd)"]
        return {
            "bit": float(out[-1] > params.vdd / 2) if charged else nan,
            "t_cross": cross - select,
            "t_out": rise - select,
            "v_trip_out": nan if np.isnan(rise) else value_at(time, bitline, rise),
            "v_strobe": nan if stopped else float(bitline[-1]),
            "e_sense": nan if stopped else integral(time, power),
        }

    def marks(self, params: DtsSenseParams) -> Marks:
        select, strobe = params.t_pre, params.t_pre + params.t_sense
        return Marks(
            instants={"precharge": 0.0, "select": select, "strobe": strobe},
            levels={"trip point": params.v_trip},
        )

    def measures(self, params: DtsSenseParams) -> tuple[str, ...]:
        select = params.t_pre
        return (
            f".meas tran t_bitline when v(bl)={params.v_trip!r} fall=1 td={select!r}",
            f".meas tran t_cross param='t_bitline-{select!r}'",
        )

    def fast(self, params: DtsSenseParams, backend: Backend) -> FastModel | None:
        from circuits.fast_string import fast_string  # needs Numba

        return fast_string(params, backend)

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
