"""Closed forms of D-NOVA's time, energy, throughput and power."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.cost import (
    COMPONENTS,
    cap_notes,
    energy,
    latency,
    power,
    qlc_ratio,
    quickselect_compares,
    quicksort_compares,
    sense_cost,
    service,
    throughput,
)
from nandcosim.systems.dnova.cost_study import main, nq_activity
from nandcosim.systems.dnova.hardware import spread
from nandcosim.tables import Tables, load_tables

SIZES = xr.DataArray([1, 2, 4, 8], dims="m")


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load_tables()


def config(**fields: Any) -> Config:
    return Config(**{"nprobe": 64, **fields})


def activity(
    counts: tuple[int, int, int],
    sensed: tuple[int, int, int],
    m: tuple[int, int, int] = (2, 4, 2),
    dimension: int = 768,
    busiest: tuple[int, int, int] | None = None,
) -> xr.Dataset:
    stages = {"stage": [1, 2, 3]}
    values = {"activations": counts, "busiest": busiest or counts, "sensed": sensed, "m": m}
    return xr.Dataset(
        {name: ("stage", list(each)) for name, each in values.items()}, stages
    ).assign_attrs(dimension=dimension)


def test_activation_takes_what_table_1_says() -> None:
    once = service(384, SIZES, config())
    np.testing.assert_allclose(once["array"], [3.84e-3, 1.92e-3, 0.96e-3, 0.48e-3], rtol=1e-12)


@pytest.mark.parametrize(
    ("counts", "f_over_d", "gain"), [((31, 16), 1.313, 16.25), ((28, 19), 1.259, 14.32)]
)
def test_ratios_of_the_variants(counts: tuple[int, int], f_over_d: float, gain: float) -> None:
    three = config(dts=("242", "282", "484"))
    array = latency(nq_activity(*counts, three), three).sel(component="array")
    d, f, xf = array.sum("stage").values
    assert d / f == pytest.approx(f_over_d, abs=5e-4)
    assert d / xf == pytest.approx(2, rel=1e-12)
    assert 8 * d / array.sel(dts="242").max().item() == pytest.approx(gain, abs=6e-3)


def test_qlc_read_against_dts() -> None:
    ratio = qlc_ratio(SIZES, config())
    np.testing.assert_allclose(ratio["time"], 140 / 30 * SIZES / 2, rtol=1e-12)
    np.testing.assert_allclose(ratio["cycles"], 7.5 * SIZES, rtol=1e-12)


def test_sense_takes_discharge_and_bitline_energy_from_the_circuit(tables: Tables) -> None:
    """Against the tables' own numbers, at tabulated points."""
    margins = config(companion_margin=(1.5, 3.5))
    found = sense_cost(tables, SIZES, margins)
    discharge = tables["dts_discharge"].dataset["discharge_time"].sel(companion_margin=[1.5, 3.5])
    later = discharge.values - discharge.sel(m=1).values
    np.testing.assert_allclose(
        found["time"].transpose("m", "companion_margin"), 30e-6 + later, rtol=1e-12
    )
    bitline = 16_384 * tables["dts_energy"].dataset["sense_energy"].values
    np.testing.assert_allclose(
        found["energy"], SIZES.values * (294.9e-9 - bitline[0]) + bitline, rtol=1e-12
    )
    assert found["time"].sel(companion_margin=1.5)[3] > 38e-6  # the slowest group decides


@pytest.mark.parametrize("given", [False, True])
def test_energy_hardly_depends_on_m(tables: Tables, given: bool) -> None:
    """Section 6.6; by Table 1 alone not at all."""
    joules = service(768, SIZES, config(), tables if given else None)["array_energy"].values
    assert joules.max() / joules.min() == pytest.approx(1, rel=1e-2 if given else 1e-12)
    assert given == bool(joules[3] < joules[0])


def test_serial_query_against_plain_arithmetic(tables: Tables) -> None:
    """400 components: three whole strings and one of 16 cells; m = 3 leaves a short group."""
    point = config(merge_cycles=2.0, latch_bits=3)
    did = activity((1, 3, 2), (500, 900, 70), (3, 3, 3), dimension=400)
    senses = math.ceil(128 / 3)
    plane_senses = 2 * (3 * senses + math.ceil(16 / 3))
    found, joules = latency(did, point), energy(did, point)
    for stage, (count, scored) in enumerate(((1, 500), (3, 900), (2, 70))):
        time, work = found.isel(stage=stage), joules.isel(stage=stage)
        bits = scored * 8 * 3
        assert time.sel(component="array").item() == pytest.approx(count * senses * 30e-6)
        assert time.sel(component="accumulate").item() == pytest.approx(count * 256e-9)
        assert time.sel(component="bus").item() == pytest.approx((bits + 1600) / 16e9)
        assert work.sel(component="array").item() == pytest.approx(count * 2 * 400 * 294.9e-9)
        assert work.sel(component="accumulate").item() == pytest.approx(
            count * plane_senses * 16_384 * 5e-15
        )
        assert work.sel(component="bus").item() == pytest.approx((bits + 1600) * 8e-12)
    sort = 70 * 8 * 2 + 4 * float(_quicksort(70))
    last = found.isel(stage=2)
    assert last.sel(component="controller").item() == pytest.approx(sort / 1.5e9)
    assert last.sel(component="host").item() == pytest.approx(5e-6 + 100 * 8 / 7.88e9)
    assert found.isel(stage=1).sel(component="host").item() == 0
    assert list(found["component"].values) == list(COMPONENTS)


def test_every_axis_broadcasts_like_its_points(tables: Tables) -> None:
    """One call over many axes equals a call for every configuration."""
    axes = config(
        schedule=("serial", "channel", "device"),
        transfer_overlap=("none", "next"),
        dts=("242", "484"),
    )
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 200, (5, 3))

    def did(point: Config) -> xr.Dataset:
        stages = {"stage": [1, 2, 3]}
        total = xr.DataArray(counts, dims=("query", "stage"), coords=stages)
        spread_over = np.maximum(np.ceil(total / spread(768, point)), 1)
        whole = point.array("schedule") == "serial"
        return xr.Dataset(
            {
                "activations": total,
                "busiest": total.where(whole, spread_over),
                "sensed": 1000 * total,
                "m": nq_activity(1, 1, point)["m"],
            },
            attrs={"dimension": 768},
        )

    together = did(axes)
    makers = {
        "latency": lambda a, c: latency(a, c, tables),
        "energy": lambda a, c: energy(a, c, tables),
        "qps": lambda a, c: throughput(a, c, tables)["qps"],
        "throttled": lambda a, c: power(a, c, tables)["latency_throttled"],
    }
    for name, make in makers.items():
        whole = make(together, axes)
        assert ("query" in whole.dims) == (name != "qps")
        for _, point in axes.points():
            chosen = {axis: getattr(point, axis) for axis in axes.axes if axis in whole.dims}
            alone = make(did(point), point)
            np.testing.assert_allclose(
                whole.sel(chosen).transpose(*alone.dims), alone, rtol=1e-12, err_msg=name
            )


@cache
def _select(n: int, k: int) -> Fraction:
    """Mean comparisons of quickselect, by the recurrence over where the random pivot falls."""
    if n < 2:
        return Fraction(0)
    left = sum(_select(i - 1, k) for i in range(k + 1, n + 1))
    right = sum(_select(n - i, k - i) for i in range(1, k))
    return n - 1 + Fraction(left + right, n)


@cache
def _quicksort(n: int) -> Fraction:
    return Fraction(0) if n < 2 else n - 1 + Fraction(2 * sum(map(_quicksort, range(n))), n)


def test_comparisons_against_their_recurrences() -> None:
    sizes = xr.DataArray(np.arange(2, 31), dims="n")
    np.testing.assert_allclose(
        quicksort_compares(sizes), [float(_quicksort(n)) for n in sizes.values], rtol=1e-12
    )
    for k in (1, 2, 7, 29):
        expected = [float(_select(n, k)) if k < n else 0.0 for n in sizes.values]
        found = quickselect_compares(sizes, xr.DataArray(k))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_streams_bound_is_the_papers_reading() -> None:
    """Queries a second = channels / longest stage, where it is the least bound."""
    point = config()
    did = nq_activity(31, 16, point)
    found = throughput(did, point)
    stage = latency(did, point).sel(component=["array", "accumulate", "bus"]).sum("component")
    assert found["qps"].item() == pytest.approx(8 / stage.max().item(), rel=1e-12)
    assert found["bottleneck"].item() == "streams"


def test_each_resource_can_be_the_bottleneck() -> None:
    did = activity((1, 31, 16), (1024, 167_500, 1000))
    slow = {
        "streams": {},
        "bus": {"channel_bandwidth": 1e5, "transfer_overlap": "next"},
        "controller": {"controller_clock": 1e6},
        "host": {"host_latency": 1.0},
    }
    for name, fields in slow.items():
        found = throughput(did, config(**fields))
        assert found["qps"].item() == found["limit"].min().item()
        if name != "bus":  # all that a channel sends is in its stages too
            assert found["bottleneck"].item() == name
    balanced = activity((1, 32, 16), (1024, 167_500, 1000), busiest=(1, 4, 2))
    assert throughput(balanced, config(schedule="channel"))["bottleneck"].item() == "plane_groups"


def test_bus_decides_when_it_is_slower_than_the_planes() -> None:
    """Eight groups at once, m = 8, every string scored, a slow bus: one sense, then only bus."""
    point = config(schedule="channel", channel_bandwidth=1e8)
    sensed = 32 * 16_384
    did = activity((1, 32, 16), (1024, sensed, 1000), (8, 8, 8), busiest=(1, 4, 2))
    stage = latency(did, point).sel(stage=2, component=["array", "accumulate", "bus"]).sum()
    sending = sensed * 12 * 4 / 8e8
    assert stage.item() == pytest.approx(16 * 30e-6 + 256e-9 + sending + 768 * 4 / 8e8, rel=1e-12)


def test_nothing_activated_takes_no_sensing() -> None:
    found = latency(activity((1, 0, 0), (1024, 0, 0)), config())
    assert found.sel(stage=[2, 3], component=["array", "accumulate"]).sum().item() == 0
    assert np.isfinite(found).all()


def test_power_of_all_planes_and_the_cap() -> None:
    """768 planes of 294.9 nJ a wordline each 30 us."""
    watts = {1: 7.55, 2: 15.1, 4: 30.2, 8: 60.4}
    for m, expected in watts.items():
        did = activity((1, 128, 64), (1024, 167_500, 1000), (m, m, m), busiest=(1, 2, 1))
        found = power(did, config(schedule="device"))
        assert found["all_planes"].max().item() == pytest.approx(expected, rel=1e-3)
        notes = [note for note in cap_notes(found) if "every plane" in note]
        assert len(notes) == (expected > 25)
        assert all("25" in note for note in notes)
    # 64 groups of 12 planes at m = 8: sensing must take 60.4 / 25 times as long.
    parts = latency(did, config(schedule="device"))
    added = found["latency_throttled"] - parts.sum("component")
    stretch = (added / parts.sel(component="array")).sel(stage=2)
    assert stretch.item() == pytest.approx(768 * 8 * 294.9e-9 / 30e-6 / 25 - 1, rel=1e-9)


def test_cap_limits_queries_a_second_by_energy() -> None:
    did = activity((1, 32, 16), (1024, 167_500, 1000), (4, 8, 4), busiest=(1, 4, 2))
    point = config(schedule="channel")
    joules = energy(did, point).sum().item()
    found = throughput(did, point)
    assert found["qps"].item() * joules > 25
    assert found["qps_capped"].item() == pytest.approx(25 / joules, rel=1e-12)


def test_refuses_in_one_line(tables: Tables) -> None:
    did = activity((1, 31, 16), (1024, 167_500, 1000))
    with pytest.raises(InputError, match=r"planes = 6 a die, allowed: 12 or more for 768"):
        latency(did, config(planes=6))
    with pytest.raises(InputError, match=r"allowed: activations, busiest, sensed, m"):
        latency(did.drop_vars("busiest"), config())
    with pytest.raises(InputError, match="dts_energy"):
        latency(did, config(), {"dts_discharge": tables["dts_discharge"]})
    with pytest.raises(InputError, match=r"m = 3"):
        sense_cost(tables, xr.DataArray([1, 3], dims="m"), config())
    with pytest.raises(InputError, match="companion_margin"):
        sense_cost(tables, SIZES, config(companion_margin=0.5))


def test_study_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sense", "ratios", "breakdown"]) == 0
    printed = capsys.readouterr().out
    for wanted in ("18.67", "1.313  2.000      16.25", "22.099"):
        assert wanted in printed
