"""Draw the schematic of page_read: ``python docs/img/schematic_page_read.py`` (needs schemdraw)."""

from __future__ import annotations

import schemdraw
import schemdraw.elements as elm
from schematics import SOFT, cell, down, drawing, select_transistor, sensing, source_line, text


def steps(x: float, y: float) -> None:
    """The selected wordline's voltage: one step for each read level of the page."""
    levels, width = (0.0, 0.35, 0.85, 1.5), 0.8
    for i, level in enumerate(levels):
        left = x + i * width
        elm.Line().at((left, y + level)).to((left + width, y + level))
        if i:
            elm.Line().at((left, y + levels[i - 1])).to((left, y + level))
        text(left + width / 2, y + level + 0.25, f"R{(1, 3, 8, 14)[i]}", "center", SOFT)


def page_read() -> None:
    with drawing("page_read"):
        end = sensing("pch, once a sense")
        text(end[0] + 0.6, 0.1, "out")
        resistor = elm.Resistor().at((0, 0)).down(1.4).label("r_bl", loc="bottom", fontsize=11)
        low = select_transistor((resistor.end[0], resistor.end[1]), "string select, once a sense")
        low = cell(low, "v_pass", "cell 0, unselected")
        low = down(low, 1.3, ls=":")
        selected = low
        low = cell(low, "wl", "the selected cell")
        steps(-7.6, selected[1] - 1.1)
        low = down(low, 1.3, ls=":")
        low = cell(low, "v_pass", "last cell, unselected")
        low = down(low, 1.2)
        low = select_transistor(low, "source select")
        source_line(low)


if __name__ == "__main__":
    schemdraw.use("svg")
    page_read()
