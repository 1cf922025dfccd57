"""One sample of a store made again gives the stored bits, a deck for ngspice, waveforms."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.report.listing import reproduction_lines
from nandcosim.spice.installation import executable
from nandcosim.spice.rawfile import read_raw
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status
from nandcosim.sweep import draw, load_circuit, parse_spec
from nandcosim.sweep.audited import run_chunk
from nandcosim.sweep.chunk import Chunk, ChunkResult, EngineUsed, Job
from nandcosim.sweep.isolated import simulate_isolated
from nandcosim.sweep.reproduce import reproduce
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

SAMPLES = 20


def spec_of(circuit: str = "circuits_for_tests:RCDischarge", **changes: Any) -> SweepSpec:
    document: dict[str, Any] = {
        "circuit": circuit,
        "samples": SAMPLES,
        "seed": 3,
        "axes": {"capacitance": ["1 nF", "2 nF"], "sigma": [0.0, 0.1]},
        "random": [
            {"target": "excess", "distribution": "normal", "mean": 0.0, "std": "sigma"},
            {"target": "kill", "distribution": "normal", "mean": -2.0, "std": 1.0},
        ],
    }
    return parse_spec({**document, **changes})


def swept(path: Path, spec: SweepSpec, points: tuple[int, ...] = (3,)) -> SweepStore:
    """A store with some points run, as a worker's child processes run them."""
    store = SweepStore.create(path, spec, load_circuit(spec.circuit))
    for chunk in store.pending(store.status_codes()):
        if chunk.point in points:
            job = Job(spec.canonical_json(), chunk, "shared", 20.0)
            store.write(chunk, run_chunk(job, simulate_isolated))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SweepStore:
    return swept(tmp_path_factory.mktemp("rc") / "s.zarr", spec_of())


def test_sample_gives_the_stored_bits(store: SweepStore, tmp_path: Path) -> None:
    k = 17
    number = 3 * SAMPLES + k
    made = reproduce(store, number, tmp_path / "out")
    assert made.same
    assert made.found.status is Status.OK
    assert made.found.responses == made.stored.responses
    _, values = store.outcomes(3, ["v_end"], SAMPLES)
    assert made.stored.responses["v_end"] == values["v_end"][k]
    assert made.coordinates == {"capacitance": 2e-9, "sigma": 0.1}
    params, knobs = draw(store.spec, load_circuit(store.spec.circuit), 3, k)
    assert made.params == params
    np.testing.assert_array_equal(made.knobs["excess"], knobs["excess"])
    text = reproduction_lines(made)
    assert "the same, bit for bit" in text
    assert f"sample {number} of {store.path}" in text


def test_waveforms_and_deck_are_those_of_the_sample(store: SweepStore, tmp_path: Path) -> None:
    made = reproduce(store, 65, tmp_path)
    assert made.waveforms is not None
    assert made.deck == tmp_path / "deck.cir"
    measured = made.circuit.responses(made.waveforms, made.params)
    assert measured == made.stored.responses
    (tmp_path / "home").mkdir()
    subprocess.run(
        [executable().path, "-b", "-r", "sample.raw", "deck.cir"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home")},
        check=True,
        capture_output=True,
        timeout=60,
    )
    _, vectors = read_raw(tmp_path / "sample.raw")
    by_hand = made.circuit.responses(Waveforms(vectors), made.params)
    # Another way to the same element values, so the last bits may differ.
    assert by_hand == pytest.approx(measured, rel=1e-9)


def test_flat_number_out_of_range_is_refused(store: SweepStore, tmp_path: Path) -> None:
    for number in (80, -1):
        with pytest.raises(InputError, match=f"sample: found {number}, allowed: 0 to 79"):
            reproduce(store, number, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sample_not_run_yet_can_be_made(store: SweepStore, tmp_path: Path) -> None:
    made = reproduce(store, 5, tmp_path)
    assert made.found.status is Status.OK
    assert made.same
    assert "the sweep has not run it yet" in reproduction_lines(made)


def test_another_outcome_is_told(store: SweepStore, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s.zarr")
    changed = SweepStore.open(tmp_path / "s.zarr", writable=True)
    changed.array("v_end")[1, 1, 2] = np.nextafter(changed.array("v_end")[1, 1, 2], 1.0)
    made = reproduce(changed, 62, tmp_path / "out")
    assert not made.same
    assert "differs from the store" in reproduction_lines(made)


def first_victim(spec: SweepSpec) -> int:
    circuit = load_circuit(spec.circuit)
    kills = (k for k in range(SAMPLES) if draw(spec, circuit, 3, k)[1]["kill"][0] > 0)
    return next(kills)


def failing(circuit: str, status: Status, reason: str, path: Path) -> tuple[SweepStore, int]:
    """A store in which the first sample that meets its circuit's trap is recorded so."""
    spec = spec_of(f"circuits_for_tests:{circuit}")
    store = SweepStore.create(path, spec, load_circuit(spec.circuit))
    k = first_victim(spec)
    nothing = {name: np.array([np.nan]) for name in spec.responses}
    result = ChunkResult(np.array([status], dtype=np.int8), [reason], nothing)
    store.write(Chunk(3, k, k + 1, (k,)), result)
    return store, 3 * SAMPLES + k


def test_sample_that_crashes_says_so_again(tmp_path: Path) -> None:
    reason = "the simulator process died: SIGKILL"
    store, number = failing("KillingCircuit", Status.CRASHED, reason, tmp_path / "s.zarr")
    made = reproduce(store, number, tmp_path / "out")
    assert (made.found.status, made.found.reason) == (Status.CRASHED, reason)
    assert made.same
    assert made.waveforms is None
    assert "crashed again" in reproduction_lines(made)


def test_sample_that_hangs_is_killed(tmp_path: Path) -> None:
    store, number = failing("HangingCircuit", Status.TIMEOUT, "hung", tmp_path / "s.zarr")
    made = reproduce(store, number, tmp_path / "out", time_limit=3.0)
    assert made.found.status is Status.TIMEOUT
    assert made.same


def test_exception_in_user_code_has_its_status_and_reason(tmp_path: Path) -> None:
    store, number = failing("RaisingCircuit", Status.DECK_ERROR, "", tmp_path / "s.zarr")
    made = reproduce(store, number, tmp_path / "out")
    assert made.found.status is Status.DECK_ERROR
    assert "ZeroDivisionError: an accident in user code" in made.found.reason
    assert made.deck is None


def test_drawn_parameter_out_of_bounds(tmp_path: Path) -> None:
    wide = {"target": "precharge", "distribution": "uniform", "low": 4.0, "high": 5.5}
    store = swept(tmp_path / "s.zarr", spec_of(axes={}, random=[wide]), (0,))
    codes = store.status_codes()[0]
    bad = int(np.flatnonzero(codes == Status.DECK_ERROR)[0])
    made = reproduce(store, bad, tmp_path / "out")
    assert made.same
    assert made.params is None
    assert made.found.reason == made.stored.reason
    assert reproduction_lines(made)


def test_sample_of_the_fast_engine_is_shown_by_ngspice(tmp_path: Path) -> None:
    fast = {"engine": "fast", "audit": 0.1, "axes": {}}
    random = [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1}]
    spec = spec_of("fast_circuits_for_tests:FastRC", random=random, **fast)
    store = swept(tmp_path / "s.zarr", spec, (0,))
    _, values = store.outcomes(0, ["engine"], SAMPLES)
    fast_sample = int(np.flatnonzero(values["engine"] == EngineUsed.FAST)[0])
    made = reproduce(store, fast_sample, tmp_path / "out")
    assert made.same
    assert made.by_fast_engine
    assert made.found.responses == pytest.approx(made.stored.responses, rel=1e-2)


def test_changed_netlist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = tmp_path / "models" / "card.lib"
    card.parent.mkdir()
    card.write_text(".model a nmos level=1\n")
    spec = spec_of()
    circuit = load_circuit(spec.circuit)
    monkeypatch.setattr(type(circuit), "files", lambda self, params: (str(card),))
    store = SweepStore.create(tmp_path / "s.zarr", spec, circuit)
    card.write_text(".model a nmos level=1 vto=1\n")
    with pytest.raises(InputError, match=r"netlists\.models/card\.lib is"):
        reproduce(store, 0, tmp_path / "out")
