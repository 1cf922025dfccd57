"""The interval of a small probability from its relative standard error."""

from __future__ import annotations

import math

from scipy.special import stdtrit

from nandcosim.intervals import CONFIDENCE, normal_quantile

__all__ = ["log_normal_interval"]


def log_normal_interval(
    probability: float, relative_error: float, families: int | None = None
) -> tuple[float, float]:
    """Limits between which the probability is with the confidence of every interval.

    The estimate is taken as log-normal, with ``log(1 + relative_error**2)`` as the variance
    of its logarithm: a sum of weights is skew, and its lower limit stays above zero.

    Parameters
    ----------
    probability : float
    relative_error : float
        Standard error over the probability.
    families : int, optional
        Number of independent parts that the error was estimated from, if they are few:
        Student's distribution then takes the place of the normal one.

    Returns
    -------
    low, high : float
        ``(0, 1)`` if the probability is zero or the error is not finite.
    """
    if probability <= 0 or not math.isfinite(relative_error):
        return 0.0, 1.0
    quantile = normal_quantile()
    if families is not None:
        quantile = float(stdtrit(max(1, families - 1), (1 + CONFIDENCE) / 2))
    factor = math.exp(quantile * math.sqrt(math.log1p(relative_error**2)))
    return probability / factor, min(1.0, probability * factor)
