"""The unit of work: a chunk of samples, the job a worker gets, the arrays it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nandcosim.spice.engine import BackendName

__all__ = ["Chunk", "ChunkResult", "EngineUsed", "Job"]


class EngineUsed(IntEnum):
    """What made a sample; the values are part of the store's format."""

    NGSPICE = 0
    FAST = 1
    BOTH = 2
    """Audited: the value recorded is that of ngspice."""
    FALLBACK = 3
    """ngspice, because the fast engine disagrees in the block of the sample."""


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
    """Outcome of the samples of a `Chunk`, all of shape (len(samples),).

    Attributes
    ----------
    status : ndarray of int8
    reason : list of str
    responses : dict of str to ndarray
    engine : ndarray of int8 or None
        `EngineUsed`; None where the sweep knows ngspice only, or only ran failures again.
    deviations : dict of str to ndarray
        Of audited samples what the fast engine gave, less what ngspice gave; infinite where
        only one of them found a value.
    """

    status: np.ndarray
    reason: list[str]
    responses: dict[str, np.ndarray]
    engine: np.ndarray | None = None
    deviations: dict[str, np.ndarray] = field(default_factory=dict)


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
