"""The simulation's queues against a closed form of queueing theory."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.cost import latency
from nandcosim.systems.dnova.simulation import poisson_arrivals, simulate
from nandcosim.systems.dnova.trace import uniform_trace


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_wait_for_the_first_stage_is_that_of_a_queue_m_d_1(load: float) -> None:
    """One channel, stage 1 the longest: Pollaczek and Khinchine's mean wait, and none after it."""
    config = Config(nprobe=8, channels=1, host_latency=0.0)
    trace = uniform_trace(8000, [[0], [1], [2]], (100, 100, 100), (1, 8, 8), 768)
    activity = trace.activity(config)
    in_storage = ["array", "accumulate", "bus"]
    stages = latency(activity, config).isel(query=0).sel(component=in_storage).sum("component")
    service = stages.sel(stage=1).item()
    arrivals = poisson_arrivals(load / service, trace.nq, seed=11)
    wait = simulate(trace, config, arrivals=arrivals)["latency"].sel(part="queue")
    batches = wait.sel(stage=1).values.reshape(40, -1).mean(axis=1)  # nearly independent
    error = batches.std(ddof=1) / np.sqrt(batches.size)
    expected = load * service / (2 * (1 - load))
    assert batches.mean() == pytest.approx(expected, abs=4 * error)
    assert error < 0.1 * expected
    assert wait.sel(stage=2).max().item() < 1e-9
