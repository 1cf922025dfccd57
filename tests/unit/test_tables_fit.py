"""Fitting sensing sweeps with a known truth."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from nandcosim.errors import InputError
from nandcosim.intervals import wilson
from nandcosim.spice.status import Status
from nandcosim.tables import FitKind, fit
from tests.unit.tables_stores import (
    READ_SIGMA,
    SIZES,
    discharge_time,
    sensing_store,
    trip,
    with_spec,
    with_status,
)


def test_recovers_the_decision() -> None:
    dataset = fit(sensing_store(samples=2000)).dataset
    m = dataset["m"].values
    # four standard errors: false once in 15,000 draws, and the seed is fixed
    assert (abs(dataset.trip_margin - trip(m)) < 4 * dataset.trip_margin_se).all()
    assert (abs(dataset.read_sigma - READ_SIGMA) < 4 * dataset.read_sigma_se).all()
    assert (dataset.trip_margin_se < 0.01).all()
    spread = np.hypot(READ_SIGMA, dataset["sigma"])
    assert (abs(dataset.pass_spread - spread) < 4 * dataset.pass_spread_se).all()
    assert (dataset.fit_kind == FitKind.PROBIT).all()
    assert (dataset.fit_p_value > 1e-3).all()


def test_counts_and_proportions_are_those_of_the_samples() -> None:
    store = sensing_store(samples=50)
    dataset = fit(store).dataset
    assert (dataset.n == 50).all()
    assert (dataset.failed == 0).all()
    xr.testing.assert_equal(
        dataset.n_passed.drop_attrs(), (store.bit == 1).sum("sample").drop_attrs()
    )
    assert np.array_equal(dataset.pass_probability, store.bit.mean("sample"))
    low, high = wilson(dataset.n_passed, dataset.n)
    assert np.array_equal(dataset.pass_low, low)
    assert np.array_equal(dataset.pass_high, high)
    assert np.allclose(dataset.pass_residual, dataset.pass_probability - dataset.pass_fitted)
    modelled = norm.cdf((dataset.margin - dataset.pass_location) / dataset.pass_spread)
    assert np.allclose(modelled, dataset.pass_fitted.transpose("margin", "m", "sigma"))


def test_discharge_time_is_that_of_passing_samples() -> None:
    store = sensing_store(samples=200)
    dataset = fit(store).dataset
    passing = store.t_cross.where(store.bit == 1)
    assert np.allclose(dataset.discharge_time, passing.mean("sample"), equal_nan=True)
    assert np.array_equal(dataset.n_crossed + dataset.n_never_crossed, dataset.n)
    assert np.array_equal(dataset.n_crossed, store.t_cross.notnull().sum("sample"))
    assert (dataset.discharge_time.isnull() == (dataset.n_passed == 0)).all()
    known = dataset.sel(margin=1.5)
    expected = discharge_time(dataset["m"])
    assert (abs(known.discharge_time - expected) < 4 * known.discharge_time_se).all()
    assert (
        abs(known.discharge_penalty - 0.01 * (dataset["m"] - 1)) <= 4 * known.discharge_penalty_se
    ).all()
    assert (known.discharge_penalty.sel(m=1) == 0).all()
    assert (known.discharge_penalty_se.sel(m=1) == 0).all()


def test_a_sample_that_crossed_without_passing_does_not_enter_the_discharge_time() -> None:
    store = sensing_store(samples=20)
    where = {"margin": 10, "m": 0, "sigma": 0, "sample": 3}
    store["bit"][where] = 0.0
    store["t_cross"][where] = 1.0  # seconds: would be seen in the mean
    dataset = fit(store).dataset.isel(margin=10, m=0, sigma=0)
    assert float(dataset.discharge_time) < 1e-5
    assert int(dataset.discharge_time_n) == 19
    assert int(dataset.n_crossed) == 20


def test_energy_mean_and_error() -> None:
    store = sensing_store(samples=100)
    dataset = fit(store).dataset
    assert np.allclose(dataset.sense_energy, store.e_sense.mean("sample"), rtol=1e-13)
    error = store.e_sense.std("sample", ddof=1) / 10
    assert np.allclose(dataset.sense_energy_se, error, rtol=1e-6)
    assert dataset.sense_energy.attrs["units"] == "J"


def test_failed_samples_are_counted_and_widen_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = sensing_store(samples=40)
    where = {"margin": 4, "m": 1, "sigma": 0, "sample": [2, 5]}
    broken = with_status(store, Status.TIMEOUT, where)
    with caplog.at_level(logging.WARNING, "nandcosim"):
        table = fit(broken)
    assert "2 of 2640 samples failed (ok 2638, timeout 2)" in caplog.text
    here = table.dataset.isel(margin=4, m=1, sigma=0)
    assert (int(here.n), int(here.failed)) == (38, 2)
    assert int(table.dataset.failed.sum()) == 2
    whole = fit(store).dataset.isel(margin=4, m=1, sigma=0)
    assert here.pass_low <= whole.pass_low
    assert here.pass_high >= whole.pass_high
    assert json.loads(table.dataset.attrs["status_counts"])["timeout"] == 2


def test_too_many_failed_samples_are_refused() -> None:
    broken = with_status(sensing_store(samples=10), Status.NO_CONVERGENCE, {"sample": [0]})
    with pytest.raises(InputError, match=r"66 of 660 samples failed .*no_convergence 66.*0\.05"):
        fit(broken)
    assert int(fit(broken, max_failed=0.1).dataset.failed.min()) == 1


def test_all_failed_is_refused_whatever_the_limit() -> None:
    broken = with_status(sensing_store(samples=2), Status.CRASHED, {"sample": [0, 1]})
    with pytest.raises(InputError, match="no sample succeeded"):
        fit(broken, max_failed=1.0)


def test_unfinished_sweep_is_refused() -> None:
    store = with_status(sensing_store(samples=10), Status.NOT_RUN, {"sample": [8, 9]})
    with pytest.raises(InputError, match="132 of 660 samples have not been run"):
        fit(store)
    dataset = fit(store, allow_partial=True).dataset
    assert (dataset.n == 8).all()
    assert (dataset.not_run == 2).all()
    assert (dataset.failed == 0).all()


def test_axis_finer_than_the_noise_brackets_the_trip_margin() -> None:
    dataset = fit(sensing_store(samples=20, read_sigma=0.0)).dataset.sel(m=1)
    assert dataset.fit_kind.sel(sigma=0.0) == FitKind.SEPARATED
    assert (float(dataset.trip_margin_low), float(dataset.trip_margin_high)) == (0.0, 0.25)
    assert float(dataset.trip_margin) == 0.125
    assert float(dataset.read_sigma) == 0.0
    assert 0 < float(dataset.read_sigma_high) < 0.25


def test_without_exact_cells_there_is_no_read_noise() -> None:
    table = fit(sensing_store(samples=50, sigmas=(0.1, 0.2)))
    assert "read_sigma" not in table.dataset
    with pytest.raises(InputError, match=r"read_sigma was not fitted: .*smallest sigma is 0\.1"):
        table.lookup("read_sigma", m=1)
    chosen = table.dataset.pass_location.sel(sigma=0.1)
    assert np.array_equal(table.dataset.trip_margin, chosen)


def test_read_noise_needs_no_axis_when_the_cells_never_vary() -> None:
    store = sensing_store(samples=50, sigmas=(0.0,)).isel(sigma=0, drop=True)
    amplifier = [{"target": "sa_n", "distribution": "normal", "mean": 0.0, "std": 0.01}]
    assert fit(with_spec(store, random=amplifier)).dataset.read_sigma.dims == ("m",)
    cells = [{"target": "threshold", "distribution": "normal", "mean": 0.0, "std": 0.2}]
    assert "read_sigma" not in fit(with_spec(store, random=cells)).dataset


def test_corners_are_fitted_apart() -> None:
    dataset = fit(sensing_store(samples=100, corners=("tt", "ss"))).dataset
    assert dataset.trip_margin.dims == ("corner", "m")
    assert dataset.corner.attrs["interpolation"] == "exact"
    assert dataset.discharge_penalty.dims == ("corner", "margin", "m", "sigma")


def test_axes_are_sorted_and_say_how_they_are_read() -> None:
    store = sensing_store(samples=30)
    shuffled = store.isel(margin=[3, 0, 1, 2, *range(10, 3, -1)])
    assert np.array_equal(fit(shuffled).dataset.pass_fitted, fit(store).dataset.pass_fitted)
    kinds = {n: fit(store).dataset[n].attrs["interpolation"] for n in ("margin", "m", "sigma")}
    assert kinds == {"margin": "linear", "m": "exact", "sigma": "linear"}


def test_shared_random_numbers_are_recognised() -> None:
    shared = fit(sensing_store(samples=200, common_random_numbers=True)).dataset
    apart = fit(sensing_store(samples=200)).dataset
    assert (shared.trip_margin_se > 1.2 * apart.trip_margin_se).all()
    assert shared.attrs["common_random_numbers"] == 1


def test_missing_responses_are_named() -> None:
    dataset = fit(sensing_store(samples=20)[["status", "bit"]]).dataset
    assert "trip_margin" in dataset
    assert set(json.loads(dataset.attrs["not_fitted"])) == {"discharge_time", "sense_energy"}
    dataset = fit(sensing_store(samples=20)[["status", "e_sense"]]).dataset
    assert "sense_energy" in dataset
    assert "pass_probability" in json.loads(dataset.attrs["not_fitted"])


def test_other_circuits_get_means_and_counts() -> None:
    store = with_spec(sensing_store(samples=30), circuit="something_else")
    dataset = fit(store).dataset
    assert np.allclose(dataset.e_sense, store.e_sense.mean("sample"), rtol=1e-13)
    assert np.array_equal(dataset.t_cross_n, store.t_cross.notnull().sum("sample"))
    assert {"e_sense_se", "e_sense_sd", "n", "failed"} <= set(dataset.data_vars)
    assert "pass_probability" not in dataset


def test_provenance() -> None:
    store = sensing_store(samples=20)
    store.attrs["runs"] = [{"versions": {"ngspice": "39"}}, {"versions": {"ngspice": "39"}}]
    attributes = fit(store).dataset.attrs
    assert attributes["circuit"] == "dts_sense"
    assert json.loads(attributes["spec"])["samples"] == 20
    assert json.loads(attributes["versions"]) == [{"ngspice": "39"}]
    assert attributes["store_digest"] == fit(store.copy(deep=True)).dataset.attrs["store_digest"]
    changed = with_status(store, Status.TIMEOUT, {"margin": 0, "m": 0, "sigma": 0, "sample": 0})
    assert attributes["store_digest"] != fit(changed).dataset.attrs["store_digest"]


def test_digest_ignores_when_it_was_fitted() -> None:
    store = sensing_store(samples=20)
    table, later = fit(store), fit(store)
    later.dataset.attrs["created"] = "2100-01-01T00:00:00+00:00"
    assert later.digest == table.digest
    later.dataset["n"][0, 0, 0] += 1
    assert later.digest != table.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.drop_attrs(), "no attribute 'spec'"),
        (lambda s: s.assign_attrs(spec="{"), "no attribute 'spec'"),
        (lambda s: s.drop_vars("status"), "no variable 'status'"),
        (lambda s: s.drop_vars("m"), "axis 'm' has no coordinate"),
        (lambda s: s.assign(bit=s.bit.isel(m=0, drop=True)), "bit has dims"),
        (lambda s: s.assign(bit=s.bit + 1), "neither 0 nor 1"),
    ],
)
def test_what_is_no_sweep_is_refused(change: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(change(sensing_store(samples=2)))  # type: ignore[operator]


def test_the_store_is_left_as_it_is() -> None:
    store = sensing_store(samples=5)
    before = store.copy(deep=True)
    fit(store)
    xr.testing.assert_identical(store, before)


def test_sizes_of_the_table() -> None:
    table = fit(sensing_store(samples=5))
    assert table.sizes == {"margin": 11, "m": len(SIZES), "sigma": 2}
    assert "dts_sense" in repr(table)


def strings_store(**changes: object) -> xr.Dataset:
    """Three positions of four strings: one passes at all, one fails at one, two are in doubt."""
    store = sensing_store(samples=4, margins=(0.5,), sizes=(1,), sigmas=(0.2,))
    whole = xr.concat([store] * 3, xr.IndexVariable("position", [0.0, 0.5, 1.0]))
    whole = whole.transpose(*store["bit"].dims[:-1], "position", "sample")
    whole["bit"][...] = 1.0
    whole["bit"][..., 1, 1] = 0.0
    whole["bit"][..., 2, 2] = 0.0
    whole["status"][..., 0, 2] = int(Status.TIMEOUT)
    whole["status"][..., 0, 3] = int(Status.TIMEOUT)
    return with_spec(whole, common_random_numbers=True, **changes)


def test_a_string_passes_if_it_passes_at_every_position() -> None:
    """Of four strings one passes, two fail at a known place, one is not known."""
    table = fit(strings_store(), max_failed=0.5).dataset
    assert table.string_pass_probability.dims == ("margin", "m", "sigma")
    assert table.n_strings.item() == 3
    assert table.string_pass_probability.item() == pytest.approx(1 / 3)
    low, high = wilson(1, 3, 1)
    assert table.string_pass_low.item() == low
    assert table.string_pass_high.item() == high


def test_strings_need_the_same_sample_at_every_position() -> None:
    table = fit(with_spec(strings_store(), common_random_numbers=False), max_failed=0.5).dataset
    assert "string_pass_probability" not in table
    assert (
        "common_random_numbers" in json.loads(table.attrs["not_fitted"])["string_pass_probability"]
    )
