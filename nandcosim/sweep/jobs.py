"""Jobs of a queue that are workers: how many there are to be, and what became of them."""

from __future__ import annotations

import asyncio
import getpass
import logging
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive

__all__ = ["JobKeeper", "ReportingJob", "one_line"]

log = logging.getLogger(__name__)

#: Seconds between two looks at the queue for jobs that have ended.
POLL_INTERVAL = 15.0

#: Failures in a row after which the run stops: before any worker came, and afterwards, when
#: it may be the queue that is down; waits between them double, so ten take an hour and a half.
FEW_FAILURES, MANY_FAILURES = 3, 10

#: Seconds that the longest of these waits takes.
LONGEST_WAIT = 900.0


class ReportingJob:
    """Mixed into a job of dask-jobqueue: a refusal is kept, where it would be logged and lost."""

    refusal = ""

    async def start(self) -> None:
        """Submit the job."""
        try:
            await super().start()  # type: ignore[misc]
        except (OSError, RuntimeError, ValueError) as error:
            # dask-jobqueue quotes the command's own words last.
            said = str(error).rpartition("stderr:")[2]
            self.refusal = f"the queue refused a job: {one_line(said) or one_line(str(error))}"
            self.status = Status.failed

    async def close(self) -> None:
        """Cancel the job."""
        await super().close()  # type: ignore[misc]
        self.status = Status.closed


class JobKeeper(Adaptive):
    """Keeps the right number of jobs, replaces those that ended, and says why none comes.

    Attributes
    ----------
    failure : str
        Why there will be no workers, ``""`` as long as there is hope. The client is then
        closed, so that whoever waits for it wakes up.
    """

    cluster: Any  # a JobQueueCluster, which has no types

    def __init__(
        self, cluster: Any, *, list_jobs: str, logs: Path, client: Client, **options: Any
    ) -> None:
        super().__init__(cluster, **options)
        self.list_jobs = list_jobs
        self.logs = logs.absolute()
        self.client = client
        self.failure = ""
        self._arrived: set[str] = set()  # numbers of jobs; names are used again
        self._failures = 0
        self._next_look = self._next_try = time.monotonic()

    async def target(self) -> int:
        """All that is allowed while every worker has work.

        The sweep hands out a few tasks a worker, so their number says nothing about how
        many are left.
        """
        if all(worker.processing for worker in self.cluster.scheduler.workers.values()):
            return int(self.maximum)
        return int(await super().target())  # type: ignore[no-untyped-call]

    async def adapt(self) -> None:
        """One step, every second: drop jobs that ended, then ask for more or give some back."""
        await self._drop_ended()
        if not self.failure and time.monotonic() >= self._next_try:
            await super().adapt()

    async def _drop_ended(self) -> None:
        """Forget jobs that the queue refused or no longer knows; count what came of them."""
        jobs = dict(self.cluster.workers)  # of now: one submitted later may not be listed yet
        connected = {name for name in jobs if self._is_connected(name)}
        numbers = {jobs[name].job_id for name in connected}
        if not numbers <= self._arrived:
            self._failures = 0
        self._arrived |= numbers
        refused = {name for name, job in jobs.items() if job.refusal}
        absent = jobs.keys() - connected - refused
        ended = await self._ended({name: jobs[name].job_id for name in absent})
        if refused or ended:
            await self.cluster.scale_down(refused | ended)
        gone = {jobs[name].job_id for name in ended}
        for number in gone & self._arrived:
            log.info("job %s has ended", number)
        useless = gone - self._arrived
        if refused:
            await self._count_failure(jobs[min(refused)].refusal, 1)
        elif useless:
            await self._count_failure(self._useless(min(useless)), FEW_FAILURES)

    def _is_connected(self, job: str) -> bool:
        suffixes = self.cluster.worker_spec.get(job, {}).get("group", [""])
        return any(job + suffix in self.observed for suffix in suffixes)

    async def _ended(self, numbers: dict[str, str]) -> set[str]:
        """Names of those jobs, name to number, that the queue no longer knows."""
        if not numbers or time.monotonic() < self._next_look:
            return set()
        self._next_look = time.monotonic() + POLL_INTERVAL
        known = await asyncio.to_thread(_job_numbers, self.list_jobs)
        if known is None:
            return set()
        return {name for name, number in numbers.items() if number not in known}

    def _useless(self, number: str) -> str:
        said = _last_line(self.logs, number)
        return f"job {number} ended before a worker worked{said} (in {self.logs})"

    async def _count_failure(self, what: str, limit_at_first: int) -> None:
        """Wait before the next try, longer each time; after too many, stop the run."""
        self._failures += 1
        limit = MANY_FAILURES if self._arrived else limit_at_first
        if self._failures >= limit and not self.observed:
            self.failure = what
            self.stop(reason=what)
            await asyncio.to_thread(self.client.close)
            return
        wait = min(POLL_INTERVAL * 2**self._failures, LONGEST_WAIT)
        self._next_try = time.monotonic() + wait
        log.warning("%s; trying again in %.0f s", what, wait)


def _job_numbers(list_jobs: str) -> set[str] | None:
    """Numbers of this user's jobs in the queue; None if it does not say."""
    command = [*list_jobs.split(), getpass.getuser()]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # LSF calls an empty queue an error.
    if answer.returncode != 0 and "No unfinished job" not in answer.stderr:
        return None
    return set(re.findall(r"^\s*(\d+)", answer.stdout, re.MULTILINE))


def _last_line(folder: Path, number: str) -> str:
    """Last line of a job's output, as the end of a sentence."""
    for path in sorted(folder.glob(f"*{number}*")):
        lines = path.read_text(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        if said:
            return f": {said[-1]}"
    return ""


def one_line(text: str) -> str:
    """Text without its line ends."""
    return " ".join(text.split())
