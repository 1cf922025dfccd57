"""Three-stage IVF retrieval by threshold sensing (sections 2.1, 3.3 and 4.1).

Stage 1 senses all centroids and keeps `nprobe` lists, stage 2 senses every vector
of those lists and keeps K2, stage 3 senses those again and keeps K1; stage s senses
m_s cells at once. All stages rank by (deficit, id), smallest first, so that equal
scores have one order. The reference is FP32-IVF: FAISS over the same lists.

An index is made of segments that share centroids and quantiser. Each holds some of
the vectors, list by list; insertion appends one. Which segment a vector lies in
changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.dnova.noise import (
    READ_NOISE,
    SensingNoise,
    StoredCells,
    amplifier_draws,
    read_deficits,
    store_cells,
)
from nandcosim.systems.dnova.planes import PlaneLists, Rule, planes_for
from nandcosim.systems.dnova.quantise import Quantiser, RangePolicy, fit_quantiser
from nandcosim.systems.dnova.score import Accumulator, full_score, senses_of

__all__ = ["Fp32Ivf", "IvfIndex", "SearchResult", "Segment", "exact_neighbours", "normalised"]

_CENTROIDS, _LISTS, _RERANK = 1, 2, 3
"""The stages."""

_MOST_IDS = 2**40
"""Ids stay below this."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a batch of queries found.

    Attributes
    ----------
    ids : int64 array (nq, k1)
        Row numbers of the corpus, best first; -1 where fewer were found.
    scores : float array (nq, k1)
        Higher is better: full score less deficit for sensing, inner product for
        FP32; NaN where ids is -1.
    scanned : int64 array (nq, 3)
        Vectors sensed in stages 1, 2, 3 (0 in stage 3 for FP32, which does not re-rank).
    lists : int64 array (nq, nprobe)
        Lists probed, best first.
    candidates : int64 array (nq, k2)
        Row numbers of the corpus that stage 2 kept, best first; -1 where fewer were
        found. Without columns for FP32, which keeps none.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    scanned: NDArray[np.int64]
    lists: NDArray[np.int64]
    candidates: NDArray[np.int64]


@dataclass(eq=False)
class _Cells:
    """Vectors as stored in cells, perfect and, when asked for, with errors.

    Of the errors only the latest are kept: thresholds, of which each group size makes
    its own effective levels.
    """

    perfect: PlaneLists
    ids: NDArray[np.int64]
    """Id of each position, shape (n,)."""
    part: int
    """Distinguishes centroids from vectors in the random streams."""
    _stored: dict[tuple[float, int], StoredCells] = field(default_factory=dict)
    _sensed: dict[tuple[Any, ...], PlaneLists] = field(default_factory=dict)

    def stored(self, sigma: float, seed: int) -> StoredCells:
        key = (sigma, seed)
        if key not in self._stored:
            self._stored.clear()
            self._sensed.clear()
            self._stored[key] = store_cells(
                self.perfect.codes(),
                sigma,
                _stream(seed, self.part),
                levels=self.perfect.levels,
                ids=self.ids,
            )
        return self._stored[key]

    def draws(self, strings: int, seed: int) -> NDArray[np.float32]:
        """Of the amplifiers, shape (n, 2, strings)."""
        return amplifier_draws(self.ids, strings, _stream(seed, self.part))

    def sensed(self, noise: SensingNoise | None, rule: Rule, seed: int) -> PlaneLists:
        """As `rule` finds the cells when read noise is static."""
        if noise is None:
            return self.perfect
        stored = self.stored(noise.sigma, seed)
        trip, spread = noise.trip_margin(rule.m), noise.read_sigma(rule.m)
        cells, levels = rule.accumulator.cells, self.perfect.levels
        key = (noise.sigma, seed, trip, spread, cells, planes_for(levels, rule.alpha))
        if key not in self._sensed:
            offsets = None
            if spread > 0:
                offsets = spread * self.draws(rule.accumulator.strings(rule.dim), seed)
            original, complemented = stored.effective_levels(trip, offsets=offsets, cells=cells)
            self._sensed[key] = PlaneLists.pack(
                original,
                self.perfect.offsets,
                complemented=complemented,
                levels=levels,
                alpha=rule.alpha,
            )
        return self._sensed[key]


@dataclass(frozen=True, eq=False)
class Segment:
    """Some of an index's vectors, list by list and by id within a list.

    Attributes
    ----------
    ids : int64 array (n,)
        Id at each position.
    cells : PlaneLists
        Codes of the vectors, and the bounds of the lists.
    vectors : float32 array (n, D) or None
        Normalised vectors, needed for the FP32 reference only.
    source : Path or None
        Folder that it was opened from.
    """

    ids: NDArray[np.int64]
    cells: PlaneLists
    vectors: NDArray[np.float32] | None
    source: Path | None = None
    _sensing: _Cells = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sensing", _Cells(self.cells, self.ids, _LISTS))

    @classmethod
    def of_members(
        cls,
        ids: NDArray[np.int64],
        member: NDArray[np.int64],
        nlist: int,
        codes: NDArray[Any],
        vectors: NDArray[np.float32] | None,
        levels: int,
    ) -> Segment:
        """Sort vectors into the lists that `member` (n,) names."""
        order = np.lexsort((ids, member))
        offsets = np.zeros(nlist + 1, dtype=np.int64)
        np.cumsum(np.bincount(member, minlength=nlist), out=offsets[1:])
        return cls(
            ids=np.ascontiguousarray(ids[order]),
            cells=PlaneLists.pack(codes[order], offsets, levels=levels),
            vectors=None if vectors is None else np.ascontiguousarray(vectors[order]),
        )

    @property
    def offsets(self) -> NDArray[np.int64]:
        """List i holds positions offsets[i] .. offsets[i + 1] - 1."""
        return self.cells.offsets

    @property
    def member(self) -> NDArray[np.int64]:
        """List of each position, shape (n,)."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))


@dataclass(frozen=True)
class _Sensing:
    """How the queries of one search are sensed."""

    rules: tuple[Rule, Rule, Rule]
    noise: SensingNoise | None
    seed: int
    threads: int

    @property
    def draws(self) -> bool:
        """Whether the amplifiers err at all."""
        return self.noise is not None and any(
            self.noise.read_sigma(rule.m) > 0 for rule in self.rules
        )


@dataclass(frozen=True, eq=False)
class IvfIndex:
    """Inverted lists of quantised vectors.

    Made by `IvfIndex.build`, `IvfIndex.from_lists` or `IvfIndex.open`; never changed.

    Attributes
    ----------
    centroids : float32 array (nlist, D)
    quantiser : Quantiser
    segments : tuple of Segment
        The vectors.
    """

    centroids: NDArray[np.float32]
    quantiser: Quantiser
    segments: tuple[Segment, ...]
    _centroid_cells: _Cells = field(init=False, repr=False)

    def __post_init__(self) -> None:
        everything = np.array([0, self.nlist], dtype=np.int64)
        cells = PlaneLists.pack(
            self.quantiser.encode(self.centroids), everything, levels=self.quantiser.levels
        )
        names = np.arange(self.nlist, dtype=np.int64)
        object.__setattr__(self, "_centroid_cells", _Cells(cells, names, _CENTROIDS))

    # ---------------------------------------------------------------- making

    @classmethod
    def build(
        cls,
        vectors: ArrayLike,
        nlist: int,
        seed: int = 0,
        *,
        levels: int = 16,
        value_range: RangePolicy | str = "sigma:9",
        iterations: int = 20,
        keep_vectors: bool = True,
    ) -> IvfIndex:
        """Cluster, sort and quantise a corpus.

        Parameters
        ----------
        vectors : float array (n, D)
            Compared by cosine: rows are normalised.
        nlist : int
            Number of lists, 1 .. n.
        seed : int
            Of k-means (FAISS, spherical).
        levels : int
            Levels of a cell.
        value_range : RangePolicy or str
            What the levels span, see `nandcosim.systems.dnova.quantise.parse_range`.
        iterations : int
            Of k-means.
        keep_vectors : bool
            Keep the float vectors, which the FP32 reference needs and sensing does not.

        Raises
        ------
        InputError
            If the vectors or nlist are not allowed.
        MissingExtraError
            If FAISS is not installed.
        """
        unit = normalised(vectors)
        n, dim = unit.shape
        if not 1 <= nlist <= n:
            raise InputError(f"IVF index: nlist = {nlist}, allowed: 1 .. {n} (the vectors)")
        kmeans = _faiss().Kmeans(
            dim, nlist, niter=iterations, seed=seed, spherical=True, min_points_per_centroid=1
        )
        kmeans.train(unit)
        centroids = np.ascontiguousarray(kmeans.centroids, dtype=np.float32)
        quantiser = fit_quantiser(unit, levels=levels, policy=value_range)
        empty = cls(centroids, quantiser, ())
        return empty._with(unit, np.arange(n), _nearest(centroids, unit), keep_vectors)

    @classmethod
    def from_lists(
        cls,
        vectors: ArrayLike,
        centroids: ArrayLike,
        assignment: ArrayLike,
        quantiser: Quantiser,
        *,
        ids: ArrayLike | None = None,
        keep_vectors: bool = True,
    ) -> IvfIndex:
        """An index of lists that are known already.

        Parameters
        ----------
        vectors : float array (n, D)
            Rows are normalised.
        centroids : float array (nlist, D)
        assignment : int array (n,)
            List of each vector.
        quantiser : Quantiser
        ids : int array (n,), optional
            Distinct, 0 .. n - 1 by default.
        keep_vectors : bool
            As in `build`.

        Raises
        ------
        InputError
            If a shape, a list or an id is not allowed.
        """
        unit = normalised(vectors)
        middles = np.ascontiguousarray(centroids, dtype=np.float32)
        member = np.asarray(assignment, dtype=np.int64)
        if middles.ndim != 2 or middles.shape[1] != unit.shape[1]:
            raise InputError(
                f"IVF index: centroids have shape {middles.shape}, "
                f"allowed: (nlist, {unit.shape[1]})"
            )
        if member.shape != (len(unit),) or member.min() < 0 or member.max() >= len(middles):
            raise InputError(
                f"IVF index: assignment has shape {member.shape} and reaches "
                f"{member.min()} .. {member.max()}, allowed: ({len(unit)},), "
                f"0 .. {len(middles) - 1}"
            )
        empty = cls(middles, quantiser, ())
        return empty._with(unit, empty._new_ids(ids, len(unit)), member, keep_vectors)

    def insert(self, vectors: ArrayLike, ids: ArrayLike | None = None) -> IvfIndex:
        """Another index that has these vectors too; nothing stored is touched.

        Centroids and quantiser stay as they are. The vectors make a segment of their own,
        and every search finds what an index built with them in the lists would.

        Parameters
        ----------
        vectors : float array (k, D)
            Rows are normalised; each joins the list of its nearest centroid.
        ids : int array (k,), optional
            Distinct from each other and from all ids of the index, 0 .. 2**40 - 1.
            Absent, they follow on the largest one.

        Raises
        ------
        InputError
            If the vectors have the wrong shape, or an id is taken or out of range.
        """
        unit = normalised(vectors)
        if unit.shape[1] != self.dim:
            raise InputError(
                f"insert: vectors have {unit.shape[1]} dimensions, the index has {self.dim}"
            )
        names = self._new_ids(ids, len(unit))
        return self._with(unit, names, _nearest(self.centroids, unit), self._has_vectors)

    def compact(self) -> IvfIndex:
        """The same index with all vectors in one segment, in memory."""
        if len(self.segments) <= 1:
            return self
        codes = np.concatenate([segment.cells.codes() for segment in self.segments])
        merged = Segment.of_members(
            np.concatenate([segment.ids for segment in self.segments]),
            np.concatenate([segment.member for segment in self.segments]),
            self.nlist,
            codes,
            np.concatenate([_floats(segment) for segment in self.segments])
            if self._has_vectors
            else None,
            self.quantiser.levels,
        )
        return IvfIndex(self.centroids, self.quantiser, (merged,))

    def save(self, folder: str | Path) -> None:
        """Write the index, or append what a folder of this index lacks.

        See `nandcosim.systems.dnova.index_files.save_index`.
        """
        from nandcosim.systems.dnova.index_files import save_index

        save_index(self, folder)

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> IvfIndex:
        """Open a saved index, memory-mapped: a search reads the lists that it probes.

        See `nandcosim.systems.dnova.index_files.open_index`.
        """
        from nandcosim.systems.dnova.index_files import open_index

        return open_index(folder, verify=verify)

    def _with(
        self,
        unit: NDArray[np.float32],
        ids: NDArray[np.int64],
        member: NDArray[np.int64],
        keep_vectors: bool,
    ) -> IvfIndex:
        segment = Segment.of_members(
            ids,
            member,
            self.nlist,
            self.quantiser.encode(unit),
            unit if keep_vectors else None,
            self.quantiser.levels,
        )
        return IvfIndex(self.centroids, self.quantiser, (*self.segments, segment))

    def _new_ids(self, ids: ArrayLike | None, count: int) -> NDArray[np.int64]:
        if ids is None:
            start = max((int(s.ids.max()) + 1 for s in self.segments if s.ids.size), default=0)
            return np.arange(start, start + count, dtype=np.int64)
        names = np.asarray(ids, dtype=np.int64)
        if names.shape != (count,):
            raise InputError(f"IVF index: ids have shape {names.shape}, allowed: ({count},)")
        if names.min() < 0 or names.max() >= _MOST_IDS:
            raise InputError(
                f"IVF index: ids reach {names.min()} .. {names.max()}, allowed: 0 .. 2**40 - 1"
            )
        known = np.concatenate([names, *(segment.ids for segment in self.segments)])
        distinct, times = np.unique(known, return_counts=True)
        if distinct.size < known.size:
            raise InputError(f"IVF index: id {distinct[times > 1][0]} twice, allowed: once")
        return names

    # ---------------------------------------------------------------- what it holds

    @property
    def n(self) -> int:
        """Number of vectors."""
        return sum(segment.ids.size for segment in self.segments)

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return int(self.centroids.shape[1])

    @property
    def nlist(self) -> int:
        """Number of lists."""
        return int(self.centroids.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes that sensing needs: planes, ids and bounds of the lists."""
        return sum(s.cells.nbytes + s.ids.nbytes + s.offsets.nbytes for s in self.segments)

    @cached_property
    def list_sizes(self) -> NDArray[np.int64]:
        """Vectors in each list, shape (nlist,)."""
        sizes = np.zeros(self.nlist, dtype=np.int64)
        for segment in self.segments:
            sizes += np.diff(segment.offsets)
        return sizes

    @property
    def offsets(self) -> NDArray[np.int64]:
        """List i holds positions offsets[i] .. offsets[i + 1] - 1, shape (nlist + 1,)."""
        return np.concatenate([[0], np.cumsum(self.list_sizes)])

    @property
    def ids(self) -> NDArray[np.int64]:
        """Id at each position, list by list and ascending within a list, shape (n,)."""
        return self._joined(lambda segment: segment.ids)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Normalised vectors in order of position, float32, shape (n, D).

        Raises
        ------
        InputError
            If the index was built without them.
        """
        return self._joined(_floats)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """List of each id, shape (largest id + 1,); -1 where there is no such id."""
        largest = max((int(s.ids.max()) for s in self.segments if s.ids.size), default=-1)
        lists = np.full(largest + 1, -1, dtype=np.int64)
        for segment in self.segments:
            lists[segment.ids] = segment.member
        return lists

    def stored_cells(self, noise: SensingNoise, seed: int = 0) -> dict[str, StoredCells]:
        """What the cells hold under `noise`, by id: keys ``centroids`` and ``vectors``."""
        found = {}
        for name, parts in self._parts().items():
            stored = [cells.stored(noise.sigma, seed) for cells in parts]
            order = np.argsort(np.concatenate([cells.ids for cells in parts]))
            found[name] = StoredCells(
                np.concatenate([cells.original for cells in stored])[order],
                np.concatenate([cells.complemented for cells in stored])[order],
            )
        return found

    def amplifiers(self, seed: int = 0, cells: int = 128) -> dict[str, NDArray[np.float32]]:
        """Standard normal draws of the sense amplifiers under static read noise, by id.

        Keys ``centroids`` and ``vectors``, shapes (n, 2, strings): original, complement;
        `cells` cells a string.
        """
        strings = math.ceil(self.dim / cells)
        found = {}
        for name, parts in self._parts().items():
            order = np.argsort(np.concatenate([part.ids for part in parts]))
            found[name] = np.concatenate([part.draws(strings, seed) for part in parts])[order]
        return found

    def encode(self, queries: ArrayLike) -> NDArray[np.int64]:
        """Codes of queries as a search sees them, shape (nq, D)."""
        return self.quantiser.encode(self._queries(queries)).astype(np.int64)

    def sensed_centroids(self, noise: SensingNoise | None, rule: Rule, seed: int = 0) -> PlaneLists:
        """The centroids as stage 1 finds them in their cells under static noise."""
        return self._centroid_cells.sensed(noise, rule, seed)

    def sensed_vectors(
        self, noise: SensingNoise | None, rule: Rule, seed: int = 0
    ) -> list[PlaneLists]:
        """The vectors of each segment as stages 2 and 3 find them under static noise."""
        return [segment._sensing.sensed(noise, rule, seed) for segment in self.segments]

    def fp32(self) -> Fp32Ivf:
        """The FP32-IVF reference over the same centroids and lists."""
        return Fp32Ivf(self)

    # ---------------------------------------------------------------- searching

    def search(
        self,
        queries: ArrayLike,
        *,
        m: tuple[int, int, int] = (2, 4, 2),
        alpha: int = 2,
        nprobe: int = 64,
        k2: int = 1000,
        k1: int = 100,
        metric: str = "dts",
        accumulator: Accumulator | None = None,
        noise: SensingNoise | None = None,
        read_noise: str = "static",
        seed: int = 0,
        query_ids: ArrayLike | None = None,
        threads: int = 1,
    ) -> SearchResult:
        """Search by threshold sensing.

        Parameters
        ----------
        queries : float array (nq, D)
            Normalised and quantised like the corpus.
        m : tuple of three int
            Cells sensed at once in stages 1, 2, 3; (2, 4, 2) is the paper's DTS242.
        alpha : int
            Tolerance in levels.
        nprobe, k2, k1 : int
            Lists probed, candidates kept by stage 2, results kept by stage 3.
        metric : str
            ``dts``, ``ubs+lbs``, ``ubs+lbs-strict`` or ``ubs`` (see
            `nandcosim.systems.dnova.score`).
        accumulator : Accumulator, optional
            String length and counter widths.
        noise : SensingNoise, optional
            None senses perfectly.
        read_noise : str
            ``static``: a sense amplifier's error stays with its string; ``per_read``: it is
            drawn in every read (see `nandcosim.systems.dnova.noise`).
        seed : int
            Of the noise.
        query_ids : int array (nq,), optional
            Name each query's ``per_read`` noise; its row by default. Give them when a batch
            is split, and the parts find what the whole would.
        threads : int
            Queries searched at the same time; does not change the result.

        Raises
        ------
        InputError
            If an argument is not allowed.
        """
        rows = self._queries(queries)
        sensing = _Sensing(
            self._rules(m, alpha, metric, accumulator or Accumulator()), noise, seed, threads
        )
        self._check_counts(nprobe, k2, k1)
        if threads < 1:
            raise InputError(f"search: threads = {threads}, allowed: 1 or more")
        if read_noise not in READ_NOISE:
            raise InputError(
                f"search: read_noise = {read_noise!r}, allowed: {', '.join(READ_NOISE)}"
            )
        names = np.arange(len(rows)) if query_ids is None else np.asarray(query_ids)
        if names.shape != (len(rows),):
            raise InputError(f"search: query_ids has shape {names.shape}, allowed: ({len(rows)},)")
        result = SearchResult(
            ids=np.full((len(rows), k1), -1, dtype=np.int64),
            scores=np.full((len(rows), k1), np.nan),
            scanned=np.zeros((len(rows), 3), dtype=np.int64),
            lists=np.empty((len(rows), nprobe), dtype=np.int64),
            candidates=np.full((len(rows), k2), -1, dtype=np.int64),
        )
        codes = self.quantiser.encode(rows).astype(np.int64)
        if sensing.draws and read_noise == "per_read":
            deficits = self._search_by_reads(codes, names, sensing, result)
        else:
            deficits = self._search_by_planes(codes, sensing, result)
        best = full_score(self.dim, m[2], sensing.rules[2].accumulator.cells, metric)
        found = result.ids >= 0
        result.scores[found] = best - deficits[found]
        result.scanned[:, 0] = self.nlist
        result.scanned[:, 2] = (result.candidates >= 0).sum(axis=1)
        return result

    def _search_by_planes(
        self, codes: NDArray[np.int64], sensing: _Sensing, result: SearchResult
    ) -> NDArray[np.int64]:
        """Fill `result`; deficits of the vectors found, shape (nq, k1)."""
        from nandcosim.systems.dnova import plane_kernels as kernels

        first, second, third = sensing.rules
        centroids = self.sensed_centroids(sensing.noise, first, sensing.seed)
        perfect = centroids.complemented is None
        turns = first.turns(perfect)
        metric = first.metric
        deficits = np.zeros(result.ids.shape, dtype=np.int64)
        stage_1 = (centroids.addresses(metric), self.nlist, first.plans(codes, centroids))

        def choose(start: int, end: int) -> None:
            kernels.nearest_lists(
                *stage_1, *turns, first.compiled, first.worst, start, end, result.lists
            )

        _in_parts(choose, len(codes), sensing.threads)
        if not self.segments:
            return deficits
        stages = []
        held = []  # the kernel has addresses only
        for rule in (second, third):
            stores = self.sensed_vectors(sensing.noise, rule, sensing.seed)
            held.append(stores)
            addresses = np.stack([store.addresses(metric) for store in stores])
            stages.append((addresses, rule.plans(codes, stores[0]), rule.compiled))
        offsets = np.stack([segment.offsets for segment in self.segments])
        id_addresses = np.array([s.ids.ctypes.data for s in self.segments], dtype=np.uint64)
        nprobe = result.lists.shape[1]
        capacity = max(1, int(np.sort(self.list_sizes)[-nprobe:].sum()))
        scanned = np.zeros(len(codes), dtype=np.int64)
        search_lists: Any = kernels.search_lists

        def retrieve(start: int, end: int) -> None:
            search_lists(
                result.lists,
                offsets,
                id_addresses,
                *stages,
                *turns,
                max(second.worst, third.worst),
                capacity,
                start,
                end,
                scanned,
                result.candidates,
                result.ids,
                deficits,
            )

        _in_parts(retrieve, len(codes), sensing.threads)
        result.scanned[:, 1] = scanned
        return deficits

    def _search_by_reads(
        self,
        codes: NDArray[np.int64],
        names: NDArray[Any],
        sensing: _Sensing,
        result: SearchResult,
    ) -> NDArray[np.int64]:
        """As `_search_by_planes`, with an error of its own in every read."""
        noise = sensing.noise
        assert noise is not None
        known = self.stored_cells(noise, sensing.seed)
        ids = np.sort(np.concatenate([np.empty(0, np.int64), *(s.ids for s in self.segments)]))
        centroid_ids = np.arange(self.nlist, dtype=np.int64)
        deficits = np.zeros(result.ids.shape, dtype=np.int64)

        def read(i: int, stage: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
            rule = sensing.rules[stage - 1]
            return read_deficits(
                known["centroids" if stage == _CENTROIDS else "vectors"],
                codes[i],
                positions,
                centroid_ids if stage == _CENTROIDS else ids,
                noise,
                key=(sensing.seed, int(names[i]), stage),
                alpha=rule.alpha,
                m=rule.m,
                levels=self.quantiser.levels,
                metric=rule.metric,
                accumulator=rule.accumulator,
            )

        def search_one(i: int) -> None:
            near = _smallest(read(i, _CENTROIDS, centroid_ids), centroid_ids, result.lists.shape[1])
            result.lists[i] = near
            members = [
                segment.ids[segment.offsets[name] : segment.offsets[name + 1]]
                for name in near
                for segment in self.segments
            ]
            places = np.searchsorted(ids, np.concatenate([np.empty(0, np.int64), *members]))
            result.scanned[i, 1] = places.size
            order = _smallest(read(i, _LISTS, places), ids[places], result.candidates.shape[1])
            kept = places[order]
            result.candidates[i, : kept.size] = ids[kept]
            again = read(i, _RERANK, kept)
            order = _smallest(again, ids[kept], result.ids.shape[1])
            result.ids[i, : order.size] = ids[kept[order]]
            deficits[i, : order.size] = again[order]

        def search_some(start: int, end: int) -> None:
            for i in range(start, end):
                search_one(i)

        _in_parts(search_some, len(codes), sensing.threads)
        return deficits

    def _parts(self) -> dict[str, list[_Cells]]:
        vectors = [segment._sensing for segment in self.segments]
        return {"centroids": [self._centroid_cells], "vectors": vectors}

    def _rules(
        self, m: tuple[int, int, int], alpha: int, metric: str, accumulator: Accumulator
    ) -> tuple[Rule, Rule, Rule]:
        senses_of(metric)
        if len(m) != 3:
            raise InputError(f"search: m = {m}, allowed: one group size for each of three stages")
        first, second, third = (Rule(self.dim, size, alpha, metric, accumulator) for size in m)
        return first, second, third

    @property
    def _has_vectors(self) -> bool:
        return all(segment.vectors is not None for segment in self.segments)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Places in the segments, one after the other, in order of position."""
        ids = np.concatenate([segment.ids for segment in self.segments])
        member = np.concatenate([segment.member for segment in self.segments])
        return np.lexsort((ids, member))

    def _joined(self, part: Callable[[Segment], NDArray[Any]]) -> NDArray[Any]:
        if len(self.segments) == 1:
            return part(self.segments[0])
        return np.concatenate([part(segment) for segment in self.segments])[self._order]

    def _queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        rows = normalised(queries)
        if rows.shape[1] != self.dim:
            raise InputError(
                f"search: queries have {rows.shape[1]} dimensions, the index has {self.dim}"
            )
        return rows

    def _check_counts(self, nprobe: int, k2: int, k1: int) -> None:
        if not 1 <= nprobe <= self.nlist:
            raise InputError(f"search: nprobe = {nprobe}, allowed: 1 .. {self.nlist} (the lists)")
        if not 1 <= k1 <= k2:
            raise InputError(f"search: k1 = {k1} and k2 = {k2}, allowed: 1 <= k1 <= k2")


class Fp32Ivf:
    """FAISS IndexIVFFlat, inner product on normalised float32, over the lists of an index."""

    def __init__(self, index: IvfIndex) -> None:
        faiss = _faiss()
        self._faiss = faiss
        self._lists = index
        dim = index.dim
        self._quantizer = faiss.IndexFlatIP(dim)
        self._quantizer.add(index.centroids)
        self.faiss_index = faiss.IndexIVFFlat(
            self._quantizer, dim, index.nlist, faiss.METRIC_INNER_PRODUCT
        )
        self.faiss_index.is_trained = True
        for segment in index.segments:
            vectors, member = _floats(segment), segment.member
            self.faiss_index.add_core(
                len(vectors),
                faiss.swig_ptr(vectors),
                faiss.swig_ptr(segment.ids),
                faiss.swig_ptr(member),
            )

    def search(self, queries: ArrayLike, *, nprobe: int = 64, k1: int = 100) -> SearchResult:
        """Nearest rows by inner product; ties as FAISS leaves them."""
        index = self._lists
        rows = index._queries(queries)
        index._check_counts(nprobe, k1, k1)
        self.faiss_index.nprobe = nprobe
        _, lists = self._quantizer.search(rows, nprobe)
        scores, ids = self.faiss_index.search(rows, k1)
        scanned = np.zeros((len(rows), 3), dtype=np.int64)
        scanned[:, 0] = index.nlist
        scanned[:, 1] = index.list_sizes[lists].sum(axis=1)
        return SearchResult(
            ids=ids.astype(np.int64),
            scores=np.where(ids >= 0, scores, np.nan).astype(np.float64),
            scanned=scanned,
            lists=lists.astype(np.int64),
            candidates=np.empty((len(rows), 0), dtype=np.int64),
        )


def normalised(vectors: ArrayLike) -> NDArray[np.float32]:
    """Rows scaled to length 1, float32, shape (n, D).

    Raises
    ------
    InputError
        If the array is not (n, D), empty, not finite, or has a row of zeros.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"vectors have shape {rows.shape}, allowed: (n, D), n, D > 0")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(length).all() or not length.all():
        bad = int(np.flatnonzero(~(np.isfinite(length) & (length > 0)))[0])
        raise InputError(f"vectors: row {bad} has length {length[bad, 0]}, allowed: finite, > 0")
    return np.asarray(rows / length, dtype=np.float32)


def exact_neighbours(vectors: ArrayLike, queries: ArrayLike, k: int) -> NDArray[np.int64]:
    """Rows of `vectors` nearest to each query by cosine, best first, shape (nq, k)."""
    corpus = normalised(vectors)
    index = _faiss().IndexFlatIP(corpus.shape[1])
    index.add(corpus)
    return np.asarray(index.search(normalised(queries), k)[1], dtype=np.int64)


def _smallest(deficits: NDArray[Any], ids: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    from nandcosim.systems.dnova import kernels

    return np.asarray(kernels.select_smallest(deficits.astype(np.int64, copy=False), ids, k))


def _nearest(centroids: NDArray[np.float32], unit: NDArray[np.float32]) -> NDArray[np.int64]:
    """List of the centroid with the largest inner product, shape (n,)."""
    flat = _faiss().IndexFlatIP(centroids.shape[1])
    flat.add(centroids)
    return np.asarray(flat.search(unit, 1)[1][:, 0], dtype=np.int64)


def _floats(segment: Segment) -> NDArray[np.float32]:
    if segment.vectors is None:
        raise InputError(
            "IVF index: it keeps no float vectors; allowed: keep_vectors=True when it is built"
        )
    return segment.vectors


def _in_parts(task: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call `task(start, end)` on parts of 0 .. count - 1, some for each thread."""
    if threads == 1:
        task(0, count)
        return
    edges = np.linspace(0, count, min(count, 8 * threads) + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(task, edges[:-1], edges[1:]):
            pass


def _stream(seed: int, part: int) -> int:
    """Seed of one part of the index, so that centroids and vectors differ."""
    return int(np.random.SeedSequence([seed, part]).generate_state(1, np.uint64)[0])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("IVF retrieval", "faiss-cpu", "retrieval") from error
    return faiss
