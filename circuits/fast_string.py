"""The fast engine of `circuits.dts_sense`: a string over device tables.

ngspice measures once, from the same card and subcircuits, what the transient of a string
needs: current and charges of a cell and of a select transistor (`device_tables`), the
charge that the bitline and its sensing path give up as it falls, and the bitline voltage at
which the sense amplifier's output rises, against its two mismatches. `fast_kernel` then
steps a chain of table lookups with a tridiagonal Newton solver. See docs/fast_string.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from circuits.chain import chain_files, new_netlist
from circuits.fast_kernel import RESISTOR, discharge
from circuits.levels import shift_of
from circuits.string import shifts, wordlines
from nandcosim.spice.circuit import Transient
from nandcosim.spice.deck import Deck, netlist_text
from nandcosim.spice.device_table import Grid, device_tables
from nandcosim.spice.fast import FastModel, FastSamples
from nandcosim.spice.installation import osdi_models
from nandcosim.spice.measure import crossing, value_at
from nandcosim.spice.measured import measured
from nandcosim.spice.netlists import find_netlist

if TYPE_CHECKING:
    from circuits.dts_sense import DtsSenseParams
    from nandcosim.spice.engine import Backend

__all__ = ["FastString", "fast_string"]

#: What the engine promises of ngspice's own crossing time and pass boundary.
TIME_TOLERANCE = 0.01
BOUNDARY_TOLERANCE = 0.02  # level spacings

#: What a step may differ from its prediction, in V: of any node, of the bitline.
NODE_ERROR, BITLINE_ERROR = 0.08, 5e-4

#: Steps of the tables of devices in V. Below 5 mV between gate and source the interpolation
#: of the logarithm is within 0.1 %; the body's effect on it is nearly straight.
GATE_STEP, BODY_STEP = 5e-3, 0.1

#: mV between drain and source: dense where a conducting cell sits.
SPAN = (1, 5, 10, 15, 20, 30, 40, 50, 60, 70, 85, 100, 120, 140, 165, 190, 220, 250, 285, 320)
REVERSE_SPAN = (-200, -140, -100, -70, -50, -35, -20, -10, -5, -1)

#: Levels that a cell may lie beyond the outermost ones.
OUTLIERS = 2.5

#: Largest noise voltage of the source line in V: the tables begin a little below the body.
LARGEST_SOURCE_LINE = 0.08

#: Mismatch of the sense inverter in V: three to five times what sweeps/dts_sense.toml draws.
MISMATCH_N, MISMATCH_P = np.linspace(-0.17, 0.17, 9), np.linspace(-0.06, 0.06, 5)

#: Voltage of the bitline in V that its charge is measured down to.
LOWEST_BITLINE = 0.05

#: Steps of the transients that measure the bitline and the sense amplifier.
POINTS = 1000


#: Entries of a table, 32 bytes each; a domain of many volts asks for more.
LARGEST_TABLE = 2_000_000


def fast_string(params: DtsSenseParams, backend: Backend) -> FastString | None:
    """The fast engine at `params`; None where its tables would not fit in memory."""
    grid = _grid(params)
    if len(grid.gate) * len(grid.body) * len(grid.span) > LARGEST_TABLE:
        return None
    return FastString(params, backend)


class FastString(FastModel):
    """`DtsSense` at fixed parameters.

    Parameters
    ----------
    params : DtsSenseParams
    backend : Backend
        Measures what is not in the cache yet.

    Raises
    ------
    NandcosimError
        If ngspice cannot measure the card.
    """

    def __init__(self, params: DtsSenseParams, backend: Backend) -> None:
        self._params = params
        library = _library(params)
        grid = _grid(params)
        self._highest_gate = grid.gate[-1]
        stamp = _stamp(params)
        self._tables = device_tables(
            library, _calls(params), grid, params.temperature, backend, stamp
        )
        self._bitline = _bitline(params, library, stamp, backend)
        self._start = float(self._bitline["start"])
        self._trip = _trip_points(params, library, stamp, backend)
        kinds = np.zeros(params.cells + 4, dtype=np.int64)
        kinds[[0, -1]] = RESISTOR
        kinds[[1, -2]] = 1
        self._kinds = kinds
        self._wordlines = wordlines(params)

    def sample_many(self, knobs: Mapping[str, np.ndarray]) -> FastSamples:
        """Evaluate samples; see `FastModel.sample_many`."""
        trip = self._trip(np.column_stack([knobs["sa_n"][:, 0], knobs["sa_p"][:, 0]]))
        source_line = knobs["source_line"][:, 0]
        gates = self._gates(knobs["threshold"])
        times, solved = self._discharge(gates, trip, source_line)
        valid = (
            solved
            & (trip > LOWEST_BITLINE)
            & (trip < 0.98 * self._start)
            & (np.abs(source_line) <= LARGEST_SOURCE_LINE)
            & (gates[:, 2:-2].max(axis=1) <= self._highest_gate)
        )
        bit = ~np.isnan(times[:, 1])
        return FastSamples({"bit": bit.astype(float), "t_cross": times[:, 0]}, valid)

    def agrees(
        self,
        knobs: Mapping[str, np.ndarray],
        fast: Mapping[str, float],
        full: Mapping[str, float],
    ) -> bool:
        """Whether bit and crossing time are within tolerance; see `FastModel.agrees`."""
        if "bit" in fast and fast["bit"] != full["bit"] and not self._near(knobs):
            return False
        if "t_cross" not in fast:
            return True
        # a bitline that has not crossed at the strobe crosses after it
        ours, theirs = (
            self._params.t_sense if math.isnan(each["t_cross"]) else each["t_cross"]
            for each in (fast, full)
        )
        return abs(ours / theirs - 1.0) <= TIME_TOLERANCE

    def _gates(self, threshold: np.ndarray) -> np.ndarray:
        """Gate voltage less shift of every transistor, conductance of the resistances."""
        params = self._params
        gates = np.zeros((threshold.shape[0], self._kinds.size))
        gates[:, 0], gates[:, -1] = 1.0 / params.r_bl, 1.0 / params.r_sl
        gates[:, 2:-2] = self._wordlines - shifts(params, threshold)
        return gates

    def _discharge(
        self, gates: np.ndarray, trip: np.ndarray, source_line: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        params = self._params
        edge = params.t_pre / 200
        result: tuple[np.ndarray, np.ndarray] = discharge(
            self._tables.values,
            self._tables.axes,
            self._tables.bins,
            self._kinds,
            gates,
            np.array([1, self._kinds.size - 2]),
            params.v_pass,
            edge,
            self._bitline["charge"],
            self._bitline["axis"],
            self._start,
            source_line,
            np.column_stack([np.full(len(trip), params.v_trip), trip]),
            params.t_sense,
            edge / 5,
            NODE_ERROR,
            BITLINE_ERROR,
        )
        return result

    def _near(self, knobs: Mapping[str, np.ndarray]) -> bool:
        """Whether moving the active cells by the boundary's tolerance changes the bit."""
        both = {name: np.stack([values, values]) for name, values in knobs.items()}
        aside = np.array([[-BOUNDARY_TOLERANCE], [BOUNDARY_TOLERANCE]])
        both["threshold"][:, self._params.active] += aside
        below, above = self.sample_many(both).responses["bit"]
        return bool(below != above)


def _library(params: DtsSenseParams) -> str:
    """Models and subcircuits of the circuit, without a title."""
    netlist = new_netlist("library", params, params.sense_path)
    return netlist_text(netlist).split("\n", 1)[1]


def _grid(params: DtsSenseParams) -> Grid:
    """Every voltage that a string can have; the same for all margins, positions and patterns."""
    highest = params.v_pass - float(shift_of(params, np.array(-OUTLIERS)))
    # rounded, so that another calibration of the levels needs no other table
    highest = 0.05 * math.ceil(highest / 0.05)
    gate = np.arange(0.0, highest + GATE_STEP / 2, GATE_STEP)
    # what a higher supply adds is smooth, and gets no more points than the first volt
    step = max(BODY_STEP, params.vdd / 9)
    body = np.arange(-BODY_STEP, params.vdd + 0.05 + step, step)
    reach = round(1050 * params.vdd)
    coarse = [*range(360, min(reach, 900) + 50, 50), *range(1050, reach + 150, 150)]
    span = (*REVERSE_SPAN, *SPAN, *coarse)
    return Grid(_rounded(gate), _rounded(body), _rounded(1e-3 * np.array(span)))


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.round(values, 6).tolist())


def _calls(params: DtsSenseParams) -> tuple[str, str]:
    """Instances of a cell and of a select transistor as `add_chain` makes them."""
    cell, select = (
        find_netlist(name, "cells", ".cir").stem for name in (params.cell, params.select)
    )
    terminals, width = "{drain} {gate} {source} {body}", f"w={params.w_cell!r}"
    return (
        f"{terminals} {cell} {width} l={params.l_cell!r} shift=0 cpar={params.c_cell!r}",
        f"{terminals} {select} {width} l={3 * params.l_cell!r}",
    )


def _stamp(params: DtsSenseParams) -> str:
    """Digests of every file behind the library; those that a card includes are not in its text."""
    files = chain_files(params.model_copy(update={"v_boundary": 0.0}), params.sense_path)
    files = (*files, *osdi_models())
    return "\n".join(hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in files)


def _sensing(params: DtsSenseParams, mismatch_n: float, mismatch_p: float) -> str:
    """An instance of the sensing path, less name and nodes of bitline and output."""
    path = find_netlist(params.sense_path, "cells", ".cir").stem
    return f"pch vdd {path} mn={mismatch_n!r} mp={mismatch_p!r} cload={params.c_load!r}"


def _bitline(
    params: DtsSenseParams, library: str, stamp: str, backend: Backend
) -> dict[str, np.ndarray]:
    """Charge of the bitline with its sensing path, against its voltage.

    Precharged as in the circuit, then discharged by a constant current in place of the
    string, in the time that the string has. What the end of the precharge couples
    into the bitline, leakage, and what the sense amplifier takes as it trips are thus in.

    Returns
    -------
    dict
        ``charge`` in C at the voltages ``axis`` = (low end in V, steps per V), and ``start``,
        the voltage in V from which it falls.
    """
    edge = params.t_pre / 200
    begin = params.t_pre + edge
    current = params.c_bl * params.vdd / params.t_sense
    pulse = f"{params.t_pre!r} {edge!r} {edge!r} 1 2"
    netlist = "\n".join(
        [
            "bitline and sensing path",
            library.rstrip("\n"),
            f"vdd vdd 0 {params.vdd!r}",
            f"vpch pch 0 0 pulse(0 {params.vdd!r} {pulse})",
            f"cbl bl 0 {params.c_bl!r}",
            f"xsense bl out {_sensing(params, 0.0, 0.0)}",
            f"idown bl 0 0 pulse(0 {current!r} {begin!r} {edge!r} {edge!r} 1 2)",
            ".ic v(bl)=0",
        ]
    )
    stop = begin + 1.2 * params.t_sense
    analysis = Transient(stop, stop / POINTS, stop / POINTS)
    deck = Deck(netlist, analysis, ("v(bl)",), temperature=params.temperature)

    def make() -> dict[str, np.ndarray]:
        waves = backend.run(deck).require_ok().waveforms
        start = value_at(waves.time, waves["bl"], begin)
        falling = waves.time > begin + edge
        given = -current * (waves.time[falling] - begin - edge / 2)
        volts = waves["bl"][falling]
        axis = np.linspace(LOWEST_BITLINE, volts[0], POINTS // 4)
        charge = np.interp(axis, volts[::-1], given[::-1])
        return {
            "charge": charge,
            "axis": np.array([axis[0], 1.0 / (axis[1] - axis[0])]),
            "start": np.array(start),
        }

    return measured("bitline", "\n".join([stamp, backend.version(), deck.text()]), make)


def _trip_points(
    params: DtsSenseParams, library: str, stamp: str, backend: Backend
) -> RegularGridInterpolator:
    """Bitline voltage in V at which the output rises, against the two mismatches in V.

    Many sensing paths on one bitline that falls with the slope of one that just trips at
    the strobe, so that the delay of the output is in the voltage.
    """
    pairs = [(n, p) for n in MISMATCH_N.tolist() for p in MISMATCH_P.tolist()]
    stop = 2.0 * params.t_sense
    lines = [
        "trip points",
        library.rstrip("\n"),
        f"vdd vdd 0 {params.vdd!r}",
        f"vpch pch 0 {params.vdd!r}",
        f"vbl bl 0 pwl(0 {params.vdd!r} {stop!r} 0)",
        *(f"xsense{k} bl out{k} {_sensing(params, n, p)}" for k, (n, p) in enumerate(pairs)),
    ]
    outputs = [f"v(out{k})" for k in range(len(pairs))]
    analysis = Transient(stop, stop / POINTS, stop / POINTS)
    deck = Deck("\n".join(lines), analysis, ("v(bl)", *outputs), temperature=params.temperature)

    def make() -> dict[str, np.ndarray]:
        waves = backend.run(deck).require_ok().waveforms
        half = params.vdd / 2
        rises = [crossing(waves.time, waves[name], half, rising=True) for name in outputs]
        volts = np.interp(rises, waves.time, waves["bl"])
        return {"trip": volts.reshape(MISMATCH_N.size, MISMATCH_P.size)}

    found = measured("trip", "\n".join([stamp, backend.version(), deck.text()]), make)
    # NaN beyond the range, and next to an amplifier that never trips
    return RegularGridInterpolator((MISMATCH_N, MISMATCH_P), found["trip"], bounds_error=False)
