"""Parallel efficiency of a sweep at two workers: throughput over twice that of one.

Real samples of `dts_sense`. Clusters of one and of two workers are both up and warm, and run
the same sweep in turn, so that a busy machine slows both alike; the figure is the median
over rounds of the ratio within a round. The same is measured of bare processes, an engine
in a loop each, without a sweep: what two processes of this machine can be worth at all.

    python tests/benchmarks/bench_parallel.py [samples a round] [rounds]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

from nandcosim.spice.engine import Engine
from nandcosim.sweep import load_circuit, parse_spec, run_sweep
from nandcosim.sweep.connection import LIGHT
from nandcosim.sweep.sampling import draw
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.worker import THREAD_LIMITS

GOAL = 0.9
SPEC = {
    "circuit": "dts_sense",
    "seed": 5,
    "responses": ["bit", "t_cross"],
    "parameters": {"margin": 0.5},
    "random": [{"target": "threshold", "distribution": "normal", "mean": 0.0, "std": 0.2}],
}


@contextlib.contextmanager
def cluster_of(workers: int) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            env=THREAD_LIMITS,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def swept(spec: SweepSpec, client: Client) -> float:
    """Samples a second of a whole sweep."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_sweep(spec, Path(folder) / "s.zarr", client=client)
        return spec.samples / (time.perf_counter() - start)


_engine: list[Engine] = []


def loop(spec_text: str, samples: range) -> None:
    """Samples one after the other, in this process."""
    if not _engine:
        _engine.append(Engine())
    spec = SweepSpec.model_validate_json(spec_text)
    circuit = load_circuit(spec.circuit)
    for k in samples:
        _engine[0].sample(circuit, *draw(spec, circuit, 0, k), frozenset(spec.responses))


def bare(spec: SweepSpec, pool: Pool, processes: int) -> float:
    """Samples a second of processes without a sweep."""
    text, ends = spec.canonical_json(), np.linspace(0, spec.samples, processes + 1).astype(int)
    parts = [(text, range(a, b)) for a, b in itertools.pairwise(ends.tolist())]
    start = time.perf_counter()
    pool.starmap(loop, parts, chunksize=1)
    return spec.samples / (time.perf_counter() - start)


def main(samples: int = 600, rounds: int = 3) -> None:
    spec = parse_spec({**SPEC, "samples": samples})
    warm = parse_spec({**SPEC, "samples": 20})
    rates: dict[str, list[tuple[float, float]]] = {"sweep": [], "bare processes": []}
    with (
        dask.config.set(LIGHT),
        cluster_of(1) as one,
        cluster_of(2) as two,
        multiprocessing.get_context("spawn").Pool(2) as pool,
    ):
        for client in (one, two):
            swept(warm, client)
        bare(warm, pool, 2)
        for _ in range(rounds):
            rates["sweep"].append((swept(spec, one), swept(spec, two)))
            rates["bare processes"].append((bare(spec, pool, 1), bare(spec, pool, 2)))
    for name, goal in (("sweep", GOAL), ("bare processes", None)):
        single, double = np.median(rates[name], axis=0)
        efficiency = np.median([two / (2 * one) for one, two in rates[name]])
        line = {
            "name": f"parallel: efficiency at 2 workers, {name}",
            "ours": round(float(double), 2),
            "peer": round(float(single), 2),
            "ratio": round(float(efficiency), 3),
            "goal": goal,
            "unit": "samples/s at 2 workers and at 1; ratio: efficiency",
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
