"""A real SLURM of one node, in a folder: munged, slurmctld and slurmd, started and stopped."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Slurm", "missing", "slurm"]

#: Debian keeps daemons where a user's PATH does not look.
PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"

COMMANDS = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")

#: Seconds a daemon may take to start. Nothing depends on it but how long a failure takes.
PATIENCE = 60.0

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running queue.

    Attributes
    ----------
    folder : Path
        Configuration, keys, logs and state.
    environment : dict of str to str
        What its commands need beside the usual: ``PATH`` and ``SLURM_CONF``.
    """

    folder: Path
    environment: dict[str, str]

    def jobs(self, states: str = "all") -> list[str]:
        """Numbers of the jobs in one of `states`, as ``squeue`` names them."""
        listed = self.run("squeue", "--noheader", "--format=%A", f"--states={states}")
        return listed.split()

    def unfinished(self) -> list[str]:
        """Numbers of the jobs that wait, run or are being ended."""
        return self.jobs("pending,configuring,running,completing,suspended")

    def run(self, *command: str) -> str:
        """Standard output of one of SLURM's commands."""
        return _run(command, self.environment)


def missing() -> str:
    """Commands that are not installed, ``""`` if all are."""
    return ", ".join(name for name in COMMANDS if shutil.which(name, path=PATH) is None)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start a queue in `folder`, which must be empty; stop its jobs and daemons at the end."""
    host = socket.gethostname().partition(".")[0]
    controller_port, daemon_port = _free_ports(2)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=host,
            user=pwd.getpwuid(os.getuid()).pw_name,
            folder=folder,
            controller_port=controller_port,
            daemon_port=daemon_port,
        )
    )
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    environment = {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    queue = Slurm(folder, environment)
    with contextlib.ExitStack() as stack:
        munge = ("--socket", "--key-file", "--pid-file", "--log-file", "--seed-file")
        files = [f"{option}={folder}/munge.{option[2:].split('-')[0]}" for option in munge]
        for command in (
            ("munged", "--foreground", "--force", "--num-threads=2", *files),
            ("slurmctld", "-D", "-c"),
            ("slurmd", "-D", "-N", host),
        ):
            stack.enter_context(_daemon(command, environment, folder))
            if command[0] == "munged":
                _wait((folder / "munge.socket").exists, "munged", folder)
        _wait(lambda: "idle" in queue.run("sinfo", "--noheader", "--format=%t"), "slurmd", folder)
        try:
            yield queue
        finally:
            _end_jobs(queue)


def _end_jobs(queue: Slurm) -> None:
    for job in queue.unfinished():
        queue.run("scancel", job)
    _wait(lambda: not queue.unfinished(), "slurmctld", queue.folder)


@contextlib.contextmanager
def _daemon(command: tuple[str, ...], environment: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / f"{command[0]}.out").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run(command: tuple[str, ...], environment: dict[str, str]) -> str:
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )
    return answer.stdout


def _wait(happens: Callable[[], bool], daemon: str, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if happens():
            return
        time.sleep(0.1)
    said = "".join(path.read_text(errors="replace") for path in folder.glob(f"{daemon}.*o*"))
    raise RuntimeError(f"{daemon} does not work:\n{said[-2000:]}")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
