"""The unit of work: a chunk of samples, the job a worker gets, the arrays it returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nandcosim.spice.engine import BackendName

__all__ = ["Chunk", "ChunkResult", "EngineUsed", "Job", "Refusal"]


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
        Range of samples, within one chunk of the store.
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
    seconds : float
        Wall time that the worker took.
    """

    status: np.ndarray
    reason: list[str]
    responses: dict[str, np.ndarray]
    engine: np.ndarray | None = None
    deviations: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: float = float("nan")


@dataclass(frozen=True)
class Refusal:
    """What a worker that must not take part answers instead of a result.

    Attributes
    ----------
    worker : str
        Its address.
    host : str
    reason : str
        In what it differs from the plan.
    """

    worker: str
    host: str
    reason: str


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
    identity : dict of str to str
        What the worker must be; see `nandcosim.sweep.identity`.
    scores : ndarray, shape (len(chunk.samples), dimensions), or None
        The samples' standard normal scores, where the sweep's plan chose them.
    """

    spec: str
    chunk: Chunk
    backend: BackendName
    time_limit: float
    identity: dict[str, str] = field(default_factory=dict)
    scores: np.ndarray | None = field(default=None, repr=False, compare=False)

    def only(self, samples: tuple[int, ...]) -> Job:
        """The same job for some of its samples."""
        chunk = replace(self.chunk, samples=samples)
        if self.scores is None:
            return replace(self, chunk=chunk)
        rows = [self.chunk.samples.index(k) for k in samples]
        return replace(self, chunk=chunk, scores=self.scores[rows])

    def scores_of(self, k: int) -> np.ndarray | None:
        """The chosen scores of sample `k`; None: the sweep's sampler draws them."""
        return None if self.scores is None else self.scores[self.chunk.samples.index(k)]
