"""Tables of sweeps whose points took as many samples as they needed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.intervals import wilson
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import EngineUsed
from nandcosim.tables import CalibrationTable, FitKind, fit
from tests.unit.tables_stores import READ_SIGMA, sensing_store, trip, with_spec, with_status

PLAN = {"complete": True, "runs": 1234, "uniform_runs": 9000, "saved": 0.86}


def planned(store: xr.Dataset, wanted: np.ndarray, **plan: Any) -> xr.Dataset:
    """A copy that asked for `wanted` samples of every point, and did not run more."""
    counts = xr.DataArray(wanted, dims=store["status"].dims[:-1])
    beyond = xr.DataArray(np.arange(store.sizes["sample"]), dims="sample") >= counts
    changed = store.copy(deep=True)
    for name, missing in (("status", int(Status.NOT_RUN)), ("bit", np.nan), ("e_sense", np.nan)):
        changed[name] = store[name].where(~beyond, missing).transpose(*store[name].dims)
    changed["status"] = changed["status"].astype(np.int8)
    changed["t_cross"] = store["t_cross"].where(~beyond).transpose(*store["t_cross"].dims)
    changed["wanted"] = counts.astype(np.int64)
    asked = with_spec(changed, precision={"response": "bit", "half_width": 0.05})
    return asked.assign_attrs(plan=PLAN | plan)


def uneven(store: xr.Dataset) -> np.ndarray:
    """Counts between a third of the samples and all of them."""
    shape, most = store["status"].shape[:-1], store.sizes["sample"]
    return np.random.default_rng(6).integers(most // 3, most + 1, size=shape)


def test_points_are_fitted_from_the_samples_they_have() -> None:
    store = sensing_store(samples=600)
    wanted = uneven(store)
    dataset = fit(planned(store, wanted)).dataset
    assert np.array_equal(dataset["wanted"], wanted)
    assert np.array_equal(dataset["n"], wanted)
    assert int(dataset["failed"].sum()) == 0
    assert "not_run" not in dataset
    asked = xr.DataArray(np.arange(600), dims="sample") < dataset["wanted"]
    passes = (store["bit"].where(asked) == 1).sum("sample")
    assert np.array_equal(dataset["n_passed"], passes)
    assert np.allclose(dataset["pass_probability"], passes / wanted)
    assert np.array_equal(dataset["pass_low"], wilson(passes, wanted)[0])
    energy = store["e_sense"].where(asked)
    assert np.allclose(dataset["sense_energy"], energy.mean("sample"), rtol=1e-13)
    error = energy.std("sample", ddof=1) / np.sqrt(wanted)
    assert np.allclose(dataset["sense_energy_se"], error, rtol=1e-6)
    assert json.loads(dataset.attrs["plan"]) == PLAN
    assert json.loads(dataset.attrs["status_counts"]) == {"ok": int(wanted.sum())}


@pytest.mark.parametrize("shared", [False, True], ids=["independent", "common random numbers"])
def test_the_decision_is_found_from_uneven_counts(shared: bool) -> None:
    store = sensing_store(samples=2000, common_random_numbers=shared)
    dataset = fit(planned(store, uneven(store))).dataset
    assert (dataset["fit_kind"] == FitKind.PROBIT).all()
    error = abs(dataset["trip_margin"] - trip(dataset["m"].values))
    assert (error < 4 * dataset["trip_margin_se"]).all()
    assert (abs(dataset["read_sigma"] - READ_SIGMA) < 4 * dataset["read_sigma_se"]).all()


def test_values_that_the_plan_did_not_take_up_are_no_part_of_the_table() -> None:
    store = sensing_store(samples=100)
    wanted = np.full(store["status"].shape[:-1], 80)
    wanted[[1, 2, 5]] = 0
    shuffled = planned(store, wanted).isel(margin=[3, 0, 1, 2, *range(10, 3, -1)])
    table = fit(shuffled)
    kept = np.delete(store["margin"].values, [1, 2, 5])
    assert np.array_equal(table.dataset["margin"], kept)
    assert (table.dataset["wanted"] == 80).all()
    whole = fit(store.isel(margin=[0, 3, 4, 6, 7, 8, 9, 10], sample=slice(0, 80)))
    for name in ("pass_probability", "pass_location", "discharge_penalty", "sense_energy"):
        assert np.array_equal(table.dataset[name], whole.dataset[name], equal_nan=True)


def test_a_plan_that_goes_on_is_refused() -> None:
    store = sensing_store(samples=50)
    going_on = planned(store, uneven(store), complete=False)
    with pytest.raises(InputError, match=r"the plan is not complete after \d+ samples; run the"):
        fit(going_on)
    assert isinstance(fit(going_on, allow_partial=True), CalibrationTable)
    del going_on.attrs["plan"]
    with pytest.raises(InputError, match="the plan is not complete"):
        fit(going_on)


def test_only_samples_asked_for_can_be_missing() -> None:
    store = sensing_store(samples=50)
    wanted = np.full(store["status"].shape[:-1], 30)
    broken = planned(store, wanted)
    broken["status"][0, 0, 0, [3, 4]] = int(Status.NOT_RUN)
    with pytest.raises(InputError, match=f"2 of {wanted.sum()} samples have not been run"):
        fit(broken)
    dataset = fit(broken, allow_partial=True).dataset
    assert int(dataset["not_run"].sum()) == 2
    assert json.loads(dataset.attrs["status_counts"])["not_run"] == 2


def test_failed_samples_of_uneven_counts() -> None:
    store = sensing_store(samples=60)
    failing = with_status(store, Status.TIMEOUT, {"margin": 4, "sample": [0, 59]})
    wanted = np.full(store["status"].shape[:-1], 60)
    wanted[4] = 40
    dataset = fit(planned(failing, wanted)).dataset
    assert (dataset["failed"].isel(margin=4) == 1).all()
    assert (dataset["n"].isel(margin=4) == 39).all()
    assert int(dataset["failed"].sum()) == dataset["failed"].isel(margin=4).size


def test_samples_that_were_not_run_had_no_engine() -> None:
    store = sensing_store(samples=20)
    made = np.full(store["status"].shape, EngineUsed.FAST, np.int8)
    wanted = np.full(store["status"].shape[:-1], 20)
    wanted[0] = 10
    made[0, ..., 10:] = EngineUsed.NGSPICE  # the value of what was never written
    fast = planned(store, wanted).assign(engine=(store["status"].dims, made))
    counts = json.loads(fit(fast).dataset.attrs["fast_engine"])["samples"]
    assert counts["ngspice"] == 0
    assert counts["fast"] == wanted.sum()


def test_counts_over_other_axes_are_refused() -> None:
    store = sensing_store(samples=5)
    broken = planned(store, np.full(store["status"].shape[:-1], 5))
    with pytest.raises(InputError, match="wanted has dims"):
        fit(broken.assign(wanted=broken["wanted"].isel(m=0, drop=True)))


def test_strings_count_if_they_were_run_at_every_position() -> None:
    """One position took twice the samples of the others, because more of its reads fail."""
    one = sensing_store(samples=8, margins=(0.5,), sizes=(1,), sigmas=(0.2,))
    store = xr.concat([one] * 3, xr.IndexVariable("position", [0.0, 0.5, 1.0]))
    store = store.transpose(*one["bit"].dims[:-1], "position", "sample")
    store["bit"][...] = 1.0
    store["bit"][..., 1, [0, 5, 6, 7]] = 0.0
    wanted = np.array([4, 8, 4]).reshape(1, 1, 1, 3)
    asked = with_spec(planned(store, wanted), common_random_numbers=True)
    table = fit(asked).dataset
    assert table["n_strings"].item() == 4
    assert table["string_pass_probability"].item() == 3 / 4
    assert table["string_pass_high"].item() == wilson(3, 4)[1]
