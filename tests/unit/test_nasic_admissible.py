"""NASiC: the admissible input dimension from losses over input dimension and current spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.nasic.admissible import admissible, largest_rows, load_losses

ROWS = np.array([1, 4, 16, 64, 256])
SIGMA = np.array([0.0, 0.1, 0.2])


def losses(spread: float = 0.0) -> xr.Dataset:
    """N (sigma + 0.05)^2 for one state number, N sigma^2 + N 1e-3 for another; tokens vary."""
    rng = np.random.default_rng(0)
    sigma = xr.DataArray(SIGMA, {"sigma": SIGMA}, dims="sigma")
    rows = xr.DataArray(ROWS, {"input_rows": ROWS}, dims="input_rows")
    states = xr.DataArray([1e-3, 3e-3], {"states": [2, 4]}, dims="states")
    vary = xr.DataArray(np.exp(spread * rng.standard_normal((3, 40))), dims=("seed", "token"))
    return xr.Dataset({"cosine_loss": rows * (sigma**2 + states) * vary})


def test_a_power_law_is_crossed_where_it_says() -> None:
    found = largest_rows(losses()["cosine_loss"], 0.1)
    expected = 0.1 / (SIGMA**2 + np.array([[1e-3], [3e-3]]))
    assert np.allclose(found["rows"].transpose("states", "sigma"), expected)
    assert np.allclose(found["rows_low"], found["rows_high"])  # all tokens alike


def test_limits_outside_the_scan_are_zero_and_infinite() -> None:
    found = largest_rows(losses()["cosine_loss"], 1e-6)["rows"]
    assert (found == 0).all()
    assert np.isinf(largest_rows(losses()["cosine_loss"], 1e6)["rows"]).all()


def test_the_interval_holds_the_mean_and_shrinks_with_the_spread() -> None:
    wide, narrow = (largest_rows(losses(s)["cosine_loss"], 0.1) for s in (0.5, 0.1))
    for found in (wide, narrow):
        assert (found["rows_low"] <= found["rows"]).all()
        assert (found["rows"] <= found["rows_high"]).all()
    assert (
        (wide["rows_high"] - wide["rows_low"]) > (narrow["rows_high"] - narrow["rows_low"])
    ).all()


def test_the_order_of_the_scan_does_not_matter() -> None:
    straight = losses(0.2)["cosine_loss"]
    xr.testing.assert_equal(
        largest_rows(straight, 0.1),
        largest_rows(straight.isel(input_rows=slice(None, None, -1)), 0.1),
    )


def test_a_look_up_interpolates_in_the_square_of_sigma() -> None:
    asked = xr.DataArray([0.0, 0.05, 0.15], dims="design")
    found = admissible(asked, 0.1, losses(), states=2)
    assert found.dims == ("design",)
    assert found.values.tolist() == [100, int(0.1 / 0.0035), int(0.1 / 0.0235)]
    assert int(admissible(0.1, 0.1, losses(), states=4)) == 7


def test_a_look_up_refuses_to_extrapolate() -> None:
    with pytest.raises(InputError, match=r"sigma: found 0\.25, measured: 0 to 0\.2"):
        admissible(0.25, 0.1, losses(), states=2)
    with pytest.raises(InputError, match="states: found 3, measured: 2, 4"):
        admissible(0.1, 0.1, losses(), states=3)
    with pytest.raises(InputError, match="not reached between 1 and 256 inputs"):
        admissible(0.1, 1e-6, losses(), states=2)
    with pytest.raises(InputError, match="limit: found 0, allowed: more than 0"):
        admissible(0.1, 0, losses(), states=2)


def test_a_file_that_is_no_measurement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.nc: cannot be read"):
        load_losses(tmp_path / "none.nc")
    xr.Dataset({"other": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"other\.nc: found no cosine_loss"):
        load_losses(tmp_path / "other.nc")
    losses().to_netcdf(tmp_path / "right.nc", engine="h5netcdf")
    xr.testing.assert_equal(load_losses(tmp_path / "right.nc"), losses())


def test_what_ships_says_that_binary_cells_bear_fewer_inputs_the_more_they_spread() -> None:
    at = {"technique": "base", "adc_bits": 8}
    rows = [int(admissible(sigma, 0.003, **at)) for sigma in (0.02, 0.05, 0.1)]
    assert 300 < rows[0] < 576
    assert 60 < rows[1] < 128
    assert 4 < rows[2] < 16
    with pytest.raises(InputError, match="not reached between 4 and 576 inputs"):
        admissible(0.15, 0.003, **at)
