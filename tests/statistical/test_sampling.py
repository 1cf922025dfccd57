"""What is drawn has the distribution that was asked for.

Seeds are fixed, so each test is one decided fact. Limits are quantiles of the
statistic's own sampling distribution (five standard errors, or a p-value of 1e-6),
not tolerances found by trial.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nandcosim.sweep import SweepSpec, draw, load_circuit, parse_spec
from nandcosim.sweep.sampling import normal_scores

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

CIRCUIT = "circuits_for_tests:RCDischarge"
N = 4000
SAMPLERS = ["monte-carlo", "latin-hypercube", "sobol"]


def spec_of(*random: dict[str, Any], samples: int = N, **more: Any) -> SweepSpec:
    parameters = more.pop("parameters", {"stages": 4})
    document = {
        "circuit": CIRCUIT,
        "samples": samples,
        "seed": 7,
        "parameters": parameters,
        "random": list(random),
        **more,
    }
    return parse_spec(document)


def excess(spec: SweepSpec, point: int = 0) -> np.ndarray:
    """Drawn values of the knob, shape (samples, cells)."""
    circuit = load_circuit(CIRCUIT)
    return np.array([draw(spec, circuit, point, k)[1]["excess"] for k in range(spec.samples)])


def normal(**more: Any) -> dict[str, Any]:
    return {"target": "excess", "distribution": "normal", "mean": 0.0, "std": 1.0, **more}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_moments_of_independent_normals(sampler: str) -> None:
    values = excess(spec_of(normal(mean=0.3, std=0.2), sampler=sampler))
    # Standard errors for independent draws; stratified ones are nearer.
    assert np.abs(values.mean(axis=0) - 0.3).max() < 5 * 0.2 / np.sqrt(N)
    assert np.abs(values.std(axis=0) - 0.2).max() < 5 * 0.2 / np.sqrt(2 * N)
    correlation = np.corrcoef(values.T) - np.eye(4)
    assert np.abs(correlation).max() < 5 / np.sqrt(N)


MARGINALS = {
    "normal": ({"mean": 1.0, "std": 2.0}, stats.norm(1.0, 2.0)),
    "lognormal": ({"median": 2.0, "log_std": 0.5}, stats.lognorm(0.5, scale=2.0)),
    "uniform": ({"low": -1.0, "high": 3.0}, stats.uniform(-1.0, 4.0)),
    "truncated-normal": (
        {"mean": 0.0, "std": 1.0, "low": -0.5, "high": 2.0},
        stats.truncnorm(-0.5, 2.0),
    ),
    # Where Phi rounds to 1, a careless inverse gives only a handful of distinct values.
    "truncated-normal far out": (
        {"mean": 0.0, "std": 1.0, "low": 8.0, "high": 9.0},
        stats.truncnorm(8.0, 9.0),
    ),
    "student-t": ({"mean": 1.0, "scale": 0.5, "df": 3.0}, stats.t(3.0, 1.0, 0.5)),
}


@pytest.mark.parametrize("name", MARGINALS)
def test_marginal_is_the_one_asked_for(name: str) -> None:
    parameters, expected = MARGINALS[name]
    distribution = name.split(maxsplit=1)[0]
    entry = {"target": "excess", "distribution": distribution, **parameters, "correlation": 0.5}
    values = excess(spec_of(entry))
    for cell in range(4):
        assert stats.kstest(values[:, cell], expected.cdf).pvalue > 1e-6


def correlation_error(rho: float) -> float:
    """Five standard errors of a sample correlation (Fisher's z, scaled back)."""
    return 5 * (1 - rho**2) / np.sqrt(N - 3) + 1e-12


@pytest.mark.parametrize("rho", [-1 / 3, -0.2, 0.0, 0.4, 0.9, 1.0])
def test_equal_correlation_between_cells(rho: float) -> None:
    values = excess(spec_of(normal(correlation=rho)))
    correlation = np.corrcoef(values.T)[np.triu_indices(4, 1)]
    assert np.abs(correlation - rho).max() < correlation_error(rho)
    assert np.abs(values.std(axis=0) - 1.0).max() < 5 / np.sqrt(2 * N)


def test_correlation_at_its_lowest_makes_the_sum_constant() -> None:
    values = excess(spec_of(normal(correlation=-1 / 3), samples=50))
    assert values.sum(axis=1) == pytest.approx(np.zeros(50), abs=1e-7)


def test_correlation_falls_off_along_the_string() -> None:
    values = excess(spec_of(normal(correlation_length=2.0, cells=[3, 0, 1])))
    assert (values[:, 2] == 0).all()
    correlation = np.corrcoef(values[:, [0, 1, 3]].T)
    for (i, a), (j, b) in [((0, 0), (1, 1)), ((0, 0), (2, 3)), ((1, 1), (2, 3))]:
        expected = np.exp(-abs(a - b) / 2.0)
        assert abs(correlation[i, j] - expected) < correlation_error(expected)


def test_gaussian_copula_keeps_rank_correlation() -> None:
    entry = {"target": "excess", "distribution": "lognormal", "median": 1.0, "log_std": 1.0}
    values = excess(spec_of({**entry, "correlation": 0.6}))
    expected = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's rho of a normal copula
    found = stats.spearmanr(values).statistic[np.triu_indices(4, 1)]
    assert np.abs(found - expected).max() < 5 / np.sqrt(N)


def test_local_and_global_parts_add_up() -> None:
    values = excess(spec_of(normal(std=0.3), normal(std=0.4, shared=True)))
    assert np.abs(values.std(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(2 * N)
    expected = 0.4**2 / 0.5**2
    correlation = np.corrcoef(values.T)[np.triu_indices(4, 1)]
    assert np.abs(correlation - expected).max() < correlation_error(expected)


def test_shared_draw_is_the_same_in_its_cells_only() -> None:
    values = excess(spec_of(normal(shared=True, cells=[1, 3]), samples=20))
    assert (values[:, 1] == values[:, 3]).all()
    assert (values[:, [0, 2]] == 0).all()
    assert len(np.unique(values[:, 1])) == 20


def test_cell_draws_the_same_in_any_group() -> None:
    everywhere = excess(spec_of(normal(), samples=5))
    first = excess(spec_of(normal(cells="first"), samples=5))
    assert (everywhere[:, 0] == first[:, 0]).all()
    assert (first[:, 1:] == 0).all()


def test_latin_hypercube_hits_every_stratum_once() -> None:
    u = stats.norm.cdf(excess(spec_of(normal(), samples=100, sampler="latin-hypercube")))
    for cell in range(4):
        assert sorted(np.floor(u[:, cell] * 100).astype(int)) == list(range(100))


def test_sobol_points_fill_dyadic_boxes_evenly() -> None:
    """Owen scrambling keeps the net property: 64 points, 8 in each quarter-by-half box."""
    u = stats.norm.cdf(excess(spec_of(normal(), samples=64, sampler="sobol")))
    for cell in range(4):
        assert np.bincount(np.floor(u[:, cell] * 64).astype(int)).tolist() == [1] * 64
    boxes = np.floor(u[:, 0] * 4).astype(int) * 2 + np.floor(u[:, 1] * 2).astype(int)
    assert np.bincount(boxes).tolist() == [8] * 8


def test_random_parameter_is_drawn() -> None:
    entry = {"target": "precharge", "distribution": "uniform", "low": "500 mV", "high": 1.5}
    spec = spec_of(entry)
    circuit = load_circuit(CIRCUIT)
    values = np.array([draw(spec, circuit, 0, k)[0].precharge for k in range(N)])
    assert stats.kstest(values, stats.uniform(0.5, 1.0).cdf).pvalue > 1e-6


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_grid_points_are_independent_unless_asked(sampler: str) -> None:
    axes = {"precharge": [1.0, 2.0]}
    apart = spec_of(normal(), samples=50, axes=axes, sampler=sampler)
    assert not np.isin(excess(apart, 0), excess(apart, 1)).any()
    common = spec_of(normal(), samples=50, axes=axes, sampler=sampler, common_random_numbers=True)
    assert (excess(common, 0) == excess(common, 1)).all()


def test_axis_scales_common_draws() -> None:
    spec = spec_of(
        normal(std="sigma"), samples=5, axes={"sigma": [0.0, 0.5, 1.0]}, common_random_numbers=True
    )
    assert (excess(spec, 0) == 0).all()
    assert excess(spec, 1) == pytest.approx(excess(spec, 2) / 2, rel=1e-14)


@settings(max_examples=30, deadline=None)
@given(
    sampler=st.sampled_from(SAMPLERS),
    order=st.permutations([(p, k) for p in range(2) for k in (0, 1, 2, 7, 19)]),
)
def test_sample_does_not_depend_on_what_was_drawn_before(
    sampler: str, order: list[tuple[int, int]]
) -> None:
    axes = {"precharge": [1.0, 2.0]}
    entry = normal(correlation=0.3)
    spec = spec_of(entry, samples=20, axes=axes, sampler=sampler)
    circuit = load_circuit(CIRCUIT)
    expected = {
        p: excess(spec_of(entry, samples=20, axes=axes, sampler=sampler), p) for p in (0, 1)
    }
    for point, k in order:
        assert (draw(spec, circuit, point, k)[1]["excess"] == expected[point][k]).all()


def test_seed_decides() -> None:
    one, two = spec_of(normal(), samples=5), spec_of(normal(), samples=5, seed=8)
    assert not np.isin(excess(one), excess(two)).any()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_scores_are_finite_for_all_samples(sampler: str) -> None:
    spec = spec_of(normal(), samples=256, sampler=sampler)
    scores = np.array([normal_scores(spec, 0, k, 3) for k in range(256)])
    assert np.isfinite(scores).all()
