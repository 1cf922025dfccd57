"""Calibration tables: what a sweep found, with its uncertainty, ready to be looked up."""

from __future__ import annotations

from nandcosim.tables.exchange import from_csv, from_json
from nandcosim.tables.exporting import FORMATS, export
from nandcosim.tables.fitting import fit
from nandcosim.tables.plotting import plot
from nandcosim.tables.probit import FitKind, pass_model
from nandcosim.tables.summary import render_summary, summarise
from nandcosim.tables.table import CalibrationTable, Tables, load_tables, open_table

__all__ = [
    "FORMATS",
    "CalibrationTable",
    "FitKind",
    "Tables",
    "export",
    "fit",
    "from_csv",
    "from_json",
    "load_tables",
    "open_table",
    "pass_model",
    "plot",
    "render_summary",
    "summarise",
]
