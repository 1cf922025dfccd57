"""Time, energy, throughput and power of D-NOVA in closed form over any configuration axes.

An *activity* says what a batch of queries makes the device do, and the formulas here say
what that takes. It is a Dataset over any axes of the configuration, ``stage`` (1, 2, 3)
and, unless it is a mean already, ``query``:

- ``activations``: sub-blocks activated; ``busiest``: those on the busiest plane group under
  the schedule (all of them when serial); ``sensed``: vectors scored;
- ``m``: wordlines driven at once, over ``stage`` and ``dts`` if that is an axis;
- attribute ``dimension``: components of a vector, D.

An activation senses ceil(min(D, wordlines) / m) times in all planes of a group at once
(section 3.3), then its deficits leave over the channel's bus. Controller work starts when
the last deficit of a stage has arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.special import digamma

from nandcosim.errors import InputError
from nandcosim.systems.arrays import where
from nandcosim.systems.dnova.hardware import HardwareFields, groups_a_die, spread, strings

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = [
    "COMPONENTS",
    "cap_notes",
    "energy",
    "latency",
    "power",
    "qlc_ratio",
    "quickselect_compares",
    "quicksort_compares",
    "sense_cost",
    "service",
    "throughput",
]

#: Parts that a stage's latency and energy are sums of.
COMPONENTS = ("array", "accumulate", "bus", "controller", "host")

_Tables = Mapping[str, "CalibrationTable"]


# ---------------------------------------------------------------- one sense


def sense_cost(tables: _Tables | None, m: xr.DataArray, config: HardwareFields) -> xr.Dataset:
    """Time and energy of one DTS sense of one plane with m wordlines driven.

    The page sense of Table 1 is taken as the cost at m = 1. The circuit's tables add how
    much later the bitline crosses with m (``dts_discharge``, companions at
    `companion_margin`), and split the energy: each wordline costs the same (section 6.6:
    wordline toggling dominates), the bitlines what ``dts_energy`` has for m::

        time(m)   = sense_time + t_discharge(m) - t_discharge(1)
        energy(m) = m (page_energy - bitlines e(1)) + bitlines e(m)

    Parameters
    ----------
    tables : Mapping of str to CalibrationTable, optional
        Without: Table 1 alone, time(m) = sense_time and energy(m) = m page_energy.
    m : int DataArray
        Wordlines driven at once.
    config : HardwareFields

    Returns
    -------
    xarray.Dataset
        ``time`` (s), ``energy`` (J), and the split: ``wordline_energy`` of one wordline,
        ``bitline_energy`` of all bitlines in one sense (J). Attribute ``source``.

    Raises
    ------
    InputError
        If a table is missing or does not hold an m or the companion margin.
    """
    time, page = config.array("sense_time"), config.array("page_energy")
    bitline = xr.zeros_like(m, dtype=float)
    bitline_at_1 = xr.DataArray(0.0)
    source = "Table 1 alone"
    if tables is not None:
        one = xr.ones_like(m)
        margin = config.array("companion_margin")
        discharge = _table(tables, "dts_discharge")
        later = discharge.lookup("discharge_time", m=m, companion_margin=margin)
        later = later - discharge.lookup("discharge_time", m=one, companion_margin=margin)
        if not margin.dims:  # no axis, so no label of the result either
            later = later.drop_vars("companion_margin", errors="ignore")
        time = time + later
        bitlines, sense = config.array("bitlines"), _table(tables, "dts_energy")
        bitline = bitlines * sense.lookup("sense_energy", m=m)
        bitline_at_1 = bitlines * sense.lookup("sense_energy", m=one)
        source = "Table 1 and the tables dts_discharge and dts_energy"
    wordline = page - bitline_at_1
    found = xr.Dataset(
        {
            "time": time + xr.zeros_like(m, dtype=float),
            "energy": m * wordline + bitline,
            "wordline_energy": wordline,
            "bitline_energy": bitline,
        },
        attrs={"source": source},
    )
    return _described(found, _SENSE)


def qlc_ratio(m: xr.DataArray, config: HardwareFields, tables: _Tables | None = None) -> xr.Dataset:
    """QLC reads against DTS senses of the same cells (section 3.2).

    DTS senses m cells in 2 senses, original and complement; a QLC read takes
    `qlc_read_time` a cell, or 2^bits - 1 senses.

    Returns
    -------
    xarray.Dataset
        ``time``: qlc_read_time m / (2 time(m)). ``cycles``: (2^bits - 1) m / 2, from the
        section's T_DTS and T_QLC.

    Raises
    ------
    InputError
        As `sense_cost`.
    """
    dts = sense_cost(tables, m, config)["time"]
    reads = 2 ** config.array("cell_bits") - 1
    found = xr.Dataset(
        {"time": config.array("qlc_read_time") * m / (2 * dts), "cycles": reads * m / 2}
    )
    return _described(
        found,
        {
            "time": ("1", "time of QLC reads over that of DTS"),
            "cycles": ("1", "senses of QLC reads over those of DTS"),
        },
    )


# ---------------------------------------------------------------- controller


def quickselect_compares(n: xr.DataArray, k: xr.DataArray) -> xr.DataArray:
    """Mean comparisons to find the k smallest of n by quickselect; 0 where k >= n.

    Knuth, Mathematical Analysis of Algorithms (1971), random pivots:
    2 ((n + 1) H_n - (n + 3 - k) H_(n + 1 - k) - (k + 2) H_k + n + 3).
    """
    kept = where(k < n, k, n)
    compares = 2 * (
        (n + 1) * _harmonic(n)
        - (n + 3 - kept) * _harmonic(n + 1 - kept)
        - (kept + 2) * _harmonic(kept)
        + n
        + 3
    )
    return where(k < n, compares, 0.0)


def quicksort_compares(n: xr.DataArray) -> xr.DataArray:
    """Mean comparisons to sort n entries by quicksort, 2 (n + 1) H_n - 4 n (Hoare, 1962)."""
    return 2 * (n + 1) * _harmonic(n) - 4 * n


def _harmonic(n: xr.DataArray) -> xr.DataArray:
    found: xr.DataArray = xr.apply_ufunc(digamma, n + 1.0) + np.euler_gamma
    return found


# ---------------------------------------------------------------- service times


def service(
    dimension: int, m: xr.DataArray, config: HardwareFields, tables: _Tables | None = None
) -> xr.Dataset:
    """Times and energies of single operations, from which everything else is made.

    Parameters
    ----------
    dimension : int
        Components of a vector, D.
    m : int DataArray (stage[, dts])
    config : HardwareFields
        With `latch_bits` and `k1` of the search.
    tables : optional
        As in `sense_cost`.

    Returns
    -------
    xarray.Dataset
        Of one activation: ``array`` and ``accumulate`` (s), ``array_energy`` and
        ``accumulate_energy`` (J). ``vector_bits`` sent for a vector and ``vector_time``
        that takes (s). ``broadcast_bits`` of a query to the planes and ``broadcast``
        (s). ``host_bits`` and ``host`` (s) of a query, by stage. ``sense_time`` (s),
        and ``plane_power`` (W) of a plane that senses.

    Raises
    ------
    InputError
        As `sense_cost` and `groups_a_die`.
    """
    groups_a_die(dimension, config)  # refuses a vector that does not fit
    cells = config.array("wordlines")
    sense = sense_cost(tables, m, config)
    senses = np.ceil(np.minimum(dimension, cells) / m)
    # The last string of a vector is partly used: its plane rests while the others sense.
    whole, rest = dimension // cells, dimension % cells
    plane_senses = 2 * (whole * np.ceil(cells / m) + np.ceil(rest / m))
    tail = config.array("accumulator_group") / config.array("accumulator_clock")
    stall = np.maximum(tail - sense["time"], 0.0)
    vector_bits = 2 * strings(dimension, config) * config.array("latch_bits")
    query_bits = dimension * config.array("cell_bits")
    bus_bits = 8 * config.array("channel_bandwidth")
    host_bits = _by_stage(query_bits, 0, config.array("k1") * config.array("result_bits"))
    messages = _by_stage(1, 0, 1)
    found = xr.Dataset(
        {
            "array": senses * sense["time"],
            "accumulate": tail + (senses - 1) * stall,
            "array_energy": 2 * dimension * sense["wordline_energy"]
            + plane_senses * sense["bitline_energy"],
            "accumulate_energy": plane_senses
            * config.array("bitlines")
            * config.array("accumulator_energy"),
            "vector_bits": vector_bits,
            "vector_time": vector_bits / bus_bits,
            "broadcast_bits": query_bits,
            "broadcast": query_bits / bus_bits,
            "host_bits": host_bits,
            "host": messages * config.array("host_latency")
            + host_bits / (8 * config.array("host_bandwidth")),
            "sense_time": sense["time"],
            "plane_power": sense["energy"] / sense["time"],
        },
        attrs=sense.attrs,
    )
    return _described(found, _SERVICE)


def controller_time(sensed: xr.DataArray, dimension: int, config: HardwareFields) -> xr.DataArray:
    """Time of one core for a stage of a query (s): merging, then selecting or sorting.

    Stages 1 and 2 keep the best `nprobe` and `k2` by quickselect, stage 3 sorts by
    quicksort (section 3.3).

    Parameters
    ----------
    sensed : DataArray (..., stage)
        Vectors scored.
    dimension : int
    config : HardwareFields
        With `nprobe` and `k2` of the search.
    """
    entries = sensed.astype(float)
    kept = _by_stage(config.array("nprobe"), config.array("k2"), 1)
    compares = where(
        entries["stage"] < 3,
        quickselect_compares(entries, kept),
        quicksort_compares(entries),
    )
    merges = 2 * strings(dimension, config) * entries
    cycles = merges * config.array("merge_cycles") + compares * config.array("compare_cycles")
    return cycles / config.array("controller_clock")


# ---------------------------------------------------------------- a query


def latency(
    activity: xr.Dataset, config: HardwareFields, tables: _Tables | None = None
) -> xr.DataArray:
    """Latency of a query that has the device to itself (s).

    Parameters
    ----------
    activity : xarray.Dataset
        See the module.
    config : HardwareFields
        With `latch_bits`, `nprobe`, `k2` and `k1` of the search.
    tables : Mapping of str to CalibrationTable, optional
        As in `sense_cost`.

    Returns
    -------
    xarray.DataArray
        Over the axes, ``query``, ``stage`` and ``component``; sums to the total. ``bus``
        is the broadcast and that part of the transfers which sensing does not hide.

    Raises
    ------
    InputError
        For an incomplete activity, and as `service`.
    """
    once, parts = _service_of(activity, config, tables)
    busiest = activity["busiest"]
    array, accumulate = busiest * once["array"], busiest * once["accumulate"]
    exposed = _storage_time(activity, config, once) - array - accumulate
    controller = controller_time(activity["sensed"], parts, config)
    return _stacked(
        {
            "array": array,
            "accumulate": accumulate,
            "bus": once["broadcast"] + exposed,
            "controller": controller,
            "host": once["host"],
        },
        "s",
        "latency of a query alone on the device",
    )


def _storage_time(activity: xr.Dataset, config: HardwareFields, once: xr.Dataset) -> xr.DataArray:
    """From the first sense of a stage to the last deficit sent (s).

    Every plane group works through its activations; deficits of the groups of a channel
    queue for its bus. Where the bus keeps up, groups fall behind each other by one
    transfer each in the first round and stay so; else the bus alone counts.
    """
    total, rounds = activity["activations"], activity["busiest"]
    schedule = config.array("schedule")
    channels = config.array("channels")
    of_channel = where(
        schedule == "serial",
        1,
        config.array("dies") * groups_a_die(activity.attrs["dimension"], config),
    )
    on_bus = where(schedule == "device", np.maximum(np.ceil(total / channels), rounds), total)
    last_round = np.minimum(np.maximum(on_bus - (rounds - 1) * of_channel, 1), of_channel)
    sense = once["array"] + once["accumulate"]
    send = once["vector_time"] * activity["sensed"] / np.maximum(total, 1)
    held = rounds * (sense + send) + (last_round - 1) * send
    hidden = rounds * sense + last_round * send
    groups_limit = where(config.array("transfer_overlap") == "none", held, hidden)
    bus_limit = sense + on_bus * send
    return where(total > 0, np.maximum(groups_limit, bus_limit), 0.0)


def energy(
    activity: xr.Dataset, config: HardwareFields, tables: _Tables | None = None
) -> xr.DataArray:
    """Energy of a query (J); parameters, dims and errors as `latency`.

    Only what the work itself takes: idle power is not in it.
    """
    once, dimension = _service_of(activity, config, tables)
    count, sensed = activity["activations"], activity["sensed"]
    copies = where(config.array("schedule") == "device", config.array("channels"), 1)
    bus_bits = sensed * once["vector_bits"] + copies * once["broadcast_bits"]
    entries = 2 * sensed * config.array("entry_bits")  # written once, read once
    controller = controller_time(sensed, dimension, config) * config.array("controller_power")
    return _stacked(
        {
            "array": count * once["array_energy"],
            "accumulate": count * once["accumulate_energy"],
            "bus": bus_bits * config.array("channel_energy"),
            "controller": controller + entries * config.array("sram_energy"),
            "host": once["host_bits"] * config.array("host_energy"),
        },
        "J",
        "energy of a query",
    )


# ---------------------------------------------------------------- many queries


def throughput(
    activity: xr.Dataset, config: HardwareFields, tables: _Tables | None = None
) -> xr.Dataset:
    """Saturated queries a second, by the operational bound of each resource.

    A stage works on one query at a time in each *stream*: one stream a stage and channel
    where every channel holds a copy of the index (``serial``, ``channel``), one a stage
    where all channels share one (``device``). ``streams`` = streams / longest stage is the
    reading that reproduces Fig. 17. The other bounds are resources / busy time a query, work
    evenly spread. Queueing between resources is left out; `simulation` has it.

    Parameters as `latency`; a mean is taken over ``query``.

    Returns
    -------
    xarray.Dataset
        ``limit`` (queries/s) over the axes and ``bound``; ``qps``, the least of them;
        ``bottleneck``, its name; ``qps_capped``, at most `power_cap` / energy of a query.

    Raises
    ------
    InputError
        As `latency`.
    """
    once, _ = _service_of(activity, config, tables)
    parts = latency(activity, config, tables)
    channels = config.array("channels")
    device = config.array("schedule") == "device"
    lanes = where(device, 1, channels)
    stage = parts.sel(component=["array", "accumulate", "bus"]).sum("component")
    sensing = activity["activations"] * (once["array"] + once["accumulate"])
    sending = activity["sensed"] * once["vector_time"]
    holding = sensing + where(config.array("transfer_overlap") == "none", sending, 0.0)
    groups = lanes * spread(activity.attrs["dimension"], config)
    on_each_bus = sending / where(device, channels, 1) + once["broadcast"]
    limits = {
        "streams": lanes / _mean(stage).max("stage"),
        "plane_groups": groups / _mean(holding).sum("stage"),
        "bus": lanes / _mean(on_each_bus).sum("stage"),
        "controller": config.array("controller_cores")
        / _mean(parts.sel(component="controller", drop=True)).sum("stage"),
        "host": 1 / _mean(parts.sel(component="host", drop=True)).sum("stage"),
    }
    limit = xr.concat(
        xr.broadcast(*limits.values()), dim=xr.Variable("bound", list(limits)), coords="minimal",
        compat="override",
    ).transpose(..., "bound")  # fmt: skip
    per_query = _mean(energy(activity, config, tables)).sum(["stage", "component"])
    qps = limit.min("bound")
    found = xr.Dataset(
        {
            "limit": limit,
            "qps": qps,
            "bottleneck": limit.idxmin("bound").astype(str),
            "qps_capped": np.minimum(qps, config.array("power_cap") / per_query),
        }
    )
    return _described(
        found,
        {
            "limit": ("1/s", "queries a second that a resource allows"),
            "qps": ("1/s", "queries a second, saturated"),
            "bottleneck": ("", "resource that limits the queries a second"),
            "qps_capped": ("1/s", "queries a second within the power cap"),
        },
    )


def power(
    activity: xr.Dataset, config: HardwareFields, tables: _Tables | None = None
) -> xr.Dataset:
    """Power drawn against `power_cap`, and the latency that keeps to it.

    Parameters as `latency`.

    Returns
    -------
    xarray.Dataset
        In W: ``all_planes`` (stage), every plane of the device sensing at m; ``alone``
        (query, stage), the planes that one query makes sense at once; ``saturated``, the
        most planes that the schedule's streams make sense at once; ``average``, energy of
        a query times saturated queries a second. ``latency_throttled`` (query, stage; s):
        sensing stretched by ``alone`` / `power_cap` where that exceeds 1.

    Raises
    ------
    InputError
        As `latency`.
    """
    once, dimension = _service_of(activity, config, tables)
    schedule, channels = config.array("schedule"), config.array("channels")
    planes = channels * config.array("dies") * config.array("planes")
    group = 2 * strings(dimension, config) * once["plane_power"]
    groups = groups_a_die(dimension, config) * channels * config.array("dies")
    at_once = where(
        schedule == "serial",
        np.minimum(activity["activations"], 1),
        np.minimum(activity["activations"], spread(dimension, config)),
    )
    alone = at_once * group
    streams = np.minimum(channels * group.sum("stage"), groups * group.max("stage"))
    saturated = where(schedule == "serial", streams, groups * group.max("stage"))
    per_query = _mean(energy(activity, config, tables)).sum(["stage", "component"])
    cap = config.array("power_cap")
    parts = latency(activity, config, tables)
    slower = np.maximum(alone / cap, 1.0) - 1.0
    throttled = parts.sum("component") + slower * parts.sel(component="array", drop=True)
    found = xr.Dataset(
        {
            "all_planes": planes * once["plane_power"],
            "alone": alone,
            "saturated": saturated,
            "average": per_query * throughput(activity, config, tables)["qps"],
            "cap": cap,
            "latency_throttled": throttled,
        }
    )
    return _described(found, _POWER)


def cap_notes(drawn: xr.Dataset) -> list[str]:
    """One line for each power of `power` that exceeds the cap somewhere; else none."""
    notes = []
    for name in ("all_planes", "alone", "saturated", "average"):
        most, cap = float(drawn[name].max()), float(drawn["cap"].min())
        if bool((drawn[name] > drawn["cap"]).any()):
            what = drawn[name].attrs["long_name"]
            notes.append(f"power: {what}: {most:.3g} W, cap {cap:.3g} W")
    return notes


# ---------------------------------------------------------------- helpers

_SENSE = {
    "time": ("s", "one sense"),
    "energy": ("J", "one sense of one plane"),
    "wordline_energy": ("J", "one wordline driven, one plane"),
    "bitline_energy": ("J", "all bitlines of a plane in one sense"),
}

_SERVICE = {
    "array": ("s", "senses of an activation"),
    "accumulate": ("s", "accumulation of an activation that sensing does not hide"),
    "array_energy": ("J", "senses of an activation, all planes of the group"),
    "accumulate_energy": ("J", "accumulation of an activation, all planes of the group"),
    "vector_bits": ("bit", "deficits of a vector"),
    "vector_time": ("s", "deficits of a vector on the bus"),
    "broadcast_bits": ("bit", "codes of a query"),
    "broadcast": ("s", "codes of a query on the bus"),
    "host_bits": ("bit", "query and results at the host interface"),
    "host": ("s", "query and results at the host interface"),
    "sense_time": ("s", "one sense"),
    "plane_power": ("W", "a plane that senses"),
}

_POWER = {
    "all_planes": ("W", "every plane sensing"),
    "alone": ("W", "planes that one query makes sense at once"),
    "saturated": ("W", "planes that the streams make sense at once"),
    "average": ("W", "average, saturated"),
    "cap": ("W", "power cap"),
    "latency_throttled": ("s", "latency of a query alone within the power cap"),
}

_NEEDED = ("activations", "busiest", "sensed", "m")


def _service_of(
    activity: xr.Dataset, config: HardwareFields, tables: _Tables | None
) -> tuple[xr.Dataset, int]:
    missing = [name for name in _NEEDED if name not in activity]
    if missing or "dimension" not in activity.attrs:
        raise InputError(
            f"dnova: activity has {', '.join(map(str, activity.data_vars)) or 'nothing'}, "
            f"allowed: {', '.join(_NEEDED)} and the attribute dimension"
        )
    dimension = int(activity.attrs["dimension"])
    return service(dimension, activity["m"], config, tables), dimension


def _by_stage(*values: xr.DataArray | float) -> xr.DataArray:
    """Values of stages 1, 2, 3 along ``stage``."""
    arrays = [xr.DataArray(value) for value in values]
    return xr.concat(
        xr.broadcast(*arrays), dim=xr.Variable("stage", [1, 2, 3]), coords="minimal",
        compat="override",
    )  # fmt: skip


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean("query") if "query" in values.dims else values


def _stacked(parts: Mapping[str, xr.DataArray], unit: str, meaning: str) -> xr.DataArray:
    """Parts along ``component``, after the axes, ``query`` and ``stage``."""
    arrays = [part.drop_attrs() for part in xr.broadcast(*parts.values())]
    stacked = xr.concat(
        arrays, dim=xr.Variable("component", list(parts)), coords="minimal", compat="override"
    )
    tail = [dim for dim in ("query", "stage", "component") if dim in stacked.dims]
    return stacked.transpose(..., *tail).assign_attrs(units=unit, long_name=meaning)


def _described(dataset: xr.Dataset, texts: Mapping[str, tuple[str, str]]) -> xr.Dataset:
    for name, (unit, meaning) in texts.items():
        dataset[name].attrs = {"units": unit, "long_name": meaning}
    return dataset


def _table(tables: _Tables, name: str) -> CalibrationTable:
    if name not in tables:
        known = ", ".join(tables) or "none"
        raise InputError(f"dnova: time and energy need the table {name!r}; loaded: {known}")
    return tables[name]
