"""The fast string against ngspice, as a sweep runs them: CPU time a sample, and errors.

Random strings at several numbers and positions of active wordlines and margins, each run
in both engines, in turn, on one core. Measured once, when the models are made, and not
counted: the tables of the card, seconds, kept on disk. Bits must be equal, but for
strings within 0.02 level spacings of the boundary.

    python tests/benchmarks/bench_fast_string.py [samples a condition]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from circuits.dts_sense import DtsSense
from circuits.fast_string import BOUNDARY_TOLERANCE, TIME_TOLERANCE
from nandcosim.spice.engine import Engine
from nandcosim.spice.status import Status

CIRCUIT = DtsSense()
WANTED = frozenset({"bit", "t_cross"})
CONDITIONS: list[dict[str, Any]] = [
    *({"m": m, "position": p, "margin": 0.1 + 0.05 * m} for m in (1, 2, 4, 8) for p in (0, 0.5, 1)),
    *({"m": m, "margin": margin} for m in (1, 2, 4, 8) for margin in (0.5, 1.5, 2.5)),
]
SHORT: list[dict[str, Any]] = [{"cells": 32, "margin": margin} for margin in (0.1, 0.5, 1.5)]
SIGMA = 0.2

Knobs = dict[str, np.ndarray]


def knobs(params: Any, count: int, seed: int) -> Knobs:
    rng = np.random.default_rng(seed)
    return {
        "threshold": SIGMA * rng.standard_normal((count, params.cells)),
        "source_line": np.zeros((count, 1)),
        "sa_n": 0.0335 * rng.standard_normal((count, 1)),
        "sa_p": 0.0106 * rng.standard_normal((count, 1)),
    }


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = function()
    return found, time.process_time() - start


def full(engine: Engine, params: Any, sample: Knobs) -> dict[str, float]:
    outcome = engine.sample(CIRCUIT, params, sample, WANTED)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def run(engine: Engine, conditions: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """CPU seconds a sample of both engines, relative errors of the crossing time."""
    ours, theirs, errors, decided = [], [], [], 0
    for seed, settings in enumerate(conditions):
        params = CIRCUIT.Params(**settings)
        model = engine.fast(CIRCUIT, params)
        assert model is not None
        drawn = knobs(params, count, seed)
        samples = [{n: v[k] for n, v in drawn.items()} for k in range(count)]
        model.sample_many(drawn)  # compiled, and the deck loaded, before the clock starts
        full(engine, params, samples[0])
        found, seconds = timed(lambda m=model, d=drawn: m.sample_many(d))
        ours.append(seconds / count)
        expected, seconds = timed(lambda p=params, s=samples: [full(engine, p, k) for k in s])
        theirs.append(seconds / count)
        assert found.valid.all()
        for k, sample in enumerate(samples):
            mine = {name: float(values[k]) for name, values in found.responses.items()}
            same_bit = {"bit": mine["bit"]}, {"bit": expected[k]["bit"]}
            assert model.agrees(sample, *same_bit), (settings, k)
            decided += 1
            errors.append(mine["t_cross"] / expected[k]["t_cross"] - 1.0)
    finite = np.array(errors)[np.isfinite(errors)]
    return {
        "ours": float(np.mean(ours)),
        "theirs": float(np.mean(theirs)),
        "largest": float(np.abs(finite).max()),
        "mean": float(finite.mean()),
        "decided": decided,
        "crossed": finite.size,
    }


def boundary(decide: Callable[[float], float]) -> float:
    """Offset of the active cells in levels at which the read starts to fail."""
    low, high = -1.5, 1.5
    while high - low > 0.002:
        middle = (low + high) / 2
        low, high = (middle, high) if decide(middle) else (low, middle)
    return (low + high) / 2


def boundary_errors(engine: Engine) -> np.ndarray:
    """Boundary of the fast string less that of ngspice, in level spacings."""
    differences = []
    for seed, settings in enumerate(CONDITIONS[:12]):
        params = CIRCUIT.Params(**settings)
        model = engine.fast(CIRCUIT, params)
        assert model is not None
        sample = {name: values[0] for name, values in knobs(params, 1, 100 + seed).items()}

        def moved(offset: float, sample: Knobs = sample, params: Any = params) -> Knobs:
            threshold = sample["threshold"].copy()
            threshold[params.active] += offset
            return {**sample, "threshold": threshold}

        def ours(offset: float, moved: Any = moved, model: Any = model) -> float:
            many = {name: values[None] for name, values in moved(offset).items()}
            return float(model.sample_many(many).responses["bit"][0])

        def theirs(offset: float, moved: Any = moved, params: Any = params) -> float:
            return full(engine, params, moved(offset))["bit"]

        differences.append(boundary(ours) - boundary(theirs))
    return np.array(differences)


def main(count: int = 10) -> None:
    engine = Engine(time_limit=60.0)
    for name, conditions in (("128 cells", CONDITIONS), ("32 cells", SHORT)):
        found = run(engine, conditions, count)
        report(
            f"fast string of {name} against ngspice",
            1e3 * found["ours"],
            1e3 * found["theirs"],
            found["theirs"] / found["ours"],
            30,
            "ms of CPU a sample",
        )
        report(
            f"fast string of {name}: largest error of {found['crossed']} crossing times "
            f"(mean {100 * found['mean']:+.2f} %)",
            found["largest"],
            TIME_TOLERANCE,
            TIME_TOLERANCE / found["largest"],
            1,
            "relative",
        )
    errors = boundary_errors(engine)
    largest = float(np.abs(errors).max())
    report(
        f"fast string: largest error of {errors.size} pass boundaries (mean {errors.mean():+.4f})",
        largest,
        BOUNDARY_TOLERANCE,
        BOUNDARY_TOLERANCE / largest,
        1,
        "level spacings",
    )


def report(name: str, ours: float, peer: float, ratio: float, goal: float, unit: str) -> None:
    line = {"name": name, "ours": round(ours, 4), "peer": round(peer, 4), "ratio": round(ratio, 2)}
    print(json.dumps({**line, "goal": goal, "unit": unit}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
