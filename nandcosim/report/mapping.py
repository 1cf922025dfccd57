"""Figures and tables of the sub-blocks that queries touch.

::

    python -m nandcosim.report.mapping wordnet --out footprint.png

draws what `nandcosim.systems.dnova.mapping_study` counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import ecdf

from nandcosim.report.style import COLOURS, figure, save
from nandcosim.studies import one_line_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nandcosim.systems.dnova.mapping import Touches

__all__ = ["draw_ecdf", "draw_study", "footprint_table"]

_STAGES = {1: "centroids", 2: "probed lists", 3: "candidates"}
_GROWTHS = {
    "built": "placed together",
    "arrival": "a part later, as it came",
    "lists": "a part later, by lists",
}
_DASHES = {"built": "-", "arrival": "--", "lists": ":"}


def draw_ecdf(touches_by_label: Mapping[str, Touches], stage: int) -> Figure:
    """Draw the share of queries that touch at most so many sub-blocks (as the paper's Fig. 15).

    Parameters
    ----------
    touches_by_label : Mapping of str to Touches
        One curve each, in this order.
    stage : int
        1, 2 or 3; names the axis.
    """
    fig, (axes,) = figure(height=3.4)
    for index, (label, touches) in enumerate(touches_by_label.items()):
        _curve(axes, touches.counts(), label, COLOURS[index % len(COLOURS)], "-")
    _finish(axes, stage)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig


def draw_study(study: xr.Dataset, nprobe: int, k2: int) -> Figure:
    """Draw stages 2 and 3 of a footprint study side by side, a colour a mapping.

    Parameters
    ----------
    study : xarray.Dataset
        As `nandcosim.systems.dnova.mapping_study.footprint_study` returns it.
    nprobe, k2 : int
        Point of the study.
    """
    fig, panels = figure(1, 2, width=10.5, height=3.4)
    touched = study["touched"].sel(nprobe=nprobe, k2=k2)
    for axes, stage in zip(panels, (2, 3), strict=True):
        for growth in study["growth"].values.tolist():
            for colour, mapping in zip(COLOURS, study["mapping"].values.tolist(), strict=False):
                counts = touched.sel(stage=stage, mapping=mapping, growth=growth).values
                label = f"{mapping}, {_GROWTHS[growth]}"
                _curve(axes, counts, label, colour, _DASHES[growth])
        _finish(axes, stage)
    panels[1].set_ylabel("")
    panels[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig


def footprint_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `mapping_study.summary` for reading."""
    table = []
    for row in rows:
        change = row["reduction"]
        table.append(
            {
                "nprobe": row["nprobe"],
                "K2": row["k2"],
                "stage": row["stage"],
                "vectors": _GROWTHS[row["growth"]],
                **{
                    f"{name}, median (10 .. 90 %)": "{1:g} ({0:g} .. {2:g})".format(*row[name])
                    for name in ("naive", "locality")
                },
                "least": f"{row['least']:g}",
                "reduction of the median (95 %)": f"{100 * change.value:.1f} % "
                f"({100 * change.low:.1f} .. {100 * change.high:.1f})",
            }
        )
    return table


def _curve(axes: Axes, counts: np.ndarray, label: str, colour: str, dashes: str) -> None:
    share = ecdf(counts).cdf
    steps = np.concatenate([[share.quantiles[0]], share.quantiles])
    heights = np.concatenate([[0.0], share.probabilities])
    axes.step(steps, heights, dashes, where="post", color=colour, linewidth=1.4, label=label)


def _finish(axes: Axes, stage: int) -> None:
    axes.axhline(0.5, color="0.75", linestyle=":", linewidth=1, zorder=0)
    axes.set_xlabel(f"stage {stage}: sub-blocks of the {_STAGES[stage]}")
    axes.set_ylabel("share of queries, cumulative")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.02)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the footprint of one corpus under both mappings."""
    from nandcosim.systems.dnova.corpus import load_corpus
    from nandcosim.systems.dnova.mapping_study import footprint_study

    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.report.mapping", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a corpus, or a path")
    parser.add_argument("--out", type=Path, required=True, help="picture to write")
    parser.add_argument("--subblocks", type=int, default=164)
    parser.add_argument("--nlist", type=int, default=1024)
    parser.add_argument("--nprobe", type=int, default=64)
    parser.add_argument("--dts", default="242")
    parser.add_argument("--packing", default="first-fit")
    options = parser.parse_args(arguments)
    study = footprint_study(
        load_corpus(options.corpus),
        subblocks=options.subblocks,
        nlist=options.nlist,
        nprobes=[options.nprobe],
        dts=options.dts,
        packing=options.packing,
    )
    save(draw_study(study, options.nprobe, int(study["k2"][0])), options.out)


if __name__ == "__main__":
    sys.exit(main())
