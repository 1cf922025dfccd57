"""All of WordNet as a corpus: every synset a document, every qualifying Webster definition a query.

The rules are those of the shipped corpus (`nandcosim.systems.dnova.corpus.wordnet`)
without its choice of documents. A query that the shipped corpus has keeps its split, so
that what is trained on one corpus may be tested on the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nandcosim.systems.dnova.corpus.dictionaries import read_gcide, read_wordnet
from nandcosim.systems.dnova.corpus.texts import TextCollection
from nandcosim.systems.dnova.corpus.wordnet import (
    LICENCE,
    dictionary_folders,
    qualifying,
    source_digests,
)

__all__ = ["SPLITS", "collect", "collect_from"]

#: Queries of each split, those of the shipped corpus included; the rest is ``train``.
SPLITS = {"test": 2000, "validation": 1000}


def collect(shipped_split: Mapping[str, str]) -> TextCollection:
    """Download the two dictionaries and read them.

    Parameters
    ----------
    shipped_split : Mapping
        Headword -> split in the shipped corpus.

    Raises
    ------
    InputError, NandcosimError
        As `nandcosim.systems.dnova.corpus.debian_archive.unpacked_packages`.
    """
    with dictionary_folders("this corpus can be built on Debian or Ubuntu only") as found:
        return collect_from(*found, shipped_split)


def collect_from(
    wordnet: Path, gcide: Path, source: str, shipped_split: Mapping[str, str]
) -> TextCollection:
    """Read two dictionaries as one collection.

    Parameters
    ----------
    wordnet, gcide : Path
        Folders as for `read_wordnet` and `read_gcide`.
    source : str
        Where they came from, for the provenance.
    shipped_split : Mapping
        Headword -> split in the shipped corpus.
    """
    synsets = read_wordnet(wordnet)
    queries = qualifying(synsets, list(read_gcide(gcide)))
    return TextCollection(
        ids=tuple(synset.id for synset in synsets),
        texts=tuple(synset.text for synset in synsets),
        query_ids=tuple(query.headword for query, _ in queries),
        query_texts=tuple(query.text for query, _ in queries),
        relevance=tuple(rows for _, rows in queries),
        split=tuple(shipped_split.get(query.headword, "") for query, _ in queries),
        licence=LICENCE,
        provenance=(
            "WordNet 3.0's synsets (lemmas and definition) searched with first definitions of "
            "headwords in Webster 1913 (GCIDE); relevant: all synsets of the headword; "
            f"source: {source}"
        ),
        sources_sha256=source_digests(wordnet, gcide),
    )
