"""What stopping at a precision does to the intervals, and noise to refined axes. Seeds are fixed.

Every grid point of the sweeps below is one repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from adaptive_specs import sweep

from nandcosim.intervals import mean_and_error, student_half_width, wilson
from nandcosim.sweep.adaptive import next_wanted, start

REPEATS = 4000

#: What stopping may take from the coverage of 95 %.
LOST = 0.01

#: What it may take from a proportion, in half-widths: few ones stop a point sooner.
LEAN = 0.15

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def allowance(confidence: float = 0.95) -> float:
    """Four standard errors of a counted coverage."""
    return 4 * float(np.sqrt(confidence * (1 - confidence) / REPEATS))


def stopped(values: np.ndarray, **asked: Any) -> np.ndarray:
    """Samples at which each row of `values` is precise enough."""
    spec = sweep({"repeat": tuple(map(float, range(REPEATS)))}, values.shape[1], **asked)
    status = np.zeros(values.shape, np.int8)
    wanted = start(spec)
    while True:
        most = wanted.max()
        wanted, report = next_wanted(spec, wanted, status[:, :most], values[:, :most])
        if report["complete"]:
            assert report["imprecise"] == []
            return wanted


def coverage(values: np.ndarray, counts: np.ndarray, truth: float) -> float:
    """How often the interval of the first samples of a row holds the truth."""
    used = np.arange(values.shape[1]) < counts[:, np.newaxis]
    if np.isin(values, (0.0, 1.0)).all():
        low, high = wilson((values * used).sum(axis=1), counts)
    else:
        mean, error, _ = mean_and_error(values, used)
        half_width = student_half_width(error, counts)
        low, high = mean - half_width, mean + half_width
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.parametrize("begin", [20, 50])
@pytest.mark.parametrize(
    ("p", "half_width"), [(0.03, 0.05), (0.1, 0.05), (0.2, 0.05), (0.5, 0.05), (0.97, 0.02)]
)
def test_intervals_of_proportions_still_cover(p: float, half_width: float, begin: int) -> None:
    bits = (np.random.default_rng(1).random((REPEATS, 800)) < p).astype(float)
    counts = stopped(bits, half_width=half_width, start=begin)
    assert np.unique(counts).size > 1
    assert coverage(bits, counts, p) >= 0.95 - LOST - allowance()
    found = mean_and_error(bits, np.arange(bits.shape[1]) < counts[:, np.newaxis])[0]
    error = found.std(ddof=1) / np.sqrt(REPEATS)
    assert abs(found.mean() - p) <= LEAN * half_width + 4 * error


@pytest.mark.parametrize("begin", [20, 50])
@pytest.mark.parametrize("half_width", [0.3, 0.2, 0.15])
def test_intervals_of_means_still_cover(half_width: float, begin: int) -> None:
    values = np.random.default_rng(2).standard_normal((REPEATS, 400))
    counts = stopped(values, half_width=half_width, start=begin)
    assert np.unique(counts).size > 1
    assert coverage(values, counts, 0.0) >= 0.95 - LOST - allowance()


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng, shape: rng.exponential(size=shape), 1.0),
        (lambda rng, shape: rng.lognormal(sigma=1.0, size=shape), float(np.exp(0.5))),
    ],
    ids=["exponential", "log-normal"],
)
def test_skew_adds_little_to_what_stopping_costs(draw: Draw, truth: float) -> None:
    """A relative precision of a skewed response, against as many samples at every point."""
    values = draw(np.random.default_rng(3), (REPEATS, 4000))
    counts = stopped(values, relative=0.15)
    plain = coverage(values, np.full(REPEATS, round(counts.mean())), truth)
    assert coverage(values, counts, truth) >= plain - 2 * LOST - allowance()


def test_noise_does_not_refine_an_axis() -> None:
    """On a straight line, with no tolerance at all, at most one sweep in twenty is refined."""
    axes = {"x": tuple(float(x) for x in range(17)), "y": (0.0, 1.0)}
    spec = sweep(axes, 50, half_width=1e3, tolerance=1e-9, refine=("x",))
    rng = np.random.default_rng(5)
    line = np.repeat(np.arange(17.0), 2)[:, np.newaxis]
    status = np.zeros((spec.points, 50), np.int8)
    refined = [
        not next_wanted(spec, start(spec), status, line + rng.standard_normal(status.shape))[1][
            "complete"
        ]
        for _ in range(REPEATS // 4)
    ]
    assert np.mean(refined) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / len(refined))
