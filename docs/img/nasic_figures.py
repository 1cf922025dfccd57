"""Figures and measured tables of docs/systems/nasic.md.

::

    python docs/img/nasic_figures.py [gains] [states] [errors] [front] [claims]

makes the parts named, or all: pictures ``docs/img/nasic_*.png``, and the tables between the
markers ``<!-- NAME -->`` and ``<!-- /NAME -->`` of the page. The tables are those that ship.
"""

from __future__ import annotations

from typing import Any

import xarray as xr
from pages import IMAGES, claim_rows, fill, markdown, run_parts

from nandcosim.report.experts import (
    design_table,
    draw_errors,
    draw_front,
    draw_gains,
    expert_table,
)
from nandcosim.report.listing import quantity
from nandcosim.report.style import save
from nandcosim.systems import nasic
from nandcosim.tables import load_tables

PAGE = IMAGES.parent / "systems" / "nasic.md"

ALL = ("base", "t1", "t1t2", "t1t2t3")
MODELS = ("olmoe", "mixtral-8x7b", "qwen1.5-moe", "deepseek-moe-16b", "phi-3.5-moe",
          "qwen3-30b-a3b")  # fmt: skip


def evaluated(**settings: Any) -> xr.Dataset:
    return nasic.evaluate(nasic.Config(**settings), load_tables())


def gains() -> None:
    """Techniques one on top of the other, over sigma and over models (Fig. 8, 9)."""
    save(
        draw_gains(evaluated(technique=ALL, sigma=(0.05, 0.075, 0.1, 0.15, 0.2))),
        IMAGES / "nasic_gains.png",
    )
    fill(PAGE, "models", markdown(expert_table(evaluated(technique=ALL, model=MODELS))))


def states() -> None:
    """States of a cell and bits of a weight (Fig. 8(d), 10(c))."""
    found = evaluated(technique=("t1t2", "t1t2t3"), states=(3, 4, 8), weight_bits=(3, 4, 5, 8))
    rows = []
    for bits in found["weight_bits"].values:
        row = {"bits of a weight": int(bits)}
        for m in (2, 3, 4, 8):
            at = {"technique": "t1t2", "states": 3} if m == 2 else {"technique": "t1t2t3", "states": m}
            one = found.sel(weight_bits=bits, **at)
            time, energy = float(one["token_time"]), float(one["token_energy"])
            row[f"m = {m}"] = f"{quantity(time, 's')}, {quantity(energy, 'J')}"
        rows.append(row)
    fill(PAGE, "states", markdown(rows))


def errors() -> None:
    """Errors of an output by cause."""
    found = evaluated(technique=ALL, sigma=(0.05, 0.1, 0.15, 0.2))
    save(draw_errors(found), IMAGES / "nasic_errors.png")


def front() -> None:
    """The Pareto front of OLMoE over states (2: T1+T2), CAM bits, interleaving, N, ADC bits."""
    found = evaluated(
        states=(2, 3, 4, 8), cam_bits=(1, 2, 3), interleave=(4, 8, 16),
        input_rule="given", input_rows=(32, 64, 128, 256), adc_bits=(6, 7, 8, 9, 10),
    )  # fmt: skip
    designs = nasic.front(found, 0.15)
    save(draw_front(designs), IMAGES / "nasic_front.png")
    fill(PAGE, "front", markdown(design_table(designs)[:12]))


def claims() -> None:
    """Every claim with its verdict."""
    fill(PAGE, "claims", markdown(claim_rows("nasic")))


PARTS = {part.__name__: part for part in (gains, states, errors, front, claims)}

if __name__ == "__main__":
    run_parts(PARTS)
