"""Intervals of proportions and means, as tables give them and planned sweeps ask for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

__all__ = ["CONFIDENCE", "mean_and_error", "normal_quantile", "student_half_width", "wilson"]

#: Confidence of every interval in a table.
CONFIDENCE = 0.95

Floats = NDArray[np.float64]


def normal_quantile(confidence: float = CONFIDENCE) -> float:
    """Half-width, in standard errors, of a two-sided normal interval."""
    return float(norm.ppf((1 + confidence) / 2))


def wilson(
    passes: ArrayLike, n: ArrayLike, failed: ArrayLike = 0, confidence: float = CONFIDENCE
) -> tuple[Floats, Floats]:
    """Wilson score interval of a proportion, widened by what failed samples could have been.

    With k passes of N and the normal quantile z (E. B. Wilson, J. Am. Stat. Assoc. 22,
    209, 1927; Brown, Cai, DasGupta, Stat. Sci. 16, 101, 2001, eq. 4)::

        (k + z²/2) / (N + z²)  ±  z sqrt(N) / (N + z²) sqrt(k (N - k) / N² + z² / (4 N))

    The lower limit counts every failed sample among the N as no pass, the upper limit as
    a pass; without failed samples it is the plain interval.

    Parameters
    ----------
    passes, n : array_like of int
        Passing samples, and samples whose outcome is known.
    failed : array_like of int
        Further samples whose outcome is unknown.
    confidence : float

    Returns
    -------
    low, high : ndarray
        Broadcast shape of the counts; 0 and 1 where there is no sample.
    """
    k, known, unknown = np.broadcast_arrays(
        np.asarray(passes, float), np.asarray(n, float), np.asarray(failed, float)
    )
    total = known + unknown
    z = normal_quantile(confidence)
    return _wilson_limit(k, total, -z), _wilson_limit(k + unknown, total, z)


def _wilson_limit(k: Floats, n: Floats, z: float) -> Floats:
    """One limit: the lower one for negative z."""
    counted = np.maximum(n, 1.0)
    p = k / counted
    centre = k + z * z / 2
    half = z * np.sqrt(counted * (p * (1 - p) + z * z / (4 * counted)))
    limit = np.clip((centre + half) / (counted + z * z), 0.0, 1.0)
    # Exact at the ends, where rounding leaves 1e-17.
    limit = np.where((k == 0) & (z < 0), 0.0, limit)
    limit = np.where((k == n) & (z > 0), 1.0, limit)
    return np.where(n == 0, float(z > 0), limit)


def mean_and_error(values: ArrayLike, used: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Mean, its standard error and the standard deviation over the last axis.

    Parameters
    ----------
    values : array_like, shape (..., samples)
    used : array_like of bool, same shape
        Which samples count; values elsewhere may be NaN.

    Returns
    -------
    mean, error, deviation : ndarray, shape (...)
        Of n used samples: the mean is NaN for n = 0, the deviation (divisor n - 1) and
        the error deviation / sqrt(n) for n < 2.
    """
    mask = np.asarray(used, bool)
    x = np.where(mask, np.asarray(values, float), 0.0)
    n = mask.sum(axis=-1)
    counted = np.maximum(n, 1)
    mean = x.sum(axis=-1) / counted
    squares = (np.where(mask, x - mean[..., np.newaxis], 0.0) ** 2).sum(axis=-1)
    deviation = np.where(n > 1, np.sqrt(squares / np.maximum(n - 1, 1)), np.nan)
    return np.where(n > 0, mean, np.nan), deviation / np.sqrt(counted), deviation


def student_half_width(error: ArrayLike, n: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Half-width of the interval of a mean (Student, Biometrika 6, 1, 1908).

    Parameters
    ----------
    error : array_like
        Standard error of the mean, as `mean_and_error` gives it.
    n : array_like of int
        Samples in the mean.
    confidence : float

    Returns
    -------
    ndarray
        Broadcast shape; infinite for fewer than two samples.
    """
    standard_error, count = np.broadcast_arrays(np.asarray(error, float), np.asarray(n))
    quantile = t.ppf((1 + confidence) / 2, np.maximum(count - 1, 1))
    return np.where(count > 1, quantile * standard_error, np.inf)
