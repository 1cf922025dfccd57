"""The misread of a real string: ngspice's rare-event estimate against brute force.

The brute force is the fast engine's, which shares no code with ngspice's transient. Strings
are short, so that a one-in-a-thousand event can be counted in seconds; the seeds are fixed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from nandcosim.spice.engine import Engine
from nandcosim.sweep import load_circuit, parse_spec, run_sweep
from nandcosim.sweep.plan import estimates
from nandcosim.sweep.sampling import dimensions
from nandcosim.sweep.spec import SweepSpec, base_params

SWEEP = Path(__file__).parents[2] / "sweeps" / "dts_misread.toml"
CELLS = 32
STRINGS = 40_000
BATCH = 20_000
PRECISION = 0.15


@pytest.fixture(scope="module")
def spec() -> SweepSpec:
    """The shipped sweep at its frequent margin, on short strings, to what can be counted."""
    document = tomllib.loads(SWEEP.read_text())
    document["axes"]["margin"] = [0.3]
    document["parameters"]["cells"] = CELLS
    document["rare"]["precision"] = PRECISION
    return parse_spec(document)


def counted(spec: SweepSpec) -> int:
    """Misreads among `STRINGS` strings of the fast engine."""
    circuit, engine = load_circuit(spec.circuit), Engine()
    params = base_params(spec, circuit, spec.coordinates(0))
    sizes = {knob.name: knob.size(params) for knob in circuit.knobs}
    rng = np.random.default_rng(spec.seed)
    misreads = 0
    try:
        model = engine.fast(circuit, params)
        assert model is not None
        assert spec.rare is not None
        for _ in range(STRINGS // BATCH):
            knobs = {name: np.zeros((BATCH, size)) for name, size in sizes.items()}
            for entry in spec.random:
                shape = knobs[entry.target].shape
                knobs[entry.target] = entry.values({})["std"] * rng.standard_normal(shape)
            found = model.sample_many(knobs)
            assert found.valid.all()
            misreads += int(spec.rare.failure.holds(found.responses["bit"]).sum())
    finally:
        engine.close()
    return misreads


@pytest.mark.long
def test_importance_sampling_in_ngspice_finds_the_rate_that_is_counted(
    spec: SweepSpec, tmp_path: Path
) -> None:
    store = run_sweep(spec, tmp_path / "s.zarr", workers=2)
    (estimate,) = estimates(store)
    assert estimate is not None
    assert estimate.converged, estimate
    assert estimate.centres.shape[1] == dimensions(spec, load_circuit(spec.circuit), 0)
    misreads = counted(spec)
    plain = misreads / STRINGS
    assert 3e-4 < plain < 1e-2
    error = np.hypot(estimate.standard_error, plain / np.sqrt(misreads))
    assert abs(estimate.probability - plain) < 3 * error
    assert estimate.standard_error <= PRECISION * estimate.probability
