"""What the baselines cost and what they find, in tables.

    python -m nandcosim.systems.dnova.baseline_study cost
    python -m nandcosim.systems.dnova.baseline_study split
    python -m nandcosim.systems.dnova.baseline_study claims
    python -m nandcosim.systems.dnova.baseline_study recall
    python -m nandcosim.systems.dnova.baseline_study faiss

``cost``: time, energy, bytes and queries a second of every system for one search the
size of the paper's NQ. ``split``: REIS and NSP by component. ``claims``: the knobs that
are set to the paper's claims, and the claims that no value of them meets.
``recall``: the shipped corpus, searched by each. ``faiss``: the CPU, timed here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.errors import MissingExtraError
from nandcosim.studies import one_line_errors
from nandcosim.systems.dnova import cost
from nandcosim.systems.dnova.baselines import (
    COMPONENTS,
    CPU_MODES,
    BaselineFields,
    FaissTiming,
    cpu_cost,
    nsp_cost,
    reis_cost,
    time_faiss,
)
from nandcosim.systems.dnova.comparison import dnova_cost
from nandcosim.systems.dnova.config import SearchFields
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult, exact_neighbours, normalised
from nandcosim.systems.dnova.recall import recall_at
from nandcosim.systems.dnova.reis import CodedLists, nsp_search, reis_search

__all__ = [
    "StudyConfig",
    "calibrated_cpu_bandwidth",
    "clustered_faiss_index",
    "nq_activity",
    "recall_study",
    "system_costs",
]

#: Latency of CPU and REIS over that of DTS242 (section 6.6), and energy of CPU.
CPU_RATIOS, REIS_RATIOS, CPU_ENERGY_RATIOS = (33.3, 41.7), (3.01, 3.79), (58.8, 71.0)

_NQ_DOCUMENTS, _NQ_LISTS, _NQ_PROBES = 2_680_000, 1024, (64, 128)
_SERIAL = (1, 31, 16)
"""Sub-blocks activated one after the other that reproduce the ratios of Figs. 16 and 17."""
_CANDIDATES = (1000, 2000, 5000, 10_000, 20_000, 50_000)
_CPU_CORES = 128
"""Of the paper's server (section 5.4)."""
_BLOCK = 50_000


class StudyConfig(SearchFields, BaselineFields):
    """Everything that the costs of a search depend on."""


# ---------------------------------------------------------------- cost


def nq_activity(dimension: int, probes: Sequence[int] = _NQ_PROBES) -> xr.Dataset:
    """Activity of a search the size of the paper's NQ, over ``nprobe`` and ``stage``.

    2.68 million documents in 1024 equal lists, and K2 = 1000 (section 5.1). That DTS242
    activates 1, 31 and 16 sub-blocks is inferred from Figs. 16 and 17, not stated, and
    taken for every nprobe.
    """
    listed = np.array(probes) * _NQ_DOCUMENTS / _NQ_LISTS
    sensed = [[_NQ_LISTS, count, 1000] for count in listed]
    return xr.Dataset(
        {
            "sensed": (("nprobe", "stage"), sensed),
            "activations": ("stage", list(_SERIAL)),
            "busiest": ("stage", list(_SERIAL)),
            "m": ("stage", [2, 4, 2]),
        },
        coords={"nprobe": list(probes), "stage": [1, 2, 3]},
        attrs={"dimension": dimension},
    )


def system_costs(activity: xr.Dataset, config: StudyConfig) -> dict[str, xr.Dataset]:
    """D-NOVA and every baseline by name, the CPU in both modes."""
    cpu = cpu_cost(activity, config)
    return {
        "D-NOVA, DTS242 serial": dnova_cost(activity, config),
        "REIS": reis_cost(activity, config),
        "NSP": nsp_cost(activity, config),
        **{f"CPU {mode}": cpu.sel(cpu_mode=mode) for mode in cpu["cpu_mode"].values},
    }


def calibrated_cpu_bandwidth() -> float:
    """Scan rate (B/s) at which the CPU is as much slower than D-NOVA as claim D1 says.

    NQ, mpnet, nprobe 64; the geometric mean of the claim's ends; D-NOVA's time in the
    array by Table 1 alone.
    """
    activity, config = nq_activity(768, probes=(64,)), StudyConfig(nprobe=64)
    scanned = float(cpu_cost(activity, config)["bytes_moved"].sum())
    return scanned / (_array_time(activity, config) * float(np.sqrt(np.prod(CPU_RATIOS))))


def _array_time(activity: xr.Dataset, config: StudyConfig) -> float:
    return float(cost.latency(activity, config).sel(component="array").sum())


def _cost_lines(_: argparse.Namespace) -> Iterator[str]:
    yield (
        "   D nprobe system                 ms: stage 1        2        3     total  /D-NOVA"
        "        mJ  /D-NOVA  MB moved  re-rank       qps  D-NOVA/"
    )
    config = StudyConfig(nprobe=_NQ_PROBES)
    for dimension in (384, 768):
        costs = system_costs(nq_activity(dimension), config)
        for nprobe in _NQ_PROBES:
            rows = {name: _summary(one.sel(nprobe=nprobe)) for name, one in costs.items()}
            ours = rows["D-NOVA, DTS242 serial"]
            for name, row in rows.items():
                stages = " ".join(f"{1e3 * time:8.2f}" for time in row["stages"])
                yield (
                    f"{dimension:4} {nprobe:6} {name:22} {stages:>29} {1e3 * row['time']:9.2f} "
                    f"{row['time'] / ours['time']:8.2f} {1e3 * row['energy']:9.4g} "
                    f"{row['energy'] / ours['energy']:8.3g} {row['moved'] / 1e6:9.3f} "
                    f"{row['reranked'] / 1e6:8.3f} {row['qps']:9.3f} "
                    f"{ours['qps'] / row['qps']:8.2f}"
                )


def _summary(one: xr.Dataset) -> dict[str, Any]:
    return {
        "stages": one["latency"].sum("component").values,
        "time": float(one["latency"].sum()),
        "energy": float(one["energy"].sum()),
        "moved": float(one["bytes_moved"].sum()),
        "reranked": float(one["bytes_moved"].sel(stage=3)),
        "qps": float(one["qps"]),
    }


def _split_lines(_: argparse.Namespace) -> Iterator[str]:
    yield "   D system  of          stage" + "".join(f"{name:>11}" for name in COMPONENTS)
    for dimension in (384, 768):
        costs = system_costs(nq_activity(dimension, probes=(64,)), StudyConfig(nprobe=64))
        for name in ("REIS", "NSP"):
            for quantity, unit in (("latency", "ms"), ("energy", "mJ")):
                for stage, parts in costs[name][quantity].squeeze("nprobe").groupby("stage"):
                    values = "".join(f"{1e3 * part:11.4f}" for part in parts.values.ravel())
                    yield f"{dimension:4} {name:7} {quantity:>7}, {unit} {stage:5}{values}"


# ---------------------------------------------------------------- claims


def _claim_lines(_: argparse.Namespace) -> Iterator[str]:
    yield from _cpu_claims()
    yield from _nsp_claims()
    yield from _reis_claims()
    yield from _energy_claims()


def _cpu_claims() -> Iterator[str]:
    config = StudyConfig(nprobe=64)
    yield _heading("CPU, nprobe 64", "D = 384", "D = 768")
    activities = [nq_activity(dimension, probes=(64,)) for dimension in (384, 768)]
    scanned = np.array([float(cpu_cost(a, config)["bytes_moved"].sum()) for a in activities])
    array = np.array([_array_time(activity, config) for activity in activities])
    here = scanned / float(config.array("faiss_bandwidth"))
    calibrated = scanned / float(config.array("cpu_bandwidth"))
    yield _pair("vectors in the lists and centroids [MB]", scanned / 1e6)
    yield _pair("D-NOVA in the array, 1 + 31 + 16 activations [ms]", 1e3 * array)
    for ratio in CPU_RATIOS:
        yield _pair(
            f"CPU's scan if it is {ratio} times slower [GB/s]", scanned / ratio / array / 1e9
        )
    yield _pair("ratio at cpu_bandwidth, set to mpnet's", calibrated / array)
    yield _pair("time at faiss_bandwidth, one thread [ms]", 1e3 * here)
    yield _pair("ratio at faiss_bandwidth", here / array)
    yield _pair(
        "cpu_bandwidth, computed for mpnet [GB/s]", [np.nan, calibrated_cpu_bandwidth() / 1e9]
    )


def _nsp_claims() -> Iterator[str]:
    whole, straddling = StudyConfig(nprobe=64), StudyConfig(nprobe=64, page_fill="straddling")
    activity = nq_activity(768, probes=(64,))
    array = _array_time(activity, whole)
    read = float(whole.array("qlc_read_time"))
    listed = float(activity["sensed"].sel(stage=2).squeeze())
    pages = np.array(
        [float(nsp_cost(activity, c)["pages"].sel(stage=2).squeeze()) for c in (straddling, whole)]
    )
    yield _heading("NSP, D = 768, nprobe 64", "straddling", "whole")
    yield _pair("INT8 bytes in the lists [MB]", [listed * 768 / 1e6] * 2)
    yield _pair("QLC pages", pages)
    yield _pair("plane time [s]", pages * read)
    yield _pair("planes busy if it is 30 times slower than D-NOVA", pages * read / (30 * array))
    for planes in (5, 12, 96):
        yield _pair(f"ratio on {planes} planes", pages * read / planes / array)


def _reis_claims() -> Iterator[str]:
    config = StudyConfig(nprobe=64)
    activities = [nq_activity(dimension, probes=(64,)) for dimension in (384, 768)]
    costs = [reis_cost(activity, config) for activity in activities]
    stages = np.array([one["latency"].sum("component").values.ravel() for one in costs])
    array = np.array([_array_time(activity, config) for activity in activities])
    total, rerank = stages.sum(axis=1), stages[:, 2]
    binary = np.array([float(one["pages"].sel(stage=[1, 2]).sum()) for one in costs])
    reads = binary / float(config.array("planes_per_query"))
    candidates = float(config.array("reis_candidates"))
    read = float(config.array("qlc_read_time")) / float(config.array("planes_per_query"))
    yield _heading("REIS, 20,000 candidates, nprobe 64", "D = 384", "D = 768")
    yield _pair("a page for every candidate, on 12 planes [ms]", [1e3 * candidates * read] * 2)
    yield _pair(
        "distinct pages expected", [float(one["pages"].sel(stage=3).squeeze()) for one in costs]
    )
    yield _pair("latency [ms]", 1e3 * total)
    yield _pair(
        f"ratio to D-NOVA's array, paper {REIS_RATIOS[0]} to {REIS_RATIOS[1]}", total / array
    )
    yield _pair("share of re-ranking, paper nearly 0.7", rerank / total)
    yield _pair("qps times latency, paper 8 / 0.79 = 10.1", 8 * total / rerank)
    swept = StudyConfig(nprobe=64, reis_candidates=_CANDIDATES)
    latency = [reis_cost(a, swept)["latency"].sum(["stage", "component"]) for a in activities]
    for count in _CANDIDATES:
        fewer = np.array([float(time.sel(reis_candidates=count).squeeze()) for time in latency])
        yield _pair(f"ratio with {count} candidates", fewer / array)
    for share in (0.79, 0.7):
        binary_time = rerank * (1 / share - 1) / reads
        yield _pair(f"time of a binary page if the share is {share} [us]", 1e6 * binary_time)


def _energy_claims() -> Iterator[str]:
    stated = StudyConfig(nprobe=64)
    page = float(stated.array("page_energy"))
    by_time = page * float(stated.array("qlc_read_time")) / float(stated.array("sense_time"))
    scaled = StudyConfig(nprobe=64, qlc_page_energy=by_time)
    activities = [nq_activity(dimension, probes=(64,)) for dimension in (384, 768)]
    ours = np.array([float(dnova_cost(a, stated)["energy"].sum()) for a in activities])
    array = np.array([_array_time(activity, stated) for activity in activities])
    yield _heading("Energy, nprobe 64", "D = 384", "D = 768")
    yield _pair("D-NOVA [mJ]", 1e3 * ours)
    for label, config in (("294.9 nJ", stated), (f"{1e9 * by_time:.0f} nJ", scaled)):
        for name, cost_of in (("REIS", reis_cost), ("NSP", nsp_cost)):
            theirs = np.array([float(cost_of(a, config)["energy"].sum()) for a in activities])
            yield _pair(f"{name} / D-NOVA, a QLC page {label}", theirs / ours)
    for ratio, slower in zip(CPU_ENERGY_RATIOS, CPU_RATIOS, strict=True):
        watts = ratio / slower * ours / array
        yield _pair(f"CPU's power if {ratio} times energy, {slower} times time [W]", watts)
    one_core = stated.model_copy(
        update={"cpu_power": float(stated.array("cpu_power")) / _CPU_CORES}
    )
    for label, config in (("", stated), (", one core charged", one_core)):
        for mode in CPU_MODES:
            cpu = [cpu_cost(a, config).sel(cpu_mode=mode)["energy"].sum() for a in activities]
            yield _pair(f"CPU {mode} / D-NOVA{label}", np.array(cpu, dtype=float) / ours)


def _heading(what: str, first: str, second: str) -> str:
    return f"{what:<52}{first:>10}{second:>10}"


def _pair(what: str, values: Any) -> str:
    """One line: a quantity and its values, blank where there is none."""
    shown = ("" if np.isnan(value) else f"{value:.5g}" for value in values)
    return f"  {what:<50}" + "".join(f"{text:>10}" for text in shown)


# ---------------------------------------------------------------- recall


def recall_study(
    corpus: Corpus,
    nlist: int,
    probes: Sequence[int],
    candidates: Sequence[int],
    *,
    k: int = 100,
    seed: int = 0,
) -> Iterator[tuple[int, str, SearchResult]]:
    """Search a corpus with FP32-IVF, DTS242, NSP and REIS over the same lists.

    REIS with every number of `candidates`; its lists chosen by Hamming distance, and by
    inner product; its bits around the mean, and around zero.

    Yields
    ------
    nprobe : int
    name : str
    result : SearchResult
    """
    index = IvfIndex.build(corpus.vectors, nlist, seed)
    mean, zero = (CodedLists.of(index, corpus.vectors, centre=c) for c in ("mean", "zero"))
    queries = corpus.queries
    for nprobe in probes:
        yield nprobe, "FP32-IVF", index.fp32().search(queries, nprobe=nprobe, k1=k)
        yield nprobe, "DTS242", index.search(queries, m=(2, 4, 2), nprobe=nprobe, k1=k)
        yield nprobe, "NSP", nsp_search(mean, queries, nprobe=nprobe, k1=k)
        for coded, chosen, about in (
            (mean, "hamming", ""),
            (mean, "fp32", ", lists by FP32"),
            (zero, "hamming", ", bits around 0"),
        ):
            for kept in candidates:
                found = reis_search(
                    coded, queries, nprobe=nprobe, candidates=kept, k1=k, select_lists=chosen
                )
                yield nprobe, f"REIS {kept}{about}", found


def _recall_lines(options: argparse.Namespace) -> Iterator[str]:
    from nandcosim.systems.dnova.corpus import load_corpus

    whole = load_corpus(options.corpus)
    corpus = whole.select_queries(slice(options.queries))
    exact = exact_neighbours(corpus.vectors, corpus.queries, 100)
    judged = corpus.relevance or ((),) * corpus.nq
    yield f"{corpus.name}: {corpus.n} documents, {corpus.nq} queries, {options.nlist} lists"
    yield "nprobe system                          R@100 judged   exact  scored in 2    in 3"
    for nprobe, name, found in recall_study(
        corpus, options.nlist, options.nprobe, options.candidates
    ):
        scored = found.scanned.mean(axis=0)
        yield (
            f"{nprobe:6} {name:31} {100 * recall_at(found.ids, judged, 100):11.1f}% "
            f"{100 * recall_at(found.ids, exact, 100):6.1f}% {scored[1]:12.0f} {scored[2]:7.0f}"
        )


# ---------------------------------------------------------------- FAISS


def clustered_faiss_index(vectors: int, dimension: int, nlist: int, seed: int = 0) -> Any:
    """FAISS IndexIVFFlat over random unit vectors about `nlist` random centroids.

    Raises
    ------
    MissingExtraError
        If FAISS is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("the CPU baseline", "faiss-cpu", "retrieval") from error
    draw = np.random.default_rng(seed)
    centroids = normalised(draw.standard_normal((nlist, dimension)))
    index: Any = faiss.index_factory(dimension, f"IVF{nlist},Flat", faiss.METRIC_INNER_PRODUCT)
    index.quantizer.add(centroids)
    index.is_trained = True
    for start in range(0, vectors, _BLOCK):
        count = min(_BLOCK, vectors - start)
        near = centroids[draw.integers(0, nlist, count)]
        apart = draw.standard_normal((count, dimension), dtype=np.float32) / np.sqrt(dimension)
        index.add(normalised(near + apart))
    return index


def _faiss_lines(options: argparse.Namespace) -> Iterator[str]:
    from nandcosim.systems.dnova.corpus import load_corpus

    corpus = load_corpus(options.corpus)
    index = IvfIndex.build(corpus.vectors, options.nlist)
    yield "lists                      D nprobe  vectors scanned   ms a query   GB/s  below 5 GB/s"
    for nprobe in options.nprobe:
        timed = time_faiss(index, corpus.queries[: options.queries], nprobe)
        yield _timing_line(f"{corpus.name} in {options.nlist}", corpus.dimension, nprobe, timed)
    for dimension in (384, 768):
        large = clustered_faiss_index(options.vectors, dimension, _NQ_LISTS)
        asked = np.random.default_rng(1).standard_normal((50, dimension))
        for nprobe in _NQ_PROBES:
            timed = time_faiss(large, asked, nprobe)
            yield _timing_line(f"{options.vectors} in {_NQ_LISTS}", dimension, nprobe, timed)


def _timing_line(lists: str, dimension: int, nprobe: int, timed: FaissTiming) -> str:
    return (
        f"{lists:22} {dimension:5} {nprobe:6} {timed.scanned:16.0f} {1e3 * timed.seconds:12.3f} "
        f"{timed.bandwidth / 1e9:6.2f}  {'yes' if timed.slow else 'no'}"
    )


_TABLES: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "cost": _cost_lines,
    "split": _split_lines,
    "claims": _claim_lines,
    "recall": _recall_lines,
    "faiss": _faiss_lines,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table of the baselines."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.baseline_study", description=main.__doc__
    )
    parser.add_argument("table", nargs="?", choices=list(_TABLES), default="cost")
    parser.add_argument("--corpus", default="wordnet", help="of recall and faiss")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--nlist", type=int, default=128)
    parser.add_argument("--nprobe", type=int, nargs="+", default=[8, 32])
    parser.add_argument(
        "--candidates", type=int, nargs="+", default=[100, 200, 500, 1000, 2000, 20_000]
    )
    parser.add_argument("--vectors", type=int, default=200_000, help="synthetic ones of faiss")
    options = parser.parse_args(arguments)
    for line in _TABLES[options.table](options):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
