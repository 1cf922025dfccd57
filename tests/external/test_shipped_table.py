"""The table that ships is the one its sweep and the present netlists make."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest

from nandcosim.spice.engine import Engine
from nandcosim.spice.netlists import data_folder, digest
from nandcosim.spice.status import Status
from nandcosim.sweep import draw, load_circuit, load_spec
from nandcosim.tables import CalibrationTable, load_tables


@pytest.fixture(scope="module")
def table() -> CalibrationTable:
    return load_tables()["dts_sense"]


def attribute(table: CalibrationTable, name: str):
    """Attributes of a file are text: JSON, or what Python wrote."""
    value = table.dataset.attrs[name]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return ast.literal_eval(value)


def test_it_was_made_from_the_netlists_that_ship(table) -> None:
    folder = data_folder("netlists")
    recorded = attribute(table, "netlists")
    assert recorded
    assert recorded == {name: digest(folder / name) for name in recorded}


def test_it_was_made_by_the_sweep_that_ships(table) -> None:
    spec = load_spec(data_folder("sweeps") / "dts_sense.toml")
    assert attribute(table, "spec") == json.loads(spec.canonical_json())


@pytest.mark.long
@pytest.mark.parametrize(("margin", "m", "sigma"), [(0.4, 8, 0.2), (0.5, 1, 0.0)])
def test_a_slice_of_it_can_be_made_again(table, margin, m, sigma) -> None:
    """The same bits; times and energies to 1e-6."""
    spec = load_spec(data_folder("sweeps") / "dts_sense.toml")
    circuit = load_circuit("dts_sense")
    wanted = {"margin": margin, "m": m, "sigma": sigma}
    point = next(p for p in range(spec.points) if spec.coordinates(p) == wanted)
    engine = Engine()
    outcomes = []
    for k in range(spec.samples):
        params, knobs = draw(spec, circuit, point, k)
        outcomes.append(engine.sample(circuit, params, knobs, frozenset(spec.responses)))
    assert all(outcome.status is Status.OK for outcome in outcomes)
    found = table.dataset.sel(wanted)
    bits = np.array([outcome.responses["bit"] for outcome in outcomes])
    assert bits.sum() == found.n_passed
    times = np.array([outcome.responses["t_cross"] for outcome in outcomes])
    assert np.isfinite(times).sum() == found.n_crossed
    passing = times[(bits == 1) & np.isfinite(times)]
    assert passing.mean() == pytest.approx(float(found.discharge_time), rel=1e-6)
    energies = [outcome.responses["e_sense"] for outcome in outcomes]
    assert np.mean(energies) == pytest.approx(float(found.sense_energy), rel=1e-6)
