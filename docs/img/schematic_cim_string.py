"""Draw string and unit of CIM: ``python docs/img/schematic_cim_string.py`` (needs schemdraw)."""

from __future__ import annotations

import schemdraw
import schemdraw.elements as elm
from schematic_cam_string import cam_layer, held_bitline
from schematics import SOFT, Point, cell, down, drawing, select_transistor, text


def string() -> None:
    with drawing("cim_string"):
        low = cam_layer(held_bitline())
        low = cell(low, "v_pass", "weight cell, not read")
        low = down(low, 1.2, ls=":")
        low = cell(low, "read pulse j", "selected weight cell, state s")
        low = down(low, 1.2, ls=":")
        low = select_transistor(low, "source select")
        resistor = elm.Resistor().at(low).down(1.4).label("r_sl", loc="bottom", fontsize=11)
        elm.SourceV().at(resistor.end).down(1.6).reverse()
        text(0.7, resistor.end[1] - 0.8, "v_sl(x), x = 0 to 3")
        elm.Ground()


def block(left: float, name: str, states: tuple[str, ...]) -> float:
    """Four strings between a bitline and the source line; returns the right end."""
    pitch = 1.9
    last = left + pitch * (len(states) - 1)
    elm.Line().at((left - 0.8, 0)).to((last + 1.1, 0))
    text(left - 0.8, 0.4, f"bitline of block {name}")
    for index, state in enumerate(states):
        string_box((left + pitch * index, 0), state)
    elm.Dot().at((last + 1.1, 0))
    text(last + 1.3, 0.05, f"i_{name.lower()}")
    return last + 1.1


def string_box(top: Point, state: str) -> None:
    low = down(top, 0.7)
    for height, label in ((0.9, "CAM"), (0.9, state), (0.6, "")):
        elm.Rect((0, 0), (1.6, -height)).at((low[0] - 0.8, low[1])).theta(0)
        text(low[0], low[1] - height / 2, label, "center")
        low = (low[0], low[1] - height)
    down(low, 0.7)


def unit() -> None:
    with drawing("cim_unit"):
        block(0.0, "A", ("s1", "s2", "s3", "s4"))
        end = block(9.4, "B", ("m-1-s1", "m-1-s2", "m-1-s3", "m-1-s4"))
        elm.Line().at((-0.8, -3.8)).to((end, -3.8))
        text(-0.8, -4.2, "source line, v_sl(x)")
        for height, name in ((-1.15, "query"), (-2.05, "read pulse"), (-2.8, "v_pass")):
            text(-1.4, height, name, "right")
            elm.Line(color=SOFT).at((-1.3, height)).to((-0.8, height))


if __name__ == "__main__":
    schemdraw.use("svg")
    string()
    unit()
