"""Golden numbers of time, energy and throughput, and where simulation and closed form part.

::

    python -m nandcosim.systems.dnova.cost_study sense ratios breakdown power simulation load

prints the parts named, all of them by default. The queries are shaped like the paper's NQ with
mpnet: 768 dimensions, 1,024 lists of which 64 are probed, 167,500 vectors in them,
1,000 candidates.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.dnova.activity import group_sizes_along
from nandcosim.systems.dnova.config import Config, group_sizes
from nandcosim.systems.dnova.cost import (
    cap_notes,
    energy,
    latency,
    power,
    qlc_ratio,
    sense_cost,
    service,
    throughput,
)
from nandcosim.systems.dnova.simulation import poisson_arrivals, simulate, where_they_part
from nandcosim.systems.dnova.trace import Trace, random_trace, uniform_trace
from nandcosim.tables import Tables, load_tables

__all__ = ["cases", "nq_activity", "nq_trace"]

#: D-NOVA, D-NOVA-F and D-NOVA-XF (section 6.6).
_VARIANTS = ("242", "282", "484")

#: Serial activations of stages 2 and 3 that fit the two ends of the ranges of section 6.6.
_FITS = ((31, 16), (28, 19))

_SENSED = (1024, 167_500, 1000)
_DIMENSION = 768
_SUBBLOCKS = 164  # 2.68 million vectors on 16,384 bitlines


def nq_activity(n2: int, n3: int, config: Config, dimension: int = _DIMENSION) -> xr.Dataset:
    """Activity of the mean NQ-shaped query, its activations serial.

    Parameters
    ----------
    n2, n3 : int
        Sub-blocks activated in stages 2 and 3.
    config : Config
        For its `dts`.
    dimension : int
    """
    stages = {"stage": [1, 2, 3]}
    count = xr.DataArray([1, n2, n3], dims="stage", coords=stages)
    return xr.Dataset(
        {
            "activations": count,
            "busiest": count,
            "sensed": xr.DataArray(list(_SENSED), dims="stage", coords=stages),
            "m": group_sizes_along(config),
        },
        attrs={"dimension": dimension},
    )


def nq_trace(nq: int, n2: int, n3: int, dts: str = "242", dimension: int = _DIMENSION) -> Trace:
    """NQ-shaped queries, each with `n2` random sub-blocks of 164 and `n3` of those again."""
    vectors = (_SENSED[0], round(_SENSED[1] / n2), round(_SENSED[2] / n3))
    return random_trace(
        nq, (1, n2, n3), vectors, group_sizes(dts), dimension, subblocks=_SUBBLOCKS, seed=0
    )


def sense_part(tables: Tables) -> Iterator[str]:
    """One sense and one activation against m."""
    m = xr.DataArray([1, 2, 4, 8], dims="m")
    config = Config(companion_margin=(1.5, 2.5, 3.5, 5.5))
    known, found = sense_cost(None, m, config), sense_cost(tables, m, config)
    yield "One sense: time (us) by Table 1, and with the circuit's discharge by companion margin"
    yield "m   Table 1   1.5     2.5     3.5     5.5    | energy (nJ) Table 1   circuit"
    for i in range(m.size):
        row, times = known.isel(m=i), found["time"].isel(m=i).values
        yield (
            f"{m.values[i]}  {1e6 * float(row['time']):6.2f}  "
            + "  ".join(f"{1e6 * t:6.2f}" for t in times)
            + f"  | {1e9 * float(row['energy']):19.1f} {1e9 * found['energy'].values[i]:9.1f}"
        )
    yield ""
    yield "One activation, and a QLC read against DTS (section 3.2: up to 9.3)"
    yield "m   time (ms) Table 1  circuit | energy (mJ) Table 1  circuit | QLC/DTS Table 1  circuit  cycles"  # noqa: E501
    config = Config()
    single = [service(_DIMENSION, m, config, each) for each in (None, tables)]
    ratio = [qlc_ratio(m, config, each) for each in (None, tables)]
    for i, size in enumerate(m.values):
        took = [1e3 * float(each["array"][i]) for each in single]
        joules = [1e3 * float(each["array_energy"][i]) for each in single]
        faster = [float(each["time"][i]) for each in ratio]
        yield (
            f"{size}  {took[0]:17.3f} {took[1]:8.3f} | {joules[0]:19.4f} {joules[1]:8.4f} | "
            f"{faster[0]:15.2f} {faster[1]:8.2f} {float(ratio[0]['cycles'][i]):7.1f}"
        )


def ratios_part(tables: Tables) -> Iterator[str]:
    """Variants against each other, beside what the paper's ranges imply."""
    yield "DTS242 (D), 282 (F), 484 (XF), serial, a copy of the index a channel"
    yield "n2 n3 sensing                 L_D (ms)  F/D    XF/D   QPS x L_D  QPS_D    QPS F/D"
    for n2, n3 in _FITS:
        for label, margin, given, array_only in (
            ("Table 1, array alone", 1.5, None, True),
            ("Table 1", 1.5, None, False),
            ("circuit, margin 1.5", 1.5, tables, False),
            ("circuit, margin 2.5", 2.5, tables, False),
            ("circuit, margin 3.5", 3.5, tables, False),
        ):
            config = Config(dts=_VARIANTS, nprobe=64, companion_margin=margin)
            activity = nq_activity(n2, n3, config)
            parts = latency(activity, config, given)
            if array_only:
                array = parts.sel(component="array")
                total = array.sum("stage").values
                qps = (config.array("channels") / array.max("stage")).values
            else:
                total = parts.sum(["stage", "component"]).values
                qps = throughput(activity, config, given)["qps"].values
            yield (
                f"{n2} {n3} {label:<22} {1e3 * total[0]:9.2f}  {total[0] / total[1]:.3f}  "
                f"{total[0] / total[2]:.3f}  {qps[0] * total[0]:9.2f}  {qps[0]:7.1f}  "
                f"{qps[1] / qps[0]:6.3f}"
            )
    low = (3.80 / 3.01, 5.98 / 3.01, 481 / 33.3)
    high = (4.99 / 3.79, 7.53 / 3.79, 679 / 41.7)
    for label, (f, xf, gain) in {"low": low, "high": high}.items():
        yield f"{f'      paper, {label} ends':<40}{f:.3f}  {xf:.3f}  {gain:9.2f}"
    yield ""
    yield "What does not scale with m, Table 1, (n2, n3) = (31, 16)"
    yield "dimension  cycles a compare  not sensing  XF/D"
    for dimension, cycles in product((384, 768), (0.0, 1.0, 4.0)):
        config = Config(dts=_VARIANTS, nprobe=64, compare_cycles=cycles)
        parts = latency(nq_activity(*_FITS[0], config, dimension), config)
        whole = parts.sum(["stage", "component"])
        sensing = parts.sel(component="array").sum("stage")
        share = 1 - (sensing / whole).sel(dts="242").item()
        ratio = (whole.sel(dts="242") / whole.sel(dts="484")).item()
        yield f"{dimension:9}  {cycles:16.0f}  {100 * share:9.2f} %  {ratio:.3f}"


def breakdown_part(tables: Tables) -> Iterator[str]:
    """Latency and energy by stage and component."""
    config = Config(nprobe=64)
    activity = nq_activity(*_FITS[0], config)
    for label, given in (("Table 1", None), ("circuit", tables)):
        for what, values, factor in (
            ("latency (ms)", latency(activity, config, given), 1e3),
            ("energy (mJ)", energy(activity, config, given), 1e3),
        ):
            total = float(values.sum())
            yield f"{what}, DTS242, serial, (n2, n3) = {_FITS[0]}, {label}: {factor * total:.3f}"
            table = (factor * values).to_pandas()
            table.loc["share"] = table.sum() / table.to_numpy().sum()
            yield table.to_string(float_format=lambda v: f"{v:.5f}")


def power_part(tables: Tables) -> Iterator[str]:
    """Power against the cap."""
    m = xr.DataArray([1, 2, 4, 8], dims="m")
    config = Config()
    planes = config.array("channels") * config.array("dies") * config.array("planes")
    yield f"All {int(planes)} planes sensing (W)"
    yield "m   Table 1  circuit"
    drawn = [
        planes * service(_DIMENSION, m, config, each)["plane_power"] for each in (None, tables)
    ]
    for i, size in enumerate(m.values):
        yield f"{size}  {float(drawn[0][i]):8.2f} {float(drawn[1][i]):8.2f}"
    yield ""
    yield "Table 1, NQ-shaped trace, (n2, n3) = (31, 16): power (W), queries/s, latency (ms)"
    yield "schedule dts  alone  streams  average  QPS     QPS at cap  limit         latency  at cap"
    for schedule, dts in product(("serial", "channel", "device"), _VARIANTS):
        point = Config(schedule=schedule, dts=dts, nprobe=64)
        activity = nq_trace(200, *_FITS[0], dts).activity(point)
        found, rate = power(activity, point), throughput(activity, point)
        alone = latency(activity, point).sum(["stage", "component"]).mean("query")
        yield (
            f"{schedule:<8} {dts}  {float(found['alone'].max()):5.2f}  "
            f"{float(found['saturated']):7.2f}  {float(found['average']):7.2f}  "
            f"{float(rate['qps']):6.1f}  {float(rate['qps_capped']):10.1f}  "
            f"{rate['bottleneck'].item():<12}  {1e3 * float(alone):7.2f}  "
            f"{1e3 * float(found['latency_throttled'].sum('stage').mean('query')):6.2f}"
        )
        yield from (f"    {note}" for note in cap_notes(found))


def cases(queries: int) -> dict[str, tuple[Trace, Config]]:
    """Named batches for the comparison of simulation and closed form."""
    m, vectors = (2, 4, 2), (1024, 5400, 62)

    def config(schedule: Any, **more: Any) -> Config:
        return Config(schedule=schedule, nprobe=64, **more)

    # 768-D: 8 plane groups a channel, 64 in the device. Stages on groups of their own:
    in_turn = [
        [0],
        [g + 8 * j for j in range(8) for g in (1, 2, 3, 4)],
        [5 + 8 * j for j in range(16)],
    ]
    spread_out = [[0], [1, 2, 3, 4], [5, 6, 7]]
    apart: dict[str, tuple[Trace, Config]] = {}
    narrow: dict[str, tuple[Trace, Config]] = {}
    for schedule, numbers in (("serial", in_turn), ("channel", spread_out), ("device", spread_out)):
        trace = uniform_trace(queries, numbers, vectors, m, _DIMENSION)
        apart[f"{schedule}: stages on groups of their own"] = (trace, config(schedule))
        narrow[f"{schedule}: random sub-blocks"] = (
            nq_trace(queries, *_FITS[0]), config(schedule),
        )  # fmt: skip
    follow = uniform_trace(queries, [[0], range(32), range(16)], vectors, m, _DIMENSION)
    hot = uniform_trace(queries, [[0], range(0, 256, 8), range(0, 128, 8)], vectors, m, _DIMENSION)
    every_8th = [[0], range(0, 64, 8), range(8, 40, 8)]
    one_bus = uniform_trace(queries, every_8th, (1024, 16_384, 250), m, _DIMENSION)
    slow = {"channel_bandwidth": 5e8}
    return {
        **apart,
        **narrow,
        "serial: same sub-blocks, free-first": (follow, config("serial")),
        "serial: same sub-blocks, ascending": (
            follow,
            config("serial", activation_order="ascending"),
        ),
        "serial: all on one group": (hot, config("serial")),
        "device: groups of one channel": (one_bus, config("device")),
        "device: the same, bus of 0.5 GB/s": (one_bus, config("device", **slow)),
    }


def simulation_part(queries: int) -> Iterator[str]:
    """Simulation against closed form: alone and saturated."""
    yield f"{queries} queries, Table 1; alone: simulated / closed form; QPS saturated"
    yield "case                                      alone (worst)  closed  limit         hottest  simulated  ratio  wait for groups, bus (ms)"  # noqa: E501
    for name, (trace, config) in cases(queries).items():
        found = where_they_part(trace, config)
        alone = found["latency_ratio"].values
        worst = alone[np.abs(alone - 1).argmax()]
        yield (
            f"{name:<41} {worst:13.9f}  {float(found['qps_closed']):6.1f}  "
            f"{found['bottleneck'].item():<12}  {float(found['qps_hottest_group']):7.1f}  "
            f"{float(found['qps_simulated']):9.1f}  {float(found['qps_ratio']):.3f}  "
            f"{1e3 * float(found['group_wait']):12.3f} {1e3 * float(found['bus_wait']):8.3f}"
        )


def load_part(queries: int) -> Iterator[str]:
    """Latency against load, Poisson arrivals."""
    yield f"{queries} queries, random sub-blocks, Table 1, DTS242, Poisson arrivals"
    yield "schedule  load of closed QPS  queries/s  latency (ms) mean   p99    alone"
    trace = nq_trace(queries, *_FITS[0])
    for schedule in ("serial", "channel", "device"):
        config = Config(schedule=schedule, nprobe=64)
        activity = trace.activity(config)
        limit = float(throughput(activity, config)["qps"])
        alone = float(latency(activity, config).sum(["stage", "component"]).mean())
        for load in (0.3, 0.6, 0.8):
            arrivals = poisson_arrivals(load * limit, queries, seed=1)
            took = simulate(trace, config, arrivals=arrivals)["latency"].sum(["stage", "part"])
            yield (
                f"{schedule:<8} {load:19.1f}  {load * limit:9.1f}  "
                f"{1e3 * float(took.mean()):17.2f}  {1e3 * float(took.quantile(0.99)):6.2f}  "
                f"{1e3 * alone:6.2f}"
            )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts named, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.cost_study", description=main.__doc__
    )
    names = ("sense", "ratios", "breakdown", "power", "simulation", "load")
    parser.add_argument("--queries", type=int, default=400, help="of the simulated batches")
    options = parse_parts(parser, names, arguments)
    tables = cache(load_tables)
    makers = {
        "sense": lambda: sense_part(tables()),
        "ratios": lambda: ratios_part(tables()),
        "breakdown": lambda: breakdown_part(tables()),
        "power": lambda: power_part(tables()),
        "simulation": lambda: simulation_part(options.queries),
        "load": lambda: load_part(options.queries),
    }
    print_parts(makers, options.parts)


if __name__ == "__main__":
    sys.exit(main())
