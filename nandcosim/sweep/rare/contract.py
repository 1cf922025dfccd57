"""What a rare-event method asks for, what it is told, and what it answers.

A method is a generator: it yields a `Batch` of runs, is sent their `Outcomes`, and
returns an `Estimate`. It knows no simulator and keeps no files. The same random
generator and the same outcomes give the same batches to the bit, so that an
interrupted estimate goes on by replaying what is stored.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import numpy as np

__all__ = ["Asking", "Batch", "Estimate", "Method", "Outcomes", "Settings", "Stage"]


class Stage(IntEnum):
    """What a run is for; the values are part of the store's format."""

    SEARCH = 0
    PILOT = 1
    """Weighted, and not counted: it moves the proposal."""
    SAMPLE = 2


@dataclass(frozen=True)
class Settings:
    """What is asked of a method.

    Attributes
    ----------
    precision : float
        Relative standard error at which to stop.
    max_runs : int
        Runs that it may take in all, the search included.
    min_samples : int
        Samples before importance sampling trusts its own standard error: to stop at the
        first small one favours estimates that are too low. With 300 the interval covers
        89 % on a curved boundary in 131 dimensions, with 500 it covers 94 %.
    """

    precision: float
    max_runs: int
    min_samples: int = 500


@dataclass(frozen=True)
class Batch:
    """Runs to make next.

    Attributes
    ----------
    scores : ndarray, shape (n, dimensions)
        Standard normal scores.
    stage : Stage
    log_weight : ndarray, shape (n,)
        Logarithm of the target's over the proposal's density; NaN where a run has no weight.
    """

    scores: np.ndarray
    stage: Stage
    log_weight: np.ndarray

    @classmethod
    def unweighted(cls, scores: np.ndarray, stage: Stage) -> Batch:
        """Runs that have no weight."""
        return cls(scores, stage, np.full(len(scores), np.nan))


@dataclass(frozen=True)
class Outcomes:
    """What became of a batch, all of shape (n,).

    Attributes
    ----------
    failed : ndarray of bool
        Whether the event occurred.
    guide : ndarray
        A continuous measure, above zero on the safe side; NaN where it does not exist.
    known : ndarray of bool
        False where the simulation itself failed.
    """

    failed: np.ndarray
    guide: np.ndarray
    known: np.ndarray

    @property
    def event(self) -> np.ndarray:
        """Where the event is known to have occurred."""
        return np.asarray(self.failed & self.known)


@dataclass(frozen=True)
class Estimate:
    """The answer of a method.

    Attributes
    ----------
    probability, standard_error, low, high : float
        Low and high are the limits of the 95 % interval.
    effective_samples : float
    runs : int
    beta : float
        Reliability index: distance of the nearest failure from the origin, in sigma.
    centres : ndarray, shape (regions, dimensions)
        Most probable failure points.
    converged : bool
        Whether the precision was reached.
    note : str
        What a reader must know, ``""`` if nothing.
    """

    probability: float
    standard_error: float
    low: float
    high: float
    effective_samples: float
    runs: int
    beta: float
    centres: np.ndarray = field(repr=False)
    converged: bool
    note: str = ""


T = TypeVar("T")

Asking = Generator[Batch, Outcomes, T]
Method = Asking[Estimate]
