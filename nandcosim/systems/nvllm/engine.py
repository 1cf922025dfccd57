"""Error-resilient dot-product engines, cycle by cycle: what raw bit errors cost them.

NVLLM sections 3.1 to 3.4. What happens, and what is assumed where the paper is silent:

**Supply.** The planes of a cluster are read together. A read takes `read_time`; it needs one
of `page_buffers` page registers and begins when one is free and the read before is done. A
page moves into the cluster FIFO as room allows, in no time, and leaves its register with its
last segment. `prefetched` reads have come when the layer starts. Assumed: segments do not
straddle pages; segment i of a cluster goes to lane i mod `lanes`, each lane with its own
bank of the FIFO ("avoids cross-lane reshaping", section 3.1).

**Lane.** Each cycle it multiplies at most one segment: a corrected one that has come back, if
there is any, else the one at its head. Assumed: corrected ones go first. Each segment needs
exactly one multiplication, so this costs nothing, and it frees the scoreboard and lets
columns commit.

**Fault.** A faulty head is masked in the cycle that finds it, if the scoreboard has room, and
the second half of the segment buffer is multiplied instead through the bypass; in the next
cycle the arbiter moves the masked segment to the scoreboard and the hub (section 3.3). Its
half of the buffer is filled again for the cycle after that: until then there is no second
segment. So the lane loses a cycle for a fault whose successor is faulty too, or that comes
in the cycle after another was masked. Nothing is lost while a corrected segment uses the
multiplier. Assumed: both halves can be filled in one cycle ("2 x d-wide").

**Correction.** It begins at the earliest two cycles after the fault was met (found, moved) and
takes `corrector_latency`; a corrector takes the next one after `corrector_interval`. The
hub serves first come, first served; in the same cycle, lower clusters and lanes first. An
uncorrectable segment takes as long. The entry of the scoreboard is held from masking to
multiplication; without a free one the lane waits at its next fault.

**In order.** The lane waits at a fault until the segment is back; same hub, same times.

**End.** A column commits when its segments are in, in order of columns; the layer ends when all
have. The checker is pipelined and delays the whole layer by `checker_latency`.

Every cycle of every lane is a multiplication or has one cause of loss (`CAUSES`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nand import Count, Whole
from nandcosim.systems.nvllm.ecc import code_sizes, segment_error_rate
from nandcosim.systems.nvllm.hardware import EngineFields, FlashFields, HardwareFields

if TYPE_CHECKING:
    from nandcosim.systems.nvllm.engine_kernels import Rules

__all__ = [
    "CAUSES",
    "DETECT_AND_MOVE",
    "EngineConfig",
    "EngineRun",
    "PipelineFields",
    "fault_probability",
    "segments_a_read",
    "simulate",
    "sweep",
]

#: Why a lane did not multiply in a cycle: no segment there; two faults in a row; scoreboard
#: full; in-order lane waiting; nothing left but corrections, or other lanes; the checker.
CAUSES = ("supply", "in_a_row", "scoreboard", "in_order", "drain", "fill")

#: Cycles from meeting a fault to the earliest start of its correction.
DETECT_AND_MOVE = 2

_LARGEST_PART = 10**6
"""Parts of a cycle that the time of a page read is kept in, at most."""

Hub = Literal["cluster", "device"]


class PipelineFields(SystemConfig):
    """What only the cycles of an engine depend on."""

    hub: Hub | tuple[Hub, ...] = setting(
        "cluster", unit="", meaning="corrector hubs: one a cluster, or one with all correctors",
        origin="assumed: section 3.3 has a shared hub, Table 2 as many correctors as clusters",
    )  # fmt: skip
    corrector_interval: Whole | tuple[Whole, ...] = setting(
        0, unit="1", meaning="cycles from one correction of a corrector to its next; "
        "0: corrector_latency, not pipelined",
        origin="assumed: not stated",
    )  # fmt: skip
    checker_latency: Whole | tuple[Whole, ...] = setting(
        1, unit="1", meaning="cycles of the pipelined checker", origin="assumed: inline"
    )
    fifo_bytes: Whole | tuple[Whole, ...] = setting(
        65_536, unit="B", meaning="FIFO of a cluster, parity included",
        origin="derived: section 4.2, 512 KiB for 8 clusters",
    )  # fmt: skip
    prefetched: Whole | tuple[Whole, ...] = setting(
        1, unit="1", meaning="page reads of a cluster that have come when a layer starts",
        origin="stated: section 3.4, filled ahead of consumption; that it is one is assumed",
    )  # fmt: skip
    column: Count | tuple[Count, ...] = setting(
        128, unit="1", meaning="segments of a weight column",
        origin="derived: 4096 weights of a column of LLaMA2-7B / 32",
    )  # fmt: skip


class EngineConfig(HardwareFields, PipelineFields):
    """Everything that the cycles of the engines depend on."""


@dataclass(frozen=True)
class EngineRun:
    """What the engines did in one layer, all clusters together.

    Attributes
    ----------
    segments, lanes : int
        Segments multiplied, each once, and lanes that did it.
    cycles : int
        From the start of the layer to its last multiplication.
    lost : dict of str to int
        Cycles of lanes without a multiplication by cause, `CAUSES`.
    corrections : int
    hub_wait : float
        Mean wait of a segment for a corrector (cycles), from when it could have begun.
    residence : float
        Mean time that a segment holds its scoreboard entry (cycles).
    most_waiting : int
        Scoreboard entries in use at most, in any lane.
    open_columns : int
        Columns begun and not yet committed at most, in any lane.
    """

    segments: int
    lanes: int
    cycles: int
    lost: dict[str, int]
    corrections: int
    hub_wait: float
    residence: float
    most_waiting: int
    open_columns: int

    @property
    def utilisation(self) -> float:
        """Share of the lanes' cycles that are multiplications."""
        return self.segments / (self.cycles * self.lanes)

    @property
    def mean_waiting(self) -> float:
        """Scoreboard entries in use on average, a lane (Little's law)."""
        return self.corrections * self.residence / (self.cycles * self.lanes)


def segments_a_read(
    config: HardwareFields, parity_bits: xr.DataArray | int | None = None
) -> xr.DataArray:
    """Segments that one read of a cluster's planes brings, none of them across two pages.

    Parameters
    ----------
    config : HardwareFields
    parity_bits : DataArray or int, optional
        Of a segment; by default those of the configured code.

    Raises
    ------
    InputError
        If a page holds no segment.
    """
    parity = code_sizes(config)["parity_bits"] if parity_bits is None else parity_bits
    in_page = (config.array("parity_place") == "page") * parity
    bits = 8 * config.array("segment_bytes") + in_page
    a_page = 8 * config.array("page_bytes") // bits
    if (a_page < 1).any():
        raise InputError(
            f"nvllm: page_bytes = {config.page_bytes}, allowed: at least a segment of "
            f"{float(bits.max()) / 8:g} B with its parity"
        )
    return config.array("planes_per_cluster") * a_page


def simulate(
    config: EngineConfig,
    segments: int,
    *,
    rber: float | None = None,
    faulty: NDArray[np.bool_] | None = None,
    read_time: float | None = None,
    seed: int = 0,
) -> EngineRun:
    """Run one layer through the engines.

    Parameters
    ----------
    config : EngineConfig
        Without axes in what it depends on.
    segments : int
        Of each cluster.
    rber : float, optional
        Raw bit error rate; a segment is faulty with 1 - (1 - rber)^n, independently. By
        default the configuration's `rber`. Without a code nothing is found faulty.
    faulty : bool array (clusters, segments), optional
        Which segments are, instead.
    read_time : float, optional
        Of a page (s); by default the configuration's `read_time`.
    seed : int
        Faults are a function of it, of the cluster and of the rate; they are the same for
        any lanes, order or hub.

    Returns
    -------
    EngineRun

    Raises
    ------
    InputError
        For a configuration with axes, no segments, a mask of the wrong shape, or more
        pages prefetched than there is room for.
    MissingExtraError
        Without Numba.
    """
    from nandcosim.systems.nvllm import engine_kernels as kernels

    _refuse_axes(config)
    sizes = code_sizes(config)
    rules = _rules(config, segments, sizes, read_time)
    if faulty is None:
        rate = config.array("rber") if rber is None else rber
        chance = fault_probability(sizes["n"], sizes["parity_bits"], rate)
        found = [_random_faults(segments, float(chance), (seed, c)) for c in range(rules.clusters)]
    elif faulty.shape == (rules.clusters, segments):
        found = [np.flatnonzero(mask) for mask in faulty]
    else:
        raise InputError(
            f"faulty: shape {faulty.shape}, allowed: ({rules.clusters}, {segments}), "
            "clusters and segments of each"
        )
    if config.hub == "device":
        hubs = [found]
        rules = rules._replace(servers=rules.servers * rules.clusters)
    else:
        hubs = [[faults] for faults in found]
        rules = rules._replace(clusters=1)
    runs = [kernels.run_hub(rules, *_by_lane(faults, rules)) for faults in hubs]
    return _summary(config, segments, np.concatenate(runs))


def sweep(
    config: EngineConfig,
    segments: int,
    *,
    rber: xr.DataArray | None = None,
    read_time: xr.DataArray | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Run a layer at every point of the axes that the engines depend on.

    Parameters
    ----------
    config : EngineConfig
    segments : int
        Of each cluster.
    rber, read_time : DataArray, optional
        Over axes of the configuration; by default its fields.
    seed : int
        Faults are the same at all points of one rate and code.

    Returns
    -------
    xarray.Dataset
        Over those axes: ``utilisation``; ``lost`` (cause), share of the lanes' cycles, which
        with the utilisation sum to 1; ``cycles``, ``corrections``, ``hub_wait``,
        ``residence``, ``mean_waiting``, ``most_waiting``, ``open_columns`` as in `EngineRun`.

    Raises
    ------
    InputError
        As `simulate`.
    """
    rates = config.array("rber") if rber is None else rber
    times = config.array("read_time") if read_time is None else read_time
    names = _fields() | set(rates.dims) | set(times.dims)
    axes = {name: values for name, values in config.axes.items() if name in names}
    shape = tuple(len(values) for values in axes.values())
    found = {name: np.zeros(shape) for name in _MEANING}
    lost = np.zeros((*shape, len(CAUSES)))
    for index, point in config.points(axes):
        at = {name: getattr(point, name) for name in axes}
        run = simulate(point, segments, rber=_at(rates, at), read_time=_at(times, at), seed=seed)
        for name, array in found.items():
            array[index] = getattr(run, name)
        lost[index] = [run.lost[cause] / (run.cycles * run.lanes) for cause in CAUSES]
    coords = {name: list(values) for name, values in axes.items()}
    result = xr.Dataset(
        {
            name: (tuple(axes), array, {"units": unit, "long_name": meaning})
            for (name, array), (unit, meaning) in zip(found.items(), _MEANING.values(), strict=True)
        },
        coords={**coords, "cause": list(CAUSES)},
    )
    result["lost"] = ((*axes, "cause"), lost)
    result["lost"].attrs = {"units": "1", "long_name": "share of cycles without multiplication"}
    return result


def fault_probability(
    bits: xr.DataArray | int, parity_bits: xr.DataArray | int, rber: xr.DataArray | float
) -> xr.DataArray:
    """Probability that a check finds a segment faulty: 1 - (1 - rber)^n, 0 without parity.

    Parameters
    ----------
    bits, parity_bits : DataArray or int
        Of a segment with its parity (n), and of the parity.
    rber : DataArray or float
        Raw bit error rate.
    """
    return (xr.DataArray(parity_bits) > 0) * segment_error_rate(rber, bits)


def _refuse_axes(config: EngineConfig) -> None:
    axes = [name for name in config.axes if name in _fields()]
    if axes:
        raise InputError(
            f"nvllm: a run of the engines has the axes {', '.join(axes)}, "
            "allowed: one value a field; sweep takes axes"
        )


def _fields() -> set[str]:
    """Fields that the cycles depend on."""
    owners = (FlashFields, EngineFields, PipelineFields)
    return {name for owner in owners for name in owner.model_fields} | {"rber"}


def _at(values: xr.DataArray, point: dict[str, Any]) -> float:
    return float(values.sel({name: point[str(name)] for name in values.dims}))


def _rules(config: Any, segments: int, sizes: xr.Dataset, read_time: float | None) -> Rules:
    """The configuration in whole numbers; the hub's correctors are still those of a cluster."""
    from nandcosim.systems.nvllm.engine_kernels import Rules

    if segments < 1:
        raise InputError(f"nvllm: segments = {segments}, allowed: 1 or more a cluster")
    # as written in decimal: 5.12e-6 s at 350 MHz are 1792 cycles, not a bit more
    read = Fraction(repr(float(config.read_time if read_time is None else read_time)))
    read = (read * Fraction(repr(float(config.engine_clock)))).limit_denominator(_LARGEST_PART)
    group = int(segments_a_read(config, sizes["parity_bits"]))
    held = 8 * config.fifo_bytes // int(sizes["n"])
    room = config.page_buffers + held // group
    if config.prefetched > room:
        raise InputError(
            f"nvllm: prefetched = {config.prefetched}, allowed: up to {room}, what page "
            "registers and FIFO hold"
        )
    return Rules(
        clusters=config.clusters,
        lanes=config.lanes,
        segments=segments,
        group=group,
        bank=held // config.lanes,
        buffers=config.page_buffers,
        read=read.numerator,
        parts=read.denominator,
        prefetched=config.prefetched,
        column=config.column,
        in_order=int(config.order == "in_order"),
        entries=config.scoreboard,
        servers=config.correctors,
        interval=config.corrector_interval or config.corrector_latency,
        latency=config.corrector_latency,
    )


def _random_faults(segments: int, chance: float, seed: tuple[int, int]) -> NDArray[np.int64]:
    """Positions of faulty segments, by geometric gaps: the cost is one of faults."""
    if chance <= 0:
        return np.empty(0, np.int64)
    draw = np.random.default_rng(seed)
    mean = segments * chance
    at_once = int(mean + 6 * np.sqrt(mean * (1 - chance))) + 10
    found = np.empty(0, np.int64)
    last = -1
    while last < segments:
        gaps = np.minimum(draw.geometric(chance, at_once), segments + 1)
        found = np.append(found, last + np.cumsum(gaps))
        last = int(found[-1])
    return found[: np.searchsorted(found, segments)]


def _by_lane(
    faults: list[NDArray[np.int64]], rules: Rules
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Faults of clusters dealt to their lanes, as `engine_kernels.run_hub` takes them."""
    parts = []
    for found in faults:
        for lane in range(rules.lanes):
            mine = found[found % rules.lanes == lane] // rules.lanes if rules.lanes > 1 else found
            total = len(range(lane, rules.segments, rules.lanes))
            parts.append(np.append(mine, total))
    first = np.cumsum([0, *map(len, parts[:-1])])
    return np.concatenate(parts), first


def _summary(config: Any, segments: int, tallies: NDArray[np.int64]) -> EngineRun:
    from nandcosim.systems.nvllm.engine_kernels import TALLIES

    tally = dict(zip(TALLIES, tallies.T, strict=True))
    cycles = int(tally["cycles"].max())
    lost = {cause: int(tally[cause].sum()) for cause in CAUSES if cause != "fill"}
    lost["drain"] += int((cycles - tally["cycles"]).sum())
    lost["fill"] = config.checker_latency * len(tallies)
    corrections = int(tally["corrections"].sum())
    return EngineRun(
        segments=config.clusters * segments,
        lanes=len(tallies),
        cycles=cycles + config.checker_latency,
        lost=lost,
        corrections=corrections,
        hub_wait=float(tally["hub_wait"].sum()) / max(1, corrections),
        residence=float(tally["residence"].sum()) / max(1, corrections),
        most_waiting=int(tally["most_waiting"].max()),
        open_columns=int(tally["open_columns"].max()),
    )


_MEANING = {
    "utilisation": ("1", "share of cycles with a multiplication"),
    "cycles": ("1", "cycles of the layer"),
    "corrections": ("1", "segments corrected"),
    "hub_wait": ("1", "mean wait for a corrector, cycles"),
    "residence": ("1", "mean time in the scoreboard, cycles"),
    "mean_waiting": ("1", "scoreboard entries of a lane in use, mean"),
    "most_waiting": ("1", "scoreboard entries of a lane in use, most"),
    "open_columns": ("1", "columns of a lane begun and not committed, most"),
}
