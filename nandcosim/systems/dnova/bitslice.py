"""Fast exact DTS scoring: cells as bitsets, failures as vertical counters.

For each dimension and each threshold that can split the stored levels, one bit a
vector says whether its cell stays off. A query picks one such row a dimension;
a sensed group is the OR of m rows; deficits are counted 64 vectors a word. An
integer effective level is all that enters, so stored threshold errors cost
nothing. `nandcosim.systems.dnova.kernels` documents the layout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.score import Accumulator, Sense, check_sensing, senses_of

__all__ = ["BitSliced", "candidate_deficits"]

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.uint64(0)


class _Rows:
    """Bit rows of one array of effective levels."""

    def __init__(self, stored: ArrayLike, width: int) -> None:
        from nandcosim.systems.dnova import kernels

        effective = np.ascontiguousarray(stored, dtype=np.int16)
        self.low = int(effective.min())
        self.high = int(effective.max())
        self.width = width
        n, dim = effective.shape
        self.stride = (2 + dim * (self.high - self.low)) * width
        blocks = math.ceil(n / (64 * width))
        # NumPy asks for huge pages; memory allocated inside Numba would not have them.
        self.bits = np.zeros(blocks * self.stride, dtype=np.uint64)
        kernels.pack_rows(effective, self.low, self.high, width, self.bits)

    def plan(
        self, applied: NDArray[np.int64], m: int, cells: int, flip_cell: bool, flip_group: bool
    ) -> NDArray[np.int64]:
        from nandcosim.systems.dnova import kernels

        rows = kernels.plan_rows(
            applied, self.low, self.high, self.width, m, cells, flip_cell, flip_group
        )
        return np.asarray(rows)


class BitSliced:
    """Vectors stored as bit rows, ready to be scored against queries.

    Parameters
    ----------
    original : integer array (n, D)
        Effective levels of the original cells.
    complemented : integer array (n, D), optional
        Effective levels of the complement cells. Absent: perfect complements, which
        need no rows of their own (levels - 1 - r < levels - 1 - q + alpha iff
        not r < q - alpha + 1).
    levels : int
        Levels of a cell.

    Notes
    -----
    Memory is (spread of the levels) / 8 bytes a component: about 2 bytes for perfect
    INT4 cells, against 4 for float32.
    """

    def __init__(
        self, original: ArrayLike, complemented: ArrayLike | None = None, *, levels: int = 16
    ) -> None:
        from nandcosim.systems.dnova import kernels

        first = np.asarray(original)
        if first.ndim != 2 or first.size == 0:
            raise InputError(f"stored levels have shape {first.shape}, allowed: (n, D), n, D > 0")
        self.n, self.dim = first.shape
        self.levels = levels
        width = min(kernels.TILE, 8 * math.ceil(self.n / 512))
        self._original = _Rows(first, width)
        self._complemented: _Rows | None = None
        if complemented is not None:
            second = np.asarray(complemented)
            if second.shape != first.shape:
                raise InputError(
                    f"complement levels have shape {second.shape}, the originals {first.shape}"
                )
            self._complemented = _Rows(second, width)

    @property
    def nbytes(self) -> int:
        """Bytes of all bit rows."""
        extra = self._complemented.bits.nbytes if self._complemented is not None else 0
        return self._original.bits.nbytes + extra

    def deficits(
        self,
        query: ArrayLike,
        *,
        alpha: int = 2,
        m: int = 1,
        metric: str = "dts",
        accumulator: Accumulator | None = None,
        ranges: ArrayLike | None = None,
        out: NDArray[np.uint16] | None = None,
    ) -> NDArray[np.uint16]:
        """Merged deficits, equal to `score.score_deficits`.

        Parameters
        ----------
        query : integer array (D,)
            Codes of the query.
        alpha, m, metric, accumulator
            As in `score.score_deficits`.
        ranges : int array (r, 2), optional
            Half-open ranges of positions to score, all by default. Positions
            outside them are left as they were, or hold their own right deficit.
        out : uint16 array (n,), optional
            Where to write.

        Returns
        -------
        uint16 array (n,)
            `out`, or a new array whose positions outside the ranges are undefined.

        Raises
        ------
        InputError
            If a shape, range, m, alpha or the metric is not allowed.
        """
        from nandcosim.systems.dnova import kernels

        accumulator = accumulator or Accumulator()
        check_sensing(m, alpha, accumulator.cells)
        codes = _query_codes(query, self.dim)
        senses = senses_of(metric)
        worst = accumulator.worst(self.dim, m, len(senses))
        if worst > np.iinfo(np.uint16).max:
            raise InputError(
                f"merged deficit may reach {worst} for {self.dim} dimensions, "
                f"allowed: {np.iinfo(np.uint16).max}; narrow latch_bits"
            )
        spans = self._spans(ranges)
        result = np.empty(self.n, dtype=np.uint16) if out is None else out
        plans = [self._sense(sense, codes, alpha, m, accumulator.cells) for sense in senses]
        nothing = (*plans[0][:2], np.empty((0, 8, 1), dtype=np.int64), _NONE, _NONE)
        kernels.scan_ranges(
            plans[0],
            plans[1] if len(plans) > 1 else nothing,
            self._original.width,
            accumulator.latch_width(self.dim, m),
            worst.bit_length(),
            spans,
            result,
        )
        if accumulator.merge_bits is not None:
            np.minimum(result, np.uint16(2**accumulator.merge_bits - 1), out=result)
        return result

    def _spans(self, ranges: ArrayLike | None) -> NDArray[np.int64]:
        if ranges is None:
            return np.array([[0, self.n]], dtype=np.int64)
        spans = np.asarray(ranges, dtype=np.int64).reshape(-1, 2)
        if spans.size and (spans.min() < 0 or spans.max() > self.n):
            raise InputError(
                f"ranges of positions reach {spans.min()} .. {spans.max()}, allowed: 0 .. {self.n}"
            )
        return spans

    def _sense(
        self, sense: Sense, codes: NDArray[np.int64], alpha: int, m: int, cells: int
    ) -> tuple[Any, ...]:
        rows, applied, flip = self._original, *_perfect(sense, codes, alpha, self.levels)
        if sense.complemented and self._complemented is not None:
            rows, flip = self._complemented, False
            applied = sense.applied_levels(codes, alpha, self.levels)
        plan = rows.plan(applied, m, cells, flip, sense.inverted)
        flips = (_ALL if flip else _NONE, _ALL if sense.inverted else _NONE)
        return (rows.bits, rows.stride, plan, *flips)


def candidate_deficits(
    original: ArrayLike,
    query: ArrayLike,
    *,
    alpha: int = 2,
    m: int = 1,
    levels: int = 16,
    complemented: ArrayLike | None = None,
    metric: str = "dts",
    accumulator: Accumulator | None = None,
) -> NDArray[np.int64]:
    """Merged deficits of a few gathered vectors (re-ranking); arguments of `score_deficits`."""
    from nandcosim.systems.dnova import kernels

    accumulator = accumulator or Accumulator()
    check_sensing(m, alpha, accumulator.cells)
    stored = _by_dimension(original)
    codes = _query_codes(query, stored.shape[0])
    width = accumulator.latch_width(stored.shape[0], m)
    out = np.zeros(stored.shape[1], dtype=np.int64)
    for sense in senses_of(metric):
        cells, applied, flip = stored, *_perfect(sense, codes, alpha, levels)
        if sense.complemented and complemented is not None:
            cells, flip = _by_dimension(complemented), False
            applied = sense.applied_levels(codes, alpha, levels)
        kernels.score_levels(cells, applied, flip, sense.inverted, m, accumulator.cells, width, out)
    if accumulator.merge_bits is not None:
        np.minimum(out, 2**accumulator.merge_bits - 1, out=out)
    return out


def _perfect(
    sense: Sense, codes: NDArray[np.int64], alpha: int, levels: int
) -> tuple[NDArray[np.int64], bool]:
    """Threshold on the *original* level, and whether its bit must be turned round.

    A perfect complement conducts iff levels - 1 - r < t', that is iff not r < levels - t'.
    """
    applied = sense.applied_levels(codes, alpha, levels)
    return (levels - applied, True) if sense.complemented else (applied, False)


def _by_dimension(levels: ArrayLike) -> NDArray[np.int16]:
    return np.ascontiguousarray(np.asarray(levels).T, dtype=np.int16)


def _query_codes(query: ArrayLike, dim: int) -> NDArray[np.int64]:
    codes = np.asarray(query, dtype=np.int64)
    if codes.shape != (dim,):
        raise InputError(f"query has shape {codes.shape}, the stored vectors need ({dim},)")
    return codes
