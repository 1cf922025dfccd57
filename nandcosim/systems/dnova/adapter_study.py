"""What the adapter does to recall, as Table 3 and the expansion test of section 6.1 ask.

::

    python -m nandcosim.systems.dnova.adapter_study wordnet --table
    python -m nandcosim.systems.dnova.adapter_study wordnet --expansion 3

Both train here: on the ``train`` queries, stopped by the ``validation`` queries, and
measured on the ``test`` queries, in percent. Intervals of the table are 95 % bootstrap
intervals over the test queries (paired); those of the expansion are 95 % Student
intervals over the splits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from nandcosim.errors import InputError
from nandcosim.studies import one_line_errors, split_settings
from nandcosim.systems.dnova.adapter import Adapter, load_adapter
from nandcosim.systems.dnova.adapter_training import TrainingSettings, train
from nandcosim.systems.dnova.config import group_sizes
from nandcosim.systems.dnova.corpus import Corpus, load_corpus
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.recall import recall_per_query

__all__ = ["expansion_study", "gap_table", "measure_recall", "of_documents"]

_FP32 = "FP32-IVF"
_DTS = ("111", "242")
_KS = (25, 100)
_SPLITS = ("train", "validation", "test")


def measure_recall(
    index: IvfIndex,
    corpus: Corpus,
    adapters: Sequence[Adapter | None],
    *,
    nprobe: Sequence[int] = (8, 32),
    alpha: int = 2,
    threads: int = 1,
) -> xr.DataArray:
    """Recall of each query against the judgements.

    Parameters
    ----------
    index : IvfIndex
        Over the documents of `corpus`.
    corpus : Corpus
        With judged queries.
    adapters : sequence of Adapter or None
        None leaves the queries as they are.
    nprobe : sequence of int
    alpha, threads : int
        See `IvfIndex.search`.

    Returns
    -------
    xarray.DataArray
        Dimensions ``adapter`` (its place in `adapters`), ``system`` (FP32-IVF, DTS111,
        DTS242), ``nprobe``, ``k`` (25 and 100) and ``query``.
    """
    if corpus.relevance is None:
        raise InputError(f"adapter study: corpus {corpus.name} has no relevance judgements")
    systems = (_FP32, *(f"DTS{dts}" for dts in _DTS))
    recall = xr.DataArray(
        np.full((len(adapters), len(systems), len(nprobe), len(_KS), corpus.nq), np.nan),
        dims=("adapter", "system", "nprobe", "k", "query"),
        coords={"system": list(systems), "nprobe": list(nprobe), "k": list(_KS)},
        name="recall",
        attrs={"units": "1", "long_name": "share of the judged documents found"},
    )
    fp32 = index.fp32()
    for (a, adapter), lists in product(enumerate(adapters), nprobe):
        queries = corpus.queries if adapter is None else adapter(corpus.queries)
        found = {_FP32: fp32.search(queries, nprobe=lists, k1=max(_KS)).ids}
        for dts in _DTS:
            result = index.search(
                queries,
                m=group_sizes(dts),
                alpha=alpha,
                nprobe=lists,
                k1=max(_KS),
                threads=threads,
            )
            found[f"DTS{dts}"] = result.ids
        for (system, ids), k in product(found.items(), _KS):
            recall.loc[{"adapter": a, "system": system, "nprobe": lists, "k": k}] = (
                recall_per_query(ids, corpus.relevance, k)
            )
    return recall


def gap_table(recall: xr.DataArray, resamples: int = 2000, seed: int = 0) -> xr.Dataset:
    """Gap to FP32-IVF without and with an adapter, and the adapter's gain (Table 3).

    Parameters
    ----------
    recall : xarray.DataArray
        Of `measure_recall`, place 0 without an adapter, the others with; the mean over
        the others (seeds of training) is what "with" means.
    resamples, seed : int
        Of the bootstrap over queries.

    Returns
    -------
    xarray.Dataset
        ``without``, ``with``, ``gap_without``, ``gap_with``, ``reduction`` of the gap and
        ``gain`` of the recall along ``system``, ``nprobe``, ``k`` and ``bound`` (estimate,
        low, high), in points. Both gaps compare like with like: FP32-IVF has the adapter
        too where DTS has it.
    """
    plain = recall.isel(adapter=0)
    adapted = recall.isel(adapter=slice(1, None)).mean("adapter")
    gap_plain = plain.sel(system=_FP32) - plain
    gap_adapted = adapted.sel(system=_FP32) - adapted
    per_query = {
        "without": plain,
        "with": adapted,
        "gap_without": gap_plain,
        "gap_with": gap_adapted,
        "reduction": gap_plain - gap_adapted,
        "gain": adapted - plain,
    }

    def bounds(values: NDArray[np.float64]) -> NDArray[np.float64]:
        mean = values.mean()
        if np.ptp(values) == 0:
            return np.full(3, mean)
        interval = stats.bootstrap(
            (values,), np.mean, n_resamples=resamples, method="percentile", rng=seed
        ).confidence_interval
        return np.array([mean, interval.low, interval.high])

    return xr.Dataset(
        {
            name: xr.apply_ufunc(
                bounds,
                100 * values,
                input_core_dims=[["query"]],
                output_core_dims=[["bound"]],
                vectorize=True,
            ).assign_coords(bound=["estimate", "low", "high"])
            for name, values in per_query.items()
        },
        attrs={"units": "percentage points"},
    )


def of_documents(corpus: Corpus, rows: NDArray[np.int64]) -> Corpus:
    """The corpus with these documents only, and the queries whose relevant ones are all kept."""
    if corpus.relevance is None:
        raise InputError(f"adapter study: corpus {corpus.name} has no relevance judgements")
    place = np.full(corpus.n, -1, np.int64)
    place[rows] = np.arange(len(rows))
    kept = [i for i, relevant in enumerate(corpus.relevance) if (place[list(relevant)] >= 0).all()]
    if not kept:
        raise InputError(f"adapter study: no query of {corpus.name} keeps its relevant documents")
    chosen = corpus.select_queries(np.array(kept))
    assert chosen.relevance is not None
    return replace(
        chosen,
        vectors=corpus.vectors[rows],
        relevance=tuple(tuple(int(i) for i in place[list(r)]) for r in chosen.relevance),
        neighbours=None,
        ids=None,
        texts=None,
    )


def expansion_study(
    splits_of_queries: dict[str, Corpus],
    settings: TrainingSettings,
    *,
    splits: int = 3,
    base_share: float = 0.8,
    nprobe: Sequence[int] = (8, 32),
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Freeze an adapter trained on part of the documents, then insert the rest.

    Parameters
    ----------
    splits_of_queries : dict of str to Corpus
        The same documents with the queries of ``train``, ``validation`` and ``test``.
    settings : TrainingSettings
        Index and training. Queries are trained on, and stop training, only if all their
        relevant documents are in the base; negatives are mined there.
    splits : int
        Random splits of the documents.
    base_share : float
        Share of the documents that the index is built on.
    nprobe : sequence of int
        The gaps are averaged over it.
    progress : callable, optional
        Called with splits done and in all.

    Returns
    -------
    xarray.Dataset
        R@100 ``gap`` to FP32-IVF on the expanded index, in points, along ``split``,
        ``adapter`` (without, with) and ``system``; the recall itself; ``train_queries``.
    """
    test = splits_of_queries["test"]
    recalls, used = [], []
    for split in range(splits):
        order = np.random.default_rng([settings.seed, split]).permutation(test.n)
        base, added = np.split(order, [round(base_share * test.n)])
        learning = of_documents(splits_of_queries["train"], base)
        adapter = train(learning, of_documents(splits_of_queries["validation"], base), settings)
        used.append(learning.nq)
        index = IvfIndex.build(
            test.vectors[base],
            settings.nlist,
            settings.index_seed,
            value_range=settings.value_range,
        ).insert(test.vectors[added])
        recall = measure_recall(
            index,
            of_documents(test, order),
            [None, adapter],
            nprobe=nprobe,
            alpha=settings.alpha,
            threads=settings.threads,
        )
        recalls.append(100 * recall.sel(k=100).mean(["query", "nprobe"]))
        if progress is not None:
            progress(split + 1, splits)
    mean = xr.concat(recalls, "split").assign_coords(adapter=["without", "with"])
    return xr.Dataset(
        {
            "recall": mean,
            "gap": mean.sel(system=_FP32) - mean.sel(system=[f"DTS{dts}" for dts in _DTS]),
            "train_queries": ("split", used),
        },
        attrs={"units": "percentage points"},
    )


def _interval(values: xr.DataArray) -> str:
    """Mean over the splits with its 95 % Student interval."""
    mean = float(values.mean())
    if values.size < 2:
        return f"{mean:5.2f}"
    half = stats.t.ppf(0.975, values.size - 1) * float(values.std(ddof=1)) / np.sqrt(values.size)
    return f"{mean:5.2f} +- {half:.2f}"


def _print_table(table: xr.Dataset) -> None:
    print(
        "system    nprobe    k  recall w/o   with   gap w/o adapter       gap with adapter"
        "      reduction            gain"
    )
    for nprobe, k, system in product(
        table.nprobe.values, table.k.values[::-1], table.system.values
    ):
        row = table.sel(nprobe=nprobe, k=k, system=system)

        def cell(name: str, row: xr.Dataset = row) -> str:
            estimate, low, high = row[name].values
            return f"{estimate:5.2f} [{low:5.2f}, {high:5.2f}]"

        gaps = "  ".join(cell(name) for name in ("gap_without", "gap_with", "reduction"))
        print(
            f"{system:<9} {nprobe:>6} {k:>4}  {row['without'].values[0]:>10.2f}"
            f"  {row['with'].values[0]:>5.2f}"
            f"  {gaps if system != _FP32 else ' ' * 65:<65}  {cell('gain')}"
        )


def _print_expansion(study: xr.Dataset) -> None:
    print(f"queries trained on: {', '.join(str(n) for n in study.train_queries.values)}")
    for system in study.system.values:
        recall = study.recall.sel(system=system)
        line = "  ".join(
            f"R@100 {a} {_interval(recall.sel(adapter=a))}" for a in ("without", "with")
        )
        if system != _FP32:
            gap = study.gap.sel(system=system)
            line += "  " + "  ".join(
                f"gap {a} {_interval(gap.sel(adapter=a))}" for a in ("without", "with")
            )
            line += f"  reduction {_interval(gap.sel(adapter='without') - gap.sel(adapter='with'))}"
        print(f"{system:<9} {line}")


def _table(options: argparse.Namespace, corpora: dict[str, Corpus], base: TrainingSettings) -> None:
    test = corpora["test"]
    index = IvfIndex.build(test.vectors, base.nlist, base.index_seed, value_range=base.value_range)
    adapters: list[Adapter | None] = [None]
    if options.adapter:
        adapters.append(load_adapter(options.adapter))
    for seed in range(0 if options.adapter else options.seeds):
        settings = base.model_copy(update={"seed": seed})
        adapter = train(corpora["train"], corpora["validation"], settings, index=index)
        recalls = adapter.provenance["history"]["validation_recall"]
        print(
            f"seed {seed}: validation R@100 {100 * recalls[0]:.2f} ->"
            f" {100 * max(recalls):.2f} after epoch {adapter.provenance['best_epoch']}",
            flush=True,
        )
        adapters.append(adapter)
    recall = measure_recall(
        index, test, adapters, nprobe=options.nprobe, alpha=base.alpha, threads=base.threads
    )
    _print_table(gap_table(recall))


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print what the adapter does to the recall of one corpus."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.adapter_study", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a corpus, or a path with the three splits")
    parser.add_argument("--table", action="store_true", help="gaps and gains on the test queries")
    parser.add_argument("--expansion", type=int, metavar="N", help="80/20 test over N splits")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the table")
    parser.add_argument("--adapter", help="an adapter to measure in place of training")
    parser.add_argument("--nprobe", type=int, nargs="+", default=[8, 32])
    for split in _SPLITS:
        parser.add_argument(
            f"--{split}-queries", type=int, help="at most this many, drawn at random"
        )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a training setting"
    )
    options = parser.parse_args(arguments)
    if not options.table and options.expansion is None:
        raise InputError("adapter study: nothing asked for, allowed: --table, --expansion N")
    pairs = split_settings(options.set)
    settings = TrainingSettings.from_settings(pairs, "--set")
    corpora = {
        split: _at_most(
            load_corpus(options.corpus, split=split), getattr(options, f"{split}_queries")
        )
        for split in _SPLITS
    }
    if options.table:
        _table(options, corpora, settings)
    if options.expansion is not None:
        _print_expansion(
            expansion_study(corpora, settings, splits=options.expansion, nprobe=options.nprobe)
        )


def _at_most(corpus: Corpus, count: int | None) -> Corpus:
    if count is None or count >= corpus.nq:
        return corpus
    if count < 1:
        raise InputError(f"adapter study: {count} queries, allowed: 1 or more")
    rows = np.sort(np.random.default_rng(0).choice(corpus.nq, count, replace=False))
    return corpus.select_queries(rows)


if __name__ == "__main__":
    sys.exit(main())
