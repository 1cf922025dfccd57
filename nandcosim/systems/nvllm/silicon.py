"""Area and power of NVLLM's logic: Table 2 by module, scaled to a configuration.

The table is of 8 clusters and 4 NPU engines. In the flash logic, dot-product units and
detectors come once a lane, correctors as configured, the FIFOs' share of the SRAM once a
cluster; the RISC-V CPU, the global and activation buffers and the rest are fixed. In the
NPU, dot-product units scale with its engines. The units stay those of a 32-byte segment and
of the table's code, which the paper does not name.
"""

from __future__ import annotations

from typing import Literal

import xarray as xr

from nandcosim.systems.arrays import described, stacked, where
from nandcosim.systems.config import setting
from nandcosim.systems.nand import Positive
from nandcosim.systems.nvllm.hardware import EngineFields, FlashFields, NpuFields

__all__ = [
    "BUFFER_KIB",
    "FIFO_KIB",
    "MODULES",
    "TABLE_2",
    "UNITS",
    "SiliconFields",
    "bit_density",
    "cmos_share",
    "monolithic_ecc",
    "silicon",
]

PowerScaling = Literal["none", "linear"]

UNITS = ("nand", "npu")
MODULES = ("sfu", "riscv", "dot_product", "detector", "corrector", "sram", "other")

#: Table 2: area (um^2) and power (mW) of each module of a unit.
TABLE_2 = {
    ("npu", "sfu"): (8_618, 2.730),
    ("npu", "dot_product"): (144_712, 170.400),
    ("npu", "sram"): (304_217, 67.000),
    ("npu", "other"): (1_767, 0.019),
    ("nand", "riscv"): (685_284, 2.762),
    ("nand", "dot_product"): (289_424, 340.800),
    ("nand", "detector"): (82_256, 159.688),
    ("nand", "corrector"): (323_608, 107.656),
    ("nand", "sram"): (1_292_922, 284.750),
    ("nand", "other"): (18_089, 0.021),
}

_CLUSTERS, _NPU_ENGINES = 8, 4  # of Table 2, by Table 3's column NVLLM

#: SRAM of the flash logic, section 4.2: FIFOs of all clusters; global and activation buffer.
FIFO_KIB, BUFFER_KIB = 512, 72 + 16


class SiliconFields(FlashFields, EngineFields, NpuFields):
    """What area and power depend on."""

    plane_area: Positive | tuple[Positive, ...] = setting(
        3.07, unit="mm^2", meaning="area of a plane, and of the CMOS under it",
        origin="stated: section 4.1",
    )  # fmt: skip
    power_scaling: PowerScaling | tuple[PowerScaling, ...] = setting(
        "none", unit="", meaning="power of Table 2 at any clock, or linear in the clock",
        origin="derived: Table 2 has 42.6 mW an engine for the flash's 350 and the NPU's 500 MHz",
    )  # fmt: skip
    power_clock: Positive | tuple[Positive, ...] = setting(
        500e6, unit="Hz", meaning="clock of Table 2's power, with power_scaling=linear",
        origin="assumed: not stated; one clock for both units, the NPU's",
    )  # fmt: skip
    ecc_area_gain: Positive | tuple[Positive, ...] = setting(
        2.0, unit="1", meaning="area of a monolithic ECC over that of detectors and correctors",
        origin="stated: section 4.2",
    )  # fmt: skip
    ecc_power_gain: Positive | tuple[Positive, ...] = setting(
        1.3, unit="1", meaning="power of a monolithic ECC over that of detectors and correctors",
        origin="stated: section 4.2",
    )  # fmt: skip


def silicon(config: SiliconFields) -> xr.Dataset:
    """Area and power by unit and module.

    Returns
    -------
    xarray.Dataset
        ``area`` (mm^2) and ``power`` (W) over ``unit``, ``module`` and the axes of the
        configuration; 0 where a unit has no such module. Without a code there are no
        detectors and correctors.
    """
    scales = _scales(config)
    area, power = {}, {}
    for (unit, module), (um2, mw) in TABLE_2.items():
        scale = scales.get((unit, module), xr.DataArray(1.0))
        area[unit, module] = um2 * 1e-6 * scale
        power[unit, module] = mw * 1e-3 * scale * _speed(config, unit)
    found = xr.Dataset({"area": _by_module(area), "power": _by_module(power)})
    return described(found, _QUANTITIES)


def monolithic_ecc(config: SiliconFields) -> xr.Dataset:
    """What a monolithic ECC would take in place of detectors and correctors (section 4.2).

    Returns
    -------
    xarray.Dataset
        ``area`` (mm^2) and ``power`` (W) over the axes of the configuration.
    """
    ecc = silicon(config).sel(unit="nand", module=["detector", "corrector"], drop=True)
    found = ecc.sum("module")
    found["area"] = found["area"] * config.array("ecc_area_gain")
    found["power"] = found["power"] * config.array("ecc_power_gain")
    return described(found, _QUANTITIES)


def cmos_share(config: SiliconFields) -> xr.DataArray:
    """Area of the flash logic over that of the CMOS under all planes (section 4.2: 2.7 %)."""
    logic = silicon(config)["area"].sel(unit="nand", drop=True).sum("module")
    planes = config.array("clusters") * config.array("planes_per_cluster")
    share: xr.DataArray = logic / (planes * config.array("plane_area"))
    return share.assign_attrs(units="1", long_name="share of the NAND CMOS area")


def bit_density(config: SiliconFields) -> xr.DataArray:
    """Bits stored over the area of a plane (bit/mm^2)."""
    density: xr.DataArray = 8 * config.array("plane_capacity") / config.array("plane_area")
    return density.assign_attrs(units="bit/mm^2", long_name="storage density")


_QUANTITIES = {"area": ("mm^2", "area"), "power": ("W", "power while busy")}


def _scales(config: SiliconFields) -> dict[tuple[str, str], xr.DataArray]:
    """How often a module is there, over how often Table 2 has it, where that is not once."""
    clusters = config.array("clusters") / _CLUSTERS
    lanes = clusters * config.array("lanes")
    coded = config.array("code") != "none"
    return {
        ("npu", "dot_product"): config.array("npu_engines") / _NPU_ENGINES,
        ("nand", "dot_product"): lanes,
        ("nand", "detector"): coded * lanes,
        ("nand", "corrector"): coded * clusters * config.array("correctors"),
        ("nand", "sram"): (FIFO_KIB * clusters + BUFFER_KIB) / (FIFO_KIB + BUFFER_KIB),
    }


def _speed(config: SiliconFields, unit: str) -> xr.DataArray:
    clock = config.array({"npu": "npu_clock", "nand": "engine_clock"}[unit])
    scaled = config.array("power_scaling") == "linear"
    return where(scaled, clock / config.array("power_clock"), 1.0)


def _by_module(values: dict[tuple[str, str], xr.DataArray]) -> xr.DataArray:
    none = xr.DataArray(0.0)
    units = {
        unit: stacked({module: values.get((unit, module), none) for module in MODULES}, "module")
        for unit in UNITS
    }
    return stacked(units, "unit")
