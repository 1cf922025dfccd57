"""The fitted decision, against published and independent fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from nandcosim.tables.probit import FitKind, deviance_residuals, fit_probit, pass_model

# C. I. Bliss, Ann. Appl. Biol. 22, 134 (1935): beetles killed by carbon disulphide
DOSE = np.array([1.6907, 1.7242, 1.7552, 1.7842, 1.8113, 1.8369, 1.8610, 1.8839])
EXPOSED = np.array([59, 60, 62, 56, 63, 59, 62, 60])
KILLED = np.array([6, 13, 18, 28, 52, 53, 61, 60])


def test_published_fit_of_the_beetles() -> None:
    # A. J. Dobson, A. G. Barnett, Introduction to Generalized Linear Models, Table 7.4:
    # probit: intercept -34.94, slope 19.73, deviance 10.12 with 6 degrees of freedom
    fit = fit_probit(DOSE, KILLED, EXPOSED)
    assert fit.kind is FitKind.PROBIT
    assert -fit.location / fit.spread == pytest.approx(-34.94, abs=0.005)
    assert 1 / fit.spread == pytest.approx(19.73, abs=0.005)
    assert np.sum(deviance_residuals(KILLED, EXPOSED, fit.fitted) ** 2) == pytest.approx(
        10.12, abs=0.005
    )
    # standard error of the slope 1.48; that of the spread is it over the slope squared
    assert fit.spread_se / fit.spread**2 == pytest.approx(1.48, abs=0.01)


def test_agrees_with_a_general_optimiser() -> None:
    margin = np.linspace(-1, 1, 9)
    n = np.full(9, 50)
    passes = np.random.default_rng(2).binomial(n, norm.cdf((margin - 0.13) / 0.4))

    def minus_log_likelihood(parameters: np.ndarray) -> float:
        z = (margin - parameters[0]) / np.exp(parameters[1])
        return -float(np.sum(passes * norm.logcdf(z) + (n - passes) * norm.logsf(z)))

    start = [0.0, np.log(0.5)]
    best = minimize(
        minus_log_likelihood, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}
    )
    fit = fit_probit(margin, passes, n)
    assert fit.location == pytest.approx(best.x[0], abs=1e-6)
    assert fit.spread == pytest.approx(np.exp(best.x[1]), rel=1e-6)


@given(shift=st.floats(-100, 100), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_moves_and_scales_with_the_margin(shift: float, scale: float, seed: int) -> None:
    margin = np.linspace(-1, 1, 7)
    passes = np.random.default_rng(seed).binomial(40, norm.cdf(margin / 0.5))
    plain = fit_probit(margin, passes, np.full(7, 40))
    moved = fit_probit(shift + scale * margin, passes, np.full(7, 40))
    assert moved.kind is plain.kind
    assert moved.location == pytest.approx(shift + scale * plain.location, abs=1e-5 * scale)
    assert moved.spread == pytest.approx(scale * plain.spread, rel=1e-5)
    assert moved.location_se == pytest.approx(scale * plain.location_se, rel=1e-5)


def test_separated_outcomes_are_bracketed() -> None:
    fit = fit_probit([-1, -0.5, 0, 0.5, 1], [0, 0, 0, 200, 200], [200] * 5)
    assert fit.kind is FitKind.SEPARATED
    assert (fit.location, fit.location_low, fit.location_high) == (0.25, 0.0, 0.5)
    assert (fit.spread, fit.spread_low) == (0.0, 0.0)
    assert np.isnan(fit.spread_se)
    assert fit.fitted.tolist() == [0, 0, 0, 1, 1]
    # The limit by hand: at the middle, 200 fails below and 200 passes above have a
    # log-likelihood of 400 ln Phi(0.25 / s), and twice the loss is the 95 % point of
    # chi-square with one degree of freedom.
    limit = 0.25 / norm.ppf(np.exp(-(1.959963984540054**2) / 2 / 400))
    assert fit.spread_high == pytest.approx(limit, rel=1e-4)


def test_more_samples_narrow_the_limit_of_a_separated_spread() -> None:
    limits = [
        fit_probit([-1, 0, 1, 2], [0, 0, n, n], [n] * 4).spread_high for n in (2, 20, 200, 2000)
    ]
    assert limits == sorted(limits, reverse=True)


@pytest.mark.parametrize("passes", [1, 60, 100, 199])
def test_one_mixed_margin_is_fitted_exactly(passes: int) -> None:
    fit = fit_probit([-1, 0, 1], [0, passes, 200], [200] * 3)
    assert fit.kind is FitKind.SEPARATED
    assert fit.fitted == pytest.approx([0, passes / 200, 1], abs=1e-3)
    assert fit.location_low <= fit.location <= fit.location_high
    assert 0 < fit.spread < fit.spread_high < 1
    assert np.sign(-fit.location) == np.sign(passes - 100)


@pytest.mark.parametrize(
    ("passes", "low", "high"), [([9, 9, 9], -np.inf, -1.0), ([0, 0, 0], 1.0, np.inf)]
)
def test_one_sided_outcomes_bound_the_location(passes: list[int], low: float, high: float) -> None:
    fit = fit_probit([-1, 0, 1], passes, [9] * 3)
    assert fit.kind is FitKind.ONE_SIDED
    assert np.isnan(fit.location)
    assert (fit.location_low, fit.location_high) == (low, high)


@pytest.mark.parametrize("passes", [[30, 20, 10], [40, 40, 0], [40, 20, 0]])
def test_falling_outcomes_are_not_fitted(passes: list[int]) -> None:
    fit = fit_probit([-1, 0, 1], passes, [40] * 3)
    assert fit.kind is FitKind.NOT_INCREASING
    assert np.isnan(fit.location)


def test_margins_without_samples_are_left_out() -> None:
    with_gap = fit_probit([-1, -0.3, 0, 0.5, 1], [1, 0, 20, 30, 39], [40, 0, 40, 40, 40])
    without = fit_probit([-1, 0, 0.5, 1], [1, 20, 30, 39], [40] * 4)
    assert with_gap.location == pytest.approx(without.location, abs=1e-9)
    assert with_gap.spread_se == pytest.approx(without.spread_se, rel=1e-6)
    assert fit_probit([0, 1], [0, 3], [0, 5]).kind is FitKind.NO_DATA


def test_wrong_model_is_noticed() -> None:
    # 2 % of the strings conduct whatever the margin
    margin = np.linspace(-2, 2, 17)
    n = np.full(17, 1000)
    right = np.round(1000 * norm.cdf(margin / 0.7))
    wrong = np.round(1000 * (0.02 + 0.98 * norm.cdf(margin / 0.7)))
    assert fit_probit(margin, right, n).p_value > 0.999
    assert fit_probit(margin, wrong, n).p_value < 1e-6


def test_shared_random_numbers_get_their_own_error() -> None:
    # Sample k has one trip point for all the margins, so with a fine axis the location is
    # the mean of those trip points: its error is spread / sqrt(samples), which is larger
    # than independent outcomes at every margin would give.
    samples, spread = 400, 0.3
    margin = np.linspace(-1.5, 1.5, 61)
    trip = np.random.default_rng(8).normal(0.05, spread, samples)
    outcomes = (margin[:, None] > trip).astype(int)
    passes, n = outcomes.sum(axis=1), np.full(margin.size, samples)
    clustered = fit_probit(margin, passes, n, outcomes)
    independent = fit_probit(margin, passes, n)
    assert clustered.location == independent.location
    assert clustered.location_se == pytest.approx(trip.std(ddof=1) / samples**0.5, rel=0.05)
    assert clustered.location_se > 2 * independent.location_se
    assert np.isnan(clustered.p_value)


def test_deviance_residuals_are_defined_in_the_tails() -> None:
    residuals = deviance_residuals([0, 5, 10, 0], [10, 10, 10, 0], [0.0, 0.5, 1.0, 0.5])
    assert residuals[:3].tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(residuals[3])
    assert deviance_residuals(1, 10, 0.0) == np.inf


def test_pass_model_of_a_sharp_decision_is_a_step() -> None:
    assert pass_model([-1, 0, 1], 0.0, 0.0).tolist() == [0.0, 0.5, 1.0]
    assert pass_model([[0.0], [1.0]], [0.0, 1.0], 1.0) == pytest.approx(norm.cdf([[0, -1], [1, 0]]))
    assert np.isnan(pass_model(0.0, np.nan, 0.0))
