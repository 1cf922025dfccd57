"""The papers' figures, and the check of each against this model."""

from __future__ import annotations

from nandcosim.claims.checking import check
from nandcosim.claims.claim import Claim, Finding, Judgement, judge, load_claims, papers
from nandcosim.claims.listing import claim_lines

__all__ = [
    "Claim",
    "Finding",
    "Judgement",
    "check",
    "claim_lines",
    "judge",
    "load_claims",
    "papers",
]
