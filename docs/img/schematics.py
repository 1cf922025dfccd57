"""Draw the schematics of the documentation: ``python docs/img/schematics.py`` (needs schemdraw)."""

from __future__ import annotations

from pathlib import Path

import schemdraw
import schemdraw.elements as elm
from schemdraw import logic

HERE = Path(__file__).parent
SOFT = "#555555"

Point = tuple[float, float]


def drawing(name: str) -> schemdraw.Drawing:
    made = schemdraw.Drawing(file=str(HERE / f"{name}.svg"), show=False)
    made.config(fontsize=12, lw=1.4, unit=2.0, bgcolor="white", font="sans-serif", margin=0.3)
    return made


def text(x: float, y: float, words: str, align: str = "left", color: str = "black") -> None:
    elm.Label().at((x, y)).label(
        words, loc="center", ofst=0, halign=align, valign="center", color=color, fontsize=12
    )


def down(top: Point, length: float, **line: str) -> Point:
    low = (top[0], top[1] - length)
    elm.Line(**line).at(top).to(low)
    return low


def select_transistor(top: Point, name: str) -> Point:
    """A transistor gated by ``sel``; returns its lower end."""
    fet = elm.NFet().anchor("drain").at(top).theta(0).reverse()
    elm.Line().at(fet.gate).left(0.6)
    text(fet.gate[0] - 0.7, fet.gate[1], "sel", "right")
    text(top[0] + 0.25, fet.gate[1], name, color=SOFT)
    return (fet.source[0], fet.source[1])


def cell(top: Point, wordline: str, name: str) -> Point:
    """A cell: transistor, shift source in series with its gate, channel capacitor."""
    fet = elm.NFet().anchor("drain").at(top).theta(0).reverse()
    source = elm.SourceV().at(fet.gate).left(1.7).label("shift", loc="top", fontsize=11)
    elm.Line().at(source.end).left(0.4)
    text(source.end[0] - 0.5, source.end[1], wordline, "right")
    text(top[0] + 0.25, fet.gate[1], name, color=SOFT)
    low = (fet.source[0], fet.source[1])
    elm.Dot().at(low)
    elm.Line().at(low).right(2.6)
    elm.Capacitor().down(0.8).label("c_cell", loc="bottom", fontsize=11)
    elm.Ground()
    return low


def string(top: Point) -> None:
    """The string from the bitline at `top` down to ground."""
    resistor = elm.Resistor().at(top).down(1.4).label("r_bl", loc="bottom", fontsize=11)
    low = select_transistor((resistor.end[0], resistor.end[1]), "string select")
    low = cell(low, "v_pass", "cell 0, unselected")
    low = down(low, 1.3, ls=":")
    low = cell(low, "wordline i", "cell i, one of the m active")
    low = down(low, 1.3, ls=":")
    low = cell(low, "v_pass", "last cell, unselected")
    low = down(low, 1.2)
    low = select_transistor(low, "source select")
    source_line(low)


def source_line(top: Point) -> None:
    """Resistance and noise of the source line, down to ground."""
    resistor = elm.Resistor().at(top).down(1.4).label("r_sl", loc="bottom", fontsize=11)
    noise = elm.SourceV().at(resistor.end).down(1.6).reverse()
    text(noise.center[0] + 0.7, noise.center[1], "source_line")
    elm.Ground().at((top[0], top[1] - 3.0))


def inverter(start: Point, name: str) -> Point:
    """An inverter with its input at `start`; returns its output."""
    found = logic.Not().at(start).right()
    middle = (start[0] + found.end[0]) / 2
    text(middle, start[1] + 0.75, name, "center", SOFT)
    return (found.end[0], found.end[1])


def sensing(precharge: str) -> Point:
    """Precharge, bitline, sense inverter and buffer; returns the buffer's output.

    `precharge` names the signal of the precharge transistor.
    """
    pre = elm.PFet().anchor("drain").at((0, 0.8)).theta(0).reverse()
    elm.Line().at(pre.gate).left(0.6)
    text(pre.gate[0] - 0.7, pre.gate[1], precharge, "right")
    text(0.25, pre.gate[1], "precharge", color=SOFT)
    elm.Vdd().at(pre.source).label("vdd")
    elm.Line().at((0, 0.8)).to((0, 0))
    elm.Dot().at((0, 0))
    text(-0.3, 0.15, "bl", "right")
    elm.Line().at((0, 0)).right(2.4)
    elm.Dot()
    elm.Capacitor().at((2.4, 0)).down(1.0).label("c_bl", loc="bottom")
    elm.Ground()
    elm.Line().at((2.4, 0)).right(1.0)
    end = inverter((3.4, 0), "sense inverter")
    end = inverter(end, "buffer")
    end = inverter(end, "buffer")
    elm.Line().at(end).right(0.4)
    elm.Dot()
    return end


def dts_sense() -> None:
    with drawing("dts_sense"):
        end = sensing("pch")
        place = end[0] + 0.4
        text(place + 0.2, 0.1, "out")
        elm.Capacitor().at((place, 0)).down(1.0).label("c_load", loc="bottom")
        elm.Ground()
        string((0.0, 0.0))


def nand_string() -> None:
    with drawing("nand_string"):
        elm.Dot().at((0, 0))
        text(-0.3, 0.15, "bl", "right")
        elm.Line().at((0, 0)).right(4.6)
        elm.SourceV().at((4.6, 0)).down(1.8).reverse().label("v_bl", loc="bottom")
        elm.Ground()
        string((0.0, 0.0))


if __name__ == "__main__":
    schemdraw.use("svg")
    dts_sense()
    nand_string()
