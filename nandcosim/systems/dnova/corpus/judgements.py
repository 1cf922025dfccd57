"""Relevance judgement files (qrels): which document answers which query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nandcosim.errors import InputError

__all__ = ["ALL", "find_qrels", "read_qrels"]

#: Stands for every split together.
ALL = "all"


def find_qrels(base: Path, split: str) -> list[Path]:
    """Find the judgement files of one split.

    Parameters
    ----------
    base : Path
        A folder ``qrels/`` with one ``SPLIT.tsv`` each, or one file, which then
        holds the only split there is.
    split : str
        ``"test"``, ``"train"``, ...; ``"all"`` for every file.

    Returns
    -------
    list of Path
        At least one file.

    Raises
    ------
    InputError
        If the split does not exist.
    """
    if not base.exists():
        raise InputError(f"{base}: no such judgement file or folder")
    if base.is_file():
        if split not in ("test", ALL):
            raise InputError(
                f"{base}: a single judgement file has no split {split!r}, allowed: 'test', 'all'"
            )
        return [base]
    files = {path.stem: path for path in sorted(base.glob("*.tsv"))}
    if split == ALL and files:
        return list(files.values())
    if split not in files:
        found = ", ".join(repr(name) for name in files) or "no .tsv file"
        raise InputError(f"{base}: no split {split!r}, found {found}")
    return [files[split]]


def read_qrels(
    paths: Sequence[Path], documents: Mapping[str, int], queries: Mapping[str, int]
) -> dict[int, tuple[int, ...]]:
    """Read judgements as row numbers.

    A line is ``query-id TAB document-id TAB grade`` (BEIR, with or without its
    heading) or ``query-id 0 document-id grade`` (TREC). A grade above 0 counts
    as relevant.

    Parameters
    ----------
    paths : sequence of Path
    documents, queries : Mapping
        Row number of each identifier.

    Returns
    -------
    dict
        Query row -> ascending document rows; judged queries only.

    Raises
    ------
    InputError
        If a line cannot be read, or names an unknown query or document.
    """
    relevant: dict[int, set[int]] = {}
    for path in paths:
        for where, query, document, grade in _judgements(path):
            if query not in queries:
                raise InputError(f"{where}: query id {query!r} is not among the queries")
            if document not in documents:
                raise InputError(f"{where}: document id {document!r} is not in the corpus")
            rows = relevant.setdefault(queries[query], set())
            if grade > 0:
                rows.add(documents[document])
    if not relevant:
        raise InputError(f"{paths[0]}: no judgement found, expected at least one line")
    return {query: tuple(sorted(rows)) for query, rows in relevant.items()}


def _judgements(path: Path) -> Iterator[tuple[str, str, str, float]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.split("\t")[0] == "query-id"):
            continue
        where = f"{path} line {number}"
        cells = line.split("\t") if line.count("\t") == 2 else line.split()
        if len(cells) == 4:
            del cells[1]
        if len(cells) != 3:
            raise InputError(
                f"{where}: found {line[:60]!r}, expected query-id TAB document-id TAB grade"
            )
        try:
            grade = float(cells[2])
        except ValueError:
            raise InputError(f"{where}: grade {cells[2]!r} is no number") from None
        yield where, cells[0].strip(), cells[1].strip(), grade
