"""What an audit of products says: bias, spread, tails, wrong integers, leakage.

Moments are weighted, w_i being the share of the run that product i stands for, sum w = 1.
Their standard errors come from each product's influence: w (z - mean) on the mean, and
w ((z - mean)^2 / sd^2 - 1) / 2 on the logarithm of the standard deviation, so that no
distribution is assumed; for n equal weights these are sd / sqrt(n) and
sqrt((kurtosis - 1) / 4n). Limits have Student's quantile of n - 1 degrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from nandcosim.audit.comparison import strata_of, weights
from nandcosim.audit.strata import Estimate, stratified_rate
from nandcosim.audit.unit_products import MATCH
from nandcosim.intervals import CONFIDENCE
from nandcosim.spice.status import Status

__all__ = [
    "NORMAL_TAIL", "TAIL", "Leakage", "Part", "Wrong", "gain", "leakage", "part", "slope",
    "weighted_mean", "weighted_sd", "wrong",
]  # fmt: skip

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Residuals beyond so many standard deviations are the tail, with this share if normal.
TAIL, NORMAL_TAIL = 2.0, 0.0455

_NONE = Estimate(np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Part:
    """Circuit against model in a part of the run.

    Attributes
    ----------
    share : float
        Of the run's products at inputs above 0.
    examined, failed : int
    bias : Estimate
        Circuit less the model's mean, away from 0 (LSB).
    residual, spread : Estimate
        Mean and standard deviation of that over the model's standard deviation: 0 and 1 if
        the model holds.
    tail : Estimate
        Share of residuals beyond `TAIL`.
    """

    share: float
    examined: int
    failed: int
    bias: Estimate
    residual: Estimate
    spread: Estimate
    tail: Estimate


@dataclass(frozen=True)
class Wrong:
    """Products that round to a wrong integer.

    Attributes
    ----------
    model : float
        By the model, over the first sample.
    circuit : Estimate
        Share counted.
    more : Estimate
        How much more often the circuit's do than the model says of the same products.
    """

    model: float
    circuit: Estimate
    more: Estimate


@dataclass(frozen=True)
class Leakage:
    """Current of mismatched units.

    Attributes
    ----------
    examined : int
    model, circuit : Estimate
        Slope of the product over x W, so that a match has 1.
    model_rms, circuit_rms : float
        Root of the mean square (LSB).
    """

    examined: int
    model: Estimate
    circuit: Estimate
    model_rms: float
    circuit_rms: float


# ---------------------------------------------------------------- statistics


def weighted_mean(values: ArrayLike, weight: ArrayLike) -> Estimate:
    """Mean with its interval; none for fewer than two values."""
    z, w = _normalised(values, weight)
    if z.size < 2:
        return Estimate(float(z.sum()), np.nan, np.nan) if z.size else _NONE
    mean = float(w @ z)
    error = float(np.sqrt(z.size / (z.size - 1) * (w**2 @ (z - mean) ** 2)))
    return _around(mean, error, z.size)


def weighted_sd(values: ArrayLike, weight: ArrayLike) -> Estimate:
    """Standard deviation with its interval; NaN for fewer than two values."""
    z, w = _normalised(values, weight)
    if z.size < 2:
        return _NONE
    square = (z - w @ z) ** 2
    variance = float(w @ square) / (1 - float(w @ w))
    if variance == 0:
        return Estimate(0.0, np.nan, np.nan)
    error = float(np.sqrt(w**2 @ (square / variance - 1) ** 2)) / 2
    log = _around(float(np.log(variance)) / 2, error, z.size)
    return Estimate(*(float(np.exp(each)) for each in (log.value, log.low, log.high)))


def slope(x: ArrayLike, y: ArrayLike, weight: ArrayLike) -> Estimate:
    """Slope of the line through 0 that fits y, with its interval."""
    at, w = np.asarray(x, dtype=float), np.asarray(weight, dtype=float)
    values = np.asarray(y, dtype=float)
    power = float(w @ at**2)
    if values.size < 2 or power == 0:
        return _NONE
    value = float(w @ (at * values)) / power
    square = (w**2 * at**2) @ (values - value * at) ** 2
    error = float(np.sqrt(values.size / (values.size - 1) * square)) / power
    return _around(value, error, values.size)


def _normalised(values: ArrayLike, weight: ArrayLike) -> tuple[Floats, Floats]:
    z, w = np.asarray(values, dtype=float), np.asarray(weight, dtype=float)
    return z, w / w.sum() if w.size else w


def _around(value: float, error: float, count: int) -> Estimate:
    reach = float(student.ppf((1 + CONFIDENCE) / 2, count - 1)) * error
    return Estimate(value, value - reach, value + reach)


# ---------------------------------------------------------------- of an audit


def part(dataset: xr.Dataset, inside: Flags) -> Part:
    """Circuit against model.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_nasic`.
    inside : bool array (sample,)
        The part.
    """
    weight = weights(dataset)
    ok = _ok(dataset) & inside
    off, sd, w = _excess(dataset)[ok], dataset["sd"].values[ok], weight[ok]
    if (sd > 0).all():
        z = off / sd
        residual, spread = weighted_mean(z, w), weighted_sd(z, w)
        tail = _share(np.abs(z) > TAIL, w)
    else:  # without spread there is no residual
        residual = spread = tail = _NONE
    return Part(
        share=float(weight[inside].sum()),
        examined=int(ok.sum()),
        failed=int((inside & ~ok).sum()),
        bias=weighted_mean(off, w),
        residual=residual,
        spread=spread,
        tail=tail,
    )


def wrong(dataset: xr.Dataset, cells: Flags) -> Wrong:
    """Products that round to a wrong integer, of those at inputs above 0.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_nasic`.
    cells : bool array (groups, bins)
        The part, of `comparison.bin_cells`.
    """
    label, drawn = strata_of(dataset)  # each bin of each group is a stratum
    strata = np.flatnonzero(cells.ravel())
    if not drawn[strata].sum():
        return Wrong(np.nan, _NONE, _NONE)
    inside = np.isin(label, strata)
    ok = inside & _ok(dataset)
    event = ok & (np.abs(dataset["circuit"].values - dataset["ideal"].values) > 0.5)

    def count(rows: Flags) -> NDArray[np.int64]:
        return np.bincount(label[rows], minlength=drawn.size)[strata]

    more = weighted_mean((event - dataset["chance"].values)[ok], weights(dataset)[ok])
    return Wrong(
        model=float(dataset["drawn_wrong"].values[cells].sum() / drawn[strata].sum()),
        circuit=stratified_rate(drawn[strata], count(event), count(ok), count(inside & ~ok)),
        # one outcome all through has no spread to take an interval from
        more=more if 0 < event.sum() < ok.sum() else Estimate(more.value, np.nan, np.nan),
    )


def gain(dataset: xr.Dataset) -> Estimate:
    """Slope of the matched products in the circuit over the model's means."""
    rows = _ok(dataset) & (dataset["group"].values == MATCH)
    model, circuit = dataset["mean"].values[rows], dataset["circuit"].values[rows]
    return slope(model, circuit, weights(dataset)[rows])


def leakage(dataset: xr.Dataset, inside: Flags) -> Leakage:
    """What mismatched units conduct, `inside` those looked at."""
    rows = _ok(dataset) & inside
    weight = weights(dataset)[rows]
    at = (dataset["weight"] * dataset["level"]).values[rows]
    model, sd = dataset["mean"].values[rows], dataset["sd"].values[rows]
    circuit = dataset["circuit"].values[rows]

    def rms(square: Floats) -> float:
        return float(np.sqrt(np.average(square, weights=weight))) if weight.size else np.nan

    return Leakage(
        examined=int(rows.sum()),
        model=slope(at, model, weight),
        circuit=slope(at, circuit, weight),
        model_rms=rms(model**2 + sd**2),
        circuit_rms=rms(circuit**2),
    )


def _share(event: Flags, weight: Floats) -> Estimate:
    """Share of an event, exact limits at the size that the weights are worth (Kish)."""
    if not event.size:
        return _NONE
    size = float(weight.sum() ** 2 / (weight @ weight))
    return stratified_rate([1.0], size * float(np.average(event, weights=weight)), size)


def _ok(dataset: xr.Dataset) -> Flags:
    return np.asarray(dataset["status"].values == Status.OK)


def _excess(dataset: xr.Dataset) -> Floats:
    """Circuit less the model's mean, positive away from 0."""
    side = np.where(dataset["weight"].values < 0, -1.0, 1.0)
    return np.asarray(side * (dataset["circuit"] - dataset["mean"]).values)
