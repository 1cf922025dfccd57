"""What a Dask worker does: run a chunk and return its arrays.

Workers only compute; the process that runs the sweep writes the store. So workers
need no file system in common with it, and a worker that was thought dead and is not
can damage nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

from distributed import get_worker

from nandcosim.spice.engine import BackendName
from nandcosim.sweep.audited import Simulate, run_chunk
from nandcosim.sweep.chunk import ChunkResult, Job, Refusal
from nandcosim.sweep.identity import difference
from nandcosim.sweep.isolated import simulate_isolated
from nandcosim.sweep.provenance import versions
from nandcosim.sweep.simulation import SampleResult, parsed, simulate_sample
from nandcosim.sweep.watch import watched

__all__ = [
    "THREAD_LIMITS",
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


def simulate_chunk(job: Job) -> ChunkResult | Refusal:
    """Run the samples of a chunk in this process."""
    return _simulate(job, _simulate_here)


def simulate_chunk_isolated(job: Job) -> ChunkResult | Refusal:
    """Run the samples of a chunk in child processes; a death costs one sample."""
    return _simulate(job, simulate_isolated)


def _simulate(job: Job, how: Simulate) -> ChunkResult | Refusal:
    with _turn:
        refusal = _refusal(job.spec, job.backend, job.identity)
        if refusal is not None:
            return refusal
        start = time.perf_counter()
        result = run_chunk(job, how)
        return replace(result, seconds=time.perf_counter() - start)


def _refusal(spec_text: str, backend: BackendName, identity: dict[str, str]) -> Refusal | None:
    """A refusal if this process is not what the sweep was planned for."""
    reason = difference(identity, spec_text, backend)
    if not reason:
        return None
    return Refusal(get_worker().address, socket.gethostname(), reason)


def _simulate_here(job: Job) -> list[SampleResult]:
    """Run samples with ngspice in this process.

    A library that no longer answers (native code that ignores its time limit) cannot
    be replaced within a process: from then on the samples run in child processes.
    """
    spec, circuit = parsed(job.spec)
    results: list[SampleResult] = []
    with watched(job.time_limit) as watch:
        for k in job.chunk.samples:
            if _library_is_dead.is_set():
                break
            watch.restart()
            result = simulate_sample(spec, circuit, job, k)
            if not result.was_tried(job.backend):
                _library_is_dead.set()
                break
            results.append(result)
    rest = job.chunk.samples[len(results) :]
    if rest:
        results += simulate_isolated(job.only(rest))
    return results


def worker_versions(
    spec_text: str, backend: BackendName, identity: dict[str, str]
) -> dict[str, str] | Refusal:
    """Versions on the worker, of the ngspice that `backend` uses; or its refusal."""
    refusal = _refusal(spec_text, backend, identity)
    if refusal is not None:
        return refusal
    found = versions()
    if backend == "shared":
        from nandcosim.spice.shared import SharedBackend

        found["ngspice"] = SharedBackend.version()
    return found
