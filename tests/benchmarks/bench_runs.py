"""Runs that an interval takes: adaptive and rare-event sampling against plain plans.

Adaptive: `sweeps/dts_sense.toml` at one sigma with the fast engine, asked for a half-width
of the pass probability and free to choose its margins. The peer is the uniform plan that
gives as much: the smallest spacing it used everywhere, and at every point the samples of
the worst (see `nandcosim.sweep.adaptive.Report`).

Rare events: `sweeps/dts_misread.toml` in ngspice. The peer is plain Monte Carlo with the
same standard error, p (1 - p) / s^2 runs. The goal, 5,000 runs for 10 % at 1e-6, is a
figure of its own. Subset simulation, which takes many runs, takes them of the fast engine.
So does importance sampling with several seeds, whose estimates should differ by no more
than the errors they tell. The fast engine's only guide is the bitline's crossing, which
does not see the sense amplifier's mismatch: a hard case on purpose.

Check: the same misread at the frequent margin counted over many strings of the fast
engine, and every estimate against it in standard errors.

    python tests/benchmarks/bench_runs.py [strings counted]
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from nandcosim.spice.engine import Engine
from nandcosim.sweep import load_circuit, parse_spec, run_sweep
from nandcosim.sweep.plan import estimates
from nandcosim.sweep.rare.contract import Batch, Estimate, Outcomes, Settings
from nandcosim.sweep.rare.importance import importance
from nandcosim.sweep.rare.study import run
from nandcosim.sweep.rare.subset import subset
from nandcosim.sweep.spec import SweepSpec, base_params

SWEEPS = Path(__file__).parents[2] / "sweeps"
GOAL_RUNS = 5000
SEEDS = 10
BATCH = 20_000


def document(name: str) -> dict[str, Any]:
    return tomllib.loads((SWEEPS / f"{name}.toml").read_text())


# --------------------------------------------------------------- adaptive


def adaptive(folder: Path) -> None:
    """Pass probability over the margin, to a half-width of 0.02, at 1, 2, 4, 8 wordlines."""
    asked = document("dts_sense")
    asked["axes"] |= {
        "margin": {"start": -0.5, "stop": 1.5, "num": 129},
        "sigma": [0.1],
    }
    asked |= {
        "samples": 10_000,
        "engine": "fast",
        "responses": ["bit"],
        "precision": {
            "response": "bit",
            "half_width": 0.02,
            "refine": ["margin"],
            "first": 5,
        },
    }
    store = run_sweep(parse_spec(asked), folder / "adaptive.zarr")
    plan, wanted = store.attributes["plan"], store.wanted()
    assert plan["complete"], plan
    name = "runs: adaptive against uniform, pass probability to 0.02"
    figure(name, plan["runs"], plan["uniform_runs"], None, "runs")
    every = int((wanted > 0).sum() * wanted.max())
    figure(f"{name}, its own margins", plan["runs"], every, None, "runs")


# ------------------------------------------------------------ rare events


def plain_runs(estimate: Estimate) -> float:
    p, s = estimate.probability, estimate.standard_error
    return p * (1 - p) / s**2


def rare_in_ngspice(folder: Path) -> list[Estimate]:
    """The shipped sweep; one line a margin."""
    spec = parse_spec(document("dts_misread"))
    store = run_sweep(spec, folder / "misread.zarr")
    found = [each for each in estimates(store) if each is not None]
    assert len(found) == spec.points
    for point, estimate in enumerate(found):
        label = f"rare: importance in ngspice, margin {spec.coordinates(point)['margin']}"
        describe(label, estimate)
    least_probable = min(found, key=lambda each: each.probability)
    assert least_probable.converged, least_probable
    name = f"rare: ngspice runs to 10 % at {least_probable.probability:.2g}"
    figure(name, least_probable.runs, GOAL_RUNS, 1.0, "runs; peer: the goal")
    return found


class Misread:
    """The fast engine's misread at a grid point of the sweep, as a limit state."""

    def __init__(self, engine: Engine, spec: SweepSpec, point: int) -> None:
        circuit = load_circuit(spec.circuit)
        params = base_params(spec, circuit, spec.coordinates(point))
        model = engine.fast(circuit, params)
        assert model is not None
        assert spec.rare is not None
        self.point = point
        self.rare = spec.rare
        self.model = model
        self.strobe = params.t_sense
        self.sizes = {knob.name: knob.size(params) for knob in circuit.knobs}
        self.stds = {entry.target: entry.values({})["std"] for entry in spec.random}

    @property
    def dimensions(self) -> int:
        return sum(self.sizes[name] for name in self.stds)

    def __call__(self, scores: np.ndarray) -> Outcomes:
        knobs = {name: np.zeros((len(scores), size)) for name, size in self.sizes.items()}
        first = 0
        for name, std in self.stds.items():
            stop = first + self.sizes[name]
            knobs[name] = std * scores[:, first:stop]
            first = stop
        found = self.model.sample_many(knobs)
        failure = self.rare.failure
        return Outcomes(
            failed=failure.holds(found.responses[failure.response]),
            guide=self.strobe - found.responses["t_cross"],
            known=found.valid,
        )


def rare_by_the_fast_engine(spec: SweepSpec, engine: Engine) -> None:
    """Both methods at the rarest margin, importance sampling with several seeds."""
    misread = Misread(engine, spec, spec.points - 1)

    def outcomes(batch: Batch) -> Outcomes:
        return misread(batch.scores)

    def settings(runs: int) -> Settings:
        return Settings(precision=0.1, max_runs=runs)

    size = misread.dimensions
    label = f"fast engine, margin {spec.coordinates(misread.point)['margin']}"
    found = [
        run(importance(size, np.random.default_rng(seed), settings(GOAL_RUNS)), outcomes)
        for seed in range(SEEDS)
    ]
    describe(f"rare: importance, {label}", found[0])
    most = max(each.runs for each in found)
    figure(f"rare: runs at most, {SEEDS} seeds, {label}", most, GOAL_RUNS, 1.0, "runs")
    probabilities = np.array([each.probability for each in found])
    told = np.mean([each.standard_error / each.probability for each in found])
    spread = probabilities.std(ddof=1) / probabilities.mean()
    name = f"rare: spread of {SEEDS} estimates against the error they tell, {label}"
    figure(name, spread, told, None, "relative standard deviation")
    describe(
        f"rare: subset, {label}",
        run(subset(size, np.random.default_rng(1), settings(400_000)), outcomes),
    )


def check(spec: SweepSpec, engine: Engine, estimate: Estimate, strings: int) -> None:
    """The frequent margin's estimate against a count; ratio of the two."""
    misread = Misread(engine, spec, 0)
    rng = np.random.default_rng(spec.seed)
    count = 0
    for start in range(0, strings, BATCH):
        n = min(BATCH, strings - start)
        count += int(misread(rng.standard_normal((n, misread.dimensions))).event.sum())
    plain = count / strings
    error = np.hypot(estimate.standard_error, plain / np.sqrt(count))
    off = abs(estimate.probability - plain) / error
    assert off < 3, (estimate, plain)
    figure(
        f"rare: importance in ngspice against {strings} strings counted",
        estimate.probability,
        plain,
        None,
        f"probability; ratio: {off:.1f} standard errors from 1",
    )


def describe(name: str, estimate: Estimate) -> None:
    relative = estimate.standard_error / estimate.probability
    remark = f"; {estimate.note}" if estimate.note else ""
    figure(
        f"{name}: {estimate.probability:.3g} to {relative:.1%}{remark}",
        estimate.runs,
        plain_runs(estimate),
        None,
        "runs, and of plain Monte Carlo for the same error",
    )


def figure(name: str, ours: float, peer: float, goal: float | None, unit: str) -> None:
    line = {
        "name": name,
        "ours": float(f"{ours:.4g}"),
        "peer": float(f"{peer:.4g}"),
        "ratio": float(f"{peer / ours:.4g}"),
        "goal": goal,
        "unit": unit,
    }
    print(json.dumps(line), flush=True)


def main(strings: int = 100_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        adaptive(folder)
        frequent = rare_in_ngspice(folder)[0]
    spec = parse_spec(document("dts_misread"))
    engine = Engine()
    try:
        rare_by_the_fast_engine(spec, engine)
        check(spec, engine, frequent, strings)
    finally:
        engine.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
