"""The tables that ship are those that their sweeps and the present netlists make."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nandcosim.spice.netlists import data_folder, digest
from nandcosim.spice.status import Status
from nandcosim.sweep import SweepSpec, load_spec
from nandcosim.sweep.chunk import Chunk, ChunkResult, Job
from nandcosim.sweep.worker import simulate_chunk
from nandcosim.tables import load_tables

TABLES = load_tables()

#: Points of every table whose sample 0 is simulated again.
POINTS = 12


def spec_of(name: str) -> SweepSpec:
    return load_spec(data_folder("sweeps") / f"{name}.toml")


def simulate(spec: SweepSpec, point: int, count: int) -> ChunkResult:
    """The first samples of a grid point, with the engine of the sweep."""
    chunk = Chunk(point, 0, count, tuple(range(count)))
    return simulate_chunk(Job(spec.canonical_json(), chunk, "shared", 60.0))


@pytest.mark.parametrize("name", TABLES)
def test_it_was_made_from_the_netlists_that_ship(name) -> None:
    folder = data_folder("netlists")
    recorded = json.loads(TABLES[name].dataset.attrs["netlists"])
    assert recorded == {file: digest(folder / file) for file in recorded}


@pytest.mark.parametrize("name", TABLES)
def test_it_was_made_by_the_sweep_that_ships(name) -> None:
    recorded = json.loads(TABLES[name].dataset.attrs["spec"])
    assert recorded == json.loads(spec_of(name).canonical_json())


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_its_samples_can_be_made_again(name) -> None:
    """The same bits; times, currents and energies to 1e-6."""
    spec, table = spec_of(name), TABLES[name].dataset
    # the fast engine's unit of work is a block: one of its samples is checked by ngspice
    count = 1 if spec.engine == "ngspice" else spec.block
    chosen = np.unique(np.linspace(0, spec.points - 1, POINTS).astype(int))
    for point in map(int, chosen):
        made = simulate(spec, point, count)
        here = table.sel(spec.coordinates(point))
        for response in spec.responses:
            expected = float(here[f"first_{response}"])
            assert made.responses[response][0] == pytest.approx(
                expected, rel=1e-6, abs=0, nan_ok=True
            )


@pytest.mark.long
@pytest.mark.parametrize(("margin", "m", "sigma"), [(0.42, 8, 0.0)])
def test_a_slice_of_the_sensing_table_can_be_made_again(margin, m, sigma) -> None:
    """All samples of a point: the same counts and means."""
    spec = spec_of("dts_sense")
    wanted = {"margin": margin, "m": m, "sigma": sigma}
    point = next(p for p in range(spec.points) if spec.coordinates(p) == wanted)
    made = simulate(spec, point, spec.samples)
    assert (made.status == Status.OK).all()
    found = TABLES["dts_sense"].dataset.sel(wanted)
    bits, times = made.responses["bit"], made.responses["t_cross"]
    assert bits.sum() == found.n_passed
    assert np.isfinite(times).sum() == found.n_crossed
    passing = times[(bits == 1) & np.isfinite(times)]
    assert passing.mean() == pytest.approx(float(found.discharge_time), rel=1e-6, abs=0)
