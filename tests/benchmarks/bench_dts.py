# ruff: noqa: E402 - thread counts must be set before the libraries start
"""DTS scoring against FAISS IndexFlatIP (float32) and against NumPy broadcasting.

One thread each, one process, repeats interleaved so that a busy machine slows all
of them alike; a figure is the ratio of medians. Scoring means what a search needs:
the k best of all vectors, ids and scores. NumPy is the package's own plain
reference (`score.score_deficits`), scoring only.

    python tests/benchmarks/bench_dts.py [--vectors 200000] [--dims 384 768] [--repeats 15]

prints one JSON line a figure:
``{"name", "ours", "peer", "ratio", "goal", "unit"}``; ratio = peer / ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import faiss
import numpy as np
from numpy.typing import NDArray

from nandcosim.systems.dnova import kernels
from nandcosim.systems.dnova.bitslice import BitSliced
from nandcosim.systems.dnova.quantise import fit_quantiser
from nandcosim.systems.dnova.score import score_deficits

GROUP_SIZES = (1, 2, 4, 8, 16)
K = 100
BATCH = 32
GOAL_FAISS = 3.0
GOAL_NUMPY = 200.0


def figures(n: int, dim: int, repeats: int, numpy_repeats: int) -> Iterator[dict[str, object]]:
    """Measure one corpus of n random vectors of `dim` components."""
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((n, dim), dtype=np.float32)
    queries = draw.standard_normal((max(repeats, BATCH), dim), dtype=np.float32)
    flat = faiss.IndexFlatIP(dim)
    flat.add(vectors)
    quantiser = fit_quantiser(vectors)
    codes, asked = quantiser.encode(vectors), quantiser.encode(queries)
    del vectors
    sliced = BitSliced(codes)
    ids = np.arange(n)
    out = np.empty(n, dtype=np.uint16)

    def ours(i: int, m: int) -> NDArray[np.int64]:
        sliced.deficits(asked[i], alpha=2, m=m, out=out)
        return np.asarray(kernels.select_smallest(out, ids, K))

    def one_by_one(i: int) -> None:
        flat.search(queries[i : i + 1], K)

    def in_a_batch(_: int) -> None:
        flat.search(queries[:BATCH], K)

    tasks: dict[str, Callable[[int], object]] = {"faiss": one_by_one}
    for m in GROUP_SIZES:
        tasks[f"m={m}"] = lambda i, m=m: ours(i, m)  # type: ignore[misc]
    times = interleaved(tasks, repeats)
    batch = interleaved({"batch": in_a_batch}, max(1, repeats // 5))["batch"] / BATCH

    for m in GROUP_SIZES:
        mine = times[f"m={m}"]
        label = f"dts {n} x {dim} m={m}"
        yield figure(f"{label} vs faiss, one query at a time", mine, times["faiss"], GOAL_FAISS)
        yield figure(f"{label} vs faiss, batch of {BATCH}", mine, batch, GOAL_FAISS)

    for m in GROUP_SIZES:

        def plain(i: int, m: int = m) -> NDArray[np.int64]:
            return score_deficits(codes, asked[i], alpha=2, m=m)

        np.testing.assert_array_equal(sliced.deficits(asked[0], alpha=2, m=m), plain(0))
        tasks = {"numpy": plain}
        for turn in range(5):  # the first after NumPy finds a cold cache, as a fair share should
            tasks[f"ours {turn}"] = lambda i, m=m: ours(i, m)  # type: ignore[misc]
        times = interleaved(tasks, numpy_repeats)
        mine = median(times[f"ours {turn}"] for turn in range(5))
        yield figure(f"dts {n} x {dim} m={m} vs numpy", mine, times["numpy"], GOAL_NUMPY)


def interleaved(tasks: dict[str, Callable[[int], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each task, after one warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for i in range(-1, repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task(max(i, 0))
            if i >= 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def figure(name: str, ours: float, peer: float, goal: float) -> dict[str, object]:
    """One printed line, in milliseconds a query."""
    return {
        "name": name,
        "ours": round(ours * 1e3, 4),
        "peer": round(peer * 1e3, 4),
        "ratio": round(peer / ours, 2),
        "goal": goal,
        "unit": "ms/query",
    }


def main() -> int:
    """Print the figures."""
    environment = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--vectors", type=int, default=int(environment("BENCH_DTS_VECTORS", "200000"))
    )
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 768])
    parser.add_argument("--repeats", type=int, default=int(environment("BENCH_DTS_REPEATS", "15")))
    parser.add_argument("--numpy-repeats", type=int, default=2)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    for dim in options.dims:
        for line in figures(options.vectors, dim, options.repeats, options.numpy_repeats):
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
