"""Recall of retrieved ids against a reference list or relevance judgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError

__all__ = ["recall_at", "recall_per_query"]


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


def recall_at(
    retrieved: NDArray[np.integer[Any]], reference: Sequence[Any] | NDArray[Any], k: int
) -> float:
    """Mean of `recall_per_query` over the queries that have a reference; NaN if none has."""
    recall = recall_per_query(retrieved, reference, k)
    known = recall[~np.isnan(recall)]
    return float(known.mean()) if known.size else float("nan")
