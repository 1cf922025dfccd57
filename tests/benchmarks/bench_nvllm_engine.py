"""The compiled engine against a plain machine that goes cycle by cycle in Python.

One layer of LLaMA2-7B's FFN, 4.2 million segments on 16 clusters, drawing the faults
included; the plain machine runs the first thousands of them. Both are the same machine, which
is asserted on the same faults. CPU seconds of one thread; the fastest of some repeats counts.

    python tests/benchmarks/bench_nvllm_engine.py [--repeats 5]

prints one JSON line a figure: ``{"name", "ours", "peer", "ratio", "goal", "unit"}``;
ratio = peer / ours. The second line of each rate has for its peer the time wanted,
20 ns a segment: 50 million segments a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from nandcosim.systems.nvllm.engine import EngineConfig, EngineRun, segments_a_read, simulate
from nandcosim.systems.nvllm.engine_study import layer_segments

sys.path.insert(0, str(Path(__file__).parents[1]))

import nvllm_engine_reference as reference

GOAL_PLAIN = 100.0
WANTED = 20.0
SAMPLE = 3000
RATES = (1e-6, 1e-4, 1e-3)


def plain(config: EngineConfig, faulty: np.ndarray) -> dict[str, object]:
    """The plain machine on the same layer."""
    read = Fraction(repr(config.read_time)) * Fraction(repr(config.engine_clock))
    return reference.run(
        faulty.tolist(),
        lanes=config.lanes,
        correctors=config.correctors,
        latency=config.corrector_latency,
        interval=config.corrector_interval or config.corrector_latency,
        scoreboard=config.scoreboard,
        in_order=config.order == "in_order",
        hub=config.hub,
        group=int(segments_a_read(config)),
        bank=8 * config.fifo_bytes // 292,
        registers=config.page_buffers,
        read_time=read,
        prefetched=config.prefetched,
        column=config.column,
    )


def seconds(task: Callable[[], object], repeats: int) -> float:
    """Least CPU seconds of a task."""
    best = np.inf
    for _ in range(repeats):
        start = time.thread_time()
        task()
        best = min(best, time.thread_time() - start)
    return float(best)


def figures(repeats: int) -> Iterator[dict[str, object]]:
    """Time of both at every error rate."""
    config = EngineConfig()
    segments = layer_segments(config)
    for rber in RATES:
        faulty = np.random.default_rng(0).random((16, SAMPLE)) < 1 - (1 - rber) ** 292
        run: EngineRun = simulate(config, SAMPLE, faulty=faulty)  # compiles, too
        assert run.cycles - config.checker_latency == plain(config, faulty)["cycles"]
        took = seconds(lambda rber=rber: simulate(config, segments, rber=rber), repeats)
        theirs = seconds(lambda faulty=faulty: plain(config, faulty), 2)
        ours, peer = took / (16 * segments), theirs / faulty.size
        yield figure(f"engine at rber {rber:g} vs plain machine", ours, peer, GOAL_PLAIN)
        yield figure(f"engine at rber {rber:g}, a segment wanted", ours, WANTED * 1e-9, 1.0)


def figure(name: str, ours: float, peer: float, goal: float) -> dict[str, object]:
    """One printed line, in nanoseconds a segment."""
    return {
        "name": name,
        "ours": round(ours * 1e9, 2),
        "peer": round(peer * 1e9, 2),
        "ratio": round(peer / ours, 2),
        "goal": goal,
        "unit": "ns/segment",
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    for line in figures(parser.parse_args().repeats):
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
