"""Event-driven simulation of D-NOVA against its closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.cost import energy, latency, service, throughput
from nandcosim.systems.dnova.cost_study import cases, main
from nandcosim.systems.dnova.mapping import Touches
from nandcosim.systems.dnova.simulation import poisson_arrivals, simulate, where_they_part
from nandcosim.systems.dnova.trace import Trace, random_trace, uniform_trace

M = (2, 4, 2)


def config(schedule: str = "serial", **fields: Any) -> Config:
    return Config(**{"nprobe": 8, "k2": 50, "schedule": schedule, **fields})


def irregular(nq: int, seed: int, dimension: int = 384) -> Trace:
    """Any number of sub-blocks, none too, with any number of vectors in each."""
    rng = np.random.default_rng(seed)
    stages = []
    for most in (1, 40, 12):
        counts = rng.integers(most == 1, most + 1, nq)
        numbers = [np.sort(rng.choice(164, count, replace=False)) for count in counts]
        subblocks = np.concatenate(numbers).astype(np.int64)
        vectors = rng.integers(1, 16_385, subblocks.size)
        stages.append(Touches(np.r_[0, np.cumsum(counts)], subblocks, vectors))
    return Trace((stages[0], stages[1], stages[2]), M, dimension)


def closed(trace: Trace, point: Config) -> xr.DataArray:
    return latency(trace.activity(point), point).sum("component")


@pytest.mark.parametrize("order", ["ascending", "free-first"])
def test_serial_query_alone_is_the_closed_form(order: str) -> None:
    """Every stage of every query, whatever it activates."""
    trace, point = irregular(12, seed=1), config(activation_order=order, merge_cycles=1.0)
    found = simulate(trace, point, in_flight=1)
    np.testing.assert_allclose(found["latency"].sum("part"), closed(trace, point), rtol=1e-9)
    assert found["latency"].sel(part="queue").max() < 1e-12
    assert found["makespan"].item() == pytest.approx(closed(trace, point).sum().item(), rel=1e-9)


@pytest.mark.parametrize("overlap", ["none", "next"])
@pytest.mark.parametrize("schedule", ["serial", "channel", "device"])
@pytest.mark.parametrize("dimension", [384, 768])
def test_balanced_query_alone(schedule: str, overlap: str, dimension: int) -> None:
    point = config(schedule, transfer_overlap=overlap)
    numbers = [range(1), range(131), range(35)]
    trace = uniform_trace(2, numbers, (1024, 5000, 50), M, dimension)
    found = simulate(trace, point, in_flight=1)["latency"].sum("part")
    np.testing.assert_allclose(found, closed(trace, point), rtol=1e-2)


@pytest.mark.parametrize("schedule", ["serial", "channel", "device"])
def test_work_and_energy_are_the_closed_forms(schedule: str) -> None:
    trace, point = irregular(20, seed=2), config(schedule)
    found = simulate(trace, point)
    did = trace.activity(point)
    xr.testing.assert_equal(found["activations"].drop_attrs(), did["activations"])
    xr.testing.assert_equal(found["sensed"].drop_attrs(), did["sensed"])
    np.testing.assert_array_equal(found["energy"], energy(did, point))


@pytest.mark.parametrize("schedule", ["serial", "channel", "device"])
def test_busy_times_add_up(schedule: str) -> None:
    """Utilisation times makespan is the work of the trace, however it was scheduled."""
    trace, point = irregular(20, seed=3), config(schedule, transfer_overlap="next")
    found = simulate(trace, point)
    did, once = trace.activity(point), service(384, trace.activity(point)["m"], point)
    sending = did["sensed"].sum() * once["vector_time"]
    sensing = (did["activations"] * (once["array"] + once["accumulate"])).sum()
    channels = 8 if schedule == "device" else 1
    work = {
        "plane_groups": sensing / (8 * 8 * 2),
        "bus": (sending + 20 * 3 * channels * once["broadcast"]) / 8,
        "host": 20 * once["host"].sum(),
    }
    for resource, busy in work.items():
        expected = busy.item() / found["makespan"].item()
        assert found["utilisation"].sel(resource=resource).item() == pytest.approx(expected)
    assert found["utilisation"].max() <= 1 + 1e-12


def test_planes_hold_their_deficits_until_they_are_sent() -> None:
    """Without overlap a plane group is busy for its transfers and their waits too."""
    trace, point = irregular(20, seed=3), config("channel")
    found = simulate(trace, point)
    did = trace.activity(point)
    once = service(384, did["m"], point)
    sensing = (did["activations"] * (once["array"] + once["accumulate"])).sum()
    held = sensing + did["sensed"].sum() * once["vector_time"]
    busy = found["utilisation"].sel(resource="plane_groups") * found["makespan"] * 8 * 8 * 2
    waits = (busy - held).item()  # for the bus; broadcasts wait too, and hold no planes
    assert 0.8 * found["bus_wait"].sum().item() < waits <= found["bus_wait"].sum().item()


@pytest.mark.parametrize("schedule", ["serial", "channel", "device"])
def test_saturated_streams_reach_their_bound(schedule: str) -> None:
    trace, point = cases(240)[f"{schedule}: stages on groups of their own"]
    found = where_they_part(trace, point)
    assert found["bottleneck"].item() == "streams"
    assert found["qps_ratio"].item() == pytest.approx(1, abs=1e-2)
    assert found["group_wait"].item() < 1e-12


def test_random_subblocks_cost_serial_streams_little() -> None:
    trace = random_trace(240, (1, 31, 16), (1024, 5400, 62), M, 768, subblocks=164, seed=0)
    assert where_they_part(trace, config())["qps_ratio"].item() == pytest.approx(1, abs=1e-2)


def test_order_of_activations_makes_streams_follow_each_other() -> None:
    """Sub-blocks taken by number: the fast stage queues behind the slow one, group by group."""
    numbers = [range(1), range(32), range(16)]
    trace = uniform_trace(160, numbers, (1024, 5400, 62), M, 768)
    free, ordered = (
        where_they_part(trace, config(activation_order=order))
        for order in ("free-first", "ascending")
    )
    assert free["qps_ratio"].item() > 0.98
    assert ordered["qps_ratio"].item() < 0.85
    assert ordered["group_wait"].item() > 5 * free["group_wait"].item()


def test_one_hot_plane_group_sets_the_rate() -> None:
    """All three stages on group 0 of the only channel."""
    trace = uniform_trace(160, [[0], range(0, 64, 8), range(0, 32, 8)], (10, 10, 10), M, 768)
    point = config(channels=1)
    found = where_they_part(trace, point)
    once = service(768, trace.activity(point)["m"], point)
    held = (xr.DataArray([1, 8, 4], dims="stage") * (once["array"] + once["accumulate"])).sum()
    assert found["qps_hottest_group"].item() == pytest.approx(1 / held.item(), rel=1e-3)
    assert found["qps_simulated"].item() == pytest.approx(1 / held.item(), rel=1e-2)
    assert found["qps_ratio"].item() < 0.6


def test_one_busy_bus_is_not_in_the_closed_form() -> None:
    """Groups of one channel only; the closed form spreads the transfers over all eight."""
    trace = uniform_trace(2, [[0], range(0, 64, 8), [8]], (100, 16_384, 100), M, 768)
    point = config("device", channel_bandwidth=2e8)
    found = where_they_part(trace, point)
    sent = 8 * 16_384 * 12 * 4 / (8 * 2e8)  # one after the other
    alone = latency(trace.activity(point), point)
    shared = alone.sel(stage=2, component="bus").isel(query=0).item()
    total = alone.isel(query=0).sum().item()
    extra = (found["latency_ratio"].isel(query=0).item() - 1) * total
    assert extra == pytest.approx(sent - shared, rel=1e-2)


def test_plane_groups_bound_is_not_reached_in_channel_schedule() -> None:
    trace, point = cases(160)["channel: random sub-blocks"]
    found = where_they_part(trace, point)
    assert found["bottleneck"].item() == "plane_groups"
    assert found["qps_simulated"].item() < 0.9 * found["qps_closed"].item()
    assert found["qps_simulated"].item() < 1.01 * found["qps_hottest_group"].item()


def test_latency_grows_with_load_and_runs_repeat() -> None:
    trace = random_trace(120, (1, 31, 16), (1024, 5400, 62), M, 768, subblocks=164, seed=4)
    point = config("channel")
    limit = throughput(trace.activity(point), point)["qps"].item()
    means = []
    for load in (0.05, 0.5):
        arrivals = poisson_arrivals(load * limit, trace.nq, seed=5)
        first, again = (simulate(trace, point, arrivals=arrivals) for _ in range(2))
        xr.testing.assert_identical(first, again)
        assert first["makespan"].item() > arrivals[-1]
        means.append(first["latency"].sum(["stage", "part"]).mean().item())
    alone = closed(trace, point).sum("stage").mean().item()
    assert alone * (1 - 1e-9) < means[0] < 1.1 * alone
    assert means[1] > 1.2 * means[0]


def test_refuses_in_one_line() -> None:
    trace = irregular(3, seed=6)
    with pytest.raises(InputError, match="axes schedule, allowed: one value a field"):
        simulate(trace, Config(nprobe=8, schedule=("serial", "device")))
    with pytest.raises(InputError, match=r"shape \(2,\), allowed: \(3,\), ascending"):
        simulate(trace, config(), arrivals=[0, 1])
    with pytest.raises(InputError, match="ascending"):
        simulate(trace, config(), arrivals=[0, 2, 1])
    with pytest.raises(InputError, match="in_flight = 0, allowed: 1 or more"):
        simulate(trace, config(), in_flight=0)
    with pytest.raises(InputError, match="for the same number of queries"):
        Trace((trace.stages[0], trace.stages[1], irregular(4, seed=6).stages[2]), M, 384)
    with pytest.raises(InputError, match="sub-blocks"):
        random_trace(2, (1, 9, 3), (1, 1, 1), M, 384, subblocks=8, seed=0)
    with pytest.raises(InputError, match="rate = 0"):
        poisson_arrivals(0, 3, seed=0)


def test_study_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--queries", "24"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 + 9
