"""KV-cache-aware scheduling: which columns of Q, K, V and O the flash computes.

As the KV cache grows, attention keeps the NPU busy for longer. Algorithm 2 of NVLLM then hands
columns of the projections to the flash. It leaves open what its inputs are; here:

- a *bit* is as many weight columns as a cluster's page buffer holds, floor(P / u). So one bit is
  worth C_th NPU cycles, and k = ceil(delta / C_th) bits make up for delta. Bit 1: the NPU
  computes them, bit 0: the flash does.
- The *bits* are those of all projections, or of one layer's (`kv_scope`). The top ones belong to
  every layer alike, so that NPU and flash share the work of each layer; and to all clusters alike.
- The *increment* (`kv_increment`) is the growth of attention by one forward pass (``token``); that
  growth less what the last change saved, so the change of the NPU's latency (``latency``); or the
  growth since the last change (``accumulated``).

A cache grows by one token a pass, so its growth is constant and the bits empty in equal steps:
`Course` has them in closed form. `run_schedule` calls Algorithm 2 pass by pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.arrays import Number, ceil, floor, minimum, where
from nandcosim.systems.config import SystemConfig, setting

__all__ = [
    "Course",
    "Increment",
    "ScheduleFields",
    "balanced_share",
    "course",
    "kv_schedule",
    "run_schedule",
]

Increment = Literal["token", "latency", "accumulated"]
Schedule = Literal["off", "algorithm", "balanced"]
Scope = Literal["model", "layer"]


class ScheduleFields(SystemConfig):
    """Who computes the projections while a text is generated."""

    kv_schedule: Schedule | tuple[Schedule, ...] = setting(
        "algorithm", unit="", meaning="columns of Q, K, V, O in flash: none, as Algorithm 2 clears "
        "them, or the share with which NPU and flash end together",
        origin="stated: section 3.5, Algorithm 2; balanced is ours",
    )  # fmt: skip
    kv_increment: Increment | tuple[Increment, ...] = setting(
        "token", unit="", meaning="increment of Algorithm 2: growth of attention in a pass, change "
        "of the NPU's latency, or growth since the bits last changed",
        origin="assumed: the words 'cycle increment' allow each",
    )  # fmt: skip
    kv_scope: Scope | tuple[Scope, ...] = setting(
        "model", unit="", meaning="what increment and bits are of: all layers, or one",
        origin="assumed: Algorithm 2 runs at the end of each forward propagation",
    )  # fmt: skip


def kv_schedule(
    delta_cycles: float,
    npu_cycles_per_column: float,
    column_bytes: int,
    page_buffer_bytes: int,
    bitmap: NDArray[np.generic],
) -> NDArray[np.generic]:
    """Algorithm 2: clear k = ceil(delta / C_th) set bits from the top if delta > C_th.

    Parameters
    ----------
    delta_cycles : float
        Cycle increment, NPU cycles; may be negative.
    npu_cycles_per_column : float
        C_NPU.
    column_bytes, page_buffer_bytes : int
        A weight column u, and a cluster's page buffer P; C_th = floor(P / u) C_NPU.
    bitmap : ndarray (H,), bool or integer
        1: the NPU computes it.

    Returns
    -------
    ndarray (H,)
        A new bitmap of the same type.

    Raises
    ------
    InputError
        If a column does not fit the page buffer (C_th would be 0), a size or C_NPU is not
        positive, the increment is not finite, or the bitmap is no row of bits.
    """
    threshold = _threshold(npu_cycles_per_column, column_bytes, page_buffer_bytes)
    if not np.isfinite(delta_cycles):
        raise InputError(f"Algorithm 2: increment = {delta_cycles}, allowed: finite")
    if bitmap.ndim != 1 or bitmap.dtype.kind not in "bui" or not np.isin(bitmap, (0, 1)).all():
        raise InputError(
            f"Algorithm 2: bitmap of {bitmap.ndim} dimensions and type {bitmap.dtype}, "
            "allowed: one dimension of bits 0 and 1"
        )
    updated = bitmap.copy()
    if delta_cycles > threshold:
        k = int(-(-delta_cycles // threshold))
        updated[np.flatnonzero(bitmap)[-k:]] = 0
    return updated


def run_schedule(
    passes: int,
    growth: float,
    npu_cycles_per_column: float,
    column_bytes: int,
    page_buffer_bytes: int,
    bits: int,
    increment: Increment,
) -> NDArray[np.int64]:
    """Call `kv_schedule` after each of some forward passes, all bits set before the first.

    Parameters
    ----------
    passes : int
    growth : float
        NPU cycles by which attention grows a pass.
    npu_cycles_per_column, column_bytes, page_buffer_bytes : see `kv_schedule`
    bits : int
        H.
    increment : {"token", "latency", "accumulated"}
        What is given to Algorithm 2, see the module.

    Returns
    -------
    int64 ndarray (passes,)
        Bits that are cleared in each pass.

    Raises
    ------
    InputError
        As `kv_schedule`.
    """
    threshold = _threshold(npu_cycles_per_column, column_bytes, page_buffer_bytes)
    bitmap: NDArray[np.generic] = np.ones(bits, dtype=np.uint8)
    cleared = np.zeros(passes, dtype=np.int64)
    now = before = 0
    since = 0.0
    for index in range(passes):
        cleared[index] = now
        since += growth
        delta = {
            "token": growth,
            "latency": growth - threshold * (now - before),
            "accumulated": since,
        }[increment]
        bitmap = kv_schedule(delta, npu_cycles_per_column, column_bytes, page_buffer_bytes, bitmap)
        before, now = now, bits - int(np.count_nonzero(bitmap))
        if now > before:
            since = 0.0
    return cleared


@dataclass(frozen=True)
class Course:
    """How the bits empty: `step` of them each time, once in `every` passes.

    Attributes
    ----------
    bits : DataArray
        H.
    step : DataArray
        k of Algorithm 2; 0 where the increment never exceeds C_th.
    every : DataArray
        Passes from one change to the next.
    phase : DataArray
        Passes by which the first change comes early.
    """

    bits: xr.DataArray
    step: xr.DataArray
    every: xr.DataArray
    phase: xr.DataArray

    def cleared(self, passes: Number) -> xr.DataArray:
        """Bits that are cleared after some passes."""
        times = floor((passes + self.phase) / self.every)
        return minimum(self.bits, self.step * times)

    def share(self, passes: Number) -> xr.DataArray:
        """Share of the projections that the flash computes after some passes."""
        return self.cleared(passes) / self.bits

    def totals(
        self, passes: Number, npu_time: xr.DataArray, flash_time: xr.DataArray
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Exact sums over passes 0 .. `passes` - 1.

        Parameters
        ----------
        passes : DataArray or float
        npu_time, flash_time : DataArray
            Time of all projections of a token on either side alone (s).

        Returns
        -------
        tuple of DataArray
            Time of the projections (s), each pass that of the slower side; and the sum of
            the shares in flash.
        """
        end = passes + self.phase
        changes = (self.bits / self.step.where(self.step > 0)).fillna(np.inf)  # until all clear
        turn = floor(balanced_share(npu_time, flash_time) * changes) + 1  # flash is slower
        late = minimum(end, self.every * ceil(changes))
        early = minimum(late, self.every * turn)
        split_early = _sum_of_floors(early, self.every) / changes
        split_late = _sum_of_floors(late, self.every) / changes - split_early
        in_flash = split_late + (end - late)
        time = (early - self.phase - split_early) * npu_time + in_flash * flash_time
        return time, split_early + in_flash


def course(
    config: ScheduleFields,
    growth: xr.DataArray,
    npu_cycles_per_column: xr.DataArray,
    column_bytes: xr.DataArray,
    page_buffer_bytes: xr.DataArray,
    columns: xr.DataArray,
    layers: xr.DataArray,
) -> Course:
    """Closed form of `run_schedule` over any axes; equal to it for whole cycles.

    Parameters
    ----------
    config : ScheduleFields
        Its `kv_increment` and `kv_scope`.
    growth : DataArray
        NPU cycles of the attention of all layers to one token; rounded up to whole cycles.
    npu_cycles_per_column : DataArray
        C_NPU; rounded up.
    column_bytes, page_buffer_bytes : DataArray
        u and P (B).
    columns, layers : DataArray
        Columns of Q, K, V and O in all layers, and layers.

    Raises
    ------
    InputError
        If a column does not fit the page buffer.
    """
    held = page_buffer_bytes // column_bytes
    if (held < 1).any():
        raise InputError(
            f"nvllm: page_bytes x planes_per_cluster = {int(page_buffer_bytes.min())} B, allowed: "
            f"{int(column_bytes.max())} B or more, a weight column, with kv_schedule=algorithm"
        )
    parts = where(config.array("kv_scope") == "layer", layers, 1)
    growth = _whole(growth / parts)
    threshold = held * _whole(npu_cycles_per_column)
    increment = config.array("kv_increment")
    collected = increment == "accumulated"
    every = where(collected, threshold // growth + 1, where(increment == "latency", 2, 1))
    delta = growth * where(collected, every, 1)
    return Course(
        bits=ceil(columns / parts / held),
        step=where(delta > threshold, ceil(delta / threshold), 0),
        every=every,
        phase=where(increment == "latency", 1, 0),  # what a change saves stops the next one
    )


def balanced_share(npu_time: xr.DataArray, flash_time: xr.DataArray) -> xr.DataArray:
    """Share in flash that makes max((1 - share) npu_time, share flash_time) least."""
    return npu_time / (npu_time + flash_time)


def _threshold(cycles: float, column_bytes: int, page_buffer_bytes: int) -> float:
    """C_th = floor(P / u) C_NPU."""
    if not 0 < column_bytes <= page_buffer_bytes:
        raise InputError(
            f"Algorithm 2: column of {column_bytes} B, allowed: 1 to {page_buffer_bytes} B, the "
            "page buffer of a cluster"
        )
    if not 0 < cycles < np.inf:
        raise InputError(f"Algorithm 2: NPU cycles of a column = {cycles}, allowed: above 0")
    return page_buffer_bytes // column_bytes * cycles


def _whole(cycles: xr.DataArray) -> xr.DataArray:
    """Cycles rounded up, but not because a time in seconds is a rounding error too long."""
    return ceil(cycles * (1 - 1e-12))


def _sum_of_floors(count: xr.DataArray, divisor: xr.DataArray) -> xr.DataArray:
    """Sum of floor(i / divisor) over i = 0 .. count - 1."""
    whole = floor(count / divisor)
    return divisor * whole * (whole - 1) / 2 + whole * (count - divisor * whole)
