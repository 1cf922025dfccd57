"""Rows of an audit, and how they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from nandcosim.audit.comparison import Disagreement
from nandcosim.audit.strata import Estimate
from nandcosim.spice.status import Status

__all__ = ["HEADER", "failures", "part_line", "part_row", "percent", "span"]


def part_row(comparison: str, part: str, found: Disagreement) -> dict[str, Any]:
    """A part of the run as a row; None where there is no rate or limit."""
    return {
        "comparison": comparison,
        "part": part,
        "share": found.share,
        "examined": found.examined,
        "failed": found.failed,
        "circuit_conducts": found.conducts,
        "circuit_blocks": found.blocks,
        "rate": _finite(found.rate.value),
        "low": _finite(found.rate.low),
        "high": _finite(found.rate.high),
    }


def failures(dataset: xr.Dataset) -> str:
    """How many simulations ended with each status."""
    codes, counts = np.unique(dataset["status"].values, return_counts=True)
    parts = [f"{count} {Status(code).label}" for code, count in zip(codes, counts, strict=True)]
    return f"simulations: {', '.join(parts)}"


HEADER = (
    f"  {'reads':<22}{'share':>9}{'examined':>10}{'conducts':>10}{'blocks':>8}{'failed':>8}"
    "   rate (95 %)"
)


def part_line(row: dict[str, Any]) -> str:
    """A row under `HEADER`."""
    nan = float("nan")
    rate = Estimate(*(nan if row[name] is None else row[name] for name in ("rate", "low", "high")))
    return (
        f"  {row['part']:<22}{100 * row['share']:>7.2f} %{row['examined']:>10}"
        f"{row['circuit_conducts']:>10}{row['circuit_blocks']:>8}{row['failed']:>8}"
        f"   {percent(rate)}"
    )


def percent(found: Estimate) -> str:
    """A rate in percent, with its interval if it has one."""
    value = "-" if np.isnan(found.value) else f"{100 * found.value:.2f} %"
    if np.isnan(found.low):
        return value
    return f"{value} ({100 * found.low:.2f} to {100 * found.high:.2f})"


def span(low: float, high: float) -> str:
    """A range of a bin, open where a limit is infinite."""
    if np.isinf(low):
        return f"<= {high:g}"
    return f"> {low:g}" if np.isinf(high) else f"{low:g} .. {high:g}"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
