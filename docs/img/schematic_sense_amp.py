"""Draw the page buffer: ``python docs/img/schematic_sense_amp.py`` (needs schemdraw)."""

from __future__ import annotations

import schemdraw
import schemdraw.elements as elm
from schemdraw import logic
from schematics import SOFT, Point, drawing, inverter, text


def precharge() -> None:
    fet = elm.PFet().anchor("drain").at((0, 0.8)).theta(0).reverse()
    elm.Line().at(fet.gate).left(0.6)
    text(fet.gate[0] - 0.7, fet.gate[1], "pch", "right")
    text(0.25, fet.gate[1], "precharge", color=SOFT)
    elm.Vdd().at(fet.source).label("vdd")
    elm.Line().at((0, 0.8)).to((0, 0))
    elm.Dot().at((0, 0))
    text(-0.3, 0.0, "bl", "right")


def bitline() -> None:
    """The floating bitline, and the source that sets its level while `hold` is 1."""
    elm.Line().at((0, 0)).down(1.0)
    switch = elm.Switch().at((0, -1.0)).down(1.4)
    text(-0.4, -1.7, "hold", "right")
    elm.SourceV().at(switch.end).down(1.6).reverse()
    text(-0.75, -3.2, "level", "right")
    elm.Ground()
    elm.Line().at((0, 0)).right(1.8)
    elm.Dot()
    elm.Capacitor().at((1.8, 0)).down(1.6).label("c_bl", loc="bottom")
    elm.Ground()
    elm.Line().at((1.8, 0)).right(0.9)


def clocked(start: Point, name: str, clock: str) -> Point:
    found = logic.Not().at(start).right()
    middle = (start[0] + found.end[0]) / 2
    text(middle, start[1] + 0.75, name, "center", SOFT)
    elm.Line().at((middle - 0.1, start[1] - 0.35)).down(0.5)
    text(middle - 0.1, start[1] - 1.1, clock, "center")
    return (found.end[0], found.end[1])


def latch(start: Point) -> None:
    """From the sense node: clocked inverter, inverter, keeper, and the coupling back to bl."""
    la = clocked(start, "clocked inverter", "stb")
    elm.Line().at(la).right(0.6)
    elm.Dot()
    turn = (la[0] + 0.6, la[1])
    text(turn[0], turn[1] + 0.3, "la", "center")
    elm.Line().at(turn).right(0.5)
    out = inverter((turn[0] + 0.5, turn[1]), "latch")
    elm.Line().at(out).right(0.7)
    elm.Dot()
    end = (out[0] + 0.7, out[1])
    text(end[0] + 0.2, end[1] + 0.3, "out")
    # keeper, drawn from right to left below
    low = end[1] - 2.2
    elm.Line().at(end).down(2.2)
    back = logic.Not().at((end[0], low)).left()
    middle = (end[0] + back.end[0]) / 2
    text(middle - 0.2, low + 0.85, "keeper", "center", SOFT)
    elm.Line().at((middle + 0.1, low - 0.35)).down(0.4)
    text(middle + 0.1, low - 1.0, "not stb", "center")
    elm.Line().at(back.end).to((turn[0], low))
    elm.Line().at((turn[0], low)).to(turn)
    elm.Line().at(end).right(1.2)
    elm.Capacitor().down(1.6).label("c_load", loc="bottom")
    elm.Ground()
    # wiring between output and bitline
    high = 2.4
    elm.Line().at(end).up(high)
    elm.Line().at((end[0], high)).to((5.6, high))
    elm.Capacitor().at((5.6, high)).left(1.4).label("c_kick", loc="top")
    elm.Line().at((4.2, high)).to((2.4, high))
    elm.Line().at((2.4, high)).to((2.4, 0))
    elm.Dot().at((2.4, 0))


def sensing_transistor(left: float, top: float) -> None:
    """How mismatch enters: gate source, and a multiple of the drain current beside it."""
    text(left - 3.0, top + 1.0, "a sensing transistor (nMOS):", color=SOFT)
    elm.Line().at((left, top)).right(2.4)
    text(left + 2.6, top, "so")
    meter = elm.MeterI().at((left, top)).down(1.4)
    fet = elm.NFet().anchor("drain").at(meter.end).theta(0).reverse()
    gate = elm.SourceV().at(fet.gate).left(1.7).label("dVT", loc="top")
    elm.Line().at(gate.end).left(0.4)
    text(gate.end[0] - 0.5, gate.end[1], "bl", "right")
    elm.Line().at(fet.source).down(0.3)
    elm.Ground()
    elm.Line().at((left + 1.8, top)).down(0.6)
    source = elm.SourceI().at((left + 1.8, top - 0.6)).down(1.6)
    text(left + 2.6, top - 1.4, "(beta / beta0 - 1) I")
    elm.Line().at(source.end).down(0.5)
    elm.Ground()


def sense_amp() -> None:
    with drawing("sense_amp"):
        precharge()
        bitline()
        so = inverter((2.7, 0.0), "sense inverter")
        elm.Line().at(so).right(0.6)
        elm.Dot()
        text(so[0] + 0.6, 0.3, "so", "center")
        elm.Line().at((so[0] + 0.6, 0.0)).right(0.5)
        latch((so[0] + 1.1, 0.0))
        sensing_transistor(5.0, -4.6)


if __name__ == "__main__":
    schemdraw.use("svg")
    sense_amp()
