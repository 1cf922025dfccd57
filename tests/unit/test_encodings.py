"""Encodings against integer arithmetic and the paper's counts of levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.encodings import (
    INPUTS,
    cam_cell,
    complement,
    conducts,
    layer_codes,
    mask,
    parse_layers,
    product,
    string_states,
    weights,
)

LAYERS = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(LAYERS)
def test_mask_is_equality_of_identifiers(layers) -> None:
    codes = np.arange(min(2 ** sum(layers), 256))
    found = mask(codes[:, np.newaxis], codes, layers)
    np.testing.assert_array_equal(found, codes[:, np.newaxis] == codes)


@given(LAYERS)
def test_layer_codes_are_the_digits_of_the_identifier(layers) -> None:
    codes = np.arange(2 ** sum(layers))
    digits = layer_codes(codes, layers)
    assert digits.shape == (codes.size, len(layers))
    assert (digits < 2 ** np.array(layers)).all()
    value = np.zeros_like(codes)
    for place, bits in enumerate(layers):
        value = value * 2**bits + digits[:, place]
    np.testing.assert_array_equal(value, codes)


def test_one_transistor_of_a_cell_is_not_enough() -> None:
    """The first alone passes every query from the entry up, the second every one up to it."""
    codes = np.arange(4)
    on = cam_cell(codes, 2) >= cam_cell(codes, 2)[:, np.newaxis]  # entry, query, transistor
    np.testing.assert_array_equal(on[..., 0], codes >= codes[:, np.newaxis])
    np.testing.assert_array_equal(on[..., 1], codes <= codes[:, np.newaxis])


@pytest.mark.parametrize(("states", "levels"), [(2, 5), (3, 9), (4, 13), (8, 29)])
def test_number_of_weights_is_the_paper_s(states, levels) -> None:
    assert weights(states).size == levels


@pytest.mark.parametrize("states", range(2, 9))
def test_product_is_that_of_integers(states) -> None:
    weight, x = weights(states)[:, np.newaxis], np.array(INPUTS["unsigned"])
    np.testing.assert_array_equal(product(weight, x, states), weight * x)


@pytest.mark.parametrize("states", range(2, 9))
def test_each_weight_is_one_conducting_pair_more(states) -> None:
    stored = string_states(weights(states), states)
    assert stored.min() == 0
    assert stored.max() == states - 1
    pairs = conducts(stored, states).sum(axis=(-2, -1))
    np.testing.assert_array_equal(pairs, np.arange(4 * (states - 1) + 1))
    assert np.ptp(stored, axis=-1).max() == 1
    dual = conducts(complement(stored, states), states).sum(axis=(-2, -1))
    np.testing.assert_array_equal(pairs + dual, 4 * (states - 1))


def test_both_kinds_of_digit_step_by_one() -> None:
    for levels in INPUTS.values():
        assert np.diff(levels).tolist() == [1, 1, 1]


@pytest.mark.parametrize("text", ["", "5", "0", "1+", "1,2", "a"])
def test_wrong_layers_are_named(text) -> None:
    with pytest.raises(ValueError, match="bits from 1 to 4 joined by"):
        parse_layers(text)
