"""Quantising embeddings to the levels a cell stores, and the complement of a code.

The paper stores INT4 codes (section 3.2) and does not say how they are made, so
the range that the levels span is a policy here. It is half of a knob whose other
half is the tolerance: alpha levels are alpha * range / levels in units of the
embedding. And it decides whether the paper's 4-bit deficit suffices. A narrow
range fails so many groups that every string saturates and all vectors tie; a wide
one passes everything. On the shipped WordNet corpus at alpha = 2, recall peaks
about +-9 sigma for every m, with 8 to 9 failures a string, inside the 5 to 13 that
the paper reports (section 3.2); +-6 sigma loses a few points with exact counters
but most of its recall with 4-bit ones. At alpha = 3 the peak is at +-6 sigma: the
tolerance is about 2.25 sigma in both. Hence the default, ``sigma:9``, with
one range for all dimensions, so that a voltage means the same on every wordline.

    python -m nandcosim.systems.dnova.range_study wordnet --latches 4 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError

__all__ = [
    "DimensionSigma",
    "GlobalQuantile",
    "GlobalSigma",
    "Quantiser",
    "RangePolicy",
    "complement",
    "fit_quantiser",
    "parse_range",
]

_MAX_LEVELS = 64
"""Codes, thresholds and their errors then fit 16 bits at 1/256 of a level."""


class RangePolicy(Protocol):
    """Chooses the range that the levels span."""

    def limits(self, vectors: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lower and upper end, each of shape () or (D,), for vectors (n, D)."""


@dataclass(frozen=True)
class GlobalSigma:
    """Mean +- k standard deviations over all components together."""

    k: float = 9.0

    def limits(self, vectors: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        mean = np.mean(vectors, dtype=np.float64)
        half = self.k * np.std(vectors, dtype=np.float64)
        return np.asarray(mean - half), np.asarray(mean + half)


@dataclass(frozen=True)
class DimensionSigma:
    """Mean +- k standard deviations of each dimension on its own.

    A constant dimension, which encoders do have, takes the global width.
    """

    k: float = 9.0

    def limits(self, vectors: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        mean = np.mean(vectors, axis=0, dtype=np.float64)
        spread = np.std(vectors, axis=0, dtype=np.float64)
        overall = np.std(vectors, dtype=np.float64)
        half = self.k * np.where(spread > 1e-6 * overall, spread, overall)
        return mean - half, mean + half


@dataclass(frozen=True)
class GlobalQuantile:
    """Quantiles `tail` and 1 - `tail` over all components together."""

    tail: float = 1e-3

    def limits(self, vectors: NDArray[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        low, high = np.quantile(vectors, [self.tail, 1 - self.tail])
        return np.asarray(low), np.asarray(high)


def parse_range(text: str) -> RangePolicy:
    """Range policy written as ``sigma:6``, ``dimension-sigma:6`` or ``quantile:0.001``.

    Raises
    ------
    InputError
        If the text is none of these or its number is out of bounds.
    """
    name, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if name == "sigma" and 0 < value < np.inf:
        return GlobalSigma(value)
    if name == "dimension-sigma" and 0 < value < np.inf:
        return DimensionSigma(value)
    if name == "quantile" and 0 <= value < 0.5:
        return GlobalQuantile(value)
    raise InputError(
        f"quantiser range {text!r}: allowed are 'sigma:K' and 'dimension-sigma:K' with K > 0, "
        "and 'quantile:P' with 0 <= P < 0.5"
    )


@dataclass(frozen=True, eq=False)
class Quantiser:
    """Uniform quantiser: `levels` equal steps between `low` and `high`, clipped outside.

    Attributes
    ----------
    low, high : ndarray, shape () or (D,)
        Ends of the range, in units of the embedding.
    levels : int
        Levels of a cell: 16 for QLC, 8 for TLC.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    levels: int = 16

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        if not np.all(self.high > self.low):
            raise InputError(
                "quantiser: the range is empty in at least one dimension "
                f"(smallest width {np.min(np.asarray(self.high) - self.low):g}); "
                "use a global range or drop constant dimensions"
            )

    @property
    def step(self) -> NDArray[np.float64]:
        """Width of a level in units of the embedding, shape () or (D,)."""
        return np.asarray((self.high - self.low) / self.levels)

    def encode(self, vectors: ArrayLike) -> NDArray[np.uint8]:
        """Codes 0 .. levels - 1 of vectors (..., D).

        Raises
        ------
        InputError
            If a component is not finite, or D is not the fitted one.
        """
        values = np.asarray(vectors, dtype=np.float64)
        if self.low.ndim and values.shape[-1:] != self.low.shape:
            raise InputError(
                f"quantiser: vectors have {values.shape[-1]} dimensions, "
                f"it was fitted for {self.low.size}"
            )
        if not np.isfinite(values).all():
            raise InputError("quantiser: vectors hold a value that is not finite")
        codes = np.floor((values - self.low) / self.step)
        return np.clip(codes, 0, self.levels - 1).astype(np.uint8)

    def decode(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Middle of each code's step."""
        return self.low + (np.asarray(codes) + 0.5) * self.step


def fit_quantiser(
    vectors: ArrayLike, *, levels: int = 16, policy: RangePolicy | str = "sigma:9"
) -> Quantiser:
    """Fit the range on the corpus; queries and centroids are encoded with the same one.

    Parameters
    ----------
    vectors : array (n, D)
        The corpus.
    levels : int
        Levels of a cell, 2 .. 64.
    policy : RangePolicy or str
        See `parse_range`.

    Raises
    ------
    InputError
        If the vectors are not a finite, non-empty (n, D) array or the range is empty.
    """
    _check_levels(levels)
    values = np.asarray(vectors)
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"quantiser: vectors have shape {values.shape}, allowed: (n, D), n, D > 0")
    if not np.isfinite(values).all():
        raise InputError("quantiser: vectors hold a value that is not finite")
    policy = parse_range(policy) if isinstance(policy, str) else policy
    low, high = policy.limits(values)
    return Quantiser(low=low, high=high, levels=levels)


def complement(codes: ArrayLike, levels: int = 16) -> NDArray[Any]:
    """Code levels - 1 - r stored beside r (section 3.2: 15 - r for INT4)."""
    values = np.asarray(codes)
    return (levels - 1 - values.astype(np.int64)).astype(values.dtype)


def _check_levels(levels: int) -> None:
    if not 2 <= levels <= _MAX_LEVELS:
        raise InputError(f"quantiser: levels = {levels}, allowed: 2 .. {_MAX_LEVELS}")
