"""Retrieval quality of D-NOVA over any axes of its configuration.

Recall is executed, not modelled: every configuration searches the corpus, so the
cost is one pass over the queries a configuration. The FP32-IVF reference runs in
FAISS over the same centroids and lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.dnova.config import Config, group_sizes
from nandcosim.systems.dnova.corpus import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult, exact_neighbours
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.recall import recall_per_query
from nandcosim.systems.dnova.score import Accumulator

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["RECALL_AT", "evaluate"]

#: The k of recall@k that the paper reports (section 5.4).
RECALL_AT = (25, 100)

#: Axes that the FP32-IVF reference does not depend on.
_SENSING_AXES = {
    "dts", "alpha", "metric", "value_range", "k2", "latch_bits", "noise", "sigma",
}  # fmt: skip


def evaluate(
    config: Config,
    tables: Mapping[str, CalibrationTable] | None = None,
    workload: Corpus | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Search a corpus in every configuration and measure recall.

    Parameters
    ----------
    config : Config
        Fields given as tuples are the axes of the result.
    tables : Mapping of str to CalibrationTable, optional
        ``tables["dts_sense"]`` is needed with ``noise="table"``.
    workload : Corpus
        Vectors and queries, and relevance judgements where there are any.
    progress : callable, optional
        Called with searches done and in all.

    Returns
    -------
    xarray.Dataset
        Dimensions are the axes of `config` and ``k`` (recall@k):

        - ``recall_fp32_ivf``: share of the FP32-IVF result found, same lists and nprobe;
        - ``recall_exact``: share of the exact float32 top k found;
        - ``recall_judged``: share of the documents judged relevant found;
        - ``ivf_recall_exact``, ``ivf_recall_judged``: the same for FP32-IVF;
        - ``gap_exact``, ``gap_judged``: FP32-IVF's recall less ours, paired by query;
        - each with ``_se``, its standard error over the queries;
        - ``scanned``: mean vectors scored a query, by ``stage``.

    Raises
    ------
    InputError
        If there is no workload, or a table is needed and missing.
    MissingExtraError
        If FAISS or Numba is not installed.
    """
    if workload is None:
        raise InputError("dnova: no workload; load_corpus('wordnet') gives the shipped one")
    run = _Evaluation(config, tables or {}, workload)
    total = run.size
    for done, (index, point) in enumerate(config.points()):
        run.measure(index, point)
        if progress is not None:
            progress(done + 1, total)
    return run.dataset()


class _Evaluation:
    """Accumulates the searches of one call of `evaluate`."""

    def __init__(
        self, config: Config, tables: Mapping[str, CalibrationTable], corpus: Corpus
    ) -> None:
        self.config = config
        self.tables = tables
        self.corpus = corpus.select_queries(np.arange(min(config.queries, corpus.nq)))
        self.queries = np.asarray(self.corpus.queries)
        self.ks = tuple(k for k in RECALL_AT if k <= config.k1) or (config.k1,)
        self.shape = tuple(len(values) for values in config.axes.values())
        self.values: dict[str, np.ndarray] = {}
        self.index = lru_cache(maxsize=2)(self._index)
        self.reference = lru_cache(maxsize=64)(self._reference)
        nearest = min(max(self.ks), corpus.n)
        self.truths: dict[str, Any] = {
            "exact": exact_neighbours(np.asarray(corpus.vectors), self.queries, nearest)
        }
        if self.corpus.relevance is not None:
            self.truths["judged"] = self.corpus.relevance

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def measure(self, index: tuple[int, ...], point: Config) -> None:
        """Search at one configuration and store what it found."""
        ivf = self.index(point.nlist, point.value_range, point.seed)
        found = ivf.search(
            self.queries,
            m=group_sizes(str(point.dts)),
            alpha=point.alpha,  # type: ignore[arg-type]  # a point has no axes left
            nprobe=point.nprobe,  # type: ignore[arg-type]
            k2=point.k2,  # type: ignore[arg-type]
            k1=point.k1,
            metric=point.metric,  # type: ignore[arg-type]
            accumulator=Accumulator(latch_bits=point.latch_bits),  # type: ignore[arg-type]
            noise=self._noise(point),
            seed=point.seed,
            threads=point.threads,
        )
        float_found = self.reference(point.nlist, point.nprobe, point.k1, point.seed)
        self._record("recall_fp32_ivf", index, self._recall(found.ids, float_found.ids))
        for name, truth in self.truths.items():
            ours, floating = (self._recall(ids, truth) for ids in (found.ids, float_found.ids))
            self._record(f"recall_{name}", index, ours)
            self._record(f"ivf_recall_{name}", index, floating)
            self._record(f"gap_{name}", index, floating - ours)
        self._store("scanned", (3,))[index] = found.scanned.mean(axis=0)

    def dataset(self) -> xr.Dataset:
        """What was stored, with labels, units and provenance."""
        axes = self.config.axes
        dataset = xr.Dataset(coords={name: list(values) for name, values in axes.items()})
        dataset = dataset.assign_coords(k=list(self.ks), stage=[1, 2, 3])
        for name, values in self.values.items():
            last = "stage" if name == "scanned" else "k"
            array = xr.DataArray(values, dims=(*axes, last))
            if name.startswith("ivf_"):  # the same along every axis of the sensing
                array = array.isel({axis: 0 for axis in axes if axis in _SENSING_AXES}, drop=True)
            dataset[name] = array.assign_attrs(_describe(name))
        dataset.attrs = {
            "system": "dnova",
            "config": self.config.model_dump_json(),
            "corpus": self.corpus.name,
            "documents": self.corpus.n,
            "queries": self.corpus.nq,
            "tables": json.dumps(
                {name: table.digest for name, table in self.tables.items()}
            ),
        }
        return dataset

    def _index(self, nlist: int, value_range: str, seed: int) -> IvfIndex:
        vectors = np.asarray(self.corpus.vectors)
        return IvfIndex.build(vectors, nlist, seed, value_range=value_range)

    def _reference(self, nlist: int, nprobe: int, k1: int, seed: int) -> SearchResult:
        default = self.config.value_range
        value_range = default[0] if isinstance(default, tuple) else default
        return (
            self.index(nlist, value_range, seed).fp32().search(self.queries, nprobe=nprobe, k1=k1)
        )

    def _noise(self, point: Config) -> SensingNoise | None:
        if point.noise == "none":
            return None
        if "dts_sense" not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise InputError(f"dnova: noise=table needs the table 'dts_sense'; loaded: {known}")
        return SensingNoise.from_table(
            self.tables["dts_sense"],
            point.sigma,  # type: ignore[arg-type]
            sizes=group_sizes(str(point.dts)),
        )

    def _recall(self, ids: np.ndarray, truth: Any) -> np.ndarray:
        """Recall of every query at every k, shape (k, nq); judgements have no ranks to cut."""
        ranked = isinstance(truth, np.ndarray)
        return np.stack(
            [recall_per_query(ids, truth[:, :k] if ranked else truth, k) for k in self.ks]
        )

    def _record(self, name: str, index: tuple[int, ...], per_query: np.ndarray) -> None:
        """Store the mean over the queries that have a reference, and its standard error."""
        known = np.count_nonzero(~np.isnan(per_query), axis=-1)
        self._store(name, (len(self.ks),))[index] = np.nanmean(per_query, axis=-1)
        spread = np.nanstd(per_query, axis=-1, ddof=1) if known.min() > 1 else np.nan
        self._store(f"{name}_se", (len(self.ks),))[index] = spread / np.sqrt(known)

    def _store(self, name: str, tail: tuple[int, ...]) -> np.ndarray:
        if name not in self.values:
            self.values[name] = np.full((*self.shape, *tail), np.nan)
        return self.values[name]


def _describe(name: str) -> dict[str, str]:
    base = name.removesuffix("_se").removeprefix("ivf_")
    meaning = {
        "recall_fp32_ivf": "share of the FP32-IVF top k found (same lists, same nprobe)",
        "recall_exact": "share of the exact float32 top k found",
        "recall_judged": "share of the documents judged relevant found in the top k",
        "gap_exact": "recall of the exact top k that FP32-IVF has more, paired by query",
        "gap_judged": "recall of judged documents that FP32-IVF has more, paired by query",
        "scanned": "vectors scored a query",
    }[base]
    who = "FP32-IVF in FAISS: " if name.startswith("ivf_") else ""
    what = "standard error over the queries of: " if name.endswith("_se") else ""
    return {"units": "1", "long_name": f"{what}{who}{meaning}"}
