"""Configurations of the paper, evaluated with the tables that ship."""

from __future__ import annotations

from typing import Any

import xarray as xr

from nandcosim.systems.nvllm import Config, evaluate
from nandcosim.tables import load_tables

__all__ = ["CLUSTERS", "OPT", "evaluated"]

#: Table 3: NVLLM, NVLLM-12C, NVLLM-16C.
CLUSTERS = (8, 12, 16)

#: Section 4.1.
OPT = ("opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b")


def evaluated(**settings: Any) -> xr.Dataset:
    """`nandcosim.systems.nvllm.evaluate` of the defaults (NVLLM-16C, LLaMA2-7B) but `settings`."""
    return evaluate(Config(**settings), load_tables())
