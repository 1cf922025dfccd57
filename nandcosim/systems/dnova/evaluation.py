"""Retrieval quality of D-NOVA over any axes of its configuration.

Recall is executed, not modelled: every configuration searches the corpus, so the
cost is one pass over the queries a configuration. The FP32-IVF reference runs in
FAISS over the same centroids and lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim import __version__
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
    "dts", "alpha", "metric", "value_range", "k2", "latch_bits", "noise", "sigma", "chip",
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
        Dimensions are the axes of `config`, ``reference`` and ``k`` (recall@k):

        - ``recall``: share of the reference found;
        - ``ivf_recall``: the same for FP32-IVF on the same lists (1 against itself);
        - ``gap``: FP32-IVF's recall less ours, paired by query;
        - each with ``_se``, its standard error over the queries;
        - ``scanned``: mean vectors scored a query, by ``stage``.

        The references are ``judged`` (documents judged relevant, where the corpus has
        judgements), ``exact`` (exact float32 top k) and ``fp32_ivf`` (FP32-IVF's top k).

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
        self.search = lru_cache(maxsize=64)(self._search)
        self.sensing_table = lru_cache(maxsize=64)(self._sensing_table)
        self.truths: dict[str, Any] = {}
        if self.corpus.relevance is not None:
            self.truths["judged"] = self.corpus.relevance
        nearest = min(max(self.ks), corpus.n)
        self.truths["exact"] = exact_neighbours(np.asarray(corpus.vectors), self.queries, nearest)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    def measure(self, index: tuple[int, ...], point: Config) -> None:
        """Search at one configuration and store what it found."""
        found = self.search(point if point.noise != "none" else _on_chip_0(point))
        float_found = self.reference(point.nlist, point.nprobe, point.k1, point.seed)
        truths = {**self.truths, "fp32_ivf": float_found.ids}
        for row, truth in enumerate(truths.values()):
            ours, floating = (self._recall(ids, truth) for ids in (found.ids, float_found.ids))
            for name, per_query in {
                "recall": ours,
                "ivf_recall": floating,
                "gap": floating - ours,
            }.items():
                self._record(name, (*index, row), per_query)
        self._store("scanned", (3,))[index] = found.scanned.mean(axis=0)

    def _search(self, point: Config) -> SearchResult:
        ivf = self.index(point.nlist, point.value_range, point.seed)
        return ivf.search(
            self.queries,
            m=group_sizes(str(point.dts)),
            alpha=point.alpha,  # type: ignore[arg-type]  # a point has no axes left
            nprobe=point.nprobe,  # type: ignore[arg-type]
            k2=point.k2,  # type: ignore[arg-type]
            k1=point.k1,
            metric=point.metric,  # type: ignore[arg-type]
            accumulator=Accumulator(latch_bits=point.latch_bits),  # type: ignore[arg-type]
            noise=self._noise(point),
            seed=point.chip,  # type: ignore[arg-type]
            threads=point.threads,
        )

    def dataset(self) -> xr.Dataset:
        """What was stored, with labels, units and provenance."""
        axes = self.config.axes
        dataset = xr.Dataset(coords={name: list(values) for name, values in axes.items()})
        references = [*self.truths, "fp32_ivf"]
        dataset = dataset.assign_coords(reference=references, k=list(self.ks), stage=[1, 2, 3])
        for name, values in self.values.items():
            last = ("stage",) if name == "scanned" else ("reference", "k")
            array = xr.DataArray(values, dims=(*axes, *last))
            if name.startswith("ivf_recall"):  # the same along every axis of the sensing
                array = array.isel({axis: 0 for axis in axes if axis in _SENSING_AXES}, drop=True)
            dataset[name] = array.assign_attrs(_describe(name))
        dataset.attrs = {
            "system": "dnova",
            "config": self.config.model_dump_json(),
            "corpus": self.corpus.name,
            "documents": self.corpus.n,
            "queries": self.corpus.nq,
            "nandcosim": __version__,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "tables": json.dumps({name: table.digest for name, table in self.tables.items()}),
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
        return SensingNoise.from_table(
            self.sensing_table(point.chip),
            point.sigma,  # type: ignore[arg-type]
            sizes=group_sizes(str(point.dts)),
        )

    def _sensing_table(self, chip: int) -> CalibrationTable:
        """The circuit's table; drawn within its uncertainty for any chip but the first."""
        if "dts_sense" not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise InputError(f"dnova: noise=table needs the table 'dts_sense'; loaded: {known}")
        table = self.tables["dts_sense"]
        return table if chip == 0 else table.perturbed(np.random.default_rng(chip))

    def _recall(self, ids: np.ndarray, truth: Any) -> np.ndarray:
        """Recall of every query at every k, shape (k, nq); judgements have no ranks to cut."""
        ranked = isinstance(truth, np.ndarray)
        return np.stack(
            [recall_per_query(ids, truth[:, :k] if ranked else truth, k) for k in self.ks]
        )

    def _record(self, name: str, index: tuple[int, ...], per_query: np.ndarray) -> None:
        """Store the mean over the queries that have a reference, and its standard error."""
        known = np.count_nonzero(~np.isnan(per_query), axis=-1)
        tail = (len(self.truths) + 1, len(self.ks))
        self._store(name, tail)[index] = np.nanmean(per_query, axis=-1)
        spread = np.nanstd(per_query, axis=-1, ddof=1) if known.min() > 1 else np.nan
        self._store(f"{name}_se", tail)[index] = spread / np.sqrt(known)

    def _store(self, name: str, tail: tuple[int, ...]) -> np.ndarray:
        if name not in self.values:
            self.values[name] = np.full((*self.shape, *tail), np.nan)
        return self.values[name]


def _on_chip_0(point: Config) -> Config:
    """Ideal sensing is the same on every chip, and found once."""
    return point.model_copy(update={"chip": 0})


def _describe(name: str) -> dict[str, str]:
    meaning = {
        "recall": "share of the reference found",
        "ivf_recall": "share of the reference that FP32-IVF finds in FAISS",
        "gap": "recall of FP32-IVF less that of D-NOVA, paired by query",
        "scanned": "vectors scored a query",
    }[name.removesuffix("_se")]
    what = "standard error over the queries of: " if name.endswith("_se") else ""
    return {"units": "1", "long_name": f"{what}{meaning}"}
