"""A rate over a population from a sample that is denser where the event is likely.

Double sampling for stratification: a large first sample, drawn as things occur, gives
the weight w_h of every stratum; of it a second, smaller one is examined, n_h of each
stratum with k_h events. The rate sum_h w_h k_h / n_h is unbiased; its variance has a
part of each stratum and one of the weights,

    (1 / n') sum_h w_h (p_h - p)^2,

n' being the size of the first sample (Cochran, Sampling Techniques, 3rd ed., section
12.2). Where events are few a normal interval fails (with k_h = 0 it has no width), so
the strata's Wilson limits l_h, u_h are combined instead: the distance from the rate to
its upper limit is the root of the sum of (w_h (u_h - p_h))^2, likewise below (MOVER:
Zou, Huang and Zhang, Comput. Stat. Data Anal. 53, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.tables.intervals import normal_quantile, wilson

__all__ = ["Estimate", "allocate", "stratified_mean", "stratified_rate"]


@dataclass(frozen=True)
class Estimate:
    """A rate or mean with its 95 % interval."""

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
    events, examined : int array (strata,)
        Events, and samples whose outcome is known.
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
    first, k, n, lost = (
        np.asarray(each, dtype=float)
        for each in np.broadcast_arrays(drawn, events, examined, failed)
    )
    known = (n > 0) & (first > 0)
    if not known.any():
        return Estimate(float("nan"), 0.0, 1.0)
    weight = first / first.sum()
    rate = np.where(known, k / np.maximum(n, 1), 0.0)
    rate[~known] = np.average(rate[known], weights=weight[known])
    value = float(weight @ rate)
    low, high = wilson(k, n, lost)
    between = normal_quantile() ** 2 * float(weight @ (rate - value) ** 2) / first.sum()
    below = np.sqrt(((weight * (rate - low)) ** 2).sum() + between)
    above = np.sqrt(((weight * (high - rate)) ** 2).sum() + between)
    return Estimate(value, max(0.0, value - float(below)), min(1.0, value + float(above)))


def stratified_mean(drawn: ArrayLike, stratum: ArrayLike, values: ArrayLike) -> Estimate:
    """Mean of a quantity over a population, with a normal interval.

    Parameters
    ----------
    drawn : int array (strata,)
        As in `stratified_rate`.
    stratum : int array (n,)
        Of each examined sample.
    values : float array (n,)
        NaN where unknown.
    """
    first = np.asarray(drawn, dtype=float)
    label, x = np.asarray(stratum), np.asarray(values, dtype=float)
    weight = first / first.sum()
    mean, variance = np.zeros(first.size), np.zeros(first.size)
    known = np.zeros(first.size, dtype=bool)
    for h in np.flatnonzero(first):
        here = x[(label == h) & np.isfinite(x)]
        known[h] = here.size > 0
        if here.size:
            mean[h] = here.mean()
        if here.size > 1:
            variance[h] = here.var(ddof=1) / here.size
    if not known.any():
        nan = float("nan")
        return Estimate(nan, nan, nan)
    mean[~known] = np.average(mean[known], weights=weight[known])
    value = float(weight @ mean)
    between = float(weight @ (mean - value) ** 2) / first.sum()
    half = normal_quantile() * float(np.sqrt(weight**2 @ variance + between))
    return Estimate(value, value - half, value + half)


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
