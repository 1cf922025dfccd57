"""Levels of vectors as bit planes, list by list, and how a query compares with them.

The compiled counterpart of `nandcosim.systems.dnova.score` that an inverted file
uses; `nandcosim.systems.dnova.plane_kernels` documents the layout. INT4 cells take half
a byte a component, counted in whole 128 components. A perfect complement needs no
planes of its own (levels - 1 - r < levels - 1 - q + alpha iff not r < q - alpha + 1);
real cells have two stores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.score import Accumulator, check_sensing, group_starts, senses_of

__all__ = ["PlaneLists", "Rule", "planes_for", "words_of"]

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.uint64(0)
_PAIR = 128
"""Components that two machine words share."""


def words_of(dim: int) -> int:
    """Machine words that one bit of `dim` components takes: whole pairs."""
    return 2 * math.ceil(dim / _PAIR)


def planes_for(levels: int, alpha: int | None = None) -> tuple[int, int]:
    """Bit planes of a store, and the level that it holds as 0.

    Without `alpha`, for the codes 0 .. levels - 1. With it, for effective levels: every
    threshold of a query lies in -alpha .. levels + alpha, so a level clipped to one beyond
    either end decides as it did, and the planes hold at least those.
    """
    if alpha is None:
        return max(1, (levels - 1).bit_length()), 0
    planes = (levels + 2 * alpha + 2).bit_length()
    return planes, -((2**planes - levels) // 2)


@dataclass(frozen=True, eq=False)
class PlaneLists:
    """Stored levels of vectors, list by list.

    Attributes
    ----------
    original : uint64 array (n * words * planes + slack,)
        Levels of the original cells; see `plane_kernels.pack_lists`.
    complemented : uint64 array or None
        Of the complement cells; None where they are perfect.
    offsets : int64 array (lists + 1,)
    dim, levels, planes, low : int
        Components, levels of a cell, planes of a store, level held as 0.
    """

    original: NDArray[np.uint64]
    complemented: NDArray[np.uint64] | None
    offsets: NDArray[np.int64]
    dim: int
    levels: int
    planes: int
    low: int

    @classmethod
    def pack(
        cls,
        original: ArrayLike,
        offsets: ArrayLike,
        *,
        complemented: ArrayLike | None = None,
        levels: int = 16,
        alpha: int | None = None,
    ) -> PlaneLists:
        """Store codes, or effective levels that are to be compared at tolerance `alpha`.

        Parameters
        ----------
        original : integer array (n, D)
            In order of position. Without `alpha` within 0 .. levels - 1.
        offsets : int array (lists + 1,)
            List i holds positions offsets[i] .. offsets[i + 1] - 1.
        complemented : integer array (n, D), optional
            Effective levels of the complement cells; absent, they are perfect.
        levels : int
            Levels of a cell.
        alpha : int, optional
            Largest tolerance in levels. Absent, levels are codes.

        Raises
        ------
        InputError
            If a shape is not allowed, or a code out of range.
        """
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        first = np.asarray(original)
        if first.ndim != 2 or first.shape[1] == 0:
            raise InputError(f"stored levels have shape {first.shape}, allowed: (n, D), D > 0")
        if alpha is None and first.size and (first.min() < 0 or first.max() >= levels):
            raise InputError(
                f"stored levels reach {first.min()} .. {first.max()}, allowed: 0 .. {levels - 1}"
            )
        planes, low = planes_for(levels, alpha)
        second = None
        if complemented is not None:
            if np.shape(complemented) != first.shape:
                raise InputError(
                    f"complement levels have shape {np.shape(complemented)}, "
                    f"the originals {first.shape}"
                )
            second = _packed(np.asarray(complemented), bounds, planes, low)
        return cls(
            original=_packed(first, bounds, planes, low),
            complemented=second,
            offsets=bounds,
            dim=first.shape[1],
            levels=levels,
            planes=planes,
            low=low,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the planes."""
        extra = 0 if self.complemented is None else self.complemented.nbytes
        return self.original.nbytes + extra

    def codes(self) -> NDArray[np.int16]:
        """Levels of the original cells, in order of position, shape (n, D)."""
        from nandcosim.systems.dnova import plane_kernels as kernels

        out = np.empty((int(self.offsets[-1]), self.dim), dtype=np.int16)
        kernels.unpack_lists(self.original, self.offsets, self.planes, out)
        return out + np.int16(self.low)

    def addresses(self, metric: str) -> NDArray[np.uint64]:
        """Address of the store that each sense of `metric` reads, shape (senses,)."""
        stores = []
        for sense in senses_of(metric):
            perfect = self.complemented is None or not sense.complemented
            stores.append(self.original if perfect else self.complemented)
        return np.array([store.ctypes.data for store in stores if store is not None], np.uint64)

    def deficits(
        self,
        query: ArrayLike,
        lists: ArrayLike | None = None,
        *,
        alpha: int = 2,
        m: int = 1,
        metric: str = "dts",
        accumulator: Accumulator | None = None,
    ) -> NDArray[np.uint16]:
        """Merged deficits of some lists (all by default), one after the other.

        `query` holds the codes, shape (D,); the rest is as in `score.score_deficits`, which
        the result equals.
        """
        from nandcosim.systems.dnova import plane_kernels as kernels

        rule = Rule(self.dim, m, alpha, metric, accumulator or Accumulator())
        chosen = np.arange(self.offsets.size - 1) if lists is None else np.asarray(lists)
        starts = self.offsets[chosen]
        sizes = self.offsets[chosen + 1] - starts
        out = np.empty(int(sizes.sum()), dtype=np.uint16)
        plans = rule.plans(np.asarray(query, dtype=np.int64)[None], self)
        kernels.score_rows(
            self.addresses(metric),
            starts,
            sizes,
            plans[0],
            *rule.turns(self.complemented is None),
            rule.compiled,
            out,
        )
        return out


@dataclass(frozen=True)
class Rule:
    """How one stage compares and adds up.

    Attributes
    ----------
    dim : int
        Components of a vector.
    m, alpha : int
        Cells a group, tolerance in levels.
    metric : str
    accumulator : Accumulator
    """

    dim: int
    m: int
    alpha: int
    metric: str
    accumulator: Accumulator

    def __post_init__(self) -> None:
        check_sensing(self.m, self.alpha, self.accumulator.cells)
        if self.worst > np.iinfo(np.uint16).max:
            raise InputError(
                f"merged deficit may reach {self.worst} for {self.dim} dimensions, "
                f"allowed: {np.iinfo(np.uint16).max}; narrow latch_bits"
            )

    @property
    def worst(self) -> int:
        """Largest merged deficit before `merge_bits` saturates it."""
        return self.accumulator.worst(self.dim, self.m, len(senses_of(self.metric)))

    @property
    def worst_string(self) -> int:
        """Largest deficit of a string."""
        return (1 << self.accumulator.latch_width(self.dim, self.m)) - 1

    @property
    def compiled(self) -> tuple[Any, np.uint64, np.uint64]:
        """Grouping, saturation of a string and of the sum, as the kernels take them."""
        ceiling = self.worst
        if self.accumulator.merge_bits is not None:
            ceiling = min(ceiling, 2**self.accumulator.merge_bits - 1)
        grouping = _grouping(self.dim, self.m, self.accumulator.cells)
        return grouping, np.uint64(self.worst_string), np.uint64(ceiling)

    def turns(self, perfect: bool) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Whether each sense complements its cells' bits, and its groups' failures."""
        senses = senses_of(self.metric)
        flips = [_ALL if sense.complemented and perfect else _NONE for sense in senses]
        inverts = [_ALL if sense.inverted else _NONE for sense in senses]
        return np.array(flips, dtype=np.uint64), np.array(inverts, dtype=np.uint64)

    def plans(self, codes: NDArray[np.int64], store: PlaneLists) -> NDArray[np.uint64]:
        """Comparators of queries (nq, D) for a store, shape (nq, senses, words, planes + 1).

        Raises
        ------
        InputError
            If the codes do not have the store's components.
        """
        from nandcosim.systems.dnova import plane_kernels as kernels

        if codes.shape[1] != store.dim:
            raise InputError(
                f"query has shape {codes.shape[1:]}, the stored vectors need ({store.dim},)"
            )
        perfect = store.complemented is None
        applied = []
        for sense in senses_of(self.metric):
            levels = sense.applied_levels(codes, self.alpha, store.levels)
            applied.append(store.levels - levels if sense.complemented and perfect else levels)
        thresholds = np.stack(applied, axis=1)
        flips = self.turns(perfect)[0].astype(bool)
        out = np.empty(
            (*thresholds.shape[:2], words_of(store.dim), store.planes + 1), dtype=np.uint64
        )
        kernels.plan_thresholds(thresholds, flips, store.low, store.planes, out)
        return out


def _packed(
    levels: NDArray[Any], offsets: NDArray[np.int64], planes: int, low: int
) -> NDArray[np.uint64]:
    from nandcosim.systems.dnova import plane_kernels as kernels

    raised = np.clip(levels.astype(np.int16) - np.int16(low), 0, 2**planes - 1)
    size = raised.shape[0] * words_of(raised.shape[1]) * planes
    out = np.empty(size + kernels.SLACK, dtype=np.uint64)
    out[size:] = 0
    kernels.pack_lists(raised, offsets, planes, out)
    return out


@lru_cache(maxsize=64)
def _grouping(dim: int, m: int, cells: int) -> tuple[Any, ...]:
    """Which bits of which words make a group, and which groups a string.

    Groups of 1, 2, 4 .. 128 cells in strings of whole pairs of words are folded there:
    `doublings` is log2 m, `masks` holds the first bit of each group, and string s has
    the words word_starts[s] .. word_starts[s + 1] - 1. Any others are spelt out (doublings
    -1): string s has the groups group_starts[s] .. and group g the parts part_starts[g] ..,
    each the bits of part_masks in word part_words.
    """
    starts = group_starts(dim, m, cells)
    strings = np.arange(0, dim, cells)
    ends = np.minimum(np.append(starts[1:], dim), (starts // cells + 1) * cells)
    folded = cells % _PAIR == 0 and m <= _PAIR and m & (m - 1) == 0
    masks = np.zeros(words_of(dim), dtype=np.uint64)
    parts: list[tuple[int, int]] = []
    part_starts = [0]
    if folded:
        words, bits = _place(starts)
        np.bitwise_or.at(masks, words, np.uint64(1) << bits.astype(np.uint64))
    else:
        for start, end in zip(starts, ends, strict=True):
            words, bits = _place(np.arange(start, end))
            parts += [
                (int(word), sum(1 << int(bit) for bit in bits[words == word]))
                for word in np.unique(words)
            ]
            part_starts.append(len(parts))
    return (
        m.bit_length() - 1 if folded else -1,
        np.append(2 * (strings // _PAIR), masks.size).astype(np.int64),
        masks,
        np.append(np.searchsorted(starts, strings), starts.size).astype(np.int64),
        np.array(part_starts, dtype=np.int64),
        np.array([word for word, _ in parts], dtype=np.int64),
        np.array([mask for _, mask in parts], dtype=np.uint64),
    )


def _place(d: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Word and bit of component d; see `plane_kernels`."""
    return 2 * (d // _PAIR) + d % 2, d % _PAIR // 2
