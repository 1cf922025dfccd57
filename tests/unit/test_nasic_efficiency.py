"""Gains over Base and the two readings of the area-energy-delay product."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.nasic.cost import COMPONENTS, CostFields, at_ratio, cost, input_dimension
from nandcosim.systems.nasic.efficiency import ARRAY, gains, shares
from nandcosim.systems.nasic.mapping import place
from nandcosim.systems.nasic.moe import moe_shapes


def result() -> xr.Dataset:
    """Base, and something 4 times as fast at a fifth of the energy on twice the area."""
    return xr.Dataset(
        {
            "token_time": ("technique", [8.0, 2.0]),
            "array_throughput": ("technique", [3.0, 9.0]),
            "energy": (("technique", "component"), [[4.0, 6.0], [1.0, 1.0]]),
            "area": ("technique", [1.0, 2.0]),
        },
        coords={"technique": ["base", "t1"], "component": ["precharge", "adc"]},
    )


def test_gains_by_hand() -> None:
    placed = xr.Dataset(
        {"area_efficiency": ("technique", [1.0, 0.9])}, {"technique": ["base", "t1"]}
    )
    found = gains(result(), placed)
    at = {name: float(values) for name, values in found.sel(technique="t1").items()}
    assert at == {
        "speed": 4, "array_speed": 3, "energy": 5, "area": 0.5, "aedp": 10,
        "area_efficiency": 0.9, "aedp_paper": 4.5,
    }  # fmt: skip
    base = found.sel(technique="base")
    assert all(float(values) == 1 for values in base.values())


def test_area_is_optional() -> None:
    assert set(gains(result().drop_vars("area"))) == {"speed", "array_speed", "energy"}


def test_gains_need_base() -> None:
    with pytest.raises(InputError, match="found t1, allowed: an axis that has base"):
        gains(result().isel(technique=[1]))
    with pytest.raises(InputError, match="found no axis"):
        gains(result().isel(technique=0))


def test_shares_sum_to_one() -> None:
    energy = xr.DataArray(
        np.arange(1.0, 7.0), coords={"component": list(COMPONENTS)}, dims="component"
    )
    found = shares(energy)
    assert float(found.to_array().sum()) == pytest.approx(1)
    assert float(found["adc"]) == pytest.approx(5 / 21)
    assert set(COMPONENTS) == {*ARRAY, "adc", "digital"}


def test_readings_of_the_product_with_the_papers_own_gains() -> None:
    """S5: 3.9 x 0.90 and 5.1 x 1.63 are its 3.5 and 8.3; with the delays they are 16 and 82."""
    for energy, speed, area, stated in ((3.9, 4, 0.90, 3.5), (5.1, 16, 1.63, 8.3)):
        found = xr.Dataset(
            {
                "token_time": ("technique", [speed, 1.0]),
                "array_throughput": ("technique", [1.0, speed]),
                "energy": (("technique", "component"), [[energy], [1.0]]),
            },
            {"technique": ["base", "t1"], "component": ["adc"]},
        )
        placed = xr.Dataset({"area_efficiency": area})
        product = gains(found, placed)["aedp_paper"].sel(technique="t1")
        assert product.item() == pytest.approx(stated, abs=0.05)
        assert speed * energy > 4 * stated


def test_of_a_cost() -> None:
    config = CostFields(technique=("base", "t1", "t1t2"), ratio=(0.25, 0.125))
    shapes = at_ratio(config, moe_shapes(("olmoe", "mixtral-8x7b")))
    placed = place(config, shapes, input_dimension(config))
    found = gains(cost(config, shapes, placed), placed)
    product = found["area"] * found["energy"] * found["speed"]
    xr.testing.assert_allclose(found["aedp"], product)
    assert found["aedp"].sizes == {"technique": 3, "ratio": 2, "model": 2}
