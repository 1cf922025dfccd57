"""Tables for circuit simulators: Verilog-A modules that read ``$table_model`` data files.

One module and one data file a quantity (Verilog-AMS LRM 2.4, section 9.21). Axes that
the table interpolates become inputs, 1 V for one unit of the axis; axes with tabulated
values only become parameters that accept nothing else. Interpolation is linear, and the
control string ``1E`` makes the simulator stop with an error outside the tabulated range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.tables.table import CalibrationTable

__all__ = ["to_verilog_a"]

#: Output of 1 V stands for this many of the unit, so that small quantities stay far above
#: a simulator's absolute tolerance on voltages (1 uV by default).
SCALES = {"s": 1e-6, "J": 1e-15, "A": 1e-6, "F": 1e-15}


@dataclass(frozen=True)
class _Piece:
    """One quantity at one value of each text axis, as a module.

    Attributes
    ----------
    module : str
        Name of the module, and of the data file without ``.tbl``.
    quantity : DataArray
        Over numeric axes longer than one, interpolated ones last.
    fixed : dict
        Axes that are no longer there, with their value.
    """

    module: str
    quantity: xr.DataArray
    fixed: dict[str, object]


def to_verilog_a(table: CalibrationTable, folder: Path) -> list[Path]:
    """Write ``<circuit>.va`` and its data files.

    Parameters
    ----------
    table : CalibrationTable
        Its quantities with an uncertainty are exported, observed proportions by their
        fitted model where there is one. A quantity is skipped where it has no value.
    folder : Path
        Made if it does not exist.

    Returns
    -------
    list of Path
        The files written, the module first.

    Raises
    ------
    InputError
        If the table holds nothing that a simulator could interpolate.
    """
    pieces = [piece for name in _exported(table.dataset) for piece in _pieces(table, name)]
    if not pieces:
        raise InputError(f"table {table.circuit}: no quantity over a numeric axis to export")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{_identifier(table.circuit)}.va"
    modules = "\n".join(_module(piece) for piece in pieces)
    source.write_text(_HEADER.format(circuit=table.circuit, digest=table.digest) + modules)
    written = [source]
    for piece in pieces:
        written.append(folder / f"{piece.module}.tbl")
        written[-1].write_text(_data_file(piece, table))
    return written


_HEADER = """\
// Calibration table of {circuit}, exported by nandcosim.
// Table digest (SHA-256): {digest}
// Inputs: 1 V stands for one unit of the axis. Interpolation is linear; outside the
// tabulated range the simulator stops with an error (control string 1E).
`include "disciplines.vams"

"""


def _exported(dataset: xr.Dataset) -> list[str]:
    """Quantities that can be redrawn, i.e. that were fitted."""
    names = [str(n) for n in dataset.data_vars if "perturb" in dataset[n].attrs]
    return [n for n in names if not (n == "pass_probability" and "pass_fitted" in names)]


def _pieces(table: CalibrationTable, name: str) -> Iterator[_Piece]:
    quantity = table.dataset[name]
    # Text, and true or false: no simulator interpolates these, so each gets its own module.
    text = [str(d) for d in quantity.dims if quantity[d].dtype.kind in "Ub"]
    for values in product(*(quantity[axis].values.tolist() for axis in text)):
        fixed: dict[str, object] = dict(zip(text, values, strict=True))
        piece = quantity.sel(fixed)
        single = [str(d) for d in piece.dims if piece.sizes[d] == 1]
        fixed |= {axis: piece[axis].item() for axis in single}
        piece = piece.squeeze(single)
        if piece.ndim == 0:
            continue
        linear = [d for d in piece.dims if piece[d].attrs["interpolation"] == "linear"]
        exact = [d for d in piece.dims if d not in linear]
        # Outer axes first; the margin innermost, since values are absent at its low end.
        linear.sort(key=lambda d: d == "margin")
        piece = piece.transpose(*exact, *linear).sortby(exact)
        suffix = "".join(f"_{_identifier(str(value))}" for value in values)
        if _rows(piece):
            yield _Piece(f"{_identifier(table.circuit)}_{name}{suffix}", piece, fixed)


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII)


# ---------------------------------------------------------------- data file


def _rows(quantity: xr.DataArray) -> list[list[float]]:
    """Axis values and value of every defined point; lines of a single point are left out.

    Along the innermost axis ``$table_model`` interpolates between at least two points.
    """
    grids = [np.asarray(quantity[dim].values, float) for dim in quantity.dims]
    defined = np.isfinite(quantity.values)
    defined &= defined.sum(axis=-1, keepdims=True) > 1
    return [
        [
            *(float(grid[i]) for grid, i in zip(grids, index, strict=True)),
            float(quantity.values[index]),
        ]
        for index in np.ndindex(quantity.shape)
        if defined[index]
    ]


def _data_file(piece: _Piece, table: CalibrationTable) -> str:
    quantity, rows = piece.quantity, _rows(piece.quantity)
    columns = [f"{dim} [{quantity[dim].attrs.get('units', '1')}]" for dim in quantity.dims]
    columns.append(f"{quantity.name} [{quantity.attrs['units']}]")
    lines = [
        f"# {table.circuit}: {quantity.attrs['long_name']}",
        *(f"# at {axis} = {value}" for axis, value in piece.fixed.items()),
        f"# {len(rows)} of {quantity.size} points; the others have no value",
        "# " + "  ".join(columns),
        *(" ".join(repr(number) for number in row) for row in rows),
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- module


def _module(piece: _Piece) -> str:
    quantity = piece.quantity
    unit = str(quantity.attrs["units"]).replace("1", "(a pure number)")
    scale = SCALES.get(unit, 1.0)
    dims = [str(dim) for dim in quantity.dims]
    inputs = [dim for dim in dims if quantity[dim].attrs["interpolation"] == "linear"]
    ports = [*inputs, "value"]
    arguments = ", ".join(f"V({dim})" if dim in inputs else f"at_{dim}" for dim in dims)
    control = ",".join("1E" for _ in dims) + ";1"
    call = f'$table_model({arguments}, "{piece.module}.tbl", "{control}")'
    lines = [
        f"// {quantity.attrs['long_name']}; value: 1 V = {scale:g} {unit}",
        *(
            f"// {dim}: 1 V = 1 {quantity[dim].attrs.get('units', '1')}, {_span(quantity[dim])}"
            for dim in inputs
        ),
        *(f"// taken at {axis} = {given}" for axis, given in piece.fixed.items()),
        f"module {piece.module}({', '.join(ports)});",
        *([f"  input {', '.join(inputs)};"] if inputs else []),
        "  output value;",
        f"  electrical {', '.join(ports)};",
        *(_parameter(quantity[dim]) for dim in dims if dim not in inputs),
        f"  analog V(value) <+ {call} / {scale!r};",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _span(axis: xr.DataArray) -> str:
    return f"{float(axis.min())!r} to {float(axis.max())!r}"


def _parameter(axis: xr.DataArray) -> str:
    """A parameter that takes the tabulated values only.

    Its name has a prefix because simulators read a parameter ``m`` as a multiplier.
    """
    values = axis.values.tolist()
    if axis.dtype.kind != "i":
        raise InputError(f"axis {axis.name!r}: holds no integers, cannot be a parameter")
    gaps = [
        f"exclude {low + 1}" if high - low == 2 else f"exclude [{low + 1}:{high - 1}]"
        for low, high in pairwise(values)
        if high - low > 1
    ]
    allowed = " ".join([f"from [{values[0]}:{values[-1]}]", *gaps])
    return f"  parameter integer at_{axis.name} = {values[0]} {allowed};"
