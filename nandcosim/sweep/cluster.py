"""Workers from the job queue of a cluster (SLURM, PBS, LSF), through dask-jobqueue.

The scheduler runs in the process of the sweep, on a login node; each job is one or more
workers that connect to it over TLS. Certificates are made for the run, and only the user's
own processes can read them. Jobs are asked for while every worker has work, given back
when workers stay idle, and replaced when the queue ends them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dask
from dask.utils import parse_bytes
from distributed import Client, Security
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
from nandcosim.sweep.jobs import JobKeeper, ReportingJob, one_line
from nandcosim.sweep.worker import THREAD_LIMITS
from nandcosim.toml import read_toml
from nandcosim.wording import first_mistake, unknown_key

__all__ = ["ClusterSettings", "dashboard_link", "load_settings", "queue_client"]

log = logging.getLogger(__name__)

#: Bytes of a job; a worker takes more than this itself.
LEAST_MEMORY = 100_000_000

#: Seconds that workers must be idle before their job is given back.
IDLE_LIMIT = 60

#: Seconds without a scheduler after which a worker ends, and its job with it.
DEATH_TIMEOUT = 60

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
            number = parse_bytes(text)
        except ValueError:
            raise ValueError("expected a number and a unit, such as '8 GB'") from None
        if number < LEAST_MEMORY:
            raise ValueError("expected at least 100 MB")
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
    document = read_toml(path)
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
        If the queue refuses the jobs, or they end before a worker works.
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
            Adaptive=partial(
                JobKeeper,
                list_jobs=QUEUES[settings.queue].list_jobs,
                logs=settings.logs,
                client=client,
            ),
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
    prefix = f"tls-{socket.gethostname()}-"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(parent, prefix)
        folder = tempfile.TemporaryDirectory(
            prefix=f"{prefix}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True
        )
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


def _remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove the keys of runs of this machine that were killed."""
    for folder in parent.glob(f"{prefix}*"):
        process = folder.name.removeprefix(prefix).partition("-")[0]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _cluster_class(queue: str) -> Any:
    """Class of dask-jobqueue for `queue`."""
    for package in ("dask_jobqueue", "cryptography"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("a cluster's queue", package.replace("_", "-"), "cluster")
    before = signal.getsignal(signal.SIGINT)
    module = importlib.import_module("dask_jobqueue")
    if threading.current_thread() is threading.main_thread():
        # Importing it makes Ctrl-C an exit like any other, and the sweep would seem done.
        signal.signal(signal.SIGINT, before)
    return getattr(module, QUEUES[queue].cluster)


@contextlib.contextmanager
def _cluster(cluster_class: Any, settings: ClusterSettings, security: Security) -> Iterator[Any]:
    try:
        settings.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"logs: {settings.logs}: cannot be written: {error.strerror}") from None
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
        raise InputError(f"the scheduler cannot start: {one_line(str(error))}") from error
    with cluster:
        yield cluster


def _job_of_worker(worker: Any) -> str:
    """Name of the job of a scheduler's worker, where jobs have several."""
    return str(worker.name).rpartition("-")[0]
