"""Weights and inputs as digits, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.encodings import STRINGS, conducts, string_states
from nandcosim.errors import InputError
from nandcosim.systems.nasic.digits import (
    InputCode,
    UnitFields,
    WeightCode,
    input_cycles,
    largest_digit,
    weight_code,
    weight_digits,
)

POINTS = st.builds(
    UnitFields,
    technique=st.sampled_from(["base", "t1", "t1t2", "t1t2t3"]),
    states=st.integers(2, 8),
    weight_bits=st.integers(2, 9),
    input_bits=st.integers(1, 9),
    input_levels=st.integers(2, 4),
)


@given(POINTS)
def test_every_weight_comes_back(point: UnitFields) -> None:
    code = WeightCode.of(point)
    weights = np.arange(-code.limit, code.limit + 1)
    digits = code.split(weights)
    assert (code.factors @ digits == weights).all()
    assert abs(digits).max() <= code.largest
    assert code.limit == 2 ** (point.weight_bits - 1) - 1


@given(POINTS)
def test_every_input_comes_back(point: UnitFields) -> None:
    code = InputCode.of(point)
    x = np.arange(code.low, code.high + 1)
    levels = code.split(x)
    assert (code.factors @ levels - code.offset == x).all()
    assert levels.min() >= 0
    assert levels.max() < code.levels
    assert code.high - code.low + 1 == 2**point.input_bits


@given(POINTS)
def test_no_smaller_radix_reaches_every_weight(point: UnitFields) -> None:
    code = WeightCode.of(point)
    radix = round((code.factors[0]) ** (1 / max(code.factors.size - 1, 1)))
    if code.factors.size > 1 and radix > 1:
        reached = code.largest * sum((radix - 1) ** i for i in range(code.factors.size))
        assert reached < code.limit


@given(POINTS)
def test_counts_are_those_of_bits_over_the_bits_of_a_digit(point: UnitFields) -> None:
    values = 2 * int(largest_digit(point)) + 1
    digits = int(weight_digits(point))
    assert values**digits >= 2**point.weight_bits > values ** (digits - 1)
    levels = 2 if point.technique in ("base", "t1") else point.input_levels
    cycles = int(input_cycles(point))
    assert levels**cycles >= 2**point.input_bits > levels ** (cycles - 1)


@pytest.mark.parametrize("states", [2, 3, 4, 8])
def test_halves_are_the_conducting_pairs_of_the_encoding(states: int) -> None:
    code = WeightCode.of(UnitFields(states=states))
    digits = np.arange(-code.largest, code.largest + 1)
    pairs = conducts(string_states(digits, states), states).sum(axis=(-2, -1))
    assert (code.halves(digits)[0] == pairs).all()
    assert (code.halves(digits).sum(axis=0) == STRINGS * (states - 1)).all()
    assert code.states == states


def test_shares_count_every_value_once() -> None:
    point = UnitFields(technique="t1t2", weight_bits=4, input_bits=8)
    assert np.allclose(WeightCode.of(point).shares().sum(axis=1), 1)
    # four digits of base four hold eight bits: every level a quarter of the time
    assert np.allclose(InputCode.of(point).shares(), 0.25)


def test_base_holds_a_weight_as_sign_and_magnitude() -> None:
    code = WeightCode.of(UnitFields(technique="base", weight_bits=4))
    assert code.factors.tolist() == [4, 2, 1]
    assert math.prod(code.shares().shape) == 9


@pytest.mark.parametrize(
    ("values", "text"),
    [(np.array([8]), "weights: found 8"), (np.array([0.5]), "type float64")],
)
def test_refuses_what_is_no_weight(values: np.ndarray, text: str) -> None:
    with pytest.raises(InputError, match=text):
        WeightCode.of(UnitFields()).split(values)


def test_refuses_a_weight_of_one_bit_and_other_strings() -> None:
    with pytest.raises(InputError, match="weight_bits = 1"):
        weight_code(1, 1, 1)
    with pytest.raises(InputError, match="strings = 8"):
        largest_digit(UnitFields(strings=8))
