"""Estimates of exactly solvable limit states, and what a method owes its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from nandcosim.sweep.rare.contract import Batch, Estimate, Method, Outcomes, Settings, Stage
from nandcosim.sweep.rare.importance import importance
from nandcosim.sweep.rare.interval import log_normal_interval
from nandcosim.sweep.rare.search import RADIUS
from nandcosim.sweep.rare.study import (
    LimitState,
    corner,
    hyperplane,
    opposite,
    paraboloid,
    run,
    sphere,
    spread,
)
from nandcosim.sweep.rare.subset import subset

SETTINGS = Settings(precision=0.1, max_runs=5000)
METHODS = [importance, subset]
MethodOf = Callable[[int, np.random.Generator, Settings], Method]


def estimate(
    method: MethodOf,
    state: LimitState,
    tell: Callable[[Batch], Outcomes] | None = None,
    settings: Settings = SETTINGS,
    seed: int = 3,
) -> Estimate:
    generator = np.random.default_rng(seed)
    return run(method(state.dimensions, generator, settings), tell or state.outcomes)


SOLVABLE = [
    *(hyperplane(p, d) for p in (1e-3, 1e-7, 1e-9) for d in (1, 3, 131)),
    spread(1e-7, 131),
    *(opposite(1e-7, d) for d in (1, 3, 131)),
    *(corner(1e-7, d) for d in (2, 131)),
    paraboloid(4.0, 0.1, 3),
    paraboloid(4.0, 0.02, 131),
]


@pytest.mark.parametrize(
    "state", SOLVABLE, ids=lambda s: f"{s.name} {s.probability:.0e} {s.dimensions}"
)
def test_importance_sampling_is_exact(state: LimitState) -> None:
    found = estimate(importance, state)
    assert found.converged, found.note
    assert found.standard_error <= SETTINGS.precision * found.probability
    assert found.probability == pytest.approx(state.probability, rel=3 * SETTINGS.precision)
    assert found.low < found.probability < found.high
    assert found.runs <= SETTINGS.max_runs
    assert found.effective_samples > 70
    assert np.linalg.norm(found.centres, axis=1).min() == pytest.approx(found.beta)


@pytest.mark.parametrize(
    "state",
    [*SOLVABLE, sphere(1e-6, 3), sphere(1e-6, 131)],
    ids=lambda s: f"{s.name} {s.probability:.0e} {s.dimensions}",
)
def test_subset_simulation_is_near(state: LimitState) -> None:
    found = estimate(subset, state, settings=Settings(precision=0.25, max_runs=30_000))
    relative = found.standard_error / found.probability
    assert relative < 0.4
    assert abs(np.log(found.probability / state.probability)) < 3 * relative
    assert ndtr(-found.beta) == pytest.approx(found.probability)


@pytest.mark.parametrize("method", METHODS)
def test_same_outcomes_same_batches(method: MethodOf) -> None:
    state = corner(1e-6, 20)
    stored: list[tuple[Batch, Outcomes]] = []

    def simulate(batch: Batch) -> Outcomes:
        stored.append((batch, state.outcomes(batch)))
        return stored[-1][1]

    first = estimate(method, state, simulate)
    old = iter(stored)

    def replay(batch: Batch) -> Outcomes:
        before, outcomes = next(old)
        np.testing.assert_array_equal(batch.scores, before.scores)
        np.testing.assert_array_equal(batch.log_weight, before.log_weight)
        assert batch.stage is before.stage
        return outcomes

    second = estimate(method, state, replay)
    np.testing.assert_array_equal(second.centres, first.centres)
    assert replace(second, centres=first.centres) == first
    assert next(old, None) is None
    assert sum(len(batch.scores) for batch, _ in stored) == first.runs


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_runs", [700, 1500])
def test_never_more_runs_than_allowed(method: MethodOf, max_runs: int) -> None:
    asked = 0
    state = hyperplane(1e-8, 131)

    def tell(batch: Batch) -> Outcomes:
        nonlocal asked
        asked += len(batch.scores)
        return state.outcomes(batch)

    found = estimate(method, state, tell, Settings(0.01, max_runs))
    assert found.runs == asked <= max_runs
    assert not found.converged
    assert found.note


def test_weights_are_densities_of_target_over_proposal() -> None:
    state = corner(1e-6, 3)
    nearer = 4.5  # another event, known too: either of two scores beyond it
    exact = 1 - ndtr(nearer) ** 2
    contributions: list[np.ndarray] = []

    def tell(batch: Batch) -> Outcomes:
        if batch.stage is Stage.SAMPLE:
            weights = np.exp(batch.log_weight)
            contributions.append(weights * (batch.scores[:, :2].max(axis=1) >= nearer))
        return state.outcomes(batch)

    estimate(importance, state, tell, Settings(0.03, 20_000))
    found = np.concatenate(contributions)
    error = found.std() / np.sqrt(len(found))
    assert error < 0.1 * exact
    assert abs(found.mean() - exact) < 3 * error


@pytest.mark.parametrize("method", METHODS)
def test_unknown_outcomes_widen_the_interval(method: MethodOf) -> None:
    state = hyperplane(1e-5, 3)
    lost = np.random.default_rng(8)

    def tell(batch: Batch) -> Outcomes:
        outcomes = state.outcomes(batch)
        unknown = lost.random(len(batch.scores)) < 0.2
        return Outcomes(outcomes.failed & ~unknown, outcomes.guide, ~unknown)

    sure, unsure = estimate(method, state), estimate(method, state, tell)
    assert unsure.high / unsure.low > 1.2 * sure.high / sure.low
    assert unsure.low < state.probability < unsure.high
    assert "could not be simulated" in unsure.note


def test_what_an_unknown_run_is_called_does_not_matter() -> None:
    state = hyperplane(1e-5, 3)

    def telling(failed: bool) -> Callable[[Batch], Outcomes]:
        def tell(batch: Batch) -> Outcomes:
            outcomes = state.outcomes(batch)
            unknown = batch.scores[:, 2] > 1
            return Outcomes(np.where(unknown, failed, outcomes.failed), outcomes.guide, ~unknown)

        return tell

    for method in METHODS:
        one, other = (estimate(method, state, telling(failed)) for failed in (False, True))
        assert one.probability == other.probability
        assert (one.low, one.high) == (other.low, other.high)


def test_an_event_never_found_gives_a_bound_and_says_so() -> None:
    state = LimitState("never", 5, 0.0, lambda z: 40.0 - z[:, 0])
    found = estimate(importance, state)
    assert np.isnan(found.probability)
    assert (found.low, found.high) == (0.0, ndtr(-RADIUS))
    assert not found.converged
    assert "no failure found within 9 sigma" in found.note


def test_a_sphere_in_many_dimensions_is_left_to_subset_simulation() -> None:
    found = estimate(importance, sphere(1e-6, 131))
    assert np.isnan(found.probability)
    assert (found.low, found.high) == (0.0, 1.0)
    assert not found.converged
    assert "use subset simulation" in found.note


def test_a_sphere_in_three_dimensions_is_not_called_converged() -> None:
    found = estimate(importance, sphere(1e-6, 3))
    assert not found.converged
    assert "no centre covers" in found.note


def test_a_frequent_event_is_counted() -> None:
    state = LimitState("frequent", 3, float(ndtr(0.5)), lambda z: z[:, 0] - 0.5)
    found = estimate(importance, state)
    assert found.converged
    assert found.beta == 0
    assert abs(found.probability - state.probability) < 3 * found.standard_error
    assert "plain Monte Carlo" in found.note


def test_subset_simulation_says_when_the_guide_is_flat() -> None:
    state = hyperplane(1e-6, 10)

    def tell(batch: Batch) -> Outcomes:
        failed = state.outcomes(batch).failed
        return Outcomes(failed, np.where(failed, -0.5, 0.5), np.ones(len(failed), bool))

    found = estimate(subset, state, tell)
    assert not found.converged
    assert found.low == 0
    assert "does not rank" in found.note


def test_subset_simulation_out_of_runs_gives_an_upper_bound() -> None:
    state = hyperplane(1e-9, 10)
    found = estimate(subset, state, settings=Settings(0.3, 1000))
    assert not found.converged
    assert found.low == 0
    assert np.isnan(found.probability)
    assert state.probability < found.high < 1
    assert "upper limit only" in found.note


def test_log_normal_interval() -> None:
    low, high = log_normal_interval(1e-6, 0.1)
    assert low * high == pytest.approx(1e-12)
    assert high / 1e-6 == pytest.approx(np.exp(1.959964 * np.sqrt(np.log(1.01))))
    assert log_normal_interval(0.0, np.inf) == (0.0, 1.0)
    wide = log_normal_interval(1e-6, 0.1, families=5)
    assert wide[0] < low
    assert wide[1] > high
