"""One picture of a table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.tables.plot_cam_string import draw_cam_string
from nandcosim.tables.plot_cim_string import draw_cim_string
from nandcosim.tables.plot_page_read import draw_page_read
from nandcosim.tables.plot_style import COLOURS, MARKERS
from nandcosim.tables.probit import pass_model
from nandcosim.tables.table import CalibrationTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "plot"]

MAX_PANELS = 8


@dataclass(frozen=True)
class Drawing:
    """A circuit's own picture: what draws it, and the dims it must and may find."""

    draw: Callable[[xr.Dataset], Figure]
    needs: frozenset[str]
    knows: frozenset[str]

    def fits(self, dataset: xr.Dataset) -> bool:
        """Whether the picture can show this table."""
        return self.needs <= set(dataset.dims) <= self.needs | self.knows


#: Circuits with a picture of their own; other tables are drawn by what they hold.
DRAWINGS = {
    "cam_string": Drawing(draw_cam_string, frozenset({"layers", "sigma", "query"}), frozenset()),
    "cim_string": Drawing(
        draw_cim_string,
        frozenset({"step", "sigma", "x", "weight"}),
        frozenset({"states", "query"}),
    ),
    "page_read": Drawing(
        draw_page_read,
        frozenset({"page"}),
        frozenset({"bits", "margin", "coding", "sigma", "shift", "retry", "stored"}),
    ),
}

#: Spread of the thresholds that is shown if the sweep has several: the nominal QLC condition.
NOMINAL_SIGMA = 0.2


def plot(
    table: CalibrationTable,
    path: str | os.PathLike[str],
    at: Mapping[str, float | str] | None = None,
) -> Path:
    """Draw a table into a file.

    Parameters
    ----------
    table : CalibrationTable
    path : path
        Its suffix decides the format: ``.png``, ``.pdf``, ``.svg``.
    at : Mapping, optional
        Tabulated values of axes other than margin and m; by default sigma nearest to 0.2
        and the first value of the others.

    Raises
    ------
    InputError
        For a value that is not tabulated, or if the file cannot be written.
    """
    path = Path(path)
    figure = draw(table, at)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written: {error}") from None
    return path


def draw(table: CalibrationTable, at: Mapping[str, float | str] | None = None) -> Figure:
    """The picture of `plot` as a matplotlib figure.

    `DRAWINGS` names the circuits with a picture of their own. For sensing tables: pass
    probability against margin with Wilson intervals and the fitted curves, then trip margin,
    discharge time and energy against m. For any other: every quantity against the first
    numeric axis, a curve for every value of a second one.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    own = DRAWINGS.get(table.circuit)
    if own is not None and own.fits(chosen := table.at(**(at or {})).dataset):
        return own.draw(chosen)
    fixed = _fixed(table, dict(at or {}))
    dataset = table.at(**fixed).dataset
    where = ", ".join(_setting(table.dataset[axis], value) for axis, value in fixed.items())
    panels = _panels(dataset)
    if not panels:
        raise InputError(f"table {table.circuit}: nothing to draw against a numeric axis")
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.7 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel, (name, draw_panel) in zip(axes, panels.items(), strict=False):
        draw_panel(panel, dataset, name)
        panel.grid(visible=True, color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    samples = f"{int(dataset['n'].min())} samples a point or more"
    failed = int(dataset["failed"].sum())
    note = f", {failed} failed" if failed else ""
    figure.suptitle(
        " · ".join(each for each in (table.circuit, where, samples + note) if each), fontsize=10
    )
    return figure


def _fixed(table: CalibrationTable, at: dict[str, Any]) -> dict[str, Any]:
    """A value for every axis that is not drawn."""
    dataset = table.dataset
    free = [str(d) for d in dataset.dims if d not in at]
    if _is_sensing(dataset):
        drawn = ["margin", "m"]
    else:  # the first numeric axis, and one more as a family of curves
        numeric = [d for d in free if dataset[d].dtype.kind in "iuf"]
        first = "margin" if "margin" in free else next(iter(numeric), None)
        others = [d for d in free if d != first and dataset.sizes[d] <= len(COLOURS)]
        drawn = [d for d in (first, *others[:1]) if d is not None]
    for axis in free:
        if axis in drawn:
            continue
        values = dataset[axis].values
        nearest = np.argmin(np.abs(values - NOMINAL_SIGMA)) if axis == "sigma" else 0
        at[axis] = values[nearest].item()
    return at


def _setting(axis: xr.DataArray, value: float | str) -> str:
    factor, unit = _engineering(axis)
    name, unit = str(axis.name).replace("_", " "), "" if unit in ("1", "") else f" {unit}"
    return f"{name} = {value if isinstance(value, str) else f'{value * factor:g}{unit}'}"


def _is_sensing(dataset: xr.Dataset) -> bool:
    return "pass_probability" in dataset and {"margin", "m"} <= set(dataset.dims)


def _panels(dataset: xr.Dataset) -> dict[str, Callable[[Axes, xr.Dataset, str], None]]:
    """What is drawn, and how, by quantity."""
    if _is_sensing(dataset):
        return {name: how for name, how in _SENSING.items() if name in dataset}
    fitted = [
        str(n) for n, each in dataset.data_vars.items() if {"perturb", "low"} & set(each.attrs)
    ]
    drawable = [n for n in fitted if dataset[n].ndim > 0 and dataset[n].notnull().any()]
    panels: dict[str, Callable[[Axes, xr.Dataset, str], None]]
    panels = dict.fromkeys(drawable[:MAX_PANELS], _draw_quantity)
    if "pass_probability" in panels and "margin" in dataset.dims:
        panels["pass_probability"] = _draw_pass_probability
        panels.pop("pass_fitted", None)
    return panels


def _groups(dataset: xr.Dataset, along: str) -> list[tuple[str, xr.Dataset]]:
    """The table at every value of the axis that is not drawn `along`, with a label."""
    family = next((str(d) for d in dataset.dims if d != along), None)
    if family is None:
        return [("", dataset)]
    values = dataset[family].values.tolist()
    labels = [_setting(dataset[family], value).removesuffix(" level") for value in values]
    return [(label, dataset.sel({family: v})) for label, v in zip(labels, values, strict=True)]


# ---------------------------------------------------------------- panels


def _draw_pass_probability(panel: Axes, dataset: xr.Dataset, name: str) -> None:
    margin = dataset["margin"].values
    fine = np.linspace(margin[0], margin[-1], 400)
    for i, (label, each) in enumerate(_groups(dataset, "margin")):
        colour = COLOURS[i % len(COLOURS)]
        observed = each[name].values
        bars = np.stack([observed - each["pass_low"].values, each["pass_high"].values - observed])
        panel.errorbar(
            margin,
            observed,
            bars,
            fmt=MARKERS[i % len(MARKERS)],
            color=colour,
            markersize=4,
            capsize=2,
            linewidth=1,
            label=label,
        )
        if "pass_location" in each:
            curve = pass_model(fine, float(each["pass_location"]), float(each["pass_spread"]))
            panel.plot(fine, curve, color=colour, linewidth=1)
    panel.set(
        xlabel=_label(dataset["margin"], "margin"),
        ylim=(-0.03, 1.03),
        ylabel="pass probability",
        title="Pass probability, 95 % intervals, fit",
    )
    if len(dataset.dims) > 1:
        panel.legend(frameon=False, fontsize=8)


def _draw_trip_margin(panel: Axes, dataset: xr.Dataset, name: str) -> None:
    _draw_limits(panel, dataset, name)
    at = json.loads(dataset[name].attrs["at"])
    where = ", ".join(_setting(dataset[axis], value) for axis, value in at.items())
    panel.set_title(f"Trip margin at {where}" if where else "Trip margin")


def _draw_limits(panel: Axes, dataset: xr.Dataset, name: str) -> None:
    """A quantity against m with its limits."""
    value = dataset[name].values
    low, high = dataset[f"{name}_low"].values, dataset[f"{name}_high"].values
    positions = _draw_against_m(panel, dataset)
    bars = np.nan_to_num([value - low, high - value], posinf=0.0)
    panel.errorbar(positions, value, bars, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
    panel.set_ylabel(_label(dataset[name], name))


def _draw_mean(panel: Axes, dataset: xr.Dataset, name: str) -> None:
    """A mean against m, at the largest margin and one near the decision."""
    quantity, error = dataset[name], dataset[f"{name}_se"]
    factor, unit = _engineering(quantity)
    positions = _draw_against_m(panel, dataset)
    for i, margin in enumerate(_shown_margins(quantity)):
        here = {"margin": margin}
        panel.errorbar(
            positions,
            quantity.sel(here).values * factor,
            1.96 * np.nan_to_num(error.sel(here).values) * factor,
            fmt=MARKERS[i] + "-",
            color=COLOURS[i],
            markersize=4,
            capsize=2,
            linewidth=0.8,
            label=f"margin {margin:g} {quantity.margin.units}",
        )
    panel.set(
        ylabel=f"{name.replace('_', ' ')} [{unit}]", title=_TITLES.get(name, name.replace("_", " "))
    )
    panel.legend(frameon=False, fontsize=8)


def _shown_margins(quantity: xr.DataArray) -> list[float]:
    """Up to three margins at which the quantity is known for every m, spread over the range."""
    known = quantity.notnull().all([d for d in quantity.dims if d != "margin"])
    margins = quantity["margin"].values[known.values]
    if margins.size == 0:
        margins = quantity["margin"].values[-1:]
    chosen = np.unique(np.linspace(0, margins.size - 1, min(3, margins.size)).round().astype(int))
    return [float(margins[i]) for i in chosen]


def _draw_against_m(panel: Axes, dataset: xr.Dataset) -> np.ndarray:
    """Equal steps for 1, 2, 4, 8; returns the positions."""
    sizes = dataset["m"].values.tolist()
    panel.set_xticks(range(len(sizes)), [str(m) for m in sizes])
    panel.set_xlabel("wordlines driven at once, m")
    return np.arange(len(sizes))


def _draw_quantity(panel: Axes, dataset: xr.Dataset, name: str) -> None:
    """A quantity against its first numeric axis, a curve for every value of the other one."""
    quantity = dataset[name]
    axis = _along(quantity)
    factor, unit = _engineering(quantity)
    along, along_unit = _engineering(quantity[axis])
    places = quantity[axis].values if along == 1.0 else along * quantity[axis].values
    low, high = _limits(dataset, name)
    curves = xr.Dataset({"value": quantity, "low": low, "high": high})
    for i, (label, each) in enumerate(_groups(curves, axis)):
        value = each["value"].values
        if not np.isfinite(value).any():
            continue
        bars = np.nan_to_num([value - each["low"].values, each["high"].values - value], posinf=0.0)
        panel.errorbar(
            places,
            value * factor,
            np.maximum(bars, 0.0) * factor,  # a redrawn value can be outside its limits
            fmt=MARKERS[i % len(MARKERS)] + "-",
            color=COLOURS[i % len(COLOURS)],
            markersize=4,
            capsize=2,
            linewidth=0.8,
            label=label,
        )
    panel.set(xlabel=_named(axis, along_unit), ylabel=_named(name, unit))
    panel.set_yscale(quantity.attrs.get("scale", "linear"))
    if quantity.ndim > 1:
        panel.legend(frameon=False, fontsize=8)


def _limits(dataset: xr.Dataset, name: str) -> tuple[xr.DataArray, xr.DataArray]:
    """The limits that a quantity names, else those of its standard error, else itself."""
    quantity = dataset[name]
    low, high, error = (str(quantity.attrs.get(k, "")) for k in ("low", "high", "standard_error"))
    if low in dataset and high in dataset:
        return dataset[low], dataset[high]
    if error not in dataset:
        return quantity, quantity
    half = 1.96 * dataset[error].fillna(0.0)
    return quantity - half, quantity + half


def _along(quantity: xr.DataArray) -> str:
    """The axis that a quantity is drawn against: margin, else its first numeric one."""
    numeric = [str(d) for d in quantity.dims if quantity[d].dtype.kind in "iuf"]
    if "margin" in numeric:
        return "margin"
    return numeric[0] if numeric else str(quantity.dims[0])


_SENSING = {
    "pass_probability": _draw_pass_probability,
    "trip_margin": _draw_trip_margin,
    "discharge_time": _draw_mean,
    "sense_energy": _draw_mean,
}

_TITLES = {
    "discharge_time": "Bitline discharge of passing reads",
    "sense_energy": "Energy of one sense operation",
}


def _label(variable: xr.DataArray, name: str) -> str:
    return _named(name, variable.attrs.get("units", "1"))


def _named(name: str, unit: str) -> str:
    return name.replace("_", " ") + ("" if unit in ("1", "") else f" [{unit}]")


_PREFIXES = ((1e-15, "f"), (1e-12, "p"), (1e-9, "n"), (1e-6, "u"), (1e-3, "m"), (1.0, ""))


def _engineering(quantity: xr.DataArray) -> tuple[float, str]:
    """Factor and unit that bring the values of a quantity between 1 and 1000."""
    unit = str(quantity.attrs.get("units", "1"))
    if unit not in ("s", "J", "A", "V", "F"):
        return 1.0, unit
    values = np.abs(quantity.values[np.isfinite(quantity.values)])
    largest = float(values.max()) if values.size else 0.0
    if largest == 0.0 or largest >= 1.0:
        return 1.0, unit
    step, prefix = max((p for p in _PREFIXES if p[0] <= largest), default=_PREFIXES[0])
    return 1 / step, prefix.replace("u", "µ") + unit
