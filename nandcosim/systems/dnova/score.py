"""DTS and its bounds in plain NumPy: the readable statement of the scoring rule.

The paper's equations (1) to (4), section 3.2, and its deficits. Speed lives in
`nandcosim.systems.dnova.bitslice`, which equals this module bit for bit.

A stored vector lies along NAND strings of `cells` wordlines, the last one partly
used. Groups of m neighbouring cells are sensed together, never across two
strings, so the last group of a string may be short. A cell conducts iff its
*effective level* is below the applied level; the effective level of a perfect
cell is its code, that of a real one is `nandcosim.systems.dnova.noise`'s business.

Lower bound
-----------
Equation (2) fails a cell at r < q - alpha and so passes r = q - alpha, whereas the
text around it, and Comp UBS by equation (3), ask for r > q - alpha. At m = 1
"UBS + LBS" therefore equals DTS only with the text's strict bound. Both are here:
``ubs+lbs`` is the equation, ``ubs+lbs-strict`` the text (one level higher).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.quantise import complement

__all__ = [
    "METRICS",
    "Accumulator",
    "Sense",
    "check_sensing",
    "dts_score",
    "full_score",
    "group_starts",
    "lbs",
    "merged_deficits",
    "score_deficits",
    "senses_of",
    "string_deficits",
    "ubs",
]


@dataclass(frozen=True)
class Accumulator:
    """How the failures of a vector's groups are added up (section 3.2, delta scoring).

    Attributes
    ----------
    cells : int
        Wordlines a string.
    latch_bits : int, optional
        Width of the saturating deficit of one string; None counts exactly. The
        original string and the complement string have one each; so have the two
        senses of ``ubs+lbs``, whose latch is sent off after each.
    merge_bits : int, optional
        Width of the saturating sum at the controller; None adds exactly. The
        paper's 6 bits do not hold six strings of 4 bits (90), so the default is exact.
    """

    cells: int = 128
    latch_bits: int | None = 4
    merge_bits: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= 32_767:
            raise InputError(f"accumulator: cells = {self.cells}, allowed: 1 .. 32767")
        for name in ("latch_bits", "merge_bits"):
            bits = getattr(self, name)
            if bits is not None and not 1 <= bits <= 15:
                raise InputError(f"accumulator: {name} = {bits}, allowed: 1 .. 15 or None")

    def strings(self, dim: int) -> int:
        """Strings a vector of `dim` components occupies."""
        return math.ceil(dim / self.cells)

    def latch_width(self, dim: int, m: int) -> int:
        """Bits of the string deficit: `latch_bits`, or as many as an exact count needs."""
        if self.latch_bits is not None:
            return self.latch_bits
        return math.ceil(min(dim, self.cells) / m).bit_length()

    def worst(self, dim: int, m: int, senses: int = 2) -> int:
        """Largest merged deficit before `merge_bits` saturates it."""
        return senses * self.strings(dim) * ((1 << self.latch_width(dim, m)) - 1)


@dataclass(frozen=True)
class Sense:
    """One pass of a query over a stored vector.

    Attributes
    ----------
    complemented : bool
        Senses the complement string with the complement query.
    sign : int
        Applied level = query level + sign * alpha + offset.
    offset : int
    inverted : bool
        A group passes when it does *not* conduct.
    """

    complemented: bool = False
    sign: int = 1
    offset: int = 0
    inverted: bool = False

    def applied_levels(self, query: ArrayLike, alpha: int, levels: int) -> NDArray[np.int64]:
        """Level put on each wordline, shape (D,); a cell below it conducts."""
        codes = np.asarray(query, dtype=np.int64)
        codes = complement(codes, levels) if self.complemented else codes
        return codes + self.sign * alpha + self.offset


_UBS = Sense()
METRICS: dict[str, tuple[Sense, ...]] = {
    "dts": (_UBS, Sense(complemented=True)),
    "ubs+lbs": (_UBS, Sense(sign=-1, inverted=True)),
    "ubs+lbs-strict": (_UBS, Sense(sign=-1, offset=1, inverted=True)),
    "ubs": (_UBS,),
}
"""Senses added up by each metric."""


def senses_of(metric: str) -> tuple[Sense, ...]:
    """Senses of a metric by name.

    Raises
    ------
    InputError
        If there is no such metric.
    """
    if metric not in METRICS:
        raise InputError(f"metric {metric!r}: allowed are {', '.join(METRICS)}")
    return METRICS[metric]


def check_sensing(m: int, alpha: int, cells: int) -> None:
    """Refuse a group size or tolerance that cannot be sensed.

    Raises
    ------
    InputError
        If m is not in 1 .. cells, or alpha is no integer of 0 .. 127.
    """
    if not 1 <= m <= cells:
        raise InputError(f"group size m = {m}, allowed: 1 .. {cells} (the cells of a string)")
    if int(alpha) != alpha or not 0 <= alpha <= 127:
        raise InputError(f"tolerance alpha = {alpha}, allowed: whole levels, 0 .. 127")


def group_starts(dim: int, m: int, cells: int = 128) -> NDArray[np.int64]:
    """First dimension of each group sensed together, strings one after the other."""
    return np.concatenate(
        [np.arange(start, min(start + cells, dim), m) for start in range(0, dim, cells)]
    )


def ubs(
    stored: ArrayLike, query: ArrayLike, alpha: int, m: int, cells: int = 128
) -> NDArray[np.bool_]:
    """Upper-bound sensing, equation (1): all cells of a group have r < q + alpha.

    Parameters
    ----------
    stored : integer array (n, D)
        Effective levels. With complements of both arguments this is equation (3).
    query : integer array (D,)
    alpha : int
        Tolerance in levels.
    m, cells : int
        Cells a group, cells a string.

    Returns
    -------
    bool array (n, groups)
    """
    conducts = np.asarray(stored) < np.asarray(query, dtype=np.int64) + alpha
    starts = group_starts(conducts.shape[1], m, cells)
    return np.asarray(np.logical_and.reduceat(conducts, starts, axis=1))


def lbs(
    stored: ArrayLike,
    query: ArrayLike,
    alpha: int,
    m: int,
    cells: int = 128,
    *,
    strict: bool = False,
) -> NDArray[np.bool_]:
    """Lower-bound sensing, equation (2): not all cells of a group have r < q - alpha.

    `strict` asks for one cell with r > q - alpha instead of r >= q - alpha (see
    the module's note). Shapes as in `ubs`.
    """
    return ~ubs(stored, query, -alpha + strict, m, cells)


def string_deficits(
    passes: NDArray[np.bool_], dim: int, m: int, accumulator: Accumulator
) -> NDArray[np.int64]:
    """Failed groups of each string, saturated at the latch: (n, groups) -> (n, strings)."""
    starts = group_starts(dim, m, accumulator.cells)
    first_groups = np.searchsorted(starts, np.arange(0, dim, accumulator.cells))
    failures = np.add.reduceat((~passes).astype(np.int64), first_groups, axis=1)
    return np.asarray(np.minimum(failures, (1 << accumulator.latch_width(dim, m)) - 1))


def score_deficits(
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
    """Merged deficit of each vector: the fewer groups fail, the better the match.

    Parameters
    ----------
    original : integer array (n, D)
        Effective levels of the original cells; may lie outside 0 .. levels - 1.
    query : integer array (D,)
        Codes of the query.
    alpha, m : int
        Tolerance in levels; cells a group.
    levels : int
        Levels of a cell.
    complemented : integer array (n, D), optional
        Effective levels of the complement cells; made from `original` if absent.
    metric : str
        A key of `METRICS`.
    accumulator : Accumulator, optional

    Returns
    -------
    int64 array (n,)
        With nothing saturated, `full_score` minus the score of equation (4).

    Raises
    ------
    InputError
        If m, alpha or the metric is not allowed.
    """
    accumulator = accumulator or Accumulator()
    check_sensing(m, alpha, accumulator.cells)
    stored = np.asarray(original)
    dim = stored.shape[1]
    per_string = []
    for sense in senses_of(metric):
        cells = stored
        if sense.complemented:
            cells = complement(stored, levels) if complemented is None else np.asarray(complemented)
        passes = ubs(cells, sense.applied_levels(query, alpha, levels), 0, m, accumulator.cells)
        if sense.inverted:
            passes = ~passes
        per_string.append(string_deficits(passes, dim, m, accumulator))
    return merged_deficits(np.concatenate(per_string, axis=1), accumulator)


def merged_deficits(per_string: NDArray[np.int64], accumulator: Accumulator) -> NDArray[np.int64]:
    """Sum over strings at the controller, saturated at `merge_bits`: (n, strings) -> (n,)."""
    total = np.asarray(per_string.sum(axis=1))
    if accumulator.merge_bits is not None:
        total = np.minimum(total, 2**accumulator.merge_bits - 1)
    return total


def full_score(dim: int, m: int, cells: int = 128, metric: str = "dts") -> int:
    """Score of a vector whose every group passes: groups times senses."""
    return len(senses_of(metric)) * group_starts(dim, m, cells).size


def dts_score(
    original: ArrayLike,
    query: ArrayLike,
    *,
    alpha: int = 2,
    m: int = 1,
    levels: int = 16,
    cells: int = 128,
    complemented: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Equation (4): groups that pass UBS plus groups that pass Comp UBS, shape (n,)."""
    stored = np.asarray(original)
    mirrored = complement(stored, levels) if complemented is None else np.asarray(complemented)
    upper = ubs(stored, query, alpha, m, cells)
    lower = ubs(mirrored, complement(np.asarray(query), levels), alpha, m, cells)
    return np.asarray(upper.sum(axis=1) + lower.sum(axis=1), dtype=np.int64)
