"""What a sweep costs beyond its samples, and whether a million of them can be held.

Overhead: on one worker, after a first task has loaded the libraries, the wall time of a
sweep less the time inside `Engine.sample` and the fast model, a sample. The peer is a Dask
task a sample that does nothing, gathered in order: what a sweep costs whose unit of work is
the sample. Three circuits: one in closed form, an RC of a millisecond, and the same with a
pause of 100 ms.

Scale: a sweep of the closed form at 10^5 and 10^6 samples, each interrupted by Ctrl-C at
half and resumed, in fresh processes that hold the client and the scheduler. Peak memory is
the kernel's VmHWM: ``ru_maxrss`` of a child begins at what its parent had. The smaller one
is compared by digest with an undisturbed run.

    python tests/benchmarks/bench_scale.py [fewer samples] [more samples]
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
from bench_parallel import cluster_of
from distributed import Client

sys.path.insert(0, str(Path(__file__).parents[1]))  # workers take it over

from nandcosim.progress import Progress
from nandcosim.sweep import parse_spec, run_sweep, store_digest
from nandcosim.sweep.connection import LIGHT
from nandcosim.sweep.spec import SweepSpec

#: Samples of one grid point, and those that share one run of ngspice with the fast engine.
POINT, BLOCK = 50_000, 10_000

RANDOM = [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.01}]


def closed_form(samples: int) -> SweepSpec:
    """A sweep whose samples cost nothing."""
    voltages = [1.0 + 0.01 * i for i in range(max(1, samples // POINT))]
    return parse_spec(
        {
            "circuit": "fast_circuits_for_tests:FastRC",
            "samples": samples // len(voltages),
            "seed": 5,
            "engine": "fast",
            "audit": 1 / BLOCK,
            "axes": {"precharge": voltages},
            "random": RANDOM,
        }
    )


def simulated(circuit: str, samples: int) -> SweepSpec:
    """A sweep in ngspice."""
    return parse_spec(
        {
            "circuit": circuit,
            "samples": samples,
            "seed": 5,
            "random": RANDOM,
        }
    )


# --------------------------------------------------------------- overhead


def install_clock() -> None:
    """On the worker: add up the wall time inside simulations."""
    from fast_circuits_for_tests import ClosedForm

    from nandcosim.spice.engine import Engine

    def timed(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                Engine.spent = getattr(Engine, "spent", 0.0) + time.perf_counter() - start

        setattr(owner, name, wrapped)

    timed(Engine, "sample")
    timed(ClosedForm, "sample_many")


def inside() -> float:
    """Seconds inside simulations so far, on the worker."""
    from nandcosim.spice.engine import Engine

    return getattr(Engine, "spent", 0.0)


def nothing(k: int) -> int:
    return k


def dask_task_a_sample(client: Client, samples: int = 2000) -> float:
    """Seconds a sample of the finest-grained sweep."""
    client.gather(client.map(nothing, range(100), pure=False))
    start = time.perf_counter()
    client.gather(client.map(nothing, range(samples), pure=False))
    return (time.perf_counter() - start) / samples


def overhead(client: Client, spec: SweepSpec, folder: Path) -> tuple[float, float]:
    """Seconds a sample beyond its simulation, and inside it."""
    store = folder / f"{spec.circuit.rpartition(':')[2]}.zarr"
    run_sweep(spec, store, client=client, max_chunks=1)
    (before,) = client.run(inside).values()
    done: list[Progress] = []
    start = time.perf_counter()
    run_sweep(spec, store, client=client, progress=done.append)
    whole = time.perf_counter() - start
    (after,) = client.run(inside).values()
    samples = done[-1].done - done[0].done
    return (whole - (after - before)) / samples, (after - before) / samples


def overheads(closed: int = 100_000, short: int = 5000, long: int = 300) -> None:
    specs = {
        "closed form": closed_form(closed),
        "ngspice, 1 ms": simulated("circuits_for_tests:RCDischarge", short),
        "ngspice, 100 ms": simulated("fast_circuits_for_tests:PausingRC", long),
    }
    with (
        dask.config.set(LIGHT),
        tempfile.TemporaryDirectory() as folder,
        cluster_of(1) as client,
    ):
        client.run(install_clock)
        for name, spec in specs.items():
            beyond, within = overhead(client, spec, Path(folder))
            peer = dask_task_a_sample(client)
            figure(f"scale: overhead a sample, {name}", 1e6 * beyond, 1e6 * peer, 5.0, "us")
            share = within / (within + beyond)
            figure(f"scale: share of simulation, {name}", share, 1.0, None, "of wall time", share)


# ------------------------------------------------------------------ scale

PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MB."""
    found = PEAK.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def child(samples: int, out: str) -> None:
    """Run or continue a sweep; tell how far it is, and at the end what it took."""
    logging.disable()
    start = time.perf_counter()
    first = [float("nan")]

    def report(state: Progress) -> None:
        if state.done > state.before and first[0] != first[0]:
            first[0] = time.perf_counter() - start
        print(json.dumps({"done": state.done}), flush=True)

    try:
        run_sweep(closed_form(samples), out, workers=1, progress=report)
    except KeyboardInterrupt:
        pass
    finally:
        seconds = time.perf_counter() - start
        end = {"peak": peak_memory(), "first": first[0], "seconds": seconds}
        print(json.dumps(end), flush=True)


def run_child(samples: int, out: Path, interrupt_at: float = 2.0) -> dict[str, float]:
    """Run `child`, sent Ctrl-C when this share of the samples is done; what it told last."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", str(samples), str(out)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    sent = False
    told: dict[str, float] = {}
    for line in process.stdout:
        told = json.loads(line)
        if not sent and told.get("done", 0) >= interrupt_at * samples:
            sent = True
            os.killpg(process.pid, signal.SIGINT)
    process.wait()
    return told


def scale(fewer: int, more: int) -> None:
    peaks: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for samples in (fewer, more):
            store = folder / f"{samples}.zarr"
            cut = run_child(samples, store, interrupt_at=0.5)
            rest = run_child(samples, store)
            peaks[samples] = max(cut["peak"], rest["peak"])
            files = [each for each in store.rglob("*") if each.is_file()]
            size = sum(each.stat().st_size for each in files)
            label = f"scale: {samples} samples"
            figure(f"{label}, files in the store", len(files), samples, None, "files, samples")
            figure(f"{label}, bytes a sample in the store", size / samples, None, None, "bytes")
            figure(f"{label}, start to first sample written", cut["first"], None, None, "s")
            figure(f"{label}, resume to first sample written", rest["first"], None, None, "s")
            taken = cut["seconds"] + rest["seconds"]
            figure(f"{label}, interrupted and resumed", samples / taken, None, None, "samples/s")
        whole = folder / "whole.zarr"
        run_child(fewer, whole)
        assert store_digest(whole) == store_digest(folder / f"{fewer}.zarr")
        growth = peaks[more] / peaks[fewer]
        label = f"scale: peak memory of client and scheduler, {more} and {fewer} samples"
        figure(label, peaks[more], peaks[fewer], 1.1, "MB", growth)


def figure(
    name: str,
    ours: float,
    peer: float | None,
    goal: float | None,
    unit: str,
    ratio: float | None = None,
) -> None:
    if ratio is None and peer is not None:
        ratio = peer / ours
    values = {"ours": ours, "peer": peer, "ratio": ratio}
    rounded = {key: None if v is None else float(f"{v:.4g}") for key, v in values.items()}
    print(json.dumps({"name": name, **rounded, "goal": goal, "unit": unit}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3])
    else:
        overheads()
        scale(*map(int, sys.argv[1:] or ("100000", "1000000")))
