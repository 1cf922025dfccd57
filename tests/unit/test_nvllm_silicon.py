"""Silicon against the totals of Table 2 and plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.silicon import (
    TABLE_2,
    SiliconFields,
    bit_density,
    cmos_share,
    monolithic_ecc,
    silicon,
)

BASE = SiliconFields(clusters=8)


def test_sums_are_table_2s() -> None:
    total = silicon(BASE).sum("module")
    np.testing.assert_allclose(total["area"].sel(unit=["npu", "nand"]), [0.459314, 2.691583])
    np.testing.assert_allclose(total["power"].sel(unit=["npu", "nand"]), [0.240149, 0.895677])


def test_base_has_every_row_and_nothing_else() -> None:
    found = silicon(BASE)
    for (unit, module), (area, power) in TABLE_2.items():
        at = {"unit": unit, "module": module}
        assert found["area"].sel(at).item() == pytest.approx(area * 1e-6)
        assert found["power"].sel(at).item() == pytest.approx(power * 1e-3)
    assert int((found["area"] > 0).sum()) == len(TABLE_2)


def test_sixteen_clusters() -> None:
    area = silicon(SiliconFields(clusters=16))["area"].sel(unit="nand")
    twice = 289_424 + 82_256 + 323_608 + 1_292_922 * 512 / 600
    assert area.sum().item() == pytest.approx((2_691_583 + twice) * 1e-6)
    assert area.sel(module="riscv").item() == pytest.approx(0.685284)


def test_npu_scales_with_its_engines_alone() -> None:
    config = SiliconFields(npu_engines=(4, 8), clusters=(8, 16))
    area = silicon(config)["area"].sel(unit="npu").sum("module")
    grown = area.sel(npu_engines=8) - area.sel(npu_engines=4)
    np.testing.assert_allclose(grown, 144_712e-6)
    assert (area.sel(clusters=8) == area.sel(clusters=16)).all()


def test_correctors_and_no_code() -> None:
    config = SiliconFields(clusters=8, correctors=(1, 3), code=("bch", "none"))
    area = silicon(config)["area"].sel(unit="nand")
    ecc = area.sel(module=["detector", "corrector"]).sum("module") * 1e6
    assert ecc.sel(code="bch").values == pytest.approx([405_864, 82_256 + 3 * 323_608])
    assert (ecc.sel(code="none") == 0).all()


def test_power_with_the_clock() -> None:
    config = SiliconFields(
        clusters=8, power_scaling=("none", "linear"), engine_clock=(250e6, 500e6), power_clock=500e6
    )
    power = silicon(config)["power"].sum("module")
    nand = power.sel(unit="nand")
    np.testing.assert_allclose(nand.sel(power_scaling="none"), 0.895677)
    np.testing.assert_allclose(nand.sel(power_scaling="linear", engine_clock=250e6), 0.895677 / 2)
    np.testing.assert_allclose(power.sel(unit="npu"), 0.240149)  # at 500 MHz already


def test_share_of_the_cmos_is_the_papers() -> None:
    assert cmos_share(BASE).item() == pytest.approx(2.691583 / (32 * 3.07))
    assert round(100 * cmos_share(BASE).item(), 1) == 2.7


def test_density_is_128_gib_on_32_planes() -> None:
    assert bit_density(BASE).item() == pytest.approx(8 * 128 * 2**30 / (32 * 3.07))


def test_monolithic_ecc() -> None:
    found = monolithic_ecc(BASE)
    assert found["area"].item() == pytest.approx(2.0 * 405_864e-6)
    assert found["power"].item() == pytest.approx(1.3 * 267.344e-3)


def test_table_2_has_one_power_at_two_clocks() -> None:
    def ratio(module: str, column: int) -> float:
        return TABLE_2["nand", module][column] / TABLE_2["npu", module][column]

    assert ratio("dot_product", 0) == ratio("dot_product", 1) == 8 / 4
    # Both SRAMs are of one macro, 17 and 4 of them: so 600 KiB is no whole number of macros.
    assert ratio("sram", 0) == pytest.approx(17 / 4, rel=1e-5)
    assert ratio("sram", 1) == 17 / 4


def test_every_axis_equals_its_points() -> None:
    config = SiliconFields(
        clusters=(8, 12), engine_clock=(350e6, 400e6),
        power_scaling=("none", "linear"),
    )  # fmt: skip
    whole = xr.merge([silicon(config), cmos_share(config).rename("share")])
    for _, point in config.points():
        single = xr.merge([silicon(point), cmos_share(point).rename("share")])
        for name, values in whole.data_vars.items():
            at = {axis: getattr(point, axis) for axis in config.axes if axis in values.dims}
            np.testing.assert_allclose(
                values.sel(at).transpose("unit", "module", missing_dims="ignore"),
                single[name].transpose("unit", "module", missing_dims="ignore"),
            )


def test_fields_join_the_hardware() -> None:
    class Both(HardwareFields, SiliconFields):
        pass

    assert silicon(Both(clusters=8)).identical(silicon(BASE))
