"""Sample k of a grid point: a pure function of (spec, seed, point, k).

Nothing here remembers what was drawn before, so the bits of a sample do not depend
on chunking, on the number of workers, on the order, or on a resume. What is cached
(the Latin hypercube of a point, the position of a Sobol sequence) only saves time.

Scores. Every random variable takes standard normal scores: one for a parameter or a
shared draw, else one for every cell of its knob, in the order of the spec. The score
of a cell is thus the same whichever group of cells the variable applies to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special
from scipy.stats import qmc

from nandcosim.spice.circuit import Circuit, Params
from nandcosim.sweep.distributions import DISTRIBUTIONS
from nandcosim.sweep.spec import RandomVariable, Scalar, SweepSpec, base_params, knob_cells

__all__ = ["draw", "normal_scores"]

#: Half the resolution of scipy's Sobol points (30 bits): centres each point in its
#: cell, so that none is exactly 0, whose normal score would be infinite.
_HALF_SOBOL_CELL = 2.0**-31

#: Latin hypercube points are doubles in [0, 1); this keeps the score of 0 finite.
_SMALLEST_PROBABILITY = 2.0**-53


def draw(
    spec: SweepSpec, circuit: Circuit, point: int, k: int
) -> tuple[Params, dict[str, np.ndarray]]:
    """Draw one sample.

    Parameters
    ----------
    spec : SweepSpec
    circuit : Circuit
        The circuit the spec names.
    point : int
        Number of the grid point, last axis fastest.
    k : int
        Number of the sample, ``0 <= k < spec.samples``.

    Returns
    -------
    params : Params
        Circuit parameters, drawn ones included.
    knobs : dict of str to ndarray
        Value of every knob of the circuit, shape (size,), in the knob's unit; zeros
        where nothing is random. Several random variables of one target add up.

    Raises
    ------
    pydantic.ValidationError
        If a drawn parameter is out of the circuit's bounds.
    """
    coordinates, nominal, sizes, scores_taken = _layout(spec, circuit, point)
    scores = normal_scores(spec, point, k, sum(scores_taken))
    knobs = {name: np.zeros(size) for name, size in sizes.items()}
    drawn: dict[str, float] = {}
    first = 0
    for entry, count in zip(spec.random, scores_taken, strict=True):
        own = scores[first : first + count]
        first += count
        if entry.target in knobs:
            _add_to_knob(knobs[entry.target], entry, circuit, nominal, coordinates, own)
        else:
            value = float(_quantile(entry, own, coordinates)[0])
            drawn[entry.target] = drawn.get(entry.target, 0.0) + value
    params = base_params(spec, circuit, coordinates, drawn) if drawn else nominal
    return params, knobs


def normal_scores(spec: SweepSpec, point: int, k: int, dimensions: int) -> np.ndarray:
    """Independent standard normal scores of sample `k`, shape (dimensions,)."""
    if dimensions == 0:
        return np.empty(0)
    stream = 0 if spec.common_random_numbers else point
    if spec.sampler == "monte-carlo":
        sequence = np.random.SeedSequence(spec.seed, spawn_key=(stream, k))
        return np.random.Generator(np.random.PCG64(sequence)).standard_normal(dimensions)
    if spec.sampler == "latin-hypercube":
        u = _latin_hypercube(spec.seed, stream, spec.samples, dimensions)[k]
        return special.ndtri(np.maximum(u, _SMALLEST_PROBABILITY))
    u = _sobol(spec.seed, stream, dimensions).point(k)
    return special.ndtri(u + _HALF_SOBOL_CELL)


# ---------------------------------------------------------------- designs


@lru_cache(maxsize=2)
def _latin_hypercube(seed: int, stream: int, samples: int, dimensions: int) -> np.ndarray:
    sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
    generator = np.random.Generator(np.random.PCG64(sequence))
    return qmc.LatinHypercube(d=dimensions, rng=generator).random(samples)


class _SobolSequence:
    """A scrambled Sobol sequence that can be read at any position."""

    def __init__(self, seed: int, stream: int, dimensions: int) -> None:
        sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
        generator = np.random.Generator(np.random.PCG64(sequence))
        self._engine = qmc.Sobol(d=dimensions, scramble=True, rng=generator)

    def point(self, k: int) -> np.ndarray:
        if k < self._engine.num_generated:
            self._engine.reset()
        if k > self._engine.num_generated:
            self._engine.fast_forward(k - self._engine.num_generated)
        return self._engine.random(1)[0]


@lru_cache(maxsize=2)
def _sobol(seed: int, stream: int, dimensions: int) -> _SobolSequence:
    return _SobolSequence(seed, stream, dimensions)


# ----------------------------------------------------------------- values

Layout = tuple[dict[str, Scalar], Params, dict[str, int], tuple[int, ...]]

_layouts: dict[tuple[int, type[Circuit], int], tuple[SweepSpec, Layout]] = {}


def _layout(spec: SweepSpec, circuit: Circuit, point: int) -> Layout:
    """Coordinates, nominal parameters, knob sizes, and scores taken by each random variable.

    The layout of the last point is remembered: the samples of a chunk share it.
    """
    key = (id(spec), type(circuit), point)
    known = _layouts.get(key)
    if known is not None and known[0] is spec:
        return known[1]
    coordinates = spec.coordinates(point)
    nominal = base_params(spec, circuit, coordinates)
    sizes = {knob.name: knob.size(nominal) for knob in circuit.knobs}
    taken = tuple(
        1 if entry.shared or entry.target not in sizes else sizes[entry.target]
        for entry in spec.random
    )
    layout = (coordinates, nominal, sizes, taken)
    _layouts.clear()
    _layouts[key] = (spec, layout)
    return layout


def _quantile(
    entry: RandomVariable, scores: np.ndarray, coordinates: Mapping[str, Scalar]
) -> np.ndarray:
    values: dict[str, Any] = entry.values(coordinates)
    return DISTRIBUTIONS[entry.distribution].quantile(scores, values)


def _add_to_knob(
    knob_values: np.ndarray,
    entry: RandomVariable,
    circuit: Circuit,
    params: Params,
    coordinates: Mapping[str, Scalar],
    scores: np.ndarray,
) -> None:
    knob = next(each for each in circuit.knobs if each.name == entry.target)
    cells = knob_cells(knob, params, entry.cells)
    if entry.shared:
        knob_values[cells] += _quantile(entry, scores, coordinates)
        return
    own = scores[cells]
    length = entry.correlation_length_at(coordinates)
    if length is not None:
        own = _exponentially_correlated(own, cells, length)
    else:
        own = _equicorrelated(own, entry.correlation_at(coordinates))
    knob_values[cells] += _quantile(entry, own, coordinates)


def _equicorrelated(scores: np.ndarray, rho: float) -> np.ndarray:
    """Scores with correlation `rho` between any two, by the symmetric square root.

    The matrix R = (1 - rho) I + rho 1 1' has the eigenvalue 1 + (n - 1) rho along 1
    and 1 - rho across it, so R^(1/2) = a I + b 1 1' with a = sqrt(1 - rho) and
    b = (sqrt(1 + (n - 1) rho) - a) / n. Unlike a one-factor model it also serves
    negative correlations down to -1 / (n - 1), and needs no extra score.
    """
    n = scores.size
    if rho == 0 or n < 2:
        return scores
    a = math.sqrt(1.0 - rho)
    b = (math.sqrt(max(0.0, 1.0 + (n - 1) * rho)) - a) / n
    return a * scores + b * scores.sum()


def _exponentially_correlated(
    scores: np.ndarray, cells: np.ndarray, length: float
) -> np.ndarray:
    """Scores with correlation exp(-|i - j| / length) between the cells i and j.

    The process is Markov along the string: each cell follows from its neighbour,
    which is the Cholesky factor of that matrix written out.
    """
    order = np.argsort(cells)
    steps = np.exp(-np.diff(cells[order]) / length)
    correlated = np.empty_like(scores)
    previous = 0.0
    for place, cell in enumerate(order):
        r = float(steps[place - 1]) if place else 0.0
        previous = r * previous + math.sqrt(1.0 - r * r) * float(scores[cell])
        correlated[cell] = previous
    return correlated
