"""Read a corpus: the shipped one by its name, or a user's files in their usual formats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.dnova.corpus.built import BUILT, DESCRIPTION, built_folder
from nandcosim.systems.dnova.corpus.collection import Corpus, Metric
from nandcosim.systems.dnova.corpus.description import read_description
from nandcosim.systems.dnova.corpus.encoder import encode_corpus
from nandcosim.systems.dnova.corpus.judgements import ALL, find_qrels, read_qrels
from nandcosim.systems.dnova.corpus.packed import read_packed
from nandcosim.systems.dnova.corpus.passages import read_passages

__all__ = ["SHIPPED", "SHIPPED_DATA", "load_corpus"]

#: Corpora that ship with the package, by name.
SHIPPED = ("wordnet",)

#: Their folder.
SHIPPED_DATA = Path(__file__).resolve().parent.parent / "data"
_HDF5 = (".hdf5", ".h5")
_MATRIX = (".npy", ".parquet")
#: Names under which a folder may hold its document vectors, in the order looked for.
_DOCUMENT_STEMS = ("corpus", "vectors")
#: Column names taken as the vector when a table has several columns of lists.
_VECTOR_COLUMNS = ("vector", "embedding", "emb")
#: What ann-benchmarks calls a comparison, and what we call it.
_ANN_METRICS: dict[str, Metric] = {
    "angular": "cosine",
    "euclidean": "euclidean",
    "dot": "inner_product",
}
_USER_LICENCE = "not stated: the user's own data"


@dataclass(frozen=True)
class _Side:
    """One side of a corpus, documents or queries: vectors (n, D), ids and texts."""

    path: Path
    vectors: NDArray[Any]
    ids: tuple[str, ...] | None = None
    texts: tuple[str, ...] | None = None

    def rows(self) -> dict[str, int]:
        """Row of each identifier; the row number itself where there are none."""
        ids = self.ids or tuple(str(row) for row in range(len(self.vectors)))
        if len(ids) != len(self.vectors):
            raise InputError(f"{self.path}: {len(self.vectors)} vectors but {len(ids)} identifiers")
        rows = {identifier: row for row, identifier in enumerate(ids)}
        if len(rows) != len(ids):
            twice = next(name for row, name in enumerate(ids) if rows[name] != row)
            raise InputError(f"{self.path}: identifier {twice!r} occurs twice")
        return rows


def load_corpus(
    name_or_path: str | os.PathLike[str],
    *,
    split: str = "test",
    queries: str | os.PathLike[str] | None = None,
    qrels: str | os.PathLike[str] | None = None,
    encode_missing: bool = True,
    progress: bool = True,
) -> Corpus:
    """Load a corpus by name or path.

    ==================  ================================================================
    given               read
    ==================  ================================================================
    ``"wordnet"``       the shipped corpus
    ``"wordnet-full"``  a corpus of `BUILT` from the cache folder, built there before by
    and others          ``python -m nandcosim.systems.dnova.corpus.build NAME``
    ``X.npy``,          document vectors; queries from `queries`, ``X-queries.*`` or
    ``X.parquet``       ``queries.*`` beside; judgements from `qrels`, ``X-qrels.tsv``,
                        ``qrels.tsv`` or ``qrels/`` beside, if any
    ``X.hdf5``          ann-benchmarks: ``train``, ``test``, ``neighbors``
    folder              ``corpus.*`` or ``vectors.*``, ``queries.*``, ``qrels.tsv`` or
                        ``qrels/SPLIT.tsv``, if any
    BEIR folder         the same, with ``corpus.jsonl`` and ``queries.jsonl``; vectors
                        that are missing are made by the encoder and kept there;
                        ``corpus.toml``, if any, states licence and provenance
    ==================  ================================================================

    Identifiers of a ``.npy`` stand one a line in ``.ids.txt`` of the same stem; without
    it they are row numbers from 0. Large ``.npy`` files are memory-mapped. Nothing is unpickled.

    Parameters
    ----------
    name_or_path : str or path
    split : str
        Queries to keep where there are several sets; ``"all"`` for all. With
        judgements, only the queries judged in this split are kept.
    queries, qrels : path, optional
        Files to use in place of those found beside.
    encode_missing : bool
        Whether vectors of a BEIR folder may be made (slow for a large one).
    progress : bool
        Show a bar while encoding, on a terminal.

    Returns
    -------
    Corpus

    Raises
    ------
    InputError
        If a file is missing, unreadable, or does not fit the others.
    MissingExtraError
        If the format needs a package that is not installed.
    """
    if name_or_path in SHIPPED:
        stored = read_packed(SHIPPED_DATA / f"{name_or_path}.npz", str(name_or_path), split)
        return stored.normalised()  # rounding to int8 moved the lengths off 1
    path = built_folder(str(name_or_path)) if name_or_path in BUILT else Path(name_or_path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder, and no corpus of that name "
            f"(shipped: {', '.join(SHIPPED)}; built on demand: {', '.join(BUILT)})"
        )
    given_queries = None if queries is None else Path(queries)
    given_qrels = None if qrels is None else Path(qrels)
    if path.suffix in _HDF5 and path.is_file():
        return _read_ann_benchmarks(path)
    if path.is_dir():
        documents, asked = _folder_sides(path, given_queries, encode_missing, progress)
        found_qrels = _first_existing(path / "qrels.tsv", path / "qrels")
    elif path.suffix in _MATRIX:
        documents = _read_side(path)
        asked = _read_side(given_queries or _queries_beside(path))
        found_qrels = _first_existing(
            path.with_name(f"{path.stem}-qrels.tsv"), path.with_name("qrels.tsv"),
            path.with_name("qrels"),
        )  # fmt: skip
    else:
        raise InputError(
            f"{path}: cannot read a corpus from {path.suffix!r}, "
            f"allowed: a folder, {', '.join(_MATRIX + _HDF5)}"
        )
    return _assemble(path, documents, asked, given_qrels or found_qrels, split)


def _assemble(path: Path, documents: _Side, asked: _Side, qrels: Path | None, split: str) -> Corpus:
    document_rows, query_rows = documents.rows(), asked.rows()
    corpus = _construct(
        path,
        name=path.resolve().stem,
        vectors=documents.vectors,
        queries=asked.vectors,
        ids=documents.ids,
        texts=documents.texts,
        query_ids=asked.ids,
        query_texts=asked.texts,
        **_terms(path, documents, asked),
    )
    if qrels is None:
        if split not in ("test", ALL):
            raise InputError(f"{path}: no judgements, so no split {split!r}")
        return corpus
    judged = read_qrels(find_qrels(qrels, split), document_rows, query_rows)
    kept = sorted(judged)
    chosen = corpus.select_queries(kept)
    return _construct(path, **{**vars(chosen), "relevance": tuple(judged[query] for query in kept)})


def _terms(path: Path, documents: _Side, asked: _Side) -> dict[str, str]:
    """Licence and provenance, from the description in a folder if there is one."""
    stated = path / DESCRIPTION
    if not stated.is_file():
        provenance = f"read from {documents.path} and {asked.path}"
        return {"licence": _USER_LICENCE, "provenance": provenance}
    description = read_description(stated)
    return {key: str(description[key]) for key in ("licence", "provenance")}


def _construct(path: Path, **fields: Any) -> Corpus:
    try:
        return Corpus(**fields)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _first_existing(*paths: Path) -> Path | None:
    return next((path for path in paths if path.exists()), None)


def _queries_beside(path: Path) -> Path:
    names = [
        f"{stem}{suffix}" for stem in (f"{path.stem}-queries", "queries") for suffix in _MATRIX
    ]
    found = _first_existing(*(path.with_name(name) for name in names))
    if found is None:
        raise InputError(f"{path}: no queries found beside it, looked for {', '.join(names)}")
    return found


# -- folders -------------------------------------------------------------------------------


def _folder_sides(
    folder: Path, queries: Path | None, encode_missing: bool, progress: bool
) -> tuple[_Side, _Side]:
    documents = _folder_side(folder, _DOCUMENT_STEMS, encode_missing, progress)
    if queries is not None:
        return documents, _read_side(queries)
    return documents, _folder_side(folder, ("queries",), encode_missing, progress)


def _folder_side(folder: Path, stems: Sequence[str], encode_missing: bool, progress: bool) -> _Side:
    candidates = [folder / f"{stem}{suffix}" for stem in stems for suffix in _MATRIX]
    texts = folder / f"{stems[0]}.jsonl"
    found = _first_existing(*candidates)
    if found is None and not texts.is_file():
        names = ", ".join(path.name for path in (*candidates, texts))
        raise InputError(f"{folder}: found none of {names}")
    if found is None:
        if not encode_missing:
            raise InputError(
                f"{folder}: {texts.name} has no vectors beside it ({candidates[0].name})"
            )
        found = encode_corpus(texts, candidates[0], progress=progress)
    side = _read_side(found)
    return _with_passages(side, texts) if texts.is_file() else side


def _with_passages(side: _Side, texts: Path) -> _Side:
    passages = read_passages(texts)
    if len(passages.ids) != len(side.vectors):
        raise InputError(
            f"{side.path}: {len(side.vectors)} vectors, but {texts.name} has "
            f"{len(passages.ids)} entries"
        )
    if side.ids is not None and side.ids != passages.ids:
        row = next(
            row for row, pair in enumerate(zip(side.ids, passages.ids, strict=True))
            if pair[0] != pair[1]
        )  # fmt: skip
        raise InputError(
            f"{side.path}: row {row} is {side.ids[row]!r}, but {texts.name} has "
            f"{passages.ids[row]!r}: the vectors belong to another file"
        )
    return _Side(side.path, side.vectors, passages.ids, passages.texts)


# -- one file ------------------------------------------------------------------------------


def _read_side(path: Path) -> _Side:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix == ".npy":
        return _read_npy(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    raise InputError(
        f"{path}: cannot read vectors from {path.suffix!r}, allowed: {', '.join(_MATRIX)}"
    )


def _read_npy(path: Path) -> _Side:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path}: not a .npy file of numbers: {error}") from None
    ids = path.with_suffix(".ids.txt")
    return _Side(path, _two_dimensional(vectors, path), _read_ids(ids) if ids.is_file() else None)


def _read_ids(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None


def _two_dimensional(vectors: NDArray[Any], path: Path) -> NDArray[Any]:
    if vectors.ndim != 2:
        raise InputError(f"{path}: found shape {vectors.shape}, expected (vectors, dimensions)")
    return vectors


def _read_parquet(path: Path) -> _Side:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading .parquet", "pyarrow", "parquet") from None
    try:
        schema = pq.read_schema(path)
        vector = _vector_column(path, schema)
        names = [name for name in (vector, "id", "_id", "text") if name in schema.names]
        table = pq.read_table(path, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: cannot be read as Parquet: {str(error).splitlines()[0]}"
        ) from None

    def strings(*choices: str) -> tuple[str, ...] | None:
        column = next((name for name in choices if name in table.column_names), None)
        return None if column is None else tuple(str(cell) for cell in table[column].to_pylist())

    return _Side(path, _stack(table[vector], path, vector), strings("id", "_id"), strings("text"))


def _vector_column(path: Path, schema: Any) -> str:
    import pyarrow.types as kinds

    def is_vector(kind: Any) -> bool:
        is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
        return bool(is_list) and bool(
            kinds.is_floating(kind.value_type) or kinds.is_integer(kind.value_type)
        )

    found = [field.name for field in schema if is_vector(field.type)]
    if len(found) > 1:
        found = [name for name in _VECTOR_COLUMNS if name in found] or found
        if found[0] not in _VECTOR_COLUMNS:
            raise InputError(
                f"{path}: several columns hold vectors ({', '.join(found)}); "
                f"name one of them {_VECTOR_COLUMNS[0]!r}"
            )
    if not found:
        raise InputError(
            f"{path}: no column of number lists among {', '.join(schema.names)}; expected one"
        )
    return str(found[0])


def _stack(column: Any, path: Path, name: str) -> NDArray[Any]:
    """Lists of equal length as one matrix, without a Python object a number."""
    import pyarrow.compute as pc

    if column.null_count:
        raise InputError(f"{path}: column {name!r} has {column.null_count} missing vectors")
    if not len(column):
        raise InputError(f"{path}: column {name!r} is empty, expected at least one vector")
    lengths = pc.list_value_length(column).to_numpy()
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        row = int(odd[0])
        raise InputError(
            f"{path}: row {row} of column {name!r} has {lengths[row]} components, "
            f"row 0 has {lengths[0]}"
        )
    flat = pc.list_flatten(column).to_numpy()
    return np.asarray(flat).reshape(len(column), int(lengths[0]))


def _read_ann_benchmarks(path: Path) -> Corpus:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("reading HDF5", "h5py", "retrieval") from None
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise InputError(f"{path}: cannot be read as HDF5") from None
    with file:
        sets = [name for name in file if isinstance(file[name], h5py.Dataset)]
        missing = [name for name in ("train", "test") if name not in sets]
        if missing:
            raise InputError(
                f"{path}: no dataset {missing[0]!r}, found {', '.join(sets) or 'nothing'}; "
                "expected train, test and neighbors"
            )
        distance = file.attrs.get("distance", "angular")
        distance = distance.decode() if isinstance(distance, bytes) else str(distance)
        if distance not in _ANN_METRICS:
            raise InputError(
                f"{path}: distance {distance!r} is not supported, allowed: "
                f"{', '.join(_ANN_METRICS)}"
            )
        return _construct(
            path,
            name=path.stem,
            vectors=_two_dimensional(file["train"][()], path),
            queries=_two_dimensional(file["test"][()], path),
            neighbours=file["neighbors"][()] if "neighbors" in sets else None,
            metric=_ANN_METRICS[distance],
            licence=_USER_LICENCE,
            provenance=f"read from {path} (ann-benchmarks, distance {distance})",
        )
