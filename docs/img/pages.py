"""What the scripts that fill pages share: tables, markers, claims."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nandcosim.claims import Judgement, check
from nandcosim.claims.listing import our_range, paper_range

#: Where pictures go.
IMAGES = Path(__file__).parent


def run_parts(
    parts: Mapping[str, Callable[[], None]], apart: Mapping[str, Callable[[], None]] | None = None
) -> None:
    """Run the parts that the command line names, or all but those `apart`."""
    known = {**parts, **(apart or {})}
    for name in sys.argv[1:] or parts:
        if name not in known:
            raise SystemExit(f"found {name!r}, allowed: {', '.join(known)}")
        known[name]()


def claim_rows(paper: str) -> list[dict[str, str]]:
    """Every claim of a paper with its verdict."""
    return [
        {
            "id": one.claim.id,
            "quantity": f"{one.claim.quantity} ({one.claim.configuration})",
            "paper": paper_range(one.claim),
            "ours": our_range(one.finding, one.claim.unit),
            **verdict(one, paper),
        }
        for one in check(paper)
    ]


def verdict(one: Judgement, paper: str) -> dict[str, str]:
    """Verdict and reason; a study whose findings are not stored has not been run."""
    studies = import_module(f"nandcosim.claims.{paper}").STUDIES
    if one.finding is None and any(one.claim.id in study.claims for study in studies):
        return {"verdict": "not measured yet", "reason": ""}
    return {"verdict": one.verdict.replace("_", " "), "reason": one.row()["reason"]}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows with the same keys."""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([row[name] for name in head] for row in rows)]
    return "\n".join(f"| {' | '.join(cell(value) for value in line)} |" for line in lines)


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def fill(page: Path, name: str, text: str) -> None:
    """Put `text` between the markers of the page."""
    before_all = page.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = before_all.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page}: no {start} ... {end}")
    page.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")
