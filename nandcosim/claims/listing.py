"""Claims as text: a line for the figures, a line for the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nandcosim.claims.claim import Claim, Finding, Judgement

__all__ = ["claim_lines"]


def claim_lines(judgements: Sequence[Judgement]) -> str:
    """Text of the judgements, with a count of the verdicts at the end."""
    lines = []
    for one in judgements:
        claim = one.claim
        lines += [
            f"{claim.id:<6} {one.verdict.upper():<13} {claim.quantity}",
            (
                f"       paper {paper_range(claim)}, ours {our_range(one.finding, claim.unit)}"
                f"{_deviation(one.deviation)}   [{claim.section}; {claim.configuration}]"
            ),
        ]
        reason = one.row()["reason"]
        lines.append(f"       {reason}")
        if one.finding is not None and one.finding.source != "computed now":
            lines.append(f"       source: {one.finding.source}")
    counted = Counter(one.verdict for one in judgements)
    claims = "claim" if len(judgements) == 1 else "claims"
    counts = ", ".join(f"{n} {verdict}" for verdict, n in counted.items())
    lines.append(f"{len(judgements)} {claims}: {counts}")
    return "\n".join(lines)


def paper_range(claim: Claim) -> str:
    """``33.3 to 41.7 x``, ``at most 3.5 points``."""
    if claim.low is None:
        return f"at most {claim.high:g} {claim.unit}"
    if claim.high is None:
        return f"at least {claim.low:g} {claim.unit}"
    if claim.low == claim.high:
        return f"{claim.low:g} {claim.unit}"
    return f"{claim.low:g} to {claim.high:g} {claim.unit}"


def our_range(finding: Finding | None, unit: str) -> str:
    """The same for what was found; ``-`` if nothing was."""
    if finding is None:
        return "-"
    low, high = f"{finding.low:.4g}", f"{finding.high:.4g}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _deviation(value: float) -> str:
    return f" ({value:+.0%})" if abs(value) > 0 else ""
