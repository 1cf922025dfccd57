"""INT8 matrices: one scale an output row, activations one scale a token, exact sums.

Both scales are symmetric: a number is its integer, -127 to 127, times the scale. The sums
are the engine's: whole numbers in 32 bits, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nandcosim.systems.nvllm.transformer import Floats

__all__ = [
    "Activations",
    "Int8Matrix",
    "exact_product",
    "quantise_rows",
    "quantise_tokens",
]

#: What an engine multiplies weights by (NVLLM section 3.2: INT8, or mixed precision).
Activations = Literal["int8", "float"]

_LARGEST = 127
#: float32 has every whole number up to here; 128 is the largest that a bit error can make
#: of a weight.
_EXACT = 2**24
_BLOCK = _EXACT // (_LARGEST * (_LARGEST + 1))


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix as it is stored, and its product with activations.

    Attributes
    ----------
    values : ndarray of int8, (outputs, inputs)
    scales : ndarray of float32, (outputs,)
        Exactly representable in 16 bits (float16).
    activations : {"int8", "float"}
        Whether activations are quantised too.
    """

    values: NDArray[np.int8]
    scales: Floats
    activations: Activations = "int8"

    def __call__(self, x: Floats) -> Floats:
        """(..., inputs) -> (..., outputs)."""
        flat = x.reshape(-1, x.shape[-1])
        if self.activations == "int8":
            quantised, token_scales = quantise_tokens(flat)
            y = exact_product(quantised, self.values).astype(np.float32) * token_scales[:, None]
        else:
            y = flat @ self.values.astype(np.float32).T
        return (y * self.scales).reshape(*x.shape[:-1], -1)


def quantise_rows(weights: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Integers and scales of a matrix (outputs, inputs).

    The scale of a row is its largest magnitude / 127, kept in 16 bits.
    """
    largest = np.abs(weights).max(axis=1)
    scales = (np.where(largest > 0, largest, 1) / _LARGEST).astype(np.float16).astype(np.float32)
    rounded = np.rint(weights / scales[:, None])
    return np.clip(rounded, -_LARGEST, _LARGEST).astype(np.int8), scales


def quantise_tokens(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Integers and scales of activations (tokens, inputs), each token by its largest value."""
    largest = np.abs(x).max(axis=1)
    scales = np.where(largest > 0, largest, 1).astype(np.float32) / np.float32(_LARGEST)
    return np.rint(x / scales[:, None]).astype(np.int8), scales


def exact_product(a: NDArray[np.int8], w: NDArray[np.int8]) -> NDArray[np.int32]:
    """a wᵀ of whole numbers, (tokens, inputs) and (outputs, inputs) -> (tokens, outputs).

    Multiplied in float32, which BLAS is fast at, in blocks of inputs so short that no sum
    leaves the whole numbers float32 has: exact in any order of summation.

    Parameters
    ----------
    a : ndarray of int8
        Activations, -127 to 127.
    w : ndarray of int8
        Weights, any.
    """
    total = np.zeros((len(a), len(w)), np.int32)
    for start in range(0, a.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        total += (a[:, part].astype(np.float32) @ w[:, part].astype(np.float32).T).astype(np.int32)
    return total
