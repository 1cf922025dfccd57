"""The sections of a language model's quality under bit errors on the page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.report.configuration import MOST_ROWS, first_rows
from nandcosim.report.page import Picture, Section, as_svg
from nandcosim.report.style import COLOURS, figure
from nandcosim.systems.nvllm.quality import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_quality", "quality_sections"]

_MODES = {"none": "no ECC", "detect": "detection only", "correct": "detection and correction"}

#: Perplexity beyond which the axis of a figure is cut; a broken model's has no upper end.
_BROKEN = 1e6


def quality_sections(name: str, dataset: xr.Dataset) -> list[Section]:
    """Sections of one result of `nandcosim.systems.nvllm.quality.quality`."""
    rows = list(_rows(dataset))
    text = (
        f"{dataset.attrs['model']}, its FFN and head stored as INT8 in pages of codewords, read "
        "with bit errors and run. Without ECC raw weights are used; with detection only, segments "
        "that fail their check add nothing; with correction, those beyond it are used as read."
        f"{first_rows(rows)}"
    )
    picture = Picture(
        as_svg(draw_quality(dataset), name),
        "Perplexity and accuracy of the next token; bars are 95 % intervals over reads. Dashed: "
        "the model without errors.",
    )
    facts = {"file": name, "reads a point": dataset.sizes["seed"]}
    return [Section("Quality under bit errors", text, [picture], facts, rows[:MOST_ROWS])]


def draw_quality(dataset: xr.Dataset) -> Figure:
    """Draw perplexity and accuracy against the raw bit error rate (the paper's Fig. 4(a))."""
    means = summary(dataset)
    rate = dataset["rber_read"]
    fig, panels = figure(1, 2, width=9.5, height=4.0)
    for axes, quantity in zip(panels, ("perplexity", "accuracy"), strict=True):
        for colour, (mode, label) in zip(COLOURS, _MODES.items(), strict=False):
            if mode not in means["mode"].values:
                continue
            at = means.sel(mode=mode)
            value = np.minimum(_flat(at[quantity], rate), _BROKEN)
            limits = [
                np.minimum(_flat(at[f"{quantity}{end}"], rate), _BROKEN)
                for end in ("_low", "_high")
            ]
            order = np.argsort(rate.values.ravel())
            x = rate.values.ravel()[order]
            bars = np.maximum([value - limits[0], limits[1] - value], 0)[:, order]
            axes.errorbar(
                x, value[order], yerr=np.nan_to_num(bars), color=colour, marker="o", ms=4,
                capsize=2, label=label,
            )  # fmt: skip
        axes.axhline(float(dataset[f"stored_{quantity}"]), color="#555555", ls="--", lw=1)
        axes.set_xscale("log")
        axes.set_xlabel("raw bit error rate")
        axes.set_ylabel(quantity)
    panels[0].set_yscale("log")
    panels[1].set_ylim(bottom=0)
    panels[0].legend(frameon=False, fontsize=8)
    return fig


def _flat(values: xr.DataArray, like: xr.DataArray) -> np.ndarray:
    return np.asarray(values.broadcast_like(like).transpose(*like.dims).values.ravel())


def _rows(dataset: xr.Dataset) -> Iterator[dict[str, Any]]:
    means = summary(dataset)
    rate = dataset["rber_read"]
    axes = [str(dim) for dim in rate.dims]
    points = itertools.product(*(range(dataset.sizes[axis]) for axis in axes))
    for index in points:
        at = dict(zip(axes, index, strict=True))
        for mode in dataset["mode"].values.tolist():
            one = means.isel(at).sel(mode=mode)
            yield {
                **{axis: str(one[axis].item()) for axis in axes},
                "raw bit error rate": f"{float(rate.isel(at)):.3g}",
                "mode": _MODES[mode],
                "perplexity": f"{float(one['perplexity']):.4g}",
                "95 % interval": f"{float(one['perplexity_low']):.4g} to "
                f"{float(one['perplexity_high']):.4g}",
                "accuracy": f"{100 * float(one['accuracy']):.3g} %",
                "wrong weights": f"{float(one['wrong_weights']):.3g}",
            }
