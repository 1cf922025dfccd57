"""A bit of a page read as parameters and knobs of the circuit, and its replay in ngspice.

The circuit has the selected cell's level and place, the page, code and retry as parameters.
Over the erased pattern the knob ``data`` is the level of every other cell, and the knob
``threshold`` the error of every cell's threshold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.audit.workers import sampled
from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName, Engine
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit
from nandcosim.tables.table import CalibrationTable

__all__ = [
    "PageReplay",
    "PageReplayTask",
    "PageResult",
    "circuit_settings",
    "knobs_of",
    "page_params",
    "replay_pages",
]

#: Parameters that each read sets, or that its knobs stand for.
_OF_A_READ = frozenset({
    "bits", "coding", "cycles", "margin", "offset", "page", "pattern", "placement", "position",
    "read", "read_level", "retention", "retry", "storage_temperature", "stored",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class PageReplay:
    """One bit of a page read to be simulated.

    Attributes
    ----------
    wordline : int
        Place of the selected cell, counted from the bitline.
    page : int
    level : int
        Of the selected cell.
    read_level : int
        The page's read level that is nearest to its threshold.
    data : float array (cells,)
        Level of every cell.
    threshold : float array (cells,)
        Error of every cell's threshold, in level spacings.
    mismatch : dict of str to float
        Knobs of the sense amplifier in V.
    """

    wordline: int
    page: int
    level: int
    read_level: int
    data: NDArray[np.float64]
    threshold: NDArray[np.float64]
    mismatch: dict[str, float]


@dataclass(frozen=True)
class PageReplayTask:
    """Reads that one process simulates after each other."""

    circuit: str
    settings: dict[str, Any]
    reads: tuple[PageReplay, ...]
    backend: BackendName = "shared"
    time_limit: float = 60.0


@dataclass(frozen=True)
class PageResult:
    """What the circuit found; NaN where the run failed.

    Attributes
    ----------
    conducts : float
        At the read level that is nearest to the cell's threshold.
    bit : float
        Of the page.
    status : Status
    reason : str
    """

    conducts: float
    bit: float
    status: Status
    reason: str


def circuit_settings(table: CalibrationTable, **chosen: Any) -> dict[str, Any]:
    """Parameters that all reads of a run have in common, as in the sweep behind the table.

    Parameters
    ----------
    table : CalibrationTable
    **chosen
        ``bits``, ``coding`` and ``retry``.

    Raises
    ------
    InputError
        If the table does not tell its circuit's parameters.
    """
    recorded = table.dataset.attrs.get("circuit_parameters")
    if recorded is None:
        raise InputError(
            f"audit: table {table.circuit} does not tell its circuit's parameters, allowed: one "
            "made by nandcosim fit"
        )
    held = json.loads(recorded).items()
    kept = {name: v for name, v in held if v is not None and name not in _OF_A_READ}
    return kept | chosen


def page_params(
    circuit: Circuit, settings: dict[str, Any], wordline: int, page: int, level: int
) -> Any:
    """Parameters of a read of a cell of this level on this wordline."""
    last = int(settings.get("cells", circuit.Params.model_fields["cells"].default)) - 1
    place = {
        "read": "page",
        "page": page,
        "stored": level,
        "position": wordline / last if last else 0.0,
        "pattern": "erased",
    }
    return circuit.Params(**{**settings, **place})


def knobs_of(read: PageReplay, *, mismatch: bool) -> dict[str, NDArray[np.float64]]:
    """Knobs of a read, with the amplifier's mismatch or with none."""
    cells = {"data": read.data, "threshold": read.threshold}
    if not mismatch:
        return cells
    return cells | {name: np.array([volts]) for name, volts in read.mismatch.items()}


def replay_pages(task: PageReplayTask) -> list[tuple[PageResult, ...]]:
    """Simulate reads, each with an ideal amplifier and with its own."""
    circuit = load_circuit(task.circuit)
    engine = Engine(task.backend, task.time_limit)
    try:
        return [
            tuple(_result(engine, task, circuit, read, mismatch=own) for own in (False, True))
            for read in task.reads
        ]
    finally:
        engine.close()


def _result(
    engine: Engine, task: PageReplayTask, circuit: Circuit, read: PageReplay, *, mismatch: bool
) -> PageResult:
    params = page_params(circuit, task.settings, read.wordline, read.page, read.level)
    sense = f"bit_{read.read_level}"
    wanted = frozenset({"data_bit", sense})
    knobs = knobs_of(read, mismatch=mismatch)
    outcome = sampled(engine, task, circuit, params, knobs, wanted)
    found = outcome.responses
    return PageResult(found[sense], found["data_bit"], outcome.status, outcome.reason)
