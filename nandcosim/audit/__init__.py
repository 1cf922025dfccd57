"""Replay of a system model's decisions in the circuit that its tables came from.

============ ==========================================================================
module       what it holds
============ ==========================================================================
decisions    the reads of an actual search, and what the table-driven model says of each
amplifier    a sense amplifier whose mismatch stands for a given read noise
strings      a read as parameters and knobs of the sensing circuit
workers      processes that run ngspice
strata       rates and intervals from a sample that is denser where disagreement is likely
dnova        `audit_dnova`: draw, replay, compare
listing      the result as text, rows and decks
============ ==========================================================================
"""

from __future__ import annotations

from nandcosim.audit.dnova import audit_dnova
from nandcosim.audit.listing import audit_lines, audit_rows, offender_deck, offenders

__all__ = [
    "audit_dnova",
    "audit_lines",
    "audit_rows",
    "offender_deck",
    "offenders",
]
