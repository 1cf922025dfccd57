"""Which sub-block each vector lies in, and which sub-blocks a query touches (section 4.3).

A sub-block here is the logical one: the 2 * ceil(D / wordlines) physical sub-blocks that
hold the strings of the same vectors and are sensed together, so its capacity is the
bitlines of a plane, in vectors. Inverted lists are packed into sub-blocks in an order,
which is the mapping:

- ``naive``: largest list first;
- ``locality``: along a greedy nearest-neighbour chain over the centroids.

Both use one packing rule. By ``first-fit`` a list goes whole into the first sub-block
that has room, else into a new one; a list larger than a sub-block fills sub-blocks of
its own, and what is left of it is placed like a list. The paper names this rule, and
does not say more. Two others are here because the choice matters: ``next-fit`` looks only
at the latest sub-block, so that the order of the lists stays; ``continuous`` keeps the order
too, leaves no gap, and cuts lists at the ends of sub-blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from nandcosim.errors import InputError

__all__ = [
    "Arrival",
    "Layout",
    "Mapping",
    "Packing",
    "Touches",
    "list_chain",
    "place",
    "touched",
    "touched_centroids",
    "touched_lists",
]

Mapping = Literal["naive", "locality"]
Packing = Literal["first-fit", "next-fit", "continuous"]
Arrival = Literal["arrival", "lists"]


@dataclass(frozen=True, eq=False)
class Touches:
    """Sub-blocks that one stage of a batch of queries activates.

    Query i activates entries offsets[i] .. offsets[i + 1] - 1.

    Attributes
    ----------
    offsets : int64 array (nq + 1,)
    subblocks : int64 array (nnz,)
        Sub-block numbers, ascending within a query, each once.
    vectors : int64 array (nnz,)
        Vectors of the query's scored in each.
    """

    offsets: NDArray[np.int64]
    subblocks: NDArray[np.int64]
    vectors: NDArray[np.int64]

    def counts(self) -> NDArray[np.int64]:
        """Sub-blocks activated by each query, shape (nq,)."""
        return np.diff(self.offsets)

    def scored(self) -> NDArray[np.int64]:
        """Vectors scored for each query, shape (nq,)."""
        total = np.concatenate([[0], np.cumsum(self.vectors)])
        return np.asarray(np.diff(total[self.offsets]))

    def busiest(self, units: int) -> NDArray[np.int64]:
        """Most activations of a query that fall on one plane group, shape (nq,).

        Parameters
        ----------
        units : int
            Plane groups that share the index: sub-block i lives on group i % units.

        Raises
        ------
        InputError
            If `units` is below 1.
        """
        if units < 1:
            raise InputError(f"touches: units = {units}, allowed: 1 or more plane groups")
        nq = self.offsets.size - 1
        query = np.repeat(np.arange(nq), self.counts())
        load = np.bincount(query * units + self.subblocks % units, minlength=nq * units)
        return np.asarray(load.reshape(nq, units).max(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Layout:
    """Placement of the rows of a corpus. Made by `place`.

    Attributes
    ----------
    subblock : int64 array (n,)
        Sub-block of each row; -1 where there is none of that number.
    assignment : int64 array (n,)
        Inverted list of each row, or -1.
    nlist : int
        Inverted lists.
    capacity : int
        Vectors that a sub-block holds.
    """

    subblock: NDArray[np.int64]
    assignment: NDArray[np.int64]
    nlist: int
    capacity: int

    @cached_property
    def subblocks(self) -> int:
        """Sub-blocks in use."""
        return int(self.subblock.max(initial=-1)) + 1

    @cached_property
    def segments(self) -> csr_array:
        """Vectors of each list in each sub-block, shape (nlist, subblocks)."""
        there = self.subblock >= 0
        pairs = (self.assignment[there], self.subblock[there])
        return _counted(*pairs, (self.nlist, self.subblocks))

    @property
    def fill(self) -> float:
        """Share of the capacity of the sub-blocks in use that holds vectors."""
        stored = np.count_nonzero(self.subblock >= 0)
        return stored / max(self.subblocks * self.capacity, 1)

    def append(self, assignment: ArrayLike, order: Arrival = "arrival") -> Layout:
        """Place a batch of later documents behind the rest, without regard to locality.

        They open a sub-block of their own: a wordline of a sub-block is one page, which is
        programmed once, so bitlines left over in an older sub-block cannot be filled later.

        Parameters
        ----------
        assignment : int array (n_new,)
            List of each new row; the rows are numbered on.
        order : {"arrival", "lists"}
            ``arrival`` packs them one after the other as they come; ``lists`` gathers those
            of a list and packs the gathered lists by the naive mapping.

        Returns
        -------
        Layout
            Of all rows; where the old ones are has not changed.

        Raises
        ------
        InputError
            If a list does not exist or there is no such order.
        """
        member = _members(assignment, self.nlist, least=0)
        if order == "lists":
            sizes = np.bincount(member, minlength=self.nlist)
            later = _packed(_by_size(sizes), sizes, member, self.capacity, "first-fit")
        elif order == "arrival":
            later = np.arange(member.size, dtype=np.int64) // self.capacity
        else:
            raise InputError(_unknown("order", order, Arrival))
        return Layout(
            subblock=np.concatenate([self.subblock, self.subblocks + later]),
            assignment=np.concatenate([self.assignment, member]),
            nlist=self.nlist,
            capacity=self.capacity,
        )


def place(
    list_sizes: ArrayLike,
    centroids: ArrayLike,
    assignment: ArrayLike,
    capacity: int,
    mapping: Mapping = "locality",
    *,
    packing: Packing = "first-fit",
) -> Layout:
    """Pack the inverted lists of an index into sub-blocks (section 4.3).

    Parameters
    ----------
    list_sizes : int array (nlist,)
        Vectors in each list.
    centroids : float array (nlist, D)
    assignment : int array (n,)
        List of each row of the corpus; -1 where there is no row of that number.
    capacity : int
        Vectors a sub-block: the bitlines of a plane.
    mapping : {"naive", "locality"}
        Order of the lists: largest first (equal ones by number), or along `list_chain`.
    packing : {"first-fit", "next-fit", "continuous"}
        See the module's note.

    Returns
    -------
    Layout

    Raises
    ------
    InputError
        If shapes or values disagree, or a name is unknown.
    """
    sizes = np.asarray(list_sizes, dtype=np.int64)
    rows = np.asarray(centroids, dtype=np.float32)
    if sizes.ndim != 1 or sizes.size == 0:
        raise InputError(f"mapping: list_sizes has shape {sizes.shape}, allowed: (nlist,), > 0")
    if rows.ndim != 2 or rows.shape[0] != sizes.size:
        raise InputError(f"mapping: centroids have shape {rows.shape}, allowed: ({sizes.size}, D)")
    if capacity < 1:
        raise InputError(f"mapping: capacity = {capacity}, allowed: 1 or more vectors")
    member = _members(assignment, sizes.size, least=-1)
    there = member >= 0
    if not np.array_equal(np.bincount(member[there], minlength=sizes.size), sizes):
        raise InputError("mapping: list_sizes are not the sizes of the lists in assignment")
    if mapping == "naive":
        order = _by_size(sizes)
    elif mapping == "locality":
        order = list_chain(sizes, rows)
    else:
        raise InputError(_unknown("mapping", mapping, Mapping))
    subblock = np.full(member.size, -1, dtype=np.int64)
    subblock[there] = _packed(order, sizes, member[there], capacity, packing)
    return Layout(subblock, member, sizes.size, capacity)


def list_chain(list_sizes: ArrayLike, centroids: ArrayLike) -> NDArray[np.int64]:
    """Greedy nearest-neighbour walk over the centroids from the largest list (section 4.3).

    Takes one matrix of nlist * nlist float32 and O(nlist^2 * D) operations in BLAS.

    Parameters
    ----------
    list_sizes : int array (nlist,)
    centroids : float array (nlist, D)

    Returns
    -------
    int64 array (nlist,)
        Lists in the order of the walk; of equal distances the smaller number goes first.
    """
    rows = np.asarray(centroids, dtype=np.float32)
    nlist = rows.shape[0]
    half_squares = 0.5 * np.einsum("ij,ij->i", rows, rows)
    # Half the squared distance less what the last centroid adds to all of them alike.
    apart = half_squares - rows @ rows.T
    chain = np.empty(nlist, dtype=np.int64)
    last = int(np.argmax(list_sizes))
    for step in range(nlist):
        chain[step] = last
        apart[:, last] = np.inf
        last = int(np.argmin(apart[last]))
    return chain


def touched(layout: Layout, ids_per_query: ArrayLike) -> Touches:
    """Sub-blocks that hold given rows: stage 3 on the candidates of stage 2.

    Parameters
    ----------
    layout : Layout
    ids_per_query : int array (nq, k)
        Distinct rows of the corpus; -1 is padding.

    Raises
    ------
    InputError
        If a row does not exist.
    """
    query, rows = _pairs(ids_per_query, layout.subblock.size, "row")
    where = layout.subblock[rows]
    if where.size and where.min() < 0:
        absent = rows[np.argmin(where)]
        raise InputError(f"touches: row {absent}, allowed: rows that the layout has placed")
    nq = len(np.asarray(ids_per_query))
    return _touches(_counted(query, where, (nq, layout.subblocks)))


def touched_lists(layout: Layout, lists_per_query: ArrayLike) -> Touches:
    """Sub-blocks that hold all vectors of given lists: stage 2 on the lists of stage 1.

    Parameters
    ----------
    layout : Layout
    lists_per_query : int array (nq, nprobe)
        Distinct lists; -1 is padding.

    Raises
    ------
    InputError
        If a list does not exist.
    """
    query, lists = _pairs(lists_per_query, layout.nlist, "list")
    nq = len(np.asarray(lists_per_query))
    return _touches(_counted(query, lists, (nq, layout.nlist)) @ layout.segments)


def touched_centroids(nq: int, nlist: int, capacity: int) -> Touches:
    """Sub-blocks of stage 1: every query scores all centroids, which have sub-blocks of their own.

    They are numbered from 0 apart from those of the vectors (section 3.3: the first
    sub-block of a plane).
    """
    per_query = math.ceil(nlist / capacity)
    sizes = np.full(per_query, capacity, dtype=np.int64)
    sizes[-1] = nlist - (per_query - 1) * capacity
    return Touches(
        offsets=per_query * np.arange(nq + 1, dtype=np.int64),
        subblocks=np.tile(np.arange(per_query, dtype=np.int64), nq),
        vectors=np.tile(sizes, nq),
    )


class _Pieces(NamedTuple):
    """Parts of lists, in order of placing; those of one list in order of its rows."""

    lists: NDArray[np.int64]
    subblocks: NDArray[np.int64]
    sizes: NDArray[np.int64]


def _packed(
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    member: NDArray[np.int64],
    capacity: int,
    packing: Packing,
) -> NDArray[np.int64]:
    """Sub-block of each row when the lists are packed in `order`."""
    subblock = np.empty(member.size, dtype=np.int64)
    if packing == "continuous":
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        rows = np.argsort(rank[member], kind="stable")
        subblock[rows] = np.arange(member.size, dtype=np.int64) // capacity
    elif packing in ("first-fit", "next-fit"):
        pieces = _fitted(order, sizes, capacity, latest_only=packing == "next-fit")
        by_list = np.argsort(pieces.lists, kind="stable")
        rows = np.argsort(member, kind="stable")
        subblock[rows] = np.repeat(pieces.subblocks[by_list], pieces.sizes[by_list])
    else:
        raise InputError(_unknown("packing", packing, Packing))
    return subblock


def _fitted(
    order: NDArray[np.int64], sizes: NDArray[np.int64], capacity: int, *, latest_only: bool
) -> _Pieces:
    free = np.full(int(np.sum(-(-sizes // capacity))) + 1, capacity, dtype=np.int64)
    pieces: list[tuple[int, int, int]] = []
    used = 0
    for one in order:
        left = int(sizes[one])
        while left:
            piece = min(left, capacity)
            first = max(used - 1, 0) if latest_only else 0
            # The sub-block after those in use is empty, so there always is one with room.
            target = first + int(np.argmax(free[first : used + 1] >= piece))
            used = max(used, target + 1)
            free[target] -= piece
            left -= piece
            pieces.append((int(one), target, piece))
    return _Pieces(*np.array(pieces, dtype=np.int64).reshape(-1, 3).T)


def _by_size(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.argsort(-sizes, kind="stable").astype(np.int64)


def _counted(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> csr_array:
    """How often each (row, column) occurs."""
    ones = np.ones(rows.size, dtype=np.int64)
    counted = csr_array((ones, (rows, columns)), shape=shape)
    counted.sum_duplicates()
    return counted


def _touches(matrix: csr_array) -> Touches:
    matrix.sort_indices()
    return Touches(
        offsets=matrix.indptr.astype(np.int64),
        subblocks=matrix.indices.astype(np.int64),
        vectors=matrix.data.astype(np.int64),
    )


def _pairs(
    numbers: ArrayLike, count: int, what: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Query and number of each entry that is not padding."""
    table = np.asarray(numbers, dtype=np.int64)
    if table.ndim != 2:
        raise InputError(f"touches: {what}s have shape {table.shape}, allowed: (nq, k)")
    if table.size and not -1 <= table.min() <= table.max() < count:
        raise InputError(
            f"touches: {what}s {table.min()} .. {table.max()}, allowed: 0 .. {count - 1}, or -1"
        )
    query, place_in_row = np.nonzero(table >= 0)
    return query, table[query, place_in_row]


def _members(assignment: ArrayLike, nlist: int, *, least: int) -> NDArray[np.int64]:
    member = np.asarray(assignment, dtype=np.int64)
    if member.ndim != 1:
        raise InputError(f"mapping: assignment has shape {member.shape}, allowed: (n,)")
    if member.size and not least <= member.min() <= member.max() < nlist:
        raise InputError(
            f"mapping: assignment to lists {member.min()} .. {member.max()}, "
            f"allowed: {least} .. {nlist - 1}"
        )
    return member


def _unknown(what: str, found: object, allowed: object) -> str:
    return f"mapping: {what} {found!r}, allowed: {', '.join(get_args(allowed))}"
