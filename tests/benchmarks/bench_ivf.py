# ruff: noqa: E402 - thread counts must be set before the libraries start
"""IVF search by DTS, all three stages, against FAISS IndexIVFFlat (float32).

Both search the same lists: stage 1 of DTS chooses them, FAISS gets them by
`search_preassigned` and its own search of the centroids is added to its time. One thread
each and CPU seconds of that thread, so that a busy machine disturbs little; repeats are
interleaved and the fastest counts. K2 = 1000, K1 = 100, m = (2, 4, 2).

The vectors are synthetic: 384 components, unit normal noise around 1,024 (heat map: 512)
unit normal centres, which are the centroids; list sizes are therefore Poisson. Queries are
vectors with a little noise.

    python tests/benchmarks/bench_ivf.py            # 20,000 vectors, seconds
    python tests/benchmarks/bench_ivf.py --full     # 10^5 and 10^6, heat map of 117,659

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
from itertools import product

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import faiss
import numpy as np

from nandcosim.systems.dnova.ivf import IvfIndex, normalised
from nandcosim.systems.dnova.quantise import fit_quantiser

DIM = 384
NLIST = 1024
RULE = {"m": (2, 4, 2), "k2": 1000, "k1": 100}
GOAL_SPEED = 3.0
GOAL_HEAT_MAP = 120.0
_AT_ONCE = 100_000


class Made:
    """Clustered vectors in an index of ours and in one of FAISS."""

    def __init__(self, n: int, nlist: int, queries: int, *, peer: bool = True) -> None:
        draw = np.random.default_rng(0)
        centres = draw.standard_normal((nlist, DIM), dtype=np.float32)
        centroids = normalised(centres)
        self.quantizer = faiss.IndexFlatIP(DIM)
        self.quantizer.add(centroids)
        self.faiss = faiss.IndexIVFFlat(self.quantizer, DIM, nlist, faiss.METRIC_INNER_PRODUCT)
        self.faiss.is_trained = True
        asked = []
        parts = []
        quantiser = None
        for start in range(0, n, _AT_ONCE):
            count = min(_AT_ONCE, n - start)
            member = draw.integers(0, nlist, count)
            noise = draw.standard_normal((count, DIM), dtype=np.float32)
            vectors = normalised(centres[member] + noise)
            quantiser = quantiser or fit_quantiser(vectors)
            ids = np.arange(start, start + count)
            parts.append(
                IvfIndex.from_lists(
                    vectors, centroids, member, quantiser, ids=ids, keep_vectors=False
                ).segments[0]
            )
            if peer:
                pointers = (faiss.swig_ptr(array) for array in (vectors, ids, member))
                self.faiss.add_core(count, *pointers)
            share = -(-queries * count // n)
            asked.append(vectors[draw.integers(0, count, share)])
        assert quantiser is not None
        self.index = IvfIndex(centroids, quantiser, tuple(parts)).compact()
        near = np.concatenate(asked)[:queries]
        self.queries = near + 0.02 * draw.standard_normal(near.shape, dtype=np.float32)

    def times(self, nprobe: int, repeats: int) -> tuple[float, float, int]:
        """CPU seconds of ours and of FAISS for all queries, and vectors that each scans."""
        rows = normalised(self.queries)
        found = self.index.search(self.queries, nprobe=nprobe, **RULE)
        lists = found.lists
        self.faiss.nprobe = nprobe
        similarity = np.zeros(lists.shape, dtype=np.float32)

        def theirs() -> None:
            self.quantizer.search(rows, nprobe)
            self.faiss.search_preassigned(rows, RULE["k1"], lists, similarity)

        ours = fastest(
            lambda: self.index.search(self.queries, nprobe=nprobe, **RULE), theirs, repeats
        )
        return *ours, int(found.scanned[:, 1].sum())


def fastest(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Least CPU seconds of two tasks, run in turn, after one round to warm up."""
    best = [np.inf, np.inf]
    for turn in range(repeats + 1):
        for i, task in enumerate((first, second)):
            start = time.thread_time()
            task()
            if turn:
                best[i] = min(best[i], time.thread_time() - start)
    return best[0], best[1]


def speed(sizes: list[int], queries: int, repeats: int) -> Iterator[dict[str, object]]:
    """Time a scanned vector, bytes a vector, growth with the number of vectors."""
    first: tuple[int, float] | None = None
    for n in sizes:
        made = Made(n, NLIST, queries)
        for nprobe in (16, 64):
            ours, theirs, scanned = made.times(nprobe, repeats)
            label = f"ivf {n} x {DIM}, nprobe {nprobe}, {scanned / queries:.0f} scanned a query"
            yield figure(
                label, ours / scanned * 1e9, theirs / scanned * 1e9, GOAL_SPEED, "ns/vector"
            )
        per_vector = ours / scanned * 1e9
        if first is None:
            first = (n, per_vector)
        else:
            label = f"ivf growth, nprobe 64: {n} (ours) and {first[0]} (peer) vectors"
            yield figure(label, per_vector, first[1], 1.0, "ns/vector")
        yield figure(
            f"ivf memory, {n} x {DIM}", made.index.nbytes / n, faiss_bytes(made.faiss) / n, 3.0,
            "bytes/vector",
        )  # fmt: skip


def faiss_bytes(index: faiss.IndexIVFFlat) -> int:
    """Bytes of the codes and ids of the inverted lists."""
    return int(index.ntotal) * (int(index.code_size) + 8)


def heat_map(n: int, queries: int) -> dict[str, object]:
    """Seconds on the clock of 16 configurations, two threads."""
    made = Made(n, 512, queries, peer=False)
    made.index.search(made.queries[:2], nprobe=64, **RULE)
    start = time.perf_counter()
    for outer, inner in product((1, 2, 4, 8), repeat=2):
        made.index.search(
            made.queries, m=(outer, inner, outer), nprobe=64, k2=1000, k1=100, threads=2
        )
    seconds = time.perf_counter() - start
    name = f"ivf heat map, 16 x {queries} queries x {n} vectors, nlist 512, nprobe 64, 2 threads"
    return figure(name, seconds, GOAL_HEAT_MAP, 1.0, "s")


def figure(name: str, ours: float, peer: float, goal: float, unit: str) -> dict[str, object]:
    """One printed line."""
    return {
        "name": name,
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "ratio": round(peer / ours, 2),
        "goal": goal,
        "unit": unit,
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--vectors", type=int, default=int(os.environ.get("BENCH_IVF_VECTORS", "20000"))
    )
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--full", action="store_true", help="10^4 .. 10^6 vectors, whole heat map")
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    sizes = [10_000, 100_000, 1_000_000] if options.full else [options.vectors]
    for line in speed(sizes, options.queries, options.repeats):
        print(json.dumps(line), flush=True)
    mapped = (117_659, 1000) if options.full else (options.vectors, 100)
    print(json.dumps(heat_map(*mapped)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
