"""The pictures of the tables of `page_read`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.page_coding import page_names
from nandcosim.tables.plot_style import COLOURS, MARKERS
from nandcosim.tables.probit import pass_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_page_read"]

Panel = Callable[["Axes", xr.Dataset], None]

#: Of the modelled error rates, what is shown where another axis is drawn.
SHOWN = {"coding": "balanced", "shift": 0.0, "retry": 0, "sigma": 0.2}

CELLS = {1: "SLC", 2: "MLC", 3: "TLC", 4: "QLC"}

#: Error rates below this are not shown: fewer than one bit of a whole device.
LEAST = 1e-13


def draw_page_read(dataset: xr.Dataset) -> Figure:
    """What a table of page reads holds: decisions and error rates, counted errors, or cost.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of a table; axes other than those that are drawn must have been chosen.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(dataset)
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.4 * columns, 3.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel, draw in zip(axes, panels, strict=True):
        draw(panel, dataset)
        panel.grid(visible=True, color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8, loc="best")
    figure.suptitle(f"page_read · {int(dataset['n'].min())} samples a point", fontsize=10)
    return figure


def _panels(dataset: xr.Dataset) -> list[Panel]:
    if "bit_error_rate" in dataset:
        return [_draw_decision, _draw_by_sigma, _draw_by_page, _draw_by_shift]
    if "observed_error_rate" in dataset:
        return [_draw_observed]
    return [_draw_time, _draw_energy]


def _cells(dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """The table for every number of bits a cell, with a label."""
    if "bits" not in dataset.dims:
        return [("", dataset)]
    return [(CELLS[int(bits)], dataset.sel(bits=bits)) for bits in dataset["bits"].values]


def _style(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 0.9,
    }


# ---------------------------------------------------------------- decisions and error rates


def _draw_decision(panel: Axes, dataset: xr.Dataset) -> None:
    margin = dataset["margin"].values
    fine = np.linspace(margin[0], margin[-1], 400)
    for i, (label, each) in enumerate(_cells(dataset)):
        seen = each["pass_probability"].values
        bars = np.stack([seen - each["pass_low"].values, each["pass_high"].values - seen])
        style = _style(i) | {"linewidth": 0, "elinewidth": 1, "capsize": 2}
        panel.errorbar(margin, seen, bars, label=label, **style)
        curve = pass_model(fine, float(each["pass_location"]), float(each["pass_spread"]))
        panel.plot(fine, curve, color=style["color"], linewidth=1)
    panel.set(
        xlabel="read level above the stored level's boundary [level]",
        ylabel="conducts",
        title="One sense, 95 % intervals, fit",
    )


def _draw_by_sigma(panel: Axes, dataset: xr.Dataset) -> None:
    rate = dataset["bit_error_rate"].sel(_others("sigma"))
    for i, (label, each) in enumerate(_cells(rate.to_dataset())):
        mean = each["bit_error_rate"].mean("page")
        panel.semilogy(mean["sigma"], mean.where(mean > LEAST), label=label, **_style(i))
    panel.set(
        xlabel="spread of every level [level]",
        ylabel="raw bit error rate",
        title="Mean of the pages, no shift",
    )


def _draw_by_page(panel: Axes, dataset: xr.Dataset) -> None:
    label, widest = _cells(dataset)[-1]
    chosen = {name: value for name, value in _others("sigma").items() if name != "coding"}
    rate = widest["bit_error_rate"].sel(chosen).dropna("page", how="all")
    for i, page in enumerate(rate["page"].values):
        for coding, line in (("balanced", "-"), ("reflected", ":")):
            each = rate.sel(page=page, coding=coding)
            panel.semilogy(
                each["sigma"],
                each.where(each > LEAST),
                line,
                label=str(page) if line == "-" else None,
                **_style(i),
            )
    panel.plot([], [], ":", color="0.4", label="reflected code")
    panel.set(
        xlabel="spread of every level [level]",
        ylabel="raw bit error rate",
        title=f"Pages, {label}",
    )


def _draw_by_shift(panel: Axes, dataset: xr.Dataset) -> None:
    label, widest = _cells(dataset)[-1]
    rate = widest["bit_error_rate"].sel(_others("shift", "retry")).mean("page")
    for i, retry in enumerate(rate["retry"].values):
        each = rate.sel(retry=retry)
        panel.semilogy(each["shift"], each, label=f"retry {int(retry)}", **_style(i))
    panel.set(
        xlabel="mean shift of the top level [level]",
        ylabel="raw bit error rate",
        title=f"Read retry, {label}, spread {SHOWN['sigma']} level",
    )


def _others(*drawn: str) -> dict[str, Any]:
    return {name: value for name, value in SHOWN.items() if name not in drawn}


# ---------------------------------------------------------------- counted errors, cost


def _draw_observed(panel: Axes, dataset: xr.Dataset) -> None:
    pages = [str(page) for page in dataset["page"].values]
    place = np.arange(len(pages))
    curves = [(s, c) for s in dataset["sigma"].values for c in dataset["coding"].values]
    for i, (sigma, coding) in enumerate(curves):
        each = dataset.sel(sigma=sigma, coding=coding)
        rate = each["observed_error_rate"].values
        bars = np.stack([rate - each["observed_low"].values, each["observed_high"].values - rate])
        style = _style(i) | {"linewidth": 0, "elinewidth": 1, "capsize": 2}
        panel.errorbar(
            place + 0.12 * (i - len(curves) / 2),
            100 * rate,
            100 * bars,
            label=f"spread {sigma:g} level, {coding}",
            **style,
        )
    panel.set_xticks(place, pages)
    panel.set(ylabel="wrong bits [%]", title="Counted errors, 95 % intervals")


def _draw_time(panel: Axes, dataset: xr.Dataset) -> None:
    _draw_cost(panel, dataset, "page_time", 1e6)
    panel.set(ylabel="µs", title="Time of a page read")


def _draw_energy(panel: Axes, dataset: xr.Dataset) -> None:
    _draw_cost(panel, dataset, "page_energy", 1e15)
    panel.set(ylabel="fJ", title="Energy of a bitline in a page read")


def _draw_cost(panel: Axes, dataset: xr.Dataset, name: str, factor: float) -> None:
    codings = dataset["coding"].values if "coding" in dataset.dims else [None]
    pages = dataset["page"].values
    width = 0.8 / len(codings)
    for i, coding in enumerate(codings):
        each = dataset[name] if coding is None else dataset[name].sel(coding=coding)
        panel.bar(
            pages + width * (i - (len(codings) - 1) / 2),
            factor * each.values,
            width,
            color=COLOURS[i],
            label="" if coding is None else str(coding),
        )
    panel.set_xticks(pages, page_names(pages.size))
