"""Raw bit error rates, time and energy of a page read."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from nandcosim.errors import InputError
from nandcosim.intervals import wilson
from nandcosim.page_coding import data_bits, level_bits
from nandcosim.systems.nvllm.hardware import ErrorFields, HardwareFields
from nandcosim.systems.nvllm.rber import (
    bit_energy,
    flipped_bits,
    page_cost,
    page_error_rates,
    raw_bit_error_rate,
)
from nandcosim.tables import load_tables
from nandcosim.threshold import level_distributions


@pytest.fixture(scope="module")
def tables():
    return load_tables()


# ---------------------------------------------------------------- rates


def test_a_given_rate_needs_no_tables() -> None:
    config = ErrorFields(rber=(1e-5, 1e-4), cell_bits=(1, 3))
    rates = page_error_rates(config)
    assert rates.dims == ("rber", "cell_bits", "page")
    assert rates["page"].values.tolist() == ["lower", "middle", "upper"]
    assert rates.sel(cell_bits=1).notnull().sum("page").values.tolist() == [1, 1]
    mean = raw_bit_error_rate(config)
    assert (mean == mean["rber"]).all()
    assert page_error_rates(ErrorFields(cell_bits=1))["page"].values.tolist() == ["lower"]


def test_tabulated_rates_are_the_tables(tables) -> None:
    config = ErrorFields(
        rber_source="table", cell_bits=(1, 2, 3, 4), coding=("reflected", "balanced"),
        sigma=(0.15, 0.3), shift=(-0.2, 0.0), retry=(0, 2),
    )  # fmt: skip
    grid = tables["page_read"].dataset
    for limit, name in (("low", "low"), ("value", "rate"), ("high", "high")):
        rates = page_error_rates(config, tables, limit)
        wanted = grid[f"bit_error_{name}"].sel(
            sigma=[0.15, 0.3], shift=[-0.2, 0.0], retry=[0, 2], coding=["reflected", "balanced"]
        )
        same = wanted.rename(bits="cell_bits").transpose(*rates.dims)
        # A cell of two bits has the pages lower and upper.
        assert np.allclose(rates.values, same.values, rtol=1e-9, atol=0, equal_nan=True)


def test_between_tabulated_sigmas_the_rate_is_that_of_the_decision(tables) -> None:
    sigma = 0.106
    config = ErrorFields(rber_source="table", cell_bits=1, sigma=sigma)
    rate = float(raw_bit_error_rate(config, tables))
    decision = tables["page_read"].dataset.sel(bits=1)
    place, spread = float(decision["pass_location"]), float(decision["pass_spread"])
    tails = norm.sf((0.5 + np.array([place, -place])) / np.hypot(sigma, spread))
    assert rate == pytest.approx(tails.mean(), rel=1e-9)
    read = tables["page_read"].lookup(
        "bit_error_rate", bits=1, page="lower", coding="balanced", sigma=sigma, shift=0.0, retry=0
    )
    assert float(read) > 1.3 * rate


def test_limits_enclose_the_rate(tables) -> None:
    config = ErrorFields(rber_source="table", cell_bits=4, sigma=(0.1, 0.2))
    low, value, high = (
        raw_bit_error_rate(config, tables, limit) for limit in ("low", "value", "high")
    )
    assert (low < value).all()
    assert (value < high).all()


def test_a_redrawn_table_has_other_rates(tables) -> None:
    config = ErrorFields(rber_source="table", cell_bits=4)
    redrawn = raw_bit_error_rate(config, tables.perturbed(1))
    assert float(redrawn) != float(raw_bit_error_rate(config, tables))


def test_both_sources_in_one_design_space(tables) -> None:
    config = ErrorFields(rber_source=("given", "table"), cell_bits=(1, 4), sigma=(0.2, 0.3))
    rates = raw_bit_error_rate(config, tables)
    assert (rates.sel(rber_source="given") == 1e-4).all()
    alone = raw_bit_error_rate(config.model_copy(update={"rber_source": "table"}), tables)
    assert (rates.sel(rber_source="table") == alone).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sigma": 0.05}, "sigma = 0.05 level is outside the valid range 0.1 to 0.4"),
        ({"shift": -0.9}, "shift"),
        ({"retry": 9}, "retry = 9 is not tabulated"),
    ],
)
def test_what_the_table_does_not_know_is_refused(tables, fields, message) -> None:
    with pytest.raises(InputError, match=message):
        page_error_rates(ErrorFields(rber_source="table", **fields), tables)


def test_a_missing_table_is_named() -> None:
    with pytest.raises(InputError, match="rber_source = table needs the table 'page_read'"):
        page_error_rates(ErrorFields(rber_source="table"))


# ---------------------------------------------------------------- time and energy


def test_stated_cost_needs_no_tables() -> None:
    cost = page_cost(HardwareFields(array_energy="stated", bit_energy=(1e-12, 2e-12)))
    assert float(cost["read_time"]) == 5.12e-6
    assert cost["bit_energy"].values.tolist() == [1e-12, 2e-12]
    assert (cost["bit_energy_low"] == cost["bit_energy_high"]).all()


@pytest.mark.parametrize("coding", ["reflected", "balanced"])
def test_qlc_pages_cost_what_the_table_has(tables, coding) -> None:
    config = HardwareFields(page_time="table", array_energy="table", cell_bits=4, coding=coding)
    cost = page_cost(config, tables)
    rows = tables["page_read_cost"].dataset.sel(coding=coding)
    assert float(cost["read_time"]) == pytest.approx(float(rows["page_time"].mean()))
    wordlines = tables["wordline"].lookup(
        "e_page", line="wordline", m=1, layers=128, roughness=0.0, width=131072.0
    )
    wanted = float(rows["page_energy"].mean() + wordlines / 131072)
    assert float(cost["bit_energy"]) == pytest.approx(wanted, rel=0.01)


def test_fewer_bits_take_the_time_and_charge_of_their_senses(tables) -> None:
    config = HardwareFields(
        page_time="table", array_energy="table", cell_bits=(1, 2, 3, 4), page_bytes=(2048, 16384)
    )
    cost = page_cost(config, tables)
    senses = np.array([1, 3 / 2, 7 / 3, 15 / 4])
    assert cost["read_time"].values == pytest.approx(5e-6 + 22e-6 * senses)
    # One sense of random data is the reflected lower page, whatever the number of bits.
    one = tables["page_read_cost"].dataset["page_energy"].sel(coding="reflected", page=0)
    wide = cost["bit_energy"].sel(cell_bits=1, page_bytes=16384)
    share = tables["wordline"].lookup(
        "e_page", line="wordline", m=1, layers=128, roughness=0.0, width=131072.0
    )
    assert float(wide - share / 131072) == pytest.approx(float(one), rel=0.04)
    assert (np.diff(cost["bit_energy"].transpose("cell_bits", ...), axis=0) > 0).all()
    assert (cost["bit_energy_low"] < cost["bit_energy"]).all()
    assert (cost["bit_energy"] < cost["bit_energy_high"]).all()


def test_a_source_may_be_an_axis(tables) -> None:
    config = HardwareFields(
        page_time=("stated", "table"), array_energy=("stated", "table"), cell_bits=1
    )
    cost = page_cost(config, tables)
    assert cost["read_time"].values == pytest.approx([5.12e-6, 27e-6])
    assert cost["bit_energy"].sel(array_energy="stated") == 2.25e-12
    config = config.model_copy(update={"bit_energy": (1e-12, 2e-12)})
    energy = bit_energy(config, tables)
    assert energy.sizes == {"bit_energy": 2, "array_energy": 2}
    assert energy.sel(array_energy="stated").values.tolist() == [1e-12, 2e-12]
    with pytest.raises(InputError, match="found bit_energy and array_energy as axes"):
        page_cost(config, tables)


def test_a_page_wider_than_the_table_is_refused(tables) -> None:
    with pytest.raises(InputError, match="width = 262144"):
        page_cost(HardwareFields(array_energy="table", page_bytes=32768), tables)
    with pytest.raises(InputError, match="array_energy = table needs the table"):
        page_cost(HardwareFields(array_energy="table"))


# ---------------------------------------------------------------- aged cells


def test_aged_cells_err_as_often_as_drawn_ones(tables) -> None:
    """Thresholds drawn from the model's levels, sensed one by one, against the closed form."""
    config = ErrorFields(rber_source="aged", cell_bits=3, cycles=3000.0, retention=3e7)
    expected = page_error_rates(config, tables)
    levels = level_distributions(
        3, cycles=3000.0, retention=3e7, storage_temperature=config.storage_temperature
    )
    decision = tables["page_read"].dataset.sel(bits=3)
    rng = np.random.default_rng(11)
    stored = rng.integers(8, size=400_000)
    threshold = rng.normal(
        stored + levels["mean_shift"].values[stored], levels["sigma"].values[stored]
    )
    moved = rng.normal(
        float(decision["pass_location"]), float(decision["pass_spread"]), stored.size
    )
    edges = np.arange(1, 8) - 0.5
    conducts = threshold[:, None] < edges - moved[:, None]
    wrong = data_bits(conducts, 3) != level_bits(3)[stored]
    for page, count in zip(expected["page"].values, wrong.sum(axis=0), strict=True):
        low, high = wilson(np.array(count), np.array(stored.size), np.array(0))
        assert low < float(expected.sel(page=page)) < high, page


def test_fewer_bits_and_less_wear_err_less(tables) -> None:
    config = ErrorFields(
        rber_source="aged", cell_bits=(1, 2, 3, 4), cycles=(100, 1000, 3000), retention=(0, 1e7)
    )
    rate = raw_bit_error_rate(config, tables)
    for axis in ("cell_bits", "cycles", "retention"):
        assert (rate.diff(axis) >= 0).all(), axis


# ---------------------------------------------------------------- where errors fall


def test_no_bit_and_every_bit_flipped() -> None:
    rng = np.random.default_rng(0)
    assert flipped_bits(1000, 0.0, rng).size == 0
    assert flipped_bits(0, 0.5, rng).size == 0
    assert (flipped_bits(1000, 1.0, rng) == np.arange(1000)).all()
    assert flipped_bits(10**12, 1e-300, rng).size == 0
    with pytest.raises(InputError, match="0 to 1"):
        flipped_bits(10, 1.5, rng)


@pytest.mark.parametrize("rate", [1e-3, 0.2, 0.9])
def test_flips_are_distinct_and_in_range(rate) -> None:
    places = flipped_bits(100_000, rate, np.random.default_rng(3))
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0
    assert places[-1] < 100_000
