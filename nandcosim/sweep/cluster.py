"""Workers from the job queue of a cluster (SLURM, PBS, LSF), through dask-jobqueue.

The scheduler runs in the process of the sweep, on a login node; each job is one or more
workers that connect to it over TLS. Certificates are made for the run, and only the user's
own processes can read them. Jobs are asked for while every worker has work, given back
when workers stay idle, and replaced when the queue ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dask
from dask.utils import parse_bytes
from distributed import Client, Security
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from nandcosim.errors import InputError, MissingExtraError, SimulationError
from nandcosim.spice.installation import OSDI_VARIABLE
from nandcosim.spice.measured import cache_folder
from nandcosim.spice.netlists import TRUST_VARIABLE
from nandcosim.sweep.worker import THREAD_LIMITS
from nandcosim.wording import first_mistake, unknown_key

__all__ = ["ClusterSettings", "dashboard_link", "load_settings", "queue_client"]

log = logging.getLogger(__name__)

#: Seconds between two looks at the queue for jobs that have ended.
POLL_INTERVAL = 15.0

#: Seconds that workers must be idle before their job is given back.
IDLE_LIMIT = 60

#: Seconds without a scheduler after which a worker ends, and its job with it.
DEATH_TIMEOUT = 60

#: Failures in a row after which the run stops: before any worker came, and afterwards, when
#: it may be the queue that is down; waits between them double, so ten take an hour and a half.
FEW_FAILURES, MANY_FAILURES = 3, 10

#: Seconds that the longest of these waits takes.
LONGEST_WAIT = 900.0

#: The user's consent, given in the environment, which not every queue hands on to its jobs.
CONSENT = (OSDI_VARIABLE, TRUST_VARIABLE)

#: Of distributed. The first death of a worker is news, so that a sample that crashes is
#: isolated at once instead of killing more workers.
SCHEDULER_CONFIG = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.admin.tick.interval": "1s",
}

#: The same of workers, through the environment. Their HTTP pages speak no TLS: none are served.
WORKER_ENVIRONMENT = {
    **THREAD_LIMITS,
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
}


class Queue(NamedTuple):
    """What differs between queues."""

    cluster: str
    """Class in dask-jobqueue."""
    account: str
    """Its name for the account."""
    submit: str
    """Command that takes a job."""
    list_jobs: str
    """Command that prints the numbers of a user's jobs; the user's name follows."""


QUEUES = {
    "slurm": Queue("SLURMCluster", "account", "sbatch", "squeue --noheader --format=%A --user"),
    "pbs": Queue("PBSCluster", "account", "qsub", "qselect -u"),
    "lsf": Queue("LSFCluster", "project", "bsub", "bjobs -noheader -o jobid -u"),
}


class ClusterSettings(BaseModel):
    """A cluster's TOML file; made by `load_settings`.

    Attributes
    ----------
    queue : {"slurm", "pbs", "lsf"}
    maximum, minimum : int
        Jobs at a time.
    workers : int
        Processes a job, one core each.
    memory : str
        Of a job, e.g. ``"8 GB"``.
    walltime : str
        Of a job, ``"HH:MM:SS"``.
    partition, account : str, optional
        Where jobs are queued and who pays.
    interface : str, optional
        Network interface of scheduler and workers, e.g. ``"ib0"``.
    directives : tuple of str
        More lines for the head of the job script, without ``#SBATCH`` and the like.
    prologue : tuple of str
        Shell lines that run before the workers.
    python : str
        Python of the workers; default: the one that runs.
    logs : Path
        Folder of the jobs' output.
    shared : Path
        Folder that workers can read, for the certificates of the run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue: Literal["slurm", "pbs", "lsf"]
    maximum: int = Field(ge=1)
    minimum: int = Field(default=0, ge=0)
    workers: int = Field(default=1, ge=1)
    memory: StrictStr
    walltime: StrictStr
    partition: StrictStr | None = None
    account: StrictStr | None = None
    interface: StrictStr | None = None
    directives: tuple[StrictStr, ...] = ()
    prologue: tuple[StrictStr, ...] = ()
    python: StrictStr = sys.executable
    logs: Path = Path("nandcosim-jobs")
    shared: Path = Field(default_factory=cache_folder)

    @field_validator("memory")
    @classmethod
    def _is_memory(cls, text: str) -> str:
        try:
            parse_bytes(text)
        except ValueError:
            raise ValueError("expected a number and a unit, such as '8 GB'") from None
        return text

    @field_validator("walltime")
    @classmethod
    def _is_walltime(cls, text: str) -> str:
        if not re.fullmatch(r"\d+:[0-5]\d:[0-5]\d", text) or _seconds(text) < 60:
            raise ValueError("expected HH:MM:SS, at least 00:01:00")
        return text

    @model_validator(mode="after")
    def _ordered(self) -> ClusterSettings:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        return self

    def lifetime(self) -> tuple[int, int]:
        """Seconds after which a worker retires, and half the range over which that is spread.

        Within the walltime, so that tasks end in order and not all workers at a time.
        """
        walltime = _seconds(self.walltime)
        margin = min(walltime // 10, 300)
        return walltime - 2 * margin, margin

    def job_options(self) -> dict[str, Any]:
        """Options of a job for dask-jobqueue."""
        lifetime, stagger = self.lifetime()
        hours, minutes, _ = self.walltime.split(":")
        return {
            "job_name": "nandcosim",
            "cores": self.workers,
            "processes": self.workers,
            "memory": self.memory,
            # LSF knows no seconds.
            "walltime": f"{hours}:{minutes}" if self.queue == "lsf" else self.walltime,
            "queue": self.partition,
            QUEUES[self.queue].account: self.account,
            "interface": self.interface,
            "python": shlex.quote(self.python),
            "log_directory": str(self.logs.absolute()),
            "job_extra_directives": list(self.directives),
            "job_script_prologue": self._prologue(),
            "death_timeout": DEATH_TIMEOUT,
            "worker_extra_args": [
                # The queue sees to memory. A worker that pauses itself would stall the sweep.
                "--memory-limit 0",
                f"--lifetime {lifetime}s --lifetime-stagger {stagger}s",
                "--no-dashboard --dashboard-address 127.0.0.1:0",
            ],
        }

    def _prologue(self) -> list[str]:
        """Consent first, so that the user's own lines may change it, and thread limits last."""
        consent = {name: os.environ[name] for name in CONSENT if name in os.environ}
        return [*_exports(consent), *self.prologue, *_exports(WORKER_ENVIRONMENT)]


def _seconds(walltime: str) -> int:
    hours, minutes, seconds = map(int, walltime.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def _exports(environment: dict[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def load_settings(path: str | PathLike[str]) -> ClusterSettings:
    """Read and check the TOML file of a cluster.

    Raises
    ------
    InputError
        For the first mistake: one line with file, key, what was found, what is allowed.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: invalid TOML: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    for key in document:
        if key not in ClusterSettings.model_fields:
            raise InputError(f"{path}: {key}: {unknown_key(key, ClusterSettings.model_fields)}")
    try:
        return ClusterSettings.model_validate(document)
    except ValidationError as error:
        name, found, message = first_mistake(error)
        if error.errors()[0]["type"] == "missing":
            raise InputError(f"{path}: {name}: is missing") from None
        where = f"{path}: {name}: found {found!r}, " if name else f"{path}: "
        raise InputError(where + message) from None


@contextlib.contextmanager
def queue_client(path: str | PathLike[str]) -> Iterator[Client]:
    """Start a scheduler here and workers as jobs of a queue; end all of them afterwards.

    Parameters
    ----------
    path : path
        TOML file of the cluster; see `ClusterSettings`.

    Raises
    ------
    InputError
        If the file is wrong, or this machine has no such queue.
    MissingExtraError
        If dask-jobqueue or cryptography is not installed.
    SimulationError
        If the queue refuses the jobs, or they end before a worker comes.
    """
    settings = load_settings(path)
    cluster_class = _cluster_class(settings.queue)
    submit = QUEUES[settings.queue].submit
    if shutil.which(submit) is None:
        raise InputError(f"{path}: {submit} was not found: is this a login node of the queue?")
    with (
        _certificates(settings.shared) as security,
        dask.config.set(SCHEDULER_CONFIG),
        _cluster(cluster_class, settings, security) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        keeper = cluster.adapt(
            Adaptive=partial(JobKeeper, settings=settings, client=client),
            minimum_jobs=settings.minimum,
            maximum_jobs=settings.maximum,
            interval="1s",
            wait_count=IDLE_LIMIT,
            worker_key=_job_of_worker if settings.workers > 1 else None,
        )
        log.info("dashboard: %s (on this machine only)", dashboard_link(client))
        try:
            yield client
        except Exception as error:
            if keeper.failure:
                raise SimulationError(keeper.failure) from error
            raise


def dashboard_link(client: Client) -> str:
    """Address of the dashboard of a `queue_client`, on this machine only."""
    cluster: Any = client.cluster
    return f"http://127.0.0.1:{cluster.scheduler.http_server.port}/status"


@contextlib.contextmanager
def _certificates(parent: Path) -> Iterator[Security]:
    """Certificate and key of this run, in a folder that nobody else may enter (mode 0700)."""
    made = Security.temporary()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="tls-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(f"shared: {parent}: cannot be written: {error.strerror}") from None
    with folder as name:
        certificate, key = Path(name, "certificate.pem"), Path(name, "key.pem")
        certificate.write_text(made.tls_client_cert)
        key.write_text(made.tls_client_key)
        roles = ("client", "scheduler", "worker")
        yield Security(
            require_encryption=True,
            tls_ca_file=str(certificate),
            **{f"tls_{role}_cert": str(certificate) for role in roles},
            **{f"tls_{role}_key": str(key) for role in roles},
        )


def _cluster_class(queue: str) -> Any:
    """Class of dask-jobqueue for `queue`."""
    for package in ("dask_jobqueue", "cryptography"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("a cluster's queue", package.replace("_", "-"), "cluster")
    return getattr(importlib.import_module("dask_jobqueue"), QUEUES[queue].cluster)


@contextlib.contextmanager
def _cluster(cluster_class: Any, settings: ClusterSettings, security: Security) -> Iterator[Any]:
    try:
        cluster = cluster_class(
            **settings.job_options(),
            job_cls=type("Job", (ReportingJob, cluster_class.job_cls), {}),
            protocol="tls://",
            security=security,
            # Its pages speak no TLS.
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
        )
    except (OSError, RuntimeError, ValueError) as error:
        # Such as an interface that this machine doesn't have.
        raise InputError(f"the scheduler cannot start: {_one_line(str(error))}") from error
    with cluster:
        yield cluster


def _job_of_worker(worker: Any) -> str:
    """Name of the job of a scheduler's worker, where jobs have several."""
    return str(worker.name).rpartition("-")[0]


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
            self.refusal = f"the queue refused a job: {_one_line(said) or _one_line(str(error))}"
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
        self, cluster: Any, *, settings: ClusterSettings, client: Client, **options: Any
    ) -> None:
        super().__init__(cluster, **options)
        self.settings = settings
        self.client = client
        self.failure = ""
        self._arrived: set[str] = set()
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
        if not connected <= self._arrived:
            self._failures = 0
        self._arrived |= connected
        refused = {name for name, job in jobs.items() if job.refusal}
        absent = jobs.keys() - connected - refused
        ended = await self._ended({name: jobs[name].job_id for name in absent})
        if refused or ended:
            await self.cluster.scale_down(refused | ended)
        for name in ended & self._arrived:
            log.info("job %s has ended", jobs[name].job_id)
        early = ended - self._arrived
        if refused:
            await self._count_failure(jobs[min(refused)].refusal, 1)
        elif early:
            await self._count_failure(self._early_end(jobs[min(early)].job_id), FEW_FAILURES)

    def _is_connected(self, job: str) -> bool:
        suffixes = self.cluster.worker_spec.get(job, {}).get("group", [""])
        return any(job + suffix in self.observed for suffix in suffixes)

    async def _ended(self, numbers: dict[str, str]) -> set[str]:
        """Names of those jobs, name to number, that the queue no longer knows."""
        if not numbers or time.monotonic() < self._next_look:
            return set()
        self._next_look = time.monotonic() + POLL_INTERVAL
        known = await asyncio.to_thread(_job_numbers, self.settings.queue)
        if known is None:
            return set()
        return {name for name, number in numbers.items() if number not in known}

    def _early_end(self, number: str) -> str:
        folder = self.settings.logs.absolute()
        return f"job {number} ended before a worker came{_last_line(folder, number)} (in {folder})"

    async def _count_failure(self, what: str, limit_at_first: int) -> None:
        """Wait before the next try, longer each time; after too many, stop the run."""
        self._failures += 1
        if self._failures >= (MANY_FAILURES if self._arrived else limit_at_first):
            self.failure = what
            self.stop(reason=what)
            await asyncio.to_thread(self.client.close)
            return
        wait = min(POLL_INTERVAL * 2**self._failures, LONGEST_WAIT)
        self._next_try = time.monotonic() + wait
        log.warning("%s; trying again in %.0f s", what, wait)


def _job_numbers(queue: str) -> set[str] | None:
    """Numbers of this user's jobs in the queue; None if it does not say."""
    command = [*QUEUES[queue].list_jobs.split(), getpass.getuser()]
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


def _one_line(text: str) -> str:
    return " ".join(text.split())
