"""Three-stage IVF retrieval by threshold sensing (sections 2.1, 3.3 and 4.1).

Stage 1 senses all centroids and keeps `nprobe` lists, stage 2 senses every vector
of those lists and keeps K2, stage 3 senses those again and keeps K1; stage s senses
m_s cells at once. All stages rank by (deficit, id), smallest first, so that equal
scores have one order. The reference is FP32-IVF: FAISS over the same lists.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.dnova.bitslice import BitSliced, candidate_deficits
from nandcosim.systems.dnova.noise import SensingNoise, StoredCells, read_deficits, store_cells
from nandcosim.systems.dnova.quantise import Quantiser, RangePolicy, fit_quantiser
from nandcosim.systems.dnova.score import (
    Accumulator,
    check_sensing,
    full_score,
    senses_of,
)

__all__ = ["Fp32Ivf", "IvfIndex", "SearchResult", "exact_neighbours", "normalised"]

_CENTROIDS, _LISTS, _RERANK = 1, 2, 3
"""The stages."""

_PERFECT = (0.0, -1, 0.0)
"""Key of noise-free cells among the bit-sliced ones."""


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
    """One array of vectors as stored in cells, with what scoring it needs, made when asked for.

    Noise-free cells hold codes; noisy ones thresholds, of which each trip margin
    makes its own effective levels. Only the latest noise is kept.
    """

    codes: NDArray[np.uint8]
    """Shape (n, D), in order of position."""
    ids: NDArray[np.int64]
    """Id of each position, shape (n,)."""
    levels: int
    part: int
    """Distinguishes centroids from vectors in the random streams."""
    _stored: dict[tuple[float, int], StoredCells] = field(default_factory=dict)
    _sliced: dict[tuple[float, int, float], BitSliced] = field(default_factory=dict)

    def stored(self, sigma: float, seed: int) -> StoredCells:
        key = (sigma, seed)
        if key not in self._stored:
            self._stored.clear()
            self._sliced = {k: v for k, v in self._sliced.items() if k == _PERFECT}
            order = np.argsort(self.ids)
            by_id = store_cells(
                self.codes[order], sigma, _stream(seed, self.part), levels=self.levels
            )
            place = np.argsort(order)
            self._stored[key] = StoredCells(by_id.original[place], by_id.complemented[place])
        return self._stored[key]

    def sliced(self, noise: SensingNoise | None, m: int, seed: int) -> BitSliced:
        if noise is None:
            if _PERFECT not in self._sliced:
                self._sliced[_PERFECT] = BitSliced(self.codes, levels=self.levels)
            return self._sliced[_PERFECT]
        key = (noise.sigma, seed, noise.trip_margin(m))
        if key not in self._sliced:
            effective = self.stored(noise.sigma, seed).effective_levels(noise.trip_margin(m))
            self._sliced[key] = BitSliced(*effective, levels=self.levels)
        return self._sliced[key]


@dataclass(frozen=True)
class _Sensing:
    """How the queries of one search are sensed."""

    m: tuple[int, int, int]
    alpha: int
    metric: str
    accumulator: Accumulator
    noise: SensingNoise | None
    seed: int

    def draws(self, stage: int) -> bool:
        """Whether every read of this stage has its own error."""
        return self.noise is not None and self.noise.read_sigma(self.m[stage - 1]) > 0

    def rule(self, stage: int) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "m": self.m[stage - 1],
            "metric": self.metric,
            "accumulator": self.accumulator,
        }


@dataclass(frozen=True, eq=False)
class _Query:
    """One query's codes (D,), its name in the random streams, and how it is sensed."""

    codes: NDArray[np.int64]
    name: int
    sensing: _Sensing

    def scan(
        self, cells: _Cells, positions: NDArray[np.int64], spans: ArrayLike | None, stage: int
    ) -> NDArray[np.integer[Any]]:
        """Deficits of whole lists; `positions` spells `spans` out, None being everything."""
        sensing = self.sensing
        if sensing.draws(stage):
            return self._read(cells, positions, stage)
        sliced = cells.sliced(sensing.noise, sensing.m[stage - 1], sensing.seed)
        return sliced.deficits(self.codes, ranges=spans, **sensing.rule(stage))[positions]

    def pick(
        self, cells: _Cells, positions: NDArray[np.int64], stage: int
    ) -> NDArray[np.integer[Any]]:
        """Deficits of a few vectors here and there."""
        sensing = self.sensing
        if sensing.draws(stage):
            return self._read(cells, positions, stage)
        original: NDArray[Any] = cells.codes[positions]
        complemented = None
        if sensing.noise is not None:
            trip = sensing.noise.trip_margin(sensing.m[stage - 1])
            stored = cells.stored(sensing.noise.sigma, sensing.seed)
            original, complemented = stored.effective_levels(trip, positions)
        return candidate_deficits(
            original,
            self.codes,
            levels=cells.levels,
            complemented=complemented,
            **sensing.rule(stage),
        )

    def _read(
        self, cells: _Cells, positions: NDArray[np.int64], stage: int
    ) -> NDArray[np.integer[Any]]:
        sensing = self.sensing
        assert sensing.noise is not None
        return read_deficits(
            cells.stored(sensing.noise.sigma, sensing.seed),
            self.codes,
            positions,
            cells.ids,
            sensing.noise,
            key=(sensing.seed, self.name, stage),
            levels=cells.levels,
            **sensing.rule(stage),
        )


@dataclass(frozen=True, eq=False)
class IvfIndex:
    """Inverted lists of quantised vectors.

    Made by `IvfIndex.build`. Positions number the vectors list by list, and by id
    within a list.

    Attributes
    ----------
    vectors : float32 array (n, D)
        Normalised corpus, in order of position.
    centroids : float32 array (nlist, D)
    offsets : int64 array (nlist + 1,)
        List i holds positions offsets[i] .. offsets[i + 1] - 1.
    ids : int64 array (n,)
        Row of the corpus at each position.
    quantiser : Quantiser
    """

    vectors: NDArray[np.float32]
    centroids: NDArray[np.float32]
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    quantiser: Quantiser
    _vector_cells: _Cells = field(init=False, repr=False)
    _centroid_cells: _Cells = field(init=False, repr=False)

    def __post_init__(self) -> None:
        levels = self.quantiser.levels
        object.__setattr__(
            self,
            "_vector_cells",
            _Cells(self.quantiser.encode(self.vectors), self.ids, levels, _LISTS),
        )
        object.__setattr__(
            self,
            "_centroid_cells",
            _Cells(
                self.quantiser.encode(self.centroids),
                np.arange(self.nlist, dtype=np.int64),
                levels,
                _CENTROIDS,
            ),
        )

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
        faiss = _faiss()
        kmeans = faiss.Kmeans(
            dim, nlist, niter=iterations, seed=seed, spherical=True, min_points_per_centroid=1
        )
        kmeans.train(unit)
        centroids = np.ascontiguousarray(kmeans.centroids, dtype=np.float32)
        nearest = faiss.IndexFlatIP(dim)
        nearest.add(centroids)
        member = nearest.search(unit, 1)[1][:, 0]
        ids = np.argsort(member, kind="stable").astype(np.int64)
        offsets = np.zeros(nlist + 1, dtype=np.int64)
        np.cumsum(np.bincount(member, minlength=nlist), out=offsets[1:])
        quantiser = fit_quantiser(unit, levels=levels, policy=value_range)
        return cls(
            vectors=np.ascontiguousarray(unit[ids]),
            centroids=centroids,
            offsets=offsets,
            ids=ids,
            quantiser=quantiser,
        )

    @property
    def nlist(self) -> int:
        """Number of lists."""
        return int(self.centroids.shape[0])

    @property
    def list_sizes(self) -> NDArray[np.int64]:
        """Vectors in each list, shape (nlist,)."""
        return np.diff(self.offsets)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """List of each row of the corpus, shape (n,)."""
        member = np.empty(self.ids.size, dtype=np.int64)
        member[self.ids] = np.repeat(np.arange(self.nlist, dtype=np.int64), self.list_sizes)
        return member

    def stored_cells(self, noise: SensingNoise, seed: int = 0) -> dict[str, StoredCells]:
        """What the cells hold under `noise`, by id: keys ``centroids`` and ``vectors``."""
        found = {}
        for name, cells in (("centroids", self._centroid_cells), ("vectors", self._vector_cells)):
            place = np.argsort(cells.ids)
            stored = cells.stored(noise.sigma, seed)
            found[name] = StoredCells(stored.original[place], stored.complemented[place])
        return found

    def fp32(self) -> Fp32Ivf:
        """The FP32-IVF reference over the same centroids and lists."""
        return Fp32Ivf(self)

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
        seed : int
            Of the noise.
        query_ids : int array (nq,), optional
            Name each query's read noise; its row by default. Give them when a batch is
            split, and the parts find what the whole would.
        threads : int
            Queries searched at the same time; does not change the result.

        Raises
        ------
        InputError
            If an argument is not allowed.
        """
        rows = self._queries(queries)
        sensing = _Sensing(m, alpha, metric, accumulator or Accumulator(), noise, seed)
        senses_of(metric)
        if len(m) != 3:
            raise InputError(f"search: m = {m}, allowed: one group size for each of three stages")
        for size in m:
            check_sensing(size, alpha, sensing.accumulator.cells)
        self._check_counts(nprobe, k2, k1)
        if threads < 1:
            raise InputError(f"search: threads = {threads}, allowed: 1 or more")
        names = np.arange(len(rows)) if query_ids is None else np.asarray(query_ids)
        if names.shape != (len(rows),):
            raise InputError(f"search: query_ids has shape {names.shape}, allowed: ({len(rows)},)")
        codes = self.quantiser.encode(rows).astype(np.int64)
        self._prepare(sensing)

        ids = np.full((len(rows), k1), -1, dtype=np.int64)
        scores = np.full((len(rows), k1), np.nan)
        scanned = np.zeros((len(rows), 3), dtype=np.int64)
        lists = np.empty((len(rows), nprobe), dtype=np.int64)
        kept = np.full((len(rows), k2), -1, dtype=np.int64)
        best = full_score(self.vectors.shape[1], m[2], sensing.accumulator.cells, metric)

        def search_one(i: int) -> None:
            query = _Query(codes[i], int(names[i]), sensing)
            lists[i] = self._nearest_lists(query, nprobe)
            candidates, listed = self._coarse(query, lists[i], k2)
            kept[i, : candidates.size] = self.ids[candidates]
            found, deficits = self._rerank(query, candidates, k1)
            ids[i, : found.size] = self.ids[found]
            scores[i, : found.size] = best - deficits
            scanned[i] = self.nlist, listed, candidates.size

        _for_each(search_one, len(rows), threads)
        return SearchResult(ids, scores, scanned, lists, kept)

    def _nearest_lists(self, query: _Query, nprobe: int) -> NDArray[np.int64]:
        """Stage 1: the lists to probe, best first."""
        cells = self._centroid_cells
        return _smallest(query.scan(cells, cells.ids, None, _CENTROIDS), cells.ids, nprobe)

    def _coarse(
        self, query: _Query, lists: NDArray[np.int64], k2: int
    ) -> tuple[NDArray[np.int64], int]:
        """Stage 2: positions of the candidates, and how many vectors the lists hold."""
        spans = np.stack([self.offsets[lists], self.offsets[lists + 1]], axis=1)
        positions = np.concatenate([np.arange(start, end) for start, end in spans])
        deficits = query.scan(self._vector_cells, positions, spans, _LISTS)
        return positions[_smallest(deficits, self.ids[positions], k2)], positions.size

    def _rerank(
        self, query: _Query, candidates: NDArray[np.int64], k1: int
    ) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
        """Stage 3: positions of the results, best first, and their deficits."""
        deficits = query.pick(self._vector_cells, candidates, _RERANK)
        order = _smallest(deficits, self.ids[candidates], k1)
        return candidates[order], deficits[order]

    def _prepare(self, sensing: _Sensing) -> None:
        """Build what the threads will share, so that none builds it twice."""
        if sensing.noise is not None:
            self._vector_cells.stored(sensing.noise.sigma, sensing.seed)
            self._centroid_cells.stored(sensing.noise.sigma, sensing.seed)
        for stage, cells in ((_CENTROIDS, self._centroid_cells), (_LISTS, self._vector_cells)):
            if not sensing.draws(stage):
                cells.sliced(sensing.noise, sensing.m[stage - 1], sensing.seed)

    def _queries(self, queries: ArrayLike) -> NDArray[np.float32]:
        rows = normalised(queries)
        if rows.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"search: queries have {rows.shape[1]} dimensions, "
                f"the index has {self.vectors.shape[1]}"
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
        n, dim = index.vectors.shape
        self._quantizer = faiss.IndexFlatIP(dim)
        self._quantizer.add(index.centroids)
        self.faiss_index = faiss.IndexIVFFlat(
            self._quantizer, dim, index.nlist, faiss.METRIC_INNER_PRODUCT
        )
        self.faiss_index.is_trained = True
        member = np.repeat(np.arange(index.nlist, dtype=np.int64), index.list_sizes)
        self.faiss_index.add_core(
            n,
            faiss.swig_ptr(index.vectors),
            faiss.swig_ptr(index.ids),
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


def _for_each(task: Callable[[int], None], count: int, threads: int) -> None:
    if threads == 1:
        for i in range(count):
            task(i)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(task, range(count)):
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
