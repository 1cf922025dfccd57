"""Settings of a cluster, and the job scripts that dask-jobqueue makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask_jobqueue
import pytest

from nandcosim.errors import InputError
from nandcosim.spice.netlists import TRUST_VARIABLE
from nandcosim.sweep.cluster import QUEUES, ClusterSettings, load_settings, queue_client
from nandcosim.sweep.worker import THREAD_LIMITS

SHIPPED = Path(__file__).parents[2] / "sweeps" / "cluster"

LEAST = {"queue": "slurm", "maximum": 4, "memory": "4 GB", "walltime": "04:00:00"}


def written(folder: Path, *lines: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines))
    return path


def script_of(folder: Path, **changes: Any) -> list[str]:
    """Lines of a job's script; no scheduler is needed for that."""
    settings = ClusterSettings(**{**LEAST, "logs": folder, **changes})
    job = getattr(dask_jobqueue, QUEUES[settings.queue].cluster).job_cls
    text: str = job("tls://10.0.0.1:8786", "one", **settings.job_options()).job_script()
    return text.splitlines()


# --------------------------------------------------------------- settings


@pytest.mark.parametrize("name", sorted(QUEUES))
def test_shipped_files_are_right_as_they_are_and_uncommented(name: str, tmp_path: Path) -> None:
    path = SHIPPED / f"{name}.toml"
    assert load_settings(path).queue == name
    lines = path.read_text().splitlines()
    bare = written(tmp_path, *(line.removeprefix("# ") for line in lines if " = " in line))
    assert load_settings(bare).model_fields_set == ClusterSettings.model_fields.keys()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("queue = 'sge'", "queue: found 'sge', expected 'slurm', 'pbs' or 'lsf'"),
        ("maximum = 0", "maximum: found 0, expected greater than or equal to 1"),
        ("maximum = 2\nminimum = 3", "minimum 3 is above maximum 2"),
        ("walltime = '4h'", "walltime: found '4h', expected HH:MM:SS, at least 00:01:00"),
        ("walltime = '0:00:59'", "walltime: found '0:00:59', expected HH:MM:SS, at least"),
        ("memory = 'much'", "memory: found 'much', expected a number and a unit"),
        ("partitions = 'main'", "partitions: unknown, did you mean 'partition'"),
        ("prologue = 'module load'", "prologue: found 'module load', expected a list"),
        ("queue = ", "invalid TOML"),
    ],
)
def test_mistakes_get_one_line(line: str, message: str, tmp_path: Path) -> None:
    lines = {key: f"{key} = {value!r}" for key, value in LEAST.items()}
    lines.pop(line.partition(" ")[0], None)
    path = written(tmp_path, *lines.values(), line)
    with pytest.raises(InputError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_key_and_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="queue: is missing"):
        load_settings(written(tmp_path, "maximum = 1"))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_settings(tmp_path / "none.toml")


def test_machine_without_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(InputError, match=r"qsub was not found: is this a login node of the queue\?"),
        queue_client(SHIPPED / "pbs.toml"),
    ):
        pass


@pytest.mark.parametrize(
    ("walltime", "range_"), [("00:10:00", (420, 540)), ("24:00:00", (85500, 86100))]
)
def test_workers_retire_within_the_walltime(walltime: str, range_: tuple[int, int]) -> None:
    lifetime, stagger = ClusterSettings(**{**LEAST, "walltime": walltime}).lifetime()
    assert (lifetime - stagger, lifetime + stagger) == range_


# ------------------------------------------------------------- job scripts


@pytest.mark.parametrize(
    ("queue", "head"),
    [
        (
            "slurm",
            ["-p main", "-A me", "--cpus-per-task=3", "--mem=4G", "-t 04:00:00", "-J nandcosim"],
        ),
        ("pbs", ["-q main", "-A me", "-l select=1:ncpus=3:mem=3815MB", "-l walltime=04:00:00"]),
        ("lsf", ["-q main", '-P "me"', "-n 3", "-W 04:00", "-J nandcosim"]),
    ],
)
def test_head_of_the_job_script(queue: str, head: list[str], tmp_path: Path) -> None:
    script = script_of(
        tmp_path, queue=queue, workers=3, partition="main", account="me", directives=("--extra",)
    )
    mark = {"slurm": "#SBATCH", "pbs": "#PBS", "lsf": "#BSUB"}[queue]
    found = [line.removeprefix(f"{mark} ") for line in script if line.startswith(mark)]
    assert set(found) >= {*head, "--extra"}


def test_workers_have_one_thread_and_no_memory_limit(tmp_path: Path) -> None:
    command = script_of(tmp_path, workers=3, interface="ib0", python="/a b/python")[-1]
    assert command.startswith("'/a b/python' -m distributed.cli.dask_worker tls://10.0.0.1:8786 ")
    for option in ("--nthreads 1", "--nworkers 3", "--interface ib0", "--death-timeout 60"):
        assert f" {option} " in f"{command} "
    # dask-jobqueue sets a limit of its own; the last one counts.
    assert command.rpartition("--memory-limit ")[2].startswith("0 ")


def test_prologue_stands_between_consent_and_thread_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    script = script_of(tmp_path, prologue=("module load ngspice",))
    place = script.index("module load ngspice")
    assert f"export {TRUST_VARIABLE}=1" in script[:place]
    assert {f"export {name}={value}" for name, value in THREAD_LIMITS.items()} <= set(
        script[place:]
    )
