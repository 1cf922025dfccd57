"""Most probable failure points of limit states whose points are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.sweep.rare.contract import Batch, Outcomes, Stage
from nandcosim.sweep.rare.search import Findings, find_regions
from nandcosim.sweep.rare.study import LimitState, corner, hyperplane, opposite, spread

MAX_RUNS = 2500
#: The boundary is found to 9 / 729 of a ray; a direction off by delta costs delta^2 / (2 beta).
NEAR = 0.1


def search(state: LimitState, tell: Callable[[Batch], Outcomes], seed: int = 1) -> Findings:
    method = find_regions(state.dimensions, np.random.default_rng(seed), MAX_RUNS)
    asked = 0
    batch = next(method)
    while True:
        assert batch.stage is Stage.SEARCH
        assert np.isnan(batch.log_weight).all()
        asked += len(batch.scores)
        try:
            batch = method.send(tell(batch))
        except StopIteration as end:
            findings: Findings = end.value
            break
    assert findings.runs == asked <= MAX_RUNS
    return findings


def solver_noise(scores: np.ndarray) -> np.ndarray:
    """A factor of 1 with a scatter of 1e-3 that is a function of the scores alone."""
    return 1 + 1e-3 * np.sqrt(2) * np.sin(1e4 * scores.sum(axis=1))


GUIDES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "plain": lambda g, z: g,
    "noisy": lambda g, z: g * solver_noise(z),
    "saturating": lambda g, z: np.tanh(g),
    "saturating and noisy": lambda g, z: np.tanh(5 * g) * solver_noise(z),
    "clipped": lambda g, z: np.clip(g, -0.5, 2.0),
    "safe side only": lambda g, z: np.where(g > 0, g, np.nan),
    "failing side only": lambda g, z: np.where(g <= 0, g, np.nan),
    "infinite where safe": lambda g, z: np.where(g > 2, np.inf, g),
}


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("dimensions", [1, 3, 131])
@pytest.mark.parametrize("plane", [hyperplane, spread])
def test_point_of_a_plane(plane: Callable, dimensions: int, guide: str) -> None:
    state = plane(1e-6, dimensions)

    def tell(batch: Batch) -> Outcomes:
        g = state.guide(batch.scores)
        return Outcomes(g <= 0, GUIDES[guide](g, batch.scores), np.ones(len(g), bool))

    findings = search(state, tell)
    (region,) = findings.regions
    assert state.guide(region.centre[np.newaxis])[0] <= 0, "the point is on the failing side"
    beta = -state.guide(np.zeros((1, dimensions)))[0]
    assert region.beta == pytest.approx(abs(beta), abs=NEAR)
    assert np.linalg.norm(region.direction) == pytest.approx(1)
    assert findings.unexplained == 0
    assert not findings.nominal


@pytest.mark.parametrize("dimensions", [3, 131])
def test_opposite_regions(dimensions: int) -> None:
    state = opposite(1e-6, dimensions)
    first, second = search(state, state.outcomes).regions
    assert first.direction @ second.direction == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize("dimensions", [3, 131])
def test_regions_at_right_angles(dimensions: int) -> None:
    state = corner(1e-6, dimensions)
    regions = search(state, state.outcomes).regions
    heads = np.array([region.direction[:2] for region in regions])
    np.testing.assert_allclose(heads[np.argsort(heads[:, 1])], np.eye(2), atol=0.2)


def test_a_region_too_far_to_matter_is_left_out() -> None:
    state = hyperplane(1e-4, 3)  # 3.7 sigma; the opposite side fails at 6

    def tell(batch: Batch) -> Outcomes:
        g = np.minimum(state.guide(batch.scores), 6.0 + batch.scores[:, 0])
        return Outcomes(g <= 0, g, np.ones(len(g), bool))

    (region,) = search(state, tell).regions
    assert region.direction[0] > 0


def test_failures_far_out_along_many_single_scores_raise_no_doubt() -> None:
    state = hyperplane(1e-6, 131)

    def tell(batch: Batch) -> Outcomes:
        g = np.minimum(state.guide(batch.scores), (11.0 - batch.scores[:, 1:]).min(axis=1))
        return Outcomes(g <= 0, g, np.ones(len(g), bool))

    findings = search(state, tell)
    (region,) = findings.regions
    assert region.direction[0] == pytest.approx(1, abs=0.01)
    assert findings.astray > 0
    assert findings.unexplained == 0


def test_failing_simulations_are_no_failures() -> None:
    state = hyperplane(1e-6, 3)

    def tell(batch: Batch) -> Outcomes:
        g = state.guide(batch.scores)
        return Outcomes(np.ones(len(g), bool), g, np.zeros(len(g), bool))

    assert search(state, tell).regions == ()


def test_an_event_at_the_origin_ends_the_search() -> None:
    state = LimitState("frequent", 3, 0.9, lambda z: z[:, 0] - 1.3)
    findings = search(state, state.outcomes)
    assert findings.nominal
    assert findings.regions == ()


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(InputError, match=r"found 100 runs .* allowed with 131 random scores: \d+"):
        next(find_regions(131, np.random.default_rng(1), 100))
