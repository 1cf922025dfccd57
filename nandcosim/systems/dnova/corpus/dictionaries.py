"""Read two dictionaries: WordNet's database files and GCIDE in the dictd format.

WordNet's format is described in its manual page wndb(5WN). A dictd dictionary is a
gzip file of text and an index whose lines are ``word TAB offset TAB length``, the
numbers in base-64 digits (RFC 2229's reference server).
"""

from __future__ import annotations

import gzip
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nandcosim.errors import InputError

__all__ = ["Definition", "Synset", "read_gcide", "read_wordnet"]

_WORDNET_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_BASE64 = {
    digit: value
    for value, digit in enumerate(
        string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    )
}

#: Sources of a GCIDE paragraph that are independent of WordNet. GCIDE also holds
#: paragraphs marked "[WordNet 1.5]": taken from the documents we search, they would leak.
_INDEPENDENT_SOURCES = ("1913 Webster", "Webster 1913 Suppl.")

_SOURCE_MARK = re.compile(r"\[([^\[\]]*)\]\s*$")
_HEADING = re.compile(r"(?P<word>[^\\\n]+)\\[^\\]*\\[^\n]*\n(?P<body>.*)", re.DOTALL)
#: A letter with a diacritic, "Faro[eum]" or "caf['e]", told from a remark in brackets by
#: the letters it touches.
_LETTER_CODE = re.compile(r"(?<=\w)\[[^\[\]\s]{1,4}\]|\[[^\[\]\s]{1,4}\](?=\w)")
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
_INNERMOST_BRACKETS = re.compile(r"\[[^\[\]]*\]")
#: Before a definition: its number and the labels of its field, "2. (Med.) (a)".
_LABELS = re.compile(r"\s*(?:\d+\.\s*)?(?:\([^)]*\)\s*)*")
#: After a definition: examples, further senses, cross references and the author quoted.
_REMAINDER = re.compile(r"[;,:]\s+(?:as|thus|e\. g\.)[,;:]\s|\s\([b-z]\)\s|\s--|[.;,]\s+See\s|\s\"")
_REFERENCE_ONLY = re.compile(
    r"(?i:see|same as|imp\.|p\. p\.|pl\.)\s|A variant\b|An? (?:alternative|obsolete)\b"
)


@dataclass(frozen=True)
class Synset:
    """One meaning in WordNet: its words and its definition, without usage examples."""

    id: str
    lemmas: tuple[str, ...]
    definition: str

    @property
    def text(self) -> str:
        """The synset as a dictionary entry, ``lemma, lemma: definition``."""
        return f"{', '.join(self.lemmas)}: {self.definition}"


@dataclass(frozen=True)
class Definition:
    """The first sense that GCIDE gives a headword (lower case)."""

    headword: str
    text: str


def read_wordnet(folder: Path) -> list[Synset]:
    """Read all synsets.

    Parameters
    ----------
    folder : Path
        Holds ``data.noun``, ``data.verb``, ``data.adj`` and ``data.adv``.

    Returns
    -------
    list of Synset
        In file order: nouns, verbs, adjectives, adverbs.

    Raises
    ------
    InputError
        If a file is missing or a line cannot be read.
    """
    synsets = []
    for name in _WORDNET_FILES:
        path = folder / name
        if not path.is_file():
            raise InputError(f"{path}: no such WordNet file")
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.startswith("  "):  # the licence at the head of each file is indented
                    synsets.append(_synset(line, f"{path} line {number}"))
    return synsets


def _synset(line: str, where: str) -> Synset:
    data, bar, gloss = line.partition("|")
    cells = data.split()
    try:
        count = int(cells[3], 16)
        words = cells[4 : 4 + 2 * count : 2]
    except (IndexError, ValueError):
        raise InputError(f"{where}: not a WordNet synset: {line[:60]!r}") from None
    if not bar or len(words) != count:
        raise InputError(f"{where}: not a WordNet synset: {line[:60]!r}")
    # an adjective's syntactic marker, "galore(ip)", is no part of the word
    lemmas = (re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words)
    definition = gloss.split('; "')[0].strip().rstrip(";")
    return Synset(f"{cells[0]}-{cells[2]}", tuple(lemmas), definition)


def read_gcide(folder: Path) -> Iterator[Definition]:
    """Read the first independent definition of each entry of GCIDE.

    An entry is passed over when its heading cannot be read, its first paragraph is
    not from Webster's dictionary of 1913 alone, or that paragraph only refers
    elsewhere. What precedes the definition (pronunciation, etymology, grammar, field
    labels) and the examples after it are cut off.

    Parameters
    ----------
    folder : Path
        Holds ``gcide.index`` and ``gcide.dict.dz``.

    Yields
    ------
    Definition
        In index order; a headword with several entries comes several times.

    Raises
    ------
    InputError
        If a file is missing or cannot be read.
    """
    index, dictionary = folder / "gcide.index", folder / "gcide.dict.dz"
    for path in (index, dictionary):
        if not path.is_file():
            raise InputError(f"{path}: no such GCIDE file")
    try:
        text = gzip.decompress(dictionary.read_bytes())
    except (OSError, EOFError) as error:
        raise InputError(f"{dictionary}: not gzip data: {error}") from None
    for number, line in enumerate(index.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            headword, offset, length = line.split("\t")
            start = _base64_number(offset)
            stored = text[start : start + _base64_number(length)]
        except (ValueError, KeyError):
            raise InputError(f"{index} line {number}: not a dictd index line: {line!r}") from None
        # a few entries hold bytes that are not UTF-8
        definition = _first_definition(headword, stored.decode(errors="replace"))
        if definition is not None:
            yield Definition(headword.lower(), definition)


def _base64_number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * 64 + _BASE64[digit]
    return value


def _first_definition(headword: str, entry: str) -> str | None:
    first = re.split(r"\n\s*\n", entry.strip(), maxsplit=1)[0]
    source = _SOURCE_MARK.search(first)
    if source is None or source[1] not in _INDEPENDENT_SOURCES:
        return None
    # an etymology may run over several lines, so brackets go before the heading is found
    heading = _HEADING.match(_without_brackets(_LETTER_CODE.sub(_UNREADABLE, first)))
    # phrases and inflected forms are indexed under the entry of another word
    if heading is None or heading["word"].strip().lower() != headword.lower():
        return None
    body = heading["body"][_end(_LABELS, heading["body"]) :]
    remainder = _REMAINDER.search(body)
    body = body[: remainder.start()] if remainder else body
    definition = " ".join(body.replace("{", "").replace("}", "").split()).strip(" ;,:")
    # "?" stands for a character lost in the transcription, "1?" for a fraction
    if not definition.isascii() or any(mark in definition for mark in "[]?"):
        return None
    return None if not definition or _REFERENCE_ONLY.match(definition) else definition


def _without_brackets(text: str) -> str:
    while (shorter := _INNERMOST_BRACKETS.sub("", text)) != text:
        text = shorter
    return text


def _end(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0
