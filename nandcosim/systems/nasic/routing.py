"""Which experts tokens are routed to, and how long the planes that hold them are busy.

A `Trace` is the user's, that of a real model (`experts.trace`), or drawn. An *occupation* says
how long a search for an expert keeps each plane busy: with all of a token's experts on planes of
their own a layer takes one search, and otherwise as long as its busiest plane has to search.
Tokens of a batch that are routed to the same expert save nothing, as their inputs differ: their
searches add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, entr

from nandcosim.errors import InputError
from nandcosim.systems.arrays import described
from nandcosim.systems.nasic.cost import CostFields, cycle_time
from nandcosim.systems.nasic.cycles import input_dimension
from nandcosim.systems.nasic.digits import input_cycles
from nandcosim.systems.nasic.mapping import MATRICES, enumerate_tiles, place
from nandcosim.systems.nasic.moe import MoeShape

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = [
    "PERCENTILES",
    "Batching",
    "Trace",
    "balanced",
    "dispatch",
    "expected_busiest",
    "load_trace",
    "occupation",
    "round_robin",
    "serve",
    "shared_experts",
    "statistics",
    "tiled_occupation",
    "uniform_trace",
    "zipf_trace",
]

Ids = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]

#: Tokens of a batch: the next one of as many texts, or as many of one text.
Batching = Literal["texts", "prompt"]

#: Of the latencies of tokens.
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, eq=False)
class Trace:
    """Experts that tokens are routed to.

    Attributes
    ----------
    ids : ndarray of int, (tokens, layers, k)
        Each expert once for a token in a layer; tokens in the order of a text.
    experts : int
        Experts of a layer.
    name : str
        What errors call it.

    Raises
    ------
    InputError
        If the ids are no integers of that shape, out of range, or twice for a token.
    """

    ids: Ids
    experts: int
    name: str = "trace"

    def __post_init__(self) -> None:
        ids = self.ids
        if ids.ndim != 3 or 0 in ids.shape or ids.dtype.kind not in "iu":
            raise InputError(
                f"{self.name}: found {ids.dtype} {ids.shape}, allowed: integers (tokens, layers, k)"
            )
        if ids.min() < 0 or ids.max() >= self.experts:
            raise InputError(
                f"{self.name}: found experts {ids.min()} to {ids.max()}, "
                f"allowed: 0 to {self.experts - 1}"
            )
        ordered = np.sort(ids, axis=-1)
        twice = np.argwhere(ordered[..., 1:] == ordered[..., :-1])
        if twice.size:
            token, layer, slot = twice[0]
            raise InputError(
                f"{self.name}: token {token}, layer {layer}: found expert "
                f"{ordered[token, layer, slot]} twice, allowed: once"
            )

    @property
    def tokens(self) -> int:
        """Tokens."""
        return int(self.ids.shape[0])

    @property
    def layers(self) -> int:
        """Layers with experts."""
        return int(self.ids.shape[1])

    @property
    def top_k(self) -> int:
        """Experts of a token."""
        return int(self.ids.shape[2])

    def part(self, start: int, stop: int) -> Trace:
        """Tokens from `start` to before `stop`."""
        return Trace(self.ids[start:stop], self.experts, self.name)

    def with_shared(self, count: int) -> Trace:
        """The same with `count` more experts, behind the others, that every token goes to."""
        always = np.arange(self.experts, self.experts + count)
        ids = np.broadcast_to(always, (*self.ids.shape[:2], count))
        joined = np.concatenate([self.ids.astype(np.int64), ids], axis=-1)
        return Trace(joined, self.experts + count, self.name)

    def _members(self, layer: int) -> NDArray[np.float32]:
        """1 for each expert of a token, (tokens, experts)."""
        members = np.zeros((self.tokens, self.experts), np.float32)
        np.put_along_axis(members, self.ids[:, layer].astype(np.int64), 1, axis=1)
        return members


# ---------------------------------------------------------------- traces


def load_trace(path: Path, experts: int | None = None) -> Trace:
    """Trace of the user's.

    Parameters
    ----------
    path : Path
        ``.npy`` with integers (tokens, layers, k), or ``.npz`` with them as ``trace`` and the
        number of experts as ``experts``.
    experts : int, optional
        Experts of a layer, where the file does not say.

    Raises
    ------
    InputError
        If the file cannot be read, has no trace or a wrong one, or nobody says how many
        experts there are.
    """
    try:
        found = np.load(path)
        arrays = dict(found) if path.suffix == ".npz" else {"trace": found}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if "trace" not in arrays:
        raise InputError(f"{path}: found {', '.join(arrays) or 'nothing'}, expected trace")
    count = arrays.get("experts")
    if count is not None and (count.ndim or count.dtype.kind not in "iu"):
        raise InputError(f"{path}: experts: found {count.dtype} {count.shape}, allowed: an integer")
    if experts is None and count is None:
        raise InputError(f"{path}: found no number of experts: give it, or store it as experts")
    return Trace(arrays["trace"], int(count) if experts is None else experts, str(path))  # type: ignore[arg-type]


def uniform_trace(
    tokens: int, layers: int, experts: int, top_k: int, *, persistence: float = 0.0, seed: int = 0
) -> Trace:
    """Any set of experts is as likely as another; see `zipf_trace`."""
    sizes = (tokens, layers, experts, top_k)
    return zipf_trace(*sizes, exponent=0.0, persistence=persistence, seed=seed)


def zipf_trace(
    tokens: int,
    layers: int,
    experts: int,
    top_k: int,
    *,
    exponent: float = 1.0,
    persistence: float = 0.0,
    seed: int = 0,
) -> Trace:
    """Experts drawn one after the other, each with a chance of 1 / rank^exponent.

    Parameters
    ----------
    tokens, layers, experts, top_k : int
    exponent : float
        0: all alike. Ranks are dealt to the experts of each layer anew.
    persistence : float
        Share of its experts that a token takes over from the last one, 0 to 1: the number
        is binomial, and those drawn first stay. The others are drawn anew and may be the
        same again. So every single token is distributed as if there were none before it.
    seed : int

    Raises
    ------
    InputError
        If a number is out of range.
    """
    _check("tokens", tokens, 1, np.inf)
    _check("layers", layers, 1, np.inf)
    _check("top_k", top_k, 1, experts)
    _check("exponent", exponent, 0, np.inf)
    _check("persistence", persistence, 0, 1)
    rng = np.random.default_rng(seed)
    chance = -exponent * np.log(np.arange(1, experts + 1))
    ids = np.empty((tokens, layers, top_k), np.int64)
    for layer in range(layers):
        scores = rng.permutation(chance) + rng.gumbel(size=(tokens, experts))
        kept = rng.binomial(top_k, persistence, tokens)
        kept[0] = 0
        ids[:, layer] = _drawn(scores, kept, top_k)
    name = f"zipf {exponent:g}" if exponent else "uniform"
    return Trace(ids, experts, f"{name}, {persistence:g} kept" if persistence else name)


def _drawn(scores: Floats, kept: NDArray[np.int64], top_k: int) -> NDArray[np.int64]:
    """Largest scores of each token, but for the first `kept` experts of the token before."""
    every = np.arange(len(scores))
    ids = np.empty((len(scores), top_k), np.int64)
    for slot in range(top_k):
        # Who keeps a slot keeps all before it, so the token it was drawn for had those too.
        drawn_at = np.maximum.accumulate(np.where(kept <= slot, every, 0))
        ids[:, slot] = scores.argmax(axis=1)[drawn_at]
        scores[every, ids[:, slot]] = -np.inf
    return ids


def _check(name: str, found: float, low: float, high: float) -> None:
    if not low <= found <= high:
        allowed = f"{low} or more" if high == np.inf else f"{low} to {high}"
        raise InputError(f"trace: {name}: found {found}, allowed: {allowed}")


def statistics(trace: Trace) -> xr.Dataset:
    """How evenly experts are used, and how alike consecutive tokens are.

    Returns
    -------
    xarray.Dataset
        By ``layer``: ``load`` of an ``expert``, its share of the layer's routings; ``skew``,
        the largest over the mean; ``entropy`` of the load (bit; log2(experts) if even);
        ``overlap``, share of a token's experts that the one before had too (NaN for one
        token); ``overlap_by_load``, the same for tokens that are independent of each
        other; ``coactivation``, share of the tokens that go to ``expert`` and to ``other``
        both.
    """
    shape = (trace.layers, trace.experts)
    together = np.empty((*shape, trace.experts))
    overlap = np.full(trace.layers, np.nan)
    for layer in range(trace.layers):
        members = trace._members(layer)
        together[layer] = members.T @ members / trace.tokens
        if trace.tokens > 1:
            both = np.sum(members[1:] * members[:-1])
            overlap[layer] = both / (trace.top_k * (trace.tokens - 1))
    used = np.diagonal(together, axis1=1, axis2=2)
    load = used / trace.top_k
    found = xr.Dataset(
        {
            "load": (("layer", "expert"), load),
            "skew": ("layer", load.max(axis=1) * trace.experts),
            "entropy": ("layer", entr(load).sum(axis=1) / np.log(2)),
            "overlap": ("layer", overlap),
            "overlap_by_load": ("layer", np.sum(used**2, axis=1) / trace.top_k),
            "coactivation": (("layer", "expert", "other"), together),
        }
    )
    return described(found, _STATISTICS)


_STATISTICS = {
    "load": ("1", "share of a layer's routings that go to an expert"),
    "skew": ("1", "largest load over the mean"),
    "entropy": ("bit", "entropy of the load"),
    "overlap": ("1", "share of a token's experts that the token before had"),
    "overlap_by_load": ("1", "overlap of independent tokens"),
    "coactivation": ("1", "share of tokens that go to both experts"),
}


# ---------------------------------------------------------------- where experts are


def round_robin(experts: int, planes: int) -> NDArray[np.int64]:
    """Plane of each expert, dealt in turn, (experts,)."""
    return np.arange(experts) % planes


def occupation(
    plane_of_expert: ArrayLike, search_time: float = 1.0, planes: int | None = None
) -> Floats:
    """How long a search for an expert that lies on one plane keeps each plane busy.

    Parameters
    ----------
    plane_of_expert : array_like of int, (experts,) or (layers, experts)
    search_time : float
        Seconds; with 1 all times are in searches.
    planes : int, optional
        By default as many as experts lie on.

    Returns
    -------
    ndarray of float, (layers, 1, experts, planes)
        One layer stands for all.

    Raises
    ------
    InputError
        If a plane is no integer, or out of range.
    """
    plane = np.atleast_2d(plane_of_expert)
    if plane.dtype.kind not in "iu" or plane.ndim != 2 or plane.size == 0:
        found = f"{plane.dtype} {plane.shape}"
        raise InputError(f"plane_of_expert: found {found}, allowed: integers (layers, experts)")
    count = int(plane.max()) + 1 if planes is None else planes
    if plane.min() < 0 or plane.max() >= count:
        found = f"{plane.min()} to {plane.max()}"
        raise InputError(f"plane_of_expert: found {found}, allowed: 0 to {count - 1}")
    held: Floats = search_time * (plane[:, None, :, None] == np.arange(count))
    return held


def tiled_occupation(
    config: CostFields,
    shape: MoeShape,
    rows: int | None = None,
    tables: Mapping[str, CalibrationTable] | None = None,
) -> Floats:
    """How long a search for an expert keeps each plane busy, from an explicit placement.

    Parameters
    ----------
    config : CostFields
        Without axes.
    shape : MoeShape
    rows : int, optional
        N; by default `cycles.input_dimension`.
    tables : Mapping of str to CalibrationTable, optional
        By default those that ship.

    Returns
    -------
    ndarray of float, (1, 2, experts, planes)
        Seconds, for matrices ``in`` and ``out``; always-on experts follow the routed ones. The
        first layer stands for all: others begin on another plane, which changes no time.

    Raises
    ------
    InputError
        For axes, for Base, which computes all experts whatever the routing, and as
        `mapping.place` and `cost.cycle_time`.
    """
    if config.axes:
        raise InputError(f"routing: {', '.join(config.axes)}: an axis, allowed: one value")
    if config.technique == "base":
        raise InputError("routing: technique: found 'base', allowed: those that select experts")
    rows = int(input_dimension(config)) if rows is None else rows
    placed = place(config, xr.Dataset({n: float(getattr(shape, n)) for n in _SIZES}), rows)
    tiles = enumerate_tiles(config, shape, rows)
    matrix, expert, plane = (tiles[name].values for name in ("matrix", "expert", "plane"))
    # A tile at the start of a row cycle stands for the row groups that are taken with it.
    in_a_cycle = (placed["interleaved"] * placed["rows"]).values.astype(int)
    starts = tiles["first_row"].values % in_a_cycle[matrix] == 0
    planes = max(int(config.array("planes")), int(plane.max()) + 1)
    cycles = np.zeros((1, len(MATRICES), int(expert.max()) + 1, planes))
    np.add.at(cycles[0], (matrix[starts], expert[starts], plane[starts]), 1)
    if config.search == "serial":  # a search is for the whole device
        cycles[:] = cycles.max(axis=-1, keepdims=True)
    digits = input_cycles(config)
    held: Floats = cycles * (digits * cycle_time(config, digits, tables)).item()
    return held


def shared_experts(shape: MoeShape) -> int:
    """Slices as wide as a routed expert that a model's always-on experts are cut into."""
    return -(-shape.shared_ffn // shape.expert_ffn)


_SIZES = ("hidden", "expert_ffn", "ffn_matrices", "experts", "top_k", "shared_ffn", "moe_layers")


def balanced(trace: Trace, occupied: Floats, batch: int = 1) -> Floats:
    """Deal experts to the places of an occupation so that planes are evenly busy.

    Two experts at a time change places, those that gain most, as long as that lowers the mean
    square of the planes' times: those of a batch whose tokens are independent and routed
    like the trace.

    Parameters
    ----------
    trace : Trace
    occupied : ndarray of float, (layers or 1, stages, experts, planes)
    batch : int
        Tokens at once. A single token asks for experts on planes of their own that are
        used together, a large batch for equal loads.

    Returns
    -------
    ndarray of float, (layers, stages, experts, planes)
        With an expert's row that of its place.

    Raises
    ------
    InputError
        If the occupation does not belong to the trace.
    """
    places = _of_layers(trace, occupied)
    dealt = np.empty_like(places)
    for layer, together in enumerate(statistics(trace)["coactivation"].values):
        used = np.diagonal(together)
        moment = together + (batch - 1) * np.outer(used, used)
        for stage, of_stage in enumerate(places[layer]):
            dealt[layer, stage] = of_stage[_places(moment, of_stage)]
    return dealt


def _places(moment: Floats, occupied: Floats) -> NDArray[np.int64]:
    """Place of each expert, of second moments (experts, experts) of how often they are used."""
    alike = occupied @ occupied.T
    place_of = np.arange(len(moment))
    used = np.diagonal(moment)
    apart = used[:, None] + used - 2 * moment
    while True:
        near = alike[np.ix_(place_of, place_of)]
        size, met = np.diagonal(near), moment @ near
        own = np.diagonal(met)  # their sum is the mean square
        change = 2 * (met + met.T - own[:, None] - own)
        change += (size[:, None] + size - 2 * near) * apart
        a, b = np.unravel_index(change.argmin(), change.shape)
        if change[a, b] >= -1e-9 * own.sum():
            return place_of
        place_of[[a, b]] = place_of[[b, a]]


def _of_layers(trace: Trace, occupied: Floats) -> Floats:
    """An occupation for each layer."""
    shape = occupied.shape
    if len(shape) != 4 or shape[0] not in (1, trace.layers) or shape[2] != trace.experts:
        raise InputError(
            f"occupation: found {shape}, allowed: (layers or 1, stages, experts, planes) of the "
            f"trace's {trace.layers} layers of {trace.experts} experts"
        )
    return np.broadcast_to(occupied, (trace.layers, *shape[1:]))


# ---------------------------------------------------------------- what that takes


def dispatch(
    trace: Trace,
    plane_of_expert: ArrayLike,
    search_time: float = 1.0,
    *,
    planes: int | None = None,
    batch: int = 1,
    batching: Batching = "texts",
    in_flight: int = 1,
    copies: int = 1,
) -> xr.Dataset:
    """`serve` with experts that lie on one plane each, see `occupation`."""
    occupied = occupation(plane_of_expert, search_time, planes)
    return serve(
        trace, occupied, batch=batch, batching=batching, in_flight=in_flight, copies=copies
    )


def serve(
    trace: Trace,
    occupied: Floats,
    *,
    batch: int = 1,
    batching: Batching = "texts",
    in_flight: int = 1,
    copies: int = 1,
) -> xr.Dataset:
    """Route a trace to planes, batch by batch, each token as it was.

    A batch leaves a stage when its busiest plane is done. It enters the next layer when
    the batch before has left that, and the first one when the batch `in_flight` before it
    has left the last: texts go on as soon as their token is there.

    Parameters
    ----------
    trace : Trace
    occupied : ndarray of float, (layers or 1, stages, experts, planes)
        Seconds that a search for an expert keeps a plane busy; stages of a layer come one
        after the other.
    batch : int
        Tokens at once.
    batching : {"texts", "prompt"}
        A batch is the next token of as many texts, into which the trace is cut, or as
        many consecutive tokens. Tokens that fill no batch are left out.
    in_flight : int
        Batches under way at once; more than 1 needs layers on planes of their own.
    copies : int
        Of all experts, on planes of their own; a batch's tokens take them in turn.

    Returns
    -------
    xarray.Dataset
        ``latency`` of each batch, and so of its tokens, by ``step`` (s), and at each
        ``percentile``; ``tokens_per_second``; ``busiest``, the mean time of a batch in a
        ``layer`` (s), and ``imbalance``, over that if all planes with experts were evenly
        busy; ``utilisation`` of a ``plane`` by its work for a ``layer``: to be added up
        for layers on the same planes.

    Raises
    ------
    InputError
        If the occupation does not belong to the trace, a count is below 1, or the trace
        has fewer tokens than are under way at once.
    """
    for name, count in {"in_flight": in_flight, "copies": copies}.items():
        _check(name, count, 1, np.inf)
    layers = _of_layers(trace, occupied)
    order = _order(trace, batch, batching, in_flight)
    row = np.arange(len(order))[:, None] * copies + np.arange(batch) % copies
    busiest = np.zeros((len(order), trace.layers))
    even, busy = np.zeros(trace.layers), np.zeros((trace.layers, layers.shape[-1]))
    for layer, stages in enumerate(layers):
        routed = row[..., None] * trace.experts + trace.ids[order, layer].astype(np.int64)
        counts = np.bincount(routed.ravel(), minlength=len(order) * copies * trace.experts)
        times_routed = counts.reshape(-1, trace.experts).astype(float)
        for stage in stages:
            work = (times_routed @ stage).reshape(len(order), copies, -1)
            busiest[:, layer] += work.max(axis=(1, 2))
            even[layer] += work.sum() / np.count_nonzero(stage.any(axis=0))
            busy[layer] += work.sum(axis=(0, 1))
    enter, leave = _flow(busiest, in_flight)
    latency = leave - enter
    found = xr.Dataset(
        {
            "latency": ("step", latency),
            "latency_percentile": ("percentile", np.percentile(latency, PERCENTILES)),
            "tokens_per_second": order.size / leave[-1],
            "busiest": ("layer", busiest.mean(axis=0)),
            "imbalance": ("layer", busiest.sum(axis=0) / even * copies),
            "utilisation": (("layer", "plane"), busy / (copies * leave[-1])),
        },
        coords={"percentile": list(PERCENTILES)},
    )
    return described(found, _SERVED)


_SERVED = {
    "latency": ("s", "time of a token in all layers, waiting included"),
    "latency_percentile": ("s", "percentiles of the latency"),
    "tokens_per_second": ("1/s", "tokens a second"),
    "busiest": ("s", "mean time of a batch's busiest plane in a layer"),
    "imbalance": ("1", "time of the busiest plane over that of all planes evenly busy"),
    "utilisation": ("1", "share of the time that a plane works for a layer"),
}


def _order(trace: Trace, batch: int, batching: Batching, in_flight: int) -> NDArray[np.int64]:
    """Tokens of each batch, (steps, batch)."""
    _check("batch", batch, 1, trace.tokens)
    if batching == "prompt":
        steps = trace.tokens // batch
        return np.arange(steps * batch).reshape(steps, batch)
    texts = in_flight * batch
    _check("in_flight x batch", texts, 1, trace.tokens)
    length = trace.tokens // texts
    return (
        np.arange(length * texts)
        .reshape(in_flight, batch, length)
        .transpose(2, 0, 1)
        .reshape(-1, batch)
    )


def _flow(times: Floats, in_flight: int) -> tuple[Floats, Floats]:
    """When batches enter the first layer and leave the last, of times (steps, layers)."""
    enter, leave = np.zeros(len(times)), np.zeros(len(times))
    free = np.zeros(times.shape[1])  # when the batch before has left each layer
    for step, time in enumerate(times):
        if step >= in_flight:
            enter[step] = leave[step - in_flight]
        free[0] = max(free[0], enter[step])
        # left_l = max(left_(l-1), free_l) + time_l, without a loop over layers
        left = np.cumsum(time)
        left += np.maximum.accumulate(free - (left - time))
        leave[step], free = left[-1], left
    return enter, leave


# ---------------------------------------------------------------- uniform routing in closed form


def expected_busiest(experts_of_plane: ArrayLike, top_k: int, batch: int = 1) -> float:
    """Mean number of searches on the busiest plane when any set of experts is as likely.

    The planes' loads are taken as hypergeometric: `batch` * `top_k` balls in a number of
    slots that gives each load its variance. That is exact for one token (a slot is an expert)
    and for one expert a token (slots without end: a multinomial distribution).

    Parameters
    ----------
    experts_of_plane : array_like of int, (planes,)
    top_k : int
        Experts of a token.
    batch : int
        Tokens.

    Raises
    ------
    InputError
        If there are fewer experts than `top_k`.
    """
    sizes = np.asarray(experts_of_plane)
    experts, balls = int(sizes.sum()), top_k * batch
    if not 1 <= top_k <= experts:
        raise InputError(f"top_k: found {top_k}, allowed: 1 to {experts}, the experts")
    if top_k == experts:
        return float(batch * sizes.max())
    # (slots - balls) / (slots - 1) = (experts - top_k) / (experts - 1)
    slots = (balls * (experts - 1) - (experts - top_k)) / max(top_k - 1, 1e-6)
    slots = max(slots, experts)  # for one ball
    of_plane = sizes[:, None] * slots / experts
    load = np.arange(balls + 1)
    # On condition of their sum, independent binomial loads are hypergeometric.
    log_chosen = -betaln(of_plane - load + 1, load + 1) - np.log(of_plane + 1)
    rest = np.log1p(-balls / slots)
    chance = np.exp(log_chosen + load * np.log(balls / slots) + (of_plane - load) * rest)
    possible = load <= batch * np.minimum(sizes, top_k)[:, None]
    chance = np.where(possible, chance, 0.0)
    # The mean of a whole number is the sum of its chances to be above 0, 1, 2 ...
    return float(sum(1 - _all_within(chance, most) for most in range(balls)))


def _all_within(chance: Floats, most: int) -> float:
    """Chance that no load is above `most` when all loads add up, of chances (planes, balls + 1)."""

    def of_sum(loads: Floats) -> float:
        joint = reduce(lambda a, b: np.convolve(a, b)[: chance.shape[1]], loads)
        return joint[-1] if joint.size == chance.shape[1] else 0.0

    return of_sum(chance[:, : most + 1]) / of_sum(chance)
