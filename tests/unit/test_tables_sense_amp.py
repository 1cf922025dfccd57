"""The page buffer's fit on stores with a known truth."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from nandcosim.intervals import wilson
from nandcosim.spice.status import Status
from nandcosim.tables import fit


def store(offsets: np.ndarray) -> xr.Dataset:
    """Two overdrives, 0 and 10 mV; a decision passes where the trip point is above the bitline."""
    overdrive = np.array([0.0, 0.01])
    shape = (2, offsets.size)
    excess = overdrive[:, None] + offsets
    delay = np.where(excess > 0, 1e-9 / np.maximum(excess, 1e-6), np.nan)
    dims = ("overdrive", "sample")
    return xr.Dataset(
        {
            "status": (dims, np.zeros(shape, dtype=np.int8)),
            "offset": (dims, np.broadcast_to(offsets, shape).copy(), {"units": "V"}),
            "bit": (dims, (excess > 0).astype(float), {"units": "1"}),
            "t_delay": (dims, delay, {"units": "s"}),
        },
        coords={"overdrive": ("overdrive", overdrive, {"units": "V"})},
        attrs={"spec": json.dumps({"circuit": "sense_amp", "samples": offsets.size, "seed": 1})},
    )


@pytest.fixture(scope="module")
def normal() -> np.ndarray:
    return 0.017 * np.random.default_rng(8).standard_normal(4000) + 0.003


def test_offset_distribution_is_recovered(normal) -> None:
    table = fit(store(normal)).dataset
    assert np.allclose(abs(table.offset - 0.003) < 4 * table.offset_se, True)
    assert (abs(table.offset_sd - 0.017) < 4 * table.offset_sd_se).all()
    # of a normal distribution: sigma / sqrt(2 n)
    assert np.allclose(table.offset_sd_se, 0.017 / np.sqrt(8000), rtol=0.1)
    assert np.allclose(table.offset_skewness, stats.skew(normal))
    assert (table.offset_p_value > 0.01).all()


def test_offset_that_is_not_normal_is_seen() -> None:
    heavy = 0.01 * np.random.default_rng(8).standard_t(4, 4000)
    table = fit(store(heavy)).dataset
    assert (table.offset_kurtosis > 1).all()
    assert (table.offset_p_value < 1e-6).all()
    assert (table.offset_sd_se > 0.01 / np.sqrt(8000)).all()


def test_decisions_are_counted_and_delays_are_of_those_that_pass(normal) -> None:
    data = store(normal)
    table = fit(data).dataset
    assert np.array_equal(table.pass_probability, data.bit.mean("sample"))
    low, high = wilson(data.bit.sum("sample"), table.n)
    assert np.array_equal(table.pass_low, low)
    assert np.array_equal(table.pass_high, high)
    assert np.array_equal(table.t_delay_n, data.bit.sum("sample"))
    assert np.array_equal(table.t_delay_median, data.t_delay.median("sample"))


def test_failed_samples_are_left_out_and_widen_the_proportion(normal) -> None:
    data = store(normal[:100])
    data["status"][0, :4] = int(Status.TIMEOUT)
    for name in ("offset", "bit", "t_delay"):
        data[name][0, :4] = np.nan
    table = fit(data).dataset
    assert table.offset_n.values.tolist() == [96, 100]
    assert table.offset_sd[0] == pytest.approx(normal[4:100].std(ddof=1))
    passes = int((normal[4:100] > 0).sum())
    low, high = wilson(passes, 96, 4)
    assert (float(table.pass_low[0]), float(table.pass_high[0])) == (low, high)


def test_few_samples_have_no_shape(normal) -> None:
    table = fit(store(normal[:10])).dataset
    assert np.isnan(table.offset_p_value).all()
    assert np.isfinite(table.offset_sd).all()


def test_perturbed_copy_redraws_offset_and_its_spread(normal) -> None:
    table = fit(store(normal))
    copies = [table.perturbed(np.random.default_rng(k)).dataset for k in range(50)]
    spread = np.std([each.offset_sd.values for each in copies], axis=0)
    assert np.allclose(spread, table.dataset.offset_sd_se, rtol=0.4)
