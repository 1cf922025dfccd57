"""Configurations of the paper, evaluated with the tables that ship."""

from __future__ import annotations

from typing import Any

import xarray as xr

from nandcosim.systems.nasic import Config, evaluate
from nandcosim.tables import load_tables

__all__ = ["ALL", "MODELS", "SPARSE", "evaluated"]

#: One technique on top of the other.
ALL = ("base", "t1", "t1t2", "t1t2t3")

#: Shared between few and between many experts.
MODELS = ("olmoe", "mixtral-8x7b")

#: Activated expert ratios of Fig. 8(c) and 10(a).
SPARSE = (1 / 4, 1 / 8, 1 / 16, 1 / 32)


def evaluated(**settings: Any) -> xr.Dataset:
    """`nandcosim.systems.nasic.evaluate` of the defaults but `settings`."""
    return evaluate(Config(**settings), load_tables())
