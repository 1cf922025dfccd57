"""Event-driven simulation of D-NOVA: queries that compete for planes, buses and cores.

The closed forms of `nandcosim.systems.dnova.cost` describe a query alone and the bound of
each resource; here queries queue for each other. Both take their times from
`cost.service`, so they differ by queueing only. An activation is one chain of events:
wait for its plane group, sense, wait for the channel's bus, send.

Sub-block i lies on plane group i % groups, where the groups are those of a channel, or of
the device under the schedule ``device``; group g then lies on channel g % channels. Waiting
requests are served in the order they came.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import linregress

from nandcosim.errors import InputError
from nandcosim.systems.dnova.cost import controller_time, energy, latency, service, throughput
from nandcosim.systems.dnova.hardware import HardwareFields, spread
from nandcosim.systems.dnova.mapping import Touches
from nandcosim.systems.dnova.trace import Trace, activity_of, refuse_axes

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["poisson_arrivals", "simulate", "where_they_part"]

_Events = Generator[simpy.Event, Any, None]

#: Parts of the simulated latency of a stage; they sum to it.
PARTS = ("queue", "storage", "controller", "host")

#: Share of the departures on either side that the steady rate leaves out.
_EDGE = 0.25

#: Queries in flight for each copy of the index that keep its three streams busy.
_SATURATED = 12


def poisson_arrivals(rate: float, n: int, seed: int) -> NDArray[np.float64]:
    """Times of n arrivals (s) at `rate` (1/s), exponential gaps.

    Raises
    ------
    InputError
        If the rate is not positive.
    """
    if not rate > 0:
        raise InputError(f"arrivals: rate = {rate} queries/s, allowed: above 0")
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


def simulate(
    trace: Trace,
    config: HardwareFields,
    tables: Mapping[str, CalibrationTable] | None = None,
    *,
    arrivals: ArrayLike | None = None,
    in_flight: int | None = None,
) -> xr.Dataset:
    """Run the queries of a trace through the device.

    Parameters
    ----------
    trace : Trace
    config : HardwareFields
        Without axes, with `latch_bits`, `nprobe`, `k2` and `k1` of the search.
    tables : Mapping of str to CalibrationTable, optional
        As in `cost.sense_cost`.
    arrivals : float array (nq,), optional
        When each query arrives (s), ascending. Without: all at the start.
    in_flight : int, optional
        Instead of arrivals: as many queries are in the device at once, and the next one
        arrives when one leaves; 1: each runs alone.

    Returns
    -------
    xarray.Dataset
        ``latency`` (query, stage, part; s), from arrival to results: ``queue`` for a
        stream, a core or the host interface; ``storage``, from the first broadcast bit to
        the last deficit sent; ``controller``; ``host``. ``group_wait`` and ``bus_wait``
        (query, stage; s): summed over activations. ``activations`` and ``sensed`` carried
        out, ``energy`` (query, stage, component; J) of those by `cost.energy`.
        ``utilisation`` (resource): busy time of all of a class over the makespan.
        ``makespan`` (s); ``qps`` = queries / makespan; ``qps_steady``, the rate of
        departures without the first and last quarter of them.

    Raises
    ------
    InputError
        For a configuration with axes, arrivals of a wrong shape or order, and as
        `cost.service`.
    """
    refuse_axes(config)
    times = np.zeros(trace.nq) if arrivals is None else np.asarray(arrivals, dtype=float)
    if times.shape != (trace.nq,) or not (np.diff(times) >= 0).all() or times[0] < 0:
        raise InputError(
            f"arrivals: shape {times.shape}, allowed: ({trace.nq},), ascending, from 0"
        )
    if in_flight is not None and (in_flight < 1 or arrivals is not None):
        raise InputError(
            f"in_flight = {in_flight}, allowed: 1 or more queries, and not together with arrivals"
        )
    device = _Device(trace, config, tables)
    device.run(times, in_flight)
    return device.result()


def where_they_part(
    trace: Trace,
    config: HardwareFields,
    tables: Mapping[str, CalibrationTable] | None = None,
) -> xr.Dataset:
    """Simulation against closed form: each query alone, and the device saturated.

    Saturated means a dozen queries in flight a copy of the index. With all of them at once the
    early stages would run ahead of the late ones, and the rate would be no steady one.

    Returns
    -------
    xarray.Dataset
        ``latency_ratio`` (query): simulated over closed form, alone. ``qps_closed`` and
        ``bottleneck`` by `cost.throughput`; ``qps_hottest_group``, the bound of the plane
        group that this batch keeps busy longest; ``qps_simulated``, the steady rate,
        saturated; ``qps_ratio``, simulated over closed form. ``group_wait`` and
        ``bus_wait`` (s): mean of a query, saturated, summed over its activations.
        ``utilisation`` (resource), saturated.

    Raises
    ------
    InputError
        As `simulate`.
    """
    activity = trace.activity(config)
    alone = simulate(trace, config, tables, in_flight=1)
    copies = 1 if config.schedule == "device" else int(config.channels)  # type: ignore[arg-type]
    batch = simulate(trace, config, tables, in_flight=_SATURATED * copies)
    closed = latency(activity, config, tables).sum(["stage", "component"])
    bounds = throughput(activity, config, tables)
    simulated = alone["latency"].sum(["stage", "part"])
    return xr.Dataset(
        {
            "latency_ratio": simulated / closed,
            "qps_closed": bounds["qps"],
            "bottleneck": bounds["bottleneck"],
            "qps_hottest_group": _hottest_group(trace, config, tables),
            "qps_simulated": batch["qps_steady"],
            "qps_ratio": batch["qps_steady"] / bounds["qps"],
            "group_wait": batch["group_wait"].sum("stage").mean("query"),
            "bus_wait": batch["bus_wait"].sum("stage").mean("query"),
            "utilisation": batch["utilisation"],
        }
    )


def _hottest_group(
    trace: Trace, config: HardwareFields, tables: Mapping[str, CalibrationTable] | None
) -> float:
    """Queries a second that the busiest plane group allows, queries evenly on the copies."""
    times = _Times(trace, config, tables)
    groups = int(spread(trace.dimension, config))
    busy = np.zeros(groups)
    for stage, touches in enumerate(trace.stages):
        sent = touches.vectors * (times.vector if config.transfer_overlap == "none" else 0.0)
        busy += np.bincount(touches.subblocks % groups, times.sense[stage] + sent, groups)
    copies = 1 if config.schedule == "device" else int(config.channels)  # type: ignore[arg-type]
    return float(copies * trace.nq / busy.max())


class _Times:
    """Service times as Python floats, which the event loop is fast with (s)."""

    def __init__(
        self, trace: Trace, config: HardwareFields, tables: Mapping[str, CalibrationTable] | None
    ) -> None:
        m = xr.DataArray(list(trace.m), dims="stage", coords={"stage": [1, 2, 3]})
        once = service(trace.dimension, m, config, tables)
        self.sense = [float(t) for t in once["array"] + once["accumulate"]]
        self.host = [float(t) for t in once["host"]]
        self.vector = float(once["vector_time"])
        self.broadcast = float(once["broadcast"])
        scored = np.stack([stage.scored() for stage in trace.stages], axis=1)
        entries = xr.DataArray(scored, dims=("query", "stage"), coords={"stage": [1, 2, 3]})
        cores = controller_time(entries, trace.dimension, config)
        self.core: list[list[float]] = cores.transpose("query", "stage").values.tolist()


class _Device:
    """Resources, service times and tallies of one run."""

    def __init__(
        self,
        trace: Trace,
        config: HardwareFields,
        tables: Mapping[str, CalibrationTable] | None,
    ) -> None:
        self.trace, self.config, self.tables = trace, config, tables
        self.serial = config.schedule == "serial"
        self.shared = config.schedule == "device"
        self.holds = config.transfer_overlap == "none"
        self.times = _Times(trace, config, tables)
        self.work = [_listed(stage) for stage in trace.stages]
        self._build(int(config.channels))  # type: ignore[arg-type]  # no axes left
        shape = (trace.nq, 3)
        self.parts = np.zeros((*shape, len(PARTS)))
        self.group_wait, self.bus_wait = np.zeros(shape), np.zeros(shape)
        self.activations = np.zeros(shape, dtype=np.int64)
        self.sensed = np.zeros(shape, dtype=np.int64)
        self.departures: list[float] = []
        self.busy = dict.fromkeys(self.units, 0.0)

    def _build(self, channels: int) -> None:
        self.env = simpy.Environment()
        copies = 1 if self.shared else channels
        self.groups_a_copy = int(spread(self.trace.dimension, self.config))
        cores = int(self.config.controller_cores)  # type: ignore[arg-type]
        self.groups = [
            [simpy.Resource(self.env) for _ in range(self.groups_a_copy)] for _ in range(copies)
        ]
        self.streams = [[simpy.Resource(self.env) for _ in range(3)] for _ in range(copies)]
        self.buses = [simpy.Resource(self.env) for _ in range(channels)]
        self.cores = simpy.Resource(self.env, cores)
        self.host = simpy.Resource(self.env)
        self.load = [0] * copies
        self.units = {
            "streams": 3 * copies,
            "plane_groups": copies * self.groups_a_copy,
            "bus": channels,
            "controller": cores,
            "host": 1,
        }

    def run(self, times: NDArray[np.float64], in_flight: int | None) -> None:
        """Run until the last query has left."""
        gate = simpy.Resource(self.env, in_flight or self.trace.nq)
        for query, time in enumerate(times.tolist()):
            self.env.process(self._query(query, time, gate))
        self.env.run()

    def _query(self, query: int, arrival: float, gate: simpy.Resource) -> _Events:
        yield self.env.timeout(arrival)
        with gate.request() as entry:
            yield entry
            copy = self.load.index(min(self.load))
            self.load[copy] += 1
            yield from self._host(query, 0)
            for stage in range(3):
                yield from self._stage(query, stage, copy)
            yield from self._host(query, 2)
            self.load[copy] -= 1
            self.departures.append(self.env.now)

    def _host(self, query: int, stage: int) -> _Events:
        yield from self._served(self.host, "host", query, stage, self.times.host[stage])

    def _stage(self, query: int, stage: int, copy: int) -> _Events:
        asked = self.env.now
        with self.streams[copy][stage].request() as turn:
            yield turn
            self._spent(query, stage, "queue", asked)
            started = self.env.now
            yield from self._broadcast(query, stage, copy)
            yield from self._activate(query, stage, copy)
            self._spent(query, stage, "storage", started)
            self.busy["streams"] += self.env.now - started
        time = self.times.core[query][stage]
        yield from self._served(self.cores, "controller", query, stage, time)

    def _broadcast(self, query: int, stage: int, copy: int) -> _Events:
        """The query's codes over the bus of the copy's channel, or over all of them."""
        channels = range(len(self.buses)) if self.shared else (copy,)
        sent = [
            self.env.process(self._send(query, stage, channel, self.times.broadcast))
            for channel in channels
        ]
        yield self.env.all_of(sent)

    def _activate(self, query: int, stage: int, copy: int) -> _Events:
        """All activations of a stage: in turn when serial, else as the plane groups come free."""
        pending: list[simpy.Event] = []
        waiting = list(self.work[stage][query])
        while waiting:
            subblock, vectors = waiting.pop(self._next(waiting, copy))
            activation = self._activation(query, stage, copy, subblock, vectors, pending)
            if self.serial:
                yield from activation
            else:
                pending.append(self.env.process(activation))
        while pending:  # an activation may leave a transfer behind
            yield pending.pop()

    def _next(self, waiting: list[tuple[int, int]], copy: int) -> int:
        """Which activation to start now: the first, or the first whose plane group is free."""
        if self.serial and self.config.activation_order == "free-first":
            for i, (subblock, _) in enumerate(waiting):
                if self.groups[copy][subblock % self.groups_a_copy].count == 0:
                    return i
        return 0

    def _activation(
        self,
        query: int,
        stage: int,
        copy: int,
        subblock: int,
        vectors: int,
        pending: list[simpy.Event],
    ) -> _Events:
        number = subblock % self.groups_a_copy
        channel = number % len(self.buses) if self.shared else copy
        asked = self.env.now
        with self.groups[copy][number].request() as turn:
            yield turn
            self.group_wait[query, stage] += self.env.now - asked
            started = self.env.now
            yield self.env.timeout(self.times.sense[stage])
            transfer = self._send(query, stage, channel, vectors * self.times.vector)
            if self.holds:
                yield from transfer
            else:
                pending.append(self.env.process(transfer))
            self.busy["plane_groups"] += self.env.now - started
        self.activations[query, stage] += 1
        self.sensed[query, stage] += vectors

    def _send(self, query: int, stage: int, channel: int, time: float) -> _Events:
        asked = self.env.now
        with self.buses[channel].request() as turn:
            yield turn
            self.bus_wait[query, stage] += self.env.now - asked
            yield self.env.timeout(time)
            self.busy["bus"] += time

    def _served(
        self, resource: simpy.Resource, part: str, query: int, stage: int, time: float
    ) -> _Events:
        asked = self.env.now
        with resource.request() as turn:
            yield turn
            self._spent(query, stage, "queue", asked)
            started = self.env.now
            yield self.env.timeout(time)
            self._spent(query, stage, part, started)
            self.busy[part] += time

    def _spent(self, query: int, stage: int, part: str, since: float) -> None:
        self.parts[query, stage, PARTS.index(part)] += self.env.now - since

    def result(self) -> xr.Dataset:
        """What was tallied, labelled."""
        # Energy does not depend on how activations spread.
        carried_out = {"activations": self.activations, "busiest": self.activations}
        done = activity_of(
            {**carried_out, "sensed": self.sensed}, self.trace.m, self.trace.dimension
        )
        by_stage = ("query", "stage")
        makespan = self.env.now
        found = xr.Dataset(
            {
                "latency": ((*by_stage, "part"), self.parts),
                "group_wait": (by_stage, self.group_wait),
                "bus_wait": (by_stage, self.bus_wait),
                "activations": done["activations"],
                "sensed": done["sensed"],
                "energy": energy(done, self.config, self.tables),
                "utilisation": (
                    "resource",
                    [self.busy[name] / (count * makespan) for name, count in self.units.items()],
                ),
                "makespan": makespan,
                "qps": self.trace.nq / makespan,
                "qps_steady": _steady_rate(np.sort(self.departures)),
            },
            coords={"stage": [1, 2, 3], "part": list(PARTS), "resource": list(self.units)},
        )
        for name, (unit, meaning) in _RESULT.items():
            found[name].attrs = {"units": unit, "long_name": meaning}
        return found


_RESULT = {
    "latency": ("s", "latency of a query"),
    "group_wait": ("s", "waits for plane groups, summed over activations"),
    "bus_wait": ("s", "waits for the bus, summed over transfers"),
    "activations": ("1", "sub-blocks activated"),
    "sensed": ("1", "vectors scored"),
    "energy": ("J", "energy of a query"),
    "utilisation": ("1", "busy time of a class of resources over the makespan"),
    "makespan": ("s", "from the start to the last departure"),
    "qps": ("1/s", "queries a second, all of them"),
    "qps_steady": ("1/s", "queries a second between the first and the last quarter"),
}


def _steady_rate(departures: NDArray[np.float64]) -> float:
    """Slope of departures against time between the edges (1/s); NaN if too few.

    Channels in step leave in bursts, which a count between two instants would cut.
    """
    edge = int(_EDGE * departures.size)
    middle = departures[edge : departures.size - edge]
    if middle.size < 2 or middle[-1] <= middle[0]:
        return float("nan")
    return float(linregress(middle, np.arange(middle.size)).slope)


def _listed(touches: Touches) -> list[list[tuple[int, int]]]:
    """(sub-block, vectors) of each query as Python numbers, which the event loop is fast with."""
    pairs = list(zip(touches.subblocks.tolist(), touches.vectors.tolist(), strict=True))
    offsets = touches.offsets.tolist()
    return [pairs[a:b] for a, b in pairwise(offsets)]
