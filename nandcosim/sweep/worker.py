"""What a Dask worker does: run a chunk and return its arrays.

Workers only compute; the process that runs the sweep writes the store. So workers
need no file system in common with it, and a worker that was thought dead and is not
can damage nothing.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

from distributed import Worker, WorkerPlugin

from nandcosim.spice.engine import BackendName
from nandcosim.sweep.audited import run_chunk
from nandcosim.sweep.chunk import ChunkResult, Job
from nandcosim.sweep.isolated import simulate_isolated
from nandcosim.sweep.provenance import versions
from nandcosim.sweep.simulation import SampleResult, parsed, simulate_sample

__all__ = [
    "THREAD_LIMITS",
    "IgnoreInterrupt",
    "simulate_chunk",
    "simulate_chunk_isolated",
    "worker_versions",
]

#: Environment of our workers: one thread each, whatever library asks for more.
#: OMP_THREAD_LIMIT holds even for ngspice, which overrides OMP_NUM_THREADS.
THREAD_LIMITS = {
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

# Workers should have one thread. Where a foreign cluster has more they take turns,
# so that a chunk's samples follow each other on the deck that is loaded.
_turn = threading.Lock()
_library_is_dead = threading.Event()


def simulate_chunk(job: Job) -> ChunkResult:
    """Run the samples of a chunk in this process."""
    with _turn:
        return run_chunk(job, _simulate_here)


def _simulate_here(job: Job) -> list[SampleResult]:
    """Run samples with ngspice in this process.

    A library that no longer answers (native code that ignores its time limit) cannot
    be replaced within a process: from then on the samples run in child processes.
    """
    spec, circuit = parsed(job.spec)
    results: list[SampleResult] = []
    for k in job.chunk.samples:
        if _library_is_dead.is_set():
            break
        result = simulate_sample(spec, circuit, job, k)
        if not result.was_tried(job.backend):
            _library_is_dead.set()
            break
        results.append(result)
    rest = job.chunk.samples[len(results) :]
    if rest:
        results += simulate_isolated(replace(job, chunk=replace(job.chunk, samples=rest)))
    return results


def simulate_chunk_isolated(job: Job) -> ChunkResult:
    """Run the samples of a chunk in child processes; a death costs one sample."""
    return run_chunk(job, simulate_isolated)


def worker_versions(backend: BackendName) -> dict[str, str]:
    """Versions on the worker, of the ngspice that `backend` uses."""
    found = versions()
    if backend == "shared":
        from nandcosim.spice.shared import SharedBackend

        found["ngspice"] = SharedBackend.version()
    return found


class IgnoreInterrupt(WorkerPlugin):
    """Leaves Ctrl-C to the process that runs the sweep."""

    name = "nandcosim-ignore-interrupt"

    def setup(self, worker: Worker) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
