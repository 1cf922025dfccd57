"""The table of `cam_string`: currents and sensed matches by query, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import xarray as xr

from nandcosim.intervals import mean_and_error, wilson
from nandcosim.tables.generic import fit_responses
from nandcosim.tables.samples import Samples

__all__ = ["fit_cam_string"]

NO_QUERY = "the layers hold fewer identifiers, or no sample succeeded"


def fit_cam_string(samples: Samples) -> xr.Dataset:
    """Fit the table of a searched string.

    Returns
    -------
    xarray.Dataset
        Over the axes and ``query``: ``current`` with ``_se``, ``_sd``, ``_n``, and
        ``match_probability`` with ``match_low`` and ``match_high``. Over the axes:
        ``miss_probability`` and ``false_match_probability`` (at least one other query is
        sensed as a match) with their limits, and the summaries of the other responses.
    """
    names = samples.response_names
    queries = sorted(int(name[3:]) for name in names if name.startswith("i_q"))
    own = {f"i_q{query}" for query in queries} | {"mask", "missed", "false_matches"}
    table = fit_responses(samples, [name for name in names if name not in own])
    if queries:
        _add_currents(table, samples, queries)
    if "missed" in names:
        missed = samples.response("missed") > 0
        _add_proportion(table, samples, "miss", missed, "match is not sensed")
    if "false_matches" in names:
        wrong = samples.response("false_matches") > 0
        _add_proportion(table, samples, "false_match", wrong, "some other query is sensed")
    return table


def _add_currents(table: xr.Dataset, samples: Samples, queries: list[int]) -> None:
    values = np.stack([samples.response(f"i_q{query}") for query in queries], axis=-2)
    used = samples.ok[..., np.newaxis, :] & np.isfinite(values)
    known = [i for i in range(len(queries)) if used[..., i, :].any()]
    values, used = values[..., known, :], used[..., known, :]
    codes = np.array([queries[i] for i in known])
    described = {"units": "1", "long_name": "identifier searched for", "interpolation": "exact"}
    table.coords["query"] = ("query", codes, described)
    dims = (*samples.axes, "query")
    mean, error, deviation = mean_and_error(values, used)
    count = used.sum(axis=-1)
    quantity = {"units": "A", "undefined": NO_QUERY}
    table["current"] = (
        dims,
        mean,
        quantity
        | {"long_name": "string current", "standard_error": "current_se", "perturb": "normal"},
    )
    table["current_se"] = (dims, error, quantity | {"long_name": "standard error of current"})
    table["current_sd"] = (
        dims,
        deviation,
        quantity | {"long_name": "standard deviation of the samples of current"},
    )
    table["current_n"] = (dims, count, {"units": "1", "long_name": "samples in the mean current"})
    if "mask" not in samples.response_names:
        return
    mask = np.where(samples.ok, samples.response("mask"), 0.0).astype(np.int64)
    sensed = (mask[..., np.newaxis, :] >> codes[:, np.newaxis] & 1).astype(bool) & used
    failed = samples.failed[..., np.newaxis]
    _proportion(table, dims, "match", sensed.sum(axis=-1), count, failed, "query is sensed")
    table["match_probability"].attrs["count"] = "current_n"


def _add_proportion(
    table: xr.Dataset, samples: Samples, name: str, outcome: np.ndarray, what: str
) -> None:
    passes = (samples.ok & outcome).sum(axis=-1)
    _proportion(table, samples.axes, name, passes, samples.n, samples.failed, what)


def _proportion(
    table: xr.Dataset,
    dims: tuple[str, ...],
    name: str,
    passes: np.ndarray,
    n: np.ndarray,
    failed: np.ndarray,
    what: str,
) -> None:
    low, high = wilson(passes, n, np.where(n > 0, failed, 0))
    known = n > 0
    table[f"{name}_probability"] = (
        dims,
        np.where(known, passes / np.maximum(n, 1), np.nan),
        {
            "units": "1",
            "long_name": f"fraction of samples in which the {what}",
            "valid_min": 0.0,
            "valid_max": 1.0,
            "low": f"{name}_low",
            "high": f"{name}_high",
            "perturb": "proportion",
            "undefined": NO_QUERY,
        },
    )
    for side, limit in (("low", low), ("high", high)):
        table[f"{name}_{side}"] = (
            dims,
            limit,
            {"units": "1", "long_name": f"95 % Wilson limit of {name}_probability, {side}"},
        )
