"""Traces of routing, placements, and what planes take to serve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic import routing_study
from nandcosim.systems.nasic.cost import CostFields, cycle_time
from nandcosim.systems.nasic.cycles import input_dimension
from nandcosim.systems.nasic.digits import input_cycles
from nandcosim.systems.nasic.mapping import enumerate_tiles
from nandcosim.systems.nasic.moe import MoeShape, load_moe
from nandcosim.systems.nasic.routing import (
    Trace,
    balanced,
    dispatch,
    expected_busiest,
    load_trace,
    occupation,
    round_robin,
    serve,
    shared_experts,
    statistics,
    tiled_occupation,
    uniform_trace,
    zipf_trace,
)

HAND = Trace(np.array([[[0, 1]], [[1, 2]], [[1, 0]], [[3, 1]]]), 4)  # 4 tokens, a layer, 2 of 4


@st.composite
def traces(draw: Callable[[Any], Any]) -> Trace:
    experts = draw(st.integers(1, 7))
    sizes = (draw(st.integers(1, 12)), draw(st.integers(1, 3)), experts)
    return zipf_trace(
        *sizes,
        draw(st.integers(1, experts)),
        exponent=draw(st.sampled_from([0.0, 1.0])),
        persistence=draw(st.sampled_from([0.0, 0.5, 1.0])),
        seed=draw(st.integers(0, 99)),
    )


# ---------------------------------------------------------------- traces


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((2, 2), int), r"found int64 \(2, 2\), allowed: integers \(tokens, layers, k\)"),
        (np.zeros((2, 2, 1)), "found float64"),
        (np.zeros((0, 2, 1), int), "found int64"),
        (np.full((1, 1, 1), 4), "found experts 4 to 4, allowed: 0 to 3"),
        (np.full((1, 1, 1), -1), "found experts -1 to -1"),
        (np.array([[[0, 1]], [[2, 2]]]), "token 1, layer 0: found expert 2 twice, allowed: once"),
    ],
)
def test_wrong_traces_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Trace(ids, 4)


def test_a_trace_comes_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", HAND.ids)
    np.savez(tmp_path / "t.npz", trace=HAND.ids.astype(np.uint8), experts=4)
    for found in (load_trace(tmp_path / "t.npy", 4), load_trace(tmp_path / "t.npz")):
        assert found.experts == 4
        np.testing.assert_array_equal(found.ids, HAND.ids)
    with pytest.raises(InputError, match=r"t\.npy: found no number of experts"):
        load_trace(tmp_path / "t.npy")
    with pytest.raises(InputError, match=r"t\.npy: found experts 0 to 3, allowed: 0 to 2"):
        load_trace(tmp_path / "t.npy", 3)


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", ids=HAND.ids)
    np.savez(tmp_path / "many.npz", trace=HAND.ids, experts=[4, 4])
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "text.npz").write_text("no archive")
    for name, message in {
        "other.npz": "found ids, expected trace",
        "many.npz": "experts: found int64",
        "pickle.npy": "cannot be read",
        "text.npz": "cannot be read",
        "none.npy": "No such file",
    }.items():
        with pytest.raises(InputError, match=f"{name}.*{message}"):
            load_trace(tmp_path / name, 4)


@settings(max_examples=50, deadline=None)
@given(traces())
def test_drawn_traces_are_valid_and_repeatable(trace: Trace) -> None:
    assert trace.ids.shape == (trace.tokens, trace.layers, trace.top_k)
    assert np.all(np.diff(np.sort(trace.ids, axis=-1), axis=-1) > 0)


def test_persistence_of_1_keeps_all_experts_and_a_seed_says_all() -> None:
    frozen = zipf_trace(20, 3, 8, 4, persistence=1.0, seed=2)
    assert (frozen.ids == frozen.ids[0]).all()
    again, other = (zipf_trace(20, 3, 8, 4, seed=seed) for seed in (2, 3))
    assert (zipf_trace(20, 3, 8, 4, seed=2).ids == again.ids).all()
    assert (again.ids != other.ids).any()


@pytest.mark.parametrize("wrong", [{"top_k": 9}, {"tokens": 0}, {"exponent": -1.0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    numbers = {"tokens": 5, "layers": 1, "experts": 8, "top_k": 2, **wrong}
    with pytest.raises(InputError, match=next(iter(wrong))):
        zipf_trace(**numbers)


def test_statistics_by_hand() -> None:
    found = statistics(HAND).isel(layer=0)
    np.testing.assert_allclose(found["load"], [2 / 8, 4 / 8, 1 / 8, 1 / 8])
    assert found["skew"] == 2
    assert found["entropy"] == pytest.approx(1.75)
    assert found["overlap"] == 0.5  # 1 of 2 in each of three steps
    assert found["overlap_by_load"] == pytest.approx((0.5**2 + 1 + 0.25**2 * 2) / 2)
    together = found["coactivation"].values
    np.testing.assert_allclose(together, together.T)
    assert together[0, 1] == 2 / 4
    assert together[2, 3] == 0


@settings(max_examples=50, deadline=None)
@given(traces())
def test_statistics_as_counted_one_by_one(trace: Trace) -> None:
    found = statistics(trace)
    for layer in range(trace.layers):
        sets = [set(token) for token in trace.ids[:, layer].tolist()]
        for a, b in product(range(trace.experts), repeat=2):
            both = np.mean([{a, b} <= chosen for chosen in sets])
            assert found["coactivation"][layer, a, b] == pytest.approx(both)
        if len(sets) > 1:
            kept = [len(a & b) / trace.top_k for a, b in pairwise(sets)]
            assert found["overlap"][layer] == pytest.approx(np.mean(kept))


def test_shared_experts_are_in_every_token() -> None:
    shared = HAND.with_shared(2)
    assert (shared.experts, shared.top_k) == (6, 4)
    assert (shared.ids[..., 2:] == [4, 5]).all()


# ---------------------------------------------------------------- what that takes


def simulated(trace: Trace, held: Any, batch: int, in_flight: int, copies: int) -> list[float]:
    """Times at which batches of a prompt leave, by events: planes serve searches one by one."""
    env = simpy.Environment()
    stations = [simpy.Resource(env) for _ in range(trace.layers)]
    places = simpy.Resource(env, in_flight)
    left = []

    def plane(times: list[float]) -> Any:
        for time in times:
            yield env.timeout(time)

    def run(tokens: Any) -> Any:
        with places.request() as place:
            yield place
            for layer, station in enumerate(stations):
                with station.request() as turn:
                    yield turn
                    for stage in held[layer]:
                        queues: dict[tuple[int, int], list[float]] = {}
                        for i, token in enumerate(tokens):
                            for expert in token[layer]:
                                for p, time in enumerate(stage[expert]):
                                    queues.setdefault((i % copies, p), []).append(time)
                        yield env.all_of([env.process(plane(q)) for q in queues.values()])
            left.append(env.now)

    for start in range(0, len(trace.ids) - batch + 1, batch):
        env.process(run(trace.ids[start : start + batch]))
    env.run()
    return left


@settings(max_examples=40, deadline=None)
@given(traces(), st.data())
def test_serving_is_that_of_a_simulation_by_events(trace: Trace, data: st.DataObject) -> None:
    numbers = st.floats(0.1, 2)
    planes, stages = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    shape = (trace.layers, stages, trace.experts, planes)
    size = int(np.prod(shape))
    held = np.reshape(data.draw(st.lists(numbers, min_size=size, max_size=size)), shape)
    batch = data.draw(st.integers(1, trace.tokens))
    in_flight, copies = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    found = serve(trace, held, batch=batch, batching="prompt", in_flight=in_flight, copies=copies)
    left = simulated(trace, held, batch, in_flight, copies)
    tokens = len(left) * batch
    assert found["tokens_per_second"].item() == pytest.approx(tokens / left[-1])
    enter = [0.0] * in_flight + left
    latency = np.array(left) - enter[: len(left)]
    np.testing.assert_allclose(found["latency"], latency, rtol=1e-9)
    busy = sum(
        held[layer, :, expert].sum()
        for token in trace.ids[:tokens]
        for layer, chosen in enumerate(token)
        for expert in chosen
    )
    assert (found["utilisation"].sum() * copies * left[-1]).item() == pytest.approx(busy)


def test_one_token_at_a_time_by_hand() -> None:
    found = dispatch(HAND, [0, 1, 1, 0], 2e-3)
    # experts 0 and 3 on one plane, 1 and 2 on the other: 1, 2, 1, 1 searches
    np.testing.assert_allclose(found["latency"], [2e-3, 4e-3, 2e-3, 2e-3])
    assert found["tokens_per_second"].item() == pytest.approx(400)
    np.testing.assert_allclose(found["utilisation"], [[0.6, 1.0]])
    assert found["imbalance"].item() == pytest.approx(5 / 4)
    assert found["latency_percentile"].sel(percentile=50).item() == pytest.approx(2e-3)


def test_batches_take_a_token_of_each_text_or_a_piece_of_one() -> None:
    planes = [0, 1, 2, 3]
    texts = dispatch(HAND, planes, batch=2)["latency"]  # tokens 0 and 2, 1 and 3
    np.testing.assert_array_equal(texts, [2, 2])
    prompt = dispatch(HAND, planes, batch=2, batching="prompt")["latency"]
    np.testing.assert_array_equal(prompt, [2, 2])
    pieces = dispatch(HAND.part(0, 3), planes, batch=3, batching="prompt")["latency"]
    np.testing.assert_array_equal(pieces, [3])  # all three go to expert 1


@settings(max_examples=50, deadline=None)
@given(traces(), st.integers(1, 3), st.integers(1, 4))
def test_tokens_under_way_are_rate_times_latency(trace: Trace, batch: int, flight: int) -> None:
    """Little's law, of texts that go on at once; the last ones are not followed by others."""
    if trace.tokens < batch * flight:
        with pytest.raises(InputError, match="found"):
            dispatch(trace, round_robin(trace.experts, 2), batch=batch, in_flight=flight)
        return
    found = dispatch(trace, round_robin(trace.experts, 2), batch=batch, in_flight=flight)
    steps = found.sizes["step"]
    seconds = steps * batch / found["tokens_per_second"].item()
    under_way = found["latency"].sum().item() / seconds
    assert under_way <= flight * (1 + 1e-9)
    if flight == 1:
        assert under_way == pytest.approx(1)


@settings(max_examples=50, deadline=None)
@given(traces())
def test_a_batch_takes_no_longer_than_its_tokens_one_by_one(trace: Trace) -> None:
    held = occupation(round_robin(trace.experts, 3))
    alone, whole = serve(trace, held), serve(trace, held, batch=trace.tokens)
    assert whole["latency"].item() <= alone["latency"].sum().item()
    more = serve(trace, held, batch=trace.tokens, copies=2)
    assert more["latency"].item() <= whole["latency"].item()
    assert (whole["imbalance"] >= 1 - 1e-12).all()


@pytest.mark.parametrize(
    ("plane", "planes", "message"),
    [
        ([0.5, 1], None, "found float64"),
        ([], None, "found float64"),
        ([0, -1], None, "found -1 to 0, allowed: 0 to 0"),
        ([0, 2], 2, "found 0 to 2, allowed: 0 to 1"),
        ([0, 1, 2], None, r"found \(1, 1, 3, 3\), allowed: .* 1 layers of 4 experts"),
    ],
)
def test_wrong_planes_are_refused(plane: list[int], planes: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dispatch(HAND, plane, planes=planes)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 5}, {"copies": 0}, {"in_flight": 0}])
def test_wrong_counts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        dispatch(HAND, [0, 1, 2, 3], **wrong)


# ---------------------------------------------------------------- placements


@settings(max_examples=50, deadline=None)
@given(traces(), st.integers(1, 4), st.integers(1, 8))
def test_balancing_deals_every_place_once(trace: Trace, planes: int, batch: int) -> None:
    held = occupation(np.arange(trace.experts) // 2 % planes)
    chosen = balanced(trace, held, batch)
    assert chosen.shape == (trace.layers, 1, trace.experts, held.shape[-1])
    for layer in chosen:
        np.testing.assert_array_equal(np.sort(layer[0], axis=0), np.sort(held[0, 0], axis=0))


def test_balancing_keeps_experts_that_come_together_apart() -> None:
    """Pairs 0-1 and 2-3 alternate: any placement has equal loads, some have no collisions."""
    trace = Trace(np.array([[[0, 1]], [[2, 3]]] * 5), 4)
    held = occupation([0, 0, 1, 1])
    assert serve(trace, held)["imbalance"].item() == 2
    assert serve(trace, balanced(trace, held))["imbalance"].item() == 1


def test_balancing_evens_out_loads_of_large_batches() -> None:
    trace = zipf_trace(2000, 2, 32, 4, seed=1)
    held = occupation(round_robin(32, 4))
    before, after = (
        serve(trace, each, batch=64)["imbalance"].max().item()
        for each in (held, balanced(trace, held, batch=64))
    )
    assert after < before
    used = statistics(trace)["load"].values[:, :, None] * balanced(trace, held, 64)[:, 0]
    assert used.sum(axis=1).max() < 1.03 / 4


SMALL = MoeShape("small", hidden=1100, expert_ffn=200, moe_layers=2, layers=2, experts=6, top_k=2)


@given(
    planes=st.integers(1, 40),
    interleave=st.sampled_from([1, 3, 16]),
    bitlines=st.sampled_from([1024, 4096]),
    shared=st.sampled_from([0, 300]),
)
@settings(max_examples=12, deadline=None)
def test_tiles_are_all_searched_for(
    planes: int, interleave: int, bitlines: int, shared: int
) -> None:
    """A search is all that lies on the same wordline and strings of a plane, in several blocks."""
    shape = replace(SMALL, shared_ffn=shared)
    config = CostFields(planes=planes, interleave=interleave, bitlines=bitlines)
    held = tiled_occupation(config, shape)
    digits = input_cycles(config)
    cycles = held[0] / (digits * cycle_time(config, digits)).item()
    assert held.shape[:3] == (1, 2, 6 + shared_experts(shape))
    assert held.shape[3] >= planes
    tiles = enumerate_tiles(config, shape, int(input_dimension(config)))
    names = ("matrix", "expert", "plane", "wordline", "first_string")
    searches = np.unique([tiles[name].values for name in names], axis=1)[:3]
    expected = np.zeros(cycles.shape)
    np.add.at(expected, tuple(searches), 1)
    np.testing.assert_allclose(cycles, expected)


def test_one_search_at_a_time_blocks_all_planes() -> None:
    shape = load_moe("olmoe")
    trace = uniform_trace(3, 1, shape.experts, shape.top_k)
    at_once, serial = (
        serve(trace, tiled_occupation(CostFields(planes=128, search=search), shape))
        for search in ("planes", "serial")
    )
    one = tiled_occupation(CostFields(planes=128), shape)[0].max(axis=(1, 2)).sum()
    np.testing.assert_allclose(serial["latency"], shape.top_k * one)
    assert (at_once["latency"] < serial["latency"]).all()


def test_configurations_that_search_for_no_expert_are_refused() -> None:
    with pytest.raises(InputError, match="technique: found 'base'"):
        tiled_occupation(CostFields(technique="base"), SMALL)
    with pytest.raises(InputError, match="states: an axis"):
        tiled_occupation(CostFields(states=(2, 3)), SMALL)


# ---------------------------------------------------------------- closed form


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 4), (6,), (1, 1, 1, 1)])
def test_busiest_plane_is_the_mean_over_all_sets_of_experts(sizes: tuple[int, ...]) -> None:
    plane = np.repeat(np.arange(len(sizes)), sizes)
    for top_k in range(1, plane.size + 1):
        busiest = [
            np.bincount(plane[list(s)]).max() for s in combinations(range(plane.size), top_k)
        ]
        assert expected_busiest(sizes, top_k) == pytest.approx(np.mean(busiest))


def test_busiest_plane_of_a_batch_with_one_expert_a_token() -> None:
    """Balls into bins: the mean over all outcomes."""
    busiest = [np.bincount(outcome).max() for outcome in product(range(3), repeat=5)]
    assert expected_busiest([4, 4, 4], 1, batch=5) == pytest.approx(np.mean(busiest), rel=1e-5)
    assert expected_busiest([1, 3], 4, batch=5) == 15
    with pytest.raises(InputError, match="top_k: found 4, allowed: 1 to 3"):
        expected_busiest([1, 2], 4)


def test_study_of_a_trace_of_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.npz"
    np.savez(path, trace=zipf_trace(128, 2, 32, 4).ids, experts=32)
    assert routing_study.main(["traces", "planes", "batch", "--trace", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "128 tokens, 2 layers, 32 experts, 4 a token" in printed
    assert "needs a trace of 64 experts" in printed
    assert routing_study.main(["--trace", str(tmp_path / "none.npy")]) == 2
