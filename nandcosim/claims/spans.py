"""Ranges of what was found, as numbers and as words."""

from __future__ import annotations

import xarray as xr

__all__ = ["extent", "span"]


def extent(values: xr.DataArray) -> tuple[float, float]:
    """Smallest and largest."""
    return float(values.min()), float(values.max())


def span(values: xr.DataArray) -> str:
    """``1.2 to 3.4``, or one value."""
    first, last = (f"{each:.3g}" for each in extent(values))
    return first if first == last else f"{first} to {last}"
