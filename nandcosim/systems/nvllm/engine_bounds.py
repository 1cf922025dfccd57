"""Utilisation of the error-resilient engines in closed form, over any configuration axes.

The counterpart of `nandcosim.systems.nvllm.engine`, which says what happens in a cycle. P is
the probability of a faulty segment, L `corrector_latency`, I `corrector_interval`, c, l and S
the correctors, lanes and scoreboard entries of a lane at one hub.

**Lane.** Let corrected segments come back in a share x of the cycles, independently of what
the stream brings. Between cycles the head of a lane is unknown with both halves of the
segment buffer there (A) or one still masked (B), known to be faulty (C), or known to be good
(E). In a cycle with a return, A and B go to B by a fault (P) and else to E, C goes to B, E
stays. In one without, A goes to B through the bypass (P (1 - P)) or to C (P^2, a lost
cycle), B goes to B by a fault (P, lost), C to B (lost), and all else to A. So with q = 1 - P
the shares of B and C are A P / q and (1 - x) P^2 A, that of A is

    q / (1 + q (1 - x) P^2 + q x / (1 - x)),

and faults are met at the rate P (A + B) + C, which gives `_faults_met`. Without a queue it
equals x. For small P the lane loses 3 P^2: each of two adjacent faults a cycle, and of two
faults with one segment between them the second.

**Hub.** It corrects at most c / I segments a cycle. Its queue is that of a server with service
time D = I / c and binomial arrivals in it, and room for K: the scoreboards and the fault at
which each lane then waits, l (S + 1), less what is under way but not queued, the rate times
(L + 2 - D). With z the root other than 1 of z = (1 - r + r z)^(l D), r the faults met a lane
and cycle, and rho = r l D, the two poles of the queue's generating function give

    b = 1 / (1 - rho) + z^(1 - K) / (1 - slope at z),   busy = rho b / (1 + rho b),

the classical solution of M/G/1/K without its faster-fading terms. That the hub returns what
it is given, l x = busy / D, is solved for x by bisection, and x / P is the utilisation.

**In order.** 1 / (1 + P (L + 2)): found, moved, corrected. Lanes that share fewer correctors than
they are also queue; here only as the hub's bound.

**Supply.** Page reads of G segments every R cycles. With one register a read waits until the
last page has moved into the FIFO of F segments: G / (R + (G - F) / v) at an engine's rate v.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.systems.arrays import maximum, minimum, stacked, where
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.engine import (
    DETECT_AND_MOVE,
    PipelineFields,
    fault_probability,
    segments_a_read,
)
from nandcosim.systems.nvllm.hardware import HardwareFields

__all__ = ["limits", "utilisation"]

_Array = NDArray[np.float64]

_HALVINGS = 30
_NEWTON_STEPS = 20
_NEAR = 1e-4
"""Load this close to 1 is moved away from it, where the two poles of the queue meet."""
_LARGEST_EXPONENT = 600.0
_LEAST = 1e-300


def utilisation(
    config: HardwareFields,
    rber: xr.DataArray | float,
    parity_bits: xr.DataArray | int | None = None,
    read_time: xr.DataArray | float | None = None,
) -> xr.DataArray:
    """Share of a lane's cycles in which it multiplies, in the steady state of a layer.

    Parameters
    ----------
    config : HardwareFields
        With its `PipelineFields`, or the defaults of those.
    rber : DataArray or float
        Raw bit error rate.
    parity_bits : DataArray or int, optional
        Of a segment; by default those of the configured code.
    read_time : DataArray or float, optional
        Of a page (s); by default the configuration's `read_time`.

    Returns
    -------
    xarray.DataArray
        Over the axes that it depends on.

    Raises
    ------
    InputError
        If a page holds no segment.
    """
    hub = _Hub(config, rber, parity_bits)
    ahead = xr.apply_ufunc(
        _out_of_order, hub.faulty, hub.interval, hub.latency, hub.correctors, hub.lanes, hub.entries
    )
    in_order = minimum(hub.in_order, hub.bound)
    engine = where(config.array("order") == "in_order", in_order, ahead)
    found = minimum(engine, _supply(config, hub, read_time, engine))
    found.attrs = {"units": "1", "long_name": "share of cycles with a multiplication"}
    return found


def limits(
    config: HardwareFields,
    rber: xr.DataArray | float,
    parity_bits: xr.DataArray | int | None = None,
    read_time: xr.DataArray | float | None = None,
) -> xr.DataArray:
    """What each resource alone would allow.

    Parameters
    ----------
    config, rber, parity_bits, read_time : see `utilisation`

    Returns
    -------
    xarray.DataArray
        Along ``bound``: ``lane``, the loss at faults with correctors enough; ``hub``,
        c / (l P I); ``scoreboard``, S / (P (L + 2)); ``supply``. All but the first are
        bounds that no run exceeds; `utilisation` is at most the least.
    """
    hub = _Hub(config, rber, parity_bits)
    in_order = config.array("order") == "in_order"
    lane = where(in_order, hub.in_order, xr.apply_ufunc(_lane_alone, hub.faulty))
    turn = hub.latency + DETECT_AND_MOVE
    board = minimum(1.0, hub.entries / maximum(hub.faulty * turn, _LEAST))
    bounds = {
        "lane": lane,
        "hub": hub.bound,
        "scoreboard": where(in_order, 1.0, board),
        "supply": minimum(1.0, _supply(config, hub, read_time, xr.ones_like(lane))),
    }
    return stacked(bounds, "bound")


class _Hub:
    """What the lanes at one corrector hub have, as DataArrays."""

    def __init__(
        self,
        config: HardwareFields,
        rber: xr.DataArray | float,
        parity_bits: xr.DataArray | int | None,
    ) -> None:
        data = 8 * config.array("segment_bytes")
        parity = code_sizes(config)["parity_bits"] if parity_bits is None else parity_bits
        self.parity: Any = parity
        self.bits = data + parity
        self.faulty = fault_probability(self.bits, parity, rber)
        self.latency = config.array("corrector_latency")
        given = _pipeline(config, "corrector_interval")
        self.interval = where(given > 0, given, self.latency)
        self.lanes_a_cluster = _pipeline(config, "lanes")
        clusters = where(_pipeline(config, "hub") == "device", config.array("clusters"), 1)
        self.lanes = clusters * self.lanes_a_cluster
        self.correctors = clusters * config.array("correctors")
        self.entries = config.array("scoreboard")

    @property
    def bound(self) -> xr.DataArray:
        """c / (l P I), at most 1."""
        wanted = self.lanes * self.faulty * self.interval
        return minimum(1.0, self.correctors / maximum(wanted, _LEAST))

    @property
    def in_order(self) -> xr.DataArray:
        """A lane that waits for each correction, without a queue."""
        return 1 / (1 + self.faulty * (self.latency + DETECT_AND_MOVE))


def _pipeline(config: HardwareFields, name: str) -> xr.DataArray:
    owner = config if name in type(config).model_fields else PipelineFields()
    return owner.array(name)


def _supply(
    config: HardwareFields,
    hub: _Hub,
    read_time: xr.DataArray | float | None,
    engine: xr.DataArray,
) -> xr.DataArray:
    """What the pages allow a lane that would else multiply in a share `engine` of cycles."""
    group = segments_a_read(config, hub.parity)
    held = 8 * _pipeline(config, "fifo_bytes") // hub.bits
    time = config.array("read_time") if read_time is None else read_time
    lanes = hub.lanes_a_cluster
    waits = (config.array("page_buffers") == 1) * maximum(0, group - held) / (lanes * engine)
    return group / (time * config.array("engine_clock") + waits) / lanes


def _faults_met(faulty: _Array, returns: _Array) -> _Array:
    """Faults that a lane meets a cycle, if corrected segments come back in a share of them."""
    good, free = 1 - faulty, 1 - returns
    twice = good * free * faulty**2
    return (faulty + twice) / (1 + twice + good * returns / np.maximum(free, _LEAST))


def _lane_alone(faulty: _Array) -> _Array:
    return _solve(faulty, lambda returns: _faults_met(faulty, returns), faulty)


def _out_of_order(
    faulty: _Array,
    interval: _Array,
    latency: _Array,
    correctors: _Array,
    lanes: _Array,
    entries: _Array,
) -> _Array:
    turn = latency + DETECT_AND_MOVE
    service = np.maximum(interval / correctors, turn / (entries * lanes))

    def returned(returns: _Array) -> _Array:
        met = _faults_met(faulty, returns)
        room = lanes * (entries + 1 - returns * (turn - service))
        return _busy(met, lanes * service, room) / (lanes * service)

    return _solve(faulty, returned, np.minimum(faulty, 1 / (lanes * service)))


def _solve(faulty: _Array, returned: Any, most: _Array) -> _Array:
    """Utilisation at which returned(x), which falls, equals x."""
    low, high = np.zeros(np.shape(most)), most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = returned(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(faulty > 0, high / np.maximum(faulty, _LEAST), 1.0)


def _busy(met: _Array, service: _Array, room: _Array) -> _Array:
    """Share of time that a server is busy, with binomial arrivals and limited room.

    Parameters
    ----------
    met : ndarray
        Probability of an arrival in a trial.
    service : ndarray
        Trials in a service time.
    room : ndarray
        Customers at most, the one in service included.
    """
    met = np.clip(met, _LEAST, 1 - 1e-12)
    met = np.where(np.abs(met * service - 1) < _NEAR, (1 - 3 * _NEAR) / service, met)
    load = met * service
    exponent = _second_root(met, service)
    root = np.exp(exponent)
    slope = load * root / (1 + met * (root - 1))
    fading = np.exp(np.minimum((1 - room) * exponent, _LARGEST_EXPONENT))
    with np.errstate(divide="ignore", invalid="ignore"):
        # one trial or less a service: nobody ever waits, and there is one pole
        total = 1 / (1 - load) + np.where(service > 1, fading / (1 - slope), 0.0)
    return load * total / (1 + load * total)


def _second_root(met: _Array, service: _Array) -> _Array:
    """w not 0 with w = service * ln(1 - met + met e^w), by Newton from outside.

    The difference is convex in w, so steps from beyond the root never pass it; the
    asymptotes of the difference give such starts.
    """
    above = -service * np.log(met) / np.maximum(service - 1, _NEAR)
    w = np.where(met * service < 1, above, service * np.log1p(-met))
    for _ in range(_NEWTON_STEPS):
        w = np.clip(w, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        grown = met * np.exp(w)
        inside = 1 - met + grown
        slope = service * grown / inside - 1
        safe = np.where(np.abs(slope) > _LEAST, slope, 1.0)
        w = w - (service * np.log(inside) - w) / safe
    return w
