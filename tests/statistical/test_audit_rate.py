"""The stratified rate over many samples of a known population."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.audit.amplifier import Amplifier
from nandcosim.audit.strata import allocate, stratified_rate

#: Share of each stratum and its rate; like an audit: most reads are far and agree.
SHARES = np.array([0.6, 0.25, 0.1, 0.05])
RATES = np.array([0.0, 0.01, 0.04, 0.3])
REPEATS = 2000


def estimate(rng: np.random.Generator, first: int, samples: int):
    drawn = rng.multinomial(first, SHARES)
    uniform = rng.multinomial(samples // 2, SHARES)
    extra = np.concatenate([[0], allocate(drawn[1:], samples - samples // 2)])
    examined = uniform + extra
    return stratified_rate(drawn, rng.binomial(examined, RATES), examined)


@pytest.mark.parametrize(("first", "samples"), [(20_000, 1000), (20_000, 200), (2000, 1000)])
def test_it_is_unbiased_and_its_interval_holds(first, samples) -> None:
    rng = np.random.default_rng(11)
    truth = float(SHARES @ RATES)
    found = [estimate(rng, first, samples) for _ in range(REPEATS)]
    values = np.array([each.value for each in found])
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(REPEATS)
    held = np.mean([each.low <= truth <= each.high for each in found])
    # 95 % within its own sampling error, or more where a stratum shows no event
    assert held > 0.95 - 4 * np.sqrt(0.05 * 0.95 / REPEATS)


def test_mismatch_given_the_noise_is_distributed_as_the_sweeps() -> None:
    """Over normal scores the conditional draws have the covariance of free ones."""
    rng = np.random.default_rng(12)
    deviations = np.array([0.0335, 0.0106, 0.004])
    amplifier = Amplifier(4, 0.1, ("a", "b", "c"), deviations, np.array([-0.9, -1.0, 0.5]))
    count = 200_000
    drawn = amplifier.mismatch(rng.standard_normal(count), rng) / deviations
    covariance = np.cov(drawn.T)
    assert np.abs(drawn.mean(axis=0)).max() < 4 / np.sqrt(count)
    assert np.abs(covariance - np.eye(3)).max() < 4 * np.sqrt(2 / count)
