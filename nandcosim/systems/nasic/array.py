"""The array as a multiplier: y = M (x W) of integers, with what currents and converters do to it.

Weights become digits of units and inputs levels of cycles (`digits`). In a cycle N rows are added
on the bitlines of both halves of every digit; each sum is converted, and digits, halves and
cycles are put together digitally (Fig. 4 to 7). Under T1 the row groups of an expert lie side by
side in blocks of their own: those of position p in region g are the block set (p + g) mod I. All
sets get inputs at once, so a mismatched expert of another position leaks with the inputs of
another row group.

``cells`` draws every half's current error once and converts every sum. ``moments`` has one error a
weight that stands for all of its cells, and one noise an output that stands for conversions
and leakage (`array_errors`): two matrix products, whatever the number of cycles and digits. Its
converters do not clip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.nasic.array_errors import (
    ReadoutFields,
    conversion,
    error_statistics,
    leaks,
)
from nandcosim.systems.nasic.currents import StringCurrents
from nandcosim.systems.nasic.digits import InputCode, WeightCode

__all__ = [
    "Mode", "ReadoutFields", "Statistics", "error_statistics", "multiply", "noisy_linear",
    "row_statistics",
]  # fmt: skip

Mode = Literal["cells", "moments"]
#: Errors of a partial sum by rows and regions.
Statistics = Callable[[int, int], xr.Dataset]
Floats = NDArray[np.float64]
Ints = NDArray[Any]


def multiply(
    x: NDArray[np.integer],
    weights: NDArray[np.integer],
    config: ReadoutFields,
    currents: StringCurrents,
    *,
    selected: NDArray[np.integer] | None = None,
    seed: int = 0,
    mode: Mode = "cells",
) -> Floats:
    """Multiply integers by a matrix as the array does.

    Exact, to the last bit, for currents of `currents.ideal` and converters with a step of one
    string's current that do not clip.

    Parameters
    ----------
    x : integer ndarray (samples, D)
        Signed, of ``input_bits``.
    weights : integer ndarray (D, columns) or (experts, D, columns)
        Up to plus and minus 2**(weight_bits - 1) - 1. Experts are interleaved in their order.
        Of a single one the others on its bitlines are drawn at random.
    config : ReadoutFields
        One point.
    currents : StringCurrents
        Of that point.
    selected : integer ndarray (samples,), optional
        Expert of each sample, by default the first.
    seed : int
        Of the errors; the same cells err alike whatever the inputs.
    mode : {"cells", "moments"}

    Returns
    -------
    float64 ndarray (samples, columns)

    Raises
    ------
    InputError
        If an array has the wrong shape, type or range, or `config` is no single point.
    """
    _check_point(config)
    experts = np.asarray(weights)
    experts = experts[np.newaxis] if experts.ndim == 2 else experts
    chosen = np.zeros(len(x), dtype=np.int64) if selected is None else np.asarray(selected)
    _check_shapes(x, experts, chosen)
    here = currents.at(config)
    statistics = row_statistics(config, here)
    result = np.empty((len(x), experts.shape[-1]))
    for expert in np.unique(chosen):
        asked = chosen == expert
        if mode == "moments":
            rng = _rng(seed, int(expert))
            collapsed = _Collapsed.of(experts[expert], config, here, rng, statistics)
            result[asked] = collapsed(x[asked])
        else:
            result[asked] = _by_cells(x[asked], experts, int(expert), config, here, seed)
    return result


def row_statistics(config: ReadoutFields, currents: StringCurrents) -> Statistics:
    """`error_statistics` of a point by rows and regions, worked out once for each pair.

    Matrices of one size share them, so `noisy_linear` of many of them may be given one.
    """

    @cache
    def of(rows: int, regions: int) -> xr.Dataset:
        return error_statistics(config, currents, xr.DataArray(rows), xr.DataArray(regions))

    return of


def noisy_linear(
    weights: NDArray[Any],
    config: ReadoutFields,
    currents: StringCurrents,
    seed: int = 0,
    statistics: Statistics | None = None,
) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
    """A matrix in the array, as a function of activations; in the mode ``moments``.

    Weights are quantised to ``weight_bits`` by the largest of each column, activations to
    ``input_bits`` by the largest of each token. Current errors are drawn here, once.

    Parameters
    ----------
    weights : ndarray (D, columns)
        Floating point, or integers that it scales alike.
    config : ReadoutFields
        One point.
    currents : StringCurrents
        Of that point.
    seed : int
    statistics : callable, optional
        Of `row_statistics`, for the same point.

    Returns
    -------
    callable
        From activations (..., D) to float32 outputs (..., columns).

    Raises
    ------
    InputError
        As `multiply`.
    """
    _check_point(config)
    limit = WeightCode.of(config).limit
    largest_input = InputCode.of(config).high
    scale = _scale(np.asarray(weights, dtype=np.float32), 0, limit)
    whole = np.rint(weights / scale).astype(np.int64)
    here = currents.at(config)
    statistics = statistics or row_statistics(config, here)
    collapsed = _Collapsed.of(whole, config, here, _rng(seed), statistics)

    def linear(activations: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.asarray(activations, dtype=np.float32).reshape(-1, len(whole))
        step = _scale(rows, 1, largest_input)
        y = collapsed(np.rint(rows / step).astype(np.int64)) * step * scale
        return np.asarray(y, np.float32).reshape(*np.shape(activations)[:-1], -1)

    return linear


def _scale(values: NDArray[np.float32], axis: int, most: int) -> NDArray[np.float32]:
    """What the largest magnitude along an axis is to be divided by to become `most`."""
    largest = abs(values).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / np.float32(max(most, 1)), np.float32(1))


def _rng(seed: int, *of: int) -> np.random.Generator:
    """A stream that no ``default_rng(seed)``, from which the data may come, has in common."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*of, 0)))


def _layout(experts: Ints, config: ReadoutFields) -> _Layout:
    """Row groups as even as can be, in as many cycles as ``input_rows`` takes."""
    depth, rows = experts.shape[1], int(config.array("input_rows"))
    groups = -(-depth // rows)
    shared = len(experts) if len(experts) > 1 else groups
    most = 1 if config.technique == "base" else int(config.array("interleave"))
    regions = min(most, groups, shared)
    turns = -(-groups // regions)
    return _Layout(turns, regions, -(-depth // (turns * regions)))


class _Layout(NamedTuple):
    """Row groups: cycles one after the other, regions side by side, rows of each."""

    turns: int
    regions: int
    rows: int

    def placed(self, values: Ints) -> Ints:
        """Rows (D, ...) as (turn, region, row, ...), filled up with 0 where a group is short."""
        parts = np.array_split(values, self.turns * self.regions)
        whole = np.zeros((len(parts), self.rows, *values.shape[1:]), dtype=values.dtype)
        for filled, part in zip(whole, parts, strict=True):
            filled[: len(part)] = part
        return whole.reshape(self.turns, self.regions, *whole.shape[1:])


# ---------------------------------------------------------------- cell by cell


class _Converter(NamedTuple):
    """Rounds sums to its steps, within its codes."""

    step: float
    low: Floats
    codes: int
    noise: float

    @classmethod
    def of(cls, config: ReadoutFields, rows: int) -> _Converter:
        at = conversion(config, xr.DataArray(rows))
        codes = 2 ** int(config.array("adc_bits")) - 1
        return cls(float(at["step"]), at["low"].values, codes, float(config.array("adc_noise")))

    def __call__(self, sums: Floats, cycle: int, rng: np.random.Generator) -> Floats:
        low = self.low[cycle]
        steps = (sums - low) / self.step
        if self.noise:
            steps += rng.normal(0.0, self.noise, sums.shape)
        return np.asarray(np.clip(np.rint(steps), 0, self.codes) * self.step + low)


class _Cells(NamedTuple):
    """Currents of the cells on the bitlines.

    Attributes
    ----------
    shift : int
        Regions by which the inputs of their blocks are those of another.
    current : ndarray (half, digit, turn, region, level x row, column)
        Of the levels above 0; level 0 has none.
    """

    shift: int
    current: Floats

    def sums(self, levels: Ints) -> Floats:
        """From levels (turn, region, row, sample): (half, digit, turn, region, sample, column)."""
        turned = np.roll(levels, -self.shift, axis=1)
        count = self.current.shape[-2] // levels.shape[2]
        on = np.concatenate([turned == level for level in range(1, count + 1)], axis=2)
        return np.asarray(np.swapaxes(on, -1, -2).astype(float) @ self.current)


def _by_cells(
    x: Ints,
    experts: Ints,
    expert: int,
    config: ReadoutFields,
    currents: StringCurrents,
    seed: int,
) -> Floats:
    """Outputs (samples, columns) of one expert."""
    weight_code, input_code = WeightCode.of(config), InputCode.of(config)
    depth, columns = experts.shape[1:]
    layout = _layout(experts, config)
    cells = _all_cells(experts, expert, layout, config, currents, seed)
    convert = _Converter.of(config, layout.rows)
    noise = _rng(seed, expert, 1)

    def sums(levels: Ints) -> Floats:
        return np.asarray(sum(each.sums(levels) for each in cells))

    def combined(converted: Floats) -> Floats:
        halves = np.tensordot(weight_code.factors, converted.sum(axis=(2, 3)), axes=(0, 1))
        return np.asarray((halves[0] - halves[1]) / weight_code.gain)

    y = np.zeros((len(x), columns))
    inputs = np.vstack([x, np.zeros((1, depth), dtype=x.dtype)])  # the last one is the offset
    for cycle, levels in enumerate(input_code.split(inputs)):
        factor = input_code.factors[cycle]
        found = sums(layout.placed(levels.T))
        y += factor * combined(convert(found[..., :-1, :], cycle, noise))
        if config.offset_rule == "measured":
            # the mean of many readings: neither rounding nor noise is left in it
            y -= factor * combined(found[..., -1:, :])
    if config.offset_rule == "nominal":
        y -= input_code.offset * experts[expert].sum(axis=0)
    return y


def _all_cells(
    experts: Ints,
    expert: int,
    layout: _Layout,
    config: ReadoutFields,
    currents: StringCurrents,
    seed: int,
) -> list[_Cells]:
    """Cells of the searched expert, and of those on its bitlines that leak."""
    code = WeightCode.of(config)
    levels = InputCode.of(config).levels
    regions = layout.regions
    rng = _rng(seed, expert, 0)

    def drawn(shift: int, weights: Ints, mean: xr.DataArray, sd: xr.DataArray) -> _Cells:
        pairs = code.halves(code.split(layout.placed(weights)))
        error = rng.standard_normal(pairs.shape)
        level = range(1, levels)
        parts = [_at(mean, pairs, i) + _at(sd, pairs, i) * error for i in level]
        return _Cells(shift, np.concatenate(parts, axis=-2))

    cells = [drawn(0, experts[expert], currents.mean, currents.sd)]
    if not (currents.leak.any() or currents.leak_sd.any()):
        return cells
    first = expert - expert % regions
    leak = leaks(regions, int(config.array("cam_bits")), str(config.leakage_rule))
    for position in np.flatnonzero(leak[:, expert % regions]):
        if len(experts) == 1:
            weights = rng.integers(-code.limit, code.limit + 1, experts[0].shape)
        elif first + position < len(experts):
            weights = experts[first + position]
        else:
            continue
        shift = int(position) - expert % regions
        cells.append(drawn(shift, weights, currents.leak, currents.leak_sd))
    return cells


def _at(values: xr.DataArray, pairs: Ints, level: int) -> Floats:
    """Of the pairs that conduct at one level."""
    return np.asarray(values.sel(level=level).transpose("pairs").values)[pairs]


# ---------------------------------------------------------------- moment by moment


class _Collapsed(NamedTuple):
    """A matrix whose digits, cycles and conversions are put together beforehand.

    Attributes
    ----------
    lowest : int
        Smallest input.
    mean_input, error_input : float32 ndarray
        By input from the smallest: sum over cycles of factor times what a level counts in the
        mean and in the error, less the same of input 0.
    mean, error : float32 ndarray (D, columns)
        What the weights count, and their error.
    constant : float32 ndarray (columns,)
        What a nominal offset leaves.
    noise : float
        Standard deviation of an output by conversions and leakage.
    rng : numpy.random.Generator
    """

    lowest: int
    mean_input: NDArray[np.float32]
    error_input: NDArray[np.float32]
    mean: NDArray[np.float32]
    error: NDArray[np.float32]
    constant: NDArray[np.float32]
    noise: float
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        weights: Ints,
        config: ReadoutFields,
        currents: StringCurrents,
        rng: np.random.Generator,
        statistics: Statistics,
    ) -> _Collapsed:
        """Draw the errors of weights (D, columns)."""
        code, input_code = WeightCode.of(config), InputCode.of(config)
        digits = np.arange(-code.largest, code.largest + 1)
        levels = np.arange(input_code.levels)
        at = {"weight": digits, "level": levels}
        inl, spread = (
            each.sel(at).transpose("weight", "level").values
            for each in (currents.inl, currents.unit_sd)
        )
        by_digit, by_level = _factors(np.outer(digits, levels) + inl)
        error_digit, error_level = _factors(spread)

        layout = _layout(weights[np.newaxis], config)
        errors = statistics(int(layout.rows), int(layout.regions))
        every = np.arange(-code.limit, code.limit + 1)
        split = code.split(every) + code.largest
        mean = code.factors @ by_digit[split]
        kept = code.factors**2 * errors["kept"].values
        deviation = (kept @ error_digit[split] ** 2) ** 0.5

        inputs = input_code.split(np.arange(input_code.low, input_code.high + 1))
        mean_input = input_code.factors @ by_level[inputs]
        error_input = input_code.factors @ error_level[inputs]
        at_zero = -input_code.low
        place = weights + code.limit
        constant = np.zeros(weights.shape[1])
        if config.offset_rule == "measured":
            error_input = error_input - error_input[at_zero]
        else:
            constant = mean_input[at_zero] * mean[place].sum(axis=0)
            constant = constant - input_code.offset * weights.sum(axis=0)
        error = deviation[place] * rng.standard_normal(weights.shape)
        noise = float(errors["row_noise"]) * len(weights) ** 0.5
        return cls(
            input_code.low,
            (mean_input - mean_input[at_zero]).astype(np.float32),
            error_input.astype(np.float32),
            mean.astype(np.float32)[place],
            error.astype(np.float32),
            constant.astype(np.float32),
            noise,
            rng,
        )

    def __call__(self, x: Ints) -> NDArray[np.float32]:
        place = x - self.lowest
        y = self.mean_input[place] @ self.mean + self.constant
        if self.error.any():
            y += self.error_input[place] @ self.error
        if self.noise:
            y += np.float32(self.noise) * self.rng.standard_normal(y.shape, dtype=np.float32)
        return np.asarray(y, dtype=np.float32)


def _factors(values: Floats) -> tuple[Floats, Floats]:
    """The product of a column and a row that is closest to a matrix, positive for the last row."""
    left, size, right = np.linalg.svd(values)
    sign = np.sign(right[0, -1]) or 1.0
    return sign * left[:, 0] * size[0], sign * right[0]


# ---------------------------------------------------------------- checks


def _check_point(config: ReadoutFields) -> None:
    axes = [name for name in config.axes if name in ReadoutFields.model_fields]
    if axes:
        raise InputError(f"array: found the axes {', '.join(axes)}, allowed: one point")


def _check_shapes(x: NDArray[np.integer], experts: NDArray[np.integer], chosen: Ints) -> None:
    if x.ndim != 2 or experts.ndim != 3 or x.shape[1] != experts.shape[1]:
        raise InputError(
            f"array: inputs of shape {x.shape} and weights of {experts.shape[1:]}, "
            "allowed: (samples, D) and (D, columns)"
        )
    if chosen.shape != x.shape[:1] or (
        chosen.size and not 0 <= chosen.min() <= chosen.max() < len(experts)
    ):
        raise InputError(
            f"array: selected of shape {chosen.shape}, allowed: one of {len(experts)} experts "
            "for each sample"
        )
