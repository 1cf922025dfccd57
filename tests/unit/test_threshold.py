"""Threshold distributions against simulated pulses, published equivalences and integrals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.integrate import quad

from nandcosim.errors import InputError
from nandcosim.page_coding import level_bits
from nandcosim.threshold import (
    NOMINAL,
    ThresholdParams,
    arrhenius,
    bit_error_rate,
    level_distributions,
)

QUIET = {
    "noise": 0.0,
    "coupling": 0.0,
    "wear_noise": 0.0,
    "loss_rate": 0.0,
    "electron": 0.0,
    "tempco_spread": 0.0,
}
YEAR = 365 * 86400.0


def overshoot(step: float, electron: float, cells: int) -> np.ndarray:
    """Threshold above the verify level of cells that are programmed pulse by pulse."""
    rng = np.random.default_rng(5)
    threshold = rng.uniform(-30 * step, -29 * step, cells)  # below verify, wherever
    waiting = np.ones(cells, bool)
    while waiting.any():
        electrons = rng.poisson(step / electron, waiting.sum())
        threshold[waiting] += electrons * electron
        waiting &= threshold < 0
    return threshold


@pytest.mark.parametrize(("step", "electron"), [(0.3, 4e-3), (0.3, 20e-3), (0.15, 4e-3)])
def test_placement_is_that_of_simulated_pulses(step, electron) -> None:
    params = ThresholdParams.of(**(QUIET | {"step": step, "electron": electron}))
    spacing = params.window / 16
    found = overshoot(step * spacing, electron, 100_000) / spacing
    model = level_distributions(4, params=params)["sigma"].values[1:]
    assert (model == model[0]).all()
    # four standard errors of the standard deviation
    assert found.std() == pytest.approx(model[0], rel=4 / np.sqrt(2 * 100_000))


def test_without_noise_placement_is_uniform_over_a_step() -> None:
    sigma = level_distributions(4, params=ThresholdParams.of(**QUIET))["sigma"]
    assert sigma[1:].values == pytest.approx(0.3 / np.sqrt(12))
    assert float(sigma[0]) == pytest.approx(0.35 / (8.5 / 16))


@pytest.mark.parametrize(("temperature", "hours"), [(52.0, 500), (66.0, 96)])
def test_acceleration_is_that_of_jesd218(temperature, hours) -> None:
    """It takes these as equivalent to a year at 30 degC."""
    equivalent = hours * arrhenius(temperature, ThresholdParams().activation)
    assert equivalent == pytest.approx(365 * 24, rel=0.05)


def test_acceleration_is_arrhenius_s_law() -> None:
    kelvin, k = 273.15, 8.617333262e-5  # CODATA 2018, eV/K
    expected = np.exp(0.9 / k * (1 / (30 + kelvin) - 1 / (85 + kelvin)))
    assert arrhenius(85.0, 0.9) == pytest.approx(expected, rel=1e-6)
    assert arrhenius(30.0, 0.9) == 1.0


def test_loss_is_proportional_to_charge_and_logarithmic_in_time() -> None:
    params = ThresholdParams()
    times = 3600.0 * np.array([0.0, 1e4, 1e5, 1e6])
    shift = level_distributions(4, retention=times, params=params)["mean_shift"]
    assert (shift.isel(retention=0, level=slice(1, None)) == 0).all()
    lost = -shift.isel(retention=-1, level=slice(1, None)).values
    assert lost / lost[-1] == pytest.approx(np.arange(1, 16) / 15)
    decade = shift.sel(level=15).diff("retention").values[1:]
    assert decade == pytest.approx(-params.loss_rate / (8.5 / 16), rel=1e-4)


def test_storage_at_a_temperature_is_a_longer_time_at_30_degc() -> None:
    hot = level_distributions(4, retention=1e6, storage_temperature=55.0)
    factor = float(arrhenius(55.0, 1.1))
    xr.testing.assert_allclose(hot, level_distributions(4, retention=1e6 * factor))


def test_wear_is_a_power_law_of_the_variance() -> None:
    variance = level_distributions(4, cycles=[0.0, 500.0, 1000.0, 4000.0])["sigma"] ** 2
    added = (variance - variance.sel(cycles=0)).sel(level=5)
    # exponent 1/2: the variance grows in proportion to the cycles
    assert added.values == pytest.approx(float(added.sel(cycles=1000)) * np.array([0, 0.5, 1, 4]))
    assert float(added.sel(cycles=1000)) == pytest.approx((0.07 / (8.5 / 16)) ** 2)


def test_cross_temperature_moves_all_levels_alike_and_widens_them() -> None:
    here, warm = (level_distributions(4, read_temperature=t) for t in (30.0, 80.0))
    moved = (warm - here)["mean_shift"]
    assert moved.values == pytest.approx(-0.1 * 2.5e-3 * 50 / (8.5 / 16))
    added = (warm["sigma"] ** 2 - here["sigma"] ** 2).values
    assert added == pytest.approx((0.2e-3 * 50 / (8.5 / 16)) ** 2)


def test_erased_level_is_lower_and_wider() -> None:
    found = level_distributions([1, 2, 3, 4], **NOMINAL)
    assert (found["sigma"].sel(level=0) > found["sigma"].sel(level=1)).all()
    assert (found["mean_shift"].sel(level=0) < found["mean_shift"].sel(level=1)).all()


def test_nominal_condition_is_the_paper_s() -> None:
    """Two constants are calibrated to D-NOVA section 6.4: sigma 0.2 and an error rate 1e-2."""
    nominal = level_distributions(4, **NOMINAL)
    assert float(nominal["sigma"][1:].mean()) == pytest.approx(0.2, abs=5e-4)
    rate = bit_error_rate(4, nominal["mean_shift"], nominal["sigma"]).mean()
    assert float(rate) == pytest.approx(1e-2, rel=0.01)
    fresh = float(level_distributions(4)["sigma"][1:].mean())
    worst = level_distributions(4, cycles=3000.0, retention=YEAR, storage_temperature=55.0)
    assert 0.1 < fresh < 0.2 < float(worst["sigma"][1:].mean()) < 0.35


def test_conditions_broadcast_and_absent_levels_are_nan() -> None:
    found = level_distributions(
        [2, 4],
        retention=[0.0, YEAR],
        cycles=xr.DataArray([0.0, 100.0, 1000.0], dims="cycles"),
    )
    assert found.sizes == {"bits": 2, "retention": 2, "cycles": 3, "level": 16}
    assert found["sigma"].sel(bits=2, level=slice(4, None)).isnull().all()
    assert found["sigma"].sel(bits=2, level=slice(0, 3)).notnull().all()
    alone = level_distributions(4, retention=YEAR, cycles=1000.0)
    inside = found.sel(bits=4, retention=YEAR).isel(cycles=2)
    for name in alone:
        assert inside[name].values == pytest.approx(alone[name].values)


# ---------------------------------------------------------------- bit error rates


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.25])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_error_rate_is_the_overlap_of_neighbours(bits, sigma) -> None:
    """2 Q(1/2 / sigma) of each inner boundary, over the levels and the pages."""
    closed = 2 * stats.norm.sf(0.5 / sigma) * (2**bits - 1) / 2**bits / bits
    mean = float(bit_error_rate(bits, 0.0, sigma).mean())
    # beyond the neighbour: Q(3/2 / sigma), 1e-9 of a level at 0.25
    assert mean == pytest.approx(closed, rel=1e-6)


def test_sigma_0_2_alone_is_not_an_error_rate_of_1e_2() -> None:
    """D-NOVA section 6.4 pairs the two; it takes a mean shift of 0.16 level as well."""
    assert float(bit_error_rate(4, 0.0, 0.2).mean()) == pytest.approx(2.9e-3, rel=0.01)
    assert float(bit_error_rate(4, 0.0, 0.25).mean()) == pytest.approx(1.07e-2, rel=0.01)
    assert float(bit_error_rate(4, -0.1545, 0.2).mean()) == pytest.approx(1.0e-2, rel=0.02)


@pytest.mark.parametrize(("bits", "coding"), [(2, "reflected"), (3, "balanced"), (4, "balanced")])
def test_error_rate_is_the_integral_over_the_densities(bits, coding) -> None:
    """Every level its own mean and width, several levels apart included."""
    rng = np.random.default_rng(7)
    count = 2**bits
    shift, sigma = rng.normal(0, 0.3, count), rng.uniform(0.1, 0.8, count)
    code = level_bits(bits, coding)
    edges = np.arange(1, count) - 0.5 + 0.07
    expected = np.zeros(bits)
    for level in range(count):
        density = stats.norm(level + shift[level], sigma[level]).pdf
        ends = [-np.inf, *edges, np.inf]
        for region, (low, high) in enumerate(itertools.pairwise(ends)):
            expected += (code[region] != code[level]) * quad(density, low, high)[0] / count
    found = bit_error_rate(
        bits,
        xr.DataArray(shift, dims="level"),
        xr.DataArray(sigma, dims="level"),
        coding=coding,
        offset=0.07,
    )
    assert found.values == pytest.approx(expected, rel=1e-6)


def test_small_error_rates_keep_their_digits() -> None:
    assert bit_error_rate(1, 0.0, 0.04).values == pytest.approx(stats.norm.sf(12.5), rel=1e-9)


def test_spread_of_the_sensing_adds_to_the_variance_and_its_place_to_the_level() -> None:
    spread = bit_error_rate(4, 0.0, 0.2, spread=0.15)
    xr.testing.assert_allclose(spread, bit_error_rate(4, 0.0, 0.25))
    moved = bit_error_rate(4, 0.0, 0.2, location=0.1)
    xr.testing.assert_allclose(moved, bit_error_rate(4, 0.1, 0.2))
    xr.testing.assert_allclose(moved, bit_error_rate(4, 0.0, 0.2, offset=-0.1))


def test_retries_that_follow_the_loss_undo_it() -> None:
    charge = xr.DataArray(np.arange(16) / 15, dims="level")
    retries = xr.DataArray(np.arange(6), dims="retry")
    rate = bit_error_rate(4, -0.4 * charge, 0.15, retry=retries, retry_step=0.1).mean("page")
    assert int(rate.argmin("retry")) == 4
    # the levels have moved closer together, so it is not quite the fresh rate
    fresh = float(bit_error_rate(4, 0.0, 0.15).mean())
    assert fresh < float(rate[4]) < 1.5 * fresh
    assert float(rate[0]) > 10 * fresh


def test_pages_with_more_senses_have_more_errors() -> None:
    rate = bit_error_rate(4, 0.0, 0.2, coding="reflected")
    assert rate.values / float(rate[0]) == pytest.approx([1, 2, 4, 8], rel=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: level_distributions(5), r"^bits: found 5, allowed: 1 to 4$"),
        (lambda: level_distributions(2.0), r"^bits: found 2\.0, allowed: 1, 2, 3, 4$"),
        (lambda: level_distributions(retention=-1.0), r"^retention: found -1\.0, allowed: 0 to"),
        (lambda: level_distributions(cycles=[1.0, np.nan]), r"^cycles: found nan"),
        (lambda: level_distributions(retention="1 year"), r"found 1 year, expected a number in s$"),
        (lambda: bit_error_rate(4, 0.0, -0.2), r"^sigma: found -0\.2, allowed: 0 and more$"),
        (
            lambda: bit_error_rate(4, 0.0, xr.DataArray([0.2, -0.1], dims="sigma")),
            r"^sigma: found -0\.1, allowed",
        ),
        (lambda: bit_error_rate(4, 0.0, 0.2, retry=1.5), r"^retry: found 1\.5, allowed: 0, 1, 2"),
        (
            lambda: bit_error_rate(4, xr.DataArray(np.zeros(8), dims="level"), 0.2),
            r"^shift: found 8 levels, expected the 16 of the cell$",
        ),
        (
            lambda: bit_error_rate(2, 0.0, level_distributions(4)["sigma"]),
            r"^sigma: found 16 levels, expected the 4 of the cell$",
        ),
        (lambda: level_distributions(cycles=np.ones((2, 2))), r"^cycles: found 2 dimensions"),
        (lambda: ThresholdParams.of(noise=-1.0), r"^threshold: noise: found -1\.0, expected"),
        (lambda: ThresholdParams.of(nois=1.0), r"^threshold: nois: unknown, did you mean 'noise'"),
    ],
)
def test_bad_input_is_one_line(call, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_every_constant_says_where_it_comes_from() -> None:
    kinds = ("stated:", "derived:", "sourced:", "assumed", "calibrated:")
    for name, field in ThresholdParams.model_fields.items():
        assert field.json_schema_extra["source"].startswith(kinds), name
        assert field.json_schema_extra["unit"], name
        assert field.metadata, name  # its bounds
