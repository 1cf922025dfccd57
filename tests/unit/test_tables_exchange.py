"""Tables through netCDF, CSV and JSON and back, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.tables import (
    FORMATS,
    CalibrationTable,
    export,
    fit,
    from_csv,
    from_json,
    load_tables,
    open_table,
)
from tests.unit.tables_stores import sensing_store

TABLE = fit(sensing_store(samples=12, corners=("tt", 'a,b "c" #d é')))

READERS: dict[str, Callable[[Path], CalibrationTable]] = {
    "csv": from_csv,
    "json": from_json,
    "netcdf": open_table,
}


def assert_same(found: CalibrationTable, expected: CalibrationTable) -> None:
    """Values to the bit, dtypes, dims, attributes with their types."""
    xr.testing.assert_identical(found.dataset, expected.dataset)
    assert found.digest == expected.digest
    assert list(found.dataset.data_vars) == list(expected.dataset.data_vars)
    for name in expected.dataset.variables:
        one, other = found.dataset[name], expected.dataset[name]
        assert one.dtype == other.dtype
        assert one.dims == other.dims
        assert {k: type(v) for k, v in one.attrs.items()} == {
            k: type(v) for k, v in other.attrs.items()
        }
        if one.dtype.kind == "f":
            known = ~np.isnan(other.values)
            assert one.values[known].tobytes() == other.values[known].tobytes()


@pytest.mark.parametrize("to", READERS)
def test_round_trip(to: str, tmp_path: Path) -> None:
    (path,) = export(TABLE, to, tmp_path / "sub" / f"table.{to}")
    assert_same(READERS[to](path), TABLE)
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # no drafts left


@pytest.mark.parametrize("to", READERS)
@given(values=st.lists(st.floats(allow_nan=False), min_size=3, max_size=3))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_float_survives(to: str, values: list[float], tmp_path: Path) -> None:
    table = CalibrationTable(
        xr.Dataset(
            {"x": ("m", values, {"units": "V", "limit": values[0] if values[0] < 1e300 else 1.0})},
            {"m": ("m", [1, 2, 4], {"units": "1", "interpolation": "exact"})},
            {"nandcosim_table": 1, "circuit": "c"},
        )
    )
    table.dataset["x"].attrs["limit"] = 0.1 + 0.2
    export(table, to, tmp_path / "t")
    assert_same(READERS[to](tmp_path / "t"), table)


@pytest.mark.parametrize("to", READERS)
def test_table_of_a_single_point_and_of_flags(to: str, tmp_path: Path) -> None:
    flags = CalibrationTable(
        xr.Dataset(
            {"x": ("on", [1.0, np.nan], {"units": "V"}), "n": ((), 3, {"units": "1"})},
            {"on": ("on", [True, False], {"interpolation": "exact"})},
            {"nandcosim_table": 1, "circuit": "c"},
        )
    )
    export(flags, to, tmp_path / "t")
    assert_same(READERS[to](tmp_path / "t"), flags)
    assert float(READERS[to](tmp_path / "t").lookup("x", on=True)) == 1.0


def test_csv_is_one_line_a_value(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    export(TABLE.at(corner="tt"), "csv", tmp_path / "t.csv")
    frame = pandas.read_csv(tmp_path / "t.csv", comment="#")
    assert list(frame.columns) == ["variable", "margin", "m", "sigma", "value"]
    trips = frame[frame.variable == "trip_margin"].set_index("m")["value"]
    assert trips.to_dict() == TABLE.at(corner="tt").dataset.trip_margin.to_series().to_dict()
    assert len(frame) == sum(v.size for v in TABLE.at(corner="tt").dataset.data_vars.values())


def test_json_is_strict(tmp_path: Path) -> None:
    """No NaN or Infinity, which JSON has not, although the table holds undefined values."""
    assert any(
        np.isnan(variable.values).any()
        for variable in TABLE.dataset.data_vars.values()
        if variable.dtype.kind == "f"
    )
    export(TABLE, "json", tmp_path / "t.json")
    constants: list[str] = []
    json.loads((tmp_path / "t.json").read_text(), parse_constant=constants.append)
    assert constants == []


def test_netcdf_is_replaced_at_once(tmp_path: Path) -> None:
    path = TABLE.to_netcdf(tmp_path / "t.nc")
    other = TABLE.perturbed(np.random.default_rng(1))
    other.to_netcdf(path)
    assert open_table(path).digest == other.digest
    assert [each.name for each in tmp_path.iterdir()] == ["t.nc"]


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = TABLE.to_netcdf(tmp_path / "t.nc")
    before = path.read_bytes()
    broken = CalibrationTable(TABLE.dataset.assign_attrs(nested={"no": "dict"}))
    with pytest.raises(TypeError):
        broken.to_netcdf(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["t.nc"]


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no table\n")
    for read in READERS.values():
        with pytest.raises(InputError, match=f"{text}: .*(no|expected)"):
            read(text)
        with pytest.raises(InputError, match=r"absent: .*(not exist|cannot be read)"):
            read(tmp_path / "absent")
    xr.Dataset({"x": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"other\.nc: is no calibration table"):
        open_table(tmp_path / "other.nc")
    newer = TABLE.dataset.assign_attrs(nandcosim_table=2)
    newer.to_netcdf(tmp_path / "newer.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"newer\.nc: found table format 2"):
        open_table(tmp_path / "newer.nc")


def test_damaged_csv_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    export(TABLE, "csv", path)
    lines = path.read_text().splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("variable,"))
    for damaged, message in (
        ([*lines[:-1], lines[-1] + "x"], rf"line {len(lines)}: found "),
        (lines[:-1], "1 of .* values missing"),
        ([*lines, "what,1,2,3,4,5"], rf"line {len(lines) + 1}: found 'what"),
        ([*lines[: head - 1], "# variable {", *lines[head:]], "lines with '#'"),
    ):
        path.write_text("\n".join(damaged) + "\n")
        with pytest.raises(InputError, match=message):
            from_csv(path)


def test_unknown_format_and_unwritable_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found format 'xlsx', allowed: csv, json, netcdf"):
        export(TABLE, "xlsx", tmp_path / "t")
    (tmp_path / "file").touch()
    for to in FORMATS:
        with pytest.raises(InputError, match="cannot be written"):
            export(TABLE, to, tmp_path / "file" / "t")


def test_load_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tables here, expected \*\.nc"):
        load_tables(tmp_path)
    TABLE.to_netcdf(tmp_path / "dts_sense.nc")
    tables = load_tables(tmp_path)
    assert list(tables) == ["dts_sense"]
    assert_same(tables["dts_sense"], TABLE)
    assert "other" not in tables
    assert tables.get("other") is None
    with pytest.raises(InputError, match="found no table 'other', there are: dts_sense"):
        tables["other"]
