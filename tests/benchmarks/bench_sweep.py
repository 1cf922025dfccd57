"""Share of a sweep's CPU time that is spent inside ngspice's analysis.

A real sweep over a real Dask cluster of one worker. What counts is the CPU time of the
worker and of the client together (the client holds the scheduler and writes the store),
after a first chunk has loaded the libraries.

    python tests/benchmarks/bench_sweep.py [samples a point]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

from nandcosim.sweep import parse_spec, run_sweep

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


def inside() -> float:
    from nandcosim.spice.shared import SharedBackend

    return getattr(SharedBackend, "spent", 0.0)


def main(samples: int = 100) -> None:
    spec = parse_spec({**SPEC, "samples": samples})
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(install_counter)
        store = Path(folder) / "bench.zarr"
        run_sweep(spec, store, client=client, max_chunks=1)

        def spent() -> tuple[float, float]:
            (worker,) = client.run(time.process_time).values()
            (analysis,) = client.run(inside).values()
            return worker + time.process_time(), analysis

        total, analysis = spent()
        run_sweep(spec, store, client=client)
        total_after, analysis_after = spent()
    cpu, ngspice = total_after - total, analysis_after - analysis
    print(
        json.dumps(
            {
                "name": "sweep: share of CPU time inside ngspice's analysis",
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
