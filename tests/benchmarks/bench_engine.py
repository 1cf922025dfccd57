"""Our engine against a PySpice loop, one ``ngspice -b`` a sample, and spicelib's runner.

Same deck, same accuracy, same samples, one core, solver threads pinned for the peers
too. Every mode runs in a process of its own, in interleaved batches. Two figures a peer:
CPU time a sample (of the process and its children, which a shared machine disturbs
little) and samples per second of wall time; the ratio is that of the medians. Bits must
be equal and crossing times within 0.1 %, or it fails.

    python tests/benchmarks/bench_engine.py [samples a batch] [batches]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from circuits.dts_sense import DtsSense
from nandcosim.spice.circuit import Transient
from nandcosim.spice.deck import OPTIONS, Deck, build_deck
from nandcosim.spice.engine import full_knobs, measure
from nandcosim.spice.rawfile import read_raw
from nandcosim.spice.result import RawResult
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

CIRCUIT = DtsSense()
PARAMS = CIRCUIT.Params(m=4, margin=0.5)
WANTED = frozenset({"bit", "t_cross"})
#: What a peer leaves at ngspice's default is left there.
PEER_OPTIONS = {name: value for name, value in OPTIONS.items() if name != "bypass"}
#: How we run: with the peers' time step, and as a sweep does; goals in CPU time.
OURS = {"ours": (1.5, 1.4, 1.4), "ours, step control and early stop": (3.0, 2.5, 2.5)}
PEERS = ("PySpice loop", "ngspice -b", "spicelib runner")
MODES = (*OURS, *PEERS)


def knobs(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(k,)))
    return {"threshold": 0.3 * rng.standard_normal(PARAMS.cells)}


def peer_deck(k: int | None = None) -> Deck:
    """The deck as a PySpice user runs it: the step is the only thing she gives."""
    drawn = knobs(k) if k is not None else None
    deck = build_deck(CIRCUIT, PARAMS, drawn)
    tran = deck.analysis
    analysis = Transient(tran.stop, tran.step, tran.step)
    return Deck(deck.netlist, analysis, ("v(bl)", "v(out)"), options=PEER_OPTIONS)


def answer(vectors: dict[str, np.ndarray]) -> tuple[float, float]:
    vectors = {**vectors, "vdd#branch": np.zeros_like(vectors["time"])}
    from nandcosim.spice.result import Waveforms

    raw = RawResult(Status.OK, "", Waveforms(vectors))
    found = measure(CIRCUIT, PARAMS, raw, WANTED).responses
    return found["bit"], found["t_cross"]


def run_ours(samples: range, deck: Deck) -> list[tuple[float, float]]:
    backend = SharedBackend()
    found = []
    for k in samples:
        elements = CIRCUIT.elements(PARAMS, full_knobs(CIRCUIT, PARAMS, knobs(k)))
        result = backend.run(deck, elements).require_ok()
        found.append(answer(dict(result.waveforms)))
    return found


def run_pyspice(samples: range) -> list[tuple[float, float]]:
    """One circuit, its elements changed for every sample, a simulator each time."""
    from PySpice.Spice.NgSpice.Shared import NgSpiceCommandError, NgSpiceShared

    from nandcosim.spice.installation import shared_library

    NgSpiceShared.LIBRARY_PATH = shared_library().path
    library = NgSpiceShared.new_instance()
    library.exec_command("set num_threads=1")
    circuit = CIRCUIT.build(PARAMS)
    tran = peer_deck().analysis
    found = []
    for k in samples:
        elements = CIRCUIT.elements(PARAMS, full_knobs(CIRCUIT, PARAMS, knobs(k)))
        for index in range(PARAMS.cells):
            circuit.element(f"Xcell{index}").parameters["shift"] = elements[
                f"v.xcell{index}.vshift"
            ]
        simulator = circuit.simulator(temperature=27, nominal_temperature=27)
        simulator.options(**{k: v for k, v in PEER_OPTIONS.items() if v})
        try:
            analysis = simulator.transient(step_time=tran.step, end_time=tran.stop)
        except NgSpiceCommandError:
            # it takes the notes of successful gmin stepping for a failure; the waveform is there
            analysis = library.plot(simulator, library.last_plot).to_analysis()
        vectors = {"time": analysis.time, "bl": analysis["bl"], "out": analysis["out"]}
        found.append(answer({n: np.array(v.as_ndarray()) for n, v in vectors.items()}))
    return found


def run_process(samples: range) -> list[tuple[float, float]]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".spiceinit").write_text("set num_threads=1\n")
        for k in samples:
            (folder / "d.cir").write_text(peer_deck(k).text())
            subprocess.run(
                ["ngspice", "-b", "-r", "d.raw", "d.cir"],
                cwd=folder,
                check=True,
                capture_output=True,
            )
            found.append(answer(read_raw(folder / "d.raw")[1]))
    return found


def run_spicelib(samples: range) -> list[tuple[float, float]]:
    """One netlist in its editor, its elements changed for every sample, one run at a time.

    `run_now` waits for the run itself; `run` and `wait_completion` look every 0.1 s and 1 s.
    """
    from spicelib import RawRead, SimRunner, SpiceEditor
    from spicelib.simulators.ngspice_simulator import NGspiceSimulator

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".spiceinit").write_text("set num_threads=1\n")
        # its editor wants a title that is a comment, and elements in capital letters
        text = re.sub("(?m)^[a-z]", lambda letter: letter[0].upper(), peer_deck().text())
        (folder / "d.cir").write_text(f"* {text}")
        editor = SpiceEditor(folder / "d.cir")
        runner = SimRunner(
            simulator=NGspiceSimulator, parallel_sims=1, output_folder=folder / "out", cwd=folder
        )
        for k in samples:
            elements = CIRCUIT.elements(PARAMS, full_knobs(CIRCUIT, PARAMS, knobs(k)))
            for index in range(PARAMS.cells):
                shift = elements[f"v.xcell{index}.vshift"]
                editor.set_component_parameters(f"Xcell{index}", shift=shift)
            raw, _ = runner.run_now(editor, exe_log=True)
            traces = {"time": "time", "bl": "v(bl)", "out": "v(out)"}
            read = RawRead(raw, tuple(traces.values()), dialect="ngspice", verbose=False)
            found.append(answer({name: read.get_wave(each) for name, each in traces.items()}))
        runner.cleanup_files()
    return found


def run(mode: str, samples: range) -> list[tuple[float, float]]:
    peers = dict(zip(PEERS, (run_pyspice, run_process, run_spicelib), strict=True))
    if mode in peers:
        return peers[mode](samples)
    if mode == "ours":
        return run_ours(samples, peer_deck())
    return run_ours(samples, build_deck(CIRCUIT, PARAMS, None, WANTED))


def clocks() -> np.ndarray:
    """CPU time of this process and its children, and wall time, in s."""
    return np.array([sum(os.times()[:4]), time.perf_counter()])


def worker(mode: str) -> None:
    """Serve batches over stdin and stdout: ``first count`` in, both times and answers out."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    run(mode, range(1))  # imports, library, first deck
    print("ready", flush=True)
    for line in sys.stdin:
        first, count = map(int, line.split())
        start = clocks()
        found = run(mode, range(first, first + count))
        print(json.dumps([(clocks() - start).tolist(), found]), flush=True)


def main(samples: int = 20, batches: int = 5) -> None:
    workers = {
        mode: subprocess.Popen(
            [sys.executable, __file__, "--worker", mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
        )
        for mode in MODES
    }
    seconds: dict[str, list[np.ndarray]] = {mode: [] for mode in MODES}
    answers: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for process in workers.values():
        assert process.stdout.readline() == "ready\n"
    for batch in range(batches):
        for mode, process in workers.items():
            process.stdin.write(f"{batch * samples} {samples}\n")
            process.stdin.flush()
            spent, found = json.loads(process.stdout.readline())
            seconds[mode].append(np.array(spent) / samples)
            answers[mode] += found
    for process in workers.values():
        process.stdin.close()
        process.wait()
    reference = np.array(answers["ngspice -b"])
    for mode in MODES:
        found = np.array(answers[mode])
        assert np.array_equal(found[:, 0], reference[:, 0]), f"{mode}: other bits"
        np.testing.assert_allclose(found[:, 1], reference[:, 1], rtol=1e-3, err_msg=mode)
    for mode, goals in OURS.items():
        for peer, goal in zip(PEERS, goals, strict=True):
            ours_cpu, ours_wall = np.median(seconds[mode], axis=0)
            peer_cpu, peer_wall = np.median(seconds[peer], axis=0)
            show(mode, peer, 1e3 * ours_cpu, 1e3 * peer_cpu, "ms of CPU a sample", goal)
            show(mode, peer, 1 / ours_wall, 1 / peer_wall, "samples/s of wall time", goal)


def show(mode: str, peer: str, ours: float, theirs: float, unit: str, goal: float) -> None:
    line = {
        "name": f"engine: {mode} against {peer}",
        "ours": round(ours, 2),
        "peer": round(theirs, 2),
        "ratio": round(ours / theirs if unit.startswith("samples") else theirs / ours, 2),
        "goal": goal,
        "unit": unit,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:]))
