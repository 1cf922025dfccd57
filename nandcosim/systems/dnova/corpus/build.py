"""Build a larger corpus: ``python -m nandcosim.systems.dnova.corpus.build NAME``.

Texts are fetched from the Debian archive (or taken from the shipped corpus), encoded,
and kept in the cache folder, where `load_corpus` finds them by name. An interrupted
build continues when started again; the corpus appears only when it is complete.
Needs the extra ``encode`` and the encoder's weights.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nandcosim.errors import InputError, NandcosimError
from nandcosim.systems.dnova.corpus import debian, wordnet, wordnet_full
from nandcosim.systems.dnova.corpus.built import (
    BUILT,
    DESCRIPTION,
    corpora_folder,
    write_texts,
)
from nandcosim.systems.dnova.corpus.description import description_text
from nandcosim.systems.dnova.corpus.encoder import (
    Precision,
    encode_corpus,
    weights_sha256,
)
from nandcosim.systems.dnova.corpus.formats import SHIPPED_DATA, load_corpus
from nandcosim.systems.dnova.corpus.judgements import ALL
from nandcosim.systems.dnova.corpus.models import MODELS, EncoderName
from nandcosim.systems.dnova.corpus.packed import sha256
from nandcosim.systems.dnova.corpus.quality import exact_quality
from nandcosim.systems.dnova.corpus.texts import TextCollection, divide, limit_documents

__all__ = ["build"]

#: Not the shipped corpus's: with its seed, a trial would draw that corpus's queries again.
SEED = 2
_TEST = "test"
_SHIPPED_FILE = "wordnet.npz"


@dataclass(frozen=True)
class _Recipe:
    """How a corpus is made.

    Attributes
    ----------
    collect : callable
        Fetches the texts.
    splits : Mapping
        Queries of each split but ``train``.
    precision : {"fp32", "int8"}
        Of the encoder's weights, unless told otherwise.
    encoder : {"minilm", "mpnet"}
    notices : tuple of str
        Licence files of the shipped corpus that hold for this one too.
    """

    collect: Callable[[], TextCollection]
    splits: Mapping[str, int]
    precision: Precision
    encoder: EncoderName = "minilm"
    notices: tuple[str, ...] = ()


def _shipped_split() -> dict[str, str]:
    """Headword -> split of the shipped corpus's queries."""
    return {
        headword: split
        for split in wordnet.SPLITS
        for headword in load_corpus("wordnet", split=split).query_ids or ()
    }


def _wordnet_full() -> TextCollection:
    return wordnet_full.collect(_shipped_split())


def _shipped_texts() -> TextCollection:
    corpus = load_corpus("wordnet", split=ALL)
    texts = (corpus.ids, corpus.texts, corpus.query_ids, corpus.query_texts)
    ids, documents, query_ids, queries = (values or () for values in texts)
    splits = _shipped_split()
    return TextCollection(
        ids=ids,
        texts=documents,
        query_ids=query_ids,
        query_texts=queries,
        relevance=corpus.relevance or (),
        split=tuple(splits[query] for query in query_ids),
        licence=corpus.licence,
        provenance=f"the texts of the shipped corpus 'wordnet': {corpus.provenance}",
        sources_sha256={_SHIPPED_FILE: sha256(SHIPPED_DATA / _SHIPPED_FILE)},
    )


_NOTICES = ("WORDNET-LICENSE.txt", "GCIDE-NOTICE.txt")
_RECIPES = {
    "wordnet-full": _Recipe(_wordnet_full, wordnet_full.SPLITS, "int8", notices=_NOTICES),
    "debian": _Recipe(debian.collect, debian.SPLITS, "int8"),
    # int8 weights turn mpnet's vectors far more than MiniLM's
    "wordnet-mpnet": _Recipe(_shipped_texts, wordnet.SPLITS, "fp32", "mpnet", _NOTICES),
}


def build(
    name: str,
    *,
    precision: Precision | None = None,
    limit: int | None = None,
    progress: bool = True,
) -> Path:
    """Build a corpus into the cache folder.

    Parameters
    ----------
    name : str
        One of `BUILT`.
    precision : {"fp32", "int8"}, optional
        Precision of the encoder's weights; default: what suits the corpus.
    limit : int, optional
        Keep only so many documents, for a trial. The folder is then ``NAME-LIMIT``,
        to be read by its path.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If the name is unknown, the corpus is there already, the limit is too small, or
        something it needs is missing.
    NandcosimError
        If fetching fails.
    """
    if name not in _RECIPES:
        raise InputError(f"corpus: found {name!r}, allowed: {', '.join(_RECIPES)}")
    recipe = _RECIPES[name]
    precision = precision or recipe.precision
    label = name if limit is None else f"{name}-{limit}"
    folder = corpora_folder() / label
    if folder.exists():
        raise InputError(f"{folder}: already built; remove the folder to build it again")
    weights = weights_sha256(encoder=recipe.encoder)  # fails before anything is fetched
    collection = recipe.collect()
    if limit is not None:
        collection = limit_documents(collection, limit, SEED)
    divided = divide(collection, recipe.splits, SEED)
    if _TEST not in divided.split:
        raise InputError(
            f"limit: {limit} documents leave {len(divided.query_ids)} queries, "
            "too few for a test split"
        )
    work = folder.with_name(f"{label}-{precision}.part")
    write_texts(divided, work)
    for notice in recipe.notices:
        shutil.copyfile(SHIPPED_DATA / notice, work / notice)
    _encode_texts(work, precision, recipe.encoder, progress)
    model = MODELS[recipe.encoder]
    tables: dict[str, dict[str, object]] = {
        "": {
            "name": label,
            "licence": divided.licence,
            "provenance": f"{divided.provenance}; {len(divided.ids)} documents",
            "command": _command(name, precision, limit),
            "seed": SEED,
            "encoder": f"{model.title}, {precision}, at most {model.max_tokens} tokens",
            "encoder_licence": model.licence,
            "weights_sha256": weights,
            "stored_as": "float32, length 1",
            "queries_dropped": len(collection.query_ids) - len(divided.query_ids),
        },
        "splits": {split: divided.split.count(split) for split in dict.fromkeys(divided.split)},
        "sources_sha256": dict(divided.sources_sha256),
        "files_sha256": {path.name: sha256(path) for path in sorted(work.glob("*.npy"))},
    }
    _write_description(work, tables)
    work.rename(folder)
    return folder


def _encode_texts(work: Path, precision: Precision, encoder: EncoderName, progress: bool) -> None:
    """Make the vectors that the folder lacks."""
    for stem in ("queries", "corpus"):
        vectors = work / f"{stem}.npy"
        if not vectors.is_file():  # it is there if a former run was interrupted later
            encode_corpus(
                work / f"{stem}.jsonl",
                vectors,
                precision=precision,
                progress=progress,
                encoder=encoder,
            )
    for stale in work.glob("*.part"):  # from before the texts changed
        stale.unlink()


def _write_description(work: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Write the description, with the quality of exact search measured now."""
    path = work / DESCRIPTION
    # a first version, so that the corpus can be read back and measured
    path.write_text(description_text(tables), encoding="utf-8")
    measured = asdict(exact_quality(load_corpus(work, split=_TEST)))
    path.write_text(description_text({**tables, "test_quality": measured}), encoding="utf-8")


def _command(name: str, precision: str, limit: int | None) -> str:
    limited = "" if limit is None else f" --limit {limit}"
    return f"python -m nandcosim.systems.dnova.corpus.build {name} --precision {precision}{limited}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a larger corpus into the cache folder."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.corpus.build", description=main.__doc__
    )
    parser.add_argument("name", choices=BUILT)
    parser.add_argument("--precision", choices=("int8", "fp32"), help="of the encoder's weights")
    parser.add_argument("--limit", type=int, metavar="N", help="keep only N documents")
    options = parser.parse_args(arguments)
    try:
        folder = build(options.name, precision=options.precision, limit=options.limit)
    except NandcosimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print((folder / DESCRIPTION).read_text(encoding="utf-8"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
