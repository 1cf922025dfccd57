"""Wilson intervals and standard errors against SciPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, sem

from nandcosim.intervals import mean_and_error, normal_quantile, wilson


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(counts: tuple[int, int]) -> None:
    k, n = counts
    expected = binomtest(k, n).proportion_ci(confidence_level=0.95, method="wilson")
    low, high = wilson(k, n)
    assert float(low) == pytest.approx(expected.low, abs=1e-14)
    assert float(high) == pytest.approx(expected.high, abs=1e-14)


def test_wilson_published_example() -> None:
    # R. G. Newcombe, Stat. Med. 17, 857 (1998), Table I, method 3
    cases = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611)}
    for (k, n), expected in cases.items():
        assert np.allclose(wilson(k, n), expected, atol=5e-5)


def test_wilson_without_samples_knows_nothing() -> None:
    low, high = wilson([0, 0], [0, 10])
    assert low.tolist() == [0.0, 0.0]
    assert high[0] == 1.0
    assert high[1] < 1.0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20), st.integers(0, 20))
def test_failed_samples_widen_to_cover_either_outcome(
    passes: int, fails: int, failed: int, would_pass: int
) -> None:
    would_pass = min(would_pass, failed)
    low, high = wilson(passes, passes + fails, failed)
    truth_low, truth_high = wilson(passes + would_pass, passes + fails + failed)
    assert low <= truth_low
    assert high >= truth_high


def test_normal_quantile() -> None:
    assert normal_quantile() == pytest.approx(1.959963984540054)


def test_mean_and_error_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    values = 1e6 + rng.standard_normal((3, 40))
    used = rng.random((3, 40)) < 0.7
    mean, error, deviation = mean_and_error(np.where(used, values, np.nan), used)
    for i in range(3):
        kept = values[i][used[i]]
        assert mean[i] == pytest.approx(kept.mean(), rel=1e-14)
        assert error[i] == pytest.approx(sem(kept), rel=1e-9)
        assert deviation[i] == pytest.approx(kept.std(ddof=1), rel=1e-9)


def test_mean_and_error_of_too_few() -> None:
    values = np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, np.nan]])
    mean, error, _ = mean_and_error(values, np.isfinite(values))
    assert mean[:2].tolist() == [1.5, 3.0]
    assert np.isnan(mean[2])
    assert np.isnan(error).tolist() == [False, True, True]
