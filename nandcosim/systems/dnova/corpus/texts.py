"""Documents, queries and judgements as text, before anything is encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nandcosim.errors import InputError

__all__ = ["TextCollection", "divide", "limit_documents"]

#: Queries of a split, as a share of all, at most: small collections keep some to train on.
_LARGEST_SHARE = 0.25
_TRAIN = "train"


@dataclass(frozen=True)
class TextCollection:
    """A corpus before encoding.

    Attributes
    ----------
    ids, texts : tuple of str, length n
        The documents.
    query_ids, query_texts : tuple of str, length nq
        The queries.
    relevance : tuple of tuples of int, length nq
        Rows of the relevant documents of each query.
    split : tuple of str, length nq
        Split of each query; ``""`` where it is not decided yet.
    licence, provenance : str
    sources_sha256 : Mapping
        Name of each source file -> its SHA-256.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    query_ids: tuple[str, ...]
    query_texts: tuple[str, ...]
    relevance: tuple[tuple[int, ...], ...]
    split: tuple[str, ...]
    licence: str
    provenance: str
    sources_sha256: Mapping[str, str] = field(default_factory=dict)

    def select_queries(self, rows: Sequence[int], split: Sequence[str]) -> TextCollection:
        """Return the same documents with the queries `rows`, in these splits."""

        def pick(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[row] for row in rows)

        return replace(
            self,
            query_ids=pick(self.query_ids),
            query_texts=pick(self.query_texts),
            relevance=pick(self.relevance),
            split=tuple(split),
        )


def divide(collection: TextCollection, wanted: Mapping[str, int], seed: int) -> TextCollection:
    """Put every query into a split so that no document is relevant in two of them.

    Queries whose split is decided come first. Then random queries fill the splits of
    `wanted` in their order, passing over those that share a relevant document with
    another split. The rest is ``train``; what shares a relevant document with another
    split is dropped. Within a split queries may share documents.

    Parameters
    ----------
    collection : TextCollection
    wanted : Mapping
        Queries of each split, decided ones included; at most a quarter of all.
    seed : int

    Returns
    -------
    TextCollection
        Grouped by split: those of `wanted` in order, then ``train``.
    """
    total = len(collection.query_ids)
    owner: dict[int, str] = {}
    split = [""] * total

    def claim(query: int, name: str) -> bool:
        rows = collection.relevance[query]
        if any(owner.get(row, name) != name for row in rows):
            return False
        owner.update(dict.fromkeys(rows, name))
        split[query] = name
        return True

    for query, name in enumerate(collection.split):
        if name:
            claim(query, name)
    free = [query for query, name in enumerate(collection.split) if not name]
    order = np.random.default_rng(seed).permutation(free).tolist()
    for name, count in wanted.items():
        missing = min(count, int(total * _LARGEST_SHARE)) - split.count(name)
        for query in order:
            if missing <= 0:
                break
            if not split[query] and claim(query, name):
                missing -= 1
    for query in order:
        if not split[query]:
            claim(query, _TRAIN)
    names = list(dict.fromkeys((*wanted, _TRAIN, *collection.split)))
    kept = sorted(
        (query for query in range(total) if split[query]), key=lambda row: names.index(split[row])
    )
    return collection.select_queries(kept, [split[row] for row in kept])


def limit_documents(collection: TextCollection, documents: int, seed: int) -> TextCollection:
    """Keep a small part: random queries, their relevant documents, and random others.

    Queries are taken until half of the documents are relevant to one.

    Parameters
    ----------
    collection : TextCollection
    documents : int
        Documents kept.
    seed : int

    Raises
    ------
    InputError
        If there are not that many documents, or no query fits.
    """
    n = len(collection.ids)
    if not 2 <= documents <= n:
        raise InputError(f"limit: found {documents} documents, allowed: 2 to {n}")
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    claimed: set[int] = set()
    for query in rng.permutation(len(collection.query_ids)).tolist():
        together = claimed.union(collection.relevance[query])
        if len(together) <= documents // 2:
            claimed = together
            chosen.append(query)
        if len(claimed) == documents // 2:
            break
    if not chosen:
        raise InputError(f"limit: {documents} documents are too few for a query")
    others = [row for row in range(n) if row not in claimed]
    fill = rng.choice(others, size=documents - len(claimed), replace=False)
    kept = sorted(claimed.union(fill.tolist()))
    new_row = {row: position for position, row in enumerate(kept)}
    part = collection.select_queries(chosen, [collection.split[query] for query in chosen])
    return replace(
        part,
        ids=tuple(collection.ids[row] for row in kept),
        texts=tuple(collection.texts[row] for row in kept),
        relevance=tuple(tuple(new_row[row] for row in rows) for rows in part.relevance),
    )
