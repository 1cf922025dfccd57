"""Weights as cells: levels from page bits, and a page read against sensing level by level."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.page_coding import CODINGS, data_bits, level_bits, page_of_read_level, retry_offsets
from nandcosim.systems.nvllm.cells import (
    PageSenses,
    WeightCells,
    cell_levels,
    cell_thresholds,
    randomised,
    read_cells,
)
from nandcosim.systems.nvllm.hardware import ErrorFields
from nandcosim.tables import load_tables

tables = cache(load_tables)

BITS = (1, 2, 3, 4)


def senses(page: int = 0, **fields) -> PageSenses:
    return PageSenses.of(page, ErrorFields(**fields), tables())


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("coding", CODINGS)
def test_a_cells_level_has_the_bits_of_its_pages(bits, coding) -> None:
    pages = np.random.default_rng(bits).integers(0, 256, (bits, 40), dtype=np.uint8)
    levels = cell_levels(pages, coding)
    for cell in (0, 7, 8, 123, 319):
        held = [(int(page[cell // 8]) >> (cell % 8)) & 1 for page in pages]
        assert level_bits(bits, coding)[levels[cell]].tolist() == held


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("randomise", [False, True])
@given(seed=st.integers(0, 1000), size=st.integers(1, 900))
@settings(deadline=None, max_examples=15)
def test_every_bit_of_the_weights_is_in_its_cell(bits, randomise, seed, size) -> None:
    weights = np.random.default_rng(seed).integers(-128, 128, size).astype(np.int8)
    options = {"page_bytes": 16, "wordlines": 8, "seed": seed, "randomise": randomise}
    cells = WeightCells.of(weights, bits, **options)
    assert cells.size == size
    block, wordline, page, bitline = cells.place(np.arange(8 * size))
    levels = cells.levels(block, wordline, bitline)
    found = level_bits(bits)[levels, page]
    stored = np.packbits(found, bitorder="little")
    # the sequence does not depend on how much of it is used
    expected = randomised(weights.view(np.uint8), seed) if randomise else weights.view(np.uint8)
    assert stored.tobytes() == expected.tobytes()


def test_strings_and_wordlines_are_the_same_cells() -> None:
    weights = np.random.default_rng(1).integers(0, 256, 3 * 8 * 16, dtype=np.uint8)
    cells = WeightCells.of(weights, 3, page_bytes=16, wordlines=8)
    strings = cells.strings(np.zeros(128, int), np.arange(128))
    for wordline in range(8):
        np.testing.assert_array_equal(strings[:, wordline], cell_levels(cells.pages[0, wordline]))


def test_randomising_twice_gives_the_bytes_back_and_once_makes_levels_alike_often() -> None:
    data = np.zeros(32_768, dtype=np.uint8)
    np.testing.assert_array_equal(randomised(randomised(data, 5), 5), data)
    cells = WeightCells.of(data, 4, page_bytes=512, wordlines=16)
    counts = np.bincount(cell_levels(cells.pages[0, 3]), minlength=16)
    assert counts.min() > 0.75 * counts.mean()  # 4.0 standard deviations of 256 of 4096
    plain = WeightCells.of(data, 4, page_bytes=512, wordlines=16, randomise=False)
    assert np.ptp(cell_levels(plain.pages[0, 3])) == 0


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("retry", [0, 3])
def test_a_page_is_what_sensing_at_each_of_its_levels_gives(bits, coding, retry) -> None:
    """Against every read level sensed by itself and decoded by page_coding."""
    thresholds = np.random.default_rng(2).uniform(-2, 2**bits + 1, 3000)
    table = tables()["page_read"].dataset.sel(bits=bits)
    everywhere = np.arange(1, 2**bits) - 0.5 + retry_offsets(bits, retry, 0.1)
    conducts = thresholds[:, np.newaxis] < everywhere - float(table["pass_location"])
    decoded = data_bits(conducts, bits, coding)
    for page in range(bits):
        one = senses(page, cell_bits=bits, coding=coding, retry=retry)
        np.testing.assert_array_equal(one.sensed(thresholds), decoded[:, page])
        mine = everywhere[page_of_read_level(bits, coding) == page]
        margin, nearest = one.margins(thresholds)
        expected = np.abs(mine - thresholds[:, np.newaxis]).min(axis=1)
        np.testing.assert_allclose(np.abs(margin), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(margin, one.places[nearest] - thresholds, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bits", BITS)
def test_cells_on_their_levels_are_read_right(bits) -> None:
    levels = np.arange(2**bits)
    for page in range(bits):
        found = read_cells(levels, page, ErrorFields(cell_bits=bits, sigma=0.0), tables())
        assert not found.errors.any()
        np.testing.assert_array_equal(found.bits, level_bits(bits)[:, page])
        assert np.abs(found.margins).min() == pytest.approx(0.5)


def test_the_pages_of_a_cell_see_one_threshold() -> None:
    config = ErrorFields(cell_bits=2, sigma=0.4)
    levels = np.random.default_rng(3).integers(0, 4, (50, 40))
    lower, upper = (read_cells(levels, page, config, tables(), seed=8) for page in (0, 1))
    thresholds = [
        senses(page, cell_bits=2).places - found.margins[..., np.newaxis]
        for page, found in ((0, lower), (1, upper))
    ]
    # the lower page of two bits has one read level, the upper one has two
    same = np.isclose(thresholds[0], thresholds[1]).any(axis=-1)
    assert same.all()
    again = read_cells(levels, 0, config, tables(), seed=8)
    np.testing.assert_array_equal(again.bits, lower.bits)
    assert (read_cells(levels, 0, config, tables(), seed=9).margins != lower.margins).all()


def test_charge_is_lost_in_proportion_to_the_level() -> None:
    config = ErrorFields(cell_bits=3, sigma=0.0, shift=-0.7)
    found = cell_thresholds(np.arange(8), config, np.random.default_rng(0))
    np.testing.assert_allclose(found, np.arange(8) * 0.9, atol=1e-12)


@pytest.mark.parametrize(
    ("fields", "page", "levels", "message"),
    [
        ({"sigma": (0.2, 0.3)}, 0, [0], "sigma = 0.2, 0.3"),
        ({"cell_bits": (1, 2)}, 0, [0], "cell_bits = 1, 2"),
        ({"cell_bits": 2}, 2, [0], "page: found 2"),
        ({"cell_bits": 2}, 0, [4], "levels: found 4 to 4"),
    ],
)
def test_wrong_cells_are_refused_in_one_line(fields, page, levels, message) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_cells(levels, page, ErrorFields(**fields), tables())
    assert "\n" not in str(error.value)


def test_wrong_weights_and_a_missing_table_are_refused() -> None:
    for weights in (np.zeros(3), np.zeros(0, np.uint8)):
        with pytest.raises(InputError, match="weights: found"):
            WeightCells.of(weights, 1)
    with pytest.raises(InputError, match="'page_read'; loaded: none"):
        read_cells([0], 0, ErrorFields(), {})
