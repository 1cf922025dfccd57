"""Sweeps that ask for a precision or a rare event, through ngspice and Dask."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from scipy.stats import norm

from nandcosim.errors import InputError
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit, open_store, parse_spec, run_sweep, status
from nandcosim.sweep.plan import chosen_scores, estimates
from nandcosim.sweep.rare.contract import Stage
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore
from nandcosim.tables import fit

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

#: Relative spread of each of the two resistors; that of their sum is SPREAD / sqrt(2).
SPREAD = 0.1


def slow(beta: float) -> str:
    """The event that an RC discharge is slower than by `beta` standard deviations."""
    return f"v_end > {math.exp(-1 / (1 + beta * SPREAD / math.sqrt(2)))!r} V"


def spec_of(**changes: Any) -> SweepSpec:
    document: dict[str, Any] = {
        "circuit": "circuits_for_tests:RCDischarge",
        "samples": 3000,
        "seed": 3,
        "random": [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": SPREAD}],
    }
    return parse_spec({**document, **changes})


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def data_of(path: Any) -> xr.Dataset:
    return open_store(path).load().drop_attrs()


# -------------------------------------------------------------- rare events


@pytest.mark.parametrize(
    ("method", "most", "ratio"), [("importance", 3000, 2.5), ("subset", 6000, 8.0)]
)
def test_rare_event_of_an_exactly_solvable_circuit(
    method: str, most: int, ratio: float, client: Client, tmp_path: Path
) -> None:
    """P(slow) = Phi(-beta) to what ngspice's time steps do."""
    betas = [norm.isf(1e-3), norm.isf(1e-7)]
    for beta in betas:
        rare = {"failure": slow(beta), "method": method, "precision": 0.2}
        spec = spec_of(rare=rare, samples=most)
        store = run_sweep(spec, tmp_path / f"{beta:g}.zarr", client=client)
        (found,) = estimates(store)
        assert found is not None
        assert found.low < norm.sf(beta) < found.high, found
        assert found.high < ratio * found.low
        assert found.runs == status(store)["total"] == status(store)["done"]
        assert status(store)["plan"]["complete"]


def test_table_of_a_rare_event(client: Client, tmp_path: Path) -> None:
    spec = spec_of(
        rare={"failure": slow(4.5)}, axes={"sigma": [SPREAD, 0.9 * SPREAD]},
        random=[{"target": "excess", "distribution": "normal", "mean": 0.0, "std": "sigma"}],
    )  # fmt: skip
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    table = fit(store)
    found = table.dataset
    exact = norm.sf(4.5 * SPREAD / found.sigma)
    assert (found.probability_low < exact).all()
    assert (found.probability_high > exact).all()
    assert (found.probability_se <= 0.1 * found.probability).all()
    assert (found.effective_samples > 50).all()
    np.testing.assert_allclose(found.beta, 4.5 * SPREAD / found.sigma, rtol=0.01)


def test_weights_in_the_store_give_the_estimate(client: Client, tmp_path: Path) -> None:
    """What a reader makes of the samples with xarray alone is what the method says."""
    spec = spec_of(rare={"failure": slow(norm.isf(1e-5))})
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    (estimate,) = estimates(store)
    assert estimate is not None
    data = data_of(store)
    counts = (data.stage == Stage.SAMPLE) & np.isfinite(data.log_weight)
    assert spec.rare is not None
    event = data.v_end > spec.rare.failure.value
    weighted = (np.exp(data.log_weight) * event).where(counts)
    assert float(weighted.mean()) == pytest.approx(estimate.probability, rel=1e-9)


def test_rare_event_is_continued_where_it_was_stopped(client: Client, tmp_path: Path) -> None:
    """Stopped again and again, cut otherwise, with other workers: the same bits."""
    spec = spec_of(rare={"failure": slow(4.0)}, samples=600)
    whole = run_sweep(spec, tmp_path / "whole.zarr", client=client)
    path, parts = tmp_path / "parts.zarr", 0
    while not (path.exists() and status(path)["plan"].get("complete")):
        run_sweep(spec, path, client=client, chunk=50, max_chunks=5)
        parts += 1
    assert parts > 2
    xr.testing.assert_identical(data_of(path), data_of(whole))
    assert estimates(SweepStore.open(path))[0].probability == estimates(whole)[0].probability  # type: ignore[union-attr]


def test_scores_of_a_rare_sample_make_it_again(client: Client, tmp_path: Path) -> None:
    spec = spec_of(rare={"failure": slow(4.0)}, samples=600)
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    (total,) = store.wanted()
    last = int(total) - 1
    scores = chosen_scores(store, load_circuit(spec.circuit), 0, (0, last))
    assert scores is not None
    delay = 1e-6 * np.log(2) * (1 + SPREAD * scores.mean(axis=1))
    found = data_of(store).t_half.values[[0, last]]
    np.testing.assert_allclose(found, delay, rtol=1e-4)
    with pytest.raises(InputError, match="the plan has not come to it"):
        chosen_scores(store, load_circuit(spec.circuit), 0, (int(total),))


def test_failed_samples_widen_and_cannot_be_run_again(client: Client, tmp_path: Path) -> None:
    kill = {"target": "kill", "distribution": "normal", "mean": -2.0, "std": 1.0}
    random = [*spec_of().model_dump(mode="json", exclude_none=True)["random"], kill]
    spec = spec_of(
        circuit="circuits_for_tests:RaisingCircuit", rare={"failure": slow(3.0)},
        random=random, samples=800,
    )  # fmt: skip
    path = tmp_path / "s.zarr"
    store = run_sweep(spec, path, client=client)
    (found,) = estimates(store)
    assert found is not None
    assert status(store)["counts"]["deck_error"] > 0
    assert found.low < norm.sf(3.0) < found.high
    with pytest.raises(InputError, match="failed samples of a rare event"):
        run_sweep(spec, path, client=client, retry_failed=True)


# -------------------------------------------------------------- precision


def test_precision_is_reached_at_every_point(client: Client, tmp_path: Path) -> None:
    spec = spec_of(
        axes={"capacitance": ["1 nF", "2 nF"], "sigma": [0.02, 0.1]},
        random=[{"target": "excess", "distribution": "normal", "mean": 0.0, "std": "sigma"}],
        precision={"response": "t_half", "relative": 0.01},
    )
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    data = data_of(store)
    done = data.status == Status.OK
    assert (done.sum("sample") == data.wanted).all()
    half_width = 1.96 * data.t_half.std("sample", ddof=1) / np.sqrt(data.wanted)
    assert (half_width <= 0.0101 * data.t_half.mean("sample")).all()
    assert (data.wanted.sel(sigma=0.1) > data.wanted.sel(sigma=0.02)).all()
    plan = status(store)["plan"]
    assert plan["complete"]
    assert plan["runs"] == int(data.wanted.sum()) < plan["uniform_runs"]
    # sample k is the one that an ordinary sweep has
    plain = run_sweep(
        spec_of(axes={"capacitance": ["1 nF", "2 nF"], "sigma": [0.02, 0.1]}, samples=50,
                random=spec.model_dump(mode="json", exclude_none=True)["random"]),
        tmp_path / "plain.zarr", client=client,
    )  # fmt: skip
    xr.testing.assert_identical(data_of(plain).t_half, data.t_half.isel(sample=slice(50)))


def test_precision_is_continued_where_it_was_stopped(client: Client, tmp_path: Path) -> None:
    spec = spec_of(
        axes={"resistance": [500.0, 1000.0, 2000.0]}, samples=300,
        precision={"response": "v_end", "half_width": "5 mV", "start": 20},
    )  # fmt: skip
    whole = run_sweep(spec, tmp_path / "whole.zarr", client=client)
    path, parts = tmp_path / "parts.zarr", 0
    while not (path.exists() and status(path)["plan"].get("complete")):
        run_sweep(spec, path, client=client, chunk=10, max_chunks=4)
        parts += 1
    assert parts > 2
    xr.testing.assert_identical(data_of(path), data_of(whole))
    assert status(path)["plan"] == status(whole)["plan"]


def test_refined_grid_reaches_the_table(client: Client, tmp_path: Path) -> None:
    """The time is a straight line in R and curved in V(end): values come where it bends."""
    spec = spec_of(
        axes={"resistance": {"start": 200.0, "stop": 5000.0, "num": 33, "spacing": "log"}},
        random=[], samples=40,
        precision={"response": "t_half", "half_width": "10 ns", "start": 20,
                   "refine": ["resistance"], "first": 5, "tolerance": "5 ns"},
    )  # fmt: skip
    store = run_sweep(spec, tmp_path / "s.zarr", client=client)
    table = fit(store).dataset
    assert 5 <= table.sizes["resistance"] < 33
    assert status(store)["plan"]["active"] == table.sizes["resistance"]
