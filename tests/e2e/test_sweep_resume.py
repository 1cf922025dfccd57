"""Sweeps through ngspice and Dask: the same bits, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
import xarray as xr
from distributed import Client, LocalCluster

from nandcosim.errors import InputError, SimulationError
from nandcosim.progress import Progress
from nandcosim.spice.status import Status
from nandcosim.sweep import (
    draw,
    isolated,
    load_circuit,
    open_store,
    parse_spec,
    run_sweep,
    status,
    store_digest,
)
from nandcosim.sweep.chunk import Chunk, Job
from nandcosim.sweep.spec import SweepSpec

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # circuits_for_tests

SAMPLES = 20


def spec_of(circuit: str = "RCDischarge", **changes: Any) -> SweepSpec:
    document: dict[str, Any] = {
        "circuit": f"circuits_for_tests:{circuit}",
        "samples": SAMPLES,
        "seed": 3,
        "axes": {"capacitance": ["1 nF", "2 nF"], "sigma": [0.0, 0.1]},
        "random": [
            {"target": "excess", "distribution": "normal", "mean": 0.0, "std": "sigma"},
            {"target": "kill", "distribution": "normal", "mean": -2.0, "std": 1.0},
        ],
    }
    return parse_spec({**document, **changes})


def victims(spec: SweepSpec) -> np.ndarray:
    """Whether the knob ``kill`` is positive, shape (points, samples)."""
    circuit = load_circuit(spec.circuit)
    return np.array(
        [
            [draw(spec, circuit, point, k)[1]["kill"][0] > 0 for k in range(spec.samples)]
            for point in range(spec.points)
        ]
    )


def data_of(path: Any) -> xr.Dataset:
    """The whole store without its attributes, which hold the name of the circuit and times."""
    return open_store(path).load().drop_attrs()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Somebody else's cluster: default retries, two threads in its one worker."""
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            memory_limit=0,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def undisturbed(client: Client, tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The reference: one run without disturbance."""
    path = tmp_path_factory.mktemp("reference") / "s.zarr"
    return data_of(run_sweep(spec_of(), path, client=client))


def test_results_are_those_of_an_rc_discharge(undisturbed: xr.Dataset) -> None:
    assert (undisturbed.status == Status.OK).all()
    spec = spec_of()
    circuit = load_circuit(spec.circuit)
    for point in range(spec.points):
        for k in range(spec.samples):
            params, knobs = draw(spec, circuit, point, k)
            resistance = params.resistance / 2 * (2 + knobs["excess"].sum())
            tau = resistance * params.capacitance
            where = dict(zip(spec.axes, spec.index(point), strict=True))
            found = undisturbed.isel(sample=k, **where)
            # The step is 1/50 of the time constant, the integration trapezoidal: its error
            # is of order step**2 / 12, and so is that of the linear interpolation in t_half.
            assert float(found.t_half) == pytest.approx(tau * np.log(2), rel=1e-3)
            stop = params.resistance * params.capacitance
            assert float(found.v_end) == pytest.approx(np.exp(-stop / tau), rel=1e-3)


@pytest.mark.parametrize(("workers", "chunk"), [(1, 7), (4, 20)])
def test_workers_and_chunks_do_not_matter(
    workers: int, chunk: int, undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    store = run_sweep(spec_of(), tmp_path / "s.zarr", workers=workers, chunk=chunk)
    xr.testing.assert_identical(data_of(store), undisturbed)
    (record,) = store.attributes["runs"]
    assert record["samples"] == 4 * SAMPLES
    assert record["finished"] is not None
    assert record["versions"]["ngspice"]
    assert record["options"]["num_threads"] == "1"


def test_scheduler_address_and_steps(
    client: Client, undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    """Two tasks, the first of which are of one sample; then the rest; then no workers at all."""
    path = tmp_path / "s.zarr"
    run_sweep(spec_of(), path, client=client, chunk=10, max_chunks=2)
    assert status(path)["counts"]["ok"] == 2
    address = client.scheduler.address
    run_sweep(spec_of(), path, scheduler=address)
    xr.testing.assert_identical(data_of(path), undisturbed)
    run_sweep(spec_of(), path, scheduler="tcp://127.0.0.1:1")  # nobody listens there
    assert len(run_sweep(spec_of(), path).attributes["runs"]) == 2


def test_chunks_in_flight_are_bounded(client: Client, tmp_path: Path) -> None:
    most = 0
    states: list[Progress] = []

    def watch(progress: Progress) -> None:
        nonlocal most
        states.append(progress)
        most = max(most, len(client.futures))

    run_sweep(spec_of(), tmp_path / "s.zarr", client=client, chunk=2, progress=watch)
    assert most <= 4  # two for the one worker, and those just finished
    done = [state.done for state in states]
    assert done[:2] == [0, 1]  # what a sample costs is not known yet
    assert set(np.diff(done)) == {1, 2}
    assert done[-1] == 80
    assert states[-1].fraction == 1.0


def test_other_sweep_is_refused(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    run_sweep(spec_of(), path, client=client, max_chunks=0)
    with pytest.raises(InputError, match="seed is 3 in the store and 4 here"):
        run_sweep(spec_of(seed=4), path, client=client)
    with pytest.raises(InputError, match="is not the store of a sweep"):
        run_sweep(spec_of(), tmp_path, client=client)


def test_options_are_checked(tmp_path: Path) -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        check_options(tmp_path)


def check_options(tmp_path: Path) -> None:
    for options, message in [
        ({"workers": 0}, "workers: found 0"),
        ({"chunk": 0}, "chunk: found 0"),
        ({"backend": "xyce"}, "backend: found 'xyce', allowed: shared, process"),
        ({"time_limit": -1.0}, r"time_limit: found -1\.0 s"),
        ({"workers": 1, "scheduler": "tcp://127.0.0.1:1"}, "exclude each other"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "cannot be reached"),
    ]:
        with pytest.raises(InputError, match=message):
            run_sweep(spec_of(), tmp_path / "s.zarr", **options)


# -------------------------------------------------------------- failures


def test_no_convergence_is_counted(client: Client, tmp_path: Path) -> None:
    spec = spec_of("ShortedCircuit", samples=3, axes={"shorted": [0, 1]}, random=[])
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    data = data_of(store)
    assert (data.status.sel(shorted=0) == Status.OK).all()
    assert (data.status.sel(shorted=1) == Status.NO_CONVERGENCE).all()
    assert data.v_end.sel(shorted=1).isnull().all()
    found = status(store)
    assert (found["counts"]["no_convergence"], found["counts"]["ok"]) == (3, 3)
    assert (found["done"], found["failed"]) == (6, 3)
    (reason,) = found["reasons"]
    assert reason


def test_exception_in_user_code_costs_its_sample_and_can_be_retried(
    undisturbed: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, path = spec_of("RaisingCircuit"), tmp_path / "s.zarr"
    hit = victims(spec)
    assert 0 < hit.sum() < hit.size
    run_sweep(spec, path, workers=1)
    codes = data_of(path).status.values.reshape(hit.shape)
    np.testing.assert_array_equal(codes, np.where(hit, Status.DECK_ERROR, Status.OK))
    ((reason, count),) = status(path)["reasons"].items()
    assert reason.startswith("ZeroDivisionError: an accident in user code (circuits_for_tests.py:")
    assert count == hit.sum()
    monkeypatch.setenv("RAISING_CIRCUIT_IS_REPAIRED", "1")
    store = run_sweep(spec, path, workers=1)
    assert status(path)["failed"] == hit.sum()  # failures are not run again unasked
    assert len(store.attributes["runs"]) == 1
    store = run_sweep(spec, path, workers=1, retry_failed=True)
    assert store.attributes["runs"][-1]["samples"] == hit.sum()
    xr.testing.assert_identical(data_of(path), undisturbed)


def test_exception_while_measuring_is_an_undefined_response(client: Client, tmp_path: Path) -> None:
    spec = spec_of("BadlyMeasuredCircuit", samples=2, axes={}, random=[])
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    assert status(store)["counts"]["undefined_response"] == 2


def test_drawn_parameter_out_of_bounds_is_a_deck_error(client: Client, tmp_path: Path) -> None:
    wide = {"target": "precharge", "distribution": "uniform", "low": 4.0, "high": 5.5}
    spec = spec_of(samples=20, axes={}, random=[wide])
    data = data_of(run_sweep(spec, tmp_path / "s.zarr", client=client))
    bad = data.status == Status.DECK_ERROR
    assert 0 < int(bad.sum()) < 20
    assert data.reason.values[bad.values][0].startswith("drawn precharge = 5.")
    assert data.v_end[~bad].notnull().all()


def test_sample_that_kills_its_process_costs_itself_only(
    undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    spec = spec_of("KillingCircuit")
    hit = victims(spec)
    assert 0 < hit.sum() < 10
    store = run_sweep(spec, tmp_path / "s.zarr", workers=2, chunk=20)
    data = data_of(store)
    codes = data.status.values.reshape(hit.shape)
    np.testing.assert_array_equal(codes, np.where(hit, Status.CRASHED, Status.OK))
    assert status(store)["reasons"] == {"the simulator process died: SIGKILL": int(hit.sum())}
    alive = data.status == Status.OK
    xr.testing.assert_identical(
        data[["t_half", "v_end"]], undisturbed[["t_half", "v_end"]].where(alive)
    )


def test_library_that_no_longer_answers_costs_one_sample(
    undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    """The worker cannot load a second library; its later samples run in child processes."""
    spec = spec_of("StuckLibraryCircuit")
    hit = victims(spec)
    store = run_sweep(spec, tmp_path / "s.zarr", workers=1, chunk=20)
    data = data_of(store)
    codes = data.status.values.reshape(hit.shape)
    np.testing.assert_array_equal(codes, np.where(hit, Status.CRASHED, Status.OK))
    names = ["t_half", "v_end"]
    alive = data.status == Status.OK
    xr.testing.assert_identical(data[names], undisturbed[names].where(alive))


def test_isolated_sample_that_hangs_is_a_timeout() -> None:
    spec = spec_of("HangingCircuit")
    point, k = np.argwhere(victims(spec))[0]
    samples = tuple(sorted({0, int(k), SAMPLES - 1}))
    job = Job(spec.canonical_json(), Chunk(int(point), 0, SAMPLES, samples), "shared", 3.0)
    results = dict(zip(samples, isolated.simulate_isolated(job), strict=True))
    assert results.pop(int(k)).status is Status.TIMEOUT
    assert {result.status for result in results.values()} == {Status.OK}


@pytest.mark.long
def test_code_of_a_circuit_that_hangs_in_a_worker_costs_its_sample(tmp_path: Path) -> None:
    """The worker ends itself; a child process finds the sample and is killed."""
    spec = spec_of("HangingCircuit", axes={"capacitance": ["1 nF"], "sigma": [0.1]}, seed=2)
    hit = victims(spec)
    assert hit.sum() == 1
    store = run_sweep(spec, tmp_path / "s.zarr", workers=2, time_limit=1.0)
    codes = data_of(store).status.values.reshape(hit.shape)
    np.testing.assert_array_equal(codes, np.where(hit, Status.TIMEOUT, Status.OK))
    (reason,) = status(store)["reasons"]
    assert reason == "did not return 5 s after its time limit of 1 s; killed"


def test_isolated_process_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    job = Job(spec.canonical_json(), Chunk(0, 0, SAMPLES, (0, 1)), "shared", 3.0)
    unknown = replace(job, spec=job.spec.replace("RCDischarge", "NoSuchCircuit"))
    with pytest.raises(SimulationError, match="NoSuchCircuit"):
        isolated.simulate_isolated(unknown)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SimulationError, match="ended before its first one: exit code 1"):
        isolated.simulate_isolated(job)


# ------------------------------------------------------------------ kill

RUN = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from nandcosim.sweep import run_sweep
from nandcosim.sweep.chunk import Chunk, Job
from nandcosim.sweep.spec import SweepSpec

def report(progress):
    print(progress.done, flush=True)

if __name__ == "__main__":
    run_sweep(SweepSpec.model_validate_json({spec!r}), {out!r}, workers=2, chunk=5, progress=report)
"""


def start(spec: SweepSpec, out: Path, script: Path) -> subprocess.Popen[str]:
    """Start a sweep in a process of its own and wait until some of it is written."""
    script.write_text(
        RUN.format(
            root=str(TESTS.parent), tests=str(TESTS), spec=spec.canonical_json(), out=str(out)
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 10:
            return process
    raise AssertionError(process.stderr.read() if process.stderr else "")


def wait_until_gone(processes: list[psutil.Process]) -> None:
    """Workers must not outlive the sweep; Dask lets them notice within seconds."""
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []


def test_kill_of_the_whole_process_then_resume(undisturbed: xr.Dataset, tmp_path: Path) -> None:
    spec, out = spec_of("SlowCircuit"), tmp_path / "s.zarr"
    process = start(spec, out, tmp_path / "run.py")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    wait_until_gone(children)
    kept = status(out)["done"]
    assert 10 <= kept < 4 * SAMPLES
    store = run_sweep(spec, out, workers=2)
    xr.testing.assert_identical(data_of(out), undisturbed)
    first, second = store.attributes["runs"]
    assert first["finished"] is None
    assert second["samples"] == 4 * SAMPLES - kept


def test_interrupt_stops_cleanly(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the terminal's group; only one message comes out."""
    out = tmp_path / "s.zarr"
    process = start(spec_of("SlowCircuit"), out, tmp_path / "run.py")
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    wait_until_gone(children)
    kept = status(out)["done"]
    assert 10 <= kept < 4 * SAMPLES
    assert f"interrupted: {kept} of 80 samples are in {out}; the same command continues" in errors
    assert "distributed" not in errors.partition("Traceback")[0]
    assert "Worker process" not in errors  # Ctrl-C is for the client alone


def test_kill_of_one_worker_mid_run(undisturbed: xr.Dataset, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_once(progress: Progress) -> None:
        if progress.done and not killed:
            workers = [
                child
                for child in psutil.Process().children(recursive=True)
                if child.pid not in before and "spawn_main" in " ".join(child.cmdline())
            ]
            killed.append(workers[0].pid)
            workers[0].kill()

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    store = run_sweep(
        spec_of("SlowCircuit"), tmp_path / "s.zarr", workers=2, chunk=5, progress=kill_once
    )
    assert killed
    xr.testing.assert_identical(data_of(store), undisturbed)
    assert status(store)["counts"]["ok"] == 4 * SAMPLES
    assert store_digest(store) == store.digest()
