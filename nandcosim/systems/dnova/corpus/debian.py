"""Debian's package descriptions as a corpus: long descriptions found by short ones.

The source are the ``Translation-en`` files of the Debian archive. A stanza is

    Package: NAME
    Description-md5: DIGEST
    Description-en: SHORT DESCRIPTION
     long description, every line indented,
     .
     a point standing for an empty line

(Debian Policy 5.6.13). Both parts are written by the package's maintainer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus.debian_archive import fetched_translations
from nandcosim.systems.dnova.corpus.packed import sha256
from nandcosim.systems.dnova.corpus.texts import TextCollection

__all__ = ["SPLITS", "PackageDescription", "collect", "collect_from", "read_translation"]

#: Queries of each split; the rest is ``train``.
SPLITS = {"test": 2000, "validation": 1000}

#: Characters of a long description, at least: shorter ones say little.
_SHORTEST = 101
#: Documents relevant to one query, at most: a short description that more packages share
#: ("transitional package") says nothing about one of them.
_MAX_RELEVANT = 5
_DESCRIPTION = "Description-en"
_LICENCE = (
    "each description under the terms of its package, as its file debian/copyright states them; "
    "fetched for use here, not shipped"
)


@dataclass(frozen=True)
class PackageDescription:
    """What a package says about itself: one line, and one or more paragraphs as one line."""

    package: str
    short: str
    long: str


def read_translation(path: Path) -> Iterator[PackageDescription]:
    """Read the descriptions of one ``Translation-en`` file.

    Parameters
    ----------
    path : Path
        Uncompressed.

    Yields
    ------
    PackageDescription
        In file order; white space is one space.

    Raises
    ------
    InputError
        If the file is missing or a stanza lacks its package or description.
    """
    try:
        stanzas = path.read_text(encoding="utf-8").strip().split("\n\n")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    for number, stanza in enumerate(stanzas, start=1):
        fields: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in stanza.split("\n"):
            if line.startswith(" "):
                lines.append("" if line.strip() == "." else line)
            else:
                name, _, value = line.partition(":")
                lines = fields[name] = [value]
        if "Package" not in fields or _DESCRIPTION not in fields:
            raise InputError(
                f"{path} stanza {number}: found {', '.join(fields)}, "
                f"expected Package and {_DESCRIPTION}"
            )
        short, *long = fields[_DESCRIPTION]
        package = fields["Package"][0].strip()
        yield PackageDescription(package, _one_line([short]), _one_line(long))


def _one_line(lines: Iterable[str]) -> str:
    return " ".join(" ".join(lines).split())


def collect() -> TextCollection:
    """Fetch the descriptions of the archives that this system uses, and choose.

    Raises
    ------
    InputError, NandcosimError
        As `nandcosim.systems.dnova.corpus.debian_archive.fetched_translations`.
    """
    with fetched_translations() as paths:
        return collect_from(paths)


def collect_from(paths: Sequence[Path]) -> TextCollection:
    """Choose documents and queries from ``Translation-en`` files.

    A document is a long description of more than 100 characters; packages with the
    same one share it, and it is named after the first. A query is a short description;
    relevant are the documents of all packages with it, of which there may be 1 to 5.
    A short description that a relevant document repeats word for word is no query.

    Parameters
    ----------
    paths : sequence of Path
        Uncompressed.
    """
    rows: dict[str, int] = {}
    ids: list[str] = []
    relevant: defaultdict[str, set[int]] = defaultdict(set)
    names: defaultdict[str, int] = defaultdict(int)
    for path in paths:
        for described in read_translation(path):
            if len(described.long) < _SHORTEST:
                continue
            row = rows.setdefault(described.long, len(rows))
            if row == len(ids):
                names[described.package] += 1
                again = names[described.package]
                # two archives may describe one package in two ways
                ids.append(described.package if again == 1 else f"{described.package}#{again}")
            if described.short:
                relevant[described.short].add(row)
    texts = tuple(rows)
    asked = {
        short: tuple(sorted(found))
        for short, found in relevant.items()
        if len(found) <= _MAX_RELEVANT
        and not any(short.lower() in texts[row].lower() for row in found)
    }
    return TextCollection(
        ids=tuple(ids),
        texts=texts,
        query_ids=tuple(asked),
        query_texts=tuple(asked),
        relevance=tuple(asked.values()),
        split=("",) * len(asked),
        licence=_LICENCE,
        provenance=(
            "long descriptions of Debian packages searched with short descriptions; relevant: the "
            f"packages with that short description; source: {', '.join(p.name for p in paths)}"
        ),
        sources_sha256={path.name: sha256(path) for path in paths},
    )
