"""The picture of the table of `cam_string`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from nandcosim.tables.plot_style import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_cam_string"]

#: Below this a current is that of the solver's tolerance.
FLOOR = 1e-13


def draw_cam_string(dataset: xr.Dataset) -> Figure:
    """Current and sensed matches by query, and what is sensed wrongly against sigma.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of a table over ``layers`` and ``sigma``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    _draw_currents(left, dataset)
    _draw_errors(middle, dataset, "miss", "Match not sensed")
    _draw_errors(right, dataset, "false_match", "Some mismatch sensed as a match")
    for panel in (left, middle, right):
        panel.grid(visible=True, color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8, title="bits of the layers", title_fontsize=8)
    figure.suptitle(f"cam_string · {int(dataset['n'].min())} samples a point", fontsize=10)
    return figure


def _draw_currents(panel: Axes, dataset: xr.Dataset) -> None:
    quiet = dataset["current"].sel(sigma=0.0, method="nearest")
    for i, layers in enumerate(dataset["layers"].values):
        current = quiet.sel(layers=layers).dropna("query").clip(min=FLOOR)
        panel.semilogy(
            current["query"].values,
            current.values * 1e9,
            MARKERS[i] + "-",
            color=COLOURS[i],
            label=str(layers),
            linewidth=0.8,
            markersize=5,
        )
    sigma = float(quiet["sigma"])
    panel.set(
        xlabel="identifier searched for",
        ylabel="string current [nA]",
        title=f"Current, {sigma:g} level spread",
    )


def _draw_errors(panel: Axes, dataset: xr.Dataset, name: str, title: str) -> None:
    sigma = dataset["sigma"].values
    for i, layers in enumerate(dataset["layers"].values):
        each = dataset.sel(layers=layers)
        rate = each[f"{name}_probability"].values
        bars = [rate - each[f"{name}_low"].values, each[f"{name}_high"].values - rate]
        panel.errorbar(
            sigma,
            rate,
            np.maximum(bars, 0.0),
            fmt=MARKERS[i] + "-",
            color=COLOURS[i],
            label=str(layers),
            linewidth=0.8,
            markersize=5,
            capsize=2,
        )
    panel.set(xlabel="threshold spread [level]", ylabel="probability", title=title)
