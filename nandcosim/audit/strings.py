"""A read as parameters and knobs of the sensing circuit, and its replay in ngspice.

The circuit's gate voltage is that of its wordline less that of the stored charge, so a
cell is described by the difference alone: with active wordlines at margin 0 of the
circuit's own pattern, a threshold error of minus its margin gives an active cell the gate
voltage v_boundary + margin * spacing, whatever the query's and the stored level are.
Unselected cells are at the pass voltage; over the erased pattern their threshold error
is the stored level itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.audit.workers import sampled
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName, Engine
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit

__all__ = ["Bit", "Replay", "ReplayTask", "replay_all", "string_params", "threshold_knob"]

BIT = frozenset({"bit"})


@dataclass(frozen=True, eq=False)
class Replay:
    """One read to be simulated.

    Attributes
    ----------
    first, size : int
        Active cells.
    threshold : float array (cells,)
        See `threshold_knob`.
    mismatch : dict of str to float
        Knobs of the sense amplifier in V.
    """

    first: int
    size: int
    threshold: NDArray[np.float64]
    mismatch: dict[str, float]


@dataclass(frozen=True)
class ReplayTask:
    """Reads that one process simulates after each other; those of one deck are neighbours."""

    circuit: str
    settings: dict[str, Any]
    reads: tuple[Replay, ...]
    backend: BackendName = "shared"
    time_limit: float = 60.0


@dataclass(frozen=True)
class Bit:
    """What the circuit decided: 1 conducts, 0 blocks, NaN where the run failed."""

    value: float
    status: Status
    reason: str


def string_params(circuit: Circuit, settings: dict[str, Any], first: int, size: int) -> Any:
    """Parameters of a string with active cells first .. first + size - 1, all at margin 0."""
    room = int(settings.get("cells", circuit.Params.model_fields["cells"].default)) - size
    place = {
        "m": size,
        "critical": size,
        "position": first / room if room else 0.0,
        "margin": 0.0,
        "companion_margin": 0.0,
        "pattern": "erased",
    }
    return circuit.Params(**{**settings, **place})


def threshold_knob(
    stored: NDArray[np.float64], applied: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Values of the knob ``threshold`` for a string, over `string_params`.

    Parameters
    ----------
    stored : float array (cells,)
        Thresholds as programmed, in levels.
    applied : float array (cells,)
        Level on each wordline; NaN at the pass voltage.

    Returns
    -------
    float array (cells,)
        In level spacings.
    """
    margin = applied - stored - 0.5
    return np.where(np.isnan(applied), stored, -margin)


def replay_all(task: ReplayTask) -> list[tuple[Bit, ...]]:
    """Simulate reads, each with an ideal amplifier and with its own."""
    circuit = load_circuit(task.circuit)
    engine = Engine(task.backend, task.time_limit)
    try:
        found: list[tuple[Bit, ...]] = []
        for read in task.reads:
            params = string_params(circuit, task.settings, read.first, read.size)
            ideal = _bit(engine, circuit, params, read, {}, task)
            own = ideal
            if read.mismatch:
                own = _bit(engine, circuit, params, read, read.mismatch, task)
            found.append((ideal, own))
        return found
    finally:
        engine.close()


def _bit(
    engine: Engine,
    circuit: Circuit,
    params: Any,
    read: Replay,
    mismatch: dict[str, float],
    task: ReplayTask,
) -> Bit:
    knobs = {"threshold": read.threshold} | {k: np.array([v]) for k, v in mismatch.items()}
    outcome = sampled(engine, task, circuit, params, knobs, BIT)
    return Bit(outcome.responses["bit"], outcome.status, outcome.reason)
