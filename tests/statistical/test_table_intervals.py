"""Coverage: how often the intervals of a table hold the truth. Seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, kstest, norm

from nandcosim.intervals import normal_quantile, wilson
from nandcosim.tables.probit import FitKind, fit_probit

TRUE_LOCATION, TRUE_SPREAD = 0.12, 0.3
MARGIN = np.linspace(-1, 1, 9)
REPEATS = 600
SHARP_REPEATS = 100


def allowance(repeats: int = REPEATS, confidence: float = 0.95) -> float:
    """Four standard errors of a counted coverage."""
    return 4 * float(np.sqrt(confidence * (1 - confidence) / repeats))


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_wilson_covers_on_average(n: int) -> None:
    # Exact, no sampling: coverage at p is the probability of the counts whose interval
    # holds p. It scatters about 95 % (Brown, Cai, DasGupta 2001, figures 5 and 7).
    k = np.arange(n + 1)
    low, high = wilson(k, n)
    p = np.linspace(0.01, 0.99, 197)[:, np.newaxis]
    coverage = (binom.pmf(k, n, p) * ((low <= p) & (p <= high))).sum(axis=1)
    assert coverage.mean() == pytest.approx(0.95, abs=0.01)
    assert coverage.min() > 0.83


def fits(paired: bool, samples: int = 150) -> list:
    rng = np.random.default_rng(20)
    found = []
    for _ in range(REPEATS):
        shape = (1, samples) if paired else (MARGIN.size, samples)
        trips = TRUE_LOCATION + TRUE_SPREAD * rng.standard_normal(shape)
        outcomes = (MARGIN[:, np.newaxis] > trips).astype(np.int8)
        n = np.full(MARGIN.size, samples)
        found.append(fit_probit(MARGIN, outcomes.sum(axis=1), n, outcomes if paired else None))
    assert all(fit.kind is FitKind.PROBIT for fit in found)
    return found


@pytest.mark.parametrize("paired", [False, True], ids=["independent", "common random numbers"])
def test_location_and_spread_intervals_cover(paired: bool) -> None:
    found = fits(paired)
    for truth, name in ((TRUE_LOCATION, "location"), (TRUE_SPREAD, "spread")):
        low = np.array([getattr(fit, f"{name}_low") for fit in found])
        high = np.array([getattr(fit, f"{name}_high") for fit in found])
        covered = ((low <= truth) & (truth <= high)).mean()
        assert covered == pytest.approx(0.95, abs=allowance())
        values = np.array([getattr(fit, name) for fit in found])
        errors = np.array([getattr(fit, f"{name}_se") for fit in found])
        # the scatter of the estimates is what their standard errors say
        assert values.std(ddof=1) == pytest.approx(errors.mean(), rel=4 / np.sqrt(2 * REPEATS))


def test_p_value_is_uniform_if_the_model_holds() -> None:
    p_values = np.array([fit.p_value for fit in fits(paired=False, samples=400)])
    assert np.isfinite(p_values).all()
    assert kstest(p_values, "uniform").pvalue > 1e-3


def test_separated_bracket_covers() -> None:
    # a decision much sharper than the axis
    rng = np.random.default_rng(4)
    covered, limited = 0, 0
    for _ in range(SHARP_REPEATS):
        location = rng.uniform(-0.5, 0.5)
        p = norm.cdf((MARGIN - location) / 0.02)
        fit = fit_probit(MARGIN, rng.binomial(50, p), np.full(MARGIN.size, 50))
        if fit.kind is FitKind.SEPARATED:
            covered += fit.location_low <= location <= fit.location_high
            limited += fit.spread_high >= 0.02
        else:
            z = normal_quantile()
            covered += abs(fit.location - location) <= z * fit.location_se
            limited += fit.spread_high >= 0.02
    assert covered >= (0.95 - allowance(SHARP_REPEATS)) * SHARP_REPEATS
    assert limited >= (0.95 - allowance(SHARP_REPEATS)) * SHARP_REPEATS
