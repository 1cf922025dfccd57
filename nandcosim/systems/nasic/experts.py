"""Experts made from a dense model's FFN, and which of them each token goes to.

No small mixture of experts comes with its weights in a package. So the neurons of each FFN of
a dense model are dealt to experts of equal width, alike ones together; all experts at once are
the dense FFN exactly, and a router takes the k that matter most to a token::

    y = sum over the chosen e of down_e (silu(gate_e x) * (up_e x))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.smollm import Checkpoint
from nandcosim.systems.nvllm.transformer import (
    FFN_MATRICES,
    Floats,
    Linear,
    Tokens,
    Transformer,
    dense,
    layer_matrix,
)

__all__ = [
    "ExpertLinears",
    "Experts",
    "Ids",
    "MoeModel",
    "Multiplier",
    "Router",
    "RoutingSample",
    "cluster",
    "contributions",
    "fit_router",
    "moefied",
    "split_ffn",
    "strongest",
    "trace",
]

Ids = NDArray[np.int64]
#: Makes of a matrix (outputs, inputs) what multiplies by it.
Multiplier = Callable[[Floats], Linear]
#: Inputs (tokens, hidden) -> score of every expert (tokens, experts).
Router = Callable[[Floats], Floats]

_ROUNDS = 20  # of clustering; it has converged after 4 to 8
_RIDGE = 1e-2  # share of the inputs' mean square that steadies the fit of a router


@dataclass(frozen=True)
class Experts:
    """The experts of one layer.

    Attributes
    ----------
    gate, up : ndarray of float32, (experts, width, hidden)
    down : ndarray of float32, (experts, hidden, width)
    """

    gate: Floats
    up: Floats
    down: Floats

    @property
    def count(self) -> int:
        """Experts."""
        return len(self.gate)

    @property
    def width(self) -> int:
        """Neurons of an expert."""
        return int(self.gate.shape[1])

    @property
    def hidden(self) -> int:
        """Length of an input, and of an output."""
        return int(self.gate.shape[2])

    def first(self, count: int) -> Experts:
        """The first of the experts."""
        return Experts(self.gate[:count], self.up[:count], self.down[:count])

    def linears(self, multiply: Multiplier = dense) -> ExpertLinears:
        """The experts as something multiplies them."""
        side_by_side = (self.count * self.width, self.hidden)
        return ExpertLinears(
            multiply(self.gate.reshape(side_by_side)),
            multiply(self.up.reshape(side_by_side)),
            tuple(multiply(matrix) for matrix in self.down),
        )


@dataclass(frozen=True)
class ExpertLinears:
    """The experts of one layer, ready to multiply.

    Attributes
    ----------
    gate, up : Linear
        (tokens, hidden) -> (tokens, experts * width).
    down : tuple of Linear
        Of each expert, (tokens, width) -> (tokens, hidden).
    """

    gate: Linear
    up: Linear
    down: tuple[Linear, ...]

    def activations(self, x: Floats) -> Floats:
        """silu(gate x) * (up x) of every expert, (tokens, experts, width)."""
        gate = self.gate(x)
        half = gate * np.float32(0.5)
        gated = (half + half * np.tanh(half)) * self.up(x)
        return cast(Floats, gated.reshape(len(x), len(self.down), -1))

    def outputs(self, x: Floats, ids: Ids) -> Floats:
        """Sum of the chosen experts' outputs.

        Parameters
        ----------
        x : ndarray of float32, (tokens, hidden)
        ids : ndarray of int, (tokens, k)
        """
        activations = self.activations(x)
        y = np.zeros_like(x)
        for expert, multiply in enumerate(self.down):
            routed = np.flatnonzero((ids == expert).any(axis=1))
            if routed.size:
                y[routed] += multiply(activations[routed, expert])
        return y


# ---------------------------------------------------------------- experts from a dense FFN


def cluster(rows: Floats, count: int, seed: int = 0) -> Ids:
    """Deal rows to clusters of equal size, alike ones together: balanced k-means.

    Pairs of row and centre are taken from the nearest on, until a cluster is full.

    Parameters
    ----------
    rows : ndarray of float32, (rows, features)
        Compared by direction: their lengths are left out.
    count : int
        Clusters; divides the rows.
    seed : int
        Of the rows that are the first centres.

    Returns
    -------
    ndarray of int, (count, rows / count)
        Rows of each cluster, in ascending order.

    Raises
    ------
    InputError
        If `count` does not divide the rows.
    """
    n = len(rows)
    if count < 1 or n % count:
        raise InputError(f"experts: found {count}, allowed: a divisor of {n} neurons")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
    centres = unit[np.random.default_rng(seed).choice(n, count, replace=False)]
    members: Ids = np.empty((0, 0), np.int64)
    for _ in range(_ROUNDS):
        distance = np.sum(centres**2, axis=1) - 2 * unit @ centres.T
        found = _dealt(distance)
        if np.array_equal(found, members):
            break
        members = found
        centres = unit[members].mean(axis=1)
    return members


def _dealt(distance: Floats) -> Ids:
    n, count = distance.shape
    size = n // count
    of_row = [-1] * n
    room = [size] * count
    for pair in np.argsort(distance, axis=None, kind="stable").tolist():
        row, centre = divmod(pair, count)
        if of_row[row] < 0 and room[centre]:
            of_row[row] = centre
            room[centre] -= 1
    return np.argsort(of_row, kind="stable").reshape(count, size)


def split_ffn(gate: Floats, up: Floats, down: Floats, count: int, seed: int = 0) -> Experts:
    """Experts of a dense FFN: neurons with like rows of gate and up go together.

    Parameters
    ----------
    gate, up : ndarray of float32, (neurons, hidden)
    down : ndarray of float32, (hidden, neurons)
    count : int
        Experts.
    seed : int
        See `cluster`.

    Raises
    ------
    InputError
        If `count` does not divide the neurons.
    """
    members = cluster(np.hstack([gate, up]), count, seed)
    return Experts(gate[members], up[members], down.T[members].swapaxes(1, 2).copy())


def contributions(experts: Experts, activations: Floats) -> Floats:
    """Length of each expert's output, (tokens, experts): what the oracle goes by.

    Parameters
    ----------
    experts : Experts
    activations : ndarray of float32, (tokens, experts, width)
    """
    # |down h|^2 = h' (down' down) h, which is smaller than the outputs
    gram = experts.down.swapaxes(1, 2) @ experts.down
    by_expert = activations.swapaxes(0, 1)
    squares = np.sum((by_expert @ gram) * by_expert, axis=-1).T
    return cast(Floats, np.sqrt(np.maximum(squares, 0)))


def strongest(scores: Floats, k: int) -> Ids:
    """Ids of the k largest scores (tokens, experts) -> (tokens, k), the largest first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def _oracle(experts: Experts) -> Router:
    """Scores by what every expert would add: each is run, which no real router can."""
    linears = experts.linears()
    return lambda x: contributions(experts, linears.activations(x))


def fit_router(experts: Experts, x: Floats) -> Router:
    """A router that knows the input only: least squares of the logarithm of `contributions`.

    Parameters
    ----------
    experts : Experts
    x : ndarray of float32, (tokens, hidden)
        Inputs to learn from, more than `hidden` to be of use.
    """
    scores = np.log(np.maximum(_oracle(experts)(x), np.finfo(np.float32).tiny))
    mean = scores.mean(axis=0)
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += np.float32(_RIDGE) * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram, x.T @ (scores - mean))
    return lambda inputs: cast(Floats, inputs @ weights + mean)


@dataclass(frozen=True)
class RoutingSample:
    """Layers of experts with what they were given, and where each token went.

    Attributes
    ----------
    name : str
    layers : tuple of Experts
    inputs : ndarray of float32, (layers, tokens, hidden)
    trace : ndarray of int, (tokens, layers, k)
    """

    name: str
    layers: tuple[Experts, ...]
    inputs: Floats
    trace: Ids

    def part(self, layers: int, tokens: int, experts: int | None = None) -> RoutingSample:
        """Some of the layers and tokens, evenly spread.

        Parameters
        ----------
        layers, tokens : int
        experts : int, optional
            Only the first ones of a layer, as if every token went to all of these.

        Raises
        ------
        InputError
            If there are fewer.
        """
        found = (*self.inputs.shape[:2], self.layers[0].count)
        asked = (layers, tokens, found[2] if experts is None else experts)
        if not all(1 <= n <= of for n, of in zip(asked, found, strict=True)):
            raise InputError(f"layers, tokens, experts: found {asked}, allowed: 1 to {found}")
        i, j = (np.arange(n) * of // n for n, of in zip((layers, tokens), found, strict=False))
        chosen = tuple(self.layers[layer] for layer in i)
        trace = self.trace[j][:, i]
        if experts is not None:
            chosen = tuple(e.first(experts) for e in chosen)
            trace = np.tile(np.arange(experts), (tokens, layers, 1))
        return RoutingSample(self.name, chosen, self.inputs[i][:, j], trace)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class _Routed(Transformer):
    """A transformer whose FFNs are anything that maps (tokens, hidden) to its like."""

    ffns: tuple[Linear, ...]

    def _ffn(self, layer: int, x: Floats) -> Floats:
        return self.ffns[layer](x.reshape(-1, x.shape[-1])).reshape(x.shape)


@dataclass(frozen=True)
class MoeModel:
    """A language model with experts.

    Attributes
    ----------
    name : str
    rest : Transformer
        All but the experts; its own FFNs are not used.
    layers : tuple of Experts
    routers : tuple of Router
        Of each layer.
    top_k : int
    """

    name: str
    rest: Transformer
    layers: tuple[Experts, ...]
    routers: tuple[Router, ...]
    top_k: int

    def __post_init__(self) -> None:
        experts = self.layers[0].count
        if not 1 <= self.top_k <= experts:
            raise InputError(f"top_k: found {self.top_k}, allowed: 1 to {experts}, the experts")

    def ffns(self, multiply: Multiplier = dense) -> tuple[Linear, ...]:
        """Router and experts of every layer; where a token goes is decided without errors."""

        def routed(router: Router, linears: ExpertLinears) -> Linear:
            return lambda x: linears.outputs(x, strongest(router(x), self.top_k))

        parts = zip(self.routers, self.layers, strict=True)
        return tuple(routed(router, experts.linears(multiply)) for router, experts in parts)

    def transformer(self, multiply: Multiplier = dense) -> Transformer:
        """The model with its experts multiplied by `multiply`.

        A layer is given what the layers before it made, with their errors.
        """
        return self.with_ffns(self.ffns(multiply))

    def with_ffns(self, ffns: tuple[Linear, ...]) -> Transformer:
        """The model with other FFNs, (tokens, hidden) -> (tokens, hidden), one a layer."""
        rest = self.rest
        return _Routed(rest.architecture, rest.embedding, rest.norms, rest.matrices, ffns)

    def sample(self, windows: Tokens) -> RoutingSample:
        """Run a text and keep what its layers were given and where it went.

        Parameters
        ----------
        windows : ndarray of int, (windows, length)
        """
        inputs: list[Floats] = []

        def recorded(ffn: Linear) -> Linear:
            def run(x: Floats) -> Floats:
                inputs.append(x)
                return ffn(x)

            return run

        self.with_ffns(tuple(recorded(ffn) for ffn in self.ffns())).states(windows)
        scores = (router(x) for router, x in zip(self.routers, inputs, strict=True))
        ids = [strongest(score, self.top_k) for score in scores]
        return RoutingSample(self.name, self.layers, np.stack(inputs), np.stack(ids, axis=1))

    def with_learnt_routers(self, windows: Tokens) -> MoeModel:
        """The model with a router that is learnt from a text, see `fit_router`.

        Parameters
        ----------
        windows : ndarray of int, (windows, length)
        """
        inputs = self.sample(windows).inputs
        routers = tuple(fit_router(e, x) for e, x in zip(self.layers, inputs, strict=True))
        return MoeModel(self.name, self.rest, self.layers, routers, self.top_k)


def moefied(checkpoint: Checkpoint, count: int = 32, top_k: int = 28, seed: int = 0) -> MoeModel:
    """A dense model with its FFNs split into experts, routed by the oracle.

    Parameters
    ----------
    checkpoint : Checkpoint
    count : int
        Experts of a layer; divides the FFN's neurons.
    top_k : int
        Experts of a token. The neurons were trained to work together: few of them are no
        good model any more.
    seed : int
        Of the clustering.

    Raises
    ------
    InputError
        If `count` does not divide the neurons, or there are fewer than `top_k` experts.
    """
    layers = []
    for i in range(checkpoint.architecture.layers):
        gate, up, down = (checkpoint.matrix(layer_matrix(i, name)) for name in FFN_MATRICES)
        layers.append(split_ffn(gate, up, down, count, seed))
    name = f"{checkpoint.name}, {count} experts, top {top_k}"
    routers = tuple(_oracle(experts) for experts in layers)
    return MoeModel(name, checkpoint.transformer(), tuple(layers), routers, top_k)


def trace(model: MoeModel, windows: Tokens) -> Ids:
    """Experts of every token, (tokens, layers, k), the strongest first.

    Parameters
    ----------
    model : MoeModel
    windows : ndarray of int, (windows, length)
        Tokens of a text, window after window.
    """
    return model.sample(windows).trace
