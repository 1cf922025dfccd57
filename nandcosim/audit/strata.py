"""A rate over a population from a sample that is denser where the event is likely.

Double sampling for stratification: a large first sample, drawn as things occur, gives
the weight w_h of every stratum; of it a second, smaller one is examined, n_h of each
stratum with k_h events. The rate sum_h w_h k_h / n_h is unbiased; its variance has a
part of each stratum and one of the weights,

    (1 / n') sum_h w_h (p_h - p)^2,

n' being the size of the first sample (Cochran, Sampling Techniques, 3rd ed., section
12.2). Where events are few a normal interval fails (with k_h = 0 it has no width), so
the strata's exact limits l_h, u_h (Clopper and Pearson, Biometrika 26, 1934) are combined
instead: the distance from the rate to its upper limit is the root of the sum of
(w_h (u_h - p_h))^2, likewise below (MOVER: Zou, Huang and Zhang, Comput. Stat. Data
Anal. 53, 2009). Wilson's limits are too near in strata of one or two samples. A stratum
without samples may hold anything: its distances are not sampling errors, and are added.

Probabilities take the place of events in the same way: a quantity between 0 and 1 of
mean p varies by p (1 - p) at most, as an event does. The spread within the sample would
not do: in strata of few samples, all of them alike, it is nothing, whatever the samples
not taken are like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from nandcosim.intervals import CONFIDENCE, normal_quantile

__all__ = [
    "Estimate",
    "allocate",
    "draw_rows",
    "largest_first",
    "stratified_difference",
    "stratified_mean",
    "stratified_rate",
]


@dataclass(frozen=True)
class Estimate:
    """A rate, mean or difference with its 95 % interval; NaN limits: no interval."""

    value: float
    low: float
    high: float


def stratified_rate(
    drawn: ArrayLike, events: ArrayLike, examined: ArrayLike, failed: ArrayLike = 0
) -> Estimate:
    """Rate of an event over a population.

    Parameters
    ----------
    drawn : int array (strata,)
        How often the first sample fell into each stratum.
    events : float array (strata,)
        Events, or the sum of their probabilities.
    examined : int array (strata,)
        Samples whose outcome is known.
    failed : int array (strata,)
        Further samples, whose outcome is unknown: the lower limit takes them as no
        event, the upper one as an event.

    Returns
    -------
    Estimate
        NaN, 0 and 1 where nothing is known of any stratum that occurs. A stratum of which
        nothing is known takes part in the limits with 0 and 1, and in the value with the
        rate of the others.
    """
    parts = _rates(drawn, events, examined, failed)
    return _combined(drawn, parts, (0.0, 1.0))


def stratified_mean(
    drawn: ArrayLike, stratum: ArrayLike, values: ArrayLike, bound: float = 1.0
) -> Estimate:
    """Mean over a population of a quantity between 0 and `bound`.

    Parameters
    ----------
    drawn : int array (strata,)
        As in `stratified_rate`.
    stratum : int array (n,)
        Of each examined sample.
    values : float array (n,)
        NaN where unknown.
    bound : float
    """
    found = stratified_rate(drawn, *_sums(drawn, stratum, np.asarray(values, dtype=float) / bound))
    return Estimate(bound * found.value, bound * found.low, bound * found.high)


def stratified_difference(
    drawn: ArrayLike, stratum: ArrayLike, more: ArrayLike, less: ArrayLike
) -> Estimate:
    """How much more often one of two events occurs that exclude each other.

    The limits of a stratum's two rates are combined as those of paired proportions
    (Newcombe, Stat. Med. 17, 2635, 1998, method 10), with the correlation
    -sqrt(a b / ((1 - a) (1 - b))) of rates a and b that exclude each other.

    Parameters
    ----------
    drawn, stratum
        As in `stratified_mean`.
    more, less : float array (n,)
        Probability of each event, one of the two 0 in every sample; NaN where unknown.
    """
    a, b = (_rates(drawn, *_sums(drawn, stratum, each)) for each in (more, less))
    room = (1 - a.rate) * (1 - b.rate)
    together = np.sqrt(a.rate * b.rate / np.where(room > 0, room, 1.0)) * (room > 0)

    def distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sqrt(first**2 + 2 * together * first * second + second**2)

    value = a.rate - b.rate
    low = value - distance(a.rate - a.low, b.high - b.rate)
    high = value + distance(a.high - a.rate, b.rate - b.low)
    return _combined(drawn, _Rates(a.known, value, low, high), (-1.0, 1.0))


@dataclass(frozen=True, eq=False)
class _Rates:
    """Value and limits of every stratum."""

    known: NDArray[np.bool_]
    rate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def _rates(drawn: ArrayLike, events: ArrayLike, examined: ArrayLike, failed: ArrayLike) -> _Rates:
    """Exact limits of every stratum; one that is not known has the others' rate."""
    first, k, n, lost = (
        np.asarray(each, dtype=float)
        for each in np.broadcast_arrays(drawn, events, examined, failed)
    )
    known = (n > 0) & (first > 0)
    rate = np.where(known, k / np.maximum(n, 1), 0.0)
    if known.any():
        rate[~known] = np.average(rate[known], weights=first[known])
    tail, smallest = (1 - CONFIDENCE) / 2, 1e-9  # of a shape parameter, which is positive
    total, most = n + lost, k + lost
    low = betaincinv(np.maximum(k, smallest), total - k + 1, tail)
    high = betaincinv(most + 1, np.maximum(total - most, smallest), 1 - tail)
    low, high = np.where(k > 0, low, 0.0), np.where(most < total, high, 1.0)
    return _Rates(known, rate, low, high)


def _sums(
    drawn: ArrayLike, stratum: ArrayLike, values: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Sum of the values, and samples that are known and unknown, of every stratum."""
    label, x = np.asarray(stratum), np.asarray(values, dtype=float)
    strata = np.asarray(drawn).size
    known = np.isfinite(x)
    total = np.bincount(label[known], weights=x[known], minlength=strata)
    examined = np.bincount(label[known], minlength=strata).astype(np.int64)
    failed = np.bincount(label[~known], minlength=strata).astype(np.int64)
    return total.astype(np.float64), examined, failed


def _combined(drawn: ArrayLike, parts: _Rates, allowed: tuple[float, float]) -> Estimate:
    """Over all strata, by their weights; limits no farther than what is possible."""
    if not parts.known.any():
        return Estimate(float("nan"), *allowed)
    first = np.asarray(drawn, dtype=float)
    weight = first / first.sum()
    value = float(weight @ parts.rate)
    between = normal_quantile() ** 2 * float(weight @ (parts.rate - value) ** 2) / first.sum()
    least, most = allowed
    below = _distance(weight * (parts.rate - parts.low), parts.known, between)
    above = _distance(weight * (parts.high - parts.rate), parts.known, between)
    return Estimate(value, max(least, value - below), min(most, value + above))


def _distance(distances: NDArray[np.float64], known: NDArray[np.bool_], between: float) -> float:
    """From an estimate to its limit: errors of sampling combine as roots, ignorance adds."""
    return float(np.sqrt((distances[known] ** 2).sum() + between) + distances[~known].sum())


def allocate(available: ArrayLike, wanted: int) -> NDArray[np.int64]:
    """Share `wanted` samples over strata as the roots of their sizes.

    Between equal shares, which serve each stratum, and proportional ones, which serve the
    whole (power allocation: Bankier, Am. Stat. 42, 1988). What a small stratum cannot
    take goes to the others.

    Parameters
    ----------
    available : int array (strata,)
    wanted : int

    Returns
    -------
    int64 array (strata,)
        Sums to `wanted`, or to all that is available.
    """
    room = np.asarray(available, dtype=np.int64)
    size = np.sqrt(room)
    given = np.zeros_like(room)
    left = min(wanted, int(room.sum()))
    while left:
        unfilled = np.flatnonzero(given < room)
        shares = left * size[unfilled] / size[unfilled].sum()
        for h, share in zip(unfilled, shares, strict=True):
            step = min(max(1, int(share)), int(room[h] - given[h]), left)
            given[h] += step
            left -= step
    return given


def largest_first(
    stratum: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Strata of a first sample, by size, so that few samples go to the largest ones first.

    Returns
    -------
    tuple of int64 arrays
        Labels, the first row of each, and rows in each.
    """
    present, start, size = np.unique(stratum, return_index=True, return_counts=True)
    order = np.argsort(-size)
    return present[order], start[order], size[order]


def draw_rows(
    stratum: NDArray[np.int64],
    present: NDArray[np.int64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """So many rows of each of the strata `present`, without repeats."""
    drawn = [
        rng.choice(np.flatnonzero(stratum == h), size=count, replace=False)
        for h, count in zip(present, counts, strict=True)
    ]
    return np.concatenate(drawn)
