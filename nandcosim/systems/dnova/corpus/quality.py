"""How well exact search over the vectors finds the judged documents.

Run ``python -m nandcosim.systems.dnova.corpus.quality CORPUS`` for the figures
of a corpus; ``--reencode`` compares the stored vectors with fresh float32 ones
made from the corpus's own texts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from nandcosim.errors import InputError, NandcosimError
from nandcosim.systems.dnova.corpus.collection import Corpus

__all__ = ["ExactQuality", "exact_quality"]

#: Queries scored at once: bounds the (queries, documents) score matrix.
_QUERY_BLOCK = 64


@dataclass(frozen=True)
class ExactQuality:
    """Retrieval quality of exhaustive cosine search, averaged over queries.

    Attributes
    ----------
    recall_at_10, recall_at_25, recall_at_100 : float
        Share of a query's relevant documents among its first 10, 25, 100.
    mrr : float
        Mean reciprocal rank of the first relevant document.
    queries : int
        Queries counted: those with at least one relevant document.
    """

    recall_at_10: float
    recall_at_25: float
    recall_at_100: float
    mrr: float
    queries: int


def exact_quality(corpus: Corpus) -> ExactQuality:
    """Rank all documents for every query by cosine and compare with the judgements.

    A document's rank is 1 plus the number of documents with a strictly higher score.

    Raises
    ------
    InputError
        If the corpus has no judgements.
    """
    if corpus.relevance is None or not any(corpus.relevance):
        raise InputError(f"corpus {corpus.name!r} has no relevance judgements to compare with")
    unit = corpus.normalised()
    ranks: list[np.ndarray] = []
    for start in range(0, corpus.nq, _QUERY_BLOCK):
        block = slice(start, start + _QUERY_BLOCK)
        scores = unit.queries[block] @ unit.vectors.T
        for score, relevant in zip(scores, corpus.relevance[block], strict=True):
            if relevant:
                own = score[list(relevant)]
                ranks.append(1 + (score > own[:, None]).sum(axis=1))

    def recall(k: int) -> float:
        return float(np.mean([np.mean(rank <= k) for rank in ranks]))

    return ExactQuality(
        recall_at_10=recall(10),
        recall_at_25=recall(25),
        recall_at_100=recall(100),
        mrr=float(np.mean([1 / rank.min() for rank in ranks])),
        queries=len(ranks),
    )


def cosine_error(stored: Corpus, exact: Corpus) -> tuple[float, float]:
    """Mean and largest of 1 - cosine between the same documents in two corpora."""
    cosine = np.einsum(
        "ij,ij->i", stored.normalised().vectors, exact.normalised().vectors, dtype=np.float64
    )
    return float(np.mean(1 - cosine)), float(np.max(1 - cosine))


def reencoded(corpus: Corpus, progress: bool = True) -> Corpus:
    """The same corpus with float32 vectors made afresh from its texts."""
    from nandcosim.systems.dnova.corpus.encode import encode

    if corpus.texts is None or corpus.query_texts is None:
        raise InputError(f"corpus {corpus.name!r} holds no texts to encode")
    return replace(
        corpus,
        vectors=encode(corpus.texts, progress=progress),
        queries=encode(corpus.query_texts, progress=progress),
    )


def _row(label: str, quality: ExactQuality) -> str:
    cells = "  ".join(f"{key} {value:.4g}" for key, value in asdict(quality).items())
    return f"{label:<8} {cells}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the exact-search quality of a corpus."""
    from nandcosim.systems.dnova.corpus.formats import load_corpus

    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.corpus.quality", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a shipped corpus, or a path")
    parser.add_argument("--split", default="test")
    parser.add_argument("--reencode", action="store_true", help="also encode the texts in float32")
    options = parser.parse_args(arguments)
    try:
        corpus = load_corpus(options.corpus, split=options.split)
        print(_row("stored", exact_quality(corpus)))
        if options.reencode:
            fresh = reencoded(corpus)
            print(_row("float32", exact_quality(fresh)))
            mean, worst = cosine_error(corpus, fresh)
            print(f"1 - cosine(stored, float32): mean {mean:.3g}, largest {worst:.3g}")
    except NandcosimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
