"""One run of a sweep: what is missing is given to workers, and what they answer is written.

The client keeps a bounded number of tasks in flight and writes each result as it comes.
Tasks are made when there is room for them, so the memory taken does not grow with the
number of samples.

A task that kills its worker is run again in isolation (`nandcosim.sweep.isolated`),
where the sample to blame is found. Tasks that merely were on the same worker take the
same way and come back complete. A worker that is not what the sweep was planned for
refuses its tasks; it is closed, and they go to others.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from distributed import CancelledError, Client, Future, KilledWorker

from nandcosim.errors import MissingExtraError, NandcosimError, SimulationError
from nandcosim.progress import Progress, ProgressCallback
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.deck import OPTIONS
from nandcosim.spice.engine import BackendName
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import Chunk, ChunkResult, EngineUsed, Job, Refusal
from nandcosim.sweep.identity import expected_identity
from nandcosim.sweep.pace import Pace
from nandcosim.sweep.plan import plan_of
from nandcosim.sweep.provenance import host
from nandcosim.sweep.store import SweepStore
from nandcosim.sweep.worker import simulate_chunk, simulate_chunk_isolated, worker_versions

__all__ = ["Run"]

log = logging.getLogger(__name__)

#: Tasks in flight for every worker: one that runs and one that waits.
TASKS_PER_WORKER = 2

#: Times a task in isolation may lose its worker (not its own child) before we give up.
MAX_ISOLATED_ATTEMPTS = 5

#: Workers that may be refused before we give up.
MAX_REFUSED = 100

#: Seconds between two looks whether the scheduler is still there.
WATCH_INTERVAL = 1.0

#: Seconds between two writes of the run's record.
HEARTBEAT = 10.0

Task = Callable[[Job], ChunkResult | Refusal]


class Run:
    """Runs what a store lacks.

    Parameters
    ----------
    store : SweepStore
        Locked by the caller.
    circuit : Circuit
    backend : {"shared", "process"}
    time_limit : float
        Seconds a sample may take.
    retry_failed : bool
    report : callable
        Is given a `Progress` after every task.
    refusals : int
        Workers that are refused before any has worked, and the run is given up.
    """

    def __init__(
        self,
        store: SweepStore,
        circuit: Circuit,
        backend: BackendName,
        time_limit: float,
        retry_failed: bool,
        report: ProgressCallback,
        refusals: int = 1,
    ) -> None:
        self.store = store
        self.circuit = circuit
        self.backend = backend
        self.time_limit = time_limit
        self.retry_failed = retry_failed
        self.report = report
        self.refusals = refusals
        self.spec_text = store.spec.canonical_json()
        self.plan = plan_of(store, circuit)
        self.pace = Pace()
        self.attempts: dict[Chunk, int] = {}
        self.refused: set[str] = set()
        self.identity: dict[str, str] = {}
        self.growing = store.spec.planned
        self._count()
        self.before = self.done
        self.start = time.monotonic()
        self.record: dict[str, Any] = {}
        self.recorded = self.start

    def _count(self) -> None:
        """Take stock of the store before a wave."""
        self.codes = self.store.status_codes()
        wanted = self.store.wanted()
        self.total = int(wanted.sum())
        again = self.codes != Status.OK if self.retry_failed else self.codes == Status.NOT_RUN
        failed = (self.codes != Status.OK) & ~again
        if self.store.spec.planned:
            asked = np.arange(self.store.spec.samples) < wanted[:, np.newaxis]
            again, failed = again & asked, failed & asked
        self.left = int(np.count_nonzero(again))
        self.done = self.total - self.left
        self.failed = int(np.count_nonzero(failed))

    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(
            self.done,
            self.total,
            self.failed,
            elapsed=time.monotonic() - self.start,
            before=self.before,
            growing=self.growing,
        )

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to run; the plan has its say."""
        while self.left == 0:
            if not self.plan.advance():
                self.growing = False
                return True
            self._next_wave()
        return False

    def _next_wave(self) -> None:
        self.retry_failed = False  # once is enough
        self._count()

    # -- execution

    def execute(self, client: Client, max_chunks: int | None = None) -> None:
        """Run what is left on the workers of `client`, wave after wave."""
        self._begin(client)
        budget = iter(range(max_chunks)) if max_chunks is not None else None
        try:
            while not self.is_complete:
                before = self.done
                self._wave(client, budget)
                if budget is not None and self.left > 0:
                    return
                assert self.done > before
            if self.store.spec.planned:  # only now is this the end
                self.report(self.progress())
        except KeyboardInterrupt:
            _say_interrupted(self.progress(), self.store.path)
            raise
        finally:
            self.record["finished"] = _now()
            self._heartbeat()

    def _wave(self, client: Client, budget: Iterator[int] | None) -> None:
        """Run every missing sample that the store wants at present."""
        in_flight: dict[Future[Any], tuple[Task, Chunk]] = {}
        completed: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        untaken = self.left
        workers = 1

        def length() -> int:
            return self.pace.length(untaken, workers)

        chunks = self.store.pending(self.codes, self.retry_failed, length)
        if budget is not None:
            chunks = (chunk for chunk, _ in zip(chunks, budget, strict=False))

        def submit(task: Task, chunk: Chunk) -> None:
            scores = self.plan.scores(chunk.point, chunk.samples)
            job = Job(self.spec_text, chunk, self.backend, self.time_limit, self.identity, scores)
            future = client.submit(task, job, pure=False)
            in_flight[future] = task, chunk
            future.add_done_callback(completed.put)

        def refill() -> None:
            nonlocal untaken, workers
            workers = max(1, len(_workers(client)))
            for chunk in islice(chunks, max(0, TASKS_PER_WORKER * workers - len(in_flight))):
                untaken -= len(chunk.samples)
                submit(simulate_chunk, chunk)

        try:
            refill()
            while in_flight:
                future = _next(completed, client)
                task, chunk = in_flight.pop(future)
                result = self._result(future, chunk)
                if result is None:
                    submit(simulate_chunk_isolated, chunk)
                elif isinstance(result, Refusal):
                    self._refuse(client, result)
                    submit(task, chunk)
                else:
                    self._write(chunk, result)
                refill()
        finally:
            if client.status == "running":
                with contextlib.suppress(Exception):
                    client.cancel(list(in_flight))

    def _begin(self, client: Client) -> None:
        """Ask a worker for its versions, which also shows that it can work at all."""
        self.identity = expected_identity(self.store.spec, self.circuit)
        earlier = self.store.attributes["runs"]
        if earlier:  # what the first run used is the plan's
            self.identity["ngspice"] = earlier[0]["versions"]["ngspice"]
        found = self._versions(client)
        self.identity.setdefault("ngspice", found["ngspice"])
        self.start = self.recorded = time.monotonic()  # the rate is that of the samples
        self.record = {
            "id": uuid.uuid4().hex,
            "started": _now(),
            "finished": None,
            "samples": 0,
            "seconds": 0.0,
            "backend": self.backend,
            "time_limit": self.time_limit,
            "options": dict(OPTIONS),
            "versions": found,
            "host": host(),
        }
        self._heartbeat()
        self.report(self.progress())

    def _versions(self, client: Client) -> dict[str, str]:
        while True:
            future = client.submit(
                worker_versions, self.spec_text, self.backend, self.identity, pure=False
            )
            try:
                found = future.result()
            except Exception as error:
                raise SimulationError(
                    f"the workers cannot simulate: {type(error).__name__}: {error}"
                ) from error
            future.release()  # or closing its worker would have to move it
            if not isinstance(found, Refusal):
                return dict(found)
            self._refuse(client, found)

    def _refuse(self, client: Client, refusal: Refusal) -> None:
        """Close a worker that must not take part; give up if there is no other."""
        is_news = refusal.worker not in self.refused
        if is_news:
            self.refused.add(refusal.worker)
            log.warning("refused worker %s on %s: %s", refusal.worker, refusal.host, refusal.reason)
        with contextlib.suppress(Exception):
            client.retire_workers([refusal.worker], close_workers=True)
        if not is_news:
            return
        alone = not set(_workers(client)) - self.refused and self.done == self.before
        if len(self.refused) >= (self.refusals if alone else MAX_REFUSED):
            raise SimulationError(f"no worker can take part: {refusal.reason}")

    def _result(self, future: Future[Any], chunk: Chunk) -> ChunkResult | Refusal | None:
        """What the worker returned; None if it died, so that the chunk goes into isolation."""
        try:
            result: ChunkResult | Refusal = future.result()
            future.release()
            return result
        except KilledWorker:
            self._count_death(chunk)
            return None
        except MissingExtraError:
            raise
        except CancelledError as error:
            raise _scheduler_lost() from error
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
        self.pace.record(len(chunk.samples), result.seconds)
        self._tell(chunk, result)
        self.attempts.pop(chunk, None)
        self.left -= len(chunk.samples)
        self.done += len(chunk.samples)
        self.failed += int((result.status != Status.OK).sum())
        if time.monotonic() - self.recorded > HEARTBEAT:
            self._heartbeat()
        self.report(self.progress())

    def _tell(self, chunk: Chunk, result: ChunkResult) -> None:
        """What a person should know of a result at once."""
        if result.engine is not None and (result.engine == EngineUsed.FALLBACK).any():
            log.warning(
                "grid point %d, samples %d to %d: the fast engine disagrees with ngspice, "
                "which ran %d of them",
                chunk.point,
                chunk.start,
                chunk.stop - 1,
                int((result.engine != EngineUsed.FAST).sum()),
            )
        for place in np.flatnonzero(result.status == Status.CRASHED):
            number = chunk.point * self.store.spec.samples + chunk.samples[place]
            log.warning(
                "sample %d is set aside: %s; it alone: nandcosim reproduce-sample %s %d",
                number,
                result.reason[place],
                self.store.path,
                number,
            )

    def _heartbeat(self) -> None:
        self.recorded = time.monotonic()
        self.record["samples"] = self.done - self.before
        self.record["seconds"] = round(self.recorded - self.start, 3)
        with contextlib.suppress(NandcosimError, OSError):  # a full disk has been reported
            self.store.record_run(self.record)


def _next(completed: queue.SimpleQueue[Future[Any]], client: Client) -> Future[Any]:
    """The next future that is done, as long as there is a scheduler."""
    while True:
        try:
            return completed.get(timeout=WATCH_INTERVAL)
        except queue.Empty:
            if client.status != "running":
                raise _scheduler_lost() from None


def _workers(client: Client) -> list[str]:
    """Addresses of the workers there are."""
    try:
        return list(client.nthreads())
    except Exception as error:
        raise _scheduler_lost() from error


def _scheduler_lost() -> SimulationError:
    return SimulationError(
        "the scheduler is gone; what was written is kept, and the same command continues it"
    )


def _say_interrupted(progress: Progress, path: Path) -> None:
    log.warning(
        "interrupted: %d of %d samples are in %s; the same command continues",
        progress.done,
        progress.total,
        path,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
