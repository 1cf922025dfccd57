"""Tables as text: JSON, and CSV in long form. Both come back as the same table, to the bit.

Floats are written with as many digits as tell them apart (``repr``).
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.tables.table import CalibrationTable

__all__ = ["from_csv", "from_json", "to_csv", "to_json"]

#: First line of a CSV file.
_CSV_MARK = "# nandcosim table"


# ---------------------------------------------------------------- JSON


def to_json(table: CalibrationTable, file: TextIO) -> None:
    """Write a table as one JSON object.

    ``attrs``, ``coords`` and ``variables``; each coordinate and variable has ``dims``,
    ``dtype``, ``attrs`` and ``data``, a nested list. JSON knows no NaN and no infinity:
    they are ``null``, ``"inf"`` and ``"-inf"``.
    """
    dataset = table.dataset
    document = {
        "attrs": dataset.attrs,
        "coords": {name: _described(dataset[name], data=True) for name in dataset.coords},
        "variables": {name: _described(dataset[name], data=True) for name in dataset.data_vars},
    }
    json.dump(document, file, indent=1, allow_nan=False)
    file.write("\n")


def from_json(path: str | os.PathLike[str]) -> CalibrationTable:
    """Read what `to_json` wrote.

    Raises
    ------
    InputError
        If the file cannot be read or is no table.
    """
    path = Path(path)
    text = _read(path)
    try:
        document = json.loads(text)
        variables = {
            part: {
                name: (entry["dims"], _from_plain(entry["data"], entry["dtype"]), entry["attrs"])
                for name, entry in document[part].items()
            }
            for part in ("coords", "variables")
        }
        dataset = xr.Dataset(variables["variables"], variables["coords"], document["attrs"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: is no table in JSON") from None
    return _table(dataset, path)


def _described(variable: xr.DataArray, *, data: bool) -> dict[str, Any]:
    described = {
        "dims": list(variable.dims),
        "dtype": "str" if variable.dtype.kind == "U" else variable.dtype.name,
        "attrs": variable.attrs,
    }
    return described | ({"data": _to_plain(variable.values.tolist())} if data else {})


def _to_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else repr(value)
    return value


def _from_plain(data: Any, dtype: str) -> np.ndarray:
    if np.dtype(dtype).kind == "f":  # None becomes NaN, "inf" infinity
        return np.asarray(np.array(data, dtype=object), dtype=dtype)
    return np.array(data, dtype=dtype)


# ---------------------------------------------------------------- CSV


def to_csv(table: CalibrationTable, file: TextIO) -> None:
    """Write a table as long-form CSV: one line a value, ``variable, axes..., value``.

    An axis that a variable does not have is left empty. Lines that begin with ``#``
    hold everything else as JSON: the table's attributes, then every coordinate (with its
    values) and variable, so that ``pandas.read_csv(path, comment="#")`` reads the rest.
    """
    dataset = table.dataset
    axes = [str(dim) for dim in dataset.dims]
    file.write(f"{_CSV_MARK}\n# attrs: {json.dumps(dataset.attrs, allow_nan=False)}\n")
    for kind, names in (("coord", dataset.coords), ("variable", dataset.data_vars)):
        for name in names:
            described = _described(dataset[name], data=kind == "coord")
            file.write(f"# {kind} {json.dumps(name)}: {json.dumps(described, allow_nan=False)}\n")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["variable", *axes, "value"])
    for name in dataset.data_vars:
        writer.writerows(_rows(dataset[name], axes))


def _rows(variable: xr.DataArray, axes: list[str]) -> Iterator[list[str]]:
    grids = [variable[dim].values.tolist() for dim in variable.dims]
    columns = [axes.index(str(dim)) + 1 for dim in variable.dims]
    for index, value in np.ndenumerate(variable.values):
        row = [str(variable.name), *("" for _ in axes), str(value.item())]
        for column, grid, position in zip(columns, grids, index, strict=True):
            row[column] = str(grid[position])
        yield row


def from_csv(path: str | os.PathLike[str]) -> CalibrationTable:
    """Read what `to_csv` wrote.

    Raises
    ------
    InputError
        If the file cannot be read or is no table, naming the first line that is wrong.
    """
    path = Path(path)
    lines = _read(path).splitlines()
    if not lines or lines[0] != _CSV_MARK:
        raise InputError(f"{path}: line 1: expected {_CSV_MARK!r}, this is no table in CSV")
    head = sum(1 for _ in _header(lines))
    try:
        attrs, described = _parse_header(_header(lines))
        coords = {
            name: (entry["dims"], _from_plain(entry["data"], entry["dtype"]), entry["attrs"])
            for name, entry in described["coord"].items()
        }
        skeleton = xr.Dataset(coords=coords, attrs=attrs)
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: the lines with '#' are not those of a table") from None
    values = _parse_rows(csv.reader(lines[head:]), described["variable"], skeleton, path, head)
    for name, entry in described["variable"].items():
        skeleton[name] = (entry["dims"], values[name], entry["attrs"])
    return _table(skeleton, path)


def _header(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#"):
            return
        yield line


def _parse_header(header: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    decoder = json.JSONDecoder()
    attrs: dict[str, Any] = {}
    described: dict[str, dict[str, Any]] = {"coord": {}, "variable": {}}
    for line in list(header)[1:]:
        kind, _, rest = line[2:].partition(" ")
        if kind == "attrs:":
            attrs = json.loads(rest)
            continue
        name, end = decoder.raw_decode(rest)
        described[kind][name] = json.loads(rest[end + 1 :])
    return attrs, described


def _parse_rows(
    rows: Iterator[list[str]],
    described: dict[str, Any],
    skeleton: xr.Dataset,
    path: Path,
    head: int,
) -> dict[str, np.ndarray]:
    """Values by variable; every value must be there, once."""
    columns = next(rows, [])[1:-1]
    places = {
        axis: {str(value): index for index, value in enumerate(skeleton[axis].values.tolist())}
        for axis in columns
        if axis in skeleton.dims
    }
    arrays, seen = {}, {}
    for name, entry in described.items():
        shape = tuple(skeleton.sizes[dim] for dim in entry["dims"])
        arrays[name] = np.empty(shape, dtype=entry["dtype"])
        seen[name] = np.zeros(shape, dtype=bool)
    for number, row in enumerate(rows, start=head + 2):
        try:
            name, given = row[0], dict(zip(columns, row[1:-1], strict=True))
            index = tuple(places[dim][given[dim]] for dim in described[name]["dims"])
            kind = arrays[name].dtype.kind
            arrays[name][index] = float(row[-1]) if kind == "f" else int(row[-1])
            seen[name][index] = True
        except (KeyError, ValueError, IndexError):
            raise InputError(
                f"{path}: line {number}: found {','.join(row)!r}, expected "
                "variable, axes and value as the header declares them"
            ) from None
    for name, filled in seen.items():
        if not filled.all():
            raise InputError(f"{path}: {name}: {(~filled).sum()} of {filled.size} values missing")
    return arrays


# ---------------------------------------------------------------- helpers


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no text file in UTF-8") from None


def _table(dataset: xr.Dataset, path: Path) -> CalibrationTable:
    try:
        return CalibrationTable(dataset)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('dataset: ')}") from None
