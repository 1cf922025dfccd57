"""Figures and measured tables of docs/systems/nvllm.md.

::

    python docs/img/nvllm_figures.py [speed] [latency] [context] [cells] [energy] [engine] [claims]
    python -m nandcosim.systems.nvllm.quality_study --out quality.nc
    python docs/img/nvllm_figures.py quality

makes the parts named, or all but ``quality``: pictures ``docs/img/nvllm_*.png``, and the tables between the
markers ``<!-- NAME -->`` and ``<!-- /NAME -->`` of the page. The tables are those that ship.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from pages import IMAGES, claim_rows, fill, markdown, run_parts

from nandcosim.report.inference import draw_context, draw_energy, draw_throughput, speed_table
from nandcosim.report.quality import draw_quality
from nandcosim.report.style import COLOURS, figure, save
from nandcosim.systems import nvllm
from nandcosim.systems.nvllm.engine import EngineConfig, sweep
from nandcosim.systems.nvllm.engine_bounds import utilisation
from nandcosim.tables import load_tables

PAGE = IMAGES.parent / "systems" / "nvllm.md"

OPT = ("opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b")
LLAMA = ("llama2-7b", "llama2-13b", "llama3-8b")
CLUSTERS = (8, 12, 16)


def evaluated(**settings: Any) -> xr.Dataset:
    return nvllm.evaluate(nvllm.Config(**settings), load_tables())


def speed() -> None:
    """Tokens a second of all systems (Fig. 6)."""
    found = evaluated(model=(*OPT, *LLAMA), clusters=CLUSTERS)
    save(draw_throughput(found), IMAGES / "nvllm_throughput.png")
    fill(PAGE, "speed", markdown(speed_table(found.sel(clusters=[16]))))


def latency() -> None:
    """Prompt and output of one length, with and without the split of section 3.5 (Fig. 7)."""
    lengths = (16, 64, 256, 1024)
    found = evaluated(
        model="opt-6.7b", clusters=CLUSTERS, prompt=lengths, output=lengths,
        prefill_split=("none", "balanced"),
    )  # fmt: skip
    stated = dict(zip(lengths, (1.9, 7.5, 30.3, 124.3), strict=True))
    rows = []
    for n in lengths:
        point = found.sel(prompt=n, output=n)
        row = {"tokens": f"{n} + {n}", "paper, 16C": f"{stated[n]:g} s"}
        for split, label in (("none", "NPU alone"), ("balanced", "split")):
            own = point.sel(system="nvllm", prefill_split=split)
            row[f"16C, {label}"] = f"{float(own['end_to_end'].sel(clusters=16)):.4g} s"
            shares = 100 * own["prefill_share"].sel(clusters=[8, 16])
            low, high = sorted(float(each) for each in shares)
            row[f"prefill, {label}"] = f"{low:.1f} to {high:.1f} %"
        gpu = point.sel(system="gpu_ssd", clusters=16, prefill_split="balanced")
        row["GPU-SSD"] = f"{float(gpu['end_to_end']):.4g} s"
        row["its prefill"] = f"{100 * float(gpu['prefill_share']):.2g} %"
        rows.append(row)
    fill(PAGE, "latency", markdown(rows))


def context() -> None:
    """Time of a token as the context grows (Fig. 8(a))."""
    found = evaluated(
        model=("opt-6.7b", "llama3-8b", "opt-13b"), context=tuple(2**k for k in range(6, 14))
    )
    save(draw_context(found), IMAGES / "nvllm_context.png")


def cells() -> None:
    """What cells of one to four bits make of the system, by the circuit's tables."""
    common = {"cell_bits": (1, 2, 3, 4), "rber_source": "aged", "cycles": (100, 1000, 3000)}
    fast = evaluated(**common)
    slow = evaluated(**common, page_time="table")
    rows = []
    for bits in common["cell_bits"]:
        for wear in common["cycles"]:
            one, other = (each.sel(cell_bits=bits, cycles=wear) for each in (fast, slow))
            rows.append(
                {
                    "bits a cell": bits,
                    "cycles": wear,
                    "raw bit errors": f"{float(one['raw_bit_error_rate']):.2g}",
                    "faulty segments": f"{float(one['segment_error_rate']):.2g}",
                    "beyond correction": f"{float(one['uncorrectable_rate']):.2g}",
                    "engines multiply": f"{100 * float(one['utilisation']):.1f} %",
                    "tokens/s at 5.12 µs": f"{_own(one):.3g}",
                    "page of the circuit": f"{1e6 * float(other['page_read_time'].squeeze()):.3g} µs",
                    "tokens/s at that": f"{_own(other):.3g}",
                }
            )
    fill(PAGE, "cells", markdown(rows))


def energy() -> None:
    """Data movement of a token by path (Fig. 8(b))."""
    save(draw_energy(evaluated(model=(*OPT, *LLAMA))), IMAGES / "nvllm_energy.png")


def engine() -> None:
    """Share of cycles in which an engine multiplies, cycle by cycle and in closed form."""
    rates = tuple(float(f"{rate:.2g}") for rate in np.logspace(-6, -2, 17))
    fig, (axes,) = figure(height=3.8)
    for colour, (order, correctors) in zip(
        COLOURS, (("out_of_order", 1), ("out_of_order", 4), ("in_order", 1)), strict=False
    ):
        config = EngineConfig(rber=rates, order=order, correctors=correctors, clusters=4)
        simulated = sweep(config, 200_000)["utilisation"]
        closed = utilisation(config, config.array("rber"))
        label = f"{order.replace('_', ' ')}, {correctors} corrector{'s' * (correctors > 1)}"
        axes.plot(rates, closed, color=colour, lw=1.2, label=label)
        axes.plot(rates, simulated, color=colour, ls="", marker="o", ms=4)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("raw bit error rate")
    axes.set_ylabel("share of cycles with a multiplication")
    axes.legend(frameon=False, fontsize=8)
    save(fig, IMAGES / "nvllm_engine.png")


def quality() -> None:
    """Perplexity and accuracy against the raw bit error rate (Fig. 4(a)), of a study's file."""
    save(draw_quality(xr.load_dataset("quality.nc", engine="h5netcdf")), IMAGES / "nvllm_quality.png")


def claims() -> None:
    """Every claim with its verdict."""
    fill(PAGE, "claims", markdown(claim_rows("nvllm")))


def _own(point: xr.Dataset) -> float:
    return float(point["tokens_per_second"].sel(system="nvllm"))


PARTS = {part.__name__: part for part in (speed, latency, context, cells, energy, engine, claims)}

if __name__ == "__main__":
    run_parts(PARTS, apart={"quality": quality})
