"""Splits share no relevant document, and a small part keeps what belongs together."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.texts import TextCollection, divide, limit_documents


def random_collection(seed: int, documents: int = 60, queries: int = 40) -> TextCollection:
    """Queries with one to three documents each, a few with their split decided."""
    rng = np.random.default_rng(seed)
    relevance = [
        tuple(sorted(rng.choice(documents, size=rng.integers(1, 4), replace=False).tolist()))
        for _ in range(queries)
    ]
    decided = rng.choice(["", "", "", "", "test", "validation", "train"], size=queries)
    return TextCollection(
        ids=tuple(f"d{row}" for row in range(documents)),
        texts=tuple(f"text {row}" for row in range(documents)),
        query_ids=tuple(f"q{query}" for query in range(queries)),
        query_texts=tuple(f"question {query}" for query in range(queries)),
        relevance=tuple(relevance),
        split=tuple(decided.tolist()),
        licence="",
        provenance="",
    )


WANTED = {"test": 8, "validation": 4}


@pytest.mark.parametrize("seed", range(20))
def test_no_document_is_relevant_in_two_splits(seed: int) -> None:
    whole = random_collection(seed)
    divided = divide(whole, WANTED, seed=3)
    splits_of: defaultdict[int, set[str]] = defaultdict(set)
    for rows, split in zip(divided.relevance, divided.split, strict=True):
        for row in rows:
            splits_of[row].add(split)
    assert all(len(splits) == 1 for splits in splits_of.values())

    # nothing is dropped without need: each dropped query meets another split, or was
    # decided for a split that it cannot have
    given = dict(zip(whole.query_ids, zip(whole.relevance, whole.split, strict=True), strict=True))
    kept = dict(zip(divided.query_ids, divided.split, strict=True))
    for query, (rows, decided) in given.items():
        met = set().union(*(splits_of[row] for row in rows))
        if query not in kept:
            assert met - {decided or "train"}
        elif decided:
            assert kept[query] == decided


def test_the_wanted_numbers_are_drawn_at_random() -> None:
    whole = random_collection(1, documents=4000, queries=400)
    free = whole.select_queries(range(400), [""] * 400)
    one, again, other = (divide(free, WANTED, seed) for seed in (1, 1, 2))
    assert one == again
    assert one.split[:13] == ("test",) * 8 + ("validation",) * 4 + ("train",)
    assert set(one.query_ids[:8]) != set(other.query_ids[:8])
    assert whole.query_texts[int(one.query_ids[5][1:])] == one.query_texts[5]


def test_a_small_collection_keeps_queries_to_train_on() -> None:
    whole = random_collection(1, documents=4000, queries=20)
    divided = divide(whole.select_queries(range(20), [""] * 20), WANTED, seed=1)
    assert [divided.split.count(name) for name in ("test", "validation", "train")] == [5, 4, 11]


def test_a_part_keeps_all_relevant_documents_of_its_queries() -> None:
    whole = random_collection(5)
    part = limit_documents(whole, 20, seed=1)
    assert len(part.ids) == len(set(part.ids)) == 20
    claimed = {row for rows in part.relevance for row in rows}
    assert 0 < len(claimed) <= 10
    relevant = dict(zip(whole.query_ids, whole.relevance, strict=True))
    for query, rows in zip(part.query_ids, part.relevance, strict=True):
        assert [part.ids[row] for row in rows] == [whole.ids[row] for row in relevant[query]]
        assert [part.texts[row] for row in rows] == [whole.texts[row] for row in relevant[query]]


@pytest.mark.parametrize("documents", [1, 0, -3, 61])
def test_an_impossible_limit_is_refused(documents: int) -> None:
    with pytest.raises(InputError, match=rf"limit: found {documents} documents, allowed: 2 to 60"):
        limit_documents(random_collection(5), documents, seed=1)
