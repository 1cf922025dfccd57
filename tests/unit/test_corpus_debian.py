"""Package descriptions are read and chosen as the module says."""

from __future__ import annotations

from pathlib import Path

import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.debian import (
    PackageDescription,
    collect,
    collect_from,
    read_translation,
)

LONG = "and so on, " * 12


def stanza(package: str, short: str, *long: str) -> str:
    return "\n".join(
        [
            f"Package: {package}",
            "Description-md5: 0123456789abcdef0123456789abcdef",
            f"Description-en: {short}",
            *(f" {line}" for line in long),
        ]
    )


def translation(folder: Path, *stanzas: str, name: str = "Translation-en") -> Path:
    path = folder / name
    path.write_text("\n\n".join(stanzas) + "\n\n", encoding="utf-8")
    return path


def test_a_description_becomes_one_line(tmp_path: Path) -> None:
    path = translation(
        tmp_path,
        stanza("hello", "greets", "Says hello:", "  * in one  way", ".", "and “another”."),
        stanza("bare", "says  nothing: at all"),
    )
    assert list(read_translation(path)) == [
        PackageDescription("hello", "greets", "Says hello: * in one way and “another”."),
        PackageDescription("bare", "says nothing: at all", ""),
    ]


def test_documents_and_queries_are_chosen_by_the_rules(tmp_path: Path) -> None:
    first = translation(
        tmp_path,
        stanza("a", "shared by two", f"{LONG} a"),
        stanza("b", "shared by two", f"{LONG} b"),
        stanza("b-copy", "another name of b", f"{LONG} b"),
        stanza("tiny", "too short to tell", "x" * 100),
        stanza("enough", "just long enough", "x" * 101),
        stanza("leak", "Word for Word", f"{LONG} it says word for word"),
        *(stanza(f"dummy{k}", "transitional package", f"{LONG} dummy {k}") for k in range(6)),
        name="one",
    )
    second = translation(tmp_path, stanza("a", "of another archive", f"{LONG} a2"), name="two")
    collection = collect_from([first, second])
    dummies = tuple(f"dummy{k}" for k in range(6))
    assert collection.ids == ("a", "b", "enough", "leak", *dummies, "a#2")
    found = {
        query: [collection.ids[row] for row in rows]
        for query, rows in zip(collection.query_texts, collection.relevance, strict=True)
    }
    assert found == {
        "shared by two": ["a", "b"],
        "another name of b": ["b"],
        "just long enough": ["enough"],
        "of another archive": ["a#2"],
    }
    assert collection.texts[2] == "x" * 101
    assert set(collection.sources_sha256) == {"one", "two"}
    assert collection.split == ("",) * 4


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = translation(tmp_path, stanza("good", "short", LONG), "Package: bad\nSection: games")
    with pytest.raises(
        InputError, match=r"Translation-en stanza 2: found Package, Section, expected .*en$"
    ):
        collect_from([path])
    with pytest.raises(InputError, match="no such file"):
        list(read_translation(tmp_path / "absent"))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 text"):
        list(read_translation(path))


def test_without_apt_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"apt-get is not found: .* on Debian or Ubuntu only"):
        collect()
