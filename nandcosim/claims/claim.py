"""A claim of a paper, what was found for it, and the verdict that follows.

=============== ====================================================================
verdict         meaning
=============== ====================================================================
reproduced      what was found lies in the paper's range, within the tolerance
outside         it does not
inconsistent    the paper's own figures contradict it; the reason has the arithmetic
calibrated      in the range because a parameter was set to hit it; never reproduced
not_modelled    nothing here computes it, or it has not been measured (--measure)
=============== ====================================================================
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nandcosim.errors import InputError
from nandcosim.wording import first_mistake

__all__ = ["Claim", "Finding", "Judgement", "Verdict", "judge", "load_claims", "papers"]

Verdict = Literal["reproduced", "outside", "inconsistent", "calibrated", "not_modelled"]


class Claim(BaseModel):
    """One figure of a paper; `low` or `high` is absent where the paper gives one bound."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    section: str
    quantity: str
    low: float | None = None
    high: float | None = None
    unit: str
    configuration: str
    tolerance: float = Field(0.05, ge=0.0)
    """Relative; of the bound that is crossed."""


@dataclass(frozen=True)
class Finding:
    """What this model gives for a claim.

    Attributes
    ----------
    low, high : float
        Range over the claim's configurations, or an interval; equal for one value.
    reason : str
        Why it agrees or does not, in one line.
    knobs : tuple of str
        Parameters that were set to hit this claim.
    contradiction : str
        The paper's own arithmetic against the claim; empty if there is none.
    source : str
        The command or the date of the stored measurement.
    """

    low: float
    high: float
    reason: str
    knobs: tuple[str, ...] = ()
    contradiction: str = ""
    source: str = "computed now"


@dataclass(frozen=True)
class Judgement:
    """A claim, what was found (None if nothing models it) and the verdict."""

    claim: Claim
    finding: Finding | None
    verdict: Verdict
    deviation: float
    """Relative distance of the farther end from the paper's range; 0 inside, NaN if unknown."""

    def row(self) -> dict[str, Any]:
        """Plain data for a table or JSON; None where there is no number."""
        claim, found = self.claim, self.finding
        return {
            "id": claim.id,
            "section": claim.section,
            "quantity": claim.quantity,
            "configuration": claim.configuration,
            "unit": claim.unit,
            "paper_low": claim.low,
            "paper_high": claim.high,
            "low": _number(found.low if found else None),
            "high": _number(found.high if found else None),
            "deviation": _number(self.deviation),
            "verdict": self.verdict,
            "reason": _reason(found),
            "source": found.source if found else "",
        }


def judge(claim: Claim, finding: Finding | None) -> Judgement:
    """The verdict on a claim, by the table of this module."""
    if finding is None:
        return Judgement(claim, None, "not_modelled", math.nan)
    deviation = _deviation(claim, finding)
    if finding.contradiction:
        verdict: Verdict = "inconsistent"
    elif not abs(deviation) <= claim.tolerance:
        verdict = "outside"
    else:
        verdict = "calibrated" if finding.knobs else "reproduced"
    return Judgement(claim, finding, verdict, deviation)


def load_claims(paper: str) -> tuple[Claim, ...]:
    """The claims of a paper, in its order.

    Raises
    ------
    InputError
        If there are none for this paper, or an entry is wrong.
    """
    known = papers()
    if paper not in known:
        raise InputError(f"claims: found {paper!r}, allowed papers: {', '.join(known)}")
    text = files("nandcosim.claims").joinpath(f"{paper}.toml").read_text(encoding="utf-8")
    claims = []
    for entry in tomllib.loads(text)["claim"]:
        try:
            claims.append(Claim(**entry))
        except ValidationError as error:
            name, found, message = first_mistake(error)
            raise InputError(
                f"{paper}.toml: claim {entry.get('id')}: {name}: found {found!r}, {message}"
            ) from None
    return tuple(claims)


def papers() -> Sequence[str]:
    """Papers with claims, by name."""
    folder = files("nandcosim.claims")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def _deviation(claim: Claim, finding: Finding) -> float:
    """Signed relative distance of the end of `finding` that is farthest outside the range."""
    if math.isnan(finding.low) or math.isnan(finding.high):
        return math.nan
    below = above = 0.0
    if claim.low is not None and finding.low < claim.low:
        below = (claim.low - finding.low) / _scale(claim.low)
    if claim.high is not None and finding.high > claim.high:
        above = (finding.high - claim.high) / _scale(claim.high)
    return above if above >= below else -below


def _scale(bound: float) -> float:
    return abs(bound) or 1.0


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _reason(found: Finding | None) -> str:
    if found is None:
        return "no measurement stored; --measure makes one"
    knobs = f" Knobs: {', '.join(found.knobs)}." if found.knobs else ""
    contradiction = f" {found.contradiction}" if found.contradiction else ""
    return f"{found.reason}{contradiction}{knobs}"
