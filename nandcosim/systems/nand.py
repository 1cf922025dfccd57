"""A 3D-NAND device as every system sees it: organisation, and the time and energy of a page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nandcosim.systems.config import SystemConfig, setting

__all__ = ["CellBits", "Count", "NandFields", "Positive", "Share", "Whole"]

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
CellBits = Annotated[int, Field(ge=2, le=5)]
Positive = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class NandFields(SystemConfig):
    """Fields of the storage device; the defaults are D-NOVA's (its Tables 1 and 2)."""

    channels: Count | tuple[Count, ...] = setting(
        8, unit="1", meaning="flash channels", origin="stated: Table 2"
    )
    dies: Count | tuple[Count, ...] = setting(
        8, unit="1", meaning="dies a channel", origin="stated: Table 2"
    )
    planes: Count | tuple[Count, ...] = setting(
        12, unit="1", meaning="planes a die", origin="stated: Table 2"
    )
    blocks: Count | tuple[Count, ...] = setting(
        256, unit="1", meaning="blocks a plane", origin="stated: Table 2"
    )
    wordlines: Count | tuple[Count, ...] = setting(
        128, unit="1", meaning="wordlines a block: cells of a string", origin="stated: Table 2"
    )
    bitlines: Count | tuple[Count, ...] = setting(
        16_384, unit="1", meaning="bitlines a plane: strings of a sub-block",
        origin="stated: Table 2",
    )  # fmt: skip
    select_lines: Count | tuple[Count, ...] = setting(
        16, unit="1", meaning="SSL groups a block: sub-blocks", origin="stated: Table 2"
    )
    cell_bits: CellBits | tuple[CellBits, ...] = setting(
        4, unit="1", meaning="bits a cell", origin="stated: section 3.2, QLC"
    )
    channel_bandwidth: Positive | tuple[Positive, ...] = setting(
        2.0e9, unit="B/s", meaning="bus of a flash channel", origin="stated: Table 2"
    )
    host_bandwidth: Positive | tuple[Positive, ...] = setting(
        7.88e9, unit="B/s", meaning="host interface, PCIe 4.0 x4", origin="stated: Table 2"
    )
    sense_time: Positive | tuple[Positive, ...] = setting(
        30e-6, unit="s", meaning="one single-level sense of a page", origin="stated: Table 1"
    )
    qlc_read_time: Positive | tuple[Positive, ...] = setting(
        140e-6, unit="s", meaning="one read of a QLC page", origin="stated: Table 1"
    )
    page_energy: Positive | tuple[Positive, ...] = setting(
        294.9e-9, unit="J", meaning="one page read", origin="stated: Table 1"
    )
