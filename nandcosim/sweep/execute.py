"""Run a sweep over Dask: what is missing in the store is simulated and written.

The client keeps a bounded number of chunks in flight and writes each result as it
comes. Chunks are made when there is room for them, so the memory taken does not grow
with the number of samples.

A chunk that kills its worker is run again in isolation (`nandcosim.sweep.isolated`),
where the sample to blame is found. Chunks that merely were on the same worker take the
same way and come back complete.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.system import CPU_COUNT
from distributed import Client, Future, KilledWorker, LocalCluster, as_completed

from nandcosim.errors import InputError, MissingExtraError, SimulationError
from nandcosim.progress import Progress, ProgressCallback, show_progress
from nandcosim.spice.deck import OPTIONS
from nandcosim.spice.engine import BACKENDS, BackendName
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import Chunk, ChunkResult, EngineUsed, Job
from nandcosim.sweep.parse import load_spec
from nandcosim.sweep.provenance import host
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.rehearsal import rehearse
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore
from nandcosim.sweep.worker import (
    THREAD_LIMITS,
    IgnoreInterrupt,
    simulate_chunk,
    simulate_chunk_isolated,
    worker_versions,
)

__all__ = ["run_sweep"]

log = logging.getLogger(__name__)

#: Chunks in flight for every worker: one that runs and one that waits.
CHUNKS_PER_WORKER = 2

#: Watches that distributed keeps for its dashboard, which we don't show: 2 % of a core a worker.
LIGHT = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}

#: Times a chunk in isolation may lose its worker (not its own child) before we give up.
MAX_ISOLATED_ATTEMPTS = 5


def run_sweep(
    spec: SweepSpec | str | PathLike[str],
    out: str | PathLike[str],
    *,
    client: Client | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    backend: BackendName = "shared",
    time_limit: float = 60.0,
    chunk: int | None = None,
    progress: bool | ProgressCallback | None = None,
    max_chunks: int | None = None,
) -> SweepStore:
    """Run a sweep, or continue it.

    Without `client` and `scheduler` a local cluster is started: processes on the
    loopback interface, one thread each. A script that does so must guard its own start
    with ``if __name__ == "__main__":``, as with every use of multiprocessing.

    Parameters
    ----------
    spec : SweepSpec or path
        A checked spec, or a TOML file.
    out : path
        The Zarr store; created, or continued if it holds the same sweep.
    client : distributed.Client, optional
        An existing client; it is left open.
    workers : int, optional
        Processes of the local cluster; default: one a core.
    scheduler : str, optional
        Address of an existing scheduler, ``"tcp://host:8786"``.
    retry_failed : bool
        Also run again the samples that failed.
    backend : {"shared", "process"}
    time_limit : float
        Seconds a sample may take.
    chunk : int, optional
        Samples a chunk of a new store; an existing store keeps its own. Never changes
        a result.
    progress : bool or callable, optional
        True: a bar on a terminal, plain lines elsewhere; or a function of a `Progress`.
    max_chunks : int, optional
        Stop after so many chunks.

    Returns
    -------
    SweepStore

    Raises
    ------
    InputError
        If the spec is wrong, a deck cannot be built or `out` holds something else.
    MissingExtraError
        If the fast engine lacks a package.
    SimulationError
        If the workers cannot run the sweep at all.
    """
    _check_one_of(client=client, workers=workers, scheduler=scheduler)
    _check_options(backend, time_limit, workers=workers, chunk=chunk)
    if not isinstance(spec, SweepSpec):
        spec = load_spec(spec)
    circuit = load_circuit(spec.circuit)
    if scheduler is not None:
        _check_address(scheduler)
    path = Path(out)
    if path.exists():
        store = SweepStore.open(path, writable=True)
        store.require_same(spec, circuit)
    else:
        rehearse(spec, circuit)
        store = SweepStore.create(path, spec, circuit, chunk)
    with store.locked(), _progress(progress) as report:
        run = _Run(store, backend, time_limit, retry_failed, report)
        if run.chunks_left == 0:
            report(run.progress())
            return store
        chunks = store.pending(run.codes, retry_failed)
        with _connected(client, scheduler, workers, run.chunks_left) as connection:
            run.execute(connection, chunks if max_chunks is None else islice(chunks, max_chunks))
    return store


def _check_one_of(**given: Any) -> None:
    if sum(value is not None for value in given.values()) > 1:
        raise InputError(f"{', '.join(given)} exclude each other; give one of them")


def _check_address(scheduler: str) -> None:
    """A client of distributed that cannot make sense of its address never ends."""
    if not re.fullmatch(r"(?:(?:tcp|tls|ws|wss)://)?[^/:]+:\d+", scheduler):
        raise InputError(f"scheduler: found {scheduler!r}, expected one such as tcp://host:8786")


def _check_options(backend: str, time_limit: float, **counts: int | None) -> None:
    if backend not in BACKENDS:
        raise InputError(f"backend: found {backend!r}, allowed: {', '.join(BACKENDS)}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"{name}: found {value}, allowed: at least 1")
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise InputError(f"time_limit: found {time_limit!r} s, allowed: a positive number")


class _Run:
    """One run of a sweep: counts, submits, writes."""

    def __init__(
        self,
        store: SweepStore,
        backend: BackendName,
        time_limit: float,
        retry_failed: bool,
        report: ProgressCallback,
    ) -> None:
        self.store = store
        self.backend = backend
        self.time_limit = time_limit
        self.report = report
        self.id = uuid.uuid4().hex
        self.spec_text = store.spec.canonical_json()
        self.codes: np.ndarray = store.status_codes()
        again = self.codes != Status.OK if retry_failed else self.codes == Status.NOT_RUN
        finished = self.codes[~again]
        self.total = self.codes.size
        self.before = self.done = int(finished.size)
        self.failed = int((finished != Status.OK).sum())
        starts = np.arange(0, store.spec.samples, store.chunk)
        self.chunks_left = int(np.add.reduceat(again, starts, axis=1).astype(bool).sum())
        self.start = time.monotonic()
        self.attempts: dict[Chunk, int] = {}

    def progress(self) -> Progress:
        elapsed = time.monotonic() - self.start
        return Progress(self.done, self.total, self.failed, elapsed, self.before)

    def execute(self, client: Client, chunks: Iterator[Chunk]) -> None:
        """Run `chunks` on the workers of `client` and write their results."""
        record = self._begin(client)
        in_flight: dict[Future[Any], Chunk] = {}
        completed = as_completed(loop=client.loop)
        self.start = time.monotonic()  # the rate is that of the samples, not of the start-up
        self.report(self.progress())

        def submit(function: Callable[[Job], Any], chunk: Chunk) -> None:
            job = Job(self.spec_text, chunk, self.backend, self.time_limit)
            future = client.submit(function, job, pure=False)
            in_flight[future] = chunk
            completed.add(future)

        def refill() -> None:
            room = max(1, CHUNKS_PER_WORKER * _worker_count(client)) - len(in_flight)
            for chunk in islice(chunks, max(0, room)):
                submit(simulate_chunk, chunk)

        try:
            refill()
            while in_flight:
                future = next(completed)
                chunk = in_flight.pop(future)
                result = self._result(future, chunk)
                if result is None:
                    submit(simulate_chunk_isolated, chunk)
                else:
                    self._write(chunk, result)
                refill()
        except KeyboardInterrupt:
            _say_interrupted(self.progress(), self.store.path)
            raise
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(in_flight))
            record["finished"] = _now()
            record["samples"] = self.done - self.before
            self.store.record_run(record)

    def _begin(self, client: Client) -> dict[str, Any]:
        """Ask a worker for its versions, which also shows that it can work at all."""
        future = client.submit(worker_versions, self.backend, pure=False)
        try:
            found = future.result()
        except Exception as error:
            raise SimulationError(
                f"the workers cannot simulate: {type(error).__name__}: {error}"
            ) from error
        record = {
            "id": self.id,
            "started": _now(),
            "finished": None,
            "samples": 0,
            "backend": self.backend,
            "time_limit": self.time_limit,
            "options": dict(OPTIONS),
            "versions": found,
            "host": host(),
        }
        self.store.record_run(record)
        return record

    def _result(self, future: Future[Any], chunk: Chunk) -> ChunkResult | None:
        """What the worker returned; None if it died, so that the chunk goes into isolation."""
        try:
            result: ChunkResult = future.result()
            return result
        except KilledWorker:
            self._count_death(chunk)
            return None
        except MissingExtraError:
            raise
        except Exception as error:
            raise SimulationError(
                f"the run stopped: {type(error).__name__}: {error}; the same command continues it"
            ) from error

    def _count_death(self, chunk: Chunk) -> None:
        self.attempts[chunk] = self.attempts.get(chunk, 0) + 1
        if self.attempts[chunk] > MAX_ISOLATED_ATTEMPTS:
            raise SimulationError(
                f"workers keep dying (point {chunk.point}, samples {chunk.start} to "
                f"{chunk.stop - 1}), and not through ngspice; out of memory?"
            )

    def _write(self, chunk: Chunk, result: ChunkResult) -> None:
        self.store.write(chunk, result)
        if result.engine is not None and (result.engine == EngineUsed.FALLBACK).any():
            log.warning(
                "grid point %d, samples %d to %d: the fast engine disagrees with ngspice, "
                "which ran %d of them",
                chunk.point,
                chunk.start,
                chunk.stop - 1,
                int((result.engine != EngineUsed.FAST).sum()),
            )
        self.attempts.pop(chunk, None)
        self.done += len(chunk.samples)
        self.failed += int((result.status != Status.OK).sum())
        self.report(self.progress())


@contextlib.contextmanager
def _connected(
    client: Client | None, scheduler: str | None, workers: int | None, limit: int
) -> Iterator[Client]:
    """The given client, one for the given scheduler, or a local cluster of our own."""
    if client is not None:
        yield client
        return
    if scheduler is not None:
        try:
            connected = Client(scheduler, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"scheduler {scheduler}: cannot be reached: {error}") from None
        with connected:
            yield connected
        return
    count = min(workers or CPU_COUNT, limit)
    environment = dask.config.get("distributed.nanny.pre-spawn-environ", {}) | THREAD_LIMITS
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": environment, **LIGHT}),
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,
            env=THREAD_LIMITS,
            # The first death is news (allowed_failures): the chunk then goes into isolation
            # at once instead of killing more workers.
            # No dashboard does not mean no HTTP server: give it a free port of the loopback
            # interface, since the default one may be taken.
            scheduler_kwargs={
                "allowed_failures": 0,
                "dashboard": False,
                "dashboard_address": "127.0.0.1:0",
            },
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as own,
    ):
        own.register_plugin(IgnoreInterrupt())
        yield own


def _worker_count(client: Client) -> int:
    return len(client.nthreads())


@contextlib.contextmanager
def _progress(progress: bool | ProgressCallback | None) -> Iterator[ProgressCallback]:
    if callable(progress):
        yield progress
    elif progress:
        with show_progress("sweep", "samples") as callback:
            yield callback
    else:
        yield lambda state: None


def _say_interrupted(progress: Progress, path: Path) -> None:
    logging.getLogger(__name__).warning(
        "interrupted: %d of %d samples are in %s; the same command continues",
        progress.done,
        progress.total,
        path,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
