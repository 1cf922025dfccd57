"""The Verilog-A export: data files that parse back, modules that read them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.tables import CalibrationTable, export, fit
from tests.unit.tables_stores import sensing_store

TABLE = fit(sensing_store(samples=30))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(TABLE, "verilog-a", tmp_path)
    return tmp_path


def modules(folder: Path) -> dict[str, str]:
    """Module name -> its text."""
    text = (folder / "dts_sense.va").read_text()
    return {m[1]: m[0] for m in re.finditer(r"module (\w+)\(.*?endmodule", text, re.DOTALL)}


@pytest.mark.parametrize("name", ["pass_fitted", "discharge_time", "trip_margin", "sense_energy"])
def test_numbers_parse_back_equal(folder: Path, name: str) -> None:
    rows = np.loadtxt(folder / f"dts_sense_{name}.tbl", ndmin=2)
    quantity = TABLE.dataset[name]
    dims = [dim for dim in ("m", "sigma", "margin") if dim in quantity.dims]
    exact = {dim: xr.DataArray(rows[:, i], dims="row") for i, dim in enumerate(dims)}
    found = TABLE.lookup(name, **exact)
    assert np.array_equal(found.values, rows[:, -1])
    assert len(rows) == int(np.isfinite(quantity).sum())


def test_data_is_sorted_in_lines_of_at_least_two_points(folder: Path) -> None:
    # Verilog-AMS LRM 2.4, 9.21.1: isolines, outermost axis first, each axis increasing
    rows = np.loadtxt(folder / "dts_sense_discharge_time.tbl")[:, :-1]
    assert np.array_equal(rows, rows[np.lexsort(rows.T[::-1])])
    _, counts = np.unique(rows[:, :-1], axis=0, return_counts=True)
    assert counts.min() >= 2


def test_modules_read_their_files_and_refuse_to_extrapolate(folder: Path) -> None:
    found = modules(folder)
    files = {path.stem for path in folder.glob("*.tbl")}
    assert set(found) == files
    for name, text in found.items():
        arguments, file, control = re.search(
            r'\$table_model\((.*), "(\w+)\.tbl", "(.*);1"\)', text
        ).groups()  # type: ignore[union-attr]
        assert file == name
        columns = np.loadtxt(folder / f"{name}.tbl", ndmin=2).shape[1]
        assert len(arguments.split(", ")) == columns - 1
        assert control.split(",") == ["1E"] * (columns - 1)


def test_group_size_takes_tabulated_values_only(folder: Path) -> None:
    text = modules(folder)["dts_sense_trip_margin"]
    assert "parameter integer at_m = 1 from [1:4] exclude 3;" in text
    text = modules(folder)["dts_sense_pass_fitted"]
    assert "module dts_sense_pass_fitted(sigma, margin, value);" in text
    assert "$table_model(at_m, V(sigma), V(margin), " in text


def test_small_quantities_are_scaled(folder: Path) -> None:
    assert "/ 1e-06;" in modules(folder)["dts_sense_discharge_time"]
    assert "/ 1e-15;" in modules(folder)["dts_sense_sense_energy"]
    assert "/ 1.0;" in modules(folder)["dts_sense_pass_fitted"]


def test_text_axes_become_modules_of_their_own(tmp_path: Path) -> None:
    table = fit(sensing_store(samples=10, corners=("tt", "s-s")))
    export(table, "verilog-a", tmp_path)
    found = modules(tmp_path)
    assert {"dts_sense_trip_margin_tt", "dts_sense_trip_margin_s_s"} <= set(found)
    rows = np.loadtxt(tmp_path / "dts_sense_trip_margin_s_s.tbl")
    assert np.array_equal(rows[:, 1], table.dataset.trip_margin.sel(corner="s-s"))
    assert "# at corner = s-s" in (tmp_path / "dts_sense_trip_margin_s_s.tbl").read_text()


def test_nothing_to_interpolate_is_refused(tmp_path: Path) -> None:
    point = CalibrationTable(TABLE.at(m=1, sigma=0.0, margin=0.0).dataset)
    with pytest.raises(InputError, match="no quantity over a numeric axis"):
        export(point, "verilog-a", tmp_path)
