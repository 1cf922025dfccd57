"""Write a table for other programs."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from nandcosim.errors import InputError
from nandcosim.tables.exchange import to_csv, to_json
from nandcosim.tables.table import CalibrationTable
from nandcosim.tables.verilog_a import to_verilog_a

__all__ = ["FORMATS", "export"]

FORMATS = ("csv", "json", "netcdf", "verilog-a")

_TEXT: dict[str, Callable[[CalibrationTable, TextIO], None]] = {"csv": to_csv, "json": to_json}


def export(table: CalibrationTable, to: str, out: str | os.PathLike[str]) -> list[Path]:
    """Write a table in another format.

    Parameters
    ----------
    table : CalibrationTable
    to : {"csv", "json", "netcdf", "verilog-a"}
        All but the last come back as the same table: `from_csv`, `from_json`, `open_table`.
    out : path
        A file, or for ``verilog-a`` a folder.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    InputError
        For an unknown format, or if `out` cannot be written.
    """
    out = Path(out)
    if to not in FORMATS:
        raise InputError(f"export: found format {to!r}, allowed: {', '.join(FORMATS)}")
    if to == "netcdf":
        return [table.to_netcdf(out)]
    try:
        if to == "verilog-a":
            return to_verilog_a(table, out)
        return [_write_text(table, _TEXT[to], out)]
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from None


def _write_text(
    table: CalibrationTable, write: Callable[[CalibrationTable, TextIO], None], path: Path
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            write(table, file)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it is gone, or never came to be
            draft.unlink()
    return path
