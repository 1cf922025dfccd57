"""Hardware of D-NOVA beside its NAND: schedule, accumulators, controller, buses, power."""

from __future__ import annotations

from typing import Annotated, Literal

import xarray as xr
from pydantic import Field

from nandcosim.errors import InputError
from nandcosim.systems.arrays import where
from nandcosim.systems.config import setting
from nandcosim.systems.nand import Count, NandFields, Positive

__all__ = [
    "HardwareFields",
    "Order",
    "Overlap",
    "Schedule",
    "groups_a_die",
    "spread",
    "strings",
]

Schedule = Literal["serial", "channel", "device"]
Overlap = Literal["none", "next"]
Order = Literal["ascending", "free-first"]
_NotNegative = Annotated[float, Field(ge=0.0)]


class HardwareFields(NandFields):
    """Fields that time, energy and power depend on beside `NandFields`."""

    schedule: Schedule | tuple[Schedule, ...] = setting(
        "serial",
        unit="",
        meaning="where a query's activations go: one after the other (serial), "
        "to the plane groups of one channel, or of the device",
        origin="assumed: not stated; serial on a copy a channel reproduces the ratios of Fig. 17",
    )
    activation_order: Order | tuple[Order, ...] = setting(
        "free-first",
        unit="",
        meaning="serial schedule: sub-blocks by number, or the next whose plane group is free; "
        "only the simulation, which has conflicts, depends on it",
        origin="assumed: not stated",
    )
    companion_margin: Positive | tuple[Positive, ...] = setting(
        1.5,
        unit="1",
        meaning="level spacings by which the other active cells of the slowest group conduct",
        origin="derived: alpha - 1/2 at alpha = 2 where all of them match (r = q)",
    )
    accumulator_group: Count | tuple[Count, ...] = setting(
        256, unit="1", meaning="bitlines that share an accumulator", origin="stated: section 6.7"
    )
    accumulator_clock: Positive | tuple[Positive, ...] = setting(
        1.0e9, unit="Hz", meaning="bitlines an accumulator serves a second",
        origin="stated: section 5.3",
    )  # fmt: skip
    accumulator_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        5.0e-15, unit="J", meaning="update of one bitline's deficit after a sense",
        origin="assumed: not stated; order of a 4-bit increment in 7 nm logic",
    )  # fmt: skip
    transfer_overlap: Overlap | tuple[Overlap, ...] = setting(
        "none",
        unit="",
        meaning="next: planes sense again while their deficits are sent",
        origin="assumed: none, since the latch that counts also holds the deficit (section 3.2)",
    )
    controller_cores: Count | tuple[Count, ...] = setting(
        4, unit="1", meaning="cores of the embedded processor",
        origin="assumed: not stated; the cited Cortex-R8 has up to four",
    )  # fmt: skip
    controller_clock: Positive | tuple[Positive, ...] = setting(
        1.5e9, unit="Hz", meaning="clock of a core", origin="assumed: not stated; Cortex-R8 class"
    )
    merge_cycles: _NotNegative | tuple[_NotNegative, ...] = setting(
        0.0,
        unit="1",
        meaning="cycles of a core for each string's deficit merged",
        origin="assumed: none, since the SSD controller merges before entries go to the "
        "embedded processor (section 3.3)",
    )
    compare_cycles: _NotNegative | tuple[_NotNegative, ...] = setting(
        4.0, unit="1", meaning="cycles of a core for a comparison of quickselect or quicksort",
        origin="assumed: not stated; load, compare, branch, half a swap",
    )  # fmt: skip
    controller_power: Positive | tuple[Positive, ...] = setting(
        0.3, unit="W", meaning="a busy core with its caches",
        origin="assumed: not stated; order of a real-time core at 1.5 GHz",
    )  # fmt: skip
    entry_bits: Count | tuple[Count, ...] = setting(
        37, unit="1", meaning="bits of an {id, distance, address} entry",
        origin="stated: section 3.3, about 37",
    )  # fmt: skip
    sram_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        5.0e-14, unit="J", meaning="controller SRAM, a bit written or read",
        origin="assumed: not stated; order of an 8 MB SRAM in 7 nm",
    )  # fmt: skip
    channel_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        8.0e-12, unit="J", meaning="flash channel, a bit",
        origin="assumed: not stated; middle of 6 to 10 pJ, unverified",
    )  # fmt: skip
    host_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        6.0e-12, unit="J", meaning="host interface, a bit",
        origin="assumed: not stated; middle of 5 to 7 pJ, unverified",
    )  # fmt: skip
    host_latency: _NotNegative | tuple[_NotNegative, ...] = setting(
        5.0e-6, unit="s", meaning="a message over the host interface, before its bits",
        origin="assumed: not stated; half of a command's round trip of about 10 us",
    )  # fmt: skip
    result_bits: Count | tuple[Count, ...] = setting(
        64, unit="1", meaning="bits of a result sent to the host: id and document address",
        origin="assumed: not stated",
    )  # fmt: skip
    power_cap: Positive | tuple[Positive, ...] = setting(
        25.0, unit="W", meaning="power that the device may draw",
        origin="assumed: not stated; the power of a 2.5-inch NVMe drive's slot",
    )  # fmt: skip


def strings(dimension: int, config: NandFields) -> xr.DataArray:
    """Strings of an original vector, ceil(D / wordlines); its complement has as many."""
    return -(-dimension // config.array("wordlines"))


def groups_a_die(dimension: int, config: NandFields) -> xr.DataArray:
    """Plane groups of a die: planes / (2 * strings), rounded down (section 3.3).

    Raises
    ------
    InputError
        If the strings of a vector and its complement need more planes than a die has.
    """
    needed = 2 * strings(dimension, config)
    groups = config.array("planes") // needed
    if (groups < 1).any():
        raise InputError(
            f"dnova: planes = {config.planes} a die, allowed: {int(needed.max())} or more for "
            f"{dimension} dimensions on strings of {config.wordlines} cells and their complements"
        )
    return groups


def spread(dimension: int, config: HardwareFields) -> xr.DataArray:
    """Plane groups that hold one copy of the index: a channel's, or the device's.

    Raises
    ------
    InputError
        As `groups_a_die`.
    """
    of_channel = config.array("dies") * groups_a_die(dimension, config)
    whole = config.array("schedule") == "device"
    return where(whole, config.array("channels") * of_channel, of_channel)
