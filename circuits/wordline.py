"""A wordline with its driver, or a bitline with its precharge: how long a step takes to settle.

Both are distributed RC lines fed at one end: a ladder of sections behind a resistance. A
wordline is a plate under `strings` rows of cells, so its resistance falls and its capacitance
grows with `strings` while their product stays. The circuit is linear: settling times do not
depend on the voltages, energies grow with their square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import model_validator
from PySpice.Spice.Netlist import Circuit as Netlist

from nandcosim.spice.circuit import Circuit, Knob, Marks, Params, Response, Transient, parameter
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.measure import crossing, integral
from nandcosim.spice.result import Waveforms

__all__ = ["Line", "Wordline", "WordlineParams", "lines"]


class WordlineParams(Params):
    """Parameters of `Wordline`."""

    line: Literal["wordline", "bitline"] = parameter(
        "wordline",
        unit="",
        meaning="which line: a block's wordlines and their drivers, or a bitline and its precharge",
        source="assumed: a read starts with the wordlines",
    )
    width: float = parameter(
        16384.0,
        unit="1",
        ge=1.0,
        le=1e6,
        meaning="bitlines that a wordline crosses: bits of a page",
        source="stated: D-NOVA Table 2 (16K BL)",
    )
    layers: int = parameter(
        128,
        unit="1",
        ge=1,
        le=1024,
        meaning="wordlines of a block",
        source="stated: D-NOVA Table 2 (128 WL)",
    )
    m: int = parameter(
        1,
        unit="1",
        ge=1,
        le=64,
        meaning="selected wordlines that share one driver; the others get v_pass, a driver each",
        source="stated: D-NOVA section 3.2 (1 to 8)",
    )
    strings: int = parameter(
        16,
        unit="1",
        ge=1,
        le=64,
        meaning="cells of one wordline at one bitline: string-select lines of a block",
        source="stated: D-NOVA Table 2 (16 SSL)",
    )
    plane_wordlines: int = parameter(
        32768,
        unit="1",
        ge=1,
        le=2**20,
        meaning="wordlines of a plane; a bitline spans plane_wordlines / layers blocks",
        source="derived: 256 blocks of 128 WL, D-NOVA Table 2; more layers, fewer blocks",
    )
    c_cell: float = parameter(
        0.05e-15,
        unit="F",
        ge=1e-18,
        le=1e-14,
        meaning="wordline capacitance a cell: gate and fringe",
        source="sourced: order of 3D-FPIM (MICRO 2022), 6.8 pF for 135,168 cells",
    )
    r_cell: float = parameter(
        13.1,
        unit="ohm",
        ge=1e-3,
        le=1e4,
        meaning="wordline resistance a bitline, for a plate one string wide",
        source="derived: 3D-FPIM's R C / 2 = 6 us at 135,168 bitlines (geometry assumed)",
    )
    r_stair: float = parameter(
        5.0,
        unit="ohm",
        ge=0.0,
        le=1e4,
        meaning="resistance a layer of the staircase between driver and array",
        source="assumed: a 0.5 um tread of the same plate, no holes, 16 strings wide",
    )
    r_driver: float = parameter(
        2e3,
        unit="ohm",
        ge=0.1,
        le=1e7,
        meaning="output resistance of a wordline driver and its pass transistor",
        source="assumed: a high-voltage transistor some micrometres wide",
    )
    c_block: float = parameter(
        6e-15,
        unit="F",
        ge=1e-18,
        le=1e-11,
        meaning="bitline capacitance a block: wire and the strings' drains",
        source="assumed: 1.5 pF for 256 blocks",
    )
    r_block: float = parameter(
        250.0,
        unit="ohm",
        ge=1e-3,
        le=1e6,
        meaning="bitline resistance a block",
        source="assumed: 5 um a block at 50 ohm/um, a 20 nm x 40 nm wire of 4e-8 ohm m",
    )
    r_precharge: float = parameter(
        20e3,
        unit="ohm",
        ge=0.1,
        le=1e9,
        meaning="resistance of a page buffer's precharge path",
        source="assumed: sized to bound the peak current of a page",
    )
    v_read: float = parameter(
        0.7,
        unit="V",
        ge=0.01,
        le=30.0,
        meaning="step of the selected wordlines",
        source="derived: 0.1 + (q + alpha) 0.06 V for q + alpha = 10, D-NOVA section 5.2",
    )
    v_pass: float = parameter(
        1.2,
        unit="V",
        ge=0.01,
        le=30.0,
        meaning="step of the unselected wordlines",
        source="stated: D-NOVA section 5.2 (scaled domain; some 6 V in a real array)",
    )
    v_pre: float = parameter(
        0.8,
        unit="V",
        ge=0.01,
        le=30.0,
        meaning="step of a bitline",
        source="derived: precharge level of dts_sense",
    )
    settle: float = parameter(
        0.01,
        unit="1",
        ge=1e-4,
        le=0.5,
        meaning="settled: within this fraction of the step",
        source="assumed: 1 % of v_pass is a fifth of a level spacing of 0.06 V",
    )
    sections: int = parameter(
        40,
        unit="1",
        ge=1,
        le=1000,
        meaning="sections of the ladder",
        source="derived: within 1 % of the continuous line, 0.1 % at the far end (tested)",
    )

    @model_validator(mode="after")
    def _fits(self) -> WordlineParams:
        if self.m > self.layers:
            raise ValueError(f"m = {self.m} wordlines in a block of layers = {self.layers}")
        if self.layers > self.plane_wordlines:
            raise ValueError(
                f"layers = {self.layers} wordlines in a block of a plane of "
                f"plane_wordlines = {self.plane_wordlines}"
            )
        if not self.width.is_integer():
            raise ValueError(f"width = {self.width:g}: expected a whole number of bitlines")
        return self


@dataclass(frozen=True)
class Line:
    """A uniform RC line behind a resistance, stepped by a voltage.

    Attributes
    ----------
    name : str
        Prefix of its nodes and elements.
    volts : float
        The step in V.
    r_source : float
        Resistance before the line in ohm.
    r, c : float
        Resistance in ohm and capacitance in F of the whole line.
    """

    name: str
    volts: float
    r_source: float
    r: float
    c: float

    @property
    def elmore(self) -> float:
        """Elmore delay of the far end in s; an upper bound of the slowest time constant."""
        return self.c * (self.r_source + self.r / 2)


def lines(params: WordlineParams) -> tuple[Line, ...]:
    """The lines that are simulated: the driven one, then an unselected wordline."""
    if params.line == "bitline":
        blocks = params.plane_wordlines / params.layers
        r, c = blocks * params.r_block, blocks * params.c_block
        return (Line("sel", params.v_pre, params.r_precharge, r, c),)
    r = params.width * params.r_cell / params.strings
    c = params.width * params.c_cell * params.strings
    stair, m = params.layers * params.r_stair, params.m
    # m equal lines side by side are one of m times the conductance and capacitance
    selected = Line("sel", params.v_read, params.r_driver + stair / m, r / m, c * m)
    return (selected, Line("pass", params.v_pass, params.r_driver + stair, r, c))


class Wordline(Circuit):
    """Step response of a block's wordlines, or of a bitline."""

    name = "wordline"
    summary = "distributed RC of a wordline and its driver, or of a bitline: settling, energy"
    Params = WordlineParams
    knobs = (
        Knob(
            "log_r",
            "1",
            "logarithm of each section's resistance over the nominal one",
            size=lambda params: params.sections,
        ),
        Knob(
            "log_c",
            "1",
            "logarithm of each section's capacitance over the nominal one",
            size=lambda params: params.sections,
        ),
    )
    responses_declared = (
        Response("t_near", "s", "settling of the driven line where it enters the array"),
        Response("t_far", "s", "settling of the driven line at its far end"),
        Response("t_pass_near", "s", "as t_near, an unselected wordline", optional=True),
        Response("t_pass_far", "s", "as t_far, an unselected wordline", optional=True),
        Response("e_drive", "J", "from the driver: all m selected wordlines, or one bitline"),
        Response("e_pass", "J", "from the drivers of all unselected wordlines", optional=True),
        Response("e_page", "J", "all wordlines of the block, or all bitlines of the page"),
    )

    def build(
        self, params: WordlineParams, knobs: Mapping[str, np.ndarray] | None = None
    ) -> Netlist:
        netlist = Netlist(f"wordline: step response of a {params.line}")
        values = self.elements(params, full_knobs(self, params, knobs))
        edge = _edge(params)
        for line in lines(params):
            name, ground = line.name, netlist.gnd
            netlist.V(name, f"{name}_in", ground, f"0 pwl(0 0 {edge!r} {line.volts!r})")
            netlist.R(f"{name}_driver", f"{name}_in", f"{name}0", line.r_source)
            for k in range(params.sections):
                resistance = values[f"r{name}{k}"]
                netlist.R(f"{name}{k}", f"{name}{k}", f"{name}{k + 1}", resistance)
            for k in range(params.sections + 1):
                netlist.C(f"{name}{k}", f"{name}{k}", ground, values[f"c{name}{k}"])
        return netlist

    def elements(self, params: WordlineParams, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        # The slits that bound a wordline cut through all layers, so that the edges of the
        # selected and of an unselected wordline vary alike.
        values: dict[str, float] = {}
        for line in lines(params):
            r = line.r / params.sections * np.exp(knobs["log_r"])
            c = line.c / params.sections * np.exp(knobs["log_c"])
            # half of a section's capacitance at either end of it
            nodes = (np.append(c, 0.0) + np.append(0.0, c)) / 2
            values |= {f"r{line.name}{k}": float(each) for k, each in enumerate(r)}
            values |= {f"c{line.name}{k}": float(each) for k, each in enumerate(nodes)}
        return values

    def analysis(self, params: WordlineParams, wanted: frozenset[str] | None = None) -> Transient:
        stop = _stop(params)
        return Transient(stop=stop, step=stop / 1000, max_step=stop / 1000)

    def saved(self, params: WordlineParams) -> tuple[str, ...]:
        vectors = []
        for line in lines(params):
            name = line.name
            vectors += [f"v({name}_in)", f"v({name}0)", f"v({name}{params.sections})"]
            vectors.append(f"i(v{name})")
        return tuple(vectors)

    def responses(self, waveforms: Waveforms, params: WordlineParams) -> dict[str, float]:
        nan = float("nan")
        near, far, energy = _measured(waveforms, params, lines(params)[0])
        found = {"t_near": near, "t_far": far, "e_drive": energy}
        if params.line == "bitline":
            return found | {
                "t_pass_near": nan,
                "t_pass_far": nan,
                "e_pass": nan,
                "e_page": params.width * energy,
            }
        near, far, each = _measured(waveforms, params, lines(params)[1])
        unselected = (params.layers - params.m) * each
        return found | {
            "t_pass_near": near,
            "t_pass_far": far,
            "e_pass": unselected,
            "e_page": energy + unselected,
        }

    def marks(self, params: WordlineParams) -> Marks:
        settled = 1 - params.settle
        return Marks(
            levels={f"{line.name} settled": settled * line.volts for line in lines(params)}
        )

    def measures(self, params: WordlineParams) -> tuple[str, ...]:
        line = lines(params)[0]
        level = (1 - params.settle) * line.volts
        return (
            f".meas tran t_reached when v(sel{params.sections})={level!r} rise=1",
            f".meas tran t_far param='t_reached-{_edge(params) / 2!r}'",
        )


def _stop(params: WordlineParams) -> float:
    """Time by which the slowest line is within settle * exp(-5) of its step, in s."""
    slowest = max(line.elmore for line in lines(params))
    return float(slowest * (5 - np.log(params.settle)))


def _edge(params: WordlineParams) -> float:
    """Rise time of the driver's step in s; settling is counted from its middle."""
    return 1e-5 * _stop(params)


def _measured(
    waveforms: Waveforms, params: WordlineParams, line: Line
) -> tuple[float, float, float]:
    """Settling time of the near and the far end in s, and energy from the driver in J."""
    time = waveforms.time
    level = (1 - params.settle) * line.volts
    # behind resistors the step response only rises: reached once is settled
    near, far = (
        crossing(time, waveforms[f"v({line.name}{k})"], level, rising=True) - _edge(params) / 2
        for k in (0, params.sections)
    )
    power = -waveforms[f"v({line.name}_in)"] * waveforms[f"i(v{line.name})"]
    return near, far, integral(time, power)
