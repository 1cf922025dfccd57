"""A million samples are planned and resumed with the memory, files and tasks of a few.

What is run here is the same few tasks of a long sweep and of one ten times longer; the whole
of a million samples is run by ``tests/benchmarks/bench_scale.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nandcosim.sweep.run import TASKS_PER_WORKER

TESTS = Path(__file__).parents[1]

FEWER, MORE = 100_000, 1_000_000

#: Tasks of the first run and of the resumed one.
TASKS = 4

#: Bytes a sample that the client may hold: its status, and what selecting by it takes for
#: a moment. Besides, pages come and go: MB that two runs of the same sweep may differ by.
BYTES_A_SAMPLE = 12
SLACK = 4.0

SCRIPT = """
import json, re, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from distributed import Client, LocalCluster
from nandcosim.sweep import parse_spec, run_sweep

def main():
    samples, out = int(sys.argv[1]), sys.argv[2]
    spec = parse_spec({{
        "circuit": "circuits_for_tests:RCDischarge", "samples": samples, "seed": 5,
        "random": [{{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.01}}],
    }})
    tasks, done = [], []

    def report(progress):
        tasks.append(len(cluster.scheduler.tasks))
        done.append(progress.done)

    with LocalCluster(
        n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=None,
        scheduler_kwargs={{"dashboard": False, "dashboard_address": "127.0.0.1:0"}},
    ) as cluster, Client(cluster, set_as_default=False) as client:
        for _ in range(2):
            run_sweep(spec, out, client=client, max_chunks={max_chunks}, progress=report)
    # Of this program alone: ru_maxrss of a child begins at what its parent had.
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
    print(json.dumps({{"peak": peak / 1024, "tasks": max(tasks), "done": done[-1]}}))

if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True)
class Outcome:
    """What a process that planned and resumed took.

    Attributes
    ----------
    peak : float
        Its largest resident memory in MB.
    tasks : int
        Tasks that its scheduler knew at a time.
    done : int
        Samples that were run.
    files : int
        In the store.
    """

    peak: float
    tasks: int
    done: int
    files: int


def planned_and_resumed(samples: int, folder: Path) -> Outcome:
    script, out = folder / "run.py", folder / f"{samples}.zarr"
    script.write_text(SCRIPT.format(tests=str(TESTS), max_chunks=TASKS))
    run = subprocess.run(
        [sys.executable, str(script), str(samples), str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    return Outcome(**told, files=sum(each.is_file() for each in out.rglob("*")))


@pytest.mark.long
def test_client_scheduler_and_store_do_not_grow_with_the_samples(tmp_path: Path) -> None:
    fewer, more = (planned_and_resumed(samples, tmp_path) for samples in (FEWER, MORE))
    assert 2 * TASKS <= fewer.done < FEWER / 100  # only begun
    allowed = (MORE - FEWER) * BYTES_A_SAMPLE / 2**20 + SLACK
    assert more.peak - fewer.peak < allowed, (fewer, more)
    assert max(fewer.tasks, more.tasks) <= TASKS_PER_WORKER + 1  # that which has just ended
    assert more.files == fewer.files
