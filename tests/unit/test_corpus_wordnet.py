"""The shipped corpus is what its description says, and how its parts are read and chosen."""

from __future__ import annotations

import base64
import gzip
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus import exact_quality, formats, load_corpus
from nandcosim.systems.dnova.corpus.__main__ import main as quality_command
from nandcosim.systems.dnova.corpus.dictionaries import (
    Definition,
    Synset,
    read_gcide,
    read_wordnet,
)
from nandcosim.systems.dnova.corpus.packed import sha256
from nandcosim.systems.dnova.corpus.wordnet import DOCUMENTS, SPLITS, leaks, main, select

DATA = Path(formats.__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def description() -> dict[str, object]:
    return tomllib.loads((DATA / "wordnet.toml").read_text())


def test_the_file_is_the_described_one(description: dict[str, object]) -> None:
    assert sha256(DATA / "wordnet.npz") == description["sha256"]
    assert (DATA / "wordnet.npz").stat().st_size < 9e6


def test_licence_texts_stand_beside_the_data() -> None:
    licence = load_corpus("wordnet").licence
    for name, phrase in (
        ("WORDNET-LICENSE.txt", "WordNet 3.0 Copyright 2006 by Princeton University"),
        ("GCIDE-NOTICE.txt", "either version 2,"),
    ):
        assert name in licence
        assert phrase in (DATA / name).read_text()


def test_splits_are_disjoint_in_headwords_and_relevant_documents() -> None:
    splits = {name: load_corpus("wordnet", split=name) for name in SPLITS}
    assert {name: corpus.nq for name, corpus in splits.items()} == SPLITS
    for one, other in pairwise([*splits.values(), splits["test"]]):
        assert set(one.query_ids or ()).isdisjoint(other.query_ids or ())
        rows = [{row for rows in corpus.relevance or () for row in rows} for corpus in (one, other)]
        assert rows[0].isdisjoint(rows[1])
    assert load_corpus("wordnet").nq == SPLITS["test"]


def test_the_relevant_documents_are_all_those_of_the_headword() -> None:
    corpus = load_corpus("wordnet", split="all")
    assert (corpus.n, corpus.dimension) == (DOCUMENTS, 384)
    rows: dict[str, set[int]] = {}
    for row, text in enumerate(corpus.texts or ()):
        for lemma in text.split(": ")[0].split(", "):
            rows.setdefault(lemma.lower(), set()).add(row)
    for headword, relevant in zip(corpus.query_ids or (), corpus.relevance or (), strict=True):
        assert set(relevant) == rows[headword], headword


def test_vectors_have_length_one() -> None:
    corpus = load_corpus("wordnet")
    for matrix in (corpus.vectors, corpus.queries):
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-6)


def test_exact_search_quality_is_the_described_one(description: dict[str, object]) -> None:
    described = description["test_quality_stored"]
    assert isinstance(described, dict)
    quality = exact_quality(load_corpus("wordnet"))
    # the description has four digits; another BLAS may swap two near-equal scores
    assert quality.recall_at_10 == pytest.approx(described["recall_at_10"], abs=1e-3)
    assert quality.recall_at_100 == pytest.approx(described["recall_at_100"], abs=1e-3)
    assert quality.mrr == pytest.approx(described["mrr"], abs=1e-3)


# -- reading the dictionaries --------------------------------------------------------------


def test_wordnet_line(tmp_path: Path) -> None:
    for name in ("noun", "verb", "adv"):
        (tmp_path / f"data.{name}").write_text("  1 licence text\n")
    (tmp_path / "data.adj").write_text(
        "00014490 00 s 02 galore(ip) 0 in_plenty 0 001 & 00013887 a 0000 "
        '| existing in abundance; "ale galore"; "more"  \n'
    )
    (synset,) = read_wordnet(tmp_path)
    assert synset == Synset("00014490-s", ("galore", "in plenty"), "existing in abundance")
    assert synset.text == "galore, in plenty: existing in abundance"


def test_a_broken_wordnet_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text("00014490 00 s zz galore\n")
    with pytest.raises(InputError, match=r"data\.noun line 1: not a WordNet synset"):
        read_wordnet(tmp_path)
    with pytest.raises(InputError, match="no such WordNet file"):
        read_wordnet(tmp_path / "absent")


def write_dictd(folder: Path, entries: list[tuple[str, str]]) -> Path:
    def number(value: int) -> str:
        # dictd's digits are those of base 64, most significant first
        digits = base64.b64encode((value).to_bytes(6, "big")).decode()
        return digits.lstrip("A") or "A"

    text, lines = b"", []
    for word, entry in entries:
        lines.append(f"{word}\t{number(len(text))}\t{number(len(entry.encode()))}\n")
        text += entry.encode()
    (folder / "gcide.index").write_text("".join(lines))
    (folder / "gcide.dict.dz").write_bytes(gzip.compress(text))
    return folder


ENTRY = (
    "Boil \\Boil\\, n. [Influenced by boil, v. See {Beal},\n   [Lett. b[=i]le] {Bile}.]\n"
    "   1. (Med.) A hard, painful {tumor}, which suppurates;\n   as, a boil. --Shak.\n"
    "      [1913 Webster]\n\n   2. Another sense.\n      [1913 Webster]\n"
)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (ENTRY, ["A hard, painful tumor, which suppurates"]),
        (ENTRY.replace("[1913 Webster]", "[WordNet 1.5]"), []),
        (ENTRY.replace("[1913 Webster]", "[1913 Webster + WordNet 1.5]"), []),
        (ENTRY.replace("Boil \\", "Boiler \\"), []),
        (ENTRY.replace("A hard,", "See {Sore}."), []),
        (ENTRY.replace("painful", "p[ae]nful"), []),
        (
            ENTRY.replace("   as, a boil.", "   (b) A sore."),
            ["A hard, painful tumor, which suppurates"],
        ),
    ],
)
def test_gcide_entry(tmp_path: Path, entry: str, expected: list[str]) -> None:
    folder = write_dictd(tmp_path, [("other", "Nothing here\n"), ("Boil", entry)])
    assert [definition.text for definition in read_gcide(folder)] == expected
    assert all(definition.headword == "boil" for definition in read_gcide(folder))


def test_a_broken_gcide_index_is_named(tmp_path: Path) -> None:
    folder = write_dictd(tmp_path, [("Boil", ENTRY)])
    (folder / "gcide.index").write_text("Boil\t!\tA\n")
    with pytest.raises(InputError, match=r"gcide\.index line 1: not a dictd index line"):
        list(read_gcide(folder))


# -- choosing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headword", "text", "expected"),
    [
        ("nervousness", "the state of being nervous", True),
        ("unking", "to cause to cease to be a king", True),
        ("king", "a pirate, one of the vikings", True),
        ("boil", "to be agitated by heat, as a boiler", True),
        ("dawn", "the break of day", False),
        ("durably", "in a lasting manner; with long continuance", False),
        ("sea horse", "a small fish that swims upright", False),
        ("sea horse", "a fish with the head of a horse", True),
    ],
)
def test_a_definition_that_names_its_headword_leaks(
    headword: str, text: str, expected: bool
) -> None:
    assert leaks(Definition(headword, text)) is expected


def tiny_dictionaries() -> tuple[list[Synset], list[Definition]]:
    words = [f"{one}{two}" for one in "bcdfghjk" for two in ("alo", "emu", "iru", "ozo")]
    synsets = [
        Synset(f"{row:08d}-n", (word, words[row // 2]), f"number {row}")
        for row, word in enumerate(words)
    ]
    return synsets, [Definition(word, "what this one is called here") for word in words]


def test_selection_follows_its_seed_and_its_rules() -> None:
    synsets, definitions = tiny_dictionaries()
    splits = {"test": 3, "train": 4}
    one = select(synsets, definitions, documents=24, splits=splits, seed=5)
    assert one == select(synsets, definitions, documents=24, splits=splits, seed=5)
    assert one != select(synsets, definitions, documents=24, splits=splits, seed=6)
    assert one.split == ("test",) * 3 + ("train",) * 4
    assert len(set(one.documents)) == 24
    claimed = [row for rows in one.relevance for row in rows]
    assert len(claimed) == len(set(claimed))
    for query, rows in zip(one.queries, one.relevance, strict=True):
        assert [one.documents[row] for row in rows] == [
            synset for synset in synsets if query.headword in synset.lemmas
        ]


def test_too_few_words_are_refused() -> None:
    synsets, definitions = tiny_dictionaries()
    with pytest.raises(InputError, match="cannot choose 99 queries and 24 documents"):
        select(synsets, definitions, documents=24, splits={"test": 99})
    with pytest.raises(InputError, match="cannot choose 3 queries and 999 documents"):
        select(synsets, definitions, documents=999, splits={"test": 3})


def test_the_command_refuses_half_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", "x.npz", "--wordnet", "somewhere"]) == 2
    assert capsys.readouterr().err == "error: give both --wordnet and --gcide, or neither\n"
    assert main(["--out", "x.txt"]) == 2


def test_the_quality_command_prints_what_the_function_finds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert quality_command(["wordnet", "--split", "validation"]) == 0
    expected = exact_quality(load_corpus("wordnet", split="validation"))
    assert f"mrr {expected.mrr:.4g}" in capsys.readouterr().out
    assert quality_command(["wordnet", "--split", "dev"]) == 2
    assert "no split 'dev'" in capsys.readouterr().err
    assert quality_command(["wordnet", "--reencode", "--encoder", "mpnet"]) == 2
    assert "has 384 dimensions, encoder 'mpnet' makes 768" in capsys.readouterr().err
