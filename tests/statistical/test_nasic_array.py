"""Cell by cell, moment by moment and in closed form: the same errors."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from nandcosim.systems.nasic.array import ReadoutFields, multiply
from nandcosim.systems.nasic.array_errors import _rounded, error_statistics
from nandcosim.systems.nasic.currents import load
from nandcosim.systems.nasic.digits import InputCode, WeightCode
from nandcosim.tables import load_tables

DEPTH, COLUMNS, SAMPLES = 512, 120, 30


@pytest.mark.parametrize(
    "settings",
    [
        {"technique": "base"},
        {"technique": "t1", "cam_bits": 3},
        {"technique": "t1t2", "adc_range": "full"},
        {"states": 3, "sigma": 0.1, "input_rows": 32},
        {"states": 4, "adc_bits": 6, "sigma": 0.05},
        {"states": 4, "input_rows": 512, "weight_bits": 8},
        {"states": 8, "sigma": 0.05},
        {"technique": "t1t2", "input_levels": 3, "adc_noise": 0.5},
        {"technique": "base", "input_rows": 512, "adc_bits": 6, "sigma": 0.1},
    ],
)
def test_both_modes_have_the_variance_of_the_closed_form(settings: dict[str, object]) -> None:
    config = ReadoutFields(**settings)
    currents = load(load_tables(), config)
    rng = np.random.default_rng(17)
    limit, inputs = WeightCode.of(config).limit, InputCode.of(config)
    weights = rng.integers(-limit, limit + 1, (DEPTH, COLUMNS))
    x = rng.integers(inputs.low, inputs.high + 1, (SAMPLES, DEPTH))
    exact = x @ weights
    groups = DEPTH // int(config.array("input_rows"))
    regions = xr.DataArray(min(int(config.array("interleave")), groups))
    expected = error_statistics(config, currents, interleave=regions)["output_total"].item()
    for mode in ("cells", "moments"):
        error = multiply(x, weights, config, currents, seed=3, mode=mode) - exact
        # 3600 outputs of 512 static errors a column: a deviation is known to 2 to 3 %
        assert error.std() / exact.std() == pytest.approx(expected, rel=0.08), mode


def test_rounding_takes_small_errors_away() -> None:
    """Where it decides, the closed form is within half: rare errors of few sums."""
    config = ReadoutFields(technique="base", sigma=0.05, input_rows=32)
    currents = load(load_tables(), config)
    rng = np.random.default_rng(2)
    weights, x = rng.integers(-7, 8, (DEPTH, COLUMNS)), rng.integers(-128, 128, (SAMPLES, DEPTH))
    exact = x @ weights
    found = (multiply(x, weights, config, currents) - exact).std() / exact.std()
    rows = xr.DataArray([32, 4096], dims="rows")
    expected = error_statistics(config, currents, rows)["output_error"].sel(component="spread")
    assert expected[0].item() == pytest.approx(found, rel=0.5)
    assert found < expected[1].item() / 3  # sums of so many rows keep their errors


def test_variance_of_rounded_gaussians() -> None:
    rng = np.random.default_rng(4)
    for sigma, bias in ((0.2, 0.0), (0.2, 0.4), (0.5, 7.2), (1.2, -0.3), (4.0, 0.1)):
        found = np.rint(rng.normal(bias, sigma, 400_000)).var()
        expected = _rounded(xr.DataArray(sigma), xr.DataArray(bias)).item()
        assert expected == pytest.approx(found, rel=0.02), (sigma, bias)
