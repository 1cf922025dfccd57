"""The in-storage and near-storage baselines, executed: REIS and NSP (section 5.4).

Both search the same normalised vectors in the same inverted lists as D-NOVA, so that
recall differs by the method alone.

REIS
    The paper: it "performs cluster selection and binary coarse search inside NAND,
    followed by INT8 re-ranking in the controller". Every vector has one bit a
    component, and stages 1 and 2 rank by Hamming distance; stage 3 ranks the nearest
    by the INT8 dot product. What a bit says is not stated: here, whether a component
    is above the corpus mean of its dimension.
NSP
    INT8 cosine similarity in stages 1 and 2; stage 3 sorts what stage 2 kept.

INT8 codes are symmetric, with one scale for all vectors, so that the dot product of
two codes ranks as the cosine of the vectors up to rounding. All arithmetic is on
integers, and equal scores rank by id: there is one order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult, normalised

__all__ = [
    "CodedLists",
    "binary_codes",
    "hamming_distances",
    "int8_codes",
    "int8_products",
    "nsp_search",
    "reis_search",
]

_ID_BITS = 32
"""Ids below 2**32 and scores of up to 31 bits share one sortable integer."""

_LIST_SELECTIONS = ("hamming", "fp32")


def binary_codes(vectors: ArrayLike, centre: ArrayLike) -> NDArray[np.uint64]:
    """One bit a component: whether it is above the centre.

    Parameters
    ----------
    vectors : float array (n, D)
    centre : float array (D,) or ()

    Returns
    -------
    uint64 array (n, ceil(D / 64))
        Bits in order of component, the last word filled up with zeros.
    """
    above = np.packbits(np.asarray(vectors) > np.asarray(centre), axis=1)
    missing = -above.shape[1] % 8
    return np.ascontiguousarray(np.pad(above, ((0, 0), (0, missing)))).view(np.uint64)


def int8_codes(vectors: ArrayLike) -> NDArray[np.int8]:
    """Symmetric INT8 codes, -127 .. 127, with one scale: that of the largest component.

    Parameters
    ----------
    vectors : float array (..., D)
        Not all zero.
    """
    values = np.asarray(vectors, dtype=np.float64)
    return np.asarray(np.rint(values * (127.0 / np.abs(values).max())), dtype=np.int8)


def hamming_distances(codes: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bits in which each of (n, words) differs from a query (words,); shape (n,)."""
    differing = np.bitwise_count(codes ^ query)
    return np.asarray(differing.sum(axis=1, dtype=np.int64))


def int8_products(codes: NDArray[np.int8], query: NDArray[np.int8]) -> NDArray[np.int64]:
    """Dot products of (n, D) with a query (D,), exact in 32 bits up to D = 133,143."""
    return np.asarray(np.matmul(codes, query, dtype=np.int32), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CodedLists:
    """Inverted lists whose vectors are stored as one-bit and as INT8 codes.

    Made by `CodedLists.build` or `CodedLists.of`. Positions number the vectors list by
    list, and by id within a list.

    Attributes
    ----------
    offsets : int64 array (nlist + 1,)
        List i holds positions offsets[i] .. offsets[i + 1] - 1.
    ids : int64 array (n,)
        Row of the corpus at each position.
    bits : uint64 array (n, words)
    codes : int8 array (n, D)
    centroids : float32 array (nlist, D)
    centre : float32 array (D,)
        What a component is compared with for its bit.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    bits: NDArray[np.uint64]
    codes: NDArray[np.int8]
    centroids: NDArray[np.float32]
    centre: NDArray[np.float32]

    @classmethod
    def build(
        cls,
        vectors: ArrayLike,
        centroids: ArrayLike,
        assignment: ArrayLike,
        *,
        centre: str = "mean",
    ) -> CodedLists:
        """Code a corpus that is already clustered.

        Parameters
        ----------
        vectors : float array (n, D)
            Compared by cosine: rows are normalised.
        centroids : float array (nlist, D)
        assignment : int array (n,)
            List of each vector.
        centre : {"mean", "zero"}
            What the bits are relative to: the corpus mean of each dimension, or 0.

        Raises
        ------
        InputError
            If shapes disagree, a list does not exist, or the centre is neither.
        """
        unit = normalised(vectors)
        means = np.asarray(centroids, dtype=np.float32)
        member = np.asarray(assignment)
        if means.ndim != 2 or means.shape[1] != unit.shape[1]:
            raise InputError(
                f"coded lists: centroids have shape {means.shape}, "
                f"allowed: (nlist, {unit.shape[1]})"
            )
        if member.shape != (len(unit),):
            raise InputError(
                f"coded lists: assignment has shape {member.shape}, allowed: ({len(unit)},)"
            )
        if member.min() < 0 or member.max() >= len(means):
            raise InputError(
                f"coded lists: lists {member.min()} .. {member.max()} are assigned, "
                f"allowed: 0 .. {len(means) - 1}"
            )
        if centre not in ("mean", "zero"):
            raise InputError(f"coded lists: centre {centre!r}, allowed: 'mean' and 'zero'")
        middle = np.zeros(unit.shape[1], np.float32)
        if centre == "mean":
            middle = unit.mean(axis=0, dtype=np.float64).astype(np.float32)
        ids = np.argsort(member, kind="stable").astype(np.int64)
        offsets = np.zeros(len(means) + 1, dtype=np.int64)
        np.cumsum(np.bincount(member, minlength=len(means)), out=offsets[1:])
        return cls(
            offsets=offsets,
            ids=ids,
            bits=binary_codes(unit, middle)[ids],
            codes=int8_codes(unit)[ids],
            centroids=means,
            centre=middle,
        )

    @classmethod
    def of(cls, index: IvfIndex, vectors: ArrayLike, *, centre: str = "mean") -> CodedLists:
        """Code the corpus of an index in that index' own lists; see `build`."""
        return cls.build(vectors, index.centroids, index.assignment, centre=centre)

    @property
    def nlist(self) -> int:
        """Number of lists."""
        return len(self.centroids)

    def positions(self, lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of everything in some lists."""
        spans = zip(self.offsets[lists], self.offsets[lists + 1], strict=True)
        return np.concatenate([np.arange(start, end) for start, end in spans])


def reis_search(
    lists: CodedLists,
    queries: ArrayLike,
    *,
    nprobe: int = 64,
    candidates: int = 20_000,
    k1: int = 100,
    select_lists: str = "hamming",
) -> SearchResult:
    """Search as REIS does: binary codes in stages 1 and 2, INT8 in stage 3.

    Parameters
    ----------
    lists : CodedLists
    queries : float array (nq, D)
        Normalised like the corpus; their bits are relative to its centre.
    nprobe, candidates, k1 : int
        Lists probed, vectors re-ranked (fewer where the lists hold fewer), results kept.
    select_lists : {"hamming", "fp32"}
        How stage 1 ranks centroids: by their bits, as in NAND, or by inner product.

    Returns
    -------
    SearchResult
        Scores are dot products of the codes. `candidates` has as many columns as the
        query with the most candidates needs.

    Raises
    ------
    InputError
        If an argument is not allowed.
    """
    if select_lists not in _LIST_SELECTIONS:
        raise InputError(
            f"REIS: select_lists = {select_lists!r}, allowed: {', '.join(_LIST_SELECTIONS)}"
        )
    rows = _checked(lists, queries, nprobe, candidates, k1, "REIS")
    bits = binary_codes(rows, lists.centre)
    centroid_bits = binary_codes(lists.centroids, lists.centre)

    def search_one(i: int) -> _Found:
        if select_lists == "hamming":
            distances = hamming_distances(centroid_bits, bits[i])
            probed = _smallest(distances, np.arange(lists.nlist), nprobe)
        else:
            probed = np.argsort(-(lists.centroids @ rows[i]), kind="stable")[:nprobe]
        listed = lists.positions(probed)
        distances = hamming_distances(lists.bits[listed], bits[i])
        kept = listed[_smallest(distances, lists.ids[listed], candidates)]
        products = int8_products(lists.codes[kept], int8_codes(rows[i]))
        best = _smallest(-products, lists.ids[kept], k1)
        return _Found(probed, listed.size, kept, kept.size, kept[best], products[best])

    return _collected(lists, search_one, len(rows), k1)


def nsp_search(
    lists: CodedLists, queries: ArrayLike, *, nprobe: int = 64, k2: int = 1000, k1: int = 100
) -> SearchResult:
    """Search as NSP does: INT8 cosine in stages 1 and 2; stage 3 only sorts.

    Parameters
    ----------
    lists : CodedLists
    queries : float array (nq, D)
    nprobe, k2, k1 : int
        Lists probed, vectors that stage 2 keeps, results.

    Returns
    -------
    SearchResult
        Nothing is scored in stage 3, so `scanned` is 0 there.

    Raises
    ------
    InputError
        If an argument is not allowed.
    """
    rows = _checked(lists, queries, nprobe, k2, k1, "NSP")
    centroid_codes = int8_codes(lists.centroids)

    def search_one(i: int) -> _Found:
        query = int8_codes(rows[i])
        similarities = int8_products(centroid_codes, query)
        probed = _smallest(-similarities, np.arange(lists.nlist), nprobe)
        listed = lists.positions(probed)
        products = int8_products(lists.codes[listed], query)
        best = _smallest(-products, lists.ids[listed], k2)
        kept = listed[best]
        return _Found(probed, listed.size, kept, 0, kept[:k1], products[best[:k1]])

    return _collected(lists, search_one, len(rows), k1)


@dataclass(frozen=True, eq=False)
class _Found:
    """One query's result, in positions; `scored` counts the vectors stage 3 scored."""

    lists: NDArray[np.int64]
    listed: int
    kept: NDArray[np.int64]
    scored: int
    best: NDArray[np.int64]
    scores: NDArray[np.int64]


def _checked(
    lists: CodedLists, queries: ArrayLike, nprobe: int, kept: int, k1: int, who: str
) -> NDArray[np.float32]:
    """Normalised queries, once the arguments are known to be allowed."""
    rows = normalised(queries)
    if rows.shape[1] != lists.codes.shape[1]:
        raise InputError(
            f"{who}: queries have {rows.shape[1]} dimensions, the lists have {lists.codes.shape[1]}"
        )
    if not 1 <= nprobe <= lists.nlist:
        raise InputError(f"{who}: nprobe = {nprobe}, allowed: 1 .. {lists.nlist} (the lists)")
    if not 1 <= k1 <= kept:
        raise InputError(f"{who}: k1 = {k1} of {kept} candidates, allowed: 1 .. {kept}")
    return rows


def _smallest(values: NDArray[np.int64], ids: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Indices of the k smallest by (value, id), in that order."""
    keys = (values << _ID_BITS) | ids
    chosen = np.argpartition(keys, k - 1)[:k] if k < keys.size else np.arange(keys.size)
    return chosen[np.argsort(keys[chosen])]


def _collected(
    lists: CodedLists, search_one: Callable[[int], _Found], count: int, k1: int
) -> SearchResult:
    """Search every query and stack what was found, padded."""
    found = [search_one(i) for i in range(count)]
    widest = max(one.kept.size for one in found)
    ids = np.full((count, k1), -1, dtype=np.int64)
    scores = np.full((count, k1), np.nan)
    kept = np.full((count, widest), -1, dtype=np.int64)
    for i, one in enumerate(found):
        ids[i, : one.best.size] = lists.ids[one.best]
        scores[i, : one.best.size] = one.scores
        kept[i, : one.kept.size] = lists.ids[one.kept]
    return SearchResult(
        ids=ids,
        scores=scores,
        scanned=np.array([[lists.nlist, one.listed, one.scored] for one in found]),
        lists=np.stack([one.lists for one in found]),
        candidates=kept,
    )
