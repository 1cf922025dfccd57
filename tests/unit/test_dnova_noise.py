"""Stored errors are fixed for a cell's lifetime; read noise is drawn anew and reproducible."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

pytest.importorskip("numba")

from nandcosim.errors import InputError
from nandcosim.systems.dnova import kernels
from nandcosim.systems.dnova.noise import (
    LEVEL_PARTS,
    SensingNoise,
    StoredCells,
    amplifier_draws,
    read_deficits,
    store_cells,
)
from nandcosim.systems.dnova.score import METRICS, Accumulator, score_deficits
from nandcosim.tables.table import FORMAT, CalibrationTable


def test_stored_errors_have_the_asked_spread_and_are_independent() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (500, 200))
    cells = store_cells(codes, 0.2, seed=1)
    error = cells.original / LEVEL_PARTS - codes
    other = cells.complemented / LEVEL_PARTS - (15 - codes)
    n = codes.size
    for e in (error, other):
        assert abs(e.mean()) < 5 * 0.2 / np.sqrt(n)
        assert abs(e.std() - 0.2) < 5 * 0.2 / np.sqrt(2 * n)
    assert abs(np.corrcoef(error.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(n)


def test_stored_errors_are_a_function_of_seed_and_row() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (20_000, 3))
    whole = store_cells(codes, 0.3, seed=5)
    part = store_cells(codes[:17_000], 0.3, seed=5)
    np.testing.assert_array_equal(part.original, whole.original[:17_000])
    np.testing.assert_array_equal(part.complemented, whole.complemented[:17_000])
    assert (store_cells(codes, 0.3, seed=6).original != whole.original).mean() > 0.9


def test_a_vectors_errors_need_no_other_vector() -> None:
    draw = np.random.default_rng(1)
    codes, ids = draw.integers(0, 16, (900, 5)), draw.permutation(5000)[:900]
    whole = store_cells(codes, 0.3, seed=5, ids=ids)
    some = draw.permutation(900)[:40]
    part = store_cells(codes[some], 0.3, seed=5, ids=ids[some])
    np.testing.assert_array_equal(part.original, whole.original[some])
    np.testing.assert_array_equal(part.complemented, whole.complemented[some])
    amplifiers = amplifier_draws(ids, 3, seed=5)
    np.testing.assert_array_equal(amplifier_draws(ids[some], 3, seed=5), amplifiers[some])
    np.testing.assert_array_equal(amplifier_draws(ids, 2, seed=5), amplifiers[:, :, :2])


def test_amplifiers_are_standard_normal_and_independent() -> None:
    n = 20_000
    u = amplifier_draws(np.arange(n), 3, seed=7).reshape(n, 6)
    assert np.abs(u.mean(axis=0)).max() < 5 / np.sqrt(n)
    assert np.abs(u.std(axis=0) - 1).max() < 5 / np.sqrt(2 * n)
    correlation = np.corrcoef(np.hstack([u[1:], u[:-1]]).T) - np.eye(12)
    assert np.abs(correlation).max() < 5 / np.sqrt(n)
    # Not the draws of the cells either.
    error = store_cells(np.zeros((n, 1), int), 1.0, seed=7).original[:, 0] / LEVEL_PARTS
    assert abs(np.corrcoef(error, u[:, 0])[0, 1]) < 5 / np.sqrt(n)
    assert (amplifier_draws(np.arange(n), 3, seed=8).reshape(n, 6) != u).mean() > 0.99


def test_an_amplifiers_error_moves_all_cells_of_its_string_alike() -> None:
    """Three strings of 4 cells and a short one; the offset is worth whole levels."""
    codes = np.random.default_rng(0).integers(3, 12, (20, 14))
    cells = store_cells(codes, 0.0, seed=0)
    steps = np.random.default_rng(1).integers(-2, 3, (20, 2, 4))
    original, complemented = cells.effective_levels(0.0, offsets=steps.astype(float), cells=4)
    string = np.arange(14) // 4
    np.testing.assert_array_equal(original, codes + steps[:, 0][:, string])
    np.testing.assert_array_equal(complemented, 15 - codes + steps[:, 1][:, string])
    some = np.array([3, 17])
    picked, _ = cells.effective_levels(0.0, some, offsets=steps, cells=4)
    np.testing.assert_array_equal(picked, original[some])


def test_perfect_cells_hold_their_codes() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (30, 9))
    original, complemented = store_cells(codes, 0.0, seed=0).effective_levels(0.0)
    np.testing.assert_array_equal(original, codes)
    np.testing.assert_array_equal(complemented, 15 - codes)


@given(
    stored=st.lists(st.integers(-800, 5000), min_size=1, max_size=30),
    trip=st.integers(-300, 300),
    applied=st.integers(-2, 20),
)
def test_effective_level_states_the_margin_rule(stored: list[int], trip: int, applied: int) -> None:
    cells = np.array([stored], dtype=np.int16)
    effective, _ = StoredCells(cells, cells).effective_levels(trip / LEVEL_PARTS)
    margin = applied - 0.5 - cells / LEVEL_PARTS
    np.testing.assert_array_equal(effective < applied, margin > trip / LEVEL_PARTS)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    dim=st.integers(1, 200),
    m=st.integers(1, 16),
    alpha=st.integers(0, 4),
    metric=st.sampled_from(sorted(METRICS)),
    latch=st.sampled_from([None, 2, 4]),
)
def test_vanishing_read_noise_leaves_the_stored_error(
    seed: int, dim: int, m: int, alpha: int, metric: str, latch: int | None
) -> None:
    draw = np.random.default_rng(seed)
    query = draw.integers(0, 16, dim)
    stored = store_cells(np.clip(query + draw.integers(-3, 4, (40, dim)), 0, 15), 0.4, seed)
    # Even parts stored and an odd trip margin: no read is exactly on the fence.
    cells = StoredCells(stored.original // 2 * 2, stored.complemented // 2 * 2)
    trip = 25 / LEVEL_PARTS
    rule = {
        "alpha": alpha,
        "m": m,
        "metric": metric,
        "accumulator": Accumulator(cells=64, latch_bits=latch),
    }
    noise = SensingNoise.from_margins(0.4, {m: trip}, {m: 1e-6})
    got = read_deficits(cells, query, np.arange(40), np.arange(40), noise, key=(1,), **rule)
    original, complemented = cells.effective_levels(trip)
    expected = score_deficits(original, query, complemented=complemented, **rule)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("margin", [-0.5, 0.5])
@pytest.mark.parametrize("m", [1, 4])
def test_a_group_passes_as_often_as_its_margin_says(margin: float, m: int) -> None:
    n, trip, spread = 20_000, 0.1, 0.4
    query = np.full(m, 7)
    code = 8 if margin > 0 else 9  # against an applied level of 9
    cells = store_cells(np.full((n, m), code), 0.0, seed=0)
    noise = SensingNoise.from_margins(0.0, {m: trip}, {m: spread})
    rows = np.arange(n)
    rule = {"alpha": 2, "m": m, "metric": "ubs", "key": (3, 4)}
    failed = read_deficits(cells, query, rows, rows, noise, **rule).mean()
    # One decision error a group, not one a cell.
    chance = 1 - ndtr((margin - trip) / spread)
    assert abs(failed - chance) < 4.5 * np.sqrt(chance * (1 - chance) / n)


def test_the_two_senses_of_a_cell_are_read_independently() -> None:
    n = 10_000
    cells = store_cells(np.full((n, 1), 7), 0.0, seed=0)
    # A trip margin equal to the margin: either sense fails every second time.
    noise = SensingNoise.from_margins(0.0, {1: 1.5}, {1: 0.3})
    rows = np.arange(n)
    deficits = read_deficits(cells, np.array([7]), rows, rows, noise, key=(1,), alpha=2, m=1)
    assert abs(np.mean(deficits == 1) - 0.5) < 5 * 0.5 / np.sqrt(n)


def test_reads_depend_on_key_id_and_group_only() -> None:
    draw = np.random.default_rng(2)
    query = draw.integers(0, 16, 96)
    cells = store_cells(np.clip(query + draw.integers(-2, 3, (50, 96)), 0, 15), 0.2, seed=0)
    noise = SensingNoise.from_margins(0.2, None, {2: 0.3})
    rule = {"alpha": 2, "m": 2, "accumulator": Accumulator(latch_bits=None)}
    ids = np.arange(50)
    first = read_deficits(cells, query, ids, ids, noise, key=(1, 2), **rule)
    order = draw.permutation(50)
    moved = StoredCells(cells.original[order], cells.complemented[order])
    again = read_deficits(moved, query, np.argsort(order)[10:30], order, noise, key=(1, 2), **rule)
    np.testing.assert_array_equal(again, first[10:30])
    other = read_deficits(cells, query, ids, ids, noise, key=(1, 3), **rule)
    assert (other != first).mean() > 0.5


def test_read_numbers_are_uniform_and_uncorrelated() -> None:
    vectors, groups = np.arange(300), np.arange(300)
    out = np.empty((300, 300))
    kernels.read_uniforms(np.uint64(99), vectors, groups, out)
    counts = np.histogram(out, bins=20, range=(0, 1))[0]
    chi2 = np.sum((counts - out.size / 20) ** 2 / (out.size / 20))
    assert chi2 < 19 + 5 * np.sqrt(2 * 19)
    for left, right in ((out[1:], out[:-1]), (out[:, 1:], out[:, :-1])):
        correlation = np.corrcoef(left.ravel(), right.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(left.size)


def test_margins_are_looked_up_not_guessed() -> None:
    noise = SensingNoise.from_margins(0.2, {1: 0.05, 4: 0.1}, {1: 0.02, 4: 0.03})
    assert noise.trip_margin(4) == 0.1
    assert noise.read_sigma(1) == 0.02
    with pytest.raises(InputError, match=r"m = 2: characterised only for m = 1, 4"):
        noise.trip_margin(2)
    assert SensingNoise(0.3).trip_margin(16) == 0.0
    assert hash(noise) == hash(
        SensingNoise.from_margins(0.2, {4: 0.1, 1: 0.05}, {4: 0.03, 1: 0.02})
    )


@pytest.mark.parametrize("sigma", [-0.1, float("nan")])
def test_impossible_noise_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma and spreads >= 0"):
        SensingNoise(sigma)


def sensing_table(**axes: list[float]) -> CalibrationTable:
    """A table over m and any further axes, its values a known function of them."""
    coords = {"m": [1, 2, 8], **axes}
    dataset = xr.Dataset(coords=coords, attrs={"nandcosim_table": FORMAT, "circuit": "dts_sense"})
    for axis in coords:
        dataset[axis].attrs["interpolation"] = "exact" if axis == "m" else "linear"
    shift = sum((dataset[axis] for axis in axes), xr.zeros_like(dataset["m"], dtype=float))
    dataset["trip_margin"] = -0.1 + 0.05 * dataset["m"] + shift
    dataset["read_sigma"] = 0.02 * dataset["m"] + shift
    return CalibrationTable(dataset)


def test_margins_come_from_a_calibration_table() -> None:
    noise = SensingNoise.from_table(sensing_table(), sigma=0.25)
    assert noise.sigma == 0.25
    assert noise.trip_margin(8) == pytest.approx(0.3)
    assert noise.read_sigma(2) == pytest.approx(0.04)
    with pytest.raises(InputError, match="m = 4: characterised only for m = 1, 2, 8"):
        noise.read_sigma(4)


def test_a_table_with_more_axes_needs_a_place_on_them() -> None:
    table = sensing_table(temperature=[0.0, 1.0])
    with pytest.raises(InputError, match="trip_margin of the table varies with temperature"):
        SensingNoise.from_table(table, sigma=0.2)
    noise = SensingNoise.from_table(table, sigma=0.2, temperature=0.5)
    assert noise.trip_margin(1) == pytest.approx(0.45)
