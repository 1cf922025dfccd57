"""Which samples a sweep runs: all of them, or those its results ask for.

A planned sweep runs in waves. A wave is every sample below the count ``wanted`` of its
grid point that has not been run. When a wave is done the plan raises the counts or says
that the sweep is complete. It decides by what is stored and by nothing else, so that an
interrupted sweep finishes its wave and goes on as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.status import Status
from nandcosim.sweep.adaptive import next_wanted, start
from nandcosim.sweep.rare.contract import Batch, Estimate, Method, Outcomes, Settings
from nandcosim.sweep.rare.importance import importance
from nandcosim.sweep.rare.subset import subset
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.sampling import dimensions
from nandcosim.sweep.spec import SweepSpec, checked_points
from nandcosim.sweep.store import SweepStore

__all__ = ["Plan", "check_rare", "chosen_scores", "estimates", "plan_of"]

#: Sets the random numbers of a rare-event method apart from those of the samples.
_RARE_STREAM = 0x7A13

_METHODS = {"importance": importance, "subset": subset}


class Plan(Protocol):
    """Decides what a sweep runs."""

    def advance(self) -> bool:
        """After a finished wave: choose the next one; False if the sweep is complete."""

    def scores(self, point: int, samples: tuple[int, ...]) -> np.ndarray | None:
        """Chosen scores of samples of the wave; None if the sampler draws them."""


def plan_of(store: SweepStore, circuit: Circuit) -> Plan:
    """The plan of a sweep, with its unfinished wave set in the store."""
    if store.spec.precision is not None:
        return _PrecisionPlan(store)
    if store.spec.rare is not None:
        return _RarePlan(store, circuit)
    return _Everything()


def check_rare(spec: SweepSpec, circuit: Circuit) -> None:
    """Refuse a rare event for which ``samples`` does not even suffice to search.

    Raises
    ------
    InputError
    """
    for point in checked_points(spec.grid_shape):
        try:
            next(_method(spec, dimensions(spec, circuit, point), point))
        except InputError as error:
            raise InputError(f"samples = {spec.samples}: {error}") from None


def estimates(store: SweepStore) -> list[Estimate | None]:
    """Estimates of a rare-event sweep, one a grid point; None where it is not finished."""
    circuit = load_circuit(store.spec.circuit)
    return [_RarePoint(store, circuit, p).estimate for p in range(store.spec.points)]


def chosen_scores(
    store: SweepStore, circuit: Circuit, point: int, samples: tuple[int, ...]
) -> np.ndarray | None:
    """Scores that the plan chose for samples, shape (samples, dimensions); None if it chose none.

    Raises
    ------
    InputError
        If the plan has not come to one of the samples yet.
    """
    if store.spec.rare is None:
        return None
    return _RarePoint(store, circuit, point, keep=True).scores(samples)


class _Everything:
    """The plan of a sweep with a given number of samples."""

    def advance(self) -> bool:
        return False

    def scores(self, point: int, samples: tuple[int, ...]) -> None:
        return None


# -------------------------------------------------------------- precision


class _PrecisionPlan:
    """Samples until each point is known well enough; see `nandcosim.sweep.adaptive`."""

    def __init__(self, store: SweepStore) -> None:
        self.store = store
        if not store.wanted().any():
            store.set_wanted(start(store.spec))

    def advance(self) -> bool:
        store, spec = self.store, self.store.spec
        assert spec.precision is not None
        before = store.wanted()
        after, report = next_wanted(spec, before, *_results(store, spec.precision.response, before))
        store.record_plan(report)
        if report["complete"]:
            return False
        store.set_wanted(after)
        return True

    def scores(self, point: int, samples: tuple[int, ...]) -> None:
        return None


def _results(store: SweepStore, response: str, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Status codes and values of a response, both of shape (points, most samples wanted)."""
    most = int(wanted.max())
    found = [store.outcomes(point, [response], most) for point in range(store.spec.points)]
    codes, values = zip(*found, strict=True)
    return np.array(codes), np.array([each[response] for each in values])


# -------------------------------------------------------------- rare events


@dataclass(frozen=True)
class _Placed:
    """A batch and the number of its first run."""

    first: int
    batch: Batch

    @property
    def stop(self) -> int:
        return self.first + len(self.batch.scores)


class _RarePoint:
    """The method at one grid point, replayed as far as the store goes.

    Attributes
    ----------
    pending : _Placed or None
        The batch that is to be run, or has been in part.
    estimate : Estimate or None
        The answer, once there is one.
    runs : int
        Runs asked for so far.
    """

    def __init__(self, store: SweepStore, circuit: Circuit, point: int, keep: bool = False) -> None:
        self.store = store
        self.point = point
        spec = store.spec
        assert spec.rare is not None
        self.rare = spec.rare
        self.estimate: Estimate | None = None
        self.pending: _Placed | None = None
        self.kept: list[_Placed] | None = [] if keep else None
        self.method = _method(spec, dimensions(spec, circuit, point), point)
        self.runs = 0
        self._place(next(self.method))
        self.advance()

    def advance(self) -> None:
        """Tell the method all that the store knows by now."""
        while self.pending is not None:
            told = self._outcomes(self.pending)
            if told is None:
                return
            try:
                batch = self.method.send(told)
            except StopIteration as end:
                self.estimate, self.pending = end.value, None
            else:
                self._place(batch)

    def _place(self, batch: Batch) -> None:
        self.pending = _Placed(self.runs, batch)
        self.runs = self.pending.stop
        if self.kept is not None:
            self.kept.append(self.pending)

    def _outcomes(self, placed: _Placed) -> Outcomes | None:
        """What became of a batch; None if part of it has not been run."""
        names = {self.rare.failure.response, self.rare.guide.response}
        codes, values = self.store.outcomes(self.point, sorted(names), placed.stop)
        run = slice(placed.first, placed.stop)
        if (codes[run] == Status.NOT_RUN).any():
            return None
        known = codes[run] == Status.OK
        failure, guide = self.rare.failure, self.rare.guide
        return Outcomes(
            failed=known & failure.holds(values[failure.response][run]),
            guide=np.where(known, guide.distance(values[guide.response][run]), np.nan),
            known=known,
        )

    def scores(self, samples: tuple[int, ...]) -> np.ndarray:
        """Scores of samples of the pending batch, or of all if they are kept."""
        return np.array([self._scores_of(k) for k in samples])

    def _scores_of(self, k: int) -> np.ndarray:
        pending = [] if self.pending is None else [self.pending]
        for placed in pending if self.kept is None else self.kept:
            if placed.first <= k < placed.stop:
                return np.asarray(placed.batch.scores[k - placed.first])
        raise InputError(f"sample {k} of grid point {self.point}: the plan has not come to it")


def _method(spec: SweepSpec, size: int, point: int) -> Method:
    assert spec.rare is not None
    sequence = np.random.SeedSequence(spec.seed, spawn_key=(_RARE_STREAM, point))
    generator = np.random.Generator(np.random.PCG64(sequence))
    settings = Settings(precision=spec.rare.precision, max_runs=spec.samples)
    return _METHODS[spec.rare.method](size, generator, settings)


class _RarePlan:
    """The methods of all grid points, a batch of each at a time."""

    def __init__(self, store: SweepStore, circuit: Circuit) -> None:
        self.store = store
        self.at = [_RarePoint(store, circuit, p) for p in range(store.spec.points)]
        self._set()

    def advance(self) -> bool:
        for each in self.at:
            each.advance()
        return self._set()

    def scores(self, point: int, samples: tuple[int, ...]) -> np.ndarray:
        return self.at[point].scores(samples)

    def _set(self) -> bool:
        """Write the wave into the store; False if there is none."""
        for point, each in enumerate(self.at):
            if each.pending is not None:
                batch = each.pending.batch
                stages = np.full(len(batch.scores), batch.stage, dtype=np.int8)
                self.store.write_plan_of(point, each.pending.first, stages, batch.log_weight)
        wanted = np.array([each.runs for each in self.at])
        self.store.set_wanted(wanted)
        self.store.record_plan(self._report(wanted))
        return any(each.pending is not None for each in self.at)

    def _report(self, wanted: np.ndarray) -> dict[str, Any]:
        """Runs so far, and what plain Monte Carlo takes for the same standard errors."""
        found = [each.estimate for each in self.at if each.estimate is not None]
        plain = [_plain_runs(each) for each in found]
        return {
            "complete": len(found) == len(self.at),
            "runs": int(wanted.sum()),
            "uniform_runs": int(sum(plain)),
            "points": len(self.at),
            "converged": sum(each.converged for each in found),
        }


def _plain_runs(estimate: Estimate) -> float:
    """Samples with which plain Monte Carlo has the estimate's standard error: p (1 - p) / s^2."""
    p, s = estimate.probability, estimate.standard_error
    return p * (1 - p) / (s * s) if 0 < p < 1 and s > 0 else 0.0
