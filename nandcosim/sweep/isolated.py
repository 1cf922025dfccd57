"""Run a chunk whose samples may kill their process, in child processes of its own.

The child announces every sample before it starts it and reports it when it is done. If
the child dies, the announced sample is the culprit: it is recorded as ``crashed``, and
a new child goes on with the next one. (A Dask worker is a daemon, which may not have
children through ``multiprocessing``, but may through ``subprocess``.)
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import IO, Any

import numpy as np

from nandcosim.errors import SimulationError
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import Chunk, Job
from nandcosim.sweep.simulation import SampleResult, parsed, simulate_sample
from nandcosim.sweep.watch import patience

__all__ = ["death", "document_of", "job_of", "simulate_isolated"]

#: Seconds a child may take to start; imports on a busy network file system are slow.
START_LIMIT = 600.0


def simulate_isolated(job: Job) -> list[SampleResult]:
    """Run the samples of a chunk in child processes; a death costs the sample that caused it.

    Returns
    -------
    list of SampleResult
        In the order of ``job.chunk.samples``.

    Raises
    ------
    SimulationError
        If the child dies before its first sample, or reports an error that concerns
        every sample.
    """
    remaining = list(job.chunk.samples)
    results: dict[int, SampleResult] = {}
    while remaining:
        results.update(_run_child(job.only(tuple(remaining))))
        remaining = [k for k in remaining if k not in results]
    return [results[k] for k in job.chunk.samples]


def _run_child(job: Job) -> dict[int, SampleResult]:
    """Run one child to its end or death; at least one sample is in the answer."""
    results: dict[int, SampleResult] = {}
    current: int | None = None
    hung = False
    wait = START_LIMIT
    with tempfile.TemporaryFile() as noise, _child(noise) as child:
        messages = _messages(child, job)
        while True:
            try:
                message = messages.get(timeout=wait)
            except queue.Empty:
                hung = True
                child.kill()
                break
            if message is None:
                break
            wait = patience(job.time_limit)
            if "error" in message:
                raise SimulationError(message["error"])
            if "start" in message:
                current = message["start"]
            elif "refused" in message:
                current = None
            else:
                k = message["sample"]
                results[k] = SampleResult(
                    Status(message["status"]),
                    message["reason"],
                    {name: float.fromhex(text) for name, text in message["responses"].items()},
                )
                current = None
        code = child.wait()
        if current is not None:
            results[current] = death(code, hung, job.time_limit)
        if not results:
            raise SimulationError(
                "the process for isolated samples ended before its first one: "
                f"{_how(code)}{_last_line(noise)}"
            )
    return results


def death(code: int, hung: bool, time_limit: float) -> SampleResult:
    """The outcome of a sample whose process ended with `code`, or had to be ended."""
    if hung:
        grace = patience(time_limit) - time_limit
        reason = f"did not return {grace:g} s after its time limit of {time_limit:g} s; killed"
        return SampleResult(Status.TIMEOUT, reason, {})
    return SampleResult(Status.CRASHED, f"the simulator process died: {_how(code)}", {})


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"
    return f"exit code {code}"


def _last_line(noise: IO[bytes]) -> str:
    noise.seek(0)
    lines = noise.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


@contextlib.contextmanager
def _child(noise: IO[bytes]) -> Iterator[subprocess.Popen[str]]:
    # What this process can import, the child must be able to import too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=noise,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the sweep, not for a sample
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _messages(child: subprocess.Popen[str], job: Job) -> queue.Queue[dict[str, Any] | None]:
    """Send the job and read the child's messages on a thread; None marks the end."""
    found: queue.Queue[dict[str, Any] | None] = queue.Queue()
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    def read() -> None:
        for line in stdout:
            # A child that dies while writing leaves half a line.
            with contextlib.suppress(json.JSONDecodeError):
                found.put(json.loads(line))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        json.dump(document_of(job), stdin)
        stdin.close()
    return found


def document_of(job: Job) -> dict[str, Any]:
    """The job as JSON has it; Python writes floats so that they come back exactly."""
    scores = None if job.scores is None else job.scores.tolist()
    return {**asdict(replace(job, scores=None)), "scores": scores}


def job_of(document: dict[str, Any]) -> Job:
    """The inverse of `document_of`."""
    chunk = Chunk(**{**document["chunk"], "samples": tuple(document["chunk"]["samples"])})
    scores = None if document["scores"] is None else np.array(document["scores"])
    return Job(**{**document, "chunk": chunk, "scores": scores})


# -------------------------------------------------------------- the child


def main() -> None:
    """Read a job from standard input, run it, report on standard output."""
    # ngspice and user code may print; messages go where nobody else writes.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = job_of(json.load(sys.stdin))

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=report, flush=True)

    try:
        spec, circuit = parsed(job.spec)
        for k in job.chunk.samples:
            tell(start=k)
            result = simulate_sample(spec, circuit, job, k)
            if k != job.chunk.samples[0] and not result.was_tried(job.backend):
                # An earlier sample left the library dead; a new child takes this one.
                tell(refused=k)
                return
            # Hexadecimal: exact, and NaN and infinities are not JSON.
            responses = {name: float(v).hex() for name, v in result.responses.items()}
            tell(sample=k, status=int(result.status), reason=result.reason, responses=responses)
    except Exception as error:  # noqa: BLE001 - the parent raises it again
        tell(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
