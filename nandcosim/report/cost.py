"""Figures and tables of what a query costs: latency, energy, throughput, data moved."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.report.listing import quantity
from nandcosim.report.style import COLOURS, figure
from nandcosim.systems.dnova.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "SHOWN",
    "cost_table",
    "cut_at",
    "draw_shares",
    "draw_throughput",
    "representative",
    "stage_table",
]

_NAMES = {
    "dnova": "D-NOVA",
    "cpu_paper_calibrated": "CPU (paper)",
    "cpu_measured_faiss": "CPU (FAISS)",
    "nsp": "NSP",
    "reis": "REIS",
}

#: Axes along which D-NOVA has bars of its own.
SHOWN = ("dts", "schedule", "mapping")

#: Bars of D-NOVA's configurations at most; more do not fit.
_MOST = 8


def draw_shares(dataset: xr.Dataset) -> Figure:
    """Draw where latency and energy of a query go: shares of the components, totals beside.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `nandcosim.systems.dnova.evaluate` returns it.
    """
    rows = list(_bars(dataset))
    fig, panels = figure(1, 2, width=9.0, height=1.2 + 0.42 * len(rows))
    components = dataset["component"].values.tolist()
    for axes, name, unit in zip(panels, ("latency", "energy"), ("s", "J"), strict=True):
        left = np.zeros(len(rows))
        parts = np.array([one[name].sum("stage").values for _, one in rows])
        totals = parts.sum(axis=1)
        for number, component in enumerate(components):
            share = parts[:, number] / totals
            axes.barh(
                np.arange(len(rows)), share, left=left, height=0.7, label=component,
                color=COLOURS[number % len(COLOURS)], edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            left += share
        for row, total in enumerate(totals):
            axes.text(1.02, row, quantity(float(total), unit), va="center", fontsize=8)
        axes.set_xlim(0, 1)
        axes.set_xlabel(f"share of the {name} of a query")
        axes.set_yticks(np.arange(len(rows)), [label for label, _ in rows])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    panels[1].set_yticklabels([])
    fig.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center",
        ncols=len(components), frameon=False, fontsize=8,
    )  # fmt: skip
    return fig


def draw_throughput(dataset: xr.Dataset) -> Figure:
    """Draw saturated queries a second of every system, on a logarithmic axis."""
    rows = list(_bars(dataset))
    fig, (axes,) = figure(height=1.0 + 0.36 * len(rows))
    values = [float(one["qps"]) for _, one in rows]
    rivals = set(_NAMES.values()) - {_NAMES["dnova"]}
    colours = [COLOURS[1] if label in rivals else COLOURS[0] for label, _ in rows]
    axes.barh(np.arange(len(rows)), values, height=0.7, color=colours)
    for row, value in enumerate(values):
        axes.text(value * 1.08, row, f"{float(f'{value:.3g}'):g}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 2, max(values) * 4)
    axes.set_xlabel("queries a second, saturated")
    axes.set_yticks(np.arange(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return fig


def cost_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One row a system and configuration: totals, and how they compare with D-NOVA's."""
    lines = []
    for settings, point in _points(dataset):
        own = point.sel(system="dnova")
        base = {name: float(_total(own[name])) for name in ("latency", "energy", "qps")}
        for system in point["system"].values.tolist():
            one = point.sel(system=system)
            latency, energy = float(_total(one["latency"])), float(_total(one["energy"]))
            qps = float(one["qps"])
            lines.append(
                {
                    "system": _NAMES[system],
                    **settings,
                    "latency": quantity(latency, "s"),
                    "latency ÷ D-NOVA's": f"{latency / base['latency']:.3g}",
                    "energy": quantity(energy, "J"),
                    "energy ÷ D-NOVA's": f"{energy / base['energy']:.3g}",
                    "queries/s": f"{qps:.4g}",
                    "D-NOVA's ÷ queries/s": f"{base['qps'] / qps:.3g}",
                    "bytes moved": quantity(float(one["bytes_moved"].sum("stage")), "B"),
                }
            )
    return lines


def stage_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """D-NOVA by stage: what it senses and activates, and the time and energy of that."""
    lines = []
    for settings, point in _points(dataset):
        own = point.sel(system="dnova")
        for stage in own["stage"].values.tolist():
            one = own.sel(stage=stage)
            lines.append(
                {
                    **settings,
                    "stage": stage,
                    "m": int(one["m"]),
                    "vectors": f"{float(one['scanned']):.0f}",
                    "sub-blocks, mean": f"{float(one['activations']):.3g}",
                    "sub-blocks, median": f"{float(one['activations_median']):g}",
                    "latency": quantity(float(one["latency"].sum()), "s"),
                    "energy": quantity(float(one["energy"].sum()), "J"),
                }
            )
    return lines


def _settings_of(point: xr.Dataset, dims: list[str]) -> dict[str, str]:
    """Labels of a point on the axes, for the columns of a table."""
    return {dim: str(point[dim].item()) for dim in dims}


def representative(dataset: xr.Dataset, shown: Collection[str]) -> dict[str, int]:
    """Where to cut the axes not shown: the default if there, the most lists, else the first."""
    default = Config()
    at = {}
    for name in dataset.dims:
        axis = str(name)
        if axis in shown or axis not in Config.model_fields:
            continue
        values = dataset[axis].values.tolist()
        usual = getattr(default, axis)
        at[axis] = len(values) - 1 if axis == "nprobe" else 0
        if not isinstance(usual, tuple) and usual in values:
            at[axis] = values.index(usual)
    return at


def cut_at(dataset: xr.Dataset, shown: Collection[str]) -> str:
    """Words for `representative`: ``; at alpha 2, nprobe 32``, or nothing."""
    places = representative(dataset, shown).items()
    cut = [f"{n} {dataset[n].values[i].item()}" for n, i in places if dataset.sizes[n] > 1]
    return f"; at {', '.join(cut)}" if cut else ""


def _bars(dataset: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """D-NOVA's kinds of sensing, schedules and mappings, then the baselines."""
    points = list(_points(dataset.isel(representative(dataset, SHOWN))))[:_MOST]
    for settings, point in points:
        values = [f"DTS{v}" if name == "dts" else v for name, v in settings.items()]
        yield ", ".join(values) or "D-NOVA", point.sel(system="dnova")
    for system in dataset["system"].values.tolist():
        if system != "dnova":
            yield _NAMES[system], points[0][1].sel(system=system)


def _points(dataset: xr.Dataset) -> Iterator[tuple[dict[str, str], xr.Dataset]]:
    """Every configuration on the axes that cost depends on; chips are averaged."""
    needed = ["latency", "energy", "qps", "bytes_moved"]
    costs = dataset[[*needed, "m", "scanned", "activations", "activations_median"]]
    if "chip" in costs.dims:
        costs = costs.mean("chip")
    own = {"system", "stage", "component"}
    axes = [str(d) for d in costs.dims if any(d in costs[n].dims for n in needed) and d not in own]
    others = {dim: 0 for dim in costs.dims if dim not in {*axes, *own}}
    costs = costs.isel(others, drop=True)
    if not axes:
        yield {}, costs
        return
    stacked = xr.broadcast(costs, exclude=own)[0].stack(point=axes, create_index=False)
    for number in range(stacked.sizes["point"]):
        point = stacked.isel(point=number)
        yield _settings_of(point, axes), point


def _total(values: xr.DataArray) -> xr.DataArray:
    return values.sum([dim for dim in ("stage", "component") if dim in values.dims])
