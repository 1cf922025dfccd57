"""Perturbed copies: their moments, their consistency, their limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from nandcosim.errors import InputError
from nandcosim.tables import CalibrationTable, FitKind, Tables, fit, pass_model
from tests.unit.tables_stores import sensing_store

TABLE = fit(sensing_store(samples=100))
DRAWS = 250


def drawn(table: CalibrationTable, *names: str) -> list[np.ndarray]:
    """Values of quantities in many perturbed copies, each of shape (draws, ...)."""
    rng = np.random.default_rng(11)
    copies = [table.perturbed(rng).dataset for _ in range(DRAWS)]
    return [np.stack([copy[name].values for copy in copies]) for name in names]


def check_moments(values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
    """Mean within 4.5 of its standard errors, deviation within 20 % (4.5 of its own)."""
    error = 4.5 * deviation / DRAWS**0.5
    assert (abs(values.mean(axis=0) - mean) <= error).all()
    assert values.std(axis=0, ddof=1) == pytest.approx(deviation, rel=0.2)


def test_fitted_quantities_have_their_standard_errors() -> None:
    dataset = TABLE.dataset
    location, energy = drawn(TABLE, "pass_location", "sense_energy")
    check_moments(location, dataset.pass_location.values, dataset.pass_location_se.values)
    check_moments(energy, dataset.sense_energy.values, dataset.sense_energy_se.values)


def test_spread_is_positive_and_log_normal() -> None:
    dataset = TABLE.dataset
    (spread,) = drawn(TABLE, "pass_spread")
    assert (spread > 0).all()
    relative = (dataset.pass_spread_se / dataset.pass_spread).values
    check_moments(np.log(spread), np.log(dataset.pass_spread.values), relative)


def test_location_and_spread_keep_their_correlation() -> None:
    one_side = fit(sensing_store(samples=60, margins=(-1.0, -0.5, -0.25, 0.0)))
    expected = one_side.dataset.pass_correlation.values
    assert abs(expected).max() > 0.4  # an axis that ends at the decision correlates them
    location, spread = drawn(one_side, "pass_location", "pass_spread")
    for index in np.ndindex(expected.shape):
        found = np.corrcoef(location[:, *index], np.log(spread[:, *index]))[0, 1]
        # Fisher's z has the standard error 1 / sqrt(draws - 3)
        distance = np.arctanh(found) - np.arctanh(expected[index])
        assert abs(distance) < 4.5 / (DRAWS - 3) ** 0.5


def test_proportions_follow_the_jeffreys_posterior() -> None:
    dataset = TABLE.dataset
    (probability,) = drawn(TABLE, "pass_probability")
    k, n = dataset.n_passed.values, dataset.n.values
    assert (probability > 0).all()
    assert (probability < 1).all()
    posterior = beta(k + 0.5, n - k + 0.5)
    error = 4.5 * posterior.std() / DRAWS**0.5
    assert (abs(probability.mean(axis=0) - posterior.mean()) < error).all()


def test_what_is_derived_follows_what_was_drawn() -> None:
    copy = TABLE.perturbed(np.random.default_rng(3)).dataset
    assert not np.array_equal(copy.trip_margin, TABLE.dataset.trip_margin)
    assert np.array_equal(copy.trip_margin, copy.pass_location.sel(sigma=0.0))
    assert np.array_equal(copy.read_sigma, copy.pass_spread.sel(sigma=0.0))
    modelled = norm.cdf((copy.margin - copy.pass_location) / copy.pass_spread)
    assert np.allclose(copy.pass_fitted.transpose("margin", "m", "sigma"), modelled)
    ratio = copy.discharge_time / copy.discharge_time.sel(m=1, drop=True) - 1
    assert np.allclose(
        copy.discharge_penalty, ratio.transpose(*copy.discharge_penalty.dims), equal_nan=True
    )


def test_penalty_error_agrees_with_its_draws() -> None:
    dataset = TABLE.dataset.sel(margin=1.5, sigma=0.0)
    (penalty,) = drawn(TABLE.at(margin=1.5, sigma=0.0), "discharge_penalty")
    assert penalty.std(axis=0, ddof=1) == pytest.approx(
        dataset.discharge_penalty_se.values, rel=0.2
    )


def test_separated_fits_stay_in_their_bracket() -> None:
    table = fit(sensing_store(samples=50, read_sigma=0.0))
    assert (table.dataset.fit_kind.sel(sigma=0.0) == FitKind.SEPARATED).all()
    trip, noise, fitted = drawn(table, "trip_margin", "read_sigma", "pass_fitted")
    low, high = table.dataset.trip_margin_low.values, table.dataset.trip_margin_high.values
    assert (trip >= low).all()
    assert (trip <= high).all()
    assert trip.std(axis=0, ddof=1) == pytest.approx((high - low) / 12**0.5, rel=0.1)
    assert (noise >= 0).all()
    beyond = (noise > table.dataset.read_sigma_high.values).mean(axis=0)
    assert beyond == pytest.approx(0.05, abs=4.5 * (0.05 * 0.95 / DRAWS) ** 0.5)
    assert np.isfinite(fitted).all()


def test_means_of_one_sample_are_not_known_well_enough() -> None:
    table = fit(sensing_store(samples=1))
    copy = table.perturbed(np.random.default_rng(1))
    with pytest.raises(InputError, match="no value"):
        copy.lookup("sense_energy", margin=1.0, m=1, sigma=0.0)


def test_same_seed_same_copy_and_the_original_is_left_alone() -> None:
    before = TABLE.digest
    first = TABLE.perturbed(np.random.default_rng(7))
    assert first.digest == TABLE.perturbed(np.random.default_rng(7)).digest
    assert first.digest != TABLE.perturbed(np.random.default_rng(8)).digest
    assert TABLE.digest == before
    assert first.dataset.attrs["perturbed"] == 1
    assert np.array_equal(first.dataset.n, TABLE.dataset.n)


def test_an_integer_is_the_seed_of_a_generator() -> None:
    generator = np.random.default_rng(5)
    assert TABLE.perturbed(5).digest == TABLE.perturbed(generator).digest
    both = Tables({"a": TABLE, "b": TABLE}).perturbed(5)
    assert both["a"].digest == TABLE.perturbed(5).digest != both["b"].digest


def test_reduced_tables() -> None:
    rng = np.random.default_rng(5)
    at_zero = TABLE.at(sigma=0.0).perturbed(rng).dataset
    assert np.array_equal(at_zero.trip_margin, at_zero.pass_location)
    single = TABLE.at(sigma=0.2, margin=0.5, m=2)
    with pytest.raises(InputError, match=r"belongs to sigma = 0\.0, .*reduced to sigma = 0\.2"):
        single.perturbed(rng)
    point = TABLE.at(sigma=0.0, margin=0.5, m=2).perturbed(rng).dataset
    assert float(point.pass_fitted) == pytest.approx(
        float(pass_model(0.5, point.pass_location, point.pass_spread))
    )


def test_all_tables_of_a_folder_at_once() -> None:
    tables = Tables({"a": TABLE})
    assert tables.perturbed(np.random.default_rng(1))["a"].dataset.attrs["perturbed"] == 1


def test_unknown_way_to_redraw_is_refused() -> None:
    table = CalibrationTable(TABLE.dataset.copy())
    table.dataset["sense_energy"].attrs["perturb"] = "cauchy"
    with pytest.raises(InputError, match="found perturb 'cauchy'"):
        table.perturbed(np.random.default_rng(1))
