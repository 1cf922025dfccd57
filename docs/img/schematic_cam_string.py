"""Draw the searched string: ``python docs/img/schematic_cam_string.py`` (needs schemdraw)."""

from __future__ import annotations

import schemdraw
import schemdraw.elements as elm
from schematics import Point, cell, down, drawing, select_transistor, text


def held_bitline() -> Point:
    """A bitline held by a source; returns the string's upper end."""
    elm.Dot().at((0, 0))
    text(-0.3, 0.15, "bl", "right")
    elm.Line().at((0, 0)).right(4.6)
    elm.SourceV().at((4.6, 0)).down(1.8).reverse().label("v_bl", loc="bottom")
    elm.Ground()
    resistor = elm.Resistor().at((0, 0)).down(1.4).label("r_bl", loc="bottom", fontsize=11)
    return select_transistor((resistor.end[0], resistor.end[1]), "string select")


def cam_layer(top: Point) -> Point:
    """The two transistors of one CAM cell."""
    low = down(cell(top, "search 0", "T1: code"), 1.2)
    low = cell(low, "search 1", "T2: complement")
    return down(low, 1.2, ls=":")


def main() -> None:
    with drawing("cam_string"):
        low = cam_layer(held_bitline())
        low = cell(low, "v_pass", "weight cell, not read")
        low = down(low, 1.2, ls=":")
        low = cell(low, "v_pass", "last weight cell, not read")
        low = down(low, 1.0)
        low = select_transistor(low, "source select")
        elm.Resistor().at(low).down(1.4).label("r_sl", loc="bottom", fontsize=11)
        elm.Ground()


if __name__ == "__main__":
    schemdraw.use("svg")
    main()
