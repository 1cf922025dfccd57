"""Intervals of proportions and means: those of `nandcosim.intervals`."""

from __future__ import annotations

from nandcosim.intervals import CONFIDENCE, mean_and_error, normal_quantile, wilson

__all__ = ["CONFIDENCE", "mean_and_error", "normal_quantile", "wilson"]
