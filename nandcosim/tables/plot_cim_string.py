"""The picture of the table of `cim_string`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from nandcosim.tables.plot_style import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_cim_string"]

#: Spread of the thresholds in V that is shown where several are: the nominal QLC condition.
NOMINAL_SIGMA = 0.012


def draw_cim_string(dataset: xr.Dataset) -> Figure:
    """Products of a unit against its weight, their deviations, and a string's spread.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of a table with products. Where ``query`` is an axis, its first value is the match.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    match = dataset.isel(query=0) if "query" in dataset.dims else dataset
    if "states" not in match.coords:  # a sweep of one number of states
        match = match.assign_coords(states=int(match["weight"].max()) // 2 + 1)
    if "states" not in match.dims:
        match = match.expand_dims("states")
    states = match["states"].values
    figure = Figure(figsize=(3.6 * (states.size + 1), 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = np.atleast_2d(figure.subplots(2, states.size + 1))
    for column, count in enumerate(states):
        _draw_products(panels[0, column], match.isel(states=column), f"states: {count}")
        _draw_deviations(panels[1, column], match.isel(states=column))
    _draw_steps(panels[0, -1], match)
    _draw_spread(panels[1, -1], match)
    for panel in panels[:, :-1].ravel():
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in panels.ravel():
        panel.grid(visible=True, color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"cim_string · {int(dataset['n'].min())} samples a point", fontsize=10)
    return figure


def _quiet(table: xr.Dataset) -> xr.Dataset:
    return table.sel(sigma=0.0, method="nearest")


def _draw_products(panel: Axes, table: xr.Dataset, title: str) -> None:
    """Mean without spread, and bars of one standard deviation at the nominal spread."""
    product = _quiet(table)["product"].dropna("weight")
    spread = table.sel(sigma=NOMINAL_SIGMA, method="nearest")["product_sd"]
    for i, x in enumerate(product["x"].values):
        panel.errorbar(
            product["weight"].values,
            product.sel(x=x).values * 1e9,
            spread.sel(x=x, weight=product["weight"]).values * 1e9,
            fmt=MARKERS[i] + "-",
            color=COLOURS[i],
            label=f"x = {x}",
            linewidth=0.8,
            markersize=4,
            capsize=2,
        )
    nominal = float(spread["sigma"]) * 1e3
    panel.set(xlabel="weight", ylabel="product [nA]", title=f"{title}, bars: {nominal:g} mV")
    panel.legend(frameon=False, fontsize=8)


def _draw_deviations(panel: Axes, table: xr.Dataset) -> None:
    inl = _quiet(table)["inl"].dropna("weight")
    for i, x in enumerate(inl["x"].values):
        panel.plot(
            inl["weight"].values,
            inl.sel(x=x).values,
            MARKERS[i] + "-",
            color=COLOURS[i],
            linewidth=0.8,
            markersize=4,
        )
    panel.set(xlabel="weight", ylabel="INL [steps of weight times x]")


def _draw_steps(panel: Axes, match: xr.Dataset) -> None:
    current = _quiet(match)["current"].isel(x=-1)
    for i, count in enumerate(match["states"].values):
        panel.semilogy(
            current["step"].values,
            current.isel(states=i).values * 1e9,
            MARKERS[i] + "-",
            color=COLOURS[i],
            label=f"{count} states",
            linewidth=0.8,
            markersize=4,
        )
    x = int(current["x"])
    panel.set(
        xlabel="read pulse less state", ylabel="string current [nA]", title=f"String, x = {x}"
    )
    panel.legend(frameon=False, fontsize=8)


def _draw_spread(panel: Axes, match: xr.Dataset) -> None:
    spread = match["current_spread"].sel(step=1).isel(x=-1)
    for i, count in enumerate(match["states"].values):
        panel.plot(
            spread["sigma"].values * 1e3,
            spread.isel(states=i).values * 100,
            MARKERS[i] + "-",
            color=COLOURS[i],
            label=f"{count} states",
            linewidth=0.8,
            markersize=4,
        )
    panel.axhline(15, color="0.4", linestyle="--", linewidth=1)
    panel.set(xlabel="threshold spread [mV]", ylabel="current spread [%]")
    panel.set_title("Spread of a conducting string")
    panel.legend(frameon=False, fontsize=8)
