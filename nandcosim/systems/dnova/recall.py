"""Recall of retrieved ids against a reference list or relevance judgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from nandcosim.errors import InputError

__all__ = ["bootstrap_interval", "recall_at", "recall_per_query"]


def recall_per_query(
    retrieved: NDArray[np.integer[Any]], reference: Sequence[Any] | NDArray[Any], k: int
) -> NDArray[np.float64]:
    """Share of each query's reference ids among its first k retrieved ones.

    Parameters
    ----------
    retrieved : int array (nq, >= k)
        Best first; negative ids are padding.
    reference : nq sequences of ids
        The exact neighbours, or the (possibly several) documents judged relevant.
    k : int

    Returns
    -------
    float array (nq,)
        NaN where the reference is empty.

    Raises
    ------
    InputError
        If the number of queries differs or fewer than k ids were retrieved.
    """
    if len(reference) != retrieved.shape[0]:
        raise InputError(
            f"recall: {retrieved.shape[0]} queries retrieved, {len(reference)} in the reference"
        )
    if not 1 <= k <= retrieved.shape[1]:
        raise InputError(f"recall at k = {k}, allowed: 1 .. {retrieved.shape[1]} ids retrieved")
    recall = np.full(retrieved.shape[0], np.nan)
    for i, wanted in enumerate(reference):
        ids = np.unique(np.asarray(wanted, dtype=np.int64))
        ids = ids[ids >= 0]
        if ids.size:
            recall[i] = np.isin(ids, retrieved[i, :k]).mean()
    return recall


def bootstrap_interval(
    per_query: NDArray[np.float64], *, level: float = 0.95, draws: int = 999, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile bootstrap interval of the mean over queries.

    Parameters
    ----------
    per_query : float array (..., nq)
        NaN where a query has no reference; such queries are left out. Rows share their
        resamples, so that what they have in common is resampled alike.
    level : float
        Probability that the interval is to hold the mean.
    draws, seed : int
        Resamples, and the seed of their choice.

    Returns
    -------
    low, high : float arrays (...)
        NaN where fewer than two queries have a reference.
    """
    rows = per_query.reshape(-1, per_query.shape[-1])
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    known = ~np.isnan(rows)
    for pattern in np.unique(known, axis=0):
        alike = np.flatnonzero((known == pattern).all(axis=1))
        if np.count_nonzero(pattern) < 2:
            continue
        found = bootstrap(
            (rows[alike][:, pattern],),
            np.mean,
            axis=-1,
            n_resamples=draws,
            confidence_level=level,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        low[alike], high[alike] = found.low, found.high
    shape = per_query.shape[:-1]
    return low.reshape(shape), high.reshape(shape)


def recall_at(
    retrieved: NDArray[np.integer[Any]], reference: Sequence[Any] | NDArray[Any], k: int
) -> float:
    """Mean of `recall_per_query` over the queries that have a reference; NaN if none has."""
    recall = recall_per_query(retrieved, reference, k)
    known = recall[~np.isnan(recall)]
    return float(known.mean()) if known.size else float("nan")
