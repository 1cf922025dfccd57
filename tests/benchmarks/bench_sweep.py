"""Share of a sweep's CPU time that is spent inside ngspice's analysis.

A real sweep over a real Dask cluster of one worker, after a first chunk has loaded the
libraries. Two shares: of the thread that runs the samples, and of all processes together
(the client holds the scheduler and writes the store; its event loop and the worker's take
their 5 to 7 % of a core each whatever a sample costs).

    python tests/benchmarks/bench_sweep.py [samples a point]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import dask
from distributed import Client, LocalCluster

from nandcosim.sweep import parse_spec, run_sweep
from nandcosim.sweep.connection import LIGHT

SPEC = {
    "circuit": "dts_sense",
    "seed": 5,
    "responses": ["bit", "t_cross"],
    "axes": {"margin": [-0.5, 0.5, 1.5], "m": [1, 4]},
    "random": [
        {"target": "threshold", "distribution": "normal", "mean": 0.0, "std": 0.2},
        {"target": "sa_n", "distribution": "normal", "mean": 0.0, "std": "33.5 mV"},
    ],
}


def install_counter() -> None:
    """On the worker: add up the CPU seconds that the backend reports."""
    from nandcosim.spice.shared import SharedBackend

    original = SharedBackend.run

    def counted(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        SharedBackend.spent = getattr(SharedBackend, "spent", 0.0) + result.cpu_seconds
        return result

    SharedBackend.run = counted


def inside() -> tuple[float, float]:
    """CPU seconds inside ngspice, and of this process outside its event loop."""
    from nandcosim.spice.shared import SharedBackend

    loop = time.thread_time()  # this function runs on the worker's event loop
    return getattr(SharedBackend, "spent", 0.0), time.process_time() - loop


def main(samples: int = 100) -> None:
    spec = parse_spec({**SPEC, "samples": samples})
    with (
        dask.config.set(LIGHT),
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(install_counter)
        store = Path(folder) / "bench.zarr"
        run_sweep(spec, store, client=client, max_chunks=1)

        def spent() -> tuple[float, float, float]:
            (worker,) = client.run(time.process_time).values()
            ((analysis, samples_only),) = client.run(inside).values()
            return analysis, samples_only, worker + time.process_time()

        before = spent()
        run_sweep(spec, store, client=client)
        ngspice, task, everything = (b - a for a, b in zip(before, spent(), strict=True))
    for name, cpu in (("the worker's samples", task), ("all processes", everything)):
        print(
            json.dumps(
                {
                    "name": f"sweep: CPU time inside ngspice's analysis, share of {name}",
                    "ours": round(ngspice, 2),
                    "peer": round(cpu, 2),
                    "ratio": round(ngspice / cpu, 3),
                    "goal": 0.95,
                    "unit": "s of CPU inside ngspice, and in all",
                }
            )
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
