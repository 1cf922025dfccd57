"""A corpus: document vectors, query vectors and which documents answer which query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError

__all__ = ["Corpus", "Metric"]

#: How two vectors are compared by the people who made them.
Metric = Literal["cosine", "euclidean", "inner_product"]

#: Rows examined at a time, so that a memory-mapped matrix is never read whole.
_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents and queries as vectors, with relevance judgements where they exist.

    Arrays are converted to float32 and checked on construction; a memory-mapped
    float32 matrix stays memory-mapped.

    Attributes
    ----------
    name : str
        Label for tables and figures.
    vectors : ndarray, shape (n, D), float32
        One row a document.
    queries : ndarray, shape (nq, D), float32
        One row a query.
    relevance : tuple of tuples of int, length nq, optional
        For each query the rows of `vectors` that people judged relevant.
    neighbours : ndarray, shape (nq, k), int64, optional
        Exact nearest rows of `vectors`, nearest first, where the source gives
        them (ann-benchmarks). Geometry, not judgement: kept apart from `relevance`.
    ids, texts : tuple of str, length n, optional
        Identifier and text of each document.
    query_ids, query_texts : tuple of str, length nq, optional
    metric : {"cosine", "euclidean", "inner_product"}
        Comparison the vectors are meant for.
    licence, provenance : str
        Terms of the data; where it came from and what was done to it.

    Raises
    ------
    InputError
        If shapes, lengths or row numbers disagree, a matrix is empty, or a row
        is not finite.
    """

    name: str
    vectors: NDArray[np.float32]
    queries: NDArray[np.float32]
    relevance: tuple[tuple[int, ...], ...] | None = None
    neighbours: NDArray[np.int64] | None = None
    ids: tuple[str, ...] | None = None
    texts: tuple[str, ...] | None = None
    query_ids: tuple[str, ...] | None = None
    query_texts: tuple[str, ...] | None = None
    metric: Metric = "cosine"
    licence: str = ""
    provenance: str = ""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "vectors", _matrix(self.vectors, "vectors"))
        set_field(self, "queries", _matrix(self.queries, "queries"))
        if self.vectors.shape[1] != self.queries.shape[1]:
            raise InputError(
                f"queries have {self.queries.shape[1]} dimensions, "
                f"the document vectors {self.vectors.shape[1]}: they must agree"
            )
        for field, length in (
            ("ids", self.n), ("texts", self.n),
            ("query_ids", self.nq), ("query_texts", self.nq), ("relevance", self.nq),
        ):  # fmt: skip
            _check_length(field, getattr(self, field), length)
        if self.relevance is not None:
            set_field(self, "relevance", _rows_per_query(self.relevance, self.n))
        if self.neighbours is not None:
            set_field(self, "neighbours", _neighbour_rows(self.neighbours, self.nq, self.n))

    @property
    def n(self) -> int:
        """Number of documents."""
        return int(self.vectors.shape[0])

    @property
    def nq(self) -> int:
        """Number of queries."""
        return int(self.queries.shape[0])

    @property
    def dimension(self) -> int:
        """Number of components of a vector."""
        return int(self.vectors.shape[1])

    def select_queries(self, rows: slice | ArrayLike) -> Corpus:
        """Return the same documents with some of the queries.

        Parameters
        ----------
        rows : slice or array of int, shape (k,)
            Rows of `queries` to keep, in this order.

        Returns
        -------
        Corpus
        """
        kept = np.arange(self.nq)[rows if isinstance(rows, slice) else np.asarray(rows)]

        def pick(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
            return None if values is None else tuple(values[row] for row in kept)

        return replace(
            self,
            queries=self.queries[kept],
            relevance=pick(self.relevance),
            neighbours=None if self.neighbours is None else self.neighbours[kept],
            query_ids=pick(self.query_ids),
            query_texts=pick(self.query_texts),
        )

    def normalised(self) -> Corpus:
        """Return the corpus with every vector scaled to length 1.

        The inner product of unit vectors is their cosine.

        Raises
        ------
        InputError
            If a vector is zero, so that it has no direction.
        """
        return replace(
            self,
            vectors=_unit_rows(self.vectors, "vectors"),
            queries=_unit_rows(self.queries, "queries"),
        )


def _matrix(values: ArrayLike, field: str) -> NDArray[np.float32]:
    array = np.asanyarray(values)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{field}: found data of type {array.dtype}, expected numbers")
    if array.ndim != 2:
        raise InputError(
            f"{field}: found {array.ndim} dimensions {array.shape}, expected 2: one row a vector"
        )
    if 0 in array.shape:
        raise InputError(f"{field}: found shape {array.shape}, expected at least one vector")
    with np.errstate(over="ignore"):  # a value beyond float32 becomes inf and is reported below
        matrix = array.astype(np.float32, copy=False)
    for start in range(0, matrix.shape[0], _BLOCK):
        finite = np.isfinite(matrix[start : start + _BLOCK]).all(axis=1)
        if not finite.all():
            row = start + int(np.flatnonzero(~finite)[0])
            raise InputError(f"{field}: row {row} holds NaN or infinity, expected finite numbers")
    return matrix


def _check_length(field: str, values: Sequence[Any] | None, length: int) -> None:
    if values is not None and len(values) != length:
        raise InputError(f"{field}: found {len(values)} entries, expected {length}")


def _rows_per_query(relevance: Sequence[Sequence[int]], n: int) -> tuple[tuple[int, ...], ...]:
    rows = tuple(tuple(int(row) for row in relevant) for relevant in relevance)
    for query, relevant in enumerate(rows):
        for row in relevant:
            if not 0 <= row < n:
                raise InputError(
                    f"relevance: query {query} names document row {row}, expected 0 to {n - 1}"
                )
    return rows


def _neighbour_rows(neighbours: ArrayLike, nq: int, n: int) -> NDArray[np.int64]:
    array = np.asarray(neighbours)
    if array.ndim != 2 or array.shape[0] != nq or array.dtype.kind not in "iu":
        raise InputError(
            f"neighbours: found {array.dtype} of shape {array.shape}, "
            f"expected integers of shape ({nq}, k)"
        )
    if array.size and not (array.min() >= 0 and array.max() < n):
        raise InputError(
            f"neighbours: found row numbers {array.min()} to {array.max()}, expected 0 to {n - 1}"
        )
    return array.astype(np.int64)


def _unit_rows(matrix: NDArray[np.float32], field: str) -> NDArray[np.float32]:
    # float64 sums: squares of large float32 components would overflow
    length = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
    if not length.all():
        row = int(np.flatnonzero(length == 0)[0])
        raise InputError(f"{field}: row {row} is zero and has no direction to compare")
    unit: NDArray[np.float32] = (matrix / length[:, None]).astype(np.float32)
    return unit
