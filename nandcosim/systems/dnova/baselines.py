"""Time, energy and data movement of the baselines: CPU, NSP and REIS (section 5.4).

Closed forms over the activity of the searches (vectors scored by stage) and a
configuration. They broadcast over whatever axes either has. Components of a latency
or an energy add up to the total: nothing overlaps, which no baseline's description
in the paper promises; the longest component alone is the bound if all of it did.

=========== ============================================================================
component   what
=========== ============================================================================
array       sensing NAND pages
bus         flash channel
memory      main memory of the CPU, LPDDR4 of the SSD
compute     CPU, ASIC or embedded core
host        query in and results out
=========== ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from nandcosim.errors import InputError
from nandcosim.systems.config import setting
from nandcosim.systems.dnova.cost import quickselect_compares, quicksort_compares
from nandcosim.systems.dnova.hardware import HardwareFields
from nandcosim.systems.nand import Count, Positive, Share

if TYPE_CHECKING:
    from nandcosim.systems.dnova.ivf import IvfIndex

__all__ = [
    "COMPONENTS",
    "CPU_MODES",
    "SLOW_SCAN",
    "BaselineFields",
    "FaissTiming",
    "PageFill",
    "cpu_cost",
    "expected_pages",
    "nsp_cost",
    "reis_cost",
    "time_faiss",
]

COMPONENTS = ("array", "bus", "memory", "compute", "host")

#: Where the CPU's scan rate comes from.
CPU_MODES = ("paper_calibrated", "measured_faiss")

#: Bytes a second below which a one-thread FP32 scan is no fair CPU baseline.
SLOW_SCAN = 5.0e9

PageFill = Literal["whole", "straddling"]
_NotNegative = Annotated[float, Field(ge=0.0)]

_FP32_BYTES = 4


class BaselineFields(HardwareFields):
    """Fields that the baselines' cost depends on beside the device's own."""

    planes_per_query: Count | tuple[Count, ...] = setting(
        12,
        unit="1",
        meaning="planes that read for one query in NSP and REIS",
        origin="calibrated: to D2 and D3, whose ratios need 5 to 12; one die's",
    )
    page_bytes: Count | tuple[Count, ...] = setting(
        2048,
        unit="B",
        meaning="page that NSP and REIS read; apart from `bitlines`, which scaled studies shrink",
        origin="stated: Table 2, 2 KB",
    )
    page_fill: PageFill | tuple[PageFill, ...] = setting(
        "whole",
        unit="",
        meaning="whether a vector may straddle two pages",
        origin="stated: section 2.3, each vector lies within a single page",
    )
    qlc_page_energy: Positive | tuple[Positive, ...] = setting(
        294.9e-9,
        unit="J",
        meaning="one read of a QLC page by NSP and REIS; `page_energy` does not change it",
        origin="stated: Table 1 has one energy for any page, although QLC takes 140 us, not 30",
    )
    reis_candidates: Count | tuple[Count, ...] = setting(
        20_000,
        unit="1",
        meaning="vectors that REIS re-ranks",
        origin="stated: section 6.6, tens of thousands",
    )
    reis_filter_share: Share | tuple[Share, ...] = setting(
        0.01,
        unit="1",
        meaning="share of scanned vectors that REIS' distance filter lets off the die; "
        "at least the candidates",
        origin="assumed: about 99 % filtered, by secondary accounts of REIS, unverified",
    )
    reis_compare_time: _NotNegative | tuple[_NotNegative, ...] = setting(
        0.0,
        unit="s",
        meaning="XOR and bit count of a binary page, on top of its sense",
        origin="assumed: not stated; hidden behind the next sense",
    )
    reis_cores: Count | tuple[Count, ...] = setting(
        1,
        unit="1",
        meaning="controller cores that re-rank a query",
        origin="assumed: one of four, by secondary accounts of REIS, unverified",
    )
    core_macs: Positive | tuple[Positive, ...] = setting(
        2.0,
        unit="1",
        meaning="INT8 multiply-accumulates a cycle of a controller core",
        origin="assumed: not stated; Cortex-R8 class, 1 to 2, unverified",
    )
    nsp_mac_rate: Positive | tuple[Positive, ...] = setting(
        64.0e9,
        unit="1/s",
        meaning="INT8 multiply-accumulates a second of NSP's ASIC",
        origin="assumed: not stated; 64 units at 1 GHz, four times what all channels deliver",
    )
    mac_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        0.077e-12,
        unit="J",
        meaning="INT8 multiply-accumulate in 7 nm",
        origin="sourced: 0.07 pJ multiply and 0.007 pJ add (Jouppi et al., ISCA 2021), unverified",
    )
    lpddr_bandwidth: Positive | tuple[Positive, ...] = setting(
        25.6e9,
        unit="B/s",
        meaning="memory of the SSD controller",
        origin="sourced: LPDDR4-3200, 64 bits wide; the paper says LPDDR4",
    )
    lpddr_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        8.0e-12,
        unit="J",
        meaning="memory of the SSD controller, a bit",
        origin="sourced: LPDDR4 of the public hwcomponents-cacti",
    )
    cpu_bandwidth: Positive | tuple[Positive, ...] = setting(
        0.2226e9,
        unit="B/s",
        meaning="rate at which the paper's CPU scans FP32 vectors",
        origin="calibrated: to D1 on NQ, mpnet, nprobe 64 (geometric mean of 33.3 and 41.7)",
    )
    faiss_bandwidth: Positive | tuple[Positive, ...] = setting(
        17.1e9,
        unit="B/s",
        meaning="rate at which FAISS IndexIVFFlat scans them, one thread",
        origin="measured: baseline_study faiss, 768-D, nprobe 128, an AMD EPYC core",
    )
    cpu_power: Positive | tuple[Positive, ...] = setting(
        400.0,
        unit="W",
        meaning="two-socket server while a query runs",
        origin="assumed: not stated; its two processors are rated 200 to 400 W each",
    )
    dram_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        18.0e-12,
        unit="J",
        meaning="memory of the CPU, a bit",
        origin="assumed: not stated; DDR4 15 to 20 pJ, unverified",
    )


def cpu_cost(activity: xr.Dataset, config: BaselineFields) -> xr.Dataset:
    """CPU: FP32 vectors of the probed lists, scanned from memory.

    The scan is bound by its rate, `cpu_bandwidth` or `faiss_bandwidth`; FAISS IVF-Flat
    is exact after stage 2, so stage 3 costs nothing. The server's power is charged for
    as long as the query runs.

    Parameters
    ----------
    activity : xarray.Dataset
        ``sensed``, vectors scored, over ``stage`` (1, 2, 3), any axes, and ``query`` if
        they differ; ``dimension`` as a variable or an attribute.
    config : BaselineFields

    Returns
    -------
    xarray.Dataset
        As `nsp_cost`, over ``cpu_mode`` too. ``qps`` is one query at a time.

    Raises
    ------
    InputError
        If the activity is not as described.
    """
    sensed, dimension = _scored(activity), _dimension(activity)
    rate = _along(
        "cpu_mode", CPU_MODES, config.array("cpu_bandwidth"), config.array("faiss_bandwidth")
    )
    scanned = _by_stage(*sensed[:2], 0) * dimension * _FP32_BYTES
    time = scanned / rate
    return _cost(
        "cpu",
        latency={"memory": time},
        energy={
            "memory": 8 * scanned * config.array("dram_energy"),
            "compute": config.array("cpu_power") * time,
        },
        bytes_moved=scanned,
        pages=xr.zeros_like(scanned),
        streams=None,
    )


def nsp_cost(activity: xr.Dataset, config: BaselineFields) -> xr.Dataset:
    """NSP: INT8 vectors read from QLC pages and scored by an ASIC beside the controller.

    Stages 1 and 2 read every page of the centroids and of the probed lists on
    `planes_per_query` planes at `qlc_read_time`, send whole pages over the channel (the
    controller decodes whole pages), put them into LPDDR4 and read them from there,
    and take D multiply-accumulates a vector. Stage 3 sorts its vectors on a core.

    Parameters
    ----------
    activity : xarray.Dataset
        ``sensed``, vectors scored, over ``stage`` (1, 2, 3), any axes, and ``query`` if
        they differ; ``dimension`` as a variable or an attribute.
    config : BaselineFields
        With `nprobe` and `k1` of the search.

    Returns
    -------
    xarray.Dataset
        - ``latency`` [s] and ``energy`` [J] of a query over ``stage`` and ``component``;
        - ``bytes_moved`` [B] out of the arrays (CPU: out of memory) over ``stage``;
        - ``pages`` read over ``stage``;
        - ``qps`` [1/s], the mean query repeated for ever: streams / slowest stage. A
          stream is the channels that `planes_per_query` take, with a copy of the index.

    Raises
    ------
    InputError
        If the activity is not as described, a vector is longer than a page, or there are
        fewer planes than `planes_per_query`.
    """
    sensed, dimension = _scored(activity), _dimension(activity)
    channels = _channels_a_query(config)
    vectors = _by_stage(*sensed[:2], 0)
    pages = _ufunc(np.ceil, vectors / _a_page(config, 8 * dimension))
    moved = pages * _page_bytes(config)
    products = vectors * dimension
    sort_time = _core_time(_by_stage(0, 0, quicksort_compares(sensed[2])), config)
    return _cost(
        "nsp",
        latency={
            "array": _rounds(pages, config) * config.array("qlc_read_time"),
            "bus": moved / (channels * config.array("channel_bandwidth")),
            "memory": 2 * moved / config.array("lpddr_bandwidth"),
            "compute": products / config.array("nsp_mac_rate") + sort_time,
            "host": _host_bytes(dimension, config) / config.array("host_bandwidth")
            + _host_messages(config),
        },
        energy={
            "array": pages * config.array("qlc_page_energy"),
            "bus": 8 * moved * config.array("channel_energy"),
            "memory": 2 * 8 * moved * config.array("lpddr_energy"),
            "compute": products * config.array("mac_energy")
            + sort_time * config.array("controller_power"),
            "host": 8 * _host_bytes(dimension, config) * config.array("host_energy"),
        },
        bytes_moved=moved,
        pages=pages,
        streams=config.array("channels") / channels,
    )


def reis_cost(activity: xr.Dataset, config: BaselineFields) -> xr.Dataset:
    """REIS: Hamming distances in the array, then INT8 re-ranking in the controller.

    Stages 1 and 2 sense every SLC page of binary codes, `sense_time` and
    `reis_compare_time` each; entries {id, distance, address} of all centroids and of the
    vectors that pass the distance filter leave the die, and a core selects. Stage 3
    reads the distinct QLC pages that hold `reis_candidates` (all scanned, if fewer)
    vectors, sends whole pages, puts the candidates into LPDDR4 and reads them from there,
    and scores and selects them on `reis_cores` cores.

    Parameters, returns and errors are those of `nsp_cost`.
    """
    sensed, dimension = _scored(activity), _dimension(activity)
    channels = _channels_a_query(config)
    centroids, listed = sensed[:2]
    candidates = _ufunc(np.minimum, config.array("reis_candidates"), listed)
    binary = _a_page(config, dimension)
    whole = _a_page(config, 8 * dimension)
    overlapping = whole + _shared(config, dimension)
    pages = _by_stage(
        _ufunc(np.ceil, centroids / binary),
        _ufunc(np.ceil, listed / binary),
        expected_pages(listed, whole, candidates, overlapping=overlapping),
    )
    slc = config.array("sense_time") + config.array("reis_compare_time")
    results = _ufunc(np.minimum, config.array("k1"), candidates)
    passing = _ufunc(np.maximum, config.array("reis_filter_share") * listed, candidates)
    entries = _by_stage(centroids, passing, 0)
    moved = entries * config.array("entry_bits") / 8 + (
        _by_stage(0, 0, 1) * pages * _page_bytes(config)
    )
    fetched = _by_stage(0, 0, candidates * dimension)
    comparing = _core_time(
        _by_stage(
            quickselect_compares(centroids, config.array("nprobe")),
            quickselect_compares(passing, candidates),
            quickselect_compares(candidates, config.array("k1")) + quicksort_compares(results),
        ),
        config,
    )
    multiplying = fetched / (
        config.array("reis_cores") * config.array("controller_clock") * config.array("core_macs")
    )
    return _cost(
        "reis",
        latency={
            "array": _rounds(pages, config) * _by_stage(slc, slc, config.array("qlc_read_time")),
            "bus": moved / (channels * config.array("channel_bandwidth")),
            "memory": 2 * fetched / config.array("lpddr_bandwidth"),
            "compute": comparing + multiplying,
            "host": _host_bytes(dimension, config) / config.array("host_bandwidth")
            + _host_messages(config),
        },
        energy={
            "array": pages
            * _by_stage(
                config.array("page_energy"),
                config.array("page_energy"),
                config.array("qlc_page_energy"),
            ),
            "bus": 8 * moved * config.array("channel_energy"),
            "memory": 2 * 8 * fetched * config.array("lpddr_energy"),
            "compute": fetched * config.array("mac_energy")
            + (comparing + config.array("reis_cores") * multiplying)
            * config.array("controller_power"),
            "host": 8 * _host_bytes(dimension, config) * config.array("host_energy"),
        },
        bytes_moved=moved,
        pages=pages,
        streams=config.array("channels") / channels,
    )


def expected_pages(
    vectors: Any, a_page: Any, wanted: Any, *, overlapping: Any | None = None
) -> xr.DataArray:
    """Distinct pages that hold `wanted` of `vectors` vectors, drawn without replacement.

    A page with v of n vectors escapes all w draws with probability C(n - v, w) / C(n, w),
    so n / v (1 - that) are read.

    Parameters
    ----------
    vectors, a_page, wanted : DataArray or float
        n, vectors a page (may be broken), and w; 0 <= w <= n.
    overlapping : DataArray or float, optional
        Vectors of which a page holds any part, if not `a_page`. A broken mean stands for
        pages of the two neighbouring whole numbers.

    Returns
    -------
    xarray.DataArray

    Raises
    ------
    InputError
        If `wanted` is not in that range.
    """
    n, size, w = (xr.DataArray(x).astype(float) for x in (vectors, a_page, wanted))
    if bool(((w < 0) | (w > n)).any()):
        raise InputError("expected pages: more vectors wanted than there are, or fewer than none")
    there = n > 0
    n = n.where(there, 1.0)
    v = _ufunc(np.minimum, size if overlapping is None else xr.DataArray(overlapping), n)
    fewer = _ufunc(np.floor, v)
    more = v - fewer
    escapes = (1 - more) * _ufunc(_escape, n, fewer, w) + more * _ufunc(_escape, n, fewer + 1, w)
    return (n / _ufunc(np.minimum, size, n) * (1 - escapes)).where(there, 0.0)


def _escape(n: NDArray[Any], v: NDArray[Any], w: NDArray[Any]) -> NDArray[Any]:
    """Probability C(n - v, w) / C(n, w) that none of w draws from n is one of v."""
    from scipy.special import gammaln

    rest = n - v - w
    possible = rest >= 0
    ways = gammaln(n - v + 1) - gammaln(np.where(possible, rest, 0) + 1)
    return np.where(possible, np.exp(ways + gammaln(n - w + 1) - gammaln(n + 1)), 0.0)


@dataclass(frozen=True)
class FaissTiming:
    """A FAISS scan as timed here.

    Attributes
    ----------
    seconds : float
        A query: the mean over the queries of the fastest repetition. CPU time of the
        thread, which is its latency on an idle machine.
    scanned : float
        Vectors scanned in the lists a query, centroids not counted.
    bandwidth : float
        Bytes of FP32 vectors and centroids scanned a second.
    """

    seconds: float
    scanned: float
    bandwidth: float

    @property
    def slow(self) -> bool:
        """Whether the scan is below `SLOW_SCAN`: no fair CPU baseline."""
        return self.bandwidth < SLOW_SCAN


def time_faiss(
    index: IvfIndex | Any, queries: ArrayLike, nprobe: int, *, k1: int = 100, repeats: int = 3
) -> FaissTiming:
    """Time FAISS IndexIVFFlat on one thread, one query after the other.

    Parameters
    ----------
    index : IvfIndex or faiss.IndexIVFFlat
        The former is searched in FP32 over its own lists.
    queries : float array (nq, D)
    nprobe, k1 : int
        Lists probed, results kept.
    repeats : int
        Repetitions, of which the fastest counts.

    Raises
    ------
    InputError
        If nprobe or `repeats` is not allowed.
    MissingExtraError
        If FAISS is not installed.
    """
    from nandcosim.systems.dnova.ivf import IvfIndex, normalised

    searched = index.fp32().faiss_index if isinstance(index, IvfIndex) else index
    import faiss

    if not 1 <= nprobe <= searched.nlist:
        raise InputError(f"FAISS timing: nprobe = {nprobe}, allowed: 1 .. {searched.nlist}")
    if repeats < 1:
        raise InputError(f"FAISS timing: repeats = {repeats}, allowed: 1 or more")
    rows, counters = normalised(queries), cast("Any", faiss.cvar)
    threads, before = faiss.omp_get_max_threads(), searched.nprobe
    faiss.omp_set_num_threads(1)
    searched.nprobe = nprobe
    try:
        counters.indexIVF_stats.reset()
        searched.search(rows, k1)
        scanned = counters.indexIVF_stats.ndis / len(rows)
        seconds = min(_one_by_one(searched, rows, k1) for _ in range(repeats))
    finally:
        faiss.omp_set_num_threads(threads)
        searched.nprobe = before
    read = (scanned + searched.nlist) * rows.shape[1] * _FP32_BYTES
    return FaissTiming(seconds, scanned, read / seconds)


def _one_by_one(index: Any, rows: NDArray[np.float32], k1: int) -> float:
    start = thread_time()
    for i in range(len(rows)):
        index.search(rows[i : i + 1], k1)
    return (thread_time() - start) / len(rows)


def _scored(activity: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Vectors scored in stages 1, 2, 3."""
    if "sensed" not in activity or "stage" not in activity["sensed"].dims:
        raise InputError("baselines: the activity has no 'sensed' over 'stage'")
    stages = activity["sensed"].coords.get("stage")
    if stages is None or stages.values.tolist() != [1, 2, 3]:
        found = "none" if stages is None else stages.values.tolist()
        raise InputError(f"baselines: stages of the activity are {found}, allowed: 1, 2, 3")
    one, two, three = (activity["sensed"].sel(stage=s, drop=True) for s in (1, 2, 3))
    return one, two, three


def _dimension(activity: xr.Dataset) -> xr.DataArray:
    """Components of a vector."""
    if "dimension" in activity.variables:
        return activity["dimension"]
    if "dimension" not in activity.attrs:
        raise InputError("baselines: the activity has no 'dimension'")
    return xr.DataArray(activity.attrs["dimension"])


def _ufunc(function: Callable[..., Any], *values: xr.DataArray) -> xr.DataArray:
    """A NumPy function of labelled arrays, with its type known."""
    found: xr.DataArray = xr.apply_ufunc(function, *values)
    return found


def _along(name: str, labels: tuple[Any, ...], *parts: Any) -> xr.DataArray:
    """Stack parts along a new dimension, broadcast against each other."""
    alike = xr.broadcast(*(xr.DataArray(part) for part in parts))
    stacked = xr.concat(alike, dim=name, coords="minimal", compat="override")
    return stacked.assign_coords({name: list(labels)})


def _by_stage(first: Any, second: Any, third: Any) -> xr.DataArray:
    return _along("stage", (1, 2, 3), first, second, third)


def _page_bytes(config: BaselineFields) -> xr.DataArray:
    return config.array("page_bytes").astype(float)


def _a_page(config: BaselineFields, bits: xr.DataArray) -> xr.DataArray:
    """Vectors of so many bits that a page holds; whole ones unless they may straddle."""
    fits = 8 * config.array("page_bytes") / bits
    whole = _ufunc(np.floor, fits)
    if bool((whole < 1).any()):
        raise InputError(
            f"baselines: page_bytes = {config.page_bytes}, allowed: {int(bits.max()) // 8} or "
            "more, so that a page holds a vector"
        )
    return fits.where(config.array("page_fill") == "straddling", whole)


def _shared(config: BaselineFields, dimension: xr.DataArray) -> xr.DataArray:
    """Vectors of D bytes a page that it shares with another, where they may straddle.

    One at either end, counted for both pages; none where a vector starts with the page,
    and starts fall on multiples of gcd(page, D).
    """
    grid = _ufunc(np.gcd, config.array("page_bytes"), dimension)
    return (1 - grid / dimension).where(config.array("page_fill") == "straddling", 0.0)


def _rounds(pages: xr.DataArray, config: BaselineFields) -> xr.DataArray:
    """Reads one after the other, the pages being even over the planes of a query."""
    return pages / config.array("planes_per_query")


def _channels_a_query(config: BaselineFields) -> xr.DataArray:
    """Channels that the planes of a query take, each channel's planes first."""
    a_channel = config.array("dies") * config.array("planes")
    channels = _ufunc(np.ceil, config.array("planes_per_query") / a_channel)
    if bool((channels > config.array("channels")).any()):
        most = int((config.array("channels") * a_channel).min())
        raise InputError(
            f"baselines: planes_per_query = {config.planes_per_query}, allowed: 1 .. {most} "
            "(all planes)"
        )
    return channels


def _core_time(comparisons: xr.DataArray, config: BaselineFields) -> xr.DataArray:
    """Seconds of a controller core."""
    return comparisons * config.array("compare_cycles") / config.array("controller_clock")


def _host_bytes(dimension: xr.DataArray, config: BaselineFields) -> xr.DataArray:
    """INT8 query in before stage 1, results out after stage 3."""
    return _by_stage(dimension, 0, config.array("k1") * config.array("result_bits") / 8)


def _host_messages(config: BaselineFields) -> xr.DataArray:
    return _by_stage(1, 0, 1) * config.array("host_latency")


def _cost(
    system: str,
    *,
    latency: dict[str, xr.DataArray],
    energy: dict[str, xr.DataArray],
    bytes_moved: xr.DataArray,
    pages: xr.DataArray,
    streams: xr.DataArray | None,
) -> xr.Dataset:
    """The parts as one labelled dataset; without streams, queries follow each other."""
    time = _components(latency)
    mean = time.mean("query") if "query" in time.dims else time
    stages = mean.sum("component")
    qps = 1 / stages.sum("stage") if streams is None else streams / stages.max("stage")
    parts = {
        "latency": (time, "s", "time of a query"),
        "energy": (_components(energy), "J", "energy of a query"),
        "bytes_moved": (_last(bytes_moved), "B", "bytes out of the arrays or the memory, a query"),
        "pages": (_last(pages), "1", "pages read a query"),
        "qps": (qps, "1/s", "queries a second, saturated"),
    }
    cost = xr.Dataset({name: values for name, (values, _, _) in parts.items()})
    for name, (_, unit, meaning) in parts.items():
        cost[name].attrs = {"units": unit, "long_name": meaning}
    cost.attrs = {"system": system}
    return cost


def _last(by_stage: xr.DataArray) -> xr.DataArray:
    return by_stage.astype(float).transpose(..., "stage")


def _components(parts: dict[str, xr.DataArray]) -> xr.DataArray:
    """Over ``component`` last, absent ones being zero."""
    some = next(iter(parts.values()))
    everything = {name: parts.get(name, xr.zeros_like(some)) for name in COMPONENTS}
    stacked = _along("component", COMPONENTS, *everything.values())
    return stacked.transpose(..., "stage", "component")
