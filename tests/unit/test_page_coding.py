"""Page codings, exhaustively: Gray's property, read levels, and decoding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.page_coding import (
    CODINGS,
    coding_name,
    data_bits,
    level_bits,
    page_names,
    page_of_read_level,
    read_levels,
    retry_offsets,
)

CELLS = [(bits, coding) for bits in (1, 2, 3, 4) for coding in CODINGS]


def ideal_senses(bits: int) -> np.ndarray:
    """What a cell of every level gives at every read level: 1 below it."""
    return (np.arange(2**bits)[:, np.newaxis] < np.arange(1, 2**bits)).astype(int)


@pytest.mark.parametrize(("bits", "coding"), CELLS)
def test_neighbouring_levels_differ_in_one_bit_and_all_levels_differ(bits, coding) -> None:
    code = level_bits(bits, coding)
    assert (np.abs(np.diff(code, axis=0)).sum(axis=1) == 1).all()
    assert len(set(map(tuple, code))) == 2**bits
    assert (code[0] == 1).all()


@pytest.mark.parametrize(("bits", "coding"), CELLS)
def test_a_page_s_read_levels_are_where_its_bit_flips(bits, coding) -> None:
    code = level_bits(bits, coding)
    for page in range(bits):
        flips = [n for n in range(1, 2**bits) if code[n, page] != code[n - 1, page]]
        assert read_levels(bits, page, coding).tolist() == flips
    every = np.concatenate([read_levels(bits, page, coding) for page in range(bits)])
    assert sorted(every) == list(range(1, 2**bits))


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_reflected_code_is_the_binary_reflected_one(bits) -> None:
    """Level r has the Gray word r xor r / 2, inverted; page 0 is its highest bit."""
    words = [level ^ (level >> 1) for level in range(2**bits)]
    expected = [[1 - (word >> (bits - 1 - page) & 1) for page in range(bits)] for word in words]
    assert level_bits(bits, "reflected").tolist() == expected


@pytest.mark.parametrize(
    ("bits", "coding", "name"),
    [
        (1, "reflected", "1"),
        (2, "reflected", "1-2"),
        (3, "reflected", "1-2-4"),
        (4, "reflected", "1-2-4-8"),
        (1, "balanced", "1"),
        (2, "balanced", "1-2"),
        (3, "balanced", "2-3-2"),
        (4, "balanced", "4-4-3-4"),
    ],
)
def test_senses_of_the_pages(bits, coding, name) -> None:
    assert coding_name(bits, coding) == name
    assert len(page_names(bits)) == bits


def test_balanced_code_of_four_bits_spreads_its_read_levels_most_evenly() -> None:
    """Against all Gray codes that start at 1111 and have 4-4-3-4 senses, made here."""

    def codes(path: tuple[int, ...], words: tuple[int, ...]):
        if len(path) == 15:
            yield path
            return
        for page in range(4):
            word = words[-1] ^ (1 << page)
            if word not in words and path.count(page) < (4, 4, 3, 4)[page]:
                yield from codes((*path, page), (*words, word))

    def unevenness(path: tuple[int, ...]) -> int:
        places = [[n for n, each in enumerate(path) if each == page] for page in range(4)]
        return sum((b - a) ** 2 for at in places for a, b in itertools.pairwise(at))

    best = min(codes((), (15,)), key=lambda path: (unevenness(path), path))
    assert tuple(page_of_read_level(4, "balanced")) == best


@pytest.mark.parametrize(("bits", "coding"), CELLS)
def test_ideal_senses_decode_to_the_level_s_bits(bits, coding) -> None:
    assert (data_bits(ideal_senses(bits), bits, coding) == level_bits(bits, coding)).all()


@pytest.mark.parametrize(("bits", "coding"), CELLS)
def test_one_wrong_sense_is_one_wrong_bit_of_its_page(bits, coding) -> None:
    right = level_bits(bits, coding)
    for n, page in enumerate(page_of_read_level(bits, coding)):
        senses = ideal_senses(bits)
        senses[:, n] = 1 - senses[:, n]
        wrong = data_bits(senses, bits, coding) != right
        assert wrong[:, page].all()
        assert wrong.sum() == 2**bits


def test_retry_table_is_proportional_to_the_place_of_the_read_level() -> None:
    table = retry_offsets(4, np.arange(3), 0.1)
    assert table.shape == (3, 15)
    assert (table[0] == 0).all()
    # the boundary below the top level is half a level below its place
    assert table[1, -1] == pytest.approx(-0.1 * 14.5 / 15)
    assert table[2] == pytest.approx(2 * table[1])
    assert table[1] / table[1, 0] == pytest.approx(2 * np.arange(1, 16) - 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: level_bits(5), r"^bits: found 5, allowed: 1, 2, 3, 4$"),
        (lambda: page_names(0), r"^bits: found 0"),
        (lambda: read_levels(3, 3), r"^page: found 3, allowed with 3 bits a cell: 0 to 2$"),
        (lambda: level_bits(4, "reflcted"), r"coding: .*did you mean 'reflected'"),
    ],
)
def test_what_does_not_exist_is_refused(call, message) -> None:
    with pytest.raises(InputError, match=message):
        call()
