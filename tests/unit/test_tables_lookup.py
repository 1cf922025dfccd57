"""Looking values up: interpolation, broadcasting, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from nandcosim.errors import InputError
from nandcosim.tables import CalibrationTable, fit
from tests.unit.tables_stores import MARGINS, sensing_store

TABLE = fit(sensing_store(samples=40, corners=("tt", "ss")))


def test_tabulated_points_come_back_to_the_bit() -> None:
    dataset = TABLE.dataset
    found = TABLE.lookup(
        "pass_probability",
        corner=dataset.corner,
        margin=dataset.margin,
        m=dataset.m,
        sigma=dataset.sigma,
    )
    xr.testing.assert_equal(found.drop_attrs(), dataset.pass_probability.drop_attrs())
    assert found.attrs == {"units": "1", "long_name": dataset.pass_probability.attrs["long_name"]}


@given(
    margin=st.lists(st.floats(MARGINS[0], MARGINS[-1]), min_size=1, max_size=5),
    sigma=st.floats(0.0, 0.2),
)
def test_interpolation_agrees_with_scipy(margin: list[float], sigma: float) -> None:
    plane = TABLE.dataset.pass_probability.sel(corner="ss", m=2)
    expected = RegularGridInterpolator(
        (plane.margin.values, plane.sigma.values), plane.transpose("margin", "sigma").values
    )
    found = TABLE.lookup("pass_probability", margin=margin, sigma=sigma, m=2, corner="ss")
    assert found.dims == ("margin",)
    assert found.values == pytest.approx(expected([(x, sigma) for x in margin]), abs=1e-12)


def test_broadcasts_by_dims() -> None:
    alpha = xr.DataArray([0.5, 0.7, 1.0], dims="alpha")
    stage = xr.DataArray([[2, 4], [4, 1]], dims=("config", "stage"))
    found = TABLE.lookup("pass_fitted", margin=alpha, m=stage, sigma=0.1, corner="tt")
    assert set(found.dims) == {"alpha", "config", "stage"}
    single = TABLE.lookup("pass_fitted", margin=0.7, m=4, sigma=0.1, corner="tt")
    assert float(found.isel(alpha=1, config=0, stage=1)) == float(single)


def test_shared_dim_is_pointwise() -> None:
    points = {"margin": xr.DataArray([0.0, 1.0], dims="p"), "m": xr.DataArray([1, 4], dims="p")}
    found = TABLE.lookup("pass_fitted", sigma=0.0, corner="tt", **points)
    assert found.dims == ("p",)


def test_axes_not_given_stay() -> None:
    assert TABLE.lookup("trip_margin", m=2).dims == ("corner",)
    assert TABLE.lookup("trip_margin").dims == ("corner", "m")
    assert TABLE.at(corner="tt").lookup("trip_margin", m=TABLE.dataset.m).dims == ("m",)


def test_axis_of_one_value_need_not_be_given() -> None:
    table = fit(sensing_store(samples=10, corners=("ff",)))
    assert table.lookup("trip_margin", m=2).dims == ()
    with pytest.raises(InputError, match="corner = tt is not tabulated, allowed: ff"):
        table.lookup("trip_margin", m=2, corner="tt")


@pytest.mark.parametrize(
    ("coords", "message"),
    [
        ({"margin": 1.6}, r"pass_probability: margin = 1.6 level is outside .* -1 to 1.5 level"),
        ({"margin": [0.0, -1.2]}, r"margin = -1.2 level is outside the valid range"),
        ({"margin": float("nan")}, r"margin = nan level is outside"),
        ({"sigma": -0.01}, r"sigma = -0.01 level is outside the valid range 0 to 0.2 level"),
        ({"m": 3}, r"m = 3 is not tabulated, allowed: 1, 2, 4"),
        ({"m": 1.5}, r"m = 1.5 is not tabulated"),
        ({"m": "1"}, r"m = 1 is not tabulated"),
        ({"corner": "sf"}, r"corner = sf is not tabulated, allowed: tt, ss"),
        ({"corner": 0}, r"corner = 0 is not tabulated"),
        ({"margin": "wide"}, r"margin = 'wide', expected a number in level"),
        ({"vdd": 0.8}, r"no axis 'vdd', its axes: corner, margin, m, sigma"),
        ({"margin": [[0.0]]}, r"margin has 2 dims, expected"),
    ],
)
def test_refusals_name_axis_value_and_range(coords: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TABLE.lookup("pass_probability", **coords)  # type: ignore[arg-type]


def test_rounding_at_the_ends_is_no_extrapolation() -> None:
    end = TABLE.lookup("pass_fitted", margin=1.5, m=1, sigma=0.1 + 0.1 + 1e-17, corner="tt")
    over = TABLE.lookup("pass_fitted", margin=1.5 + 1e-12, m=1, sigma=0.2, corner="tt")
    assert float(end) == float(over)


def test_extrapolation_when_asked_stays_physical() -> None:
    known = TABLE.lookup("pass_location", sigma=[0.1, 0.2], m=1, corner="tt")
    beyond = TABLE.lookup("pass_location", sigma=0.3, m=1, corner="tt", extrapolate=True)
    assert float(beyond) == pytest.approx(float(2 * known[1] - known[0]))
    probability = TABLE.lookup(
        "pass_fitted", margin=[-9.0, 9.0], m=1, sigma=0.2, corner="tt", extrapolate=True
    )
    assert (probability >= 0).all()
    assert (probability <= 1).all()
    with pytest.raises(InputError, match="m = 3 is not tabulated"):
        TABLE.lookup("trip_margin", m=3, extrapolate=True)


def test_undefined_values_are_not_handed_out() -> None:
    with pytest.raises(InputError, match=r"no value at 1 of 2 points.*no sample passed"):
        TABLE.lookup("discharge_time", margin=[-1.0, 1.0], m=1, sigma=0.0, corner="tt")


def test_undefined_neighbour_without_weight_does_not_matter() -> None:
    time = TABLE.dataset.discharge_time.sel(corner="tt", m=1, sigma=0.0)
    first = time.margin.values[np.isfinite(time.values)][0]
    assert float(TABLE.lookup("discharge_time", margin=first, m=1, sigma=0.0, corner="tt")) > 0
    with pytest.raises(InputError, match="no value"):
        TABLE.lookup("discharge_time", margin=first - 0.01, m=1, sigma=0.0, corner="tt")


def test_unknown_quantity() -> None:
    with pytest.raises(InputError, match=r"found 'recall', allowed: .*pass_probability"):
        TABLE.lookup("recall")


def test_reduced_table_remembers_where() -> None:
    reduced = TABLE.at(corner="ss", sigma=0.2)
    assert reduced.sizes == {"margin": 11, "m": 3}
    with pytest.raises(InputError, match="taken at corner = ss"):
        reduced.lookup("pass_fitted", margin=0.0, m=1, corner="ss")
    with pytest.raises(InputError, match=r"sigma = 0\.1 is not tabulated, allowed: 0.0, 0.2"):
        TABLE.at(sigma=0.1)
    with pytest.raises(InputError, match="found axis 'vdd', allowed: "):
        TABLE.at(vdd=1.0)


def test_layout_is_checked() -> None:
    with pytest.raises(InputError, match="no calibration table"):
        CalibrationTable(xr.Dataset())
    dataset = TABLE.dataset
    with pytest.raises(InputError, match="found table format 99, this version reads format 1"):
        CalibrationTable(dataset.assign_attrs(nandcosim_table=99))
    with pytest.raises(InputError, match="axis 'm': found interpolation None"):
        CalibrationTable(dataset.assign_coords(m=dataset.m.drop_attrs()))
    with pytest.raises(InputError, match="axis 'margin': values do not increase"):
        CalibrationTable(dataset.isel(margin=slice(None, None, -1)))
