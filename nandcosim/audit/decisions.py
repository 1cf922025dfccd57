"""The reads that a search made, and what the table-driven model decided in each.

A read is one group of one string of one stored vector, sensed for one query in one
stage. `Reads.draw` picks reads as they occurred; `Reads.judge` states the model's
rule for them (see `nandcosim.systems.dnova.noise`), with the very random numbers that
the search used, whether its read noise is static or drawn in every read.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from nandcosim.errors import InputError
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult
from nandcosim.systems.dnova.noise import LEVEL_PARTS, SensingNoise
from nandcosim.systems.dnova.score import Sense, group_starts, senses_of

__all__ = ["STAGES", "Decisions", "Judgement", "Reads"]

STAGES = (1, 2, 3)

#: Keeps the normal score of a uniform number of 53 bits finite.
_SMALLEST = 2.0**-54


@dataclass(frozen=True, eq=False)
class Decisions:
    """Some reads of a search, each array of shape (n,).

    Attributes
    ----------
    stage : int64 array
        1, 2 or 3.
    query : int64 array
        Row of the query.
    vector : int64 array
        Number of the centroid in stage 1, row of the corpus in stages 2 and 3.
    sense : int64 array
        Which of the metric's senses; for ``dts`` 0 is the original, 1 the complement.
    group : int64 array
        Number of the group within its sense, strings one after the other.
    """

    stage: NDArray[np.int64]
    query: NDArray[np.int64]
    vector: NDArray[np.int64]
    sense: NDArray[np.int64]
    group: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.stage.size)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Decisions:
        """Some of them."""
        return Decisions(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the model says of n reads; margins in level spacings.

    Attributes
    ----------
    string : int64 array (n,)
        String of the vector's segment, 0 .. strings - 1.
    first : int64 array (n,)
        First active cell, counted from the bitline.
    size : int64 array (n,)
        Active cells; the last group of a string may be short.
    margin : float array (n,)
        Of the worst cell: applied level - stored threshold - 1/2.
    companion : float array (n,)
        Of the second worst cell; NaN in a group of one.
    excess : float array (n,)
        Margin less the table's trip margin: what decides but for the read noise.
    score : float array (n,)
        Read noise over its standard deviation, as the search drew it.
    chance : float array (n,)
        Probability that the group conducts, over the read noise.
    ideal, conducts : bool array (n,)
        Whether it conducts without read noise, and as it happened in the search.
    """

    string: NDArray[np.int64]
    first: NDArray[np.int64]
    size: NDArray[np.int64]
    margin: NDArray[np.float64]
    companion: NDArray[np.float64]
    excess: NDArray[np.float64]
    score: NDArray[np.float64]
    chance: NDArray[np.float64]
    ideal: NDArray[np.bool_]
    conducts: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _ReadNoise:
    """Read noise of some reads, and the search's own way to compare a margin with it."""

    score: NDArray[Any]
    trip: float
    spread: float
    uniform: NDArray[np.float64] | None = None

    @classmethod
    def of_uniforms(cls, uniform: NDArray[np.float64], trip: float, spread: float) -> _ReadNoise:
        return cls(ndtri(np.maximum(uniform, _SMALLEST)), trip, spread, uniform)

    def chance(self, excess: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability over the noise that groups with this excess (parts) conduct."""
        if self.spread == 0:
            return np.asarray(excess > 0, dtype=np.float64)
        return np.asarray(ndtr(excess / (self.spread * LEVEL_PARTS)), dtype=np.float64)

    def passes(self, worst: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether groups with these worst margins (parts of a level) conduct."""
        if self.uniform is not None:
            return self.uniform < self.chance(worst - round(self.trip * LEVEL_PARTS))
        margin = np.asarray(self.spread * self.score, dtype=np.float64) + self.trip
        return np.asarray(worst > np.rint(margin * LEVEL_PARTS))


class Reads:
    """All the reads of one search.

    Parameters
    ----------
    index : IvfIndex
    queries : float array (nq, D)
    result : SearchResult
        What `index.search` found for these queries, named by their rows, with the
        arguments below.
    noise : SensingNoise
    m : tuple of three int
    alpha : int
    metric : str
    cells : int
        Cells a string.
    seed : int
        Of the noise.
    read_noise : str
        ``static`` or ``per_read``.

    Raises
    ------
    InputError
        If the result is none of these queries.
    """

    def __init__(
        self,
        index: IvfIndex,
        queries: NDArray[np.float32],
        result: SearchResult,
        noise: SensingNoise,
        *,
        m: tuple[int, int, int],
        alpha: int,
        metric: str = "dts",
        cells: int = 128,
        seed: int = 0,
        read_noise: str = "static",
    ) -> None:
        if len(result.lists) != len(queries):
            raise InputError(
                f"audit: a result of {len(result.lists)} queries, allowed: {len(queries)} (given)"
            )
        self.result = result
        self.noise = noise
        self.m = m
        self.seed = seed
        self.cells = cells
        self.alpha = alpha
        self.levels = index.quantiser.levels
        self.senses: tuple[Sense, ...] = senses_of(metric)
        self.codes = index.encode(queries)
        self.dim = int(self.codes.shape[1])
        self.stored = index.stored_cells(noise, seed)
        self.amplifiers = index.amplifiers(seed, cells) if read_noise == "static" else None
        self.list_sizes = index.list_sizes
        self._rows_by_list = np.argsort(index.assignment, kind="stable")
        self._list_starts = np.concatenate([[0], np.cumsum(self.list_sizes)])

    def groups(self, stage: int) -> int:
        """Groups of one vector in one sense of a stage."""
        return int(group_starts(self.dim, self.m[stage - 1], self.cells).size)

    @property
    def reads(self) -> NDArray[np.int64]:
        """Reads of every query and stage, shape (nq, 3)."""
        each = np.array([len(self.senses) * self.groups(stage) for stage in STAGES])
        return np.asarray(self.result.scanned * each)

    def draw(self, count: int, rng: np.random.Generator) -> Decisions:
        """Draw reads with equal probability, with replacement."""
        reads = self.reads
        cell = rng.choice(reads.size, size=count, p=(reads / reads.sum()).ravel())
        query, column = (part.astype(np.int64) for part in np.divmod(cell, len(STAGES)))
        rank = rng.integers(self.result.scanned[query, column])
        stage = column + 1
        sense = rng.integers(len(self.senses), size=count)
        group = rng.integers(np.array([self.groups(each) for each in STAGES])[column])
        return Decisions(stage, query, self._vectors(query, stage, rank), sense, group)

    def excess(self, decisions: Decisions) -> NDArray[np.float64]:
        """Margin of each read's worst cell less the trip margin, in level spacings, shape (n,)."""
        found = np.empty(len(decisions))
        for stage in STAGES:
            rows = np.flatnonzero(decisions.stage == stage)
            here = decisions.take(rows)
            start, end = self._edges(here, stage)
            worst = self._margins(here, stage, start, end - start)[:, 0]
            found[rows] = (worst - self._trip(stage)) / LEVEL_PARTS
        return found

    def judge(self, decisions: Decisions) -> Judgement:
        """The model's decision in each of these reads."""
        found = [
            self._judge_stage(decisions.take(decisions.stage == stage), stage) for stage in STAGES
        ]
        order = np.argsort(
            np.concatenate([np.flatnonzero(decisions.stage == stage) for stage in STAGES])
        )
        return Judgement(
            **{
                each.name: np.concatenate([getattr(part, each.name) for part in found])[order]
                for each in fields(Judgement)
            }
        )

    def string(self, decisions: Decisions, index: int) -> tuple[NDArray[np.float64], ...]:
        """Stored threshold and applied level of every cell of one read's string.

        Returns
        -------
        stored, applied : float array (cells,)
            In levels; applied is NaN for the cells at the pass voltage. Cells beyond the
            vector's last component are erased.
        """
        one = decisions.take(np.array([index]))
        stage, sense = int(one.stage[0]), int(one.sense[0])
        start, end = (int(edge[0]) for edge in self._edges(one, stage))
        first = start // self.cells * self.cells
        held = self._thresholds(stage, sense)[one.vector[0], first : first + self.cells]
        stored = np.zeros(self.cells)
        stored[: held.size] = held / LEVEL_PARTS
        applied = np.full(self.cells, np.nan)
        levels = self._applied(one.query, sense)[0]
        applied[start - first : end - first] = levels[start:end]
        return stored, applied

    def _vectors(
        self, query: NDArray[np.int64], stage: NDArray[np.int64], rank: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The vector that was sensed rank-th; stage 1 senses centroids in order."""
        vector = rank.copy()
        listed = np.flatnonzero(stage == 2)
        ends = np.cumsum(self.list_sizes[self.result.lists], axis=1)[query[listed]]
        place = (ends <= rank[listed, np.newaxis]).sum(axis=1)
        probed = self.result.lists[query[listed], place]
        within = rank[listed] - ends[np.arange(listed.size), place] + self.list_sizes[probed]
        vector[listed] = self._rows_by_list[self._list_starts[probed] + within]
        again = stage == 3
        vector[again] = self.result.candidates[query[again], rank[again]]
        return vector

    def _edges(self, decisions: Decisions, stage: int) -> tuple[NDArray[np.int64], ...]:
        """First component of each group, and the one after its last."""
        m = self.m[stage - 1]
        start = group_starts(self.dim, m, self.cells)[decisions.group]
        end_of_string = (start // self.cells + 1) * self.cells
        return start, np.minimum(np.minimum(start + m, end_of_string), self.dim)

    def _trip(self, stage: int) -> int:
        """Trip margin in parts of a level, rounded as the search rounds it."""
        return round(self.noise.trip_margin(self.m[stage - 1]) * LEVEL_PARTS)

    def _thresholds(self, stage: int, sense: int) -> NDArray[np.int16]:
        held = self.stored["centroids" if stage == 1 else "vectors"]
        return held.complemented if self.senses[sense].complemented else held.original

    def _applied(self, query: NDArray[np.int64], sense: int) -> NDArray[np.int64]:
        return self.senses[sense].applied_levels(self.codes[query], self.alpha, self.levels)

    def _margins(
        self, decisions: Decisions, stage: int, start: NDArray[np.int64], size: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Margin of every active cell in parts of a level, ascending; infinite beyond a group."""
        cell = np.arange(self.m[stage - 1])
        at = np.minimum(start[:, np.newaxis] + cell, self.dim - 1)
        margins = np.empty(at.shape)
        for sense in range(len(self.senses)):
            rows = np.flatnonzero(decisions.sense == sense)
            level = np.take_along_axis(
                self._applied(decisions.query[rows], sense), at[rows], axis=1
            )
            held = self._thresholds(stage, sense)[decisions.vector[rows, np.newaxis], at[rows]]
            margins[rows] = level * LEVEL_PARTS - LEVEL_PARTS // 2 - held
        margins[cell >= size[:, np.newaxis]] = np.inf
        return np.sort(margins, axis=1)

    def _judge_stage(self, decisions: Decisions, stage: int) -> Judgement:
        m = self.m[stage - 1]
        start, end = self._edges(decisions, stage)
        size = end - start
        margins = self._margins(decisions, stage, start, size)
        worst = margins[:, 0]
        companion = np.full(len(decisions), np.nan)
        if m > 1:
            companion = np.where(size > 1, margins[:, 1], np.nan)
        excess = worst - self._trip(stage)
        noise = self._read_noise(decisions, stage, start // self.cells)
        return Judgement(
            string=start // self.cells,
            first=start % self.cells,
            size=size,
            margin=worst / LEVEL_PARTS,
            companion=companion / LEVEL_PARTS,
            excess=excess / LEVEL_PARTS,
            score=noise.score,
            chance=noise.chance(excess),
            ideal=excess > 0,
            conducts=noise.passes(worst),
        )

    def _read_noise(
        self, decisions: Decisions, stage: int, string: NDArray[np.int64]
    ) -> _ReadNoise:
        """The read noise that the search had in each read."""
        trip = self.noise.trip_margin(self.m[stage - 1])
        spread = self.noise.read_sigma(self.m[stage - 1])
        if spread == 0:
            return _ReadNoise(np.zeros(len(decisions)), trip, spread)
        if self.amplifiers is None:
            return _ReadNoise.of_uniforms(self._uniforms(decisions, stage), trip, spread)
        draws = self.amplifiers["centroids" if stage == 1 else "vectors"]
        side = np.array([sense.complemented for sense in self.senses], dtype=np.int64)
        return _ReadNoise(draws[decisions.vector, side[decisions.sense], string], trip, spread)

    def _uniforms(self, decisions: Decisions, stage: int) -> NDArray[np.float64]:
        """The search's random number of each read; a pure function of its name."""
        from nandcosim.systems.dnova import kernels

        number = decisions.sense * self.dim + decisions.group
        found = np.empty((len(decisions), 1))
        order = np.argsort(decisions.query, kind="stable")
        cuts = np.flatnonzero(np.diff(decisions.query[order])) + 1
        for rows in np.split(order, cuts):
            if rows.size:
                key = (self.seed, int(decisions.query[rows[0]]), stage)
                stream = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
                for row in rows:
                    kernels.read_uniforms(
                        stream,
                        decisions.vector[row : row + 1],
                        number[row : row + 1],
                        found[row : row + 1],
                    )
        return found[:, 0]
