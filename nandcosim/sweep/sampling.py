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
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from nandcosim.spice.circuit import Circuit, Knob, Params
from nandcosim.sweep.distributions import DISTRIBUTIONS, Distribution
from nandcosim.sweep.spec import RandomVariable, Scalar, SweepSpec, base_params, knob_cells

__all__ = ["dimensions", "draw", "normal_scores", "realise"]

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
    scores = normal_scores(spec, point, k, dimensions(spec, circuit, point))
    return realise(spec, circuit, point, scores)


def dimensions(spec: SweepSpec, circuit: Circuit, point: int) -> int:
    """Number of standard normal scores that a sample of the grid point takes."""
    return sum(source.scores for source in _prepare(spec, circuit, point).sources)


def realise(
    spec: SweepSpec, circuit: Circuit, point: int, scores: np.ndarray
) -> tuple[Params, dict[str, np.ndarray]]:
    """Parameters and knobs of a sample from its scores, shape (dimensions,); see `draw`."""
    place = _prepare(spec, circuit, point)
    knobs = {name: np.zeros(size) for name, size in place.sizes.items()}
    drawn: dict[str, float] = {}
    first = 0
    for source in place.sources:
        values = source.values(scores[first : first + source.scores])
        first += source.scores
        if source.cells is None:
            drawn[source.target] = drawn.get(source.target, 0.0) + float(values[0])
        else:
            knobs[source.target][source.cells] += values
    if not drawn:
        return place.params, knobs
    return base_params(spec, circuit, spec.coordinates(point), drawn), knobs


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
        return np.asarray(special.ndtri(np.maximum(u, _SMALLEST_PROBABILITY)))
    u = _sobol(spec.seed, stream, dimensions).point(k)
    return np.asarray(special.ndtri(u + _HALF_SOBOL_CELL))


# ---------------------------------------------------------------- designs


@lru_cache(maxsize=2)
def _latin_hypercube(seed: int, stream: int, samples: int, dimensions: int) -> np.ndarray:
    from scipy.stats import qmc  # slow to import, and plain Monte Carlo needs none of it

    sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
    generator = np.random.Generator(np.random.PCG64(sequence))
    return np.asarray(qmc.LatinHypercube(d=dimensions, rng=generator).random(samples))


class _SobolSequence:
    """A scrambled Sobol sequence that can be read at any position."""

    def __init__(self, seed: int, stream: int, dimensions: int) -> None:
        from scipy.stats import qmc

        sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
        generator = np.random.Generator(np.random.PCG64(sequence))
        self._engine = qmc.Sobol(d=dimensions, scramble=True, rng=generator)

    def point(self, k: int) -> np.ndarray:
        if k < self._engine.num_generated:
            self._engine.reset()
        if k > self._engine.num_generated:
            self._engine.fast_forward(k - self._engine.num_generated)
        return np.asarray(self._engine.random(1)[0])


@lru_cache(maxsize=2)
def _sobol(seed: int, stream: int, dimensions: int) -> _SobolSequence:
    return _SobolSequence(seed, stream, dimensions)


# ----------------------------------------------------------------- values


@dataclass(frozen=True)
class _Source:
    """One random variable at one grid point, its axes looked up.

    Attributes
    ----------
    target : str
    distribution : Distribution
    parameters : dict of str to float
    scores : int
        Normal scores it takes.
    cells : ndarray of int or None
        Cells of the knob it applies to; None for a circuit parameter.
    shared : bool
    correlation : float
    correlation_length : float or None
    """

    target: str
    distribution: Distribution
    parameters: dict[str, float]
    scores: int
    cells: np.ndarray | None
    shared: bool
    correlation: float
    correlation_length: float | None

    def values(self, scores: np.ndarray) -> np.ndarray:
        """Values from independent scores, shape (len(cells),), or (1,) for a single draw."""
        if self.cells is not None and not self.shared:
            scores = scores[self.cells]
            if self.correlation_length is not None:
                scores = _exponentially_correlated(scores, self.cells, self.correlation_length)
            else:
                scores = _equicorrelated(scores, self.correlation)
        return self.distribution.quantile(scores, self.parameters)


@dataclass(frozen=True)
class _Point:
    """What all the samples of a grid point have in common."""

    params: Params
    sizes: dict[str, int]
    sources: tuple[_Source, ...]


# The last point only: the samples of a chunk share it. The spec is kept beside it, so
# that its identity cannot pass to another spec.
_prepared: dict[tuple[int, type[Circuit], int], tuple[SweepSpec, _Point]] = {}


def _prepare(spec: SweepSpec, circuit: Circuit, point: int) -> _Point:
    key = (id(spec), type(circuit), point)
    if key in _prepared:
        return _prepared[key][1]
    coordinates = spec.coordinates(point)
    params = base_params(spec, circuit, coordinates)
    knobs = {knob.name: knob for knob in circuit.knobs}
    sources = tuple(
        _source(entry, knobs.get(entry.target), params, coordinates) for entry in spec.random
    )
    sizes = {name: knob.size(params) for name, knob in knobs.items()}
    prepared = _Point(params, sizes, sources)
    _prepared.clear()
    _prepared[key] = (spec, prepared)
    return prepared


def _source(
    entry: RandomVariable, knob: Knob | None, params: Params, coordinates: Mapping[str, Scalar]
) -> _Source:
    return _Source(
        target=entry.target,
        distribution=DISTRIBUTIONS[entry.distribution],
        parameters=entry.values(coordinates),
        scores=1 if knob is None or entry.shared else knob.size(params),
        cells=None if knob is None else knob_cells(knob, params, entry.cells),
        shared=entry.shared,
        correlation=entry.correlation_at(coordinates),
        correlation_length=entry.correlation_length_at(coordinates),
    )


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
    return np.asarray(a * scores + b * scores.sum())


def _exponentially_correlated(scores: np.ndarray, cells: np.ndarray, length: float) -> np.ndarray:
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
