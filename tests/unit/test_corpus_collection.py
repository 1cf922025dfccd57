"""A corpus refuses whatever does not fit together, and stores what it was given."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus import Corpus, exact_quality, load_corpus
from nandcosim.systems.dnova.corpus.packed import (
    dequantise,
    quantise,
    read_packed,
    write_packed,
)

FINITE = st.floats(-1e3, 1e3, width=32)
MATRICES = hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=FINITE)


def small(**changes: object) -> Corpus:
    fields: dict[str, object] = {
        "name": "small",
        "vectors": np.eye(4, 3, dtype=np.float32) + 1,
        "queries": np.eye(2, 3, dtype=np.float32),
        "relevance": ((0, 3), (1,)),
        "ids": ("a", "b", "c", "d"),
        "texts": ("alpha", "beta", "gamma", "delta"),
        "query_ids": ("q0", "q1"),
        "query_texts": ("first", "second"),
    }
    return Corpus(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vectors": np.zeros((0, 3))}, "vectors: found shape"),
        ({"vectors": np.zeros(3)}, "vectors: found 1 dimensions"),
        ({"vectors": np.array([["x", "y", "z"]] * 4)}, "expected numbers"),
        ({"vectors": np.array([[0, 0, 0], [0, np.nan, 0]] * 2)}, "vectors: row 1 holds NaN"),
        ({"queries": np.array([[0.0, 0, 0], [0, 0, 1e300]])}, "queries: row 1 holds NaN or inf"),
        ({"queries": np.ones((2, 5))}, "queries have 5 dimensions, the document vectors 3"),
        ({"ids": ("a", "b")}, "ids: found 2 entries, expected 4"),
        ({"relevance": ((0,),)}, "relevance: found 1 entries, expected 2"),
        ({"relevance": ((0,), (4,))}, "query 1 names document row 4, expected 0 to 3"),
        ({"relevance": ((-1,), (0,))}, "query 0 names document row -1"),
        ({"neighbours": np.zeros((3, 2), int)}, "expected integers of shape"),
        ({"neighbours": np.full((2, 2), 4)}, "row numbers 4 to 4, expected 0 to 3"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)


def test_a_nan_far_down_is_found_at_its_row() -> None:
    vectors = np.zeros((70_000, 2), np.float32)  # more than one block of the scan
    vectors[69_999, 1] = np.nan
    with pytest.raises(InputError, match="row 69999"):
        Corpus("long", vectors, np.ones((1, 2), np.float32))


def test_selected_queries_keep_their_judgements() -> None:
    chosen = small(neighbours=np.array([[3, 0], [1, 2]])).select_queries([1])
    assert chosen.relevance == ((1,),)
    assert chosen.query_ids == ("q1",)
    assert chosen.neighbours is not None
    assert chosen.neighbours.tolist() == [[1, 2]]
    assert small().select_queries(slice(0, 1)).query_texts == ("first",)


def one_array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.eye(2))
    return file.getvalue()


@given(MATRICES)
def test_normalised_rows_have_length_one_and_keep_their_direction(matrix: np.ndarray) -> None:
    if not (np.abs(matrix).max(axis=1) > 1e-3).all():
        with pytest.raises(InputError, match="is zero"):
            Corpus("zero", np.zeros_like(matrix), matrix).normalised()
        return
    unit = Corpus("random", matrix, matrix).normalised().vectors
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    assert (np.einsum("ij,ij->i", unit, matrix) > 0).all()


@given(MATRICES)
def test_quantising_errs_by_at_most_half_a_step(matrix: np.ndarray) -> None:
    codes, scale = quantise(matrix)
    assert codes.dtype == np.int8
    assert (np.abs(codes.astype(int)).max(axis=1) == np.where(scale > 0, 127, 0)).all()
    error = np.abs(dequantise(codes, scale) - matrix)
    vanishing = 127 * np.finfo(np.float32).tiny  # documented: such vectors become zero
    assert (error <= np.where(scale > 0, scale * 0.5001, vanishing)[:, None]).all()


def test_a_packed_corpus_comes_back(tmp_path) -> None:
    path = tmp_path / "small.npz"
    corpus = small(relevance=((), (3, 1)))
    write_packed(corpus, ("test", "train"), path)
    path.with_suffix(".toml").write_text('licence = "none"\nprovenance = "a test"\n')
    back = read_packed(path, "small", "all")
    for field in ("relevance", "ids", "texts", "query_ids", "query_texts"):
        assert getattr(back, field) == getattr(corpus, field), field
    np.testing.assert_allclose(back.vectors, corpus.vectors, atol=2 / 127 / 2)
    assert read_packed(path, "small", "train").query_ids == ("q1",)
    with pytest.raises(InputError, match=r"no split 'dev', found 'test', 'train', 'all'"):
        read_packed(path, "small", "dev")
    assert [file.name for file in tmp_path.glob("*.part")] == []


@given(st.integers(0, 4000), st.integers(1, 255))
def test_a_changed_byte_never_passes_for_another_corpus(place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.npz"
        write_packed(small(), ("test", "test"), path)
        path.with_suffix(".toml").write_text('licence = ""\nprovenance = ""\n')
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= change
        path.write_bytes(content)
        try:
            back = read_packed(path, "small")
        except InputError:
            return
        # some bytes of a zip archive (dates, versions) carry nothing
        assert back.texts == small().texts
        np.testing.assert_allclose(back.vectors, small().vectors, atol=2 / 127 / 2)


def test_packing_is_deterministic(tmp_path) -> None:
    for name in ("one", "two"):
        write_packed(small(), ("test", "test"), tmp_path / f"{name}.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", one_array()])
def test_a_damaged_packed_file_is_refused(tmp_path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    path.with_suffix(".toml").write_text('licence = ""\nprovenance = ""\n')
    with pytest.raises(InputError, match="not a packed corpus"):
        read_packed(path, "bad")


def test_quality_of_a_ranking_done_by_hand() -> None:
    # cosines with the query: 1.0, 0.8, 0.6, 0.0; relevant are the second and the last
    vectors = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]], np.float32)
    corpus = Corpus("hand", vectors, np.array([[2, 0]], np.float32), relevance=((1, 3),))
    quality = exact_quality(corpus)
    assert quality.mrr == pytest.approx(1 / 2)
    assert quality.recall_at_10 == 1.0
    far = np.vstack([vectors, np.tile(np.array([[0.9, 0.1]], np.float32), (20, 1))])
    more = exact_quality(Corpus("hand", far, corpus.queries, relevance=((0, 3),)))
    assert more.recall_at_10 == 0.5
    assert more.recall_at_25 == 1.0
    # nine better documents: rank 10 counts; ten: rank 11 does not
    for better, recall in ((9, 1.0), (10, 0.0)):
        ranked = np.array([[1, 0]] * better + [[0.5, 0.5], [0, 1]], np.float32)
        at_edge = Corpus("edge", ranked, corpus.queries, relevance=((better,),))
        assert exact_quality(at_edge).recall_at_10 == recall
        assert exact_quality(at_edge).mrr == pytest.approx(1 / (better + 1))
    with pytest.raises(InputError, match="no relevance judgements"):
        exact_quality(small(relevance=None))


def test_quality_agrees_with_an_independent_search() -> None:
    faiss = pytest.importorskip("faiss", reason="faiss (extra retrieval) is not installed")
    corpus = load_corpus("wordnet").normalised()
    index = faiss.IndexFlatIP(corpus.dimension)
    index.add(corpus.vectors)
    queries = corpus.select_queries(slice(0, 200))
    _, found = index.search(queries.queries, 100)
    recall = np.mean(
        [
            len(set(rows[:100]) & set(relevant)) / len(relevant)
            for rows, relevant in zip(found.tolist(), queries.relevance or (), strict=True)
        ]
    )
    assert exact_quality(queries).recall_at_100 == pytest.approx(recall, abs=1e-9)
