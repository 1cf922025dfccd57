"""The decision of a comparator with normal noise, fitted to counted outcomes.

    P(pass | margin) = Phi((margin - location) / spread)

Maximum likelihood in the form Phi(a + b margin), where the log-likelihood is concave,
by Fisher scoring (McCullagh and Nelder, Generalized Linear Models, 2nd ed., section
4.4); location = -a / b and spread = 1 / b get their errors by the delta method.

Where the outcomes are separated (all fail below some margin and all pass above) the
likelihood has no maximum: it keeps rising as the spread goes to 0. Then the spread is
reported as 0 with the upper limit of its profile likelihood, and the location as the
middle of the bracket it lies in. If exactly one margin has both outcomes, any spread up
to that limit fits equally well, and half the limit is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri, xlogy
from scipy.stats import chi2

from nandcosim.errors import NandcosimError
from nandcosim.intervals import CONFIDENCE, normal_quantile

__all__ = ["FitKind", "ProbitFit", "deviance_residuals", "fit_probit", "pass_model"]

Floats = NDArray[np.float64]

#: Expected passes, and expected fails, that a margin must have in the chi-square test;
#: rarer ones are pooled with their neighbours (W. G. Cochran, Biometrics 10, 417, 1954).
MIN_EXPECTED = 5.0


class FitKind(IntEnum):
    """What the outcomes along the margin axis allowed."""

    PROBIT = 0
    """Maximum likelihood with standard errors."""
    SEPARATED = 1
    """Fails below, passes above, at most one margin with both: bracket and upper limit."""
    ONE_SIDED = 2
    """Every sample passes, or every sample fails: the location is off the axis."""
    NOT_INCREASING = 3
    """Passes do not become more frequent with margin."""
    NO_DATA = 4
    """Fewer than two margins have a sample with a known outcome."""


@dataclass(frozen=True)
class ProbitFit:
    """Result of `fit_probit`; location and spread in the unit of the margin.

    Attributes
    ----------
    kind : FitKind
    location, location_se, location_low, location_high : float
    spread, spread_se, spread_low, spread_high : float
        For `FitKind.SEPARATED` the spread's error is NaN and its lower limit 0; the
        location's error is that of a uniform distribution between its limits.
    correlation : float
        Between the errors of location and spread.
    fitted : ndarray, shape (margins,)
        Modelled pass probability.
    chi_square, p_value : float
        Pearson's test of the model; NaN when there are no degrees of freedom or the
        margins share their random numbers.
    dof : int
    """

    kind: FitKind
    fitted: Floats
    location: float = np.nan
    location_se: float = np.nan
    location_low: float = np.nan
    location_high: float = np.nan
    spread: float = np.nan
    spread_se: float = np.nan
    spread_low: float = np.nan
    spread_high: float = np.nan
    correlation: float = np.nan
    chi_square: float = np.nan
    dof: int = 0
    p_value: float = np.nan


def pass_model(margin: ArrayLike, location: ArrayLike, spread: ArrayLike) -> Floats:
    """Phi((margin - location) / spread), broadcast; a step (1/2 at the location) for spread 0."""
    distance = np.subtract(margin, location)
    width = np.broadcast_to(np.asarray(spread, float), np.shape(distance + spread))
    step = np.where(np.isnan(distance + width), np.nan, (np.sign(distance) + 1) / 2)
    scaled = np.divide(distance, width, out=np.zeros(width.shape), where=width != 0)
    return np.where(width == 0, step, ndtr(scaled))


def fit_probit(
    margin: ArrayLike,
    passes: ArrayLike,
    n: ArrayLike,
    outcomes: ArrayLike | None = None,
    confidence: float = CONFIDENCE,
) -> ProbitFit:
    """Fit location and spread of a decision.

    Parameters
    ----------
    margin : array_like, shape (margins,)
        Increasing.
    passes, n : array_like of int, shape (margins,)
        Passing samples of those with a known outcome.
    outcomes : array_like of int, shape (margins, samples), optional
        1 pass, 0 fail, -1 unknown. Given when sample k shares its random numbers between
        the margins: the errors then come from the sandwich estimator with one cluster a
        sample (K.-Y. Liang, S. L. Zeger, Biometrika 73, 13, 1986).
    confidence : float
        Of the intervals.

    Returns
    -------
    ProbitFit

    Raises
    ------
    NandcosimError
        If Fisher scoring does not converge.
    """
    x, k, total = (np.asarray(each, float) for each in (margin, passes, n))
    nothing = np.full(x.shape, np.nan)
    seen = total > 0
    if seen.sum() < 2:
        return ProbitFit(FitKind.NO_DATA, nothing)
    if not k[seen].any() or not (total - k)[seen].any():
        return _one_sided(x[seen], bool(k[seen].any()), np.where(seen, 1.0, np.nan))
    failing, passing = x[total > k], x[k > 0]
    if failing.max() <= passing.min():
        return _separated(x, k, total, confidence)
    if passing.max() <= failing.min():
        return ProbitFit(FitKind.NOT_INCREASING, nothing)
    centre, scale = float(x[seen].mean()), float(np.ptp(x[seen]))
    u = (x - centre) / scale
    coefficients, information = _fisher_scoring(u, k, total)
    a, b = coefficients
    if b <= 0:
        return ProbitFit(FitKind.NOT_INCREASING, nothing)
    covariance = np.linalg.inv(information)
    if outcomes is not None:
        covariance = covariance @ _clustered(u, a + b * u, np.asarray(outcomes)) @ covariance
    jacobian = np.array([[-1 / b, a / b**2], [0.0, -1 / b**2]])
    covariance = scale**2 * jacobian @ covariance @ jacobian.T
    location_se, spread_se = (float(each) for each in np.sqrt(np.diag(covariance)))
    location, spread = float(centre - scale * a / b), float(scale / b)
    fitted = ndtr(a + b * u)
    chi_square, dof = _chi_square(k, total, fitted)
    testable = outcomes is None and dof > 0
    z = normal_quantile(confidence)
    ratio = float(np.exp(z * spread_se / spread))
    return ProbitFit(
        FitKind.PROBIT,
        fitted,
        location,
        location_se,
        location - z * location_se,
        location + z * location_se,
        spread,
        spread_se,
        spread / ratio,
        spread * ratio,
        float(covariance[0, 1]) / (location_se * spread_se),
        chi_square if testable else np.nan,
        dof,
        float(chi2.sf(chi_square, dof)) if testable else np.nan,
    )


def deviance_residuals(passes: ArrayLike, n: ArrayLike, fitted: ArrayLike) -> Floats:
    """Signed square roots of each margin's share of the deviance, about N(0, 1) for a good fit.

    ``sign(k - n p) sqrt(2 (k ln(k / n p) + (n - k) ln((n - k) / n (1 - p))))``, NaN where
    nothing was observed (McCullagh and Nelder, section 4.4.5).
    """
    k, total, p = (np.asarray(each, float) for each in (passes, n, fitted))
    with np.errstate(divide="ignore", invalid="ignore"):
        passed = np.where(k > 0, k * np.log(k / (total * p)), 0.0)
        failed = np.where(k < total, (total - k) * np.log((total - k) / (total * (1 - p))), 0.0)
    signed = np.sign(k - total * p) * np.sqrt(2 * np.maximum(passed + failed, 0.0))
    return np.where((total > 0) & np.isfinite(p), signed, np.nan)


# ---------------------------------------------------------------- maximum likelihood


def _log_likelihood(eta: Floats, k: Floats, n: Floats) -> float:
    # A term that counts no sample is 0 even where its logarithm is -inf.
    passed = np.where(k > 0, k * log_ndtr(eta), 0.0)
    return float((passed + np.where(n > k, (n - k) * log_ndtr(-eta), 0.0)).sum())


def _hazard(eta: Floats) -> Floats:
    """phi(eta) / Phi(eta)."""
    return np.asarray(np.exp(-0.5 * eta**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(eta)))


def _fisher_scoring(u: Floats, k: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Coefficients (a, b) of Phi(a + b u) and their expected information."""
    design = np.stack([np.ones_like(u), u])
    weight = np.sqrt(n)
    start = ndtri((k + 0.5) / (n + 1))
    coefficients = np.linalg.lstsq((design * weight).T, start * weight, rcond=None)[0]
    value = _log_likelihood(coefficients @ design, k, n)
    for _ in range(200):
        eta = coefficients @ design
        score = design @ (k * _hazard(eta) - (n - k) * _hazard(-eta))
        information = (design * n * _hazard(eta) * _hazard(-eta)) @ design.T
        step = np.linalg.solve(information, score)
        if score @ step < 1e-16 * max(1.0, n.sum()):
            return coefficients, information
        for _ in range(60):
            trial = coefficients + step
            trial_value = _log_likelihood(trial @ design, k, n)
            if trial_value >= value:
                break
            step /= 2
        else:  # no step of any length improves: rounding is reached
            return coefficients, information
        coefficients, value = trial, trial_value
    raise NandcosimError(
        f"probit fit: not converged after 200 steps on passes {k.astype(int).tolist()} "
        f"of {n.astype(int).tolist()}"
    )


def _clustered(u: Floats, eta: Floats, outcomes: NDArray[np.int_]) -> Floats:
    """Sum over the samples of the outer product of their scores, shape (2, 2)."""
    scores = np.where(outcomes == 1, _hazard(eta)[:, np.newaxis], 0.0)
    scores -= np.where(outcomes == 0, _hazard(-eta)[:, np.newaxis], 0.0)
    totals = np.stack([scores.sum(axis=0), (u[:, np.newaxis] * scores).sum(axis=0)])
    samples = outcomes.shape[1]
    return np.asarray(totals @ totals.T * samples / max(samples - 1, 1))


def _chi_square(k: Floats, n: Floats, fitted: Floats) -> tuple[float, int]:
    """Pearson's statistic over pooled margins, and its degrees of freedom."""
    statistic, groups = 0.0, 0
    for members in _pools(n * fitted, n * (1 - fitted)):
        passes, expected = k[members].sum(), (n * fitted)[members].sum()
        variance = (n * fitted * (1 - fitted))[members].sum()
        if variance > 0:
            statistic += (passes - expected) ** 2 / variance
            groups += 1
    return float(statistic), max(groups - 2, 0)


def _pools(passes: Floats, fails: Floats) -> list[list[int]]:
    """Neighbouring margins joined until each pool expects enough passes and fails."""
    pools: list[list[int]] = []
    current: list[int] = []
    for index in range(passes.size):
        current.append(index)
        if min(passes[current].sum(), fails[current].sum()) >= MIN_EXPECTED:
            pools.append(current)
            current = []
    if current and pools:
        pools[-1] = pools[-1] + current
    return pools


# ---------------------------------------------------------------- no maximum


def _one_sided(x: Floats, passed: bool, seen: Floats) -> ProbitFit:
    low, high = (-np.inf, float(x.min())) if passed else (float(x.max()), np.inf)
    return ProbitFit(FitKind.ONE_SIDED, seen * float(passed), location_low=low, location_high=high)


def _separated(x: Floats, k: Floats, n: Floats, confidence: float) -> ProbitFit:
    """Bracket, and profile-likelihood limits, of a decision sharper than the axis is fine."""
    low, high = float(x[n > k].max()), float(x[k > 0].min())
    threshold = float(chi2.ppf(confidence, 1)) / 2
    mixed = low == high
    # As the spread goes to 0 every margin is fitted exactly, the mixed one included.
    p = np.divide(k, n, out=np.zeros_like(k), where=n > 0)
    supremum = float((xlogy(k, p) + xlogy(n - k, 1 - p)).sum())
    seen = x[n > 0]
    span = float(np.ptp(seen))
    gap = float(np.diff(seen).min())

    def lost_at_spread(log_spread: float) -> float:
        spread = np.exp(log_spread)
        best = _minimum(
            lambda c: -_log_likelihood((x - c) / spread, k, n),
            low - 3 * spread - gap,
            high + 3 * spread + gap,
        )
        return best + supremum - threshold

    def lost_at_location(location: float) -> float:
        best = _minimum(
            lambda s: -_log_likelihood((x - location) / np.exp(s), k, n),
            np.log(1e-9 * gap),
            np.log(10 * span),
        )
        return best + supremum - threshold

    spread_high = float(np.exp(_root(lost_at_spread, np.log(1e-3 * gap), np.log(10 * span))))
    if not mixed:
        location, spread = (low + high) / 2, 0.0
    else:
        # Every spread below its limit fits equally well, with a location that puts the
        # mixed margin at its observed fraction: take the middle of that ridge.
        at, reach = low, 3 * spread_high + gap
        spread = spread_high / 2
        location = at - spread * float(ndtri(p[x == at][0]))
        low = _root(lost_at_location, at - 1e-6 * gap, at - reach)
        high = _root(lost_at_location, at + 1e-6 * gap, at + reach)
    return ProbitFit(
        FitKind.SEPARATED,
        np.where(n > 0, pass_model(x, location, spread), np.nan),
        location,
        float((high - low) / np.sqrt(12)),  # standard deviation of a uniform distribution
        low,
        high,
        spread,
        spread_low=0.0,
        spread_high=spread_high,
    )


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Smallest value on an interval: a coarse scan, then refined around its best point."""
    points = np.linspace(low, high, 61)
    values = [function(float(point)) for point in points]
    best = int(np.argmin(values))
    bounds = (points[max(best - 1, 0)], points[min(best + 1, points.size - 1)])
    refined = minimize_scalar(function, bounds=bounds, method="bounded")
    return min(float(refined.fun), values[best])


def _root(function: Callable[[float], float], start: float, stop: float) -> float:
    """Where a function that is negative at `start` crosses zero, `start` or `stop` if nowhere."""
    if function(start) >= 0:
        return start
    if function(stop) <= 0:
        return stop
    return float(brentq(function, start, stop, xtol=1e-6 * abs(stop - start)))
