"""Quantiser range, tolerance, group size and latch width as one design space.

Exhaustive DTS over a corpus, against exact cosine search and, where the corpus has
them, relevance judgements::

    python -m nandcosim.systems.dnova.range_study wordnet --ranges sigma:6 sigma:9

prints one line a point: recall at k against the exact neighbours, against the
judgements (exact search's own in brackets), and the median deficit a string of the
vectors found, which a 4-bit latch must hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from nandcosim.studies import one_line_errors
from nandcosim.systems.dnova.bitslice import BitSliced
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import exact_neighbours, normalised
from nandcosim.systems.dnova.quantise import fit_quantiser
from nandcosim.systems.dnova.recall import recall_at
from nandcosim.systems.dnova.score import Accumulator

__all__ = ["RangePoint", "range_study"]


@dataclass(frozen=True)
class RangePoint:
    """Result of one design point.

    Attributes
    ----------
    value_range : str
    alpha, m : int
    latch_bits : int or None
    recall_exact, recall_judged, recall_judged_fp32 : float
        Recall at k of DTS against exact cosine search, of DTS against the judgements, and
        of exact search against the judgements; NaN without judgements.
    deficit : float
        Median over the vectors found of the mean deficit of their strings.
    """

    value_range: str
    alpha: int
    m: int
    latch_bits: int | None
    recall_exact: float
    recall_judged: float
    recall_judged_fp32: float
    deficit: float


def range_study(
    corpus: Corpus,
    ranges: Sequence[str],
    *,
    alphas: Sequence[int] = (2,),
    sizes: Sequence[int] = (1, 2, 4, 8),
    latches: Sequence[int | None] = (4,),
    queries: int = 500,
    k: int = 100,
) -> Iterator[RangePoint]:
    """Evaluate every combination, in the order given, on the first `queries` queries.

    Raises
    ------
    InputError
        If a tolerance or the number of queries is none that a `Config` takes; on the way,
        if another argument is not allowed.
    """
    for alpha in alphas:
        Config.checked({"alpha": alpha}, "range study")
    Config.checked({"queries": queries}, "range study")
    return _points(corpus, ranges, alphas, sizes, latches, queries, k)


def _points(
    corpus: Corpus,
    ranges: Sequence[str],
    alphas: Sequence[int],
    sizes: Sequence[int],
    latches: Sequence[int | None],
    queries: int,
    k: int,
) -> Iterator[RangePoint]:
    from nandcosim.systems.dnova import kernels

    asked = normalised(corpus.queries[:queries])
    exact = exact_neighbours(corpus.vectors, asked, k)
    judged = corpus.relevance[:queries] if corpus.relevance is not None else [()] * len(asked)
    judged_fp32 = recall_at(exact, judged, k)
    vectors = normalised(corpus.vectors)
    ids = np.arange(len(vectors))
    found = np.empty_like(exact)
    deficits = np.empty(exact.shape)
    for value_range in ranges:
        quantiser = fit_quantiser(vectors, policy=value_range)
        sliced = BitSliced(quantiser.encode(vectors), levels=quantiser.levels)
        codes = quantiser.encode(asked)
        for latch_bits, alpha, m in product(latches, alphas, sizes):
            accumulator = Accumulator(latch_bits=latch_bits)
            for i, code in enumerate(codes):
                scores = sliced.deficits(code, alpha=alpha, m=m, accumulator=accumulator)
                found[i] = kernels.select_smallest(scores, ids, k)
                deficits[i] = scores[found[i]]
            yield RangePoint(
                value_range=value_range,
                alpha=alpha,
                m=m,
                latch_bits=latch_bits,
                recall_exact=recall_at(found, exact, k),
                recall_judged=recall_at(found, judged, k),
                recall_judged_fp32=judged_fp32,
                deficit=float(np.median(deficits)) / (2 * accumulator.strings(sliced.dim)),
            )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the study of one corpus."""
    from nandcosim.systems.dnova.corpus import load_corpus

    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.range_study", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a shipped corpus, or a path")
    default = ["sigma:6", "sigma:7.5", "sigma:9", "sigma:10.5", "sigma:12"]
    parser.add_argument("--ranges", nargs="+", default=default)
    parser.add_argument("--alphas", nargs="+", type=int, default=[2])
    parser.add_argument("--m", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument(
        "--latches", nargs="+", type=int, default=[4], help="bits of a string's deficit; 0: exact"
    )
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--split", default="validation", help="choose a range on it, not on test")
    options = parser.parse_args(arguments)
    points = range_study(
        load_corpus(options.corpus, split=options.split),
        options.ranges,
        alphas=options.alphas,
        sizes=options.m,
        latches=[bits or None for bits in options.latches],
        queries=options.queries,
    )
    print("range              latch alpha  m  R@100 exact  R@100 judged (FP32)  deficit/string")
    for p in points:
        print(
            f"{p.value_range:<18} {p.latch_bits or 'exact':>5} {p.alpha:>5} {p.m:>2}"
            f"  {100 * p.recall_exact:>10.1f}%  {100 * p.recall_judged:>11.1f}%"
            f" ({100 * p.recall_judged_fp32:.1f})  {p.deficit:>14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
