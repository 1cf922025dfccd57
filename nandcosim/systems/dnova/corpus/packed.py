"""The compact corpus file that ships: one ``.npz`` of plain arrays and a ``.toml`` beside it.

Vectors are int8 with one float32 scale a vector: component = scale * integer.
Strings are UTF-8 bytes, one string a line. No array holds Python objects, so the
file is read without pickle.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.corpus.description import read_description
from nandcosim.systems.dnova.corpus.judgements import ALL

__all__ = ["dequantise", "quantise", "read_packed", "sha256", "write_packed"]

#: Largest int8 magnitude used; -128 stays unused so that the code is symmetric.
_INT8_MAX = 127
#: What numpy and zipfile raise for a damaged archive (RuntimeError: a flag says encrypted
#: or a compression method that does not exist).
_DAMAGE = (KeyError, OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class _Strings:
    """Strings as one byte array, the form in which they are stored."""

    values: Sequence[str]

    def to_bytes(self) -> NDArray[np.uint8]:
        for value in self.values:
            if "\n" in value:
                raise InputError(f"a stored string holds a line break: {value[:60]!r}")
        return np.frombuffer("\n".join(self.values).encode(), dtype=np.uint8)


def _from_bytes(stored: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(stored.tobytes().decode().split("\n"))


def quantise(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round vectors to int8, each with its own scale.

    Parameters
    ----------
    vectors : ndarray, shape (n, D), float32

    Returns
    -------
    codes : ndarray, shape (n, D), int8
        Within -127 to 127; every vector's largest component has magnitude 127.
    scale : ndarray, shape (n,), float32
        0 for zero vectors, and for those below 1.5e-36, whose scale float32 cannot
        hold to full precision: they become zero.
    """
    scale = (np.abs(vectors).max(axis=1) / _INT8_MAX).astype(np.float32)
    scale[scale < np.finfo(np.float32).tiny] = 0
    step = np.where(scale > 0, scale, 1)[:, None]
    return np.clip(np.rint(vectors / step), -_INT8_MAX, _INT8_MAX).astype(np.int8), scale


def dequantise(codes: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo `quantise` up to rounding: at most half a scale a component."""
    return codes * scale[:, None]


def write_packed(corpus: Corpus, split: Sequence[str], path: Path) -> None:
    """Write a corpus in the compact form, through a temporary file.

    The same corpus gives the same bytes.

    Parameters
    ----------
    corpus : Corpus
        Must have ids, texts, judgements and the same for its queries.
    split : sequence of str, length nq
        Split of each query.
    path : Path
        Ends in ``.npz``.
    """
    relevance = corpus.relevance
    strings = (corpus.ids, corpus.texts, corpus.query_ids, corpus.query_texts)
    if relevance is None or any(values is None for values in strings):
        raise InputError(f"{path}: a packed corpus needs ids, texts and judgements")
    names = ("ids", "texts", "query_ids", "query_texts")
    arrays: dict[str, NDArray[Any]] = {}
    arrays["vectors"], arrays["vectors_scale"] = quantise(corpus.vectors)
    arrays["queries"], arrays["queries_scale"] = quantise(corpus.queries)
    arrays["relevance_rows"] = np.array([row for rows in relevance for row in rows], np.int32)
    arrays["relevance_count"] = np.array([len(rows) for rows in relevance], np.int32)
    for name, values in zip(names, strings, strict=True):
        assert values is not None
        arrays[name] = _Strings(values).to_bytes()
    arrays["query_split"] = _Strings(split).to_bytes()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_packed(path: Path, name: str, split: str = "test") -> Corpus:
    """Read a packed corpus and the description beside it.

    Parameters
    ----------
    path : Path
        The ``.npz``; a ``.toml`` of the same stem holds licence and provenance.
    name : str
    split : str
        Queries to keep; ``"all"`` for all of them.

    Raises
    ------
    InputError
        If the file is missing or damaged, or the split does not exist.
    """
    description = read_description(path.with_suffix(".toml"))
    try:
        arrays = _arrays(path)
        bounds = np.cumsum(arrays["relevance_count"])[:-1]
        rows = np.split(arrays["relevance_rows"], bounds)
        corpus = Corpus(
            name=name,
            vectors=dequantise(arrays["vectors"], arrays["vectors_scale"]),
            queries=dequantise(arrays["queries"], arrays["queries_scale"]),
            relevance=tuple(tuple(relevant.tolist()) for relevant in rows),
            ids=_from_bytes(arrays["ids"]),
            texts=_from_bytes(arrays["texts"]),
            query_ids=_from_bytes(arrays["query_ids"]),
            query_texts=_from_bytes(arrays["query_texts"]),
            licence=str(description["licence"]),
            provenance=str(description["provenance"]),
        )
        splits = _from_bytes(arrays["query_split"])
    except FileNotFoundError:
        raise InputError(f"{path}: no such corpus file") from None
    except _DAMAGE as error:
        raise InputError(f"{path}: not a packed corpus: {error}") from None
    if split == ALL:
        return corpus
    kept = [row for row, label in enumerate(splits) if label == split]
    if not kept:
        found = ", ".join(repr(label) for label in sorted(set(splits)))
        raise InputError(f"corpus {name!r}: no split {split!r}, found {found}, 'all'")
    return corpus.select_queries(kept)


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    with path.open("rb") as raw:  # closed here even if it turns out to be no archive
        archive = np.load(raw, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("a single array, not an archive of arrays")
        return {key: archive[key] for key in archive.files}


def sha256(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
