"""The unit of work: a chunk of samples, the job a worker gets, the arrays it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nandcosim.spice.engine import BackendName

__all__ = ["Chunk", "ChunkResult", "Job"]


@dataclass(frozen=True)
class Chunk:
    """Work that is written together: samples of one grid point.

    Attributes
    ----------
    point : int
        Number of the grid point.
    start, stop : int
        Range of samples of the store's chunk.
    samples : tuple of int
        Those that are to be run.
    """

    point: int
    start: int
    stop: int
    samples: tuple[int, ...]


@dataclass(frozen=True)
class ChunkResult:
    """Outcome of the samples of a `Chunk`, all of shape (len(samples),)."""

    status: np.ndarray
    reason: list[str]
    responses: dict[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """A chunk to be run, small enough to send with every task.

    Attributes
    ----------
    spec : str
        `SweepSpec.canonical_json`.
    chunk : Chunk
    backend : str
        ``shared`` or ``process``.
    time_limit : float
        Seconds a sample.
    """

    spec: str
    chunk: Chunk
    backend: BackendName
    time_limit: float
