"""Replay of a system model's decisions in the circuit that its tables came from.

=============== =======================================================================
module          what it holds
=============== =======================================================================
session         what every audit does around its replays
workers         processes that run ngspice
strata          rates and intervals from a sample that is denser where disagreement is likely
comparison      how often circuit and model disagree, over a run or a part of it
listing         the result as text, rows and decks; text, <system>_listing
dnova           `audit_dnova`: reads of a search
decisions       those reads, and what the table-driven model says of each
amplifier       a sense amplifier whose mismatch stands for a given read noise
strings         a read as parameters and knobs of the sensing circuit
nvllm           `audit_nvllm`: bits of weights
bit_reads       those bits, and what the table-driven model says of each
page_reads      a bit of a page read as parameters and knobs of the page read's circuit
page_rates      decisions, bit and segment error rates of such an audit
nasic           `audit_nasic`: products of units
unit_products   those products, and what the table-driven model says of each
unit_replays    a product as parameters and knobs of the unit's circuit
unit_rates      bias, spread, wrong integers and leakage of such an audit
=============== =======================================================================
"""

from __future__ import annotations

from nandcosim.audit.dnova import audit_dnova
from nandcosim.audit.listing import audit_lines, audit_rows, offender_deck, offenders
from nandcosim.audit.nasic import audit_nasic
from nandcosim.audit.nvllm import audit_nvllm

__all__ = [
    "audit_dnova",
    "audit_lines",
    "audit_nasic",
    "audit_nvllm",
    "audit_rows",
    "offender_deck",
    "offenders",
]
