"""What a D-NOVA evaluation may be asked to vary."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.dnova.baselines import BaselineFields
from nandcosim.systems.dnova.device import DeviceFields
from nandcosim.systems.dnova.quantise import parse_range

__all__ = ["SEARCH_AXES", "Config", "SearchFields", "group_sizes"]

#: Fields whose every value is a search of its own.
SEARCH_AXES = (
    "dts", "alpha", "metric", "value_range", "nlist", "nprobe", "k2", "latch_bits", "merge_bits",
    "adapter", "noise", "sigma", "read_noise", "chip", "wordlines", "cell_bits",
    "reis_candidates",
)  # fmt: skip


def group_sizes(dts: str) -> tuple[int, int, int]:
    """``"242"`` or ``"16-8-16"`` to the group sizes (m1, m2, m3) of the three stages.

    Raises
    ------
    ValueError
        If the text is neither.
    """
    text = str(dts)
    parts = text.split("-") if "-" in text else list(text)
    if len(parts) != 3 or not all(re.fullmatch(r"[1-9]\d*", part) for part in parts):
        raise ValueError(f"{text!r} is no stage triple; allowed are such as 242 or 16-8-16")
    m1, m2, m3 = (int(part) for part in parts)
    return m1, m2, m3


def _like(check: Callable[[str], object]) -> AfterValidator:
    def validate(value: str) -> str:
        check(value)
        return value

    return AfterValidator(validate)


_Triple = Annotated[str, _like(group_sizes)]
_Range = Annotated[str, _like(parse_range)]
_Count = Annotated[int, Field(ge=1)]
_Whole = Annotated[int, Field(ge=0)]
_Tolerance = Annotated[int, Field(ge=1, le=16)]
_Spread = Annotated[float, Field(ge=0.0, le=5.0)]
_Noise = Literal["none", "table"]
_ReadNoise = Literal["static", "per_read"]
_Metric = Literal["dts", "ubs+lbs", "ubs+lbs-strict", "ubs"]
_MergeBits = Annotated[int, Field(ge=0, le=15)]
_Mapping = Literal["naive", "locality"]
_Packing = Literal["first-fit", "next-fit", "continuous"]


class SearchFields(SystemConfig):
    """Fields of the search itself."""

    dts: _Triple | tuple[_Triple, ...] = setting(
        "242",
        unit="",
        meaning="wordlines sensed at once in stages 1, 2, 3 (m1 m2 m3)",
        origin="stated: section 6.6, D-NOVA is DTS242",
    )
    alpha: _Tolerance | tuple[_Tolerance, ...] = setting(
        2, unit="1", meaning="tolerance in levels", origin="stated: section 5.4"
    )
    metric: _Metric | tuple[_Metric, ...] = setting(
        "dts", unit="", meaning="which bounds score", origin="stated: section 3.2"
    )
    value_range: _Range | tuple[_Range, ...] = setting(
        "sigma:9",
        unit="",
        meaning="range of the embedding that the INT4 levels span",
        origin="assumed: not stated; where recall peaks at alpha = 2 with 4-bit deficits",
    )
    nlist: _Count | tuple[_Count, ...] = setting(
        128,
        unit="1",
        meaning="inverted lists",
        origin="assumed: square root of the shipped corpus' size (section 5.1 has 1024 and up)",
    )
    nprobe: _Count | tuple[_Count, ...] = setting(
        (1, 2, 4, 8, 16, 32),
        unit="1",
        meaning="lists probed",
        origin="assumed: up to a quarter of the lists",
    )
    k2: _Count | tuple[_Count, ...] = setting(
        1000, unit="1", meaning="candidates of stage 2", origin="stated: section 5.1"
    )
    k1: _Count = setting(100, unit="1", meaning="results", origin="stated: section 5.1")
    latch_bits: _Count | tuple[_Count, ...] = setting(
        4, unit="1", meaning="deficit latch of a bitline", origin="stated: section 3.2"
    )
    merge_bits: _MergeBits | tuple[_MergeBits, ...] = setting(
        0,
        unit="1",
        meaning="width of the merged deficit at the controller, 0 for as wide as needed",
        origin="derived: the 6 bits of section 3.3 do not hold six strings of 4 bits (90)",
    )
    adapter: str | tuple[str, ...] = setting(
        "none",
        unit="",
        meaning="query adapter: none, a shipped one's name, or your file",
        origin="stated: section 4.2",
    )
    noise: _Noise | tuple[_Noise, ...] = setting(
        "none",
        unit="",
        meaning="sensing noise: none, or as the circuit's table has it",
        origin="measured: table dts_sense",
    )
    sigma: _Spread | tuple[_Spread, ...] = setting(
        0.2,
        unit="1",
        meaning="stored threshold error in level spacings, with noise=table",
        origin="stated: section 6.4, nominal QLC condition",
    )
    read_noise: _ReadNoise | tuple[_ReadNoise, ...] = setting(
        "static",
        unit="",
        meaning="offset of a sense amplifier: for life, or drawn in every read",
        origin="measured: its cause in the circuit is mismatch of transistors",
    )
    chip: _Whole | tuple[_Whole, ...] = setting(
        0,
        unit="1",
        meaning="draw of the noise: 0 at the table's values, others draw its uncertainty too",
        origin="assumed",
    )
    mapping: _Mapping | tuple[_Mapping, ...] = setting(
        "locality",
        unit="",
        meaning="order in which lists are packed into sub-blocks",
        origin="stated: section 4.3",
    )
    packing: _Packing | tuple[_Packing, ...] = setting(
        "first-fit",
        unit="",
        meaning="rule by which lists go into sub-blocks; continuous cuts them at the ends",
        origin="stated: section 4.3, first fit",
    )
    deficit_queries: _Whole = setting(
        20, unit="1", meaning="queries whose string deficits are recorded", origin="assumed"
    )
    baselines: Literal["modelled", "executed"] = setting(
        "modelled",
        unit="",
        meaning="baselines: their cost alone, or also searched for recall and FAISS timed here",
        origin="assumed",
    )
    event_queries: _Whole = setting(
        0,
        unit="1",
        meaning="queries put through the event-driven simulation too; hundreds for a rate",
        origin="assumed",
    )
    queries: _Count = setting(
        1000, unit="1", meaning="queries at most", origin="assumed: the shipped test split"
    )
    seed: _Whole = setting(0, unit="1", meaning="of k-means", origin="assumed")
    threads: _Count = setting(
        1, unit="1", meaning="queries searched at a time; no effect on results", origin="assumed"
    )


class Config(SearchFields, DeviceFields, BaselineFields):
    """Fields of `nandcosim.systems.dnova.evaluate`; a list or tuple makes an axis."""

    @property
    def uses_table(self) -> bool:
        """Whether any configuration takes its noise from a table."""
        noise = self.noise if isinstance(self.noise, tuple) else (self.noise,)
        return "table" in noise
