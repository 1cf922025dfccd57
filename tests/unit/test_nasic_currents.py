"""Currents of units, against the tables that they come from."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.nasic.currents import CurrentFields, ideal, load
from nandcosim.tables import load_tables
from nandcosim.tables.table import Tables


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load_tables()


def test_ideal_units_are_products() -> None:
    found = ideal()
    assert (found.mean == found.mean["pairs"] * found.mean["level"]).all()
    for other in (found.sd, found.leak, found.leak_sd, found.inl, found.unit_sd, found.unit_leak):
        assert not other.any()


@pytest.mark.parametrize("states", [2, 3, 4])
def test_a_unit_is_the_tables_product(tables: Tables, states: int) -> None:
    """At the table's own spread of 12 mV: its mean exactly, its deviation as string by string."""
    table = tables["cim_string"].at(states=states)
    at = {"query": 1, "sigma": 0.012}
    spread = table.lookup("current_sd", step=1, x=3, **at) / table.lookup(
        "current", step=1, x=3, **at
    )
    config = CurrentFields(states=states, sigma=float(spread), spread_rule="threshold")
    found = load(tables, config)
    weight = found.inl["weight"]
    x = np.arange(4)
    mean = table.lookup("product", weight=weight, x=x, **at)
    sd = table.lookup("product_sd", weight=weight, x=x, **at)
    unit = 2 * found.lsb.item()
    ideally = np.outer(weight, x)
    assert np.allclose((found.inl.values + ideally) * unit, mean.values, rtol=1e-9, atol=1e-14)
    assert found.unit_sd.values[:, 1:] * unit == pytest.approx(sd.values[:, 1:], rel=0.05)


@pytest.mark.parametrize("rule", ["scaled", "threshold"])
def test_sigma_is_that_of_a_conducting_string_at_the_largest_input(
    tables: Tables, rule: str
) -> None:
    found = load(tables, CurrentFields(technique="base", sigma=0.15, spread_rule=rule))
    at = {"pairs": 1, "level": 1}
    assert (found.sd.sel(at) / found.mean.sel(at)).item() == pytest.approx(0.15, rel=0.03)


def test_deviations_are_in_proportion_to_sigma_when_scaled(tables: Tables) -> None:
    found = load(tables, CurrentFields(sigma=(0.0, 0.1, 0.3)))
    assert not found.sd.sel(sigma=0.0).any()
    assert np.allclose(found.sd.sel(sigma=0.3), 3 * found.sd.sel(sigma=0.1))


def test_both_rules_agree_on_what_the_tables_hold(tables: Tables) -> None:
    one, other = (
        load(tables, CurrentFields(sigma=(0.05, 0.1, 0.18), spread_rule=rule))
        for rule in ("scaled", "threshold")
    )
    assert np.allclose(one.unit_sd, other.unit_sd, rtol=0.05)


def test_axes_are_the_points(tables: Tables) -> None:
    config = CurrentFields(
        technique=("t1t2t3", "base"), states=(4, 2), sigma=(0.2, 0.1), cam_bits=(3, 2)
    )
    whole = load(tables, config)
    for _, point in config.points():
        one, at = load(tables, point), whole.at(point)
        for name in ("mean", "sd", "leak", "leak_sd", "inl", "unit_sd", "unit_leak", "lsb"):
            alone = getattr(one, name)
            same = getattr(at, name).sel({dim: alone[dim] for dim in alone.dims})
            assert np.allclose(same.transpose(*alone.dims), alone), name


def test_more_bits_of_a_cam_cell_leak_more(tables: Tables) -> None:
    leak = load(tables, CurrentFields(cam_bits=(1, 2, 3))).unit_leak.max(("weight", "level"))
    assert (leak.diff("cam_bits") > 0).all()
    cam = tables["cam_string"].dataset.sel(sigma=0.0)
    ratio = (cam["i_worst"] / cam["i_match"]).sel(layers=["2", "3"])
    assert leak[2] / leak[1] == pytest.approx((ratio[1] / ratio[0]).item())


def test_eight_states_have_a_table_of_their_own(tables: Tables) -> None:
    found = load(tables, CurrentFields(states=8))
    assert found.inl.sizes["weight"] == 29
    assert abs(found.inl).max() > 1  # they are not linear: docs/circuits/cim_string.md


def test_tables_redrawn_are_other_currents(tables: Tables) -> None:
    one, other = (load(tables.perturbed(seed), CurrentFields()) for seed in (1, 2))
    assert one.lsb.item() != other.lsb.item()
    assert one.lsb.item() == pytest.approx(other.lsb.item(), rel=0.05)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"states": 5}, "states = 5"),
        ({"sigma": 0.3, "spread_rule": "threshold"}, "sigma = 0.3, allowed: up to 0.190"),
        ({"states": 8, "sigma": 0.15, "spread_rule": "threshold"}, "up to 0.106"),
    ],
)
def test_refuses_what_is_not_tabulated(
    tables: Tables, settings: dict[str, float | str], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        load(tables, CurrentFields(**settings))


def test_refuses_a_missing_table_and_a_point_not_loaded(tables: Tables) -> None:
    with pytest.raises(InputError, match="cim_string"):
        load(Tables({}), CurrentFields())
    loaded = load(tables, CurrentFields(sigma=(0.1, 0.15)))
    with pytest.raises(InputError, match=r"sigma = 0\.2, allowed: 0\.1, 0\.15"):
        loaded.at(CurrentFields(sigma=0.2))
