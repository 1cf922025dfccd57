"""What a page says of an evaluation's configuration, whatever the system."""

from __future__ import annotations

import json
from typing import Any

import xarray as xr

from nandcosim.report.listing import quantity
from nandcosim.report.page import Section
from nandcosim.systems.config import SystemConfig

__all__ = ["MOST_ROWS", "changed", "first_rows", "parameters", "span"]

#: Rows of a table on the page.
MOST_ROWS = 60


def span(values: xr.DataArray, unit: str) -> str:
    """``1.2 to 3.4 W``, or one value."""
    first, last = (quantity(float(each), unit) for each in (values.min(), values.max()))
    return first if first == last else f"{first} to {last}"


def first_rows(rows: list[dict[str, Any]]) -> str:
    """A sentence where the page cuts a table, else nothing."""
    if len(rows) <= MOST_ROWS:
        return ""
    return f" The table has the first {MOST_ROWS} of {len(rows)} rows; the file has all."


def changed(dataset: xr.Dataset, plain: SystemConfig) -> str:
    """Settings that differ from `plain`: ``dts = 111, 242; channels = 4``."""
    usual = json.loads(plain.model_dump_json())
    timed = json.loads(dataset.attrs.get("timed", "{}"))
    found = json.loads(dataset.attrs["config"])
    shown = [
        f"{name} = {_listed(value, plain.unit_of(name))}"
        for name, value in found.items()
        if value != usual.get(name) and name not in timed
    ]
    return "; ".join(shown) or "all at their defaults"


def parameters(dataset: xr.Dataset, kind: type[SystemConfig]) -> Section:
    """Every parameter of an evaluation with its value, unit, meaning and origin."""
    found = json.loads(dataset.attrs["config"])
    timed = json.loads(dataset.attrs.get("timed", "{}"))
    rows = []
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra
        if name in found and isinstance(extra, dict):
            rows.append(
                {
                    "parameter": name,
                    "value": _listed(found[name], kind.unit_of(name)),
                    "meaning": str(field.description),
                    "origin": "measured: in this run" if name in timed else str(extra["origin"]),
                }
            )
    text = (
        "stated: the paper says so; derived: by a formula; measured: a calibration table or a "
        "run; sourced: a public reference; assumed: a choice; calibrated: set to hit a claim."
    )
    return Section("Every parameter", text, rows=rows)


def _listed(value: Any, unit: str) -> str:
    """Values with their unit, by engineering prefix where that unit has one."""
    values = value if isinstance(value, list) else [value]
    return ", ".join(str(v) if isinstance(v, (str, bool)) else quantity(v, unit) for v in values)
