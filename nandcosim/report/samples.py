"""Waveforms of single samples as labelled data: kept in a folder, drawn side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from nandcosim.report.style import COLOURS, figure, scaled_unit
from nandcosim.spice.circuit import Marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nandcosim.spice.result import Waveforms

__all__ = ["draw_samples", "save_sample"]


def save_sample(
    waveforms: Waveforms, marks: Marks, settings: Mapping[str, object], label: str, path: Path
) -> None:
    """Write one sample's waveforms to netCDF, dimension ``time`` in s."""
    time = waveforms.time
    data = {
        name.replace("#branch", "_current"): ("time", values)
        for name, values in waveforms.items()
        if name != "time"
    }
    dataset = xr.Dataset(data, coords={"time": ("time", time, {"units": "s"})})
    dataset.attrs = {
        "nandcosim_sample": 1,
        "label": label,
        "settings": json.dumps(dict(settings)),
        "instants": json.dumps(dict(marks.instants)),
        "levels": json.dumps(dict(marks.levels)),
    }
    dataset.to_netcdf(path, engine="h5netcdf")


def draw_samples(samples: list[xr.Dataset], voltages: tuple[str, ...] = ("bl", "out")) -> Figure:
    """Draw the same voltages of several samples, one line style a sample."""
    fig, (axes,) = figure(height=3.6)
    factor, unit = scaled_unit(samples[0]["time"].values, "s")
    for sample, dashes in zip(samples, ("-", "--", ":"), strict=False):
        for name, colour in zip(voltages, COLOURS, strict=False):
            axes.plot(
                sample["time"] * factor,
                sample[name],
                dashes,
                color=colour,
                label=f"v({name}), {sample.attrs['label']}",
            )
    first = samples[0].attrs
    for label, level in json.loads(first["levels"]).items():
        axes.axhline(level, color="0.4", linestyle="-.", linewidth=1, label=label)
    for index, (label, instant) in enumerate(json.loads(first["instants"]).items()):
        axes.axvline(instant * factor, color="0.75", linestyle=":", linewidth=1, zorder=0)
        axes.annotate(
            label,
            (instant * factor, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2 + 10 * (index % 2)),  # neighbouring instants can be close
            textcoords="offset points",
            fontsize=8,
            color="0.35",
        )
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("voltage (V)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig
