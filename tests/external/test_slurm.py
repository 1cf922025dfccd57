"""Sweeps on a real SLURM of one node: jobs come, go, are refused, and the store stays exact."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import xarray as xr
from distributed import Client, Security
from external.slurm_queue import Slurm, missing, slurm

from nandcosim.errors import SimulationError
from nandcosim.progress import Progress
from nandcosim.sweep import jobs, open_store, parse_spec, run_sweep, status
from nandcosim.sweep.cluster import dashboard_link, queue_client
from nandcosim.sweep.spec import SweepSpec

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"SLURM is not installed: {missing()}")

TESTS = Path(__file__).parents[1]
SAMPLES = 40

#: Seconds after which a test gives up waiting for the queue; nothing depends on its size.
PATIENCE = 90.0

Settings = Callable[..., Path]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """One queue for all tests; its commands are found by this process."""
    with slurm(tmp_path_factory.mktemp("slurm")) as queue, pytest.MonkeyPatch.context() as patch:
        for name, value in queue.environment.items():
            patch.setenv(name, value)
        # A person can wait a quarter of a minute until a lost job is replaced; tests need not.
        patch.setattr(jobs, "POLL_INTERVAL", 0.5)
        yield queue


@pytest.fixture
def settings(queue: Slurm, tmp_path: Path) -> Settings:
    """Writes a cluster's TOML file."""

    def write(*, maximum: int = 1, workers: int = 1, more: str = "", prologue: str = "") -> Path:
        path = tmp_path / "cluster.toml"
        path.write_text(
            f"""
            queue = "slurm"
            maximum = {maximum}
            workers = {workers}
            memory = "1 GB"
            walltime = "00:20:00"
            interface = "lo"
            prologue = ['export PYTHONPATH={TESTS.parent}:{TESTS}', '{prologue}']
            logs = "{tmp_path}/logs"
            shared = "{tmp_path}/shared"
            {more}
            """
        )
        return path

    return write


def spec_of(circuit: str = "RCDischarge", samples: int = SAMPLES) -> SweepSpec:
    return parse_spec(
        {
            "circuit": f"circuits_for_tests:{circuit}",
            "samples": samples,
            "seed": 3,
            "axes": {"capacitance": ["1 nF", "2 nF"]},
            "random": [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1}],
        }
    )


def data_of(path: Any) -> xr.Dataset:
    """The whole store without its attributes, which hold the name of the circuit and times."""
    return open_store(path).load().drop_attrs()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """The reference: a run on this machine."""
    path = tmp_path_factory.mktemp("reference") / "s.zarr"
    return data_of(run_sweep(spec_of(), path, workers=1))


def wait_until(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def no_jobs(queue: Slurm) -> None:
    wait_until(lambda: not queue.unfinished(), "jobs are left over")


# ---------------------------------------------------------------- a run


def test_sweep_on_the_queue_is_that_of_this_machine(
    queue: Slurm, settings: Settings, undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "s.zarr"
    store = run_sweep(spec_of(), out, cluster=settings(maximum=2))
    xr.testing.assert_identical(data_of(out), undisturbed)
    (record,) = store.attributes["runs"]
    assert record["samples"] == 2 * SAMPLES
    no_jobs(queue)
    assert list((tmp_path / "shared").iterdir()) == []  # the keys are gone


def test_workers_of_a_job(queue: Slurm, settings: Settings, tmp_path: Path) -> None:
    """One job of two workers, one thread each, over TLS; the dashboard on loopback only."""
    before = len(queue.jobs())
    with queue_client(settings(workers=2)) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        assert len(queue.jobs()) - before == 1
        assert set(client.nthreads().values()) == {1}
        found = client.run(lambda: os.environ["OMP_THREAD_LIMIT"])
        assert set(found.values()) == {"1"}
        (folder,) = (tmp_path / "shared").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        with urllib.request.urlopen(dashboard_link(client), timeout=PATIENCE) as page:
            assert page.status == 200
        workers = client.scheduler_info(n_workers=-1)["workers"]
        check_encryption([client.scheduler.address, *workers])
        check_worker_pages(workers)
    no_jobs(queue)


def check_encryption(addresses: list[str]) -> None:
    """Nobody without the certificate of the run gets in, be it as Dask or as anything."""
    scheduler = addresses[0]
    for address, security in (
        (scheduler.replace("tls://", "tcp://"), None),
        (scheduler, Security.temporary()),
    ):
        with pytest.raises(OSError, match=r"Timed out|handshake|certificate|closed"):
            Client(address, security=security, timeout="1s", set_as_default=False)
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    for address in addresses:
        parts = urlsplit(address)
        assert parts.scheme == "tls"
        with (
            socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            anybody.wrap_socket(plain) as encrypted,
        ):
            encrypted.recv(1)  # with TLS 1.3 the server's refusal comes after the handshake


def check_worker_pages(workers: dict[str, Any]) -> None:
    for worker in workers.values():
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(
                f"http://127.0.0.1:{worker['services']['dashboard']}/metrics", timeout=PATIENCE
            )


# ---------------------------------------------------------------- what goes wrong


def test_cancelled_job_is_replaced(
    queue: Slurm, settings: Settings, undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    cancelled: list[str] = []

    def cancel_once(progress: Progress) -> None:
        if progress.done >= 10 and not cancelled:
            cancelled.extend(queue.unfinished())
            queue.run("scancel", *cancelled)

    out = tmp_path / "s.zarr"
    run_sweep(spec_of("SlowCircuit"), out, cluster=settings(), progress=cancel_once)
    xr.testing.assert_identical(data_of(out), undisturbed)
    assert len(cancelled) == 1
    no_jobs(queue)


def changed_circuits(folder: Path) -> Path:
    """A copy of the tests' circuits that differs by a comment."""
    folder.mkdir()
    code = (TESTS / "circuits_for_tests.py").read_text()
    (folder / "circuits_for_tests.py").write_text(f"{code}# another version\n")
    return folder


def test_worker_that_differs_is_refused(queue: Slurm, settings: Settings, tmp_path: Path) -> None:
    folder = changed_circuits(tmp_path / "changed")
    file = settings(prologue=f"export PYTHONPATH={folder}:$PYTHONPATH")
    reason = r"no worker can take part: code of circuits_for_tests differs from the plan's"
    with pytest.raises(SimulationError, match=reason):
        run_sweep(spec_of(), tmp_path / "s.zarr", cluster=file)
    assert status(tmp_path / "s.zarr")["done"] == 0
    no_jobs(queue)


@pytest.mark.long
def test_others_do_the_work_of_a_refused_worker(
    queue: Slurm,
    settings: Settings,
    undisturbed: xr.Dataset,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every job but the first differs, and brings its worker when the first one's has begun."""
    folder, begun, out = changed_circuits(tmp_path / "changed"), tmp_path / "begun", tmp_path / "s"
    prologue = (
        f"mkdir {tmp_path}/first || {{ until test -e {begun}; do sleep 0.1; done; "
        f"export PYTHONPATH={folder}:$PYTHONPATH; }}"
    )
    run_sweep(
        spec_of("SlowCircuit", samples=3 * SAMPLES),
        out,
        cluster=settings(maximum=2, prologue=prologue),
        progress=lambda progress: begun.touch() if progress.done else None,
    )
    xr.testing.assert_identical(data_of(out).isel(sample=slice(SAMPLES)), undisturbed)
    assert status(out)["counts"]["ok"] == 6 * SAMPLES
    refusals = [text for text in caplog.messages if "code of circuits_for_tests differs" in text]
    assert refusals
    no_jobs(queue)


def test_refusal_by_the_queue_is_one_line(queue: Slurm, settings: Settings, tmp_path: Path) -> None:
    file = settings(more='partition = "nowhere"')
    with pytest.raises(
        SimulationError, match=r"the queue refused a job: sbatch: .*nowhere"
    ) as caught:
        run_sweep(spec_of(), tmp_path / "s.zarr", cluster=file)
    assert "\n" not in str(caught.value)


def test_jobs_that_end_before_their_worker_stop_the_run(
    queue: Slurm, settings: Settings, tmp_path: Path
) -> None:
    before = len(queue.jobs())
    file = settings(prologue="echo module ngspice is unknown >&2; exit 1")
    with pytest.raises(
        SimulationError,
        match=r"job \d+ ended before a worker worked: module ngspice is unknown \(in",
    ):
        run_sweep(spec_of(), tmp_path / "s.zarr", cluster=file)
    assert len(queue.jobs()) - before == jobs.FEW_FAILURES


RUN = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from nandcosim.sweep import run_sweep
from nandcosim.sweep.spec import SweepSpec

def report(progress):
    print(progress.done, flush=True)

if __name__ == "__main__":
    spec = SweepSpec.model_validate_json({spec!r})
    run_sweep(spec, {out!r}, cluster={cluster!r}, progress=report)
"""


def started(spec: SweepSpec, out: Path, script: Path, settings: Settings) -> subprocess.Popen[str]:
    """A sweep on the queue in a process of its own, some of which is written."""
    script.write_text(
        RUN.format(
            root=str(TESTS.parent),
            tests=str(TESTS),
            spec=spec.canonical_json(),
            out=str(out),
            cluster=str(settings(maximum=2)),
        )
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 10:
            return process
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.mark.long
def test_interrupt_ends_the_jobs(queue: Slurm, settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / "s.zarr"
    process = started(spec_of("SlowCircuit"), out, tmp_path / "run.py", settings)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0  # or a script would take the sweep for done
    kept = status(out)["done"]
    assert f"interrupted: {kept} of 80 samples are in {out}; the same command continues" in errors
    no_jobs(queue)
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.long
def test_jobs_end_after_kill_of_the_client(
    queue: Slurm, settings: Settings, undisturbed: xr.Dataset, tmp_path: Path
) -> None:
    spec, out = spec_of("SlowCircuit"), tmp_path / "s.zarr"
    process = started(spec, out, tmp_path / "run.py", settings)
    process.kill()
    process.communicate()
    no_jobs(queue)
    kept = status(out)["done"]
    assert 10 <= kept < 2 * SAMPLES
    (left,) = (tmp_path / "shared").iterdir()
    run_sweep(spec, out, cluster=settings(maximum=2))
    xr.testing.assert_identical(data_of(out), undisturbed)
    assert not left.exists()  # the keys of the run that was killed
