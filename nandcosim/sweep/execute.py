"""Run a sweep: check what is asked, open the store, find workers, run what is missing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from distributed import Client

from nandcosim.errors import InputError
from nandcosim.progress import ProgressCallback, show_progress
from nandcosim.spice.engine import BACKENDS, BackendName
from nandcosim.sweep.connection import check_address, connected
from nandcosim.sweep.parse import load_spec
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.rehearsal import rehearse
from nandcosim.sweep.run import Run
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore

__all__ = ["run_sweep"]

#: Workers of a job queue that may differ from the plan before any has worked.
FEW_REFUSALS = 3


def run_sweep(
    spec: SweepSpec | str | PathLike[str],
    out: str | PathLike[str],
    *,
    client: Client | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    cluster: str | PathLike[str] | None = None,
    retry_failed: bool = False,
    backend: BackendName = "shared",
    time_limit: float = 60.0,
    chunk: int | None = None,
    progress: bool | ProgressCallback | None = None,
    max_chunks: int | None = None,
) -> SweepStore:
    """Run a sweep, or continue it.

    Without `client`, `scheduler` and `cluster` a local cluster is started: processes on the
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
    cluster : path, optional
        TOML settings of a job queue (SLURM, PBS, LSF), whose jobs are the workers.
    retry_failed : bool
        Also run again the samples that failed.
    backend : {"shared", "process"}
    time_limit : float
        Seconds a sample may take.
    chunk : int, optional
        Samples a chunk of a new store, at most so many a task; an existing store keeps its
        own. Never changes a result.
    progress : bool or callable, optional
        True: a bar on a terminal, plain lines elsewhere; or a function of a `Progress`.
    max_chunks : int, optional
        Stop after so many tasks.

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
    _check_one_of(client=client, workers=workers, scheduler=scheduler, cluster=cluster)
    _check_options(backend, time_limit, workers=workers, chunk=chunk)
    if not isinstance(spec, SweepSpec):
        spec = load_spec(spec)
    circuit = load_circuit(spec.circuit)
    if scheduler is not None:
        check_address(scheduler)
    path = Path(out)
    if path.exists():
        store = SweepStore.open(path, writable=True)
        store.require_same(spec, circuit)
    else:
        rehearse(spec, circuit)
        store = SweepStore.create(path, spec, circuit, chunk)
    if retry_failed and spec.rare is not None:
        raise InputError(
            f"{path}: failed samples of a rare event have decided where later ones lie and "
            "can't be run again; use a new --out"
        )
    with store.locked(), _progress(progress) as report:
        # In place of a job's worker that is refused, the queue may send a better one.
        refusals = 1 if cluster is None else FEW_REFUSALS
        run = Run(store, circuit, backend, time_limit, retry_failed, report, refusals)
        if run.is_complete:
            report(run.progress())
            return store
        with connected(
            client=client, scheduler=scheduler, cluster=cluster, workers=workers, most=run.left
        ) as connection:
            run.execute(connection, max_chunks)
    return store


def _check_one_of(**given: Any) -> None:
    if sum(value is not None for value in given.values()) > 1:
        raise InputError(f"{', '.join(given)} exclude each other; give one of them")


def _check_options(backend: str, time_limit: float, **counts: int | None) -> None:
    if backend not in BACKENDS:
        raise InputError(f"backend: found {backend!r}, allowed: {', '.join(BACKENDS)}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"{name}: found {value}, allowed: at least 1")
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise InputError(f"time_limit: found {time_limit!r} s, allowed: a positive number")


@contextlib.contextmanager
def _progress(progress: bool | ProgressCallback | None) -> Iterator[ProgressCallback]:
    if callable(progress):
        yield progress
    elif progress:
        with show_progress("sweep", "samples") as callback:
            yield callback
    else:
        yield lambda state: None
