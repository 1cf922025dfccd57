"""The fast engine in a sweep: audits, fallbacks, what the store and the table say of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.report.listing import status_lines
from nandcosim.spice.status import Status
from nandcosim.sweep import draw, load_circuit, open_store, parse_spec, status, store_digest
from nandcosim.sweep.audited import audited_sample, run_chunk
from nandcosim.sweep.chunk import Chunk, ChunkResult, EngineUsed, Job
from nandcosim.sweep.isolated import simulate_isolated
from nandcosim.sweep.simulation import collect, parsed, simulate_sample
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore
from nandcosim.tables import fit

sys.path.insert(0, str(Path(__file__).parents[1]))  # fast_circuits_for_tests

from fast_circuits_for_tests import SAMPLES, spec_of


def here(job: Job) -> list[Any]:
    spec, circuit = parsed(job.spec)
    return [simulate_sample(spec, circuit, job, k) for k in job.chunk.samples]


def run(spec: SweepSpec, point: int, start: int, stop: int, simulate: Any = here) -> ChunkResult:
    chunk = Chunk(point, start, stop, tuple(range(start, stop)))
    return run_chunk(Job(spec.canonical_json(), chunk, "shared", 10.0), simulate)


def excess(spec: SweepSpec, point: int) -> np.ndarray:
    circuit = load_circuit(spec.circuit)
    return np.array([draw(spec, circuit, point, k)[1]["excess"] for k in range(spec.samples)])


def expected_engines(spec: SweepSpec, point: int) -> np.ndarray:
    """The rule, written out again: audits, single fallbacks, fallbacks of blocks."""
    drawn = excess(spec, point)
    valid = drawn[:, 1] < spec.parameters["valid_below"]
    made = np.where(valid, 1, 0)
    for block in range(SAMPLES // 10):
        k = audited_sample(spec, point, block)
        if valid[k]:
            members = np.arange(10 * block, 10 * block + 10)
            if drawn[k, 0] > spec.parameters["wrong_above"]:
                made[members[valid[members]]] = 3
            made[k] = 2
    return made


@pytest.mark.parametrize("point", [0, 1])
def test_every_sample_says_which_engine_made_it(point: int) -> None:
    spec = spec_of()
    result = run(spec, point, 0, SAMPLES)
    assert result.engine is not None
    np.testing.assert_array_equal(result.engine, expected_engines(spec, point))
    assert (result.status == Status.OK).all()


def test_the_chosen_seed_has_every_case() -> None:
    spec = spec_of()
    made = np.concatenate([expected_engines(spec, point) for point in range(2)])
    assert set(made) == {0, 1, 2, 3}


def test_values_are_those_of_the_engine_that_is_recorded() -> None:
    spec = spec_of()
    result = run(spec, 0, 0, SAMPLES)
    full = collect(spec, here(Job(spec.canonical_json(), _whole(0), "shared", 10.0)))
    drawn = excess(spec, 0)
    tau = 1e-6 * (1.0 + drawn.mean(axis=1))
    closed = np.where(drawn[:, 0] > 0.1, 1.1, 1.0) * tau * np.log(2.0)
    fast = result.engine == EngineUsed.FAST
    np.testing.assert_array_equal(
        result.responses["t_half"][~fast], full.responses["t_half"][~fast]
    )
    np.testing.assert_allclose(result.responses["t_half"][fast], closed[fast], rtol=1e-12)
    audited = result.engine == EngineUsed.BOTH
    deviation = result.deviations["t_half"]
    np.testing.assert_allclose(
        deviation[audited], (closed - full.responses["t_half"])[audited], rtol=1e-9
    )
    assert np.isnan(deviation[~audited]).all()


def _whole(point: int) -> Chunk:
    return Chunk(point, 0, SAMPLES, tuple(range(SAMPLES)))


@pytest.mark.parametrize("length", [10, 20])
def test_chunks_do_not_matter(length: int) -> None:
    spec = spec_of()
    whole = run(spec, 1, 0, SAMPLES)
    parts = [run(spec, 1, start, start + length) for start in range(0, SAMPLES, length)]
    np.testing.assert_array_equal(whole.engine, np.concatenate([p.engine for p in parts]))
    for name in spec.responses:
        joined = np.concatenate([p.responses[name] for p in parts])
        np.testing.assert_array_equal(whole.responses[name], joined)
        joined = np.concatenate([p.deviations[name] for p in parts])
        np.testing.assert_array_equal(whole.deviations[name], joined)


def test_store_chunks_hold_whole_blocks(tmp_path: Path) -> None:
    spec = spec_of()
    circuit = load_circuit(spec.circuit)
    lengths = [
        SweepStore.create(tmp_path / f"{n}.zarr", spec, circuit, n).chunk for n in (1, 14, 99)
    ]
    assert lengths == [10, 10, SAMPLES]


def test_death_of_an_audited_sample_costs_itself_and_its_block_falls_back() -> None:
    random = [
        {"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.01},
        {"target": "kill", "distribution": "normal", "mean": -1.0, "std": 1.0},
    ]
    spec = spec_of("FastKilling", parameters={}, random=random, samples=20, seed=3)
    circuit = load_circuit(spec.circuit)
    kills = np.array([draw(spec, circuit, 0, k)[1]["kill"][0] > 0 for k in range(20)])
    audited = [audited_sample(spec, 0, block) for block in range(2)]
    assert kills[audited].tolist() == [False, True], "the seed no longer has the case"
    assert kills[:10].any()
    result = run(spec, 0, 0, 20, simulate_isolated)
    assert result.engine is not None
    assert set(result.engine[:10]) == {EngineUsed.FAST, EngineUsed.BOTH}
    assert set(result.engine[10:]) == {EngineUsed.FALLBACK, EngineUsed.BOTH}
    np.testing.assert_array_equal(
        result.status[10:], np.where(kills[10:], Status.CRASHED, Status.OK)
    )
    assert (result.status[:10] == Status.OK).all(), "what ngspice does not run cannot kill"
    assert np.isnan(result.deviations["t_half"][audited[1]])


def test_failed_samples_are_run_again_by_ngspice_and_keep_their_engine(tmp_path: Path) -> None:
    spec = spec_of()
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(spec.circuit), SAMPLES)
    store.write(_whole(0), run(spec, 0, 0, SAMPLES))
    before = open_store(store).load()
    again = Chunk(0, 0, SAMPLES, (3, 4))
    result = run_chunk(Job(spec.canonical_json(), again, "shared", 10.0), here)
    assert result.engine is None
    store.write(again, result)
    after = open_store(store).load()
    np.testing.assert_array_equal(after.engine, before.engine)


def test_circuit_without_a_model_at_these_parameters_is_run_by_ngspice() -> None:
    spec = spec_of("Modelless")
    result = run(spec, 0, 0, SAMPLES)
    assert result.engine is not None
    assert (result.engine == EngineUsed.NGSPICE).all()
    assert (result.status == Status.OK).all()


def test_status_and_table_tell_engines_and_errors(tmp_path: Path) -> None:
    spec = spec_of()
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(spec.circuit), SAMPLES)
    empty = store_digest(store)
    for point in range(spec.points):
        store.write(_whole(point), run(spec, point, 0, SAMPLES))
    made = np.array([expected_engines(spec, point) for point in range(spec.points)])
    found = status(store)
    assert found["engines"] == {each.name.lower(): int((made == each).sum()) for each in EngineUsed}
    blocks = (made.reshape(spec.points, -1, 10) == EngineUsed.FALLBACK).any(axis=2).sum()
    assert found["disagreements"] == blocks > 0
    assert f"disagreed: {blocks}" in status_lines(found)
    assert store_digest(store) != empty
    table = fit(store)
    assert "engine" not in table.dataset
    assert not [name for name in table.dataset.data_vars if str(name).startswith("audit_")]
    told = json.loads(table.dataset.attrs["fast_engine"])
    assert told["samples"] == found["engines"]
    data = open_store(store).load()
    deviation = np.abs(data.audit_t_half.values[made == EngineUsed.BOTH])
    assert told["audited"]["t_half"]["count"] == deviation.size
    assert told["audited"]["t_half"]["max"] == pytest.approx(deviation.max())
    assert told["audited"]["t_half"]["max_relative"] == pytest.approx(0.1, rel=0.05)


def test_digest_covers_engines_and_audits(tmp_path: Path) -> None:
    spec = spec_of()
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(spec.circuit), SAMPLES)
    result = run(spec, 0, 0, SAMPLES)
    store.write(_whole(0), result)
    digests = {store_digest(store)}
    assert result.engine is not None
    result.engine[0] = EngineUsed.FALLBACK
    store.write(_whole(0), result)
    digests.add(store_digest(store))
    result.deviations["v_end"][0] = 1.0
    store.write(_whole(0), result)
    digests.add(store_digest(store))
    assert len(digests) == 3


def test_default_engine_leaves_spec_and_store_as_they_were(tmp_path: Path) -> None:
    document = {"circuit": "circuits_for_tests:RCDischarge", "samples": 2, "seed": 1}
    spec = parse_spec(document)
    assert spec == parse_spec({**document, "engine": "ngspice"})
    assert "engine" not in spec.to_dict()
    assert "audit" not in spec.to_dict()
    assert SweepSpec.model_validate_json(spec.canonical_json()) == spec
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(spec.circuit))
    assert set(open_store(store).data_vars) == {"status", "reason", "t_half", "v_end"}
    assert "engines" not in status(store)
    fast = spec_of()
    assert SweepSpec.model_validate_json(fast.canonical_json()) == fast
    assert spec_of(audit=0.2).digest != fast.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "slow"}, "engine: found 'slow'"),
        ({"audit": 0.0}, "audit: found 0.0"),
        ({"audit": 1.5}, "audit: found 1.5"),
        ({"engine": "ngspice"}, "audit: is for engine = 'fast' only"),
        ({"circuit": "RCDischarge", "parameters": {}}, "has no fast model"),
        (
            {
                "random": [
                    {"target": "precharge", "distribution": "normal", "mean": 1.0, "std": 0.1}
                ],
                "axes": {},
            },
            "random[0].target: found 'precharge'",
        ),
    ],
)
def test_mistakes_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        spec_of(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_responses_the_model_does_not_give_are_refused() -> None:
    document = {
        "circuit": "dts_sense",
        "samples": 1,
        "seed": 1,
        "engine": "fast",
        "responses": ["e_sense"],
    }
    with pytest.raises(InputError, match="found 'e_sense', allowed with engine = 'fast': bit, t_c"):
        parse_spec(document)
