"""Retrieval quality of D-NOVA over the search axes of its configuration.

Recall is executed, not modelled: every configuration searches the corpus, so the
cost is one pass over the queries a configuration. The references run over the same
centroids and lists: FP32-IVF in FAISS, and where asked for the searches of REIS and NSP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.activity import group_sizes_along, measure_activity, trace_of
from nandcosim.systems.dnova.adapter import load_adapter
from nandcosim.systems.dnova.comparison import cost_tables
from nandcosim.systems.dnova.config import SEARCH_AXES, Config, group_sizes
from nandcosim.systems.dnova.corpus import Corpus
from nandcosim.systems.dnova.deficits import deficit_quantiles
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult, exact_neighbours
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.recall import bootstrap_interval, recall_per_query
from nandcosim.systems.dnova.reis import CodedLists, nsp_search, reis_search
from nandcosim.systems.dnova.score import Accumulator
from nandcosim.systems.dnova.simulation import where_they_part

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["QUANTILES", "RECALL_AT", "retrieve"]

#: The k of recall@k that the paper reports (section 5.4).
RECALL_AT = (25, 100)

#: Quantiles of the deficits of a string (Fig. 7).
QUANTILES = (0.5, 0.9, 0.99, 1.0)

#: Bits a cell of the circuit that the tables describe.
_TABLE_BITS = 4

#: Axes that the searches of others depend on.
_DEPENDS = {
    "ivf": {"nlist", "nprobe", "adapter"},
    "nsp": {"nlist", "nprobe", "adapter", "k2"},
    "reis": {"nlist", "nprobe", "adapter", "reis_candidates"},
}


def retrieve(
    config: Config,
    tables: Mapping[str, CalibrationTable],
    workload: Corpus,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Search a corpus in every configuration: recall, deficits and activity.

    Parameters
    ----------
    config : Config
    tables : Mapping of str to CalibrationTable
        ``tables["dts_sense"]`` is needed with ``noise="table"``.
    workload : Corpus
    progress : callable, optional
        Called with searches done and in all.

    Returns
    -------
    xarray.Dataset
        The variables of `nandcosim.systems.dnova.evaluate` on recall and deficits, and
        those of `nandcosim.systems.dnova.activity.measure_activity` with ``m``.
    """
    run = _Retrieval(config, tables, workload)
    for done, (at, point) in enumerate(config.points(SEARCH_AXES)):
        run.measure(at, point)
        if progress is not None:
            progress(done + 1, run.size)
    return run.dataset()


class _Retrieval:
    """Accumulates the searches of one call of `retrieve`."""

    def __init__(
        self, config: Config, tables: Mapping[str, CalibrationTable], corpus: Corpus
    ) -> None:
        self.config = config
        self.tables = tables
        self.corpus = corpus.select_queries(np.arange(min(config.queries, corpus.nq)))
        self.ks = tuple(k for k in RECALL_AT if k <= config.k1) or (config.k1,)
        self.axes = {n: v for n, v in config.axes.items() if n in SEARCH_AXES}
        triples = _values(config.dts)
        self.sizes = {size for triple in triples for size in group_sizes(str(triple))}
        self.values: dict[str, tuple[tuple[str, ...], NDArray[Any], Mapping[str, str]]] = {}
        self.coords: dict[str, Any] = {}
        self.queries = lru_cache(maxsize=8)(self._queries)
        self.index = lru_cache(maxsize=2)(self._index)
        self.reference = lru_cache(maxsize=16)(self._reference)
        self.search = lru_cache(maxsize=4)(self._search)
        self.coded = lru_cache(maxsize=2)(self._coded)
        self.rival = lru_cache(maxsize=16)(self._rival)
        self.sensing_table = lru_cache(maxsize=64)(self._sensing_table)
        for adapter in _values(config.adapter):
            self.queries(adapter)  # a missing or unfit one is known before anything is searched
        self.truths: dict[str, Any] = {}
        if self.corpus.relevance is not None:
            self.truths["judged"] = self.corpus.relevance
        nearest = min(max(self.ks), corpus.n)
        # What is nearest is a matter of the encoder's vectors, whatever the adapter does to them.
        asked = np.asarray(self.corpus.queries)
        self.truths["exact"] = exact_neighbours(np.asarray(corpus.vectors), asked, nearest)

    @property
    def size(self) -> int:
        return int(np.prod([len(values) for values in self.axes.values()], dtype=int))

    def measure(self, at: tuple[int, ...], point: Any) -> None:
        """Search at one configuration and store what it found."""
        found = self.search(self._sensed_as(point))
        floating = self.reference(point.nlist, point.nprobe, point.k1, point.seed, point.adapter)
        truths = {**self.truths, "fp32_ivf": floating.ids}
        software = {"ivf_recall": floating.ids}
        if self.config.baselines == "executed":
            for system in ("reis", "nsp"):
                software[f"{system}_recall"] = self.rival(system, _lists_of(point)).ids
        per_query = {
            "recall": self._recalls(found.ids, truths),
            **{name: self._recalls(ids, truths) for name, ids in software.items()},
        }
        per_query["gap"] = per_query["ivf_recall"] - per_query["recall"]
        for name, values in per_query.items():
            self._record(at, name, values)
        self._store(at, "scanned", ("stage",), found.scanned.mean(axis=0), _SCANNED)
        if self.config.deficit_queries:
            self._deficits(at, point)
        ivf = self._index_of(point)
        activity = measure_activity(point, ivf, found, self.corpus.dimension)
        self.coords |= {str(name): activity[name].values for name in activity.coords}
        for key, array in activity.data_vars.items():
            dims = tuple(map(str, array.dims))
            self._store(at, str(key), dims, array.values, array.attrs)
        if self.config.event_queries:
            self._events(at, point, ivf, found)

    def dataset(self) -> xr.Dataset:
        """What was stored, with labels and units."""
        dataset = xr.Dataset(coords={name: list(values) for name, values in self.axes.items()})
        coords = {"reference": [*self.truths, "fp32_ivf"], "k": list(self.ks), "stage": [1, 2, 3]}
        dataset = dataset.assign_coords({**coords, **self.coords})
        for name, (dims, values, attrs) in self.values.items():
            array = xr.DataArray(values, dims=(*self.axes, *dims), attrs=attrs)
            needed = _DEPENDS.get(name.partition("_")[0], set(self.axes) - {"reis_candidates"})
            same = {axis: 0 for axis in self.axes if axis not in needed}
            dataset[name] = array.isel(same, drop=True)
        dataset["m"] = group_sizes_along(self.config)
        return dataset.assign_attrs(dimension=self.corpus.dimension)

    def _queries(self, adapter: str) -> NDArray[np.float32]:
        asked = np.asarray(self.corpus.queries)
        return asked if adapter == "none" else load_adapter(adapter)(asked)

    def _index(self, nlist: int, value_range: str, seed: int, bits: int) -> IvfIndex:
        vectors = np.asarray(self.corpus.vectors)
        return IvfIndex.build(vectors, nlist, seed, value_range=value_range, levels=2**bits)

    def _index_of(self, point: Any) -> IvfIndex:
        return self.index(point.nlist, point.value_range, point.seed, point.cell_bits)

    def _lists(self, nlist: int, seed: int) -> IvfIndex:
        """An index for searches that take nothing but its lists from it."""
        return self.index(nlist, self._first("value_range"), seed, self._first("cell_bits"))

    def _reference(self, nlist: int, nprobe: int, k1: int, seed: int, adapter: str) -> SearchResult:
        index = self._lists(nlist, seed)
        return index.fp32().search(self.queries(adapter), nprobe=nprobe, k1=k1)

    def _rival(self, system: str, point: Any) -> SearchResult:
        lists = self.coded(point.nlist, point.seed)
        asked, common = self.queries(point.adapter), {"nprobe": point.nprobe, "k1": point.k1}
        if system == "nsp":
            return nsp_search(lists, asked, k2=point.k2, **common)
        return reis_search(lists, asked, candidates=point.reis_candidates, **common)

    def _coded(self, nlist: int, seed: int) -> CodedLists:
        return CodedLists.of(self._lists(nlist, seed), np.asarray(self.corpus.vectors))

    def _first(self, name: str) -> Any:
        return _values(getattr(self.config, name))[0]

    def _sensed_as(self, point: Config) -> Config:
        """`point` with the fields that its search does not depend on at their first value."""
        names = ["reis_candidates"]
        if point.noise == "none":  # ideal sensing is the same on every chip, and found once
            names += ["sigma", "read_noise", "chip"]
        return point.model_copy(update={name: self._first(name) for name in names})

    def _search(self, point: Any) -> SearchResult:
        return self._index_of(point).search(
            self.queries(point.adapter),
            m=group_sizes(str(point.dts)),
            alpha=point.alpha,
            nprobe=point.nprobe,
            k2=point.k2,
            k1=point.k1,
            metric=point.metric,
            accumulator=_accumulator(point),
            noise=self._noise(point),
            read_noise=point.read_noise,
            seed=point.chip,
            threads=point.threads,
        )

    def _deficits(self, at: tuple[int, ...], point: Any) -> None:
        quantiles = deficit_quantiles(
            self._index_of(point),
            self.queries(point.adapter)[: self.config.deficit_queries],
            m=group_sizes(str(point.dts)),
            alpha=point.alpha,
            nprobe=point.nprobe,
            k2=point.k2,
            k1=point.k1,
            accumulator=_accumulator(point),
            quantiles=QUANTILES,
            noise=self._noise(point),
            seed=point.chip,
        )
        self.coords["quantile"] = list(QUANTILES)
        self._store(at, "deficit", ("stage", "quantile"), quantiles, _DEFICIT)

    def _events(self, at: tuple[int, ...], point: Any, ivf: IvfIndex, found: SearchResult) -> None:
        """Simulate the first queries at every point of the axes that are no search axes."""
        few = _first_queries(found, self.config.event_queries)
        axes = point.axes
        shape = tuple(len(values) for values in axes.values())
        ratio, qps = np.empty(shape), np.empty(shape)
        for place_on_axes, one in point.points():
            trace = trace_of(one, ivf, few, self.corpus.dimension)
            parted = where_they_part(trace, one, cost_tables(self.tables, self.sizes)[0])
            ratio[place_on_axes] = float(parted["latency_ratio"].mean())
            qps[place_on_axes] = float(parted["qps_simulated"])
        self.coords |= {name: list(values) for name, values in axes.items()}
        self._store(at, "event_latency_ratio", tuple(axes), ratio, _EVENT_RATIO)
        self._store(at, "event_qps", tuple(axes), qps, _EVENT_QPS)

    def _noise(self, point: Any) -> SensingNoise | None:
        if point.noise == "none":
            return None
        if point.cell_bits != _TABLE_BITS:
            raise InputError(
                f"dnova: noise=table with cell_bits = {point.cell_bits}, allowed: {_TABLE_BITS}, "
                "the level spacing that the tables were made at"
            )
        return SensingNoise.from_table(
            self.sensing_table(point.chip), point.sigma, sizes=group_sizes(str(point.dts))
        )

    def _sensing_table(self, chip: int) -> CalibrationTable:
        """The circuit's table; drawn within its uncertainty for any chip but the first."""
        if "dts_sense" not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise InputError(f"dnova: noise=table needs the table 'dts_sense'; loaded: {known}")
        table = self.tables["dts_sense"]
        return table if chip == 0 else table.perturbed(np.random.default_rng(chip))

    def _recalls(self, ids: NDArray[Any], truths: Mapping[str, Any]) -> NDArray[np.float64]:
        """Recall of every query, shape (reference, k, nq)."""
        return np.array(
            [
                [recall_per_query(ids, _first_ranks(truth, k), k) for k in self.ks]
                for truth in truths.values()
            ]
        )

    def _record(self, at: tuple[int, ...], name: str, per_query: NDArray[np.float64]) -> None:
        """Store the mean over the queries that have a reference, its error and its interval."""
        known = np.count_nonzero(~np.isnan(per_query), axis=-1)
        spread = (
            np.nanstd(per_query, axis=-1, ddof=1)
            if known.min() > 1
            else np.full(per_query.shape[:-1], np.nan)
        )
        low, high = bootstrap_interval(per_query)
        for suffix, values in {
            "": np.nanmean(per_query, axis=-1),
            "_se": spread / np.sqrt(known),
            "_low": low,
            "_high": high,
        }.items():
            self._store(at, f"{name}{suffix}", ("reference", "k"), values, _describe(name, suffix))

    def _store(
        self,
        at: tuple[int, ...],
        name: str,
        dims: tuple[str, ...],
        values: NDArray[Any],
        attrs: Mapping[str, str],
    ) -> None:
        if name not in self.values:
            shape = tuple(len(axis) for axis in self.axes.values())
            blank = np.full((*shape, *np.shape(values)), np.nan, dtype=np.float64)
            self.values[name] = (dims, blank, attrs)
        self.values[name][1][at] = values


def _values(field: Any) -> tuple[Any, ...]:
    """The values of a field, axis or not."""
    return field if isinstance(field, tuple) else (field,)


def _first_ranks(truth: Any, k: int) -> Any:
    """The k best of a ranked reference; judgements have no ranks to cut."""
    return truth[:, :k] if isinstance(truth, np.ndarray) else truth


def _first_queries(found: SearchResult, count: int) -> SearchResult:
    return SearchResult(
        **{field.name: getattr(found, field.name)[:count] for field in fields(found)}
    )


def _accumulator(point: Any) -> Accumulator:
    return Accumulator(
        cells=point.wordlines,
        latch_bits=point.latch_bits,
        merge_bits=point.merge_bits or None,
    )


def _lists_of(point: Config) -> Config:
    """`point` with every sensing field at its first value, so that software searches once."""
    names = {"nlist", "nprobe", "adapter", "k2", "k1", "seed", "reis_candidates"}
    return Config(**{name: getattr(point, name) for name in names})


_SCANNED = {"units": "1", "long_name": "vectors scored a query"}
_EVENT_RATIO = {"units": "1", "long_name": "latency alone, simulated over closed form"}
_EVENT_QPS = {"units": "1/s", "long_name": "queries a second, saturated, simulated"}
_DEFICIT = {"units": "1", "long_name": "quantile of the deficit of a string among the vectors kept"}

_MEANING = {
    "recall": "share of the reference found",
    "ivf_recall": "share of the reference that FP32-IVF finds in FAISS",
    "reis_recall": "share of the reference that REIS finds",
    "nsp_recall": "share of the reference that NSP finds",
    "gap": "recall of FP32-IVF less that of D-NOVA, paired by query",
}
_SUFFIXES = {
    "": "",
    "_se": "standard error over the queries of: ",
    "_low": "lower end of the 95 % bootstrap interval over the queries of: ",
    "_high": "upper end of the 95 % bootstrap interval over the queries of: ",
}


def _describe(name: str, suffix: str) -> dict[str, str]:
    return {"units": "1", "long_name": f"{_SUFFIXES[suffix]}{_MEANING[name]}"}
