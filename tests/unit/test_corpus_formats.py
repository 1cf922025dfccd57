"""Every format that a user may bring, and one clear line for what is wrong with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.dnova.corpus import load_corpus

RNG = np.random.default_rng(7)
VECTORS = RNG.standard_normal((6, 4)).astype(np.float32)
QUERIES = RNG.standard_normal((3, 4)).astype(np.float32)


def write_jsonl(path: Path, records: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def npy_pair(folder: Path) -> Path:
    np.save(folder / "docs.npy", VECTORS)
    np.save(folder / "queries.npy", QUERIES)
    return folder / "docs.npy"


def beir_folder(folder: Path) -> Path:
    write_jsonl(
        folder / "corpus.jsonl",
        [{"_id": f"d{row}", "title": "Title", "text": f"document {row}"} for row in range(6)],
    )
    write_jsonl(
        folder / "queries.jsonl", [{"_id": f"q{row}", "text": f"query {row}"} for row in range(3)]
    )
    (folder / "qrels").mkdir()
    heading = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(heading + "q2\td5\t1\nq0\td1\t2\nq0\td0\t0\n")
    (folder / "qrels" / "train.tsv").write_text(heading + "q1\td2\t1\n")
    np.save(folder / "corpus.npy", VECTORS)
    np.save(folder / "queries.npy", QUERIES)
    return folder


def parquet_pair(folder: Path) -> Path:
    pa = pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
    import pyarrow.parquet as pq

    fixed = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 4)
    ids = [f"d{row}" for row in range(6)]
    pq.write_table(pa.table({"id": ids, "emb": fixed, "text": ids}), folder / "docs.parquet")
    pq.write_table(pa.table({"vector": QUERIES.tolist()}), folder / "docs-queries.parquet")
    return folder / "docs.parquet"


def hdf5_file(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py", reason="h5py (extra retrieval) is not installed")
    with h5py.File(folder / "set.hdf5", "w") as file:
        file["train"], file["test"] = VECTORS, QUERIES
        file["neighbors"] = np.argsort(-QUERIES @ VECTORS.T, axis=1)[:, :2].astype(np.int32)
        file.attrs["distance"] = "dot"
    return folder / "set.hdf5"


@pytest.mark.parametrize("make", [npy_pair, beir_folder, parquet_pair, hdf5_file])
def test_vectors_come_back_unchanged(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    corpus = load_corpus(make(tmp_path), split="all")
    np.testing.assert_array_equal(corpus.vectors, VECTORS)
    np.testing.assert_array_equal(corpus.queries, QUERIES)
    assert corpus.vectors.dtype == np.float32
    assert str(tmp_path) in corpus.provenance


def test_a_large_matrix_stays_on_disk(tmp_path: Path) -> None:
    corpus = load_corpus(npy_pair(tmp_path))
    assert isinstance(corpus.vectors, np.memmap)
    assert corpus.relevance is None


def test_rows_are_the_identifiers_of_bare_vectors(tmp_path: Path) -> None:
    path = npy_pair(tmp_path)
    (tmp_path / "docs-qrels.tsv").write_text("2 0 5 1\n0 0 1 1\n2 0 3 1\n")  # TREC columns
    corpus = load_corpus(path)
    assert corpus.relevance == ((1,), (3, 5))
    np.testing.assert_array_equal(corpus.queries, QUERIES[[0, 2]])


def test_identifiers_beside_the_vectors(tmp_path: Path) -> None:
    path = npy_pair(tmp_path)
    (tmp_path / "docs.ids.txt").write_text("a\nb\nc\nd\ne\nf\n")
    (tmp_path / "judged.tsv").write_text("1\tf\t1\n")
    corpus = load_corpus(path, qrels=tmp_path / "judged.tsv")
    assert corpus.ids == ("a", "b", "c", "d", "e", "f")
    assert corpus.relevance == ((5,),)


def test_beir_splits(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path)
    test = load_corpus(folder)
    assert test.query_ids == ("q0", "q2")
    assert test.relevance == ((1,), (5,))  # grade 0 is judged, but not relevant
    assert test.texts is not None
    assert test.texts[3] == "Title document 3"
    assert load_corpus(folder, split="train").relevance == ((2,),)
    assert load_corpus(folder, split="all").relevance == ((1,), (2,), (5,))


def test_hdf5_neighbours_are_no_judgements(tmp_path: Path) -> None:
    corpus = load_corpus(hdf5_file(tmp_path))
    assert corpus.relevance is None
    assert corpus.metric == "inner_product"
    assert corpus.neighbours is not None
    np.testing.assert_array_equal(corpus.neighbours[:, 0], np.argmax(QUERIES @ VECTORS.T, axis=1))


def test_parquet_texts_and_identifiers(tmp_path: Path) -> None:
    corpus = load_corpus(parquet_pair(tmp_path))
    assert corpus.ids == corpus.texts == tuple(f"d{row}" for row in range(6))


def _npy_without_queries(folder: Path) -> Path:
    np.save(folder / "docs.npy", VECTORS)
    return folder / "docs.npy"


def _other_dimension(folder: Path) -> Path:
    path = npy_pair(folder)
    np.save(folder / "queries.npy", QUERIES[:, :3])
    return path


def _nan_row(folder: Path) -> Path:
    path = npy_pair(folder)
    np.save(path, np.where(np.arange(6)[:, None] == 4, np.nan, VECTORS))
    return path


def _one_dimensional(folder: Path) -> Path:
    path = npy_pair(folder)
    np.save(path, VECTORS[0])
    return path


def _empty(folder: Path) -> Path:
    path = npy_pair(folder)
    np.save(path, VECTORS[:0])
    return path


def _pickled(folder: Path) -> Path:
    path = npy_pair(folder)
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return path


def _text_named_npy(folder: Path) -> Path:
    path = npy_pair(folder)
    path.write_text("0.1 0.2")
    return path


def _unknown_document(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "qrels" / "test.tsv").write_text("q0\td1\t1\nq0\td77\t1\n")
    return folder


def _unknown_query(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "qrels" / "test.tsv").write_text("q9\td1\t1\n")
    return folder


def _grade(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "qrels" / "test.tsv").write_text("q0\td1\thigh\n")
    return folder


def _no_judgement(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    return folder


def _no_test_split(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "qrels" / "test.tsv").unlink()
    return folder


def _row_too_few(folder: Path) -> Path:
    beir_folder(folder)
    np.save(folder / "corpus.npy", VECTORS[:5])
    return folder


def _vectors_of_another_file(folder: Path) -> Path:
    beir_folder(folder)
    (folder / "corpus.ids.txt").write_text("d0\nd1\nd3\nd2\nd4\nd5\n")
    return folder


def _same_id_twice(folder: Path) -> Path:
    path = npy_pair(folder)
    (folder / "docs.ids.txt").write_text("a\nb\nc\nb\ne\nf\n")
    return path


def _empty_folder(folder: Path) -> Path:
    return folder


def _other_suffix(folder: Path) -> Path:
    (folder / "docs.pkl").write_bytes(b"")
    return folder / "docs.pkl"


def _ragged_parquet(folder: Path) -> Path:
    path = parquet_pair(folder)
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"vector": [[1.0, 2.0], [1.0]]}), path)
    return path


def _two_vector_columns(folder: Path) -> Path:
    path = parquet_pair(folder)
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"one": [[1.0]], "two": [[1.0]]}), path)
    return path


def _not_parquet(folder: Path) -> Path:
    path = parquet_pair(folder)
    path.write_text("vector")
    return path


def _null_vector(folder: Path) -> Path:
    path = parquet_pair(folder)
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"vector": [[1.0, 2.0], None]}), path)
    return path


def _hdf5_without_test(folder: Path) -> Path:
    path = hdf5_file(folder)
    import h5py

    with h5py.File(path, "a") as file:
        del file["test"]
    return path


def _hamming(folder: Path) -> Path:
    path = hdf5_file(folder)
    import h5py

    with h5py.File(path, "a") as file:
        file.attrs["distance"] = "hamming"
    return path


def _not_hdf5(folder: Path) -> Path:
    (folder / "set.hdf5").write_text("train")
    return folder / "set.hdf5"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_npy_without_queries, "no queries found beside it, looked for docs-queries.npy"),
        (_other_dimension, "queries have 3 dimensions, the document vectors 4"),
        (_nan_row, "row 4 holds NaN"),
        (_one_dimensional, r"found shape \(4,\)"),
        (_empty, "expected at least one vector"),
        (_pickled, "not a .npy file of numbers"),
        (_text_named_npy, "not a .npy file of numbers"),
        (_unknown_document, "test.tsv line 2: document id 'd77' is not in the corpus"),
        (_unknown_query, "line 1: query id 'q9' is not among the queries"),
        (_grade, "grade 'high' is no number"),
        (_no_judgement, "no judgement found"),
        (_no_test_split, "no split 'test', found 'train'"),
        (_row_too_few, "5 vectors, but corpus.jsonl has 6 entries"),
        (_vectors_of_another_file, "row 2 is 'd3', but corpus.jsonl has 'd2'"),
        (_same_id_twice, "identifier 'b' occurs twice"),
        (_empty_folder, "found none of corpus.npy"),
        (_other_suffix, "cannot read a corpus from '.pkl'"),
        (_ragged_parquet, "row 1 of column 'vector' has 1 components, row 0 has 2"),
        (_two_vector_columns, "several columns hold vectors"),
        (_not_parquet, "cannot be read as Parquet"),
        (_null_vector, "1 missing vectors"),
        (_hdf5_without_test, "no dataset 'test', found neighbors, train"),
        (_hamming, "distance 'hamming' is not supported"),
        (_not_hdf5, "cannot be read as HDF5"),
    ],
)
def test_wrong_input_gets_one_line_that_names_the_file(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load_corpus(path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [("pyarrow", parquet_pair, "parquet"), ("h5py", hdf5_file, "retrieval")],
)
def test_a_missing_package_names_its_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    make: Callable[[Path], Path],
    extra: str,
) -> None:
    path = make(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*nandcosim\[{extra}\]"):
        load_corpus(path)


def test_an_unknown_name_says_what_ships() -> None:
    with pytest.raises(InputError, match=r"wordnett: no such file.*shipped: wordnet"):
        load_corpus("wordnett")


def test_vectors_are_not_made_when_not_wanted(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path)
    os.remove(folder / "corpus.npy")
    with pytest.raises(InputError, match=r"corpus\.jsonl has no vectors beside it"):
        load_corpus(folder, encode_missing=False)
