"""Check a paper: findings computed now or measured before, and the verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from nandcosim import __version__
from nandcosim.claims.claim import Finding, Judgement, judge, load_claims
from nandcosim.errors import InputError

__all__ = ["Study", "check", "read_findings", "stored"]


@dataclass(frozen=True)
class Study:
    """Computes the findings of some claims together.

    Attributes
    ----------
    name : str
    claims : tuple of str
        Ids.
    run : callable
        Takes nothing, returns a mapping of id to `Finding`.
    quick : bool
        Takes seconds and is computed anew in every check; others are measured on
        demand, and what they found ships with the package.
    """

    name: str
    claims: tuple[str, ...]
    run: Callable[[], Mapping[str, Finding]]
    quick: bool = False


def check(
    paper: str,
    *,
    measure: bool = False,
    only: Collection[str] | None = None,
    store: Path | None = None,
    progress: bool = False,
) -> list[Judgement]:
    """Judge every claim of a paper.

    Parameters
    ----------
    paper : str
        See `nandcosim.claims.papers`.
    measure : bool
        Run the slow studies too instead of reading what they found before.
    only : collection of str, optional
        Judge, and with `measure` run the studies of, these claims alone.
    store : Path, optional
        With `measure`: write what they find there, as JSON, beside what stands there.
    progress : bool
        Name each study on stderr before it runs.

    Returns
    -------
    list of Judgement
        In the order of the paper.

    Raises
    ------
    InputError
        If there is no such paper or claim.
    """
    claims = load_claims(paper)
    wanted = {claim.id for claim in claims} if only is None else set(only)
    unknown = wanted - {claim.id for claim in claims}
    if unknown:
        names = ", ".join(claim.id for claim in claims)
        raise InputError(f"claims: found {', '.join(map(repr, sorted(unknown)))}, allowed: {names}")
    found = {} if measure else stored(paper)
    measured: dict[str, Finding] = read_findings(store) if store and store.exists() else {}
    for study in _studies(paper):
        if not (study.quick or measure) or not wanted & set(study.claims):
            continue
        if progress and not study.quick:
            _say(f"claims: {study.name} ({', '.join(study.claims)})")
        results = dict(study.run())
        if set(results) != set(study.claims):
            raise AssertionError(f"{study.name} found {sorted(results)}, not {study.claims}")
        found |= results
        if not study.quick:
            day = datetime.now(UTC).date().isoformat()
            source = f"measured {day} by nandcosim {__version__}"
            measured |= {name: replace(one, source=source) for name, one in results.items()}
            if store is not None:  # after each study, so that an hour's work is not lost
                _write(measured, store)
    return [judge(claim, found.get(claim.id)) for claim in claims if claim.id in wanted]


def stored(paper: str) -> dict[str, Finding]:
    """What the slow studies found when they were last run, from the package's data."""
    path = files("nandcosim.claims").joinpath("data", f"{paper}.json")
    return read_findings(path) if path.is_file() else {}


def read_findings(path: Traversable) -> dict[str, Finding]:
    """Findings by claim, as `check` stores them.

    Raises
    ------
    InputError
        If the file holds something else.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {name: _finding(entry) for name, entry in entries.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path}: no findings of claims: {error}") from None


def _studies(paper: str) -> Iterator[Study]:
    module = import_module(f"nandcosim.claims.{paper}")
    yield from module.STUDIES


def _finding(entry: Mapping[str, Any]) -> Finding:
    return Finding(**{**entry, "knobs": tuple(entry["knobs"])})


def _write(found: Mapping[str, Finding], path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: no folder {path.parent}")
    text = json.dumps({name: asdict(one) for name, one in found.items()}, indent=2)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def _say(text: str) -> None:
    import click

    click.echo(text, err=True)
