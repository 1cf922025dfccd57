"""The shipped tables of page reads against each other and the level-overlap arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from nandcosim.tables import load_tables
from nandcosim.threshold import bit_error_rate


@pytest.fixture(scope="module")
def tables():
    return load_tables()


def modelled(tables, sigma: float, coding: str) -> xr.DataArray:
    decision = tables["page_read"].dataset.sel(bits=4)
    return bit_error_rate(
        4,
        0.0,
        sigma,
        coding=coding,
        location=decision["pass_location"],
        spread=decision["pass_spread"],
    )


@pytest.mark.parametrize("coding", ["reflected", "balanced"])
@pytest.mark.parametrize("sigma", [0.3])
def test_bits_counted_in_ngspice_are_as_often_wrong_as_modelled(tables, sigma, coding) -> None:
    """Within the central 99.9 % of the binomial count of each page; 8 counts in all."""
    counted = tables["page_read_errors"].dataset.sel(sigma=sigma, coding=coding)
    read = int(counted["bits_read"])
    assert read >= 1000
    low, high = binom.interval(0.999, read, modelled(tables, sigma, coding).values)
    errors = counted["bit_errors"].values
    assert ((low <= errors) & (errors <= high)).all()


def test_sense_amplifier_and_data_widen_a_qlc_decision_by_a_thirtieth_of_a_level(tables) -> None:
    decision = tables["page_read"].dataset
    assert (np.diff(decision["pass_spread"]) > 0).all()
    assert float(decision["pass_spread"].sel(bits=4)) == pytest.approx(0.033, abs=0.005)
    assert np.abs(decision["pass_location"]).max() < 0.02
    mean = float(modelled(tables, 0.2, "balanced").mean())
    assert mean == pytest.approx(3.2e-3, rel=0.05)


def test_time_of_a_page_is_that_of_its_senses(tables) -> None:
    cost = tables["page_read_cost"].dataset
    assert cost["page_time"].values == pytest.approx(5e-6 + 22e-6 * cost["senses"].values)
