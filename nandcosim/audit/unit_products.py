"""Products that the units of an MoE layer form in a run, and what the table-driven model says.

A unit multiplies one digit of a weight by one level of an input, in the cycle in which the
router searches for some expert. Interleaved experts lie on the same bitlines: an expert is
stored, another one or the same is searched for, both alike for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from nandcosim.encodings import layer_codes, parse_layers
from nandcosim.errors import InputError
from nandcosim.systems.nasic.currents import CurrentFields, StringCurrents
from nandcosim.systems.nasic.digits import InputCode, WeightCode

__all__ = [
    "BEYOND",
    "BINS",
    "MATCH",
    "NEIGHBOUR",
    "UnitProducts",
    "bins_of",
    "cam_layers",
    "draw_products",
    "integer_weights",
    "random_weights",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How the expert searched for compares with the one stored: the same; one code apart in one
#: CAM cell and alike in the others, which is the model's mismatch; farther.
MATCH, NEIGHBOUR, BEYOND = 0, 1, 2

#: Size of a product at an input above 0: weight 0, and thirds of the largest product.
BINS = ("W = 0", "small", "medium", "large")

#: Largest weight and input over the standard deviation of random ones: assumed, as absolute
#: maxima scale weights of a column (a few thousand) and activations of a token.
_WEIGHT_RANGE, _INPUT_RANGE = 3.0, 4.0


@dataclass(frozen=True, eq=False)
class UnitProducts:
    """Products of units, each array of shape (n,).

    Attributes
    ----------
    weight : int array
        Digit that the unit stores.
    level : int array
        Of the source line.
    entry, query : int array
        Expert stored and expert searched for.
    group : int array
        `MATCH`, `NEIGHBOUR` or `BEYOND`.
    mean, sd : float array
        Of the product by the model, in units of one product of weight 1 and level 1 (LSB).
    """

    weight: Ints
    level: Ints
    entry: Ints
    query: Ints
    group: Ints
    mean: Floats
    sd: Floats

    @property
    def ideal(self) -> Ints:
        """The integer that is meant: M x W."""
        return np.where(self.group == MATCH, self.weight * self.level, 0)

    @property
    def wrong(self) -> Floats:
        """Probability that the product rounds to another integer, by the model."""
        off = self.ideal - self.mean
        with np.errstate(divide="ignore", invalid="ignore"):
            right = ndtr((off + 0.5) / self.sd) - ndtr((off - 0.5) / self.sd)
        return np.where(self.sd > 0, 1 - right, np.abs(off) > 0.5)

    def take(self, rows: Ints) -> UnitProducts:
        """Those of some rows."""
        return UnitProducts(*(each[rows] for each in vars(self).values()))


def cam_layers(experts: int, cam_bits: int, given: str = "") -> str:
    """CAM cells that tell so many experts apart, as the circuit names them.

    Parameters
    ----------
    experts : int
        Interleaved on the same bitlines.
    cam_bits : int
        Of each of as many cells as it takes.
    given : str
        Bits of every cell, instead; empty: by `cam_bits`.

    Raises
    ------
    InputError
        If those given are too few or no cells.
    """
    if not given:
        return "+".join([str(cam_bits)] * max(1, ceil(log2(experts) / cam_bits)))
    try:
        codes = 2 ** sum(parse_layers(given))
    except ValueError as error:
        raise InputError(f"audit: cam_layers: {error}") from None
    if codes < experts:
        raise InputError(f"audit: cam_layers = {given}, allowed: bits for {experts} experts")
    return given


def random_weights(bits: int, count: int, rng: np.random.Generator) -> Ints:
    """Normal weights, of which 3 standard deviations are the largest."""
    return _rounded_normal(2 ** (bits - 1) - 1, _WEIGHT_RANGE, count, rng)


def integer_weights(weights: ArrayLike, bits: int) -> Ints:
    """Weights as the integers that are stored.

    Parameters
    ----------
    weights : array_like (..., inputs, outputs)
        Integers as they are; floats are scaled for every output by its largest.
    bits : int

    Raises
    ------
    InputError
        If there are none, or no numbers, or integers beyond plus and minus 2**(bits-1) - 1.
    """
    given, limit = np.asarray(weights), 2 ** (bits - 1) - 1
    if given.dtype.kind not in "iuf" or not given.size or not np.isfinite(given).all():
        raise InputError(
            f"audit: weights of type {given.dtype} and shape {given.shape}, allowed: finite numbers"
        )
    if given.dtype.kind != "f":
        if np.abs(given.astype(np.int64)).max() > limit:
            raise InputError(
                f"audit: weights {given.min()} .. {given.max()}, allowed: {-limit} .. {limit} "
                f"of {bits} bits, or floats, which are scaled"
            )
        return _whole(given)
    largest = np.abs(given).max(axis=-2 if given.ndim > 1 else 0, keepdims=True)
    return _whole(given / np.where(largest > 0, largest, 1) * limit)


def draw_products(
    weights: Ints,
    config: CurrentFields,
    currents: StringCurrents,
    layers: str,
    count: int,
    rng: np.random.Generator,
) -> UnitProducts:
    """Products as they occur: any unit of any weight, any cycle of an input, any search.

    Parameters
    ----------
    weights : int array
        Drawn from with repetition.
    config : CurrentFields
        Without axes.
    currents : StringCurrents
        Of `config`.
    layers : str
        CAM layers as the circuit names them.
    count : int
    rng : Generator
    """
    stored = rng.choice(weights.ravel(), count)
    weight_code, input_code = WeightCode.of(config), InputCode.of(config)
    weight = _any_place(weight_code.split(stored), rng)
    x = _rounded_normal(input_code.high, _INPUT_RANGE, count, rng)
    level = _any_place(input_code.split(x), rng)
    experts: Any = config.interleave
    entry, query = rng.integers(0, experts, (2, count))
    codes = layer_codes(np.stack([entry, query]), parse_layers(layers))
    group = np.minimum(np.abs(codes[0] - codes[1]).sum(axis=-1), BEYOND)
    means, sds = _model(currents, weight_code)
    at = (np.minimum(group, 1), weight + weight_code.largest, level)
    return UnitProducts(weight, level, entry, query, group, means[at], sds[at])


def bins_of(weight: Ints, level: Ints, largest: int) -> Ints:
    """Which of `BINS` the size of each product is in; `largest`: the largest there is."""
    return _whole(np.ceil(3 * np.abs(weight * level) / largest))


def _model(currents: StringCurrents, code: WeightCode) -> tuple[Floats, Floats]:
    """Mean and standard deviation of a unit by (match or not, weight, level)."""
    first, second = code.halves(np.arange(-code.largest, code.largest + 1))

    def halves(values: xr.DataArray) -> tuple[Floats, Floats]:
        table = values.transpose("pairs", "level").values
        return table[first], table[second]

    means = [np.subtract(*halves(each)) for each in (currents.mean, currents.leak)]
    sds = [np.hypot(*halves(each)) for each in (currents.sd, currents.leak_sd)]
    return np.stack(means) / code.gain, np.stack(sds) / code.gain


def _any_place(digits: Ints, rng: np.random.Generator) -> Ints:
    """One digit of each number, digits (places, n)."""
    places, count = digits.shape
    return np.asarray(digits[rng.integers(0, places, count), np.arange(count)])


def _rounded_normal(limit: int, deviations: float, count: int, rng: np.random.Generator) -> Ints:
    drawn = rng.standard_normal(count) * limit / deviations
    return _whole(np.clip(drawn, -limit, limit))


def _whole(values: NDArray[Any]) -> Ints:
    return np.asarray(np.rint(values), dtype=np.int64)
