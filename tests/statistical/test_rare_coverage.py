"""Repeated estimates of known probabilities: bias, scatter, coverage, cost. Seeds are fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nandcosim.intervals import CONFIDENCE
from nandcosim.sweep.rare.contract import Estimate, Settings
from nandcosim.sweep.rare.importance import importance
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

REPEATS = 200
GOAL = Settings(precision=0.1, max_runs=5000)
#: Four standard errors of a counted coverage.
ALLOWANCE = 4 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / REPEATS)


def repeat(
    method: Callable, state: LimitState, settings: Settings = GOAL, repeats: int = REPEATS
) -> list[Estimate]:
    return [
        run(method(state.dimensions, np.random.default_rng(seed), settings), state.outcomes)
        for seed in range(repeats)
    ]


def ratios(found: list[Estimate], state: LimitState) -> np.ndarray:
    return np.array([each.probability for each in found]) / state.probability


def coverage(found: list[Estimate], state: LimitState) -> float:
    return float(np.mean([each.low <= state.probability <= each.high for each in found]))


def errors(found: list[Estimate]) -> np.ndarray:
    return np.array([each.standard_error / each.probability for each in found])


def named(state: LimitState) -> str:
    return f"{state.name} {state.probability:.0e} {state.dimensions}"


@pytest.mark.parametrize(
    "state",
    [
        hyperplane(1e-7, 3),
        hyperplane(1e-6, 131),
        spread(1e-9, 30),
        opposite(1e-7, 3),
        corner(1e-6, 20),
        paraboloid(4.0, 0.05, 30),
        paraboloid(4.5, -0.1, 3),
    ],
    ids=named,
)
def test_importance_sampling(state: LimitState) -> None:
    found = repeat(importance, state)
    ratio = ratios(found, state)
    assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(REPEATS))
    assert ratio.std() == pytest.approx(errors(found).mean(), rel=4 / np.sqrt(2 * REPEATS))
    assert coverage(found, state) == pytest.approx(CONFIDENCE, abs=ALLOWANCE)


@pytest.mark.parametrize("state", [p(1e-6, 131) for p in (hyperplane, spread, corner)], ids=named)
def test_ten_per_cent_at_1e_6_within_5000_runs(state: LimitState) -> None:
    for each in repeat(importance, state, repeats=50):
        assert each.converged
        assert each.standard_error <= 0.1 * each.probability
        assert each.runs <= 5000


@pytest.mark.parametrize("state", [sphere(1e-6, 2), sphere(1e-6, 3)], ids=named)
def test_importance_sampling_does_not_vouch_for_a_sphere(state: LimitState) -> None:
    found = repeat(importance, state, repeats=60)
    vouched = [each for each in found if each.converged]
    wrong = [each for each in vouched if not each.low <= state.probability <= each.high]
    assert len(vouched) < 20
    assert len(wrong) <= (1 - CONFIDENCE) * 20


@pytest.mark.parametrize(
    "state",
    [hyperplane(1e-6, 30), opposite(1e-7, 3), corner(1e-6, 10), sphere(1e-6, 30)],
    ids=named,
)
def test_subset_simulation(state: LimitState) -> None:
    found = repeat(subset, state, Settings(precision=0.3, max_runs=20_000))
    ratio = ratios(found, state)
    assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(REPEATS))
    assert ratio.std() == pytest.approx(errors(found).mean(), rel=4 / np.sqrt(2 * REPEATS))
    assert coverage(found, state) == pytest.approx(CONFIDENCE, abs=ALLOWANCE)


@pytest.mark.parametrize("method", [importance, subset])
def test_brute_force_agrees(method: Callable) -> None:
    state = paraboloid(2.8, -0.05, 4)
    runs, failed = 4_000_000, 0
    rng = np.random.default_rng(11)
    for _ in range(20):
        failed += int((state.guide(rng.standard_normal((runs // 20, 4))) <= 0).sum())
    counted = failed / runs
    assert 1e-3 < counted < 1e-2
    assert counted == pytest.approx(state.probability, rel=4 / np.sqrt(failed))
    found = np.array([each.probability for each in repeat(method, state, repeats=100)])
    error = np.hypot(found.std() / np.sqrt(len(found)), counted / np.sqrt(failed))
    assert abs(found.mean() - counted) < 4 * error
