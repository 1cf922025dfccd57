"""Latency, energy, throughput and data movement of D-NOVA and its baselines, side by side.

All systems are given the same activity: the same vectors scored in the same lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.systems.dnova import cost
from nandcosim.systems.dnova.baselines import (
    COMPONENTS,
    CPU_MODES,
    BaselineFields,
    cpu_cost,
    nsp_cost,
    reis_cost,
)

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["PERCENTILES", "SYSTEMS", "compare", "cost_tables", "dnova_cost"]

#: D-NOVA, and what it is compared with; the CPU as the paper has it and as timed here.
SYSTEMS = ("dnova", *(f"cpu_{mode}" for mode in CPU_MODES), "nsp", "reis")

#: Percentiles over the queries of the latency of a query alone.
PERCENTILES = (50, 95, 99)

_PARTS = tuple(dict.fromkeys((*cost.COMPONENTS, *COMPONENTS)))


def cost_tables(
    tables: Mapping[str, CalibrationTable], sizes: Collection[int]
) -> tuple[Mapping[str, CalibrationTable] | None, str]:
    """The tables for time and energy, or None where Table 1 has to do, and which it is.

    Parameters
    ----------
    tables : Mapping of str to CalibrationTable
    sizes : collection of int
        Group sizes m asked for; the tables must have them all.
    """
    needed = ("dts_discharge", "dts_energy")
    absent = [name for name in needed if name not in tables]
    if absent:
        return None, f"Table 1 alone: no table {' and '.join(absent)}"
    known = set.intersection(*(set(tables[name].dataset["m"].values.tolist()) for name in needed))
    beyond = sorted(set(sizes) - known)
    if beyond:
        listed = ", ".join(map(str, beyond))
        return None, f"Table 1 alone: the circuit's tables have no m = {listed}"
    return tables, "Table 1 and the circuit's tables"


def dnova_cost(
    activity: xr.Dataset,
    config: BaselineFields,
    tables: Mapping[str, CalibrationTable] | None = None,
) -> xr.Dataset:
    """Cost of D-NOVA alone, a mean over the queries.

    Parameters
    ----------
    activity : xarray.Dataset
        See `nandcosim.systems.dnova.cost`.
    config : BaselineFields
        With `latch_bits`, `nprobe`, `k2` and `k1` of the search.
    tables : Mapping of str to CalibrationTable, optional
        As in `nandcosim.systems.dnova.cost.sense_cost`.

    Returns
    -------
    xarray.Dataset
        ``latency``, ``energy`` (stage, component), ``latency_percentile`` (percentile),
        ``bytes_moved`` (stage), ``qps``, ``qps_capped``, ``bottleneck``; powers as
        ``power_...`` and ``latency_capped``, within the power cap.

    Raises
    ------
    InputError
        As `nandcosim.systems.dnova.cost.latency`.
    """
    time = cost.latency(activity, config, tables)
    bounds = cost.throughput(activity, config, tables)
    drawn = cost.power(activity, config, tables)
    once = cost.service(int(activity.attrs["dimension"]), activity["m"], config, tables)
    moved = activity["sensed"] * once["vector_bits"] / 8
    found = xr.Dataset(
        {
            "latency": _mean(time),
            "energy": _mean(cost.energy(activity, config, tables)),
            "latency_percentile": _percentiles(time.sum(["stage", "component"])),
            "latency_capped": _mean(drawn["latency_throttled"].sum("stage")),
            "bytes_moved": _mean(moved).transpose(..., "stage"),
            "qps": bounds["qps"],
            "qps_capped": bounds["qps_capped"],
            "bottleneck": bounds["bottleneck"],
            "power_capped_at": drawn["cap"],
            "power_average": drawn["average"],
            "power_saturated": drawn["saturated"],
            "power_all_planes": drawn["all_planes"].max("stage"),
        }
    )
    for name, (unit, meaning) in _MEANING.items():
        found[name].attrs = {"units": unit, "long_name": meaning}
    return found


def compare(
    activity: xr.Dataset,
    config: BaselineFields,
    tables: Mapping[str, CalibrationTable] | None = None,
) -> xr.Dataset:
    """`dnova_cost`, with the baselines along ``system`` in what they all have.

    Those are ``latency``, ``energy``, ``bytes_moved`` and ``qps``; a component that a
    system does not have is zero.
    """
    ours = dnova_cost(activity, config, tables)
    cpu = cpu_cost(activity, config)
    rivals = [cpu.sel(cpu_mode=mode, drop=True) for mode in CPU_MODES]
    rivals += [nsp_cost(activity, config), reis_cost(activity, config)]
    shared = ("latency", "energy", "bytes_moved", "qps")
    systems = [_whole(one[list(shared)]) for one in (ours, *rivals)]
    joined = {name: _along_system([one[name] for one in systems]) for name in shared}
    found = ours.drop_vars([*shared, "component"]).assign(joined)
    for name in shared:
        found[name].attrs = ours[name].attrs
    return found


def _along_system(values: list[xr.DataArray]) -> xr.DataArray:
    """Joined along ``system``, over whatever axes any of them depends on."""
    joined = xr.concat(
        xr.broadcast(*values), dim=xr.Variable("system", list(SYSTEMS)), coords="minimal",
        compat="override",
    )  # fmt: skip
    last = [dim for dim in ("system", "stage", "component") if dim in joined.dims]
    return joined.transpose(..., *last)


def _whole(costs: xr.Dataset) -> xr.Dataset:
    """Means over the queries, with every component that any system has."""
    whole: xr.Dataset = _mean(costs).reindex(component=list(_PARTS), fill_value=0.0)
    return whole


def _mean(values: Any) -> Any:
    return values.mean("query", keep_attrs=True) if "query" in values.dims else values


def _percentiles(total: xr.DataArray) -> xr.DataArray:
    if "query" not in total.dims:
        total = total.expand_dims("query")
    found = total.quantile(np.array(PERCENTILES) / 100, dim="query")
    found = found.assign_coords(quantile=list(PERCENTILES)).rename(quantile="percentile")
    return found.transpose(..., "percentile")


_MEANING = {
    "latency": ("s", "latency of a query alone"),
    "energy": ("J", "energy of a query"),
    "latency_percentile": ("s", "percentile over the queries of the latency of a query alone"),
    "latency_capped": ("s", "latency of a query alone within the power cap"),
    "bytes_moved": ("B", "bytes out of the arrays or the memory, a query"),
    "qps": ("1/s", "queries a second, saturated"),
    "qps_capped": ("1/s", "queries a second within the power cap"),
    "bottleneck": ("", "resource that limits the queries a second"),
    "power_capped_at": ("W", "power cap"),
    "power_average": ("W", "average power, saturated"),
    "power_saturated": ("W", "power of the planes that the streams make sense at once"),
    "power_all_planes": ("W", "power of every plane of the device sensing"),
}
