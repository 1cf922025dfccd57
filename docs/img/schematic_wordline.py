"""Draw wordline and bitline: ``python docs/img/schematic_wordline.py`` (needs schemdraw)."""

from __future__ import annotations

import schemdraw
import schemdraw.elements as elm
from schematics import SOFT, Point, drawing, text


def capacitor(top: Point, label: str) -> None:
    elm.Dot().at(top)
    elm.Capacitor().at(top).down(1.4).label(label, loc="bottom", fontsize=11)
    elm.Ground()


def ladder(start: Point, source: str, resistances: tuple[str, ...], name: str) -> None:
    """A step source, series resistances and a ladder of sections."""
    text(start[0] - 1.5, start[1] + 1.7, name, color=SOFT)
    elm.SourceRamp().at((start[0], start[1] - 1.8)).up(1.8)
    text(start[0] - 0.75, start[1] - 0.9, source, "right")
    elm.Ground().at((start[0], start[1] - 1.8))
    place = start
    for label in resistances:
        resistor = elm.Resistor().at(place).right(2.6).label(label, loc="top", fontsize=11)
        place = (resistor.end[0], resistor.end[1])
    text(place[0], place[1] + 0.85, "near", "center")
    capacitor(place, "c/2")
    for index in range(2):
        resistor = elm.Resistor().at(place).right(2.0).label("r", loc="top", fontsize=11)
        place = (resistor.end[0], resistor.end[1])
        capacitor(place, "c")
        if index == 0:
            gap = elm.Line(ls=":").at(place).right(1.2)
            place = (gap.end[0], gap.end[1])
    resistor = elm.Resistor().at(place).right(2.0).label("r", loc="top", fontsize=11)
    place = (resistor.end[0], resistor.end[1])
    text(place[0], place[1] + 0.85, "far", "center")
    capacitor(place, "c/2")


def wordline() -> None:
    with drawing("wordline"):
        ladder(
            (0.0, 0.0),
            "v_read",
            ("r_driver", "layers r_stair / m"),
            "m selected wordlines on one driver",
        )
        ladder(
            (0.0, -5.2),
            "v_pass",
            ("r_driver", "layers r_stair"),
            "one of the layers - m unselected wordlines",
        )
        ladder(
            (0.0, -10.4),
            "v_pre",
            ("r_precharge",),
            "a bitline (line = bitline)",
        )


if __name__ == "__main__":
    schemdraw.use("svg")
    wordline()
