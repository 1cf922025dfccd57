"""One sample of a sweep, simulated in this process.

One engine a process, made when the first sample needs it and never sent anywhere:
libngspice keeps its state in global variables.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pydantic import ValidationError

from nandcosim.errors import MissingExtraError
from nandcosim.spice.circuit import Circuit, Params
from nandcosim.spice.engine import BackendName, Engine
from nandcosim.spice.fast import FastModel
from nandcosim.spice.installation import NgspiceNotFoundError
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import ChunkResult, Job
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.sampling import draw, realise
from nandcosim.sweep.spec import SweepSpec

__all__ = ["SampleResult", "collect", "drawn", "fast_model", "parsed", "simulate_sample"]


@dataclass(frozen=True)
class SampleResult:
    """Outcome of one sample; `responses` may be empty when it failed."""

    status: Status
    reason: str
    responses: dict[str, float]

    def was_tried(self, backend: str) -> bool:
        """False if the library of this process was dead already and refused the sample.

        A ``shared`` backend can report a crash of its own process in no other case.
        """
        return not (backend == "shared" and self.status is Status.CRASHED)


_engines: dict[tuple[str, float], Engine] = {}
_fast: dict[tuple[type[Circuit], Params], FastModel | None] = {}


def simulate_sample(spec: SweepSpec, circuit: Circuit, job: Job, k: int) -> SampleResult:
    """Run one sample; whatever goes wrong in it becomes its status and reason."""
    try:
        params, knobs = drawn(job, k)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"])) or "parameters"
        text = f"drawn {name} = {first['input']!r}: {first['msg']}"
        return SampleResult(Status.DECK_ERROR, text, {})
    engine = _engine(job.backend, job.time_limit)
    try:
        outcome = engine.sample(circuit, params, knobs, frozenset(spec.responses))
    except (NgspiceNotFoundError, MissingExtraError):  # concerns every sample
        raise
    except Exception as error:  # noqa: BLE001 - user code must not lose its chunk
        _close_engine()
        return SampleResult(_status_of(error), _describe(error), {})
    return SampleResult(outcome.status, outcome.reason, outcome.responses)


def drawn(job: Job, k: int) -> tuple[Params, dict[str, np.ndarray]]:
    """Parameters and knobs of a sample of a job; see `nandcosim.sweep.sampling.draw`."""
    spec, circuit = parsed(job.spec)
    scores = job.scores_of(k)
    if scores is None:
        return draw(spec, circuit, job.chunk.point, k)
    return realise(spec, circuit, job.chunk.point, scores)


def fast_model(circuit: Circuit, params: Params, job: Job) -> FastModel | None:
    """The circuit's fast model at `params`; ngspice measures what is not in the cache."""
    key = (type(circuit), params)
    if key not in _fast:
        model = _engine(job.backend, job.time_limit).fast(circuit, params)
        _fast.clear()  # the samples of a chunk share it, the next chunk's may too
        _fast[key] = model
    return _fast[key]


def collect(spec: SweepSpec, results: list[SampleResult]) -> ChunkResult:
    """Put the outcomes of single samples into arrays; absent responses are NaN."""
    nan = float("nan")
    return ChunkResult(
        status=np.array([each.status for each in results], dtype=np.int8),
        reason=[each.reason for each in results],
        responses={
            name: np.array([each.responses.get(name, nan) for each in results], dtype=np.float64)
            for name in spec.responses
        },
    )


@lru_cache(maxsize=4)
def parsed(text: str) -> tuple[SweepSpec, Circuit]:
    """Spec and circuit of a job, cached: every chunk of a sweep brings the same text."""
    spec = SweepSpec.model_validate_json(text)
    return spec, load_circuit(spec.circuit)


def _engine(backend: BackendName, time_limit: float) -> Engine:
    key = (backend, time_limit)
    if key not in _engines:
        _close_engine()  # at most one libngspice in a process
        _engines[key] = Engine(backend=backend, time_limit=time_limit)
    return _engines[key]


def _close_engine() -> None:
    while _engines:
        _engines.popitem()[1].close()


def _status_of(error: Exception) -> Status:
    """Building the deck failed, or measuring a run that succeeded."""
    names = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    return Status.UNDEFINED_RESPONSE if "measure" in names else Status.DECK_ERROR


def _describe(error: Exception) -> str:
    """The exception and where in the circuit's code it arose, on one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return f"{type(error).__name__}: {error} ({place})".replace("\n", " ")
