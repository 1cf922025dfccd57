"""The compiled engine equals a plain cycle-by-cycle machine, and does what the rules say."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

import nvllm_engine_reference as reference

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nvllm.engine import CAUSES, EngineConfig, EngineRun, simulate, sweep

CODEWORD = 292
"""Bits of a segment of 32 bytes with the parity of the default code."""


def bits(segments: int) -> int:
    """Bytes that hold so many segments."""
    return -(-segments * CODEWORD // 8)


@st.composite
def layers(draw: st.DrawFn) -> tuple[EngineConfig, np.ndarray]:
    """A small configuration, and which segments are faulty."""
    lanes = draw(st.integers(1, 4))
    clusters = draw(st.integers(1, 3))
    per_page = draw(st.integers(1, 9))
    latency = draw(st.integers(1, 9))
    buffers = draw(st.integers(1, 2))
    fifo = draw(st.integers(0, 30))
    planes = draw(st.integers(1, 3))
    config = EngineConfig(
        clusters=clusters,
        planes_per_cluster=planes,
        page_bytes=bits(per_page),
        read_time=draw(st.integers(1, 200)) / draw(st.sampled_from([1, 2, 7])) * 1e-6 / 4,
        engine_clock=1e6,
        page_buffers=buffers,
        fifo_bytes=bits(fifo),
        prefetched=draw(st.integers(0, buffers + fifo // (planes * per_page))),
        order=draw(st.sampled_from(["out_of_order", "in_order"])),
        correctors=draw(st.integers(1, 3)),
        corrector_latency=latency,
        corrector_interval=draw(st.integers(0, latency)),
        scoreboard=draw(st.integers(1, 5)),
        lanes=lanes,
        hub=draw(st.sampled_from(["cluster", "device"])),
        checker_latency=draw(st.integers(0, 2)),
        column=draw(st.integers(1, 10)),
    )
    segments = draw(st.integers(1, 150))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    chance = draw(st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.8, 1.0]))
    return config, random.random((clusters, segments)) < chance


def plain(config: Any, faulty: np.ndarray) -> dict[str, Any]:
    """The same layer by the plain machine."""
    read = (
        Fraction(repr(config.read_time)) * Fraction(repr(config.engine_clock))
    ).limit_denominator(10**6)
    return reference.run(
        faulty.tolist(),
        lanes=config.lanes,
        correctors=config.correctors,
        latency=config.corrector_latency,
        interval=config.corrector_interval or config.corrector_latency,
        scoreboard=config.scoreboard,
        in_order=config.order == "in_order",
        hub=config.hub,
        group=config.planes_per_cluster * (8 * config.page_bytes // CODEWORD),
        bank=8 * config.fifo_bytes // CODEWORD // config.lanes,
        registers=config.page_buffers,
        read_time=read,
        prefetched=config.prefetched,
        column=config.column,
    )


def totals(config: Any, run: EngineRun) -> dict[str, Any]:
    """A run in the plain machine's terms."""
    lost = {cause: run.lost[cause] for cause in CAUSES if cause != "fill" and run.lost[cause]}
    return {
        "cycles": run.cycles - config.checker_latency,
        "lost": lost,
        "corrections": run.corrections,
        "hub_wait": round(run.hub_wait * run.corrections),
        "residence": round(run.residence * run.corrections),
        "most_waiting": run.most_waiting,
        "open_columns": run.open_columns,
    }


@settings(max_examples=150, deadline=None)
@given(layer=layers())
def test_compiled_engine_equals_plain_machine(layer: tuple[EngineConfig, np.ndarray]) -> None:
    config, faulty = layer
    run = simulate(config, faulty.shape[1], faulty=faulty)
    assert totals(config, run) == plain(config, faulty)
    multiplied = run.cycles * run.lanes - sum(run.lost.values())
    assert multiplied == run.segments == faulty.size


@pytest.mark.parametrize("order", ["out_of_order", "in_order"])
@pytest.mark.parametrize("hub", ["cluster", "device"])
def test_every_cause_and_many_lanes_against_plain_machine(order: str, hub: str) -> None:
    random = np.random.default_rng(1)
    faulty = random.random((4, 600)) < np.array([0.02, 0.1, 0.3, 0.6])[:, None]
    config = EngineConfig(
        clusters=4, planes_per_cluster=2, page_bytes=bits(20), read_time=43.7e-6,
        engine_clock=1e6, fifo_bytes=bits(30), lanes=3, hub=hub, order=order, scoreboard=3,
        prefetched=0, column=7,
    )  # fmt: skip
    run = simulate(config, 600, faulty=faulty)
    assert totals(config, run) == plain(config, faulty)
    expected = {"in_order"} if order == "in_order" else {"in_a_row", "scoreboard"}
    assert {cause for cause in CAUSES if run.lost[cause]} - {"fill"} >= {"supply", *expected}


def without_pages(**more: Any) -> EngineConfig:
    """Pages come faster than they are used, so that only the engine counts."""
    return EngineConfig(clusters=1, read_time=1e-9, checker_latency=0, **more)


@pytest.mark.parametrize(
    ("faults", "lost"),
    [([10], 0), ([10, 11], 2), ([10, 12], 1), ([10, 13], 0), ([10, 11, 12], 3), ([], 0)],
)
def test_faults_in_a_row_cost_what_the_rules_say(faults: list[int], lost: int) -> None:
    mask = np.zeros((1, 100), dtype=bool)
    mask[0, faults] = True
    run = simulate(without_pages(), 100, faulty=mask)
    assert run.lost["in_a_row"] == lost
    assert run.cycles == 100 + lost


def test_in_order_waits_for_every_correction() -> None:
    mask = np.zeros((1, 100), dtype=bool)
    mask[0, [3, 4, 50]] = True
    run = simulate(without_pages(order="in_order", corrector_latency=7), 100, faulty=mask)
    assert run.cycles == 100 + 3 * (7 + 2)


@pytest.mark.parametrize(("prefetched", "cycles"), [(0, 1792 + 3584), (1, 3584)])
def test_cold_start_pays_one_page_read(prefetched: int, cycles: int) -> None:
    """Default pages bring 4 * 448 segments in 5.12 us * 350 MHz = 1792 cycles."""
    config = EngineConfig(clusters=1, prefetched=prefetched, checker_latency=0)
    run = simulate(config, 3584, rber=0.0)
    assert run.cycles == cycles
    assert run.lost["supply"] == cycles - 3584


def test_faults_are_as_many_as_their_probability_says() -> None:
    config = EngineConfig()
    for rber in (1e-5, 1e-3):
        chance = 1 - (1 - rber) ** CODEWORD
        run = simulate(config, 50_000, rber=rber)
        spread = np.sqrt(run.segments * chance * (1 - chance))
        assert abs(run.corrections - run.segments * chance) < 5 * spread


def test_faults_do_not_depend_on_the_hardware() -> None:
    count = {
        simulate(
            EngineConfig(lanes=lanes, order=order, hub=hub), 5000, rber=1e-3, seed=3
        ).corrections
        for lanes in (1, 3)
        for order in ("out_of_order", "in_order")
        for hub in ("cluster", "device")
    }
    assert len(count) == 1
    assert simulate(EngineConfig(), 5000, rber=1e-3, seed=4).corrections not in count


def test_without_a_code_nothing_is_found_faulty() -> None:
    run = simulate(EngineConfig(code="none"), 1000, rber=0.1)
    assert run.corrections == 0


def test_sweep_is_its_points() -> None:
    config = EngineConfig(
        clusters=2, rber=(1e-4, 1e-3), correctors=(1, 2), dram_efficiency=(0.5, 1.0)
    )
    found = sweep(config, 3000)
    assert set(found["utilisation"].dims) == {"rber", "correctors"}
    np.testing.assert_allclose(found["utilisation"] + found["lost"].sum("cause"), 1.0)
    point = config.model_copy(update={"rber": 1e-3, "correctors": 2})
    run = simulate(point, 3000)
    chosen = found.sel(rber=1e-3, correctors=2)
    assert int(chosen["cycles"]) == run.cycles
    assert float(chosen["mean_waiting"]) == run.mean_waiting


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ({"correctors": (1, 2)}, {}, "correctors"),
        ({}, {"segments": 0}, "segments = 0"),
        ({"prefetched": 4}, {}, "prefetched = 4, allowed: up to 3"),
        ({}, {"faulty": np.zeros((3, 5), dtype=bool)}, "(16, 100)"),
        ({"page_bytes": 32}, {}, "page_bytes = 32"),
    ],
)
def test_wrong_use_is_one_line(settings: Any, arguments: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        simulate(EngineConfig(**settings), **{"segments": 100, **arguments})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_numba_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "nandcosim.systems.nvllm.engine_kernels", raising=False)
    with pytest.raises(MissingExtraError, match="nandcosim\\[fast\\]"):
        simulate(EngineConfig(), 10)
