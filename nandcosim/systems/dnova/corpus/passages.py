"""Read the passages of a text file: plain lines, CSV or JSON lines (BEIR)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nandcosim.errors import InputError

__all__ = ["Passages", "read_passages"]

#: Where a passage stands (for error messages), its identifier and its text.
_Rows = Iterator[tuple[str, str, str]]


@dataclass(frozen=True)
class Passages:
    """Texts and their identifiers, in file order."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]


def read_passages(path: Path) -> Passages:
    """Read texts with their identifiers.

    Blank lines of a ``.txt`` are skipped; its identifiers are line numbers from 1.
    Rows of a ``.csv`` without the column ``id`` are numbered from 1. A title is put
    before its text. Empty texts are kept: published BEIR sets have some.

    Raises
    ------
    InputError
        If the file is missing, of another kind, holds no passage, or an identifier
        is missing or occurs twice.
    """
    readers = {".txt": _read_lines, ".jsonl": _read_jsonl, ".csv": _read_csv}
    if path.suffix not in readers:
        raise InputError(
            f"{path}: cannot read passages from {path.suffix!r}, allowed: {', '.join(readers)}"
        )
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    ids: dict[str, str] = {}
    try:
        for where, identifier, text in readers[path.suffix](path):
            if identifier in ids:
                raise InputError(f"{where}: identifier {identifier!r} occurs twice")
            ids[identifier] = text
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    if not ids:
        raise InputError(f"{path}: no passage found")
    return Passages(tuple(ids), tuple(ids.values()))


def _read_lines(path: Path) -> _Rows:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path} line {number}", str(number), line.strip()


def _read_jsonl(path: Path) -> _Rows:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path} line {number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{where}: not JSON: {error.msg}") from None
            if not isinstance(record, dict) or not {"_id", "text"} <= record.keys():
                raise InputError(f"{where}: expected an object with '_id' and 'text'")
            yield where, _one_line(record["_id"]), _titled(record.get("title"), record["text"])


def _read_csv(path: Path) -> _Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = list(rows.fieldnames or ())
        if "text" not in columns:
            raise InputError(f"{path}: columns are {columns}, expected one named 'text'")
        try:
            for number, row in enumerate(rows, start=1):
                identifier = _one_line(row["id"]) if "id" in columns else str(number)
                where = f"{path} line {rows.line_num}"
                yield where, identifier, _titled(row.get("title"), row["text"])
        except csv.Error as error:
            raise InputError(f"{path} line {rows.line_num}: {error}") from None


def _titled(title: Any, text: Any) -> str:
    return _one_line(f"{title or ''} {text or ''}")


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
