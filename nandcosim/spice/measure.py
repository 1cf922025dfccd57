"""Measurements on sampled waveforms, in NumPy: "never crossed" is a NaN, not an error."""

from __future__ import annotations

import numpy as np

__all__ = ["crossing", "integral", "value_at"]


def crossing(
    time: np.ndarray, wave: np.ndarray, level: float, *, rising: bool, after: float = -np.inf
) -> float:
    """First time `wave` crosses `level`, linearly interpolated.

    Parameters
    ----------
    time, wave : ndarray, shape (points,)
    level : float
    rising : bool
        Direction of the crossing.
    after : float
        Crossings before this time do not count.

    Returns
    -------
    float
        NaN if there is none.
    """
    side = wave >= level if rising else wave <= level
    hits = np.flatnonzero(side[1:] & ~side[:-1] & (time[1:] > after))
    if not hits.size:
        return float("nan")
    index = int(hits[0])
    span = wave[index + 1] - wave[index]
    fraction = (level - wave[index]) / span
    return float(time[index] + fraction * (time[index + 1] - time[index]))


def value_at(time: np.ndarray, wave: np.ndarray, when: float) -> float:
    """Value of `wave` at time `when`, linearly interpolated."""
    return float(np.interp(when, time, wave))


def integral(time: np.ndarray, wave: np.ndarray) -> float:
    """Integral of `wave` over the whole of `time` by the trapezoidal rule."""
    return float(np.trapezoid(wave, time))
