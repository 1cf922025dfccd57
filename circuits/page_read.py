"""Page read: the senses, one after another, that a page of Gray-coded cells takes.

The selected wordline goes through the page's read levels, all others pass; at each the
bitline is precharged and the string sensed as in `dts_sense` with one active wordline.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from circuits.chain import add_chain, chain_files, new_netlist, shift_source
from circuits.levels import Pattern, pattern_levels, shift_of
from circuits.sensing import SENSE_KNOBS, SenseParams, Timing, add_sensing, known, sense_elements
from circuits.string import SOURCE_LINE
from nandcosim.page_coding import Coding, data_bits, read_levels, retry_offsets
from nandcosim.spice.circuit import Circuit, Knob, Marks, Response, Transient, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.measure import crossing, integral, value_at
from nandcosim.spice.result import Waveforms
from nandcosim.threshold import level_distributions

__all__ = ["PageRead", "PageReadParams"]

#: Read levels of the widest cell.
READ_LEVELS = range(1, 16)


#: Parameters that are used with one value of another one only.
_ONLY_WITH = {
    "margin": ("read", "margin"),
    "read_level": ("read", "level"),
    "page": ("read", "page"),
    "retention": ("placement", "aged"),
    "cycles": ("placement", "aged"),
    "storage_temperature": ("placement", "aged"),
}


class PageReadParams(SenseParams):
    """Parameters of `PageRead`."""

    position: float = parameter(
        0.5,
        unit="1",
        ge=0.0,
        le=1.0,
        meaning="place of the selected wordline; 0 bitline side, 1 source side",
        source="assumed: mid string",
    )
    stored: int = parameter(
        1,
        unit="1",
        ge=0,
        le=15,
        meaning="level of the selected cell",
        source="assumed: the lowest programmed level, which every cell has",
    )
    pattern: Pattern = parameter(
        "spread",
        unit="",
        meaning="levels of the unselected cells: all in turn, lowest, highest",
        source="assumed: uniform data",
    )
    read: Literal["margin", "level", "page", "all"] = parameter(
        "page",
        unit="",
        meaning="what is sensed: one sense at `margin`, one at `read_level`, those of `page`, all",
        source="derived: what a read is for",
    )
    margin: float = parameter(
        0.5,
        unit="level",
        ge=-20.0,
        le=20.0,
        meaning="read level above the boundary of the stored level, if read is margin",
        source="derived: an ideal cell at its nearest read level",
    )
    read_level: int = parameter(
        1,
        unit="1",
        ge=1,
        le=15,
        meaning="read level between the levels read_level - 1 and read_level, if read is level",
        source="assumed: the read level that every cell has",
    )
    page: int = parameter(
        0,
        unit="1",
        ge=0,
        le=3,
        meaning="page, if read is page: 0 lower, then middle, upper, top",
        source="assumed: the first one",
    )
    coding: Coding = parameter(
        "balanced",
        unit="",
        meaning="Gray code: reflected (1-2-4-8, 1-2-4) or balanced (4-4-3-4, 2-3-2)",
        source="assumed: see nandcosim.page_coding",
    )
    offset: float = parameter(
        0.0,
        unit="level",
        ge=-4.0,
        le=4.0,
        meaning="added to every read level",
        source="derived: 0 is the default read",
    )
    retry: int = parameter(
        0,
        unit="1",
        ge=0,
        le=50,
        meaning="number of the read retry; each lowers the read levels by the retry table",
        source="derived: 0 is the default read",
    )
    retry_step: float = parameter(
        0.1,
        unit="level",
        ge=0.0,
        le=2.0,
        meaning="what a retry lowers the top read level by, the others in proportion",
        source="assumed: about half a standard deviation",
    )
    t_settle: float = parameter(
        5e-6,
        unit="s",
        ge=0.0,
        le=1e-3,
        meaning="rise of all wordlines before the first sense; not simulated, counted in t_read",
        source="assumed: SLC reads then take 27 us, D-NOVA Table 1 has 30 us",
    )
    placement: Literal["exact", "aged"] = parameter(
        "exact",
        unit="",
        meaning="thresholds of all cells: at their levels, or as nandcosim.threshold has them",
        source="derived: exact is the calibrated ladder",
    )
    retention: float = parameter(
        0.0,
        unit="s",
        ge=0.0,
        le=1e10,
        meaning="time since programming, if placement is aged",
        source="derived: 0 is a fresh page",
    )
    cycles: float = parameter(
        0.0,
        unit="1",
        ge=0.0,
        le=1e6,
        meaning="program/erase cycles, if placement is aged",
        source="derived: 0 is a fresh block",
    )
    storage_temperature: float = parameter(
        30.0,
        unit="degC",
        ge=-55.0,
        le=150.0,
        meaning="temperature during the retention time, if placement is aged",
        source="sourced: JESD218, a client drive's shelf",
    )

    @model_validator(mode="after")
    def _exists(self) -> PageReadParams:
        count = self.level_count
        if self.stored >= count:
            raise ValueError(f"stored = {self.stored} is no level of {count}")
        if self.read_level >= count:
            raise ValueError(f"read_level = {self.read_level} of {count - 1} read levels")
        if self.page >= self.bits:
            raise ValueError(f"page = {self.page} of {self.bits} pages, the first is 0")
        if self.read == "margin" and (self.offset or self.retry):
            raise ValueError("read = margin places the read level itself: offset and retry are 0")
        return self

    @model_validator(mode="after")
    def _has_effect(self) -> PageReadParams:
        for name in sorted(self.model_fields_set & _ONLY_WITH.keys()):
            choice, value = _ONLY_WITH[name]
            if (chosen := getattr(self, choice)) != value:
                raise ValueError(
                    f"{name} has no effect with {choice} = {chosen}, expected {choice} = {value}"
                )
        return self

    @property
    def selected(self) -> int:
        """Index of the selected cell, counted from the bitline."""
        return round(self.position * (self.cells - 1))

    @property
    def unselected(self) -> np.ndarray:
        """Indices of the cells at the pass voltage."""
        return np.delete(np.arange(self.cells), self.selected)

    @property
    def levels_read(self) -> np.ndarray:
        """Read levels in the order of the senses, shape (senses,); none if read is margin."""
        if self.read == "margin":
            return np.array([], dtype=np.int64)
        if self.read == "level":
            return np.array([self.read_level])
        if self.read == "page":
            return read_levels(self.bits, self.page, self.coding)
        return np.arange(1, self.level_count)

    @property
    def wordline_levels(self) -> np.ndarray:
        """Where the selected wordline is put for each sense, in level spacings, (senses,)."""
        if self.read == "margin":
            return np.array([self.stored + 0.5 + self.margin])
        table = retry_offsets(self.bits, self.retry, self.retry_step)
        return np.asarray(self.levels_read + self.offset + table[self.levels_read - 1])


_GROUPS = {
    "selected": lambda params: np.array([params.selected]),
    "unselected": lambda params: params.unselected,
}

KNOBS = (
    Knob(
        name="threshold",
        unit="level",
        meaning="error of each cell's stored threshold, added to its level",
        size=lambda params: params.cells,
        groups=_GROUPS,
    ),
    Knob(
        name="score",
        unit="1",
        meaning="each cell's place in the distribution of its level, in standard deviations; "
        "without effect if placement is exact",
        size=lambda params: params.cells,
        groups=_GROUPS,
    ),
    Knob(
        name="data",
        unit="level",
        meaning="whole levels that each unselected cell is above its pattern, modulo the levels",
        size=lambda params: params.cells,
        groups=_GROUPS,
    ),
    SOURCE_LINE,
    *SENSE_KNOBS,
)


@lru_cache(maxsize=16)  # the same for all the samples of a grid point
def _distribution(params: PageReadParams) -> tuple[np.ndarray, np.ndarray]:
    """Mean shift and standard deviation of every level, in level spacings."""
    # The card itself has a threshold that falls with temperature: no second one here.
    found = level_distributions(
        params.bits,
        retention=params.retention,
        cycles=params.cycles,
        storage_temperature=params.storage_temperature,
    )
    return found["mean_shift"].values, found["sigma"].values


def stored_levels(params: PageReadParams, data: np.ndarray) -> np.ndarray:
    """Level of every cell, shape (cells,), int."""
    count = params.level_count
    levels = pattern_levels(params.pattern, params.cells, count) + np.floor(data)
    levels[params.selected] = params.stored
    return np.asarray(np.mod(levels, count), dtype=np.int64)


def shifts(params: PageReadParams, knobs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Voltage of every cell's stored charge in V, shape (cells,)."""
    levels = stored_levels(params, knobs["data"])
    thresholds = np.asarray(levels + knobs["threshold"])
    if params.placement == "aged":
        mean, sigma = _distribution(params)
        thresholds = thresholds + mean[levels] + sigma[levels] * knobs["score"]
    return shift_of(params, thresholds)


class PageRead(Circuit):
    """One bitline's part of a page read."""

    name = "page_read"
    summary = "read of a Gray-coded page: SLC to QLC, one sense for each of its read levels"
    Params = PageReadParams
    knobs = KNOBS
    responses_declared = (
        Response("bit", "1", "output buffer at the last strobe: 1 conducts, 0 blocks"),
        Response("t_cross", "s", "last sense, select to the trip point", optional=True),
        Response("data_bit", "1", "bit of the page, if a page is read", optional=True),
        Response("sensed_level", "1", "read levels that block, if all are read", optional=True),
        Response("t_read", "s", "time of the whole read: t_settle and all senses"),
        Response("e_sense", "J", "energy from the supply for each sense, their mean"),
        *(
            Response(f"bit_{n}", "1", f"sensed bit at read level {n}, if it is read", optional=True)
            for n in READ_LEVELS
        ),
        *(
            Response(f"t_{n}", "s", f"read level {n}, select to the trip point", optional=True)
            for n in READ_LEVELS
        ),
    )

    def build(
        self, params: PageReadParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        knobs = full_knobs(self, params, knobs)
        netlist = new_netlist("page_read: senses of one bitline", params, params.sense_path)
        ground = netlist.gnd
        add_sensing(netlist, params, knobs, params.wordline_levels.size)
        netlist.V("pass", "wlpass", ground, params.v_pass)
        netlist.V("wl", "wl", ground, _wordline(params))
        nodes = ["wlpass"] * params.cells
        nodes[params.selected] = "wl"
        add_chain(
            netlist,
            params,
            shifts(params, knobs),
            nodes,
            bitline="bl",
            source="sl",
            select="sel",
        )
        netlist.R("sl", "sl", "slnoise", params.r_sl)
        netlist.V("slnoise", "slnoise", ground, float(knobs["source_line"][0]))
        return netlist

    def elements(self, params: PageReadParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        values = {shift_source(i): float(v) for i, v in enumerate(shifts(params, knobs))}
        values["vslnoise"] = float(knobs["source_line"][0])
        return values | sense_elements(knobs)

    def analysis(self, params: PageReadParams, wanted: frozenset[str] | None = None) -> Transient:
        senses = params.wordline_levels.size
        stop = float(_timing(params).strobe[-1])
        # The bitline alone is smooth and lets the solver stride; what the supply delivers
        # depends on the switching of the sense amplifier.
        energy = wanted is None or "e_sense" in wanted
        return Transient(
            stop=stop,
            step=(params.t_pre + params.t_sense) / 200,
            max_step=params.max_step / 20 if energy else params.max_step,
            stop_when=known(params) if senses == 1 and not energy else None,
        )

    def saved(self, params: PageReadParams) -> tuple[str, ...]:
        return ("v(bl)", "v(out)", "v(sel)", "v(pch)", "v(wl)", "i(vdd)")

    def responses(self, waveforms: Waveforms, params: PageReadParams) -> dict[str, float]:
        timing, nan = _timing(params), float("nan")
        time, bitline, out = waveforms.time, waveforms["v(bl)"], waveforms["v(out)"]
        conducts, crossed = [], []
        for select, strobe in zip(timing.select, timing.strobe, strict=True):
            # a bitline that was not precharged says nothing about the string
            charged = value_at(time, bitline, select) > 0.9 * params.vdd
            high = value_at(time, out, strobe) > params.vdd / 2
            conducts.append(float(high) if charged else nan)
            when = crossing(time, bitline, params.v_trip, rising=False, after=select) - select
            crossed.append(when if when <= strobe - select else nan)
        stopped = time[-1] < timing.strobe[-1] * (1 - 1e-9)
        energy = integral(time, -params.vdd * waveforms["i(vdd)"])
        found = {
            "bit": nan if np.isnan(conducts).any() else conducts[-1],
            "t_cross": crossed[-1],
            "t_read": params.t_settle + float(timing.strobe[-1]),
            "e_sense": nan if stopped else energy / len(conducts),
        }
        found |= {f"{kind}_{n}": nan for kind in ("bit", "t") for n in READ_LEVELS}
        for n, bit, when in zip(params.levels_read, conducts, crossed, strict=False):
            found[f"bit_{n}"], found[f"t_{n}"] = bit, when
        return found | _decoded(params, np.array(conducts))

    def marks(self, params: PageReadParams) -> Marks:
        timing = _timing(params)
        instants = {f"strobe {n}": float(t) for n, t in enumerate(timing.strobe, start=1)}
        return Marks(instants=instants, levels={"trip point": params.v_trip})

    def measures(self, params: PageReadParams) -> tuple[str, ...]:
        select = float(_timing(params).select[-1])
        return (
            f".meas tran t_bitline when v(bl)={params.v_trip!r} fall=last td={select!r}",
            f".meas tran t_cross param='t_bitline-{select!r}'",
        )

    def files(self, params: Any) -> tuple[str, ...]:
        return chain_files(params, params.sense_path)


def _timing(params: PageReadParams) -> Timing:
    return Timing.of(params, params.wordline_levels.size)


def _wordline(params: PageReadParams) -> float | str:
    """The selected wordline: each read level from the start of its precharge on."""
    volts = (params.v_base + params.wordline_levels * params.spacing).tolist()
    if len(volts) == 1:
        return float(volts[0])
    points = [f"0 {volts[0]!r}"]
    for start, before, after in zip(_timing(params).precharge[1:], volts, volts[1:], strict=False):
        end = float(start) + params.t_pre / 2
        points.append(f"{float(start)!r} {before!r} {end!r} {after!r}")
    return f"{volts[0]!r} pwl({' '.join(points)})"


def _decoded(params: PageReadParams, conducts: np.ndarray) -> dict[str, float]:
    """What the sensed bits mean: the page's bit, or the level."""
    nan = float("nan")
    if np.isnan(conducts).any() or params.read not in ("page", "all"):
        return {"data_bit": nan, "sensed_level": nan}
    if params.read == "all":
        return {"data_bit": nan, "sensed_level": float((conducts == 0).sum())}
    # the read levels of other pages do not enter this page's bit
    everywhere = np.ones(params.level_count - 1)
    everywhere[params.levels_read - 1] = conducts
    bit = data_bits(everywhere, params.bits, params.coding)[params.page]
    return {"data_bit": float(bit), "sensed_level": nan}
