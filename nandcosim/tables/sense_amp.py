"""The table of `sense_amp`: offset distribution, and a decision's outcome, delay and energy."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from nandcosim.intervals import wilson
from nandcosim.tables.generic import fit_responses
from nandcosim.tables.samples import Samples

__all__ = ["fit_sense_amp"]

#: Fewest samples of which a third and a fourth moment, and a test of normality, are given.
MIN_SHAPE = 20


def fit_sense_amp(samples: Samples) -> xr.Dataset:
    """Fit the page buffer's table.

    Returns
    -------
    xarray.Dataset
        Over the axes: the summaries of `fit_responses` for every response but ``bit``;
        of an offset also ``offset_sd_se``, ``offset_skewness``, ``offset_kurtosis`` (excess)
        and ``offset_p_value`` (D'Agostino and Pearson's test of normality); of a bit
        ``pass_probability`` with ``pass_low`` and ``pass_high``; of a delay ``t_delay_median``.
    """
    names = samples.response_names
    table = fit_responses(samples, [name for name in names if name != "bit"])
    if "offset" in names:
        _add_offset_shape(table, samples)
    if "bit" in names:
        _add_pass_probability(table, samples)
    if "t_delay" in names:
        _add_median_delay(table, samples)
    return table


def _add_offset_shape(table: xr.Dataset, samples: Samples) -> None:
    """How well the standard deviation is known, and whether the offset is normal."""
    offsets = np.where(samples.ok, samples.response("offset"), np.nan)
    shape = np.apply_along_axis(_shape, -1, offsets)
    deviation, kurtosis = table["offset_sd"], shape[..., 1]
    # Var(s^2) = (mu4 - sigma^4) / n to first order, whatever the distribution
    error = deviation.values * np.sqrt((kurtosis + 2) / (4 * np.maximum(table["offset_n"], 1)))
    table["offset_sd"] = deviation.assign_attrs(
        standard_error="offset_sd_se", perturb="normal", valid_min=0.0
    )
    few = f"fewer than {MIN_SHAPE} samples"
    for name, values, units, meaning in (
        ("offset_sd_se", error, "V", "standard error of offset_sd, from the fourth moment"),
        ("offset_skewness", shape[..., 0], "1", "skewness of the offset, 0 if normal"),
        ("offset_kurtosis", kurtosis, "1", "excess kurtosis of the offset, 0 if normal"),
        ("offset_p_value", shape[..., 2], "1", "D'Agostino-Pearson: smaller if not normal"),
    ):
        attributes = {"units": units, "long_name": meaning, "undefined": few}
        table[name] = (samples.axes, np.asarray(values), attributes)


def _shape(offsets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Skewness, excess kurtosis and p-value of normality of the finite offsets."""
    known = offsets[np.isfinite(offsets)]
    if known.size < MIN_SHAPE or np.ptp(known) == 0:
        return np.full(3, np.nan)
    return np.array([stats.skew(known), stats.kurtosis(known), stats.normaltest(known).pvalue])


def _add_pass_probability(table: xr.Dataset, samples: Samples) -> None:
    passes = (samples.ok & (samples.response("bit") == 1.0)).sum(axis=-1)
    low, high = wilson(passes, samples.n, samples.failed)
    table["pass_probability"] = (
        samples.axes,
        np.where(samples.n > 0, passes / np.maximum(samples.n, 1), np.nan),
        {
            "units": "1",
            "long_name": "observed fraction of decisions that latch a 1",
            "valid_min": 0.0,
            "valid_max": 1.0,
            "low": "pass_low",
            "high": "pass_high",
            "perturb": "proportion",
            "undefined": "no sample succeeded",
        },
    )
    limit = "95 % Wilson limit of pass_probability, failed samples taken as"
    table["pass_low"] = (
        samples.axes,
        low,
        {"units": "1", "long_name": f"lower {limit} no pass"},
    )
    table["pass_high"] = (samples.axes, high, {"units": "1", "long_name": f"upper {limit} pass"})


def _add_median_delay(table: xr.Dataset, samples: Samples) -> None:
    """The mean delay is ruled by the few samples near their own trip point, the median not."""
    delays = np.where(samples.ok, samples.response("t_delay"), np.nan)
    known = np.isfinite(delays).any(axis=-1)
    median = np.full(known.shape, np.nan)
    median[known] = np.nanmedian(delays[known], axis=-1)
    table["t_delay_median"] = (
        samples.axes,
        median,
        {
            "units": "s",
            "long_name": "median delay of the decisions that latch a 1",
            "undefined": "no decision latched a 1",
        },
    )
