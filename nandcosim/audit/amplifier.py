"""The sense amplifier whose mismatch is a given read noise.

The model draws a read's noise as one number, normal, in level spacings; the circuit has
the mismatch of several transistors, in volts. To first order that mismatch moves the
decision margin by

    u = sum_i a_i x_i,        a_i = d(trip margin) / dx_i,

with x_i normal of standard deviation s_i as in the sweep behind the table. Given the
noise, the mismatch is normal again, with the score z along the direction of a:

    x = y + s^2 a (z U - a . y) / U^2,        U^2 = sum_i (a_i s_i)^2,

for y a fresh draw. Over all z, x is distributed as the sweep's. The a_i are measured in
ngspice; U against the table's `read_sigma` shows how linear the amplifier is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError, SimulationError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName, Engine
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit
from nandcosim.tables.table import CalibrationTable

__all__ = ["Amplifier", "TripTask", "mismatch_of", "trip_margins"]

#: Where the trip margin is looked for, in level spacings, and halvings of that range.
_BRACKET = (-4.0, 4.0)
_HALVINGS = 16

BIT = frozenset({"bit"})


@dataclass(frozen=True)
class TripTask:
    """Measure the trip margin of m cells, as it is and with each knob one deviation either way."""

    circuit: str
    settings: dict[str, Any]
    m: int
    mismatch: dict[str, float]
    backend: BackendName = "shared"
    time_limit: float = 60.0


@dataclass(frozen=True, eq=False)
class Amplifier:
    """The amplifier as sensed through groups of m cells.

    Attributes
    ----------
    m : int
    trip : float
        Trip margin without mismatch, in level spacings.
    knobs : tuple of str
    deviations : float array (knobs,)
        Standard deviation of each knob's mismatch, in V.
    slopes : float array (knobs,)
        Shift of the trip margin, in level spacings a volt.
    """

    m: int
    trip: float
    knobs: tuple[str, ...]
    deviations: NDArray[np.float64]
    slopes: NDArray[np.float64]

    @classmethod
    def measured(cls, task: TripTask, trips: ArrayLike) -> Amplifier:
        """From the trip margins that `trip_margins` found."""
        found = np.asarray(trips, dtype=float)
        deviations = np.array(list(task.mismatch.values()))
        slopes = (found[1::2] - found[2::2]) / (2 * deviations)
        return cls(task.m, float(found[0]), tuple(task.mismatch), deviations, slopes)

    @property
    def spread(self) -> float:
        """Standard deviation of the decision margin, in level spacings: U."""
        return float(np.linalg.norm(self.slopes * self.deviations))

    def mismatch(self, scores: ArrayLike, rng: np.random.Generator) -> NDArray[np.float64]:
        """Mismatch of amplifiers whose read noise has these normal scores.

        Parameters
        ----------
        scores : float array (n,)
        rng : Generator

        Returns
        -------
        float array (n, knobs)
            In V.
        """
        z = np.asarray(scores, dtype=float)
        pull = self.slopes * self.deviations
        length = float(np.linalg.norm(pull))
        free = rng.standard_normal((z.size, pull.size))
        if length == 0:
            return np.asarray(free * self.deviations)
        along = pull / length
        given = free + np.outer(z - free @ along, along)
        return np.asarray(given * self.deviations)


def mismatch_of(
    table: CalibrationTable, circuit: Circuit, cells: Collection[str] = ("threshold",)
) -> dict[str, float]:
    """Standard deviation of every random quantity behind a table but those of the cells.

    Parameters
    ----------
    table : CalibrationTable
    circuit : Circuit
    cells : collection of str
        Knobs of the cells, which an audit takes from the run.

    Returns
    -------
    dict of str to float
        Knob -> deviation in the knob's unit.

    Raises
    ------
    InputError
        If the table does not tell its sweep, or draws something that is no normal,
        centred, scalar knob with a fixed deviation.
    """
    text = table.dataset.attrs.get("spec")
    if text is None:
        raise InputError(
            f"audit: table {table.circuit} does not say which sweep made it, allowed: one made "
            "by nandcosim fit, which records the amplifier's mismatch"
        )
    scalar = {knob.name for knob in circuit.knobs if knob.name not in cells}
    found: dict[str, float] = {}
    for entry in json.loads(text).get("random", []):
        target, deviation = entry["target"], entry.get("std")
        if target in cells:
            continue
        plain = entry["distribution"] == "normal" and entry.get("mean") == 0
        if target not in scalar or not plain or not isinstance(deviation, (int, float)):
            raise InputError(
                f"audit: table {table.circuit} draws {target!r} from {entry['distribution']!r}, "
                f"allowed: centred normal {', '.join(sorted(scalar))} with a number as std"
            )
        found[target] = float(np.hypot(found.get(target, 0.0), deviation))
    return {name: deviation for name, deviation in found.items() if deviation > 0}


def trip_margins(task: TripTask) -> list[float]:
    """Trip margins of the nominal group: no mismatch, then +1 and -1 deviation of each knob.

    The critical cell is the first, the companions are as in the circuit's settings.

    Raises
    ------
    SimulationError
        If a run fails, or the group does not trip in the range that is searched.
    """
    circuit = load_circuit(task.circuit)
    params = circuit.Params(**{**task.settings, "m": task.m, "critical": 1, "margin": 0.0})
    engine = Engine(task.backend, task.time_limit)
    cases: list[Mapping[str, float]] = [{}]
    for name, deviation in task.mismatch.items():
        cases += [{name: deviation}, {name: -deviation}]
    try:
        return [_trip_margin(engine, circuit, params, case) for case in cases]
    finally:
        engine.close()


def _trip_margin(
    engine: Engine, circuit: Circuit, params: Any, mismatch: Mapping[str, float]
) -> float:
    def conducts(margin: float) -> bool:
        threshold = np.zeros(params.cells)
        threshold[params.active[0]] = -margin  # a threshold that is lower has more margin
        knobs = {"threshold": threshold} | {k: np.array([v]) for k, v in mismatch.items()}
        outcome = engine.sample(circuit, params, knobs, BIT)
        if outcome.status is not Status.OK:
            raise SimulationError(f"audit: {outcome.status.label}: {outcome.reason}")
        return outcome.responses["bit"] > 0.5

    low, high = _BRACKET
    if conducts(low) or not conducts(high):
        raise SimulationError(
            f"audit: a group of m = {params.m} does not trip at margins {low:g} .. {high:g}"
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if conducts(middle) else (middle, high)
    return (low + high) / 2
