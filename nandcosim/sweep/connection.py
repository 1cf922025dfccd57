"""The workers of a sweep: a client given, a scheduler's address, a job queue, or this machine."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from os import PathLike

import dask
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster

from nandcosim.errors import InputError
from nandcosim.sweep.worker import THREAD_LIMITS

__all__ = ["LIGHT", "check_address", "connected"]

#: Watches that distributed keeps for its dashboard, which a local cluster does not show:
#: 2 % of a core a worker.
LIGHT = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}


def check_address(scheduler: str) -> None:
    """Refuse what is no address: a client of distributed that can't make sense of it never ends.

    Raises
    ------
    InputError
    """
    if not re.fullmatch(r"(?:(?:tcp|tls|ws|wss)://)?[^/:]+:\d+", scheduler):
        raise InputError(f"scheduler: found {scheduler!r}, expected one such as tcp://host:8786")


@contextlib.contextmanager
def connected(
    *,
    client: Client | None,
    scheduler: str | None,
    cluster: str | PathLike[str] | None,
    workers: int | None,
    most: int,
) -> Iterator[Client]:
    """A client of the workers asked for, closed again if it was made here.

    Parameters
    ----------
    client : Client, optional
        Used as it is.
    scheduler : str, optional
        Address of a scheduler.
    cluster : path, optional
        Settings of a job queue; see `nandcosim.sweep.cluster`.
    workers : int, optional
        Processes of a local cluster; default: one a core.
    most : int
        More local workers than this would have nothing to do.

    Raises
    ------
    InputError
        If the scheduler cannot be reached or the settings are wrong.
    """
    if client is not None:
        yield client
    elif scheduler is not None:
        with _scheduler(scheduler) as found:
            yield found
    elif cluster is not None:
        from nandcosim.sweep.cluster import queue_client

        with queue_client(cluster) as found:
            yield found
    else:
        with _local(min(workers or CPU_COUNT, most)) as found:
            yield found


@contextlib.contextmanager
def _scheduler(address: str) -> Iterator[Client]:
    with _quiet():
        try:
            found = Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"scheduler {address}: cannot be reached: {error}") from None
        with found:
            yield found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """If the scheduler is lost, one line of ours says so; what Dask says comes even later."""
    talkers = ("distributed", "tornado", "asyncio")
    known = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in talkers]
    loggers = [logging.getLogger(name) for name in {*talkers, *known}]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@contextlib.contextmanager
def _local(count: int) -> Iterator[Client]:
    environment = dask.config.get("distributed.nanny.pre-spawn-environ", {}) | THREAD_LIMITS
    with contextlib.ExitStack() as stack:
        settings = {"distributed.nanny.pre-spawn-environ": environment, **LIGHT}
        stack.enter_context(dask.config.set(settings))
        with _interrupts_held():  # by the threads and processes that start, for good
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address=None,
                    memory_limit=0,
                    env=THREAD_LIMITS,
                    # The first death is news (allowed_failures): the chunk then goes into
                    # isolation at once instead of killing more workers.
                    # No dashboard does not mean no HTTP server: give it a free port of the
                    # loopback interface, since the default one may be taken.
                    scheduler_kwargs={
                        "allowed_failures": 0,
                        "dashboard": False,
                        "dashboard_address": "127.0.0.1:0",
                    },
                    silence_logs=logging.CRITICAL,
                )
            )
        yield stack.enter_context(Client(cluster, set_as_default=False))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal, and is for the one that runs the sweep."""
    resource_tracker.ensure_running()  # started later, it would let them through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
