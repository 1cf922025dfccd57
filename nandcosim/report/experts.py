"""Figures and tables of experts in NASiC's array: speed, energy, errors, the best designs."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.report.axes import Axes, along
from nandcosim.report.listing import quantity
from nandcosim.report.style import COLOURS, figure
from nandcosim.systems.nasic.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "AXES",
    "at_usual",
    "design_table",
    "draw_energy",
    "draw_errors",
    "draw_front",
    "draw_gains",
    "expert_rows",
    "expert_table",
    "model_of",
]

_NAMES = {"base": "Base", "t1": "T1", "t1t2": "T1+T2", "t1t2t3": "T1+T2+T3"}

AXES = Axes(Config, ("matrix", "component", "error"))

#: Bars at most; more do not fit.
_MOST = 16

_PLAIN = (
    "input_dimension", "token_time", "throughput", "token_energy", "energy_efficiency",
    "utilisation", "area", "area_efficiency", "output_total", "gain_speed", "gain_energy",
    "gain_array_speed", "gain_aedp", "gain_aedp_paper",
)  # fmt: skip


def expert_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Plain data of every configuration.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `nandcosim.systems.nasic.evaluate` returns it.
    """
    return [
        {
            **settings,
            **{name: float(point[name]) for name in _PLAIN},
            "interleaved": float(point["interleaved"].max()),
            "fits": bool(point["fits"]),
        }
        for settings, point in AXES.points(dataset, (*_PLAIN, "fits", "interleaved"))
    ]


def expert_table(dataset: xr.Dataset) -> list[dict[str, str]]:
    """`expert_rows` for people."""
    lines = []
    for row in expert_rows(dataset):
        settings = {name: str(value) for name, value in row.items() if name in Config.model_fields}
        if "technique" in settings:
            settings["technique"] = _NAMES[settings["technique"]]
        lines.append(
            {
                **settings,
                "fits": "yes" if row["fits"] else "no",
                "N": f"{row['input_dimension']:g}",
                "interleaved": f"{row['interleaved']:g}",
                "token": quantity(row["token_time"], "s"),
                "× Base": f"{row['gain_speed']:.3g}",
                "energy": quantity(row["token_energy"], "J"),
                "÷ Base": f"{row['gain_energy']:.3g}",
                "array used": f"{100 * row['utilisation']:.3g} %",
                "operations × Base": f"{row['gain_array_speed']:.3g}",
                "weights a cell ÷ Base": f"{row['area_efficiency']:.3g}",
                "error of an output": f"{100 * row['output_total']:.3g} %",
            }
        )
    return lines


def draw_gains(dataset: xr.Dataset) -> Figure:
    """Draw speed and energy of a token against Base's, over sigma or in bars (Fig. 8, 9(b))."""
    cut = AXES.cut(dataset, ("technique", "sigma"))
    fig, panels = figure(1, 2, width=9.5, height=3.8)
    words = {"gain_speed": "speed of a token over Base", "gain_energy": "energy of Base over it"}
    for axes, (name, label) in zip(panels, words.items(), strict=True):
        for colour, (technique, values) in zip(
            COLOURS, along(cut[name], "technique"), strict=False
        ):
            if "sigma" in values.dims:
                axes.plot(
                    values["sigma"], values, color=colour, marker="o", ms=4,
                    label=_NAMES.get(technique, technique),
                )  # fmt: skip
            else:
                axes.bar(_NAMES.get(technique, technique), float(values), color=colour)
        axes.set_ylabel(label)
        if "sigma" in cut[name].dims:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_xlabel("sigma of a string's current over its mean")
    if "sigma" in cut["gain_speed"].dims:
        panels[0].legend(frameon=False, fontsize=8)
    return fig


def draw_energy(dataset: xr.Dataset) -> Figure:
    """Draw the energy of a token by component (Fig. 9(a))."""
    rows = list(AXES.points(AXES.cut(dataset, ("technique", "model")), ("energy",)))[:_MOST]
    fig, (axes,) = figure(height=1.4 + 0.36 * len(rows))
    left = np.zeros(len(rows))
    for number, component in enumerate(dataset["component"].values.tolist()):
        part = np.array([float(p["energy"].sel(component=component)) for _, p in rows])
        axes.barh(
            np.arange(len(rows)), 1e3 * part, left=1e3 * left, height=0.7, label=component,
            color=COLOURS[number % len(COLOURS)], edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        left += part
    axes.set_yticks(np.arange(len(rows)), [_label(settings) for settings, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("energy of a token's experts (mJ)")
    axes.grid(visible=False, axis="y")
    fig.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return fig


def draw_errors(dataset: xr.Dataset) -> Figure:
    """Draw the error of an output by cause, over sigma or in bars."""
    cut = AXES.cut(dataset, ("technique", "sigma"))
    techniques = list(along(cut["output_error"], "technique"))
    fig, panels = figure(1, len(techniques), width=2.6 * len(techniques) + 1.5, height=3.6)
    for axes, (technique, values) in zip(panels, techniques, strict=True):
        for number, cause in enumerate(values["error"].values.tolist()):
            one = values.sel(error=cause)
            if "sigma" in one.dims:
                axes.plot(one["sigma"], 100 * one, color=COLOURS[number], marker="o", ms=3,
                          label=cause)  # fmt: skip
            else:
                axes.bar(cause, 100 * float(one), color=COLOURS[number])
        axes.set_title(_NAMES.get(technique, str(technique)), fontsize=10)
        axes.set_ylim(bottom=0)
        if "sigma" in values.dims:
            axes.set_xlabel("sigma")
    panels[0].set_ylabel("error of an output (% of its deviation)")
    if "sigma" in cut.dims:
        panels[0].legend(frameon=False, fontsize=8)
    return fig


def draw_front(designs: xr.Dataset) -> Figure:
    """Draw every design's time against its energy, the best ones by their area.

    Parameters
    ----------
    designs : xarray.Dataset
        Of `nandcosim.systems.nasic.front`.
    """
    fig, (axes,) = figure(height=4.4)
    best = designs["best"].values
    time, energy = 1e3 * designs["token_time"].values, 1e3 * designs["token_energy"].values
    axes.scatter(time[~best], energy[~best], s=8, color="#bbbbbb", label="beaten")
    points = axes.scatter(
        time[best], energy[best], s=34, c=designs["area"].values[best], cmap="viridis",
        edgecolor="black", linewidth=0.5, label="not beaten in everything",
    )  # fmt: skip
    fig.colorbar(points, label="area (mm²)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("time of a token's experts (ms)")
    axes.set_ylabel("energy of a token's experts (mJ)")
    axes.legend(frameon=False, fontsize=8)
    return fig


def design_table(designs: xr.Dataset) -> list[dict[str, str]]:
    """The best designs, fastest first."""
    best = designs.isel(design=np.flatnonzero(designs["best"].values))
    best = best.isel(design=np.argsort(best["token_time"].values))
    axes = [
        str(name)
        for name, values in designs.coords.items()
        if name in Config.model_fields and values.dims == ("design",)
    ]
    return [
        {
            **{axis: str(one[axis].item()) for axis in axes},
            "token": quantity(float(one["token_time"]), "s"),
            "energy": quantity(float(one["token_energy"]), "J"),
            "area": f"{float(one['area']):.4g} mm²",
            "error of an output": f"{100 * float(one['output_total']):.3g} %",
        }
        for one in (best.isel(design=n) for n in range(best.sizes["design"]))
    ]


def at_usual(dataset: xr.Dataset, axes: Collection[str]) -> xr.Dataset:
    """Cut `axes` at their defaults, or first values, where they are axes."""
    return AXES.cut(dataset, [str(dim) for dim in dataset.dims if dim not in axes])


def _label(settings: dict[str, Any]) -> str:
    return ", ".join(_NAMES.get(str(value), str(value)) for value in settings.values()) or "NASiC"


def model_of(dataset: xr.Dataset) -> str:
    """Names of the models evaluated."""
    names = json.loads(dataset.attrs["config"])["model"]
    return ", ".join(names) if isinstance(names, list) else str(names)
