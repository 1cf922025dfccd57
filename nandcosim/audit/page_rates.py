"""What an audit of NVLLM says of raw bit errors: decisions, bit and segment error rates.

Two estimates of ngspice's bit error rate. The plain one counts wrong bits by stratum and
assumes nothing, so its upper limit is what the reads far from the decision could hide. The
other fits place and spread of the decision to the replayed senses, and puts them into the
closed form of `nandcosim.threshold.bit_error_rate`, as the model does with the table's; it
has no errors of other causes, such as a cell that the pass voltage does not open.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.audit.bit_reads import FIRST, LATER, is_near
from nandcosim.audit.comparison import strata_of
from nandcosim.audit.strata import Estimate, stratified_difference, stratified_mean
from nandcosim.intervals import wilson
from nandcosim.page_coding import read_levels
from nandcosim.spice.status import Status
from nandcosim.systems.nvllm.ecc import segment_error_rate
from nandcosim.systems.nvllm.hardware import ErrorFields
from nandcosim.systems.nvllm.rber import stored_levels
from nandcosim.tables.probit import FitKind, ProbitFit, fit_probit
from nandcosim.threshold import bit_error_rate

__all__ = [
    "decided_error_rate",
    "decision",
    "drawn_error_rate",
    "error_rate",
    "error_rate_difference",
    "headroom",
    "segments",
    "table_error_rate",
]


def decision(
    dataset: xr.Dataset, comparison: str, inside: NDArray[np.bool_] | None = None
) -> ProbitFit:
    """Place and spread of the decision that the replayed senses show, in level spacings.

    From the reads near the decision alone: a string that blocks altogether says nothing of
    where its cells decide.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_nvllm`.
    comparison : str
        ``ideal`` or ``noisy``.
    inside : bool array (sample,), optional
        The part; all by default.

    Returns
    -------
    ProbitFit
        Of `nandcosim.tables.probit`, to be compared with ``pass_location`` and
        ``pass_spread`` of the table.
    """
    here = dataset.sel(comparison=comparison)
    rows = (here["status"].values == Status.OK) & is_near(dataset["bin_of"].values)
    if inside is not None:
        rows &= inside
    margin = dataset["excess"].values[rows] + float(dataset["pass_location"])
    order = np.argsort(margin)
    bits = here["circuit"].values[rows][order]
    return fit_probit(margin[order], bits, np.ones(bits.size))


def error_rate(dataset: xr.Dataset, comparison: str) -> Estimate:
    """Share of the run's bits that ngspice reads wrong, counted by stratum."""
    label, drawn = strata_of(dataset)
    wrong = _bits(dataset, comparison) != dataset["stored"].values
    known = np.isfinite(_bits(dataset, comparison))
    return stratified_mean(drawn, label, np.where(known, wrong * 1.0, np.nan))


def error_rate_difference(dataset: xr.Dataset, comparison: str, *, near: bool = False) -> Estimate:
    """How much more often ngspice errs than the model, in the same bits.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_nvllm`.
    comparison : str
        ``ideal`` or ``noisy``.
    near : bool
        Count the bins near the decision only and take all reads beyond them to agree, as
        those that were replayed do. Without, the limits are what those not replayed could
        hide.
    """
    label, drawn = strata_of(dataset)
    bits, stored = _bits(dataset, comparison), dataset["stored"].values
    wrong = bits != stored
    expected = dataset["model_bit"].sel(comparison=comparison).values != stored
    unknown = ~np.isfinite(bits)
    more, less = (
        np.where(unknown, np.nan, each * 1.0) for each in (wrong & ~expected, ~wrong & expected)
    )
    if not near:
        return stratified_difference(drawn, label, more, less)
    inside = is_near(dataset["bin_of"].values)
    present, label = np.unique(label[inside], return_inverse=True)
    part = stratified_difference(drawn[present], label, more[inside], less[inside])
    share = float(drawn[present].sum() / drawn.sum())
    return Estimate(share * part.value, share * part.low, share * part.high)


def drawn_error_rate(dataset: xr.Dataset) -> Estimate:
    """Share of wrong bits in the first sample, by the model; Wilson's interval."""
    wrong, reads = int(dataset["drawn_wrong"].sum()), int(dataset["drawn"].sum())
    low, high = wilson(wrong, reads)
    return Estimate(wrong / reads, float(low), float(high))


def table_error_rate(dataset: xr.Dataset) -> Estimate:
    """The closed form with the table's decision, mean over the pages, all levels alike often."""
    place, width = (
        tuple(float(dataset[f"{name}{end}"]) for end in ("", "_low", "_high"))
        for name in ("pass_location", "pass_spread")
    )
    return _over_corners(dataset, {FIRST: place, LATER: place}, {FIRST: width, LATER: width})


def decided_error_rate(dataset: xr.Dataset, comparison: str = "noisy") -> Estimate:
    """The closed form with the decisions of the replayed senses.

    First and later senses of a page have a decision each. NaN where the senses do not
    determine both.
    """
    fits = {
        int(turn): decision(dataset, comparison, dataset["turn"].values == turn)
        for turn in dataset["turn_of"].values
    }
    if any(fit.kind is not FitKind.PROBIT for fit in fits.values()):
        return Estimate(np.nan, np.nan, np.nan)
    places = {
        turn: (fit.location, fit.location_low, fit.location_high) for turn, fit in fits.items()
    }
    widths = {turn: (fit.spread, fit.spread_low, fit.spread_high) for turn, fit in fits.items()}
    return _over_corners(dataset, places, widths)


def headroom(dataset: xr.Dataset) -> NDArray[np.float64]:
    """How far the pass voltage is above the decision of each string's weakest other cell, in V.

    Without any, a cell that is not read blocks its string.
    """
    settings = json.loads(dataset.attrs["circuit_settings"])
    spacing = settings["window"] / 2 ** json.loads(dataset.attrs["config"])["cell_bits"]
    level = dataset["data"].values + dataset["threshold"].values
    level[np.arange(level.shape[0]), dataset["wordline"].values] = -np.inf
    passed = settings["v_pass"] - settings["v_base"]
    return np.asarray(passed - (level.max(axis=1) + 0.5) * spacing)


def segments(dataset: xr.Dataset, bits: Estimate) -> Estimate:
    """Share of segments with an error, of a bit error rate and its limits."""
    n = int(dataset.attrs["segment_bits"])
    value, low, high = (
        float(segment_error_rate(rate, n)) if np.isfinite(rate) else np.nan
        for rate in (bits.value, bits.low, bits.high)
    )
    return Estimate(value, low, high)


def _bits(dataset: xr.Dataset, comparison: str) -> NDArray[np.float64]:
    """The page's bit in ngspice; NaN where the run failed."""
    here = dataset.sel(comparison=comparison)
    ok = here["status"].values == Status.OK
    return np.where(ok, here["circuit_bit"].values, np.nan)


def _over_corners(
    dataset: xr.Dataset,
    places: Mapping[int, tuple[float, ...]],
    widths: Mapping[int, tuple[float, ...]],
) -> Estimate:
    """Closed form at the best place and width, and its range over their limits together."""
    config = json.loads(dataset.attrs["config"])
    bits, coding = config["cell_bits"], config["coding"]
    first = {int(read_levels(bits, page, coding)[0]) for page in range(bits)}
    every = np.arange(1, 2**bits)
    turn = np.where(np.isin(every, list(first)), FIRST, LATER)
    fields = {name: config[name] for name in ErrorFields.model_fields}
    shift, sigma = stored_levels(ErrorFields(**fields), bits)

    def rate(place: int, width: int) -> float:
        location, spread = (
            xr.DataArray(
                [values[t][end] for t in turn], dims="read_level", coords={"read_level": every}
            )
            for values, end in ((places, place), (widths, width))
        )
        found = bit_error_rate(
            bits,
            shift,
            sigma,
            coding=coding,
            retry=config["retry"],
            retry_step=json.loads(dataset.attrs["circuit_settings"])["retry_step"],
            location=location,
            spread=spread,
        )
        return float(found.mean("page"))

    corners = [rate(place, width) for place, width in itertools.product((1, 2), (1, 2))]
    best = rate(0, 0)
    return Estimate(best, min(best, *corners), max(best, *corners))
