"""A sweep with the fast engine through Dask: chunks, interruption, crashes, failed samples."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from nandcosim.spice.status import Status
from nandcosim.sweep import draw, load_circuit, open_store, run_sweep, store_digest
from nandcosim.sweep.chunk import EngineUsed

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # fast_circuits_for_tests

from fast_circuits_for_tests import SAMPLES, spec_of  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            memory_limit=0,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_chunks_and_interruption_do_not_matter(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        whole = run_sweep(spec_of(), tmp_path / "whole.zarr", client=client, chunk=SAMPLES)
    assert "the fast engine disagrees with ngspice" in caplog.text
    run_sweep(spec_of(), tmp_path / "parts.zarr", client=client, chunk=10, max_chunks=3)
    done = open_store(tmp_path / "parts.zarr").status != Status.NOT_RUN
    assert 0 < int(done.sum()) < done.size
    parts = run_sweep(spec_of(), tmp_path / "parts.zarr", client=client)
    assert store_digest(whole) == store_digest(parts)
    assert set(np.unique(open_store(whole).engine)) == set(EngineUsed)


def test_a_crash_costs_one_sample_and_what_failed_is_run_again(tmp_path: Path) -> None:
    random = [
        {"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1},
        {"target": "kill", "distribution": "normal", "mean": -1.0, "std": 1.0},
    ]
    # ngspice is to run many: the model is valid for half of the samples
    spec = spec_of("FastKilling", parameters={"valid_below": 0.0}, axes={}, random=random)
    circuit = load_circuit(spec.circuit)
    drawn = [draw(spec, circuit, 0, k)[1] for k in range(SAMPLES)]
    kills = np.array([knobs["kill"][0] > 0 for knobs in drawn])
    store = run_sweep(spec, tmp_path / "s.zarr", workers=1)
    data = open_store(store).load()
    in_ngspice = data.engine.values != EngineUsed.FAST
    assert (kills & in_ngspice).any(), "the seed no longer has the case"
    assert (kills & ~in_ngspice).any(), "the seed no longer has the case"
    expected = np.where(kills & in_ngspice, Status.CRASHED, Status.OK)
    np.testing.assert_array_equal(data.status, expected)
    run_sweep(spec, tmp_path / "s.zarr", workers=1, retry_failed=True)
    again = open_store(store).load()
    np.testing.assert_array_equal(again.status, expected)
    np.testing.assert_array_equal(again.engine, data.engine)
    np.testing.assert_array_equal(again.t_half, data.t_half)
