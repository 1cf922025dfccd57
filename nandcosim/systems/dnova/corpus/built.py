"""Corpora that are built on demand and kept in the cache: which there are, and where.

A built corpus is a BEIR folder with its vectors: ``corpus.jsonl``, ``queries.jsonl``,
``qrels/SPLIT.tsv``, ``corpus.npy`` and ``queries.npy`` (float32, memory-mapped when
read), and the description ``corpus.toml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.cache import cache_folder
from nandcosim.systems.dnova.corpus.texts import TextCollection

__all__ = ["BUILT", "DESCRIPTION", "built_folder", "corpora_folder", "write_texts"]

#: Names of the corpora that `nandcosim.systems.dnova.corpus.build` makes.
BUILT = ("wordnet-full", "debian", "wordnet-mpnet")
#: File name of the description inside a corpus folder.
DESCRIPTION = "corpus.toml"


def corpora_folder() -> Path:
    """Where built corpora are kept; it may not exist yet."""
    return cache_folder() / "corpora"


def built_folder(name: str) -> Path:
    """Folder of a built corpus.

    Raises
    ------
    InputError
        If it is not built yet.
    """
    folder = corpora_folder() / name
    if not folder.is_dir():
        raise InputError(
            f"corpus {name!r} is not built yet ({folder}): "
            f"python -m nandcosim.systems.dnova.corpus.build {name}"
        )
    return folder


def write_texts(collection: TextCollection, folder: Path) -> None:
    """Write documents, queries and judgements as a BEIR folder, without vectors.

    Parameters
    ----------
    collection : TextCollection
        Every query must be in a split.
    folder : Path
        Made if it is missing. Of a former run, passages that are the same stay, with
        their vectors; others are replaced, and their vectors removed.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write_passages(folder / "corpus.jsonl", collection.ids, collection.texts)
    _write_passages(folder / "queries.jsonl", collection.query_ids, collection.query_texts)
    for split in dict.fromkeys(collection.split):
        lines = ["query-id\tcorpus-id\tscore\n"]
        for query, rows, own in zip(
            collection.query_ids, collection.relevance, collection.split, strict=True
        ):
            if own == split:
                lines += [f"{query}\t{collection.ids[row]}\t1\n" for row in rows]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")


def _write_passages(path: Path, ids: Iterable[str], texts: Iterable[str]) -> None:
    lines = "".join(
        json.dumps({"_id": identifier, "text": text}, ensure_ascii=False) + "\n"
        for identifier, text in zip(ids, texts, strict=True)
    )
    if not path.is_file() or path.read_text(encoding="utf-8") != lines:
        path.with_suffix(".npy").unlink(missing_ok=True)
        path.write_text(lines, encoding="utf-8")
