"""Sub-blocks that real queries touch under the naive and the locality-aware mapping.

Searches a corpus and lays the same lists and candidates out in several ways::

    python -m nandcosim.systems.dnova.mapping_study wordnet --subblocks 164 --nlist 1024 --nprobe 64

A corpus here is smaller than the paper's, so the capacity of a sub-block is scaled:
the index takes `--subblocks` sub-blocks as the paper's does (164 for NQ, 320 for HotpotQA
at 16,384 vectors each), and holds as many vectors in each as that leaves. K2 is the
paper's 1000, or ``scaled`` like the capacity. Printed are quantiles over the queries, the
reduction of the median, and its bootstrap interval over the queries.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.studies import one_line_errors
from nandcosim.systems.dnova.config import group_sizes
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.mapping import (
    Arrival,
    Layout,
    Mapping,
    Packing,
    place,
    touched,
    touched_lists,
)
from nandcosim.systems.nand import NandFields

__all__ = ["GROWTHS", "MAPPINGS", "Reduction", "footprint_study", "median_reduction", "summary"]

_CAPACITY = NandFields.model_fields["bitlines"].default

MAPPINGS: tuple[Mapping, ...] = ("naive", "locality")

#: All rows placed together, or the later ones appended in either order.
GROWTHS: tuple[Literal["built"] | Arrival, ...] = ("built", "arrival", "lists")


class Reduction(NamedTuple):
    """By how much a median is lower, as a share of it, with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def footprint_study(
    corpus: Corpus,
    *,
    subblocks: int = 164,
    nlist: int = 1024,
    nprobes: Sequence[int] = (64,),
    k2: int = 1000,
    dts: str = "242",
    alpha: int = 2,
    packing: Packing = "first-fit",
    appended: float = 0.25,
    queries: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> xr.Dataset:
    """Search, lay out in every way, count sub-blocks.

    Parameters
    ----------
    corpus : Corpus
    subblocks : int
        Sub-blocks that the vectors take when packed without gaps; fixes the capacity.
    nlist, nprobes, k2
        As in `IvfIndex`.
    dts, alpha
        How the queries are sensed, which decides lists and candidates; ``dts="fp32"`` takes
        those of FP32-IVF instead.
    packing : {"first-fit", "next-fit", "continuous"}
    appended : float
        Rows inserted later, as a share of those before.
    queries : int
        At most.
    seed : int
        Of k-means and of the order in which the rows come.
    threads : int
        Queries searched at a time.

    Returns
    -------
    xarray.Dataset
        ``touched``, sub-blocks over ``nprobe``, ``k2`` (given, and scaled like the
        capacity), ``stage`` (2, 3), ``mapping``, ``growth`` and ``query``. Growth is
        ``built`` (all rows placed together), or how the later rows were placed:
        ``arrival`` or ``lists``, see `Layout.append`; their lists were made from the
        earlier rows, and the later ones inserted. ``least``: no mapping could touch fewer.

    Raises
    ------
    InputError
        If an argument is not allowed.
    """
    n = len(corpus.vectors)
    if not 1 <= subblocks <= n:
        raise InputError(f"mapping study: subblocks = {subblocks}, allowed: 1 .. {n} (the vectors)")
    if not appended > 0:
        raise InputError(f"mapping study: appended = {appended}, allowed: above 0")
    capacity = math.ceil(n / subblocks)
    kept = list(dict.fromkeys([k2, max(1, round(k2 * capacity / _CAPACITY))]))
    rows = np.asarray(corpus.vectors)[np.random.default_rng(seed).permutation(n)]
    base = round(n / (1 + appended))
    whole = IvfIndex.build(rows, nlist, seed)
    grown = IvfIndex.build(rows[:base], nlist, seed).insert(rows[base:])
    layouts = {
        (mapping, growth): _layout(
            whole if growth == "built" else grown, capacity, mapping, packing, growth, base
        )
        for mapping in MAPPINGS
        for growth in GROWTHS
    }
    asked = np.asarray(corpus.queries)[:queries]

    def search(index: IvfIndex, nprobe: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lists probed and candidates, best first."""
        if dts == "fp32":
            floating = index.fp32().search(asked, nprobe=nprobe, k1=k2)
            return floating.lists, floating.ids
        sensed = index.search(
            asked, m=group_sizes(dts), alpha=alpha, nprobe=nprobe, k2=k2, k1=1, threads=threads
        )
        return sensed.lists, sensed.candidates

    shape = (len(nprobes), len(kept), 2, len(GROWTHS), len(asked))
    least = np.empty(shape, dtype=np.int64)
    counts = np.empty((len(MAPPINGS), *shape), dtype=np.int64)
    for at, nprobe in enumerate(nprobes):
        found = {index: search(index, nprobe) for index in (whole, grown)}
        for g, growth in enumerate(GROWTHS):
            index = whole if growth == "built" else grown
            lists, ranked = found[index]
            probed = index.list_sizes[lists].sum(axis=1)
            for which, k in enumerate(kept):
                candidates = ranked[:, :k]  # best first, so these are the k best
                sensed = np.stack([probed, (candidates >= 0).sum(axis=1)])
                least[at, which, :, g] = -(-sensed // capacity)
                for m, mapping in enumerate(MAPPINGS):
                    layout = layouts[mapping, growth]
                    counts[m, at, which, 0, g] = touched_lists(layout, lists).counts()
                    counts[m, at, which, 1, g] = touched(layout, candidates).counts()
    attrs = {
        "corpus": corpus.name, "vectors": n, "nlist": nlist, "capacity": capacity,
        "subblocks": [layouts[mapping, "built"].subblocks for mapping in MAPPINGS],
        "packing": packing, "dts": dts, "appended": appended, "seed": seed,
    }  # fmt: skip
    return _labelled(counts, least, nprobes, kept, attrs)


def median_reduction(
    before: NDArray[np.int64], after: NDArray[np.int64], *, resamples: int = 2000, seed: int = 0
) -> Reduction:
    """1 - median(after) / median(before), queries resampled in pairs (percentile bootstrap).

    Parameters
    ----------
    before, after : int array (nq,)
        Sub-blocks touched by the same queries, two queries or more.
    resamples, seed : int
        Resamples of the queries, and the seed of their choice.
    """
    from scipy.stats import bootstrap

    def lower(first: Any, second: Any, axis: int = -1) -> Any:
        return 1 - np.median(second, axis=axis) / np.median(first, axis=axis)

    interval = bootstrap(
        (before, after), lower, paired=True, vectorized=True, method="percentile",
        n_resamples=resamples, batch=200, rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return Reduction(float(lower(before, after)), float(interval.low), float(interval.high))


def summary(study: xr.Dataset, *, resamples: int = 2000) -> list[dict[str, Any]]:
    """One row a point of `footprint_study`: quantiles of both mappings and the reduction.

    Stage 2 does not depend on K2 and has no rows for the scaled one.

    Returns
    -------
    list of dict
        ``nprobe``, ``k2``, ``stage``, ``growth``; ``naive`` and ``locality``, each the
        10, 50 and 90 % quantile over the queries; ``least``, the median; ``reduction``.
    """
    rows = []
    points = study["touched"].stack(point=["nprobe", "k2", "stage", "growth"])
    for point in points["point"].values.tolist():
        where = dict(zip(("nprobe", "k2", "stage", "growth"), point, strict=True))
        if where["stage"] == 2 and where["k2"] != study["k2"].values[0]:
            continue
        counts = study["touched"].sel(where)
        naive, locality = (counts.sel(mapping=name).values for name in ("naive", "locality"))
        rows.append(
            {
                **where,
                "naive": _quantiles(naive),
                "locality": _quantiles(locality),
                "least": float(study["least"].sel(where).median()),
                "reduction": median_reduction(naive, locality, resamples=resamples),
            }
        )
    return rows


def _layout(
    index: IvfIndex,
    capacity: int,
    mapping: Mapping,
    packing: Packing,
    growth: Literal["built"] | Arrival,
    base: int,
) -> Layout:
    """All rows placed together, or those from `base` on appended."""
    member, centroids = index.assignment, index.centroids
    early = member if growth == "built" else member[:base]
    sizes = np.bincount(early, minlength=index.nlist)
    layout = place(sizes, centroids, early, capacity, mapping, packing=packing)
    return layout if growth == "built" else layout.append(member[base:], growth)


def _labelled(
    counts: NDArray[np.int64],
    least: NDArray[np.int64],
    nprobes: Sequence[int],
    kept: Sequence[int],
    attrs: dict[str, Any],
) -> xr.Dataset:
    dims = ("nprobe", "k2", "stage", "growth", "query")
    units = {"units": "1"}
    return xr.Dataset(
        {
            "touched": (
                ("mapping", *dims), counts, {**units, "long_name": "sub-blocks touched a query"},
            ),
            "least": (dims, least, {**units, "long_name": "sub-blocks that hold as many vectors"}),
        },
        coords={
            "mapping": list(MAPPINGS), "nprobe": list(nprobes), "k2": list(kept),
            "stage": [2, 3], "growth": list(GROWTHS),
        },
        attrs=attrs,
    )  # fmt: skip


def _quantiles(counts: NDArray[np.int64]) -> list[float]:
    return [float(q) for q in np.quantile(counts, [0.1, 0.5, 0.9])]


def _lines(study: xr.Dataset, rows: list[dict[str, Any]]) -> list[str]:
    facts = study.attrs
    of = dict(zip(study["mapping"].values.tolist(), facts["subblocks"], strict=True))
    sensing = "FP32-IVF" if facts["dts"] == "fp32" else f"DTS{facts['dts']}"
    head = (
        f"{facts['corpus']}: {facts['vectors']} vectors in {facts['nlist']} lists, {sensing}, "
        f"{study.sizes['query']} queries; {facts['capacity']} vectors a sub-block, "
        f"{facts['packing']} into {of['naive']} (naive) and {of['locality']} (locality) sub-blocks"
    )
    columns = (
        "nprobe    k2 stage  rows placed   naive           locality        least  reduction of the "
        "median (95 %)"
    )
    lines = [head, "sub-blocks touched a query, 10/50/90 % quantile", columns]
    for row in rows:
        naive, locality = (
            "/".join(f"{q:g}" for q in row[mapping]) for mapping in ("naive", "locality")
        )
        change = row["reduction"]
        lines.append(
            f"{row['nprobe']:>6} {row['k2']:>5} {row['stage']:>5}  {row['growth']:<12}"
            f"  {naive:<14}  {locality:<14} {row['least']:>5g}  "
            f"{100 * change.value:.1f} % ({100 * change.low:.1f} .. {100 * change.high:.1f})"
        )
    return lines


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the footprint of one corpus under both mappings."""
    from nandcosim.systems.dnova.corpus import load_corpus

    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.mapping_study", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a corpus, or a path")
    parser.add_argument("--subblocks", type=int, default=164, help="size of the index; 164 is NQ's")
    parser.add_argument("--nlist", type=int, default=1024)
    parser.add_argument("--nprobe", type=int, nargs="+", default=[64])
    parser.add_argument("--k2", type=int, default=1000, help="shown as it is and scaled")
    parser.add_argument("--dts", default="242", help="stage triple, or fp32 for FP32-IVF's lists")
    parser.add_argument("--packing", default="first-fit", help="first-fit, next-fit or continuous")
    parser.add_argument(
        "--appended", type=float, default=0.25, help="rows placed later over those before"
    )
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    study = footprint_study(
        load_corpus(options.corpus),
        subblocks=options.subblocks,
        nlist=options.nlist,
        nprobes=options.nprobe,
        k2=options.k2,
        dts=options.dts,
        packing=options.packing,
        appended=options.appended,
        queries=options.queries,
        seed=options.seed,
        threads=options.threads,
    )
    print("\n".join(_lines(study, summary(study))))


if __name__ == "__main__":
    sys.exit(main())
