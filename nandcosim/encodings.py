"""How expert identifiers, inputs and weights become states of cells, after NASiC (Fig. 4 to 7).

Pure functions of integers. The paper's figures are not in its text: the maps below follow
from what the text asks of them, and say how.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "INPUTS",
    "STRINGS",
    "cam_cell",
    "complement",
    "conducts",
    "layer_codes",
    "mask",
    "parse_layers",
    "product",
    "string_states",
    "weights",
]

Ints = NDArray[np.int_]

#: Strings of one source select line, which carry one weight together (section of Fig. 6).
STRINGS = 4

#: What the four levels of the source line stand for. The text says "signed multibit input"
#: and no more. A source line above the bitline would reverse the current, but to a fraction
#: of its size; so a signed digit is the level less an offset, and the constant offset times
#: the sum of a column's weights is taken off digitally.
INPUTS: dict[str, tuple[int, ...]] = {
    "unsigned": (0, 1, 2, 3),
    "offset": (-2, -1, 0, 1),
}

# ---------------------------------------------------------------- content-addressable memory


def parse_layers(text: str) -> tuple[int, ...]:
    """Bits of every CAM layer, from the bitline: ``"1+2"`` is a 1-bit above a 2-bit layer.

    Raises
    ------
    ValueError
        If it is no sum of numbers from 1 to 4.
    """
    parts = text.split("+")
    if not all(part.strip() in ("1", "2", "3", "4") for part in parts):
        raise ValueError(f"layers = {text!r}: expected bits from 1 to 4 joined by +, as in 1+2")
    return tuple(map(int, parts))


def layer_codes(code: ArrayLike, layers: Sequence[int]) -> Ints:
    """Split an identifier over CAM layers, most significant bits first.

    Parameters
    ----------
    code : array_like of int
    layers : sequence of int
        Bits of every layer.

    Returns
    -------
    ndarray of int, shape (..., layers)
    """
    below = np.cumsum([0, *layers[::-1]])[:-1][::-1]
    digits = np.asarray(code)[..., np.newaxis] >> below
    return np.asarray(digits & (2 ** np.asarray(layers) - 1))


def cam_cell(code: ArrayLike, bits: ArrayLike) -> Ints:
    """Levels of the two transistors of a CAM cell, stored or searched, shape (..., 2).

    Derived. The first holds the code, the second its complement 2**bits - 1 - code. A
    transistor conducts when its search level is not below its stored one, so the first asks
    query >= entry and the second query <= entry: both together, that they are equal.
    """
    code = np.asarray(code)
    return np.stack([code, 2 ** np.asarray(bits) - 1 - code], axis=-1)


def mask(entry: ArrayLike, query: ArrayLike, layers: Sequence[int]) -> NDArray[np.bool_]:
    """Whether every transistor of every CAM layer conducts, by the levels of `cam_cell`.

    Parameters
    ----------
    entry, query : array_like of int
        Identifiers; they broadcast.
    layers : sequence of int
        Bits of every layer.
    """
    bits = np.asarray(layers)
    stored = cam_cell(layer_codes(entry, layers), bits)
    searched = cam_cell(layer_codes(query, layers), bits)
    return np.asarray((searched >= stored).all(axis=(-2, -1)))


# ---------------------------------------------------------------- weights


def weights(states: int) -> Ints:
    """Weights of a unit of m-state cells, -2 (m - 1) to 2 (m - 1)."""
    largest = 2 * (states - 1)
    return np.arange(-largest, largest + 1)


def string_states(weight: ArrayLike, states: int) -> Ints:
    """State of the cell in each of the four strings of block A, shape (..., 4).

    A cell in state s conducts in the pulses j > s of 1 to m - 1. The weight counts them: n =
    weight + 2 (m - 1) conducting pairs of string and pulse. Derived: n is spread evenly, so
    that the states of a weight differ by one at most.
    """
    count = np.asarray(weight)[..., np.newaxis] + 2 * (states - 1)
    pulses = count // STRINGS + (np.arange(STRINGS) < count % STRINGS)
    return states - 1 - pulses


def complement(stored: ArrayLike, states: int) -> Ints:
    """States of the dual block: it conducts where the first one does not."""
    return states - 1 - np.asarray(stored)


def conducts(stored: ArrayLike, states: int) -> NDArray[np.bool_]:
    """Whether a cell conducts in each of the m - 1 pulses, shape (..., m - 1)."""
    return np.arange(1, states) > np.asarray(stored)[..., np.newaxis]


def product(weight: ArrayLike, x: ArrayLike, states: int) -> Ints:
    """Signed product as the unit forms it: conducting pairs of block A less those of B, halved.

    Parameters
    ----------
    weight : array_like of int
    x : array_like of int
        Input; broadcasts with `weight`.
    states : int

    Returns
    -------
    ndarray of int
    """
    block_a = string_states(weight, states)
    pairs_a = conducts(block_a, states).sum(axis=(-2, -1))
    pairs_b = conducts(complement(block_a, states), states).sum(axis=(-2, -1))
    return np.asarray((pairs_a - pairs_b) // 2 * np.asarray(x))
