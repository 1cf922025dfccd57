"""Hardware of NVLLM: flash clusters, in-flash engines, NPU, DRAM, links."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nandcosim.page_coding import Coding
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nand import Count, Positive, Share, Whole
from nandcosim.threshold import NOMINAL

__all__ = [
    "DramFields",
    "EngineFields",
    "ErrorFields",
    "FlashFields",
    "HardwareFields",
    "NpuFields",
]

NotNegative = Annotated[float, Field(ge=0.0)]
Bits = Annotated[int, Field(ge=1, le=4)]
Spread = Annotated[float, Field(ge=0.0, le=5.0)]
Registers = Annotated[int, Field(ge=1, le=2)]
Rate = Annotated[float, Field(ge=0.0, le=0.5)]
Shift = Annotated[float, Field(ge=-4.0, le=4.0)]
Temperature = Annotated[float, Field(ge=-55.0, le=150.0)]
Correctable = Annotated[int, Field(ge=1, le=16)]
Source = Literal["stated", "table"]
RateSource = Literal["given", "table", "aged"]
CodeName = Literal["bch", "hamming", "none"]
Order = Literal["out_of_order", "in_order"]
Spare = Literal["page", "spare"]


class FlashFields(SystemConfig):
    """Planes, their pages, and where page time and energy come from."""

    clusters: Count | tuple[Count, ...] = setting(
        16, unit="1", meaning="plane clusters, each with an engine", origin="stated: Table 3"
    )
    planes_per_cluster: Count | tuple[Count, ...] = setting(
        4, unit="1", meaning="planes that return a page at once",
        origin="stated: section 4.1, 2 x 2",
    )  # fmt: skip
    page_bytes: Count | tuple[Count, ...] = setting(
        16_384, unit="B", meaning="page buffer of a plane", origin="stated: section 4.1"
    )
    plane_capacity: Positive | tuple[Positive, ...] = setting(
        4 * 2.0**30, unit="B", meaning="bytes a plane stores",
        origin="derived: section 4.1, 128 GiB / 32 planes",
    )  # fmt: skip
    page_time: Source | tuple[Source, ...] = setting(
        "stated", unit="", meaning="page read time: read_time, or as the circuit's table has it",
        origin="stated: section 4.1; measured: table page_read_cost",
    )  # fmt: skip
    read_time: Positive | tuple[Positive, ...] = setting(
        5.12e-6, unit="s", meaning="page read, with page_time=stated", origin="stated: section 4.1"
    )
    page_buffers: Registers | tuple[Registers, ...] = setting(
        2, unit="1", meaning="page registers of a plane; 2: it reads while the last page drains",
        origin="stated: section 3.4, prefetch into the cluster FIFOs; that it takes a second "
        "register is assumed",
    )  # fmt: skip
    parity_place: Spare | tuple[Spare, ...] = setting(
        "page", unit="", meaning="parity takes bytes of the page, or lies in a spare area",
        origin="assumed: not stated; 36.5 B of 36.57 B a cycle then just feed an engine",
    )  # fmt: skip
    array_energy: Source | tuple[Source, ...] = setting(
        "stated", unit="", meaning="array energy: bit_energy, or as the circuit's tables have it, "
        "in whose scaled domain of 1.2 V wordlines cost a 25th",
        origin="measured: tables page_read_cost and wordline, with array_energy=table",
    )  # fmt: skip
    bit_energy: Positive | tuple[Positive, ...] = setting(
        2.25e-12, unit="J", meaning="array energy a bit read, with array_energy=stated",
        origin="sourced: D-NOVA Table 1, 294.9 nJ a page, if the page is 16 KiB",
    )  # fmt: skip


class ErrorFields(SystemConfig):
    """Raw bit errors of a read."""

    rber_source: RateSource | tuple[RateSource, ...] = setting(
        "given", unit="", meaning="raw bit error rate: rber; or where the circuit's table decides, "
        "of thresholds with sigma and shift (table), or with retention and cycles (aged)",
        origin="measured: table page_read, with table and aged",
    )  # fmt: skip
    rber: Rate | tuple[Rate, ...] = setting(
        1e-4, unit="1", meaning="raw bit error rate, with rber_source=given",
        origin="assumed: not stated; the highest at which two faulty segments in a row are rare",
    )  # fmt: skip
    cell_bits: Bits | tuple[Bits, ...] = setting(
        3, unit="1", meaning="bits a cell, for the tables and the layout of pages",
        origin="assumed: section 3.1 speaks of MLC and TLC cells, 5.12 us has room for one sense",
    )  # fmt: skip
    coding: Coding | tuple[Coding, ...] = setting(
        "balanced", unit="", meaning="Gray code of the pages", origin="assumed: not stated"
    )
    sigma: Spread | tuple[Spread, ...] = setting(
        0.2, unit="level", meaning="spread of every threshold, with rber_source=table",
        origin="sourced: D-NOVA section 6.4, nominal QLC condition; cells of fewer bits have less",
    )  # fmt: skip
    shift: Shift | tuple[Shift, ...] = setting(
        0.0, unit="level", meaning="mean shift of the top level by retention, others in proportion",
        origin="assumed: fresh",
    )  # fmt: skip
    retention: NotNegative | tuple[NotNegative, ...] = setting(
        NOMINAL["retention"], unit="s", meaning="time since programming, with rber_source=aged",
        origin="sourced: JESD218, three months without power",
    )  # fmt: skip
    cycles: NotNegative | tuple[NotNegative, ...] = setting(
        NOMINAL["cycles"], unit="1", meaning="program/erase cycles, with rber_source=aged",
        origin="assumed: nominal condition of the threshold model",
    )  # fmt: skip
    storage_temperature: Temperature | tuple[Temperature, ...] = setting(
        NOMINAL["storage_temperature"], unit="degC",
        meaning="temperature since programming, with rber_source=aged",
        origin="sourced: JESD218, 40 degC without power",
    )  # fmt: skip
    retry: Whole | tuple[Whole, ...] = setting(
        0, unit="1", meaning="number of the read retry", origin="assumed: default read"
    )


class EngineFields(SystemConfig):
    """The error-resilient dot-product engines under the planes."""

    engine_clock: Positive | tuple[Positive, ...] = setting(
        350e6, unit="Hz", meaning="clock of the flash logic", origin="stated: section 4.3"
    )
    segment_bytes: Count | tuple[Count, ...] = setting(
        32, unit="B", meaning="weights of a segment (d), one an engine and cycle, NPU too",
        origin="derived: 307 and 486 GOPS of section 4.3 at 350 and 500 MHz give 64 operations",
    )  # fmt: skip
    lanes: Count | tuple[Count, ...] = setting(
        1, unit="1", meaning="PE lanes of an engine, each a segment a cycle",
        origin="derived: 64 operations an engine and cycle are one lane of 32 weights",
    )  # fmt: skip
    code: CodeName | tuple[CodeName, ...] = setting(
        "bch", unit="", meaning="error-correcting code of a segment, L(n, d)",
        origin="assumed: not stated",
    )  # fmt: skip
    correctable: Correctable | tuple[Correctable, ...] = setting(
        4, unit="1", meaning="bits that the BCH code corrects (t)",
        origin="assumed: not stated; L(292, 256) exactly fits what a cluster supplies",
    )  # fmt: skip
    order: Order | tuple[Order, ...] = setting(
        "out_of_order", unit="", meaning="faulty segments wait aside, or the engine waits",
        origin="stated: section 3.3",
    )  # fmt: skip
    correctors: Count | tuple[Count, ...] = setting(
        1, unit="1", meaning="correctors a cluster, shared by its lanes",
        origin="derived: Table 2, 8 for 8 clusters",
    )  # fmt: skip
    corrector_latency: Count | tuple[Count, ...] = setting(
        12, unit="1", meaning="cycles of one correction",
        origin="assumed: not stated; t + 1 for the key equation, the rest for a parallel search",
    )  # fmt: skip
    scoreboard: Count | tuple[Count, ...] = setting(
        16, unit="1", meaning="segments of an engine that may wait for correction",
        origin="assumed: not stated",
    )  # fmt: skip


class NpuFields(SystemConfig):
    """The NPU beside the DRAM, and the link between it and the flash."""

    npu_engines: Count | tuple[Count, ...] = setting(
        4, unit="1", meaning="dot-product engines of the NPU", origin="stated: Table 3"
    )
    npu_clock: Positive | tuple[Positive, ...] = setting(
        500e6, unit="Hz", meaning="clock of the NPU", origin="stated: section 4.3"
    )
    softmax_cycles: NotNegative | tuple[NotNegative, ...] = setting(
        0.0, unit="1", meaning="cycles a score takes in the special function unit",
        origin="assumed: hidden behind the dot products",
    )  # fmt: skip
    link_bandwidth: Positive | tuple[Positive, ...] = setting(
        8e9, unit="B/s", meaning="link between flash and NPU",
        origin="assumed: not stated; PCIe 4.0 x4, as its baselines have",
    )  # fmt: skip
    link_energy: NotNegative | tuple[NotNegative, ...] = setting(
        6e-12, unit="J", meaning="link, a bit", origin="assumed: not stated; middle of 5 to 7 pJ"
    )


class DramFields(SystemConfig):
    """LPDDR5X: attention weights and the KV cache."""

    dram_bandwidth: Positive | tuple[Positive, ...] = setting(
        68.3e9, unit="B/s", meaning="peak of all channels",
        origin="sourced: 8533 MT/s on two 32-bit channels (Table 3 has 2 x LPDDR5X)",
    )  # fmt: skip
    dram_efficiency: Share | tuple[Share, ...] = setting(
        0.96, unit="1", meaning="share of the peak that sequential reads get",
        origin="sourced: simulated LPDDR streams, 0.96 to 0.98 (DRAM_bench)",
    )  # fmt: skip
    dram_capacity: Positive | tuple[Positive, ...] = setting(
        12 * 2.0**30, unit="B", meaning="DRAM capacity", origin="stated: Table 3, 6 x 16 Gb"
    )
    dram_energy: NotNegative | tuple[NotNegative, ...] = setting(
        5e-12, unit="J", meaning="DRAM access, a bit",
        origin="assumed: 4 to 5 pJ are commonly given for LPDDR5X",
    )  # fmt: skip
    kv_bytes: Positive | tuple[Positive, ...] = setting(
        1.0, unit="B", meaning="a value of the KV cache",
        origin="assumed: not stated; INT8 as the weights",
    )  # fmt: skip


class HardwareFields(FlashFields, ErrorFields, EngineFields, NpuFields, DramFields):
    """All of NVLLM's hardware."""
