"""Level maps: where the stored threshold levels sit for a given card.

Stored level r is a voltage in series with the cell's gate,

    shift(r) = v_base + (r + 1/2) * spacing - v_boundary,

so that a wordline at v_base + t * spacing conducts through r <= t - 1 and blocks at
r >= t, half a level either side. ``v_boundary`` is the gate voltage at which the nominal
string just brings the bitline to its trip point at the strobe; it is found with ngspice
by ``nandcosim calibrate``, never typed in.
"""

from __future__ import annotations

import shlex
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nandcosim.errors import InputError
from nandcosim.spice.netlists import digest, find_netlist

__all__ = ["Pattern", "boundary", "level_key", "pattern_levels", "shift_of", "write_level_map"]

#: Levels of cells nobody reads: all levels in turn, the lowest, the highest.
Pattern = Literal["spread", "erased", "programmed"]

#: What a calibration belongs to: another value of any of these needs its own.
KEY_FIELDS = ("bits", "window", "cells")


def level_key(params: Any) -> dict[str, Any]:
    """The part of `params` that a calibration is valid for, with the digests of its netlists."""
    key: dict[str, Any] = {name: getattr(params, name) for name in KEY_FIELDS}
    key["card"] = digest(find_netlist(params.card, "models", ".lib"), params.section)
    key["cell"] = digest(find_netlist(params.cell, "cells", ".cir"))
    return key


def shift_of(params: Any, levels: np.ndarray) -> np.ndarray:
    """Voltage of the stored charge, in V, of cells at `levels` (in level spacings)."""
    return np.asarray(params.v_base + (levels + 0.5) * params.spacing - boundary(params))


def pattern_levels(pattern: Pattern, cells: int, count: int) -> np.ndarray:
    """Level of every cell under a data pattern, shape (cells,), of `count` levels."""
    if pattern == "erased":
        return np.zeros(cells)
    if pattern == "programmed":
        return np.full(cells, float(count - 1))
    # a stride coprime with the level count visits every level, neighbours far apart
    return np.asarray(np.mod(7.0 * np.arange(cells), count))


def boundary(params: Any) -> float:
    """Gate voltage of the decision boundary, in V.

    Returns ``params.v_boundary`` when it is given, else the calibrated value.

    Raises
    ------
    InputError
        If the level map holds no calibration for these parameters.
    """
    if params.v_boundary is not None:
        return float(params.v_boundary)
    path = find_netlist(params.levels, "models", ".levels.toml")
    return _boundary(params, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)  # asked for in every sample, and answered from three files
def _boundary(params: Any, path: Path, modified: int) -> float:
    key = level_key(params)
    for entry in _entries(path, modified):
        if all(entry.get(name) == value for name, value in key.items()):
            return float(entry["v_boundary"])
    what = ", ".join(f"{name}={key[name]}" for name in KEY_FIELDS)
    raise InputError(
        f"{path.name}: no level map for {what} with card {params.card!r} and cell "
        f"{params.cell!r}; run '{_calibrate_command(params)}' "
        "and set levels=levels.toml, or set v_boundary"
    )


def _calibrate_command(params: Any) -> str:
    """Calibrate under the same conditions: with all that differs from the sense's defaults."""
    from circuits.dts_sense import DtsSenseParams  # imports this module

    fields = DtsSenseParams.model_fields.items()
    given = {name: getattr(params, name, field.default) for name, field in fields}
    settings = [
        f"--set {shlex.quote(f'{name}={given[name]}')} "
        for name, field in fields
        if given[name] != field.default and name not in ("levels", "v_boundary")
    ]
    return f"nandcosim calibrate dts_sense {''.join(settings)}--out levels.toml"


def write_level_map(path: Path, params: Any, v_boundary: float, notes: dict[str, Any]) -> None:
    """Add one calibration to a level-map file, replacing one with the same key.

    Parameters
    ----------
    path : Path
        Written to a temporary file beside it and renamed.
    params : Params
    v_boundary : float
        In V.
    notes : dict
        Conditions and versions, kept for the reader.
    """
    key = level_key(params)
    entries = list(_entries(path, path.stat().st_mtime_ns)) if path.exists() else []
    kept = [e for e in entries if any(e.get(name) != value for name, value in key.items())]
    kept.append({**key, "v_boundary": v_boundary, **notes})
    lines = ["# Written by `nandcosim calibrate`; do not edit. Voltages in V, times in s.", ""]
    for entry in kept:
        lines.append("[[map]]")
        lines += [f"{name} = {_toml(value)}" for name, value in entry.items()]
        lines.append("")
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text("\n".join(lines))
    temporary.replace(path)


@cache
def _entries(path: Path, _modified: int) -> tuple[dict[str, Any], ...]:
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: no valid TOML: {error}") from None
    return tuple(content.get("map", []))


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
