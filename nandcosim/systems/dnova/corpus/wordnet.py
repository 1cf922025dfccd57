"""Make the shipped corpus: WordNet glosses as documents, Webster definitions as queries.

A query is the first definition that Webster's dictionary of 1913 (in GCIDE) gives a
headword; relevant to it are all WordNet synsets with that headword. The two were
written by different people a century apart, so the judgements are not built into
the texts.

Run ``python -m nandcosim.systems.dnova.corpus.wordnet --out FILE.npz`` on Debian or
Ubuntu, or name folders with the dictionaries. Needs the extra ``encode``.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nandcosim.errors import InputError, NandcosimError
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.corpus.debian_archive import unpacked_packages
from nandcosim.systems.dnova.corpus.description import description_text
from nandcosim.systems.dnova.corpus.dictionaries import (
    Definition,
    Synset,
    read_gcide,
    read_wordnet,
)
from nandcosim.systems.dnova.corpus.encoder import encode, weights_sha256
from nandcosim.systems.dnova.corpus.judgements import ALL
from nandcosim.systems.dnova.corpus.models import MODELS
from nandcosim.systems.dnova.corpus.packed import read_packed, sha256, write_packed
from nandcosim.systems.dnova.corpus.quality import cosine_error, exact_quality

__all__ = [
    "DOCUMENTS",
    "LICENCE",
    "SPLITS",
    "Selection",
    "dictionary_folders",
    "leaks",
    "qualifying",
    "select",
    "source_digests",
]

DOCUMENTS = 20_000
#: Queries of each split, chosen in this order. Test queries are those reported on; the
#: others are there for whatever has to be trained or tuned.
SPLITS = {"test": 1000, "validation": 500, "train": 1000}
SEED = 1

#: Documents relevant to one query, at most: recall among the first 10 can then reach 1.
_MAX_RELEVANT = 10
_MIN_QUERY_WORDS = 4
#: A query word gives its headword away if it shares this much of the headword's beginning.
_SHARED_START = 0.6
_SHORTEST_STEM = 4

_PACKAGES = ("wordnet-base", "dict-gcide")
LICENCE = (
    "documents: WordNet 3.0 licence (WORDNET-LICENSE.txt); "
    "queries: GPL-2.0-or-later, from GCIDE (GCIDE-NOTICE.txt)"
)


@dataclass(frozen=True)
class Selection:
    """Which documents and queries are kept, before anything is encoded.

    Attributes
    ----------
    documents : tuple of Synset
        In WordNet's order.
    queries : tuple of Definition
        Grouped by split.
    relevance : tuple of tuples of int
        Rows of `documents` for each query. No document is relevant to two queries, so
        the splits share no headword and no relevant document.
    split : tuple of str
        Split of each query.
    """

    documents: tuple[Synset, ...]
    queries: tuple[Definition, ...]
    relevance: tuple[tuple[int, ...], ...]
    split: tuple[str, ...]


def leaks(definition: Definition) -> bool:
    """Whether a definition gives its headword away: a related word occurs in it.

    Related is a word that shares the first 60 % (at least 4 letters) of a part of
    the headword, or contains it, or is contained in it.
    """
    words = [word for word in re.findall(r"[a-z]+", definition.text.lower()) if len(word) > 2]
    for part in re.findall(r"[a-z]+", definition.headword):
        needed = max(_SHORTEST_STEM, math.ceil(_SHARED_START * len(part)))
        for word in words:
            shared = _shared_start(word, part)
            inside = len(word) >= _SHORTEST_STEM and word in part
            around = len(part) >= _SHORTEST_STEM and part in word
            if word == part or shared >= needed or inside or around:
                return True
    return False


def _shared_start(one: str, other: str) -> int:
    """Number of letters before the first difference."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def qualifying(
    synsets: Sequence[Synset], definitions: Sequence[Definition]
) -> list[tuple[Definition, tuple[int, ...]]]:
    """Queries that can be asked, each with the rows of its relevant synsets.

    A headword takes part if WordNet has 1 to 10 synsets of it and its first
    definition of at least 4 words does not give it away.

    Returns
    -------
    list of (Definition, tuple of int)
        In alphabetical order of the headwords, each once.
    """
    by_lemma: defaultdict[str, list[int]] = defaultdict(list)
    for row, synset in enumerate(synsets):
        for lemma in {lemma.lower() for lemma in synset.lemmas}:
            by_lemma[lemma].append(row)
    candidates: dict[str, Definition] = {}
    for definition in definitions:
        if 1 <= len(by_lemma.get(definition.headword, ())) <= _MAX_RELEVANT and (
            len(definition.text.split()) >= _MIN_QUERY_WORDS
        ):
            candidates.setdefault(definition.headword, definition)
    return [
        (candidates[word], tuple(by_lemma[word]))
        for word in sorted(candidates)
        if not leaks(candidates[word])
    ]


def select(
    synsets: Sequence[Synset],
    definitions: Sequence[Definition],
    *,
    documents: int = DOCUMENTS,
    splits: dict[str, int] = SPLITS,
    seed: int = SEED,
) -> Selection:
    """Choose queries at random, then their relevant documents, then random others.

    No document is relevant to two of the queries, which are among those of `qualifying`.

    Parameters
    ----------
    synsets, definitions : sequence
        Everything there is.
    documents : int
        Documents wanted.
    splits : dict
        Queries wanted of each split.
    seed : int

    Raises
    ------
    InputError
        If there are too few headwords or documents.
    """
    eligible = qualifying(synsets, definitions)
    rng = np.random.default_rng(seed)
    wanted = sum(splits.values())
    chosen: list[tuple[Definition, tuple[int, ...]]] = []
    claimed: set[int] = set()
    for candidate in rng.permutation(len(eligible)):
        _, rows = eligible[candidate]
        if claimed.isdisjoint(rows):
            claimed.update(rows)
            chosen.append(eligible[candidate])
        if len(chosen) == wanted:
            break
    others = [row for row in range(len(synsets)) if row not in claimed]
    if len(chosen) < wanted or not 0 <= documents - len(claimed) <= len(others):
        raise InputError(
            f"cannot choose {wanted} queries and {documents} documents: found {len(chosen)} "
            f"queries with {len(claimed)} relevant documents among {len(synsets)}"
        )
    fill = rng.choice(others, size=documents - len(claimed), replace=False)
    kept = sorted(claimed.union(fill.tolist()))
    new_row = {row: position for position, row in enumerate(kept)}
    return Selection(
        documents=tuple(synsets[row] for row in kept),
        queries=tuple(query for query, _ in chosen),
        relevance=tuple(tuple(new_row[row] for row in rows) for _, rows in chosen),
        split=tuple(name for name, count in splits.items() for _ in range(count)),
    )


def _encoded(selection: Selection) -> Corpus:
    texts = tuple(document.text for document in selection.documents)
    query_texts = tuple(query.text for query in selection.queries)
    return Corpus(
        name="wordnet",
        vectors=encode(texts, progress=True),
        queries=encode(query_texts, progress=True),
        relevance=selection.relevance,
        ids=tuple(document.id for document in selection.documents),
        texts=texts,
        query_ids=tuple(query.headword for query in selection.queries),
        query_texts=query_texts,
    )


@contextlib.contextmanager
def dictionary_folders(instead: str) -> Iterator[tuple[Path, Path, str]]:
    """Download WordNet and GCIDE as Debian packages, unpacked while the ``with`` block runs.

    Parameters
    ----------
    instead : str
        What to do where there is no apt, for the error message.

    Yields
    ------
    wordnet, gcide : Path
        Folders as for `read_wordnet` and `read_gcide`.
    source : str
        Names and versions of the packages.
    """
    with unpacked_packages(*_PACKAGES, instead=instead) as (root, versions):
        share = root / "usr" / "share"
        source = ", ".join(f"Debian {name} {number}" for name, number in versions.items())
        yield share / "wordnet", share / "dictd", source


def source_digests(wordnet: Path, gcide: Path) -> dict[str, str]:
    """SHA-256 of the files that are read from the two dictionaries' folders."""
    files = (*sorted(wordnet.glob("data.*")), gcide / "gcide.index", gcide / "gcide.dict.dz")
    return {path.name: sha256(path) for path in files}


def _describe(out: Path, exact: Corpus, wordnet: Path, gcide: Path, versions: str) -> str:
    """The text of the ``.toml`` beside the corpus, with figures measured now."""
    stored = read_packed(out, "wordnet", ALL)
    model = MODELS["minilm"]
    test = slice(0, SPLITS["test"])
    mean, worst = cosine_error(stored, exact)
    tables: dict[str, dict[str, object]] = {
        "": {
            "name": "wordnet",
            "licence": LICENCE,
            "provenance": (
                f"{exact.n} of WordNet 3.0's synsets (lemmas and definition) searched with the "
                f"first definitions of {exact.nq} headwords in Webster 1913 (GCIDE); relevant: "
                f"all synsets of the headword; source: {versions}"
            ),
            "command": "python -m nandcosim.systems.dnova.corpus.wordnet --out FILE.npz",
            "seed": SEED,
            "encoder": f"{model.title}, fp32, at most {model.max_tokens} tokens",
            "weights_sha256": weights_sha256(),
            "stored_as": "int8, one float32 scale a vector",
            "sha256": sha256(out),
        },
        "splits": dict(SPLITS),
        "sources_sha256": {**source_digests(wordnet, gcide)},
        "cosine_error": {"mean": mean, "largest": worst},
        "test_quality_float32": asdict(exact_quality(exact.select_queries(test))),
        "test_quality_stored": asdict(exact_quality(stored.select_queries(test))),
    }
    return description_text(tables)


def build(out: Path, wordnet: Path, gcide: Path, versions: str) -> None:
    """Make the corpus file `out` (.npz) and its description (.toml) from two dictionaries."""
    selection = select(read_wordnet(wordnet), list(read_gcide(gcide)))
    exact = _encoded(selection)
    description = out.with_suffix(".toml")
    write_packed(exact, selection.split, out)
    # a first version, so that the packed file can be read back and measured
    description.write_text('licence = ""\nprovenance = ""\n', encoding="utf-8")
    description.write_text(_describe(out, exact, wordnet, gcide, versions), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the shipped corpus from WordNet and GCIDE."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.corpus.wordnet", description=main.__doc__
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, .npz")
    parser.add_argument("--wordnet", type=Path, help="folder with data.noun, data.verb, ...")
    parser.add_argument("--gcide", type=Path, help="folder with gcide.index and gcide.dict.dz")
    options = parser.parse_args(arguments)
    try:
        if options.out.suffix != ".npz":
            raise InputError(f"{options.out}: the corpus is written as .npz")
        if (options.wordnet is None) != (options.gcide is None):
            raise InputError("give both --wordnet and --gcide, or neither")
        if options.wordnet is None:
            with dictionary_folders("give --wordnet DIR and --gcide DIR") as found:
                build(options.out, *found)
        else:
            build(options.out, options.wordnet, options.gcide, "given folders")
    except NandcosimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(options.out.with_suffix(".toml").read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
