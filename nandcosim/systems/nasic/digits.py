"""Weights as digits of units, inputs as levels of cycles, and the numbers put together again.

A unit is the smallest group of cells that carries a signed digit: a pair of binary cells in
Base and T1 (-1, 0, 1), the eight cells of four strings and their dual block with T2 and T3
(-2 (m - 1) to 2 (m - 1)). Its halves are on bitlines of their own, each with a converter. A
weight is a sum of digits times powers of a radix. The radix is the smallest that reaches every
weight: the number of units is the same for any, and an error of the upper unit counts as many
times as the radix. An input is two's complement bit by bit, or,
with more levels than two, unsigned digits of the input plus an offset, as a source line knows
no sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.encodings import STRINGS
from nandcosim.errors import InputError
from nandcosim.systems.arrays import ceil, where
from nandcosim.systems.config import SystemConfig
from nandcosim.systems.nasic.hardware import ArrayFields, PrecisionFields

__all__ = [
    "InputCode", "UnitFields", "WeightCode", "input_code", "input_cycles", "largest_digit",
    "levels", "over", "weight_code", "weight_digits",
]  # fmt: skip

Ints = NDArray[np.int64]
Config = TypeVar("Config", bound=SystemConfig)


class UnitFields(ArrayFields, PrecisionFields):
    """Techniques, states, and bits of weights and inputs."""


class WeightCode(NamedTuple):
    """Digits of one kind of weight.

    Attributes
    ----------
    largest : int
        Largest digit of a unit.
    factors : int64 ndarray (digits,)
        What a digit counts, highest first.
    limit : int
        Largest weight.
    """

    largest: int
    factors: Ints
    limit: int

    @classmethod
    def of(cls, point: UnitFields) -> WeightCode:
        """That of one configuration."""
        bits = point.weight_bits
        assert isinstance(bits, int)
        return weight_code(int(largest_digit(point)), int(weight_digits(point)), bits)

    @property
    def states(self) -> int:
        """States of a cell."""
        return self.pairs // STRINGS + 1 if self.gain == 2 else 2

    @property
    def gain(self) -> int:
        """String currents by which the halves of a unit differ for a digit of 1."""
        return 1 if self.largest == 1 else 2

    @property
    def pairs(self) -> int:
        """Pairs of string and pulse that conduct in a half at most."""
        return self.gain * self.largest

    def halves(self, digits: NDArray[np.integer]) -> Ints:
        """Pairs that conduct in either half of a unit, shape (2, ...)."""
        both = np.stack([digits, -digits])
        return np.maximum(both, 0) if self.gain == 1 else self.largest + both

    def split(self, weights: NDArray[np.integer]) -> Ints:
        """Digits of integers, shape (digits, ...).

        Raises
        ------
        InputError
            If a weight is outside plus and minus `limit`.
        """
        rest = _within(weights, -self.limit, self.limit, "weights")
        digits = np.empty((self.factors.size, *rest.shape), dtype=np.int64)
        for i, factor in enumerate(self.factors):
            nearest = (2 * rest + factor) // (2 * factor)
            digits[i] = np.clip(nearest, -self.largest, self.largest)
            rest = rest - digits[i] * factor
        return digits

    def shares(self) -> NDArray[np.float64]:
        """How often each digit has each value, all weights alike: (digits, 2 largest + 1)."""
        found = self.split(np.arange(-self.limit, self.limit + 1)) + self.largest
        count = np.stack([np.bincount(each, minlength=2 * self.largest + 1) for each in found])
        return np.asarray(count / found.shape[1])


class InputCode(NamedTuple):
    """Cycles of one kind of input.

    Attributes
    ----------
    levels : int
    factors : int64 ndarray (cycles,)
        What a level counts, highest first; the first bit of two's complement is negative.
    offset : int
        Added to an input before it is split.
    low, high : int
        Smallest and largest input.
    """

    levels: int
    factors: Ints
    offset: int
    low: int
    high: int

    @classmethod
    def of(cls, point: UnitFields) -> InputCode:
        """That of one configuration."""
        bits = point.input_bits
        assert isinstance(bits, int)
        return input_code(int(levels(point)), int(input_cycles(point)), bits)

    def split(self, x: NDArray[np.integer]) -> Ints:
        """Levels of integers, shape (cycles, ...).

        Raises
        ------
        InputError
            If an input is outside `low` and `high`.
        """
        code = _within(x, self.low, self.high, "inputs") + self.offset
        code = code % self.levels**self.factors.size  # two's complement
        return np.stack([code // abs(factor) % self.levels for factor in self.factors])

    def shares(self) -> NDArray[np.float64]:
        """How often each cycle has each level, all inputs alike: (cycles, levels)."""
        found = self.split(np.arange(self.low, self.high + 1))
        count = np.stack([np.bincount(each, minlength=self.levels) for each in found])
        return np.asarray(count / found.shape[1])


def weight_code(largest: int, digits: int, bits: int) -> WeightCode:
    """The smallest radix with which digits up to `largest` reach plus and minus 2**(bits-1) - 1.

    Raises
    ------
    InputError
        If a weight has a single bit.
    """
    if bits < 2:
        raise InputError(f"array: weight_bits = {bits}, allowed: 2 or more, sign and magnitude")
    limit = 2 ** (bits - 1) - 1
    powers = np.arange(digits - 1, -1, -1)
    radix = 1
    while largest * int((radix**powers).sum()) < limit:
        radix += 1
    return WeightCode(largest, radix**powers, limit)


def input_code(levels: int, cycles: int, bits: int) -> InputCode:
    """Two's complement bits for two levels; for more, digits of the input plus half its range."""
    half = 2 ** (bits - 1)
    factors = levels ** np.arange(cycles - 1, -1, -1)
    if levels == 2:
        factors[0] *= -1
        return InputCode(levels, factors, 0, -half, half - 1)
    return InputCode(levels, factors, half, -half, half - 1)


# ---------------------------------------------------------------- of a configuration


def largest_digit(config: ArrayFields) -> xr.DataArray:
    """Largest digit of a unit: 1, 2 with T2, 2 (m - 1) with T3 (Fig. 6 and 7).

    Raises
    ------
    InputError
        If T2 is to use another number of strings than `nandcosim.encodings` knows.
    """
    technique = config.array("technique")
    other = (config.array("strings") != STRINGS) & technique.isin(["t1t2", "t1t2t3"])
    if other.any():
        raise InputError(f"array: strings = {config.strings}, allowed with T2: {STRINGS}")
    multistate = where(technique == "t1t2t3", 2 * (config.array("states") - 1), 2)
    return where(technique.isin(["base", "t1"]), 1, multistate)


def levels(config: UnitFields) -> xr.DataArray:
    """Input levels of a cycle: 2, or those of the source line with T2."""
    return where(config.array("technique").isin(["base", "t1"]), 2, config.array("input_levels"))


def weight_digits(config: UnitFields) -> xr.DataArray:
    """Units of a weight: weight_bits over the bits of a unit's 2 largest + 1 values, rounded up."""
    return _places(config.array("weight_bits"), 2 * largest_digit(config) + 1)


def input_cycles(config: UnitFields) -> xr.DataArray:
    """Cycles of an input: input_bits over the bits of a level, rounded up."""
    return _places(config.array("input_bits"), levels(config))


def over(config: Config, names: Sequence[str], make: Callable[[Config], xr.Dataset]) -> xr.Dataset:
    """What `make` says of each point of the axes among `names`, along them; NaN where not alike."""
    axes = [name for name in names if name in config.axes]
    if not axes:
        return make(config)
    first, values = axes[0], config.axes[axes[0]]
    parts = [over(config.model_copy(update={first: v}), axes[1:], make) for v in values]
    whole: xr.Dataset = xr.concat(parts, dim=xr.Variable(first, list(values)), join="outer")
    return whole


def _places(bits: xr.DataArray, values: xr.DataArray) -> xr.DataArray:
    # a whole number of places is not to be one more by rounding
    return ceil(bits / np.log2(values) - 1e-9).astype(int)


def _within(values: NDArray[np.integer], low: int, high: int, what: str) -> Ints:
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise InputError(f"array: {what} of type {values.dtype}, allowed: integers")
    if values.size and (values.min() < low or values.max() > high):
        found = values.min() if values.min() < low else values.max()
        raise InputError(f"array: {what}: found {found}, allowed: {low} to {high}")
    return values.astype(np.int64)
