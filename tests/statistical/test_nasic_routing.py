"""Drawn traces have the distribution they say, and the closed form that of their loads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from nandcosim.systems.nasic.routing import (
    dispatch,
    expected_busiest,
    round_robin,
    statistics,
    uniform_trace,
    zipf_trace,
)

CHANCE = 1e-4  # of a false alarm


@pytest.mark.parametrize("persistence", [0.0, 0.6])
def test_the_expert_drawn_first_is_zipf(persistence: float) -> None:
    """Every 20th token: those are independent, 0.6^20 = 4e-5."""
    trace = zipf_trace(100_000, 1, 12, 3, exponent=1.2, persistence=persistence, seed=5)
    seen = np.bincount(trace.ids[::20, 0, 0], minlength=12)
    chance = np.arange(1, 13) ** -1.2
    assert chisquare(np.sort(seen)[::-1], chance / chance.sum() * seen.sum()).pvalue > CHANCE


@pytest.mark.parametrize("persistence", [0.0, 0.6])
def test_two_experts_a_token_are_drawn_without_replacement(persistence: float) -> None:
    """Pairs of an ordered draw: p_i p_j / (1 - p_i)."""
    trace = zipf_trace(200_000, 1, 5, 2, persistence=persistence, seed=6)
    first, second = trace.ids[::20, 0].T
    p = 1 / np.arange(1, 6)
    p /= p.sum()
    ranked = np.empty(5)
    ranked[np.argsort(-statistics(trace)["load"].values[0])] = p  # ranks are dealt at random
    pairs = ranked[:, None] * ranked / (1 - ranked[:, None])
    off = ~np.eye(5, dtype=bool)
    seen = np.bincount(first * 5 + second, minlength=25).reshape(5, 5)
    assert chisquare(seen[off], pairs[off] * seen.sum()).pvalue > CHANCE


def test_uniform_experts_and_their_persistence() -> None:
    """k - m of E - m are drawn anew, k - m of which were there before."""
    experts, top_k, kept = 10, 4, 0.5
    trace = uniform_trace(50_000, 1, experts, top_k, persistence=kept, seed=7)
    found = statistics(trace)
    m = np.arange(top_k + 1)
    again = m + (top_k - m) ** 2 / (experts - m)
    expected = np.sum(binom.pmf(m, top_k, kept) * again) / top_k
    assert found["overlap"].item() == pytest.approx(expected, abs=0.005)
    seen = np.bincount(trace.ids[::20, 0].ravel(), minlength=experts)
    # Drawn without replacement: the statistic is smaller by (E - k) / (E - 1).
    scale = (experts - 1) / (experts - top_k)
    even = np.full(experts, seen.mean())
    assert chisquare(even + (seen - even) * np.sqrt(scale), even).pvalue > CHANCE


@pytest.mark.parametrize(
    ("experts", "top_k", "planes", "batch"),
    [(8, 2, 4, 1), (64, 8, 8, 1), (64, 8, 16, 8), (8, 2, 8, 8), (60, 4, 7, 16), (16, 1, 4, 5)],
)
def test_closed_form_of_the_busiest_plane(
    experts: int, top_k: int, planes: int, batch: int
) -> None:
    trace = uniform_trace(20_000 * batch, 1, experts, top_k, seed=8)
    plane = round_robin(experts, planes)
    searches = dispatch(trace, plane, batch=batch)["latency"].values
    expected = expected_busiest(np.bincount(plane), top_k, batch)
    error = searches.std() / np.sqrt(searches.size)
    # Of more tokens than one only the variance of loads is matched: 0.2 %.
    allowed = 4 * error + (0.002 * expected if batch > 1 else 0.0)
    assert searches.mean() == pytest.approx(expected, abs=allowed)
