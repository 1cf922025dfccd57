"""Processes that run ngspice: libngspice keeps its state in global variables."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName, Engine, Outcome
from nandcosim.spice.status import Status

__all__ = ["run_tasks", "sampled"]

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class _Simulation(Protocol):
    @property
    def backend(self) -> BackendName: ...
    @property
    def time_limit(self) -> float: ...


def sampled(
    engine: Engine,
    task: _Simulation,
    circuit: Circuit,
    params: Any,
    knobs: Mapping[str, np.ndarray],
    wanted: frozenset[str],
) -> Outcome:
    """Simulate one sample; one that kills the library is run again in a process of its own."""
    outcome = engine.sample(circuit, params, knobs, wanted)
    if outcome.status is Status.CRASHED and task.backend == "shared":
        # a library that no longer answers refuses every later run of its process
        outcome = Engine("process", task.time_limit).sample(circuit, params, knobs, wanted)
    return outcome


def run_tasks(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], workers: int | None = None
) -> Iterator[tuple[int, _Result]]:
    """Run tasks in processes of one thread each; yields their numbers and results as they end.

    Where libngspice kills its process, every task that is not finished is run again with
    the backend ``process``, in which a crash is the status of one sample.

    Parameters
    ----------
    function : callable
        Importable by a fresh process.
    tasks : sequence of dataclasses
        With a field ``backend``.
    workers : int, optional
        Default: one a core. 1 runs in this process.
    """
    if workers == 1:
        for number, task in enumerate(tasks):
            yield number, function(task)
        return
    finished: set[int] = set()
    with suppress(BrokenProcessPool):
        for number, result in _in_pool(function, dict(enumerate(tasks)), workers):
            finished.add(number)
            yield number, result
    rest: dict[int, Any] = {
        number: replace(task, backend="process")  # type: ignore[type-var]
        for number, task in enumerate(tasks)
        if number not in finished
    }
    if rest:
        yield from _in_pool(function, rest, workers)


def _in_pool(
    function: Callable[[_Task], _Result], tasks: dict[int, _Task], workers: int | None
) -> Iterator[tuple[int, _Result]]:
    count = min(workers or os.cpu_count() or 1, max(1, len(tasks)))
    # spawn: a fork would copy threads' locks in whatever state they are
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_one_thread) as pool:
        futures: dict[Future[_Result], int] = {
            pool.submit(function, task): number for number, task in tasks.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    from nandcosim.sweep.worker import THREAD_LIMITS

    os.environ.update(THREAD_LIMITS)
