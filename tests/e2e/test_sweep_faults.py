"""What breaks a night's run: whatever it is, the store is exact and the same command goes on.

Real processes, each test one fault; `docs/faults.md` lists them, with those in
`test_sweep_resume.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.spice.status import Status
from nandcosim.sweep import draw, load_circuit, load_spec, open_store, run_sweep, status
from nandcosim.sweep.store import SweepStore
from nandcosim.sweep.verification import verify

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # circuits_for_tests

SPEC = """\
circuit = "{circuit}"
samples = 20
seed = 3

[axes]
{axes}capacitance = ["1 nF", "2 nF"]
sigma = [0.0, 0.1]

[[random]]
target = "excess"
distribution = "normal"
mean = 0.0
std = "sigma"

[[random]]
target = "kill"
distribution = "normal"
mean = -2.0
std = 1.0
"""

TOTAL = 80

#: Seconds after which a process that should have ended is taken to hang.
PATIENCE = 120


def write_spec(folder: Path, circuit: str, axes: str = "") -> Path:
    path = folder / "sweep.toml"
    path.write_text(SPEC.format(circuit=circuit, axes=axes))
    return path


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    return {**os.environ, "PYTHONPATH": path, "OMP_THREAD_LIMIT": "1", **more}


def start(*arguments: str | Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nandcosim", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        start_new_session=True,
    )


def run(*arguments: str | Path, code: int = 0, **more: str) -> tuple[str, str]:
    """Run a command to its end; what it wrote to stdout and stderr."""
    return end(start(*arguments, **more), code)


def end(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    try:
        out, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        raise AssertionError(f"it hangs: {out}{errors}") from None
    assert process.returncode == code, out + errors
    return out, errors


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError("ended too early: " + "".join(process.communicate()))
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_begun(store: Path) -> bool:
    return store.exists() and bool(status(store)["done"] >= 5)


def data_of(path: Any) -> xr.Dataset:
    """The whole store without its attributes, which hold the name of the circuit and times."""
    return open_store(path).load().drop_attrs()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference: one run without disturbance, in chunks of ten samples."""
    folder = tmp_path_factory.mktemp("reference")
    spec = load_spec(write_spec(folder, "circuits_for_tests:RCDischarge"))
    return run_sweep(spec, folder / "s.zarr", workers=1, chunk=10).path


# ------------------------------------------------------------- scheduler


@contextlib.contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Dask scheduler and one worker, each a process of its own."""
    folder.mkdir()
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment()}
    dask = [sys.executable, "-m", "dask"]
    here = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    main = subprocess.Popen([*dask, "scheduler", *here], **quiet)
    worker = None
    try:
        wait_for(lambda: file.exists() and bool(file.read_text()))
        there = ["--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        worker = subprocess.Popen([*dask, "worker", *there], **quiet, cwd=folder)
        yield json.loads(file.read_text())["address"], main
    finally:
        for process in (worker, main):
            if process is not None:
                process.kill()
                process.wait()


def test_kill_of_the_scheduler(undisturbed: Path, tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path, "circuits_for_tests:SlowCircuit"), tmp_path / "s.zarr"
    with scheduler(tmp_path / "first") as (address, process):
        sweep = start("sweep", spec, "--out", out, "--scheduler", address)
        wait_for(lambda: has_begun(out), sweep)
        process.kill()
        _, errors = end(sweep, code=1)
    assert "nandcosim: the scheduler is gone; what was written is kept" in errors
    assert "Traceback" not in errors
    kept = status(out)["done"]
    assert 5 <= kept < TOTAL
    with scheduler(tmp_path / "second") as (address, _):
        run("sweep", spec, "--out", out, "--scheduler", address)
    xr.testing.assert_identical(data_of(out), data_of(undisturbed))
    assert SweepStore.open(out).attributes["runs"][-1]["samples"] == TOTAL - kept


# ------------------------------------------------------------------ disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, seen through the process in whose namespace it is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = f"mount -t tmpfs -o size=1m none {folder} && echo ready && exec sleep 600"
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare (util-linux)")
    holder = subprocess.Popen(
        ["unshare", "-Urm", "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no file system can be mounted here: {holder.communicate()[1].strip()}")
        yield Path(f"/proc/{holder.pid}/root{folder}")
    finally:
        holder.kill()
        holder.communicate()


def fill_up(filler: Path) -> None:
    """Take all the room that is left."""
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@pytest.mark.long
def test_disk_full(undisturbed: Path, small_disk: Path, tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path, "circuits_for_tests:SlowCircuit"), small_disk / "s.zarr"
    filler = small_disk / "filler"
    sweep = start("sweep", spec, "--out", out, "--workers", "1")
    wait_for(lambda: has_begun(out), sweep)
    while sweep.poll() is None:  # a file that is replaced frees its room for the next
        fill_up(filler)
        time.sleep(0.01)
    _, errors = end(sweep, code=1)
    message = f"nandcosim: {out}: No space left on device; free some and run the same command again"
    assert message in errors
    assert "Traceback" not in errors
    assert verify(SweepStore.open(out)) == []
    kept = status(out)["done"]
    assert 5 <= kept < TOTAL
    filler.unlink()
    run("sweep", spec, "--out", out, "--workers", "1")
    xr.testing.assert_identical(data_of(out), data_of(undisturbed))


# ----------------------------------------------------------------- store


@pytest.mark.long
def test_two_sweeps_at_once(undisturbed: Path, tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path, "circuits_for_tests:SlowCircuit"), tmp_path / "s.zarr"
    first = start("sweep", spec, "--out", out, "--workers", "1")
    wait_for(lambda: has_begun(out), first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it is not done before the second one looks
    assert status(out)["running"]
    _, errors = run("sweep", spec, "--out", out, "--workers", "1", code=1)
    os.kill(first.pid, signal.SIGCONT)
    assert f"nandcosim: {out}: another process is running this sweep" in errors
    end(first)
    assert not status(out)["running"]
    xr.testing.assert_identical(data_of(out), data_of(undisturbed))
    assert len(SweepStore.open(out).attributes["runs"]) == 1


@pytest.mark.parametrize("lost", [False, True], ids=["truncated", "lost"])
def test_half_written_chunks(
    lost: bool, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One chunk of each array, each of other samples; they are run again and no others."""
    out = tmp_path / "s.zarr"
    shutil.copytree(undisturbed, out)
    names = ["status", "reason", "t_half", "v_end"]
    for place, name in enumerate(names):
        file = out / name / f"c/{place // 2}/{place % 2}/1"  # samples 10 to 19 of a point
        if lost:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-3])
    with caplog.at_level(logging.WARNING):
        store = run_sweep(load_spec(undisturbed.parent / "sweep.toml"), out, workers=1)
    (warning,) = [each for each in caplog.records if "damaged" in each.getMessage()]
    assert "t_half/c/1/0/1 (" in warning.getMessage()
    assert store.attributes["runs"][-1]["samples"] == 10 * len(names)
    assert store.digest() == SweepStore.open(undisturbed).digest()
    assert verify(store) == []


def test_netlist_changed_before_it_goes_on(tmp_path: Path) -> None:
    card, out = tmp_path / "models" / "card.lib", tmp_path / "s.zarr"
    card.parent.mkdir()
    card.write_text(".model a nmos level=1\n")
    spec = write_spec(tmp_path, "fault_circuits_for_tests:CardCircuit")
    sweep = start("sweep", spec, "--out", out, "--workers", "1", TEST_CARD=str(card))
    wait_for(out.exists, sweep)
    sweep.kill()
    sweep.communicate()
    card.write_text(".model a nmos level=1 vto=1\n")
    _, errors = run("sweep", spec, "--out", out, code=2, TEST_CARD=str(card))
    assert f"nandcosim: {out}: holds another sweep: netlists.models/card.lib is '" in errors


# --------------------------------------------------------------- samples


def test_sample_that_does_not_end(undisturbed: Path, tmp_path: Path) -> None:
    text = SPEC.format(
        circuit="fault_circuits_for_tests:EndlessCircuit", axes="endless = [0, 1]\n"
    ).replace("samples = 20", "samples = 2")
    spec, out = tmp_path / "sweep.toml", tmp_path / "s.zarr"
    spec.write_text(text)
    said, _ = run("sweep", spec, "--out", out, "--workers", "1", "--time-limit", "0.5")
    assert re.search(
        r"8 x timeout: time limit of 0\.5 s hit at \S+ s of simulated time \(and alike\) "
        r"\(samples 8, 9, 10, \.\.\.\)",
        said,
    )
    data = data_of(out)
    assert (data.status.sel(endless=1) == Status.TIMEOUT).all()
    reference = data_of(undisturbed).isel(sample=slice(0, 2))
    xr.testing.assert_identical(data.sel(endless=0, drop=True), reference)


@pytest.mark.long
def test_crash_is_reported_with_a_command_that_repeats_it(
    undisturbed: Path, tmp_path: Path
) -> None:
    path, out = write_spec(tmp_path, "circuits_for_tests:KillingCircuit"), tmp_path / "s.zarr"
    said, errors = run("sweep", path, "--out", out, "--workers", "1")
    spec = load_spec(path)
    circuit = load_circuit(spec.circuit)
    hit = np.array(
        [draw(spec, circuit, *divmod(number, 20))[1]["kill"][0] > 0 for number in range(TOTAL)]
    )
    victims = np.flatnonzero(hit)
    assert victims.size
    named = ", ".join(map(str, victims[:3])) + (", ..." if victims.size > 3 else "")
    assert f"crashed: the simulator process died: SIGKILL (samples {named})" in said
    for number in victims:
        assert f"sample {number} is set aside" in errors
    command = re.search(r"nandcosim (reproduce-sample \S+ \d+)", said)
    assert command is not None
    again, _ = run(*command[1].split(), "--out", tmp_path / "sample")
    assert "crashed again" in again
    found, whole = (data_of(path)[["t_half", "v_end"]] for path in (out, undisturbed))
    xr.testing.assert_identical(found, whole.where(data_of(out).status == Status.OK))
