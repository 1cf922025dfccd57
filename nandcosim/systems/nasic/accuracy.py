"""What the array does to experts' outputs, and to a language model's perplexity.

Everything is held against the same integers multiplied exactly: weights and inputs quantised
alike, no spread, no leakage, no converter. The quick measure is the cosine between outputs on
inputs that the model's layers really get; perplexity is the whole model run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.arrays import described
from nandcosim.systems.nasic.array import (
    Mode,
    ReadoutFields,
    multiply,
    noisy_linear,
    row_statistics,
)
from nandcosim.systems.nasic.currents import StringCurrents, load
from nandcosim.systems.nasic.experts import MoeModel, Multiplier, RoutingSample
from nandcosim.systems.nvllm.probes import Probe
from nandcosim.systems.nvllm.transformer import Floats, Linear, Tokens, Transformer

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = [
    "cosine_loss",
    "disturbed",
    "disturbed_model",
    "exact_multiplier",
    "multiplier",
    "perplexity",
]

Tables = Mapping[str, "CalibrationTable"]
ShowProgress = Callable[[int, int], None]

_TEXTS = {
    "cosine_loss": ("1", "1 - cosine of experts' outputs to the exact ones, mean over layers"),
    "perplexity": ("1", "exp(mean negative log probability of a token)"),
    "exact_perplexity": ("1", "perplexity with the same integers multiplied exactly"),
}


def multiplier(
    config: ReadoutFields, currents: StringCurrents, seed: int = 0, mode: Mode = "moments"
) -> Multiplier:
    """Multiply as the array does; every matrix gets its own errors.

    Parameters
    ----------
    config : ReadoutFields
        A point: no axes.
    currents : StringCurrents
        Of that point.
    seed : int
    mode : {"cells", "moments"}
        See `nandcosim.systems.nasic.array`.
    """
    seeds = np.random.SeedSequence(seed)
    statistics = row_statistics(config, currents.at(config))

    def by_moments(weights: Floats) -> Linear:
        own = int(seeds.spawn(1)[0].generate_state(1)[0])
        return noisy_linear(weights.T, config, currents, own, statistics)

    def by_cells(weights: Floats) -> Linear:
        own = int(seeds.spawn(1)[0].generate_state(1)[0])
        whole, scales = _quantised(weights, int(config.array("weight_bits")))

        def linear(x: Floats) -> Floats:
            inputs, steps = _quantised(x, int(config.array("input_bits")))
            y = multiply(inputs, whole.T, config, currents, seed=own, mode="cells")
            return (y * steps * scales.T).astype(np.float32)

        return linear

    return by_cells if mode == "cells" else by_moments


def exact_multiplier(config: ReadoutFields) -> Multiplier:
    """Multiply the same integers without any error.

    Parameters
    ----------
    config : ReadoutFields
        A point: no axes.
    """
    weight_bits, input_bits = (int(config.array(n)) for n in ("weight_bits", "input_bits"))

    def exact(weights: Floats) -> Linear:
        whole, scales = _quantised(weights, weight_bits)
        columns = whole.T.astype(float)  # whole numbers all the same, and quick

        def linear(x: Floats) -> Floats:
            inputs, steps = _quantised(x, input_bits)
            return cast(Floats, (inputs @ columns * steps * scales.T).astype(np.float32))

        return linear

    return exact


def cosine_loss(
    sample: RoutingSample,
    config: ReadoutFields,
    tables: Tables,
    seeds: Sequence[int] = (0, 1),
    mode: Mode = "moments",
    progress: ShowProgress | None = None,
) -> xr.Dataset:
    """How far outputs of experts turn away from the exact ones.

    Parameters
    ----------
    sample : RoutingSample
        Layers, their inputs and which experts each token goes to.
    config : ReadoutFields
        Any field may be an axis.
    tables : Mapping
        See `currents.load`.
    seeds : sequence of int
        Of the array's errors; the same at every point.
    mode : {"cells", "moments"}
        See `nandcosim.systems.nasic.array`: ``moments`` is quick, and off where converters
        resolve single strings; ``cells`` is for samples of few experts.
    progress : callable, optional
        Called with the points done and those in all.

    Returns
    -------
    xarray.Dataset
        ``cosine_loss`` over the axes, ``seed`` and ``token``, the mean over the layers.
    """
    points = _points(config, tables, seeds)
    axes = config.axes
    shape = [*(len(values) for values in axes.values()), len(seeds), sample.inputs.shape[1]]
    losses = np.empty(shape)
    exact: dict[tuple[object, ...], Floats] = {}
    for done, (index, point, currents) in enumerate(points, 1):
        key = _digits(point)
        if key not in exact:
            exact = {key: _outputs(sample, exact_multiplier(point))}  # the last one only
        for s, seed in enumerate(seeds):
            noisy = _outputs(sample, multiplier(point, currents, seed, mode))
            losses[(*index, s)] = (1 - _cosine(noisy, exact[key])).mean(axis=0)
        if progress is not None:
            progress(done, len(points))
    dims = (*axes, "seed", "token")
    coords = {**{name: list(values) for name, values in axes.items()}, "seed": list(seeds)}
    result = xr.Dataset({"cosine_loss": (dims, losses)}, coords=coords)
    return described(result, _TEXTS)


def perplexity(
    model: MoeModel,
    windows: Tokens,
    config: ReadoutFields,
    tables: Tables,
    seeds: Sequence[int] = (0, 1),
    progress: ShowProgress | None = None,
) -> xr.Dataset:
    """Run the model with its experts in the array, at every point of a configuration.

    Parameters
    ----------
    model : MoeModel
    windows : ndarray of int, (windows, length + 1)
        See `nandcosim.systems.nvllm.probes.windows`.
    config, tables, seeds, progress
        As of `cosine_loss`. In the mode ``moments``.

    Returns
    -------
    xarray.Dataset
        ``perplexity`` over the axes and ``seed``, ``exact_perplexity`` over the axes.
    """
    points = _points(config, tables, seeds)
    axes = config.axes
    shape = [len(values) for values in axes.values()]
    noisy, exact = np.empty([*shape, len(seeds)]), np.empty(shape)
    probe = Probe(windows)
    known: dict[tuple[object, ...], float] = {}
    for done, (index, point, currents) in enumerate(points, 1):
        key = _digits(point)
        if key not in known:
            known[key] = probe.score(model.transformer(exact_multiplier(point))).perplexity
        exact[index] = known[key]
        for s, seed in enumerate(seeds):
            run = model.transformer(multiplier(point, currents, seed))
            noisy[(*index, s)] = probe.score(run).perplexity
        if progress is not None:
            progress(done, len(points))
    coords = {**{name: list(values) for name, values in axes.items()}, "seed": list(seeds)}
    found = {"perplexity": ((*axes, "seed"), noisy), "exact_perplexity": (tuple(axes), exact)}
    return described(xr.Dataset(found, coords=coords), _TEXTS)


def disturbed(
    model: MoeModel,
    windows: Tokens,
    cosine_losses: Sequence[float],
    seeds: Sequence[int] = (0, 1),
    spared: int = 0,
) -> xr.DataArray:
    """What a given cosine loss of all experts' outputs does to perplexity.

    Normal errors are added to the sum of a token's experts, as large in every place, so that
    the cosine to the exact sum is as given: 1 / sqrt(1 + e^2), with e the error's length over
    the sum's. Far quicker than running the array.

    Parameters
    ----------
    model : MoeModel
    windows : ndarray of int, (windows, length + 1)
    cosine_losses : sequence of float
        0 or more, less than 1.
    seeds : sequence of int
    spared : int
        Tokens at the beginning of each window without errors.

    Returns
    -------
    DataArray (cosine_loss, seed)
        ln of the perplexity over that without errors.
    """
    if not all(0 <= loss < 1 for loss in cosine_losses):
        raise InputError(f"cosine loss: found {tuple(cosine_losses)}, allowed: from 0, below 1")
    probe = Probe(windows)
    length = windows.shape[1] - 1
    undisturbed = log(probe.score(model.transformer()).perplexity)
    found = [
        [
            log(probe.score(disturbed_model(model, loss, seed, spared, length)).perplexity)
            for seed in seeds
        ]
        for loss in cosine_losses
    ]
    coords = {"cosine_loss": list(cosine_losses), "seed": list(seeds)}
    return xr.DataArray(np.array(found) - undisturbed, coords, dims=list(coords))


def disturbed_model(
    model: MoeModel, loss: float, seed: int, spared: int, length: int
) -> Transformer:
    """The model of `disturbed`, for windows of `length` tokens."""
    rng = np.random.default_rng(seed)
    share = np.sqrt(1 / (1 - loss) ** 2 - 1)

    def with_error(ffn: Linear) -> Linear:
        def run(x: Floats) -> Floats:
            y = ffn(x)
            size = share * np.linalg.norm(y, axis=1) / np.sqrt(y.shape[1])
            size.reshape(-1, length)[:, :spared] = 0
            error = rng.standard_normal(y.shape, np.float32)
            return cast(Floats, y + size.astype(np.float32)[:, None] * error)

        return run

    return model.with_ffns(tuple(with_error(ffn) for ffn in model.ffns()))


def _quantised(values: Floats, bits: int) -> tuple[NDArray[np.int64], Floats]:
    """Whole numbers of so many signed bits, and the step of each row, by its largest."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    steps: Floats = np.where(largest > 0, largest, 1).astype(np.float32)
    steps /= np.float32(max(2 ** (bits - 1) - 1, 1))
    return np.rint(values / steps).astype(np.int64), steps


def _points(
    config: ReadoutFields, tables: Tables, seeds: Sequence[int]
) -> list[tuple[tuple[int, ...], ReadoutFields, StringCurrents]]:
    """Every point with its currents; what is wrong with any comes out before the first is run."""
    if not seeds:
        raise InputError("seeds: found none, allowed: one or more")
    return [(index, point, load(tables, point)) for index, point in config.points()]


def _digits(point: ReadoutFields) -> tuple[object, ...]:
    """What the exact product depends on."""
    return point.weight_bits, point.input_bits


def _outputs(sample: RoutingSample, multiply: Multiplier) -> Floats:
    """(layers, tokens, hidden)"""
    parts = zip(sample.layers, sample.inputs, sample.trace.swapaxes(0, 1), strict=True)
    return np.stack([e.linears(multiply).outputs(x, ids) for e, x, ids in parts])


def _cosine(a: Floats, b: Floats) -> Floats:
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return cast(
        Floats, np.sum(a * b, axis=-1, dtype=np.float64) / np.where(lengths > 0, lengths, 1)
    )
