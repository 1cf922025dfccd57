"""The fast string against full ngspice strings that it was not calibrated on.

Its promise: crossing time within 1 %, pass boundary within 0.02 level spacings. The strings
of reference take ten times finer steps than those of a sweep, whose own error exceeds 1 %
where a string is as fast as its largest step, 1 us.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuits.dts_sense import DtsSense
from circuits.fast_string import (
    BOUNDARY_TOLERANCE,
    LARGEST_SOURCE_LINE,
    SPAN,
    TIME_TOLERANCE,
    FastString,
)
from nandcosim.spice.circuit import DcSweep, SweptSource
from nandcosim.spice.deck import Deck
from nandcosim.spice.device_table import Grid, device_tables
from nandcosim.spice.engine import Engine
from nandcosim.spice.netlists import find_netlist
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

DTS = DtsSense()
WANTED = frozenset({"bit", "t_cross"})

#: Conditions of strings, each with random thresholds and sense amplifiers.
CONDITIONS: list[dict[str, Any]] = [
    # the boundary moves up with m
    *({"m": m, "position": p, "margin": 0.1 + 0.05 * m} for m in (1, 2, 4, 8) for p in (0, 0.5, 1)),
    *({"m": m, "margin": margin} for m in (1, 4) for margin in (-0.5, 0.6, 1.5, 2.5)),
    *({"pattern": "erased", "margin": margin} for margin in (0.0, 0.5, 1.5)),
    *({"pattern": "programmed", "margin": margin} for margin in (0.5, 2.5)),
    *({"cells": 32, "margin": margin} for margin in (0.0, 0.5)),
    {"m": 4, "margin": 0.6, "critical": 4},
    {"stored": 15, "margin": 0.3},
    {"stored": 0, "margin": 0.3},
    {"temperature": 85.0, "corner": "ss", "margin": 0.5},
]
SIGMAS = (0.0, 0.1, 0.2, 0.35)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def drawn(params: Any, count: int, seed: int) -> dict[str, np.ndarray]:
    """Knobs of `count` samples, their thresholds of every spread in turn."""
    rng = np.random.default_rng(seed)
    sigma = np.resize(SIGMAS, count)[:, None]
    return {
        "threshold": sigma * rng.standard_normal((count, params.cells)),
        "source_line": np.zeros((count, 1)),
        "sa_n": 0.0335 * rng.standard_normal((count, 1)),
        "sa_p": 0.0106 * rng.standard_normal((count, 1)),
    }


def of_sample(knobs: Mapping[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    return {name: values[index] for name, values in knobs.items()}


def full(engine: Engine, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
    fine = params.model_copy(update={"max_step": params.max_step / 10})
    outcome = engine.sample(DTS, fine, knobs, WANTED)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def compare(engine: Engine, settings: dict[str, Any], count: int, seed: int) -> int:
    """Compare samples of one condition; how many of them crossed."""
    params = DTS.Params(**settings)
    model = engine.fast(DTS, params)
    assert model is not None
    knobs = drawn(params, count, seed)
    found = model.sample_many(knobs)
    assert found.valid.all()
    crossed = 0
    for index in range(count):
        single = of_sample(knobs, index)
        theirs = full(engine, params, single)
        ours = {name: float(values[index]) for name, values in found.responses.items()}
        assert model.agrees(single, ours, theirs), (settings, index, ours, theirs)
        crossed += np.isfinite(theirs["t_cross"])
    return crossed


@pytest.mark.parametrize("settings", CONDITIONS[4:24:6], ids=str)
def test_few_strings(engine, settings) -> None:
    compare(engine, settings, 4, seed=1)


@pytest.mark.long
def test_many_strings(engine) -> None:
    """Three hundred strings; most of them cross, so that there are times to compare."""
    crossed = [compare(engine, settings, 10, seed) for seed, settings in enumerate(CONDITIONS)]
    assert len(CONDITIONS) * 10 >= 300
    assert sum(crossed) > 200


def boundary(decide: Any) -> float:
    """Where in -1 to 1 level a bit falls from 1 to 0, to 0.002 levels; NaN if nowhere."""
    low, high = -1.0, 1.0
    if decide(low) == decide(high):
        return float("nan")
    while high - low > 0.004:
        middle = (low + high) / 2
        low, high = (middle, high) if decide(middle) else (low, middle)
    return (low + high) / 2


@pytest.mark.long
@pytest.mark.parametrize("settings", CONDITIONS[:12], ids=str)
def test_pass_boundary(engine, settings) -> None:
    """How much higher the active cells may be stored until the read fails, in both."""
    params = DTS.Params(**{**settings, "margin": 0.5})
    model = engine.fast(DTS, params)
    assert model is not None
    knobs = drawn(params, 4, seed=7)
    for index in range(4):
        sample = of_sample(knobs, index)

        def shifted(offset: float, sample: dict[str, np.ndarray] = sample) -> dict[str, np.ndarray]:
            threshold = sample["threshold"].copy()
            threshold[params.active] += offset
            return {**sample, "threshold": threshold}

        def ours(offset: float, shifted: Any = shifted) -> float:
            many = {name: values[None] for name, values in shifted(offset).items()}
            return float(model.sample_many(many).responses["bit"][0])

        def theirs(offset: float, shifted: Any = shifted) -> float:
            return engine.sample(DTS, params, shifted(offset), WANTED).responses["bit"]

        found, expected = boundary(ours), boundary(theirs)
        assert np.isfinite(expected)
        assert abs(found - expected) <= BOUNDARY_TOLERANCE


def test_source_line_noise(engine) -> None:
    """What the source line adds slows the string, or speeds it up; the engine follows."""
    params = DTS.Params(margin=1.5)
    model = engine.fast(DTS, params)
    assert model is not None
    knobs = drawn(params, 3, seed=3)
    knobs["source_line"] = np.array([[-LARGEST_SOURCE_LINE], [0.0], [0.04]])
    times = model.sample_many(knobs).responses["t_cross"]
    for index in range(3):
        expected = full(engine, params, of_sample(knobs, index))["t_cross"]
        assert np.isfinite(expected)
        assert times[index] == pytest.approx(expected, rel=TIME_TOLERANCE)


def test_outside_its_range_a_sample_is_invalid(engine) -> None:
    params = DTS.Params()
    model = engine.fast(DTS, params)
    assert model is not None
    knobs = drawn(params, 6, seed=4)
    knobs["sa_n"][1] = 0.3
    knobs["sa_p"][2] = -0.1
    knobs["source_line"][3] = 0.2
    knobs["threshold"][4] -= 4.0  # erased cells far below the lowest level
    assert model.sample_many(knobs).valid.tolist() == [True, False, False, False, False, True]


@pytest.mark.long
def test_foundry_models_of_another_domain(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """GlobalFoundries' 180 nm transistors at 3.3 V: nothing is tuned to the shipped card."""
    models = Path(sys.prefix, "open-models")
    if not (models / "c4m").is_dir():
        pytest.skip("no open model sets here: 'make test' fetches them from PyPI if it can")
    monkeypatch.setenv("OPEN_MODELS", str(models))
    card = Path(__file__).parents[2] / "docs" / "examples" / "gf180.lib"
    voltages = {"vdd": 3.3, "v_trip": 1.65, "v_pass": 3.3, "window": 1.92, "v_boundary": 0.75}
    sizes = {"w_cell": 420e-9, "l_cell": 280e-9, "cells": 16}
    foundry = {"card": str(card), "section": "typical", **voltages, **sizes}
    crossed = [compare(engine, {**foundry, "margin": m}, 4, seed=8) for m in (0.3, 1.5)]
    assert sum(crossed) == 8


def test_domain_too_wide_for_tables_has_no_fast_engine(engine) -> None:
    levels = {"bits": 1, "stored": 0, "window": 8.0, "v_boundary": 0.5}
    assert engine.fast(DTS, DTS.Params(vdd=5.0, v_pass=10.0, **levels)) is None


def test_tolerances_decide_agreement(engine) -> None:
    params = DTS.Params(margin=1.5)
    model = FastString(params, SharedBackend())
    sample = of_sample(drawn(params, 1, seed=5), 0)
    theirs = full(engine, params, sample)
    t = theirs["t_cross"]
    for factor, agrees in [(1.009, True), (0.991, True), (1.011, False), (0.989, False)]:
        assert model.agrees(sample, {**theirs, "t_cross": factor * t}, theirs) is agrees
    assert not model.agrees(sample, {**theirs, "t_cross": float("nan")}, theirs)
    # far from the boundary another bit is an error
    assert not model.agrees(sample, {"bit": 0.0}, {"bit": 1.0})
    nothing = {"t_cross": float("nan")}
    assert model.agrees(sample, nothing, {"t_cross": 0.995 * params.t_sense})
    assert not model.agrees(sample, nothing, {"t_cross": 0.98 * params.t_sense})


def test_device_table_is_ngspice_at_points_between_its_own() -> None:
    """Current of a cell at random voltages, and of a resistor, whose current is known."""
    grid = Grid(
        gate=tuple(np.round(np.arange(0.0, 1.2001, 5e-3), 6).tolist()),
        body=(-0.1, 0.0, 0.1, 0.2, 0.3, 0.4),
        span=(-0.005, -0.001, *(1e-3 * v for v in SPAN if v <= 220)),
    )
    card = find_netlist("planar16lp", "models", ".lib").read_text()
    library = f".param dvthn=0 dvthp=0 mobn=1 mobp=1\n{card}"
    backend = SharedBackend()
    library += (
        ".subckt fet d g s b\nm1 d g s b cell w=100n l=30n\n.ends\n"
        ".subckt res d g s b\nr1 d s 20meg\nc1 s b 3f\nc2 g d 1f\n.ends\n"
    )
    calls = [f"{{drain}} {{gate}} {{source}} {{body}} {name}" for name in ("fet", "res")]
    tables = device_tables(library, calls, grid, 27.0, backend)
    np.testing.assert_allclose(np.exp(tables.values[1, ..., 0]), 1 / 20e6, rtol=1e-6)
    u, b, v = np.meshgrid(grid.gate, grid.body, grid.span, indexing="ij")
    drain, source = 1e-15 * (v - u), 3e-15 * b  # the gate is u, the body -b from the source
    np.testing.assert_allclose(tables.values[1, ..., 1], drain, rtol=0, atol=1e-20)
    np.testing.assert_allclose(tables.values[1, ..., 2], source, rtol=0, atol=1e-20)

    rng = np.random.default_rng(0)
    count = 60
    source = rng.uniform(0.0, 0.38, count)
    span = rng.uniform(0.002, 0.19, count)
    gate = source + rng.uniform(0.3, 1.1, count)
    lines = ["points", library, "vz z 0 0"]
    for k in range(count):
        lines += [
            f"vd{k} d{k} 0 {float(source[k] + span[k])!r}",
            f"vg{k} g{k} 0 {float(gate[k])!r}",
            f"vs{k} s{k} 0 {float(source[k])!r}",
            f"x{k} d{k} g{k} s{k} 0 fet",
        ]
    saved = tuple(f"i(vd{k})" for k in range(count))
    point = DcSweep(SweptSource("vz", 0.0, 0.0, 1))
    waves = backend.run(Deck("\n".join(lines), point, saved)).require_ok().waveforms
    expected = np.array([-waves[name][0] for name in saved])
    found = [_current(tables, grid, gate[k] - source[k], source[k], span[k]) for k in range(count)]
    np.testing.assert_allclose(found, expected, rtol=0.01)


def _current(tables: Any, grid: Grid, u: float, b: float, v: float) -> float:
    """Trilinear interpolation by SciPy, not by the compiled solver."""
    from scipy.interpolate import RegularGridInterpolator

    axes = (grid.gate, grid.body, grid.span)
    logarithm = RegularGridInterpolator(axes, tables.values[0, ..., 0])([[u, b, v]])[0]
    return float(v * np.exp(logarithm))
