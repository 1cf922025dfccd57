"""How well exact search over the vectors finds the judged documents."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.corpus.encoder import Precision, encode
from nandcosim.systems.dnova.corpus.models import MODELS, EncoderName

__all__ = ["ExactQuality", "cosine_error", "exact_quality", "reencoded"]

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


def reencoded(
    corpus: Corpus,
    precision: Precision = "fp32",
    progress: bool = True,
    encoder: EncoderName = "minilm",
) -> Corpus:
    """The same corpus with vectors made afresh from its texts, as `encode` makes them.

    Raises
    ------
    InputError
        If the corpus has no texts, or its vectors are not of this encoder's dimension.
    """
    if corpus.texts is None or corpus.query_texts is None:
        raise InputError(f"corpus {corpus.name!r} holds no texts to encode")
    if corpus.dimension != MODELS[encoder].dimension:
        raise InputError(
            f"corpus {corpus.name!r} has {corpus.dimension} dimensions, "
            f"encoder {encoder!r} makes {MODELS[encoder].dimension}"
        )
    return replace(
        corpus,
        vectors=encode(corpus.texts, progress=progress, precision=precision, encoder=encoder),
        queries=encode(corpus.query_texts, progress=progress, precision=precision, encoder=encoder),
    )
