"""How often circuit and model disagree, over a run or a part of it.

The strata of an audit's dataset are groups by bins: the dimensions of ``drawn``, the first of
which is named after the variable that tells each sample's group (``stage_of``: ``stage``),
and has the groups as coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp

from nandcosim.audit.strata import (
    Estimate,
    stratified_difference,
    stratified_mean,
    stratified_rate,
)
from nandcosim.spice.status import Status

__all__ = [
    "Alternative",
    "Disagreement",
    "alternatives",
    "among",
    "bin_cells",
    "by_companion",
    "disagreement",
    "estimates",
    "farthest",
    "noise_means",
    "series_rule",
    "strata_of",
    "weights",
]


#: Where the fits start: the logarithm of a fifth of a level spacing.
_START = float(np.log(0.2))


@dataclass(frozen=True)
class Disagreement:
    """Counts and rate in a part of the search.

    Attributes
    ----------
    share : float
        Of the search's reads that are in this part.
    examined : int
        Reads whose simulation succeeded.
    failed : int
    conducts : int
        The circuit conducts where the model blocks.
    blocks : int
        The circuit blocks where the model conducts.
    rate : Estimate
        Of both together, over the search's reads in this part.
    """

    share: float
    examined: int
    failed: int
    conducts: int
    blocks: int
    rate: Estimate


def bin_cells(dataset: xr.Dataset, *, number: int | None = None, **group: int) -> NDArray[np.bool_]:
    """The (group, bin) cells of a part of the run: of a group (``stage=2``), a bin, or all."""
    cells = np.ones(dataset["drawn"].shape, dtype=bool)
    for name, value in group.items():
        cells &= (dataset[f"{name}_of"].values == value)[:, np.newaxis]
    if number is not None:
        cells &= np.arange(cells.shape[1]) == number
    return cells


@dataclass(frozen=True)
class Alternative:
    """Another rule for the same reads, fitted to the circuit's bits with an ideal amplifier.

    Attributes
    ----------
    name : str
    parameters : dict of str to float
        In level spacings.
    found : Disagreement
        Between this rule and the circuit, in the reads that it was fitted to; without
        interval, as the rule is chosen by the same reads.
    """

    name: str
    parameters: dict[str, float]
    found: Disagreement


def disagreement(
    dataset: xr.Dataset,
    comparison: str,
    cells: NDArray[np.bool_] | None = None,
    model: NDArray[np.bool_] | None = None,
) -> Disagreement:
    """Compare circuit and model in a part of the search.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_dnova`.
    comparison : str
        ``ideal`` or ``noisy``.
    cells : bool array (stages, bins), optional
        The part; all by default. See `bin_cells`.
    model : bool array (sample,), optional
        Decisions of another model, instead of the audited one's.
    """
    strata, drawn = _strata(dataset, cells)
    label = _label(dataset, strata)
    here = dataset.sel(comparison=comparison)
    ok = here["status"].values == Status.OK
    model = here["model"].values > 0.5 if model is None else model
    circuit = here["circuit"].values > 0.5
    inside = label >= 0

    def count(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(label[inside & rows], minlength=drawn.size)

    whole = int(dataset["drawn"].sum())
    return Disagreement(
        share=float(drawn.sum() / whole),
        examined=int(count(ok).sum()),
        failed=int(count(~ok).sum()),
        conducts=int(count(ok & circuit & ~model).sum()),
        blocks=int(count(ok & ~circuit & model).sum()),
        rate=stratified_rate(drawn, count(ok & (circuit != model)), count(ok), count(~ok)),
    )


def by_companion(
    dataset: xr.Dataset, comparison: str, edges: Sequence[float]
) -> list[Disagreement]:
    """Compare by where a group's second worst cell is, in groups of two and more.

    The sample is not stratified by it, so the rate is a ratio of weights, without interval.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_dnova`.
    comparison : str
    edges : sequence of float
        Ascending, in level spacings; one part between each two, upper edge included.
    """
    companion = dataset["companion"].values
    return [
        among(dataset, comparison, (companion > low) & (companion <= high))
        for low, high in pairwise(edges)
    ]


def among(dataset: xr.Dataset, comparison: str, inside: NDArray[np.bool_]) -> Disagreement:
    """Compare in a part that the sample is not stratified by: a ratio of weights, no interval.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of an audit.
    comparison : str
    inside : bool array (sample,)
        The part.
    """
    here = dataset.sel(comparison=comparison)
    ok = here["status"].values == Status.OK
    model, circuit = here["model"].values > 0.5, here["circuit"].values > 0.5
    weight = weights(dataset)
    known = inside & ok
    total = float(weight[known].sum())
    rate = float(weight[known & (model != circuit)].sum()) / total if total else np.nan
    return Disagreement(
        share=float(weight[inside].sum()),
        examined=int(known.sum()),
        failed=int((inside & ~ok).sum()),
        conducts=int((known & circuit & ~model).sum()),
        blocks=int((known & ~circuit & model).sum()),
        rate=Estimate(rate, np.nan, np.nan),
    )


def farthest(dataset: xr.Dataset, comparison: str) -> NDArray[np.int64]:
    """The samples in which circuit and model disagree, farthest from the decision first."""
    here = dataset.sel(comparison=comparison)
    ok = here["status"].values == Status.OK
    rows = np.flatnonzero(ok & (here["model"].values != here["circuit"].values))
    order = np.argsort(-np.abs(dataset["excess"].values[rows]), kind="stable")
    return np.asarray(rows[order])


def noise_means(dataset: xr.Dataset) -> dict[str, Estimate]:
    """Circuit against model when both draw their read noise, independently of each other.

    Returns
    -------
    dict of str to Estimate
        ``expected``: probability that one read of each disagrees; ``floor``: the same for
        two reads of the model; ``bias``: how much more often the circuit conducts. The
        intervals are over the choice of reads, one draw of the circuit's noise in each.
    """
    label, drawn = strata_of(dataset)
    noisy = dataset.sel(comparison="noisy")
    bit = np.where(noisy["status"].values == Status.OK, noisy["circuit"].values, np.nan)
    chance = dataset["chance"].values
    conducts, blocks = bit * (1 - chance), (1 - bit) * chance
    return {
        "expected": stratified_mean(drawn, label, conducts + blocks),
        "floor": stratified_mean(drawn, label, 2 * chance * (1 - chance), bound=0.5),
        "bias": stratified_difference(drawn, label, conducts, blocks),
    }


def alternatives(dataset: xr.Dataset) -> list[Alternative]:
    """How far the model's rule could come, and how far one that knows all active cells.

    ``worst cell``: the model's rule with trip margins that the replayed reads themselves
    show, one for every m; ``spread`` is what the other cells do to that margin from read to
    read. ``cells in series``: below its boundary a cell's resistance falls by a factor of e
    every ``slope`` level spacings of margin, and the resistances of a string add up. So a
    group conducts iff

        -slope * log(sum_i exp(-margin_i / slope)) > trip,

    with one trip and slope for every m. Both are fitted by maximum likelihood to the
    circuit's bits with an ideal amplifier, the decision having a normal spread, and each
    read its weight in the search.

    Returns
    -------
    list of Alternative
        Without those that the bits do not determine: all alike, or parted by the margin.
    """
    here = dataset.sel(comparison="ideal")
    ok = here["status"].values == Status.OK
    bit, weight = here["circuit"].values > 0.5, weights(dataset)
    found = [_worst_cell(dataset, ok, bit, weight), _in_series(dataset, ok, bit, weight)]
    return [each for each in found if each is not None]


def series_rule(dataset: xr.Dataset, trip: float, slope: float) -> Disagreement:
    """The rule of the cells in series (see `alternatives`) against an ideal amplifier's bits.

    The rate's interval holds for parameters that were not fitted to these reads.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_dnova`.
    trip, slope : float
        In level spacings.
    """
    model = _series(_active_margins(dataset), slope) > trip
    return disagreement(dataset, "ideal", model=model)


def _fitted(
    name: str, parameters: dict[str, float], dataset: xr.Dataset, model: NDArray[np.bool_]
) -> Alternative:
    found = disagreement(dataset, "ideal", model=model)
    rate = Estimate(found.rate.value, np.nan, np.nan)
    return Alternative(name, parameters, replace(found, rate=rate))


def _worst_cell(
    dataset: xr.Dataset, ok: NDArray[np.bool_], bit: NDArray[np.bool_], weight: NDArray[np.float64]
) -> Alternative | None:
    size, margin = dataset["size"].values, dataset["margin"].values
    excess = dataset["excess"].values.copy()
    parameters: dict[str, float] = {}
    for m in np.unique(size).tolist():
        rows = ok & (size == m)
        if not _overlap(margin[rows], bit[rows]):
            continue
        fit = _Fit(margin[rows, np.newaxis], bit[rows], weight[rows])
        trip, spread = fit.best(slope=False)
        parameters |= {f"trip (m = {m})": trip, f"spread (m = {m})": spread}
        excess[size == m] = margin[size == m] - trip
    if not parameters:
        return None
    return _fitted("worst cell", parameters, dataset, excess > 0)


def _in_series(
    dataset: xr.Dataset, ok: NDArray[np.bool_], bit: NDArray[np.bool_], weight: NDArray[np.float64]
) -> Alternative | None:
    if not _overlap(dataset["margin"].values[ok], bit[ok]):
        return None
    margins = _active_margins(dataset)
    trip, spread, slope = _Fit(margins[ok], bit[ok], weight[ok]).best(slope=True)
    parameters = {"trip": trip, "spread": spread, "slope": slope}
    return _fitted("cells in series", parameters, dataset, _series(margins, slope) > trip)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Weighted maximum likelihood of P(bit) = Phi((margin of the series - trip) / spread)."""

    margins: NDArray[np.float64]
    """Of the cells in series, shape (n, cells)."""
    bit: NDArray[np.bool_]
    weight: NDArray[np.float64]

    def best(self, *, slope: bool) -> tuple[float, ...]:
        """Trip margin, spread and, if asked for, the slope of the series."""
        start = [0.0, _START, _START][: 3 if slope else 2]
        options = {"xatol": 1e-5, "fatol": 1e-12, "maxiter": 4000}
        found = minimize(self._loss, start, method="Nelder-Mead", options=options).x
        return float(found[0]), *(float(each) for each in np.exp(found[1:]))

    def _loss(self, parameters: NDArray[np.float64]) -> float:
        """Parameters: trip, and the logarithms of spread and slope; a series of one has none."""
        trip, spread = parameters[0], np.exp(parameters[1])
        together = self.margins[:, 0]
        if parameters.size > 2:
            together = _series(self.margins, float(np.exp(parameters[2])))
        score = np.where(self.bit, 1.0, -1.0) * (together - trip) / spread
        return -float(self.weight @ log_ndtr(score)) / float(self.weight.sum())


def _active_margins(dataset: xr.Dataset) -> NDArray[np.float64]:
    """Margin of every active cell, shape (sample, m); infinite beyond a group."""
    threshold = dataset["threshold"].values
    first, size = dataset["first"].values, dataset["size"].values
    place = np.arange(size.max())
    cells = np.minimum(first[:, np.newaxis] + place, threshold.shape[1] - 1)
    margins = -np.take_along_axis(threshold, cells, axis=1)
    return np.where(place < size[:, np.newaxis], margins, np.inf)


def _series(margins: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
    return np.asarray(-slope * logsumexp(-margins / slope, axis=1))


def _overlap(margin: NDArray[np.float64], bit: NDArray[np.bool_]) -> bool:
    """Whether the margin does not part the bits, so that a fit exists."""
    return bool(bit.any() and not bit.all() and margin[bit].min() < margin[~bit].max())


def weights(dataset: xr.Dataset) -> NDArray[np.float64]:
    """Share of the search's reads that each sample stands for, shape (sample,); sums to 1."""
    label, drawn = strata_of(dataset)
    counts = np.bincount(label, minlength=drawn.size)
    represented = drawn[counts > 0].sum()
    return np.asarray(drawn[label] / (counts[label] * represented))


def estimates(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """The rate of each comparison over the whole search, with its interval."""
    names = dataset["comparison"].values.tolist()
    found = [disagreement(dataset, name).rate for name in names]
    meaning = "share of the search's reads in which circuit and model disagree"
    parts = {"rate": "value", "rate_low": "low", "rate_high": "high"}
    result = {
        name: xr.DataArray(
            [getattr(each, field) for each in found],
            dims="comparison",
            attrs={
                "units": "1",
                "long_name": meaning if field == "value" else f"{field} end, 95 %, of: {meaning}",
            },
        )
        for name, field in parts.items()
    }
    result["weight"] = xr.DataArray(
        weights(dataset),
        dims="sample",
        attrs={"units": "1", "long_name": "share of the search's reads that a sample stands for"},
    )
    return result


def strata_of(dataset: xr.Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stratum of every sample, and how often the first sample fell into each."""
    strata, drawn = _strata(dataset, None)
    return _label(dataset, strata), drawn


def _strata(
    dataset: xr.Dataset, cells: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Stratum of every (group, bin), -1 outside the part, and how often each was drawn.

    The reads that are sampled as they occur are one stratum: those of the outermost bins, far
    from the decision, unless the dataset says which.
    """
    drawn = dataset["drawn"].values
    inside = np.ones(drawn.shape, dtype=bool) if cells is None else cells
    number = np.arange(drawn.size).reshape(drawn.shape) + 1
    if "as_they_occur" in dataset:
        number[:, dataset["as_they_occur"].values] = 0
    else:
        number[:, [0, -1]] = 0
    number[~inside] = -1
    present, label = np.unique(number, return_inverse=True)
    label = label.reshape(drawn.shape) - int(present[0] == -1)
    count = np.bincount(label[inside], weights=drawn[inside]).astype(np.int64)
    return label, count


def _label(dataset: xr.Dataset, strata: NDArray[np.int64]) -> NDArray[np.int64]:
    dim = str(dataset["drawn"].dims[0])
    group = np.searchsorted(dataset[dim].values, dataset[dim.removesuffix("_of")].values)
    return np.asarray(strata[group, dataset["bin_of"].values])
