"""A picture of one sample's waveforms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nandcosim.report.style import COLOURS, figure, save, scaled_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nandcosim.spice.circuit import Marks
    from nandcosim.spice.result import Waveforms

__all__ = ["draw_voltages", "plot_waveforms"]


def plot_waveforms(waveforms: Waveforms, marks: Marks, title: str, path: Path) -> None:
    """Draw voltages above and currents below, and write the picture.

    Parameters
    ----------
    waveforms : Waveforms
    marks : Marks
        Instants and levels to mark.
    title : str
    path : Path
        PNG, SVG or PDF by its suffix.

    Raises
    ------
    InputError
        If the suffix is none that matplotlib writes.
    """
    currents = [name for name in waveforms if name.endswith("#branch")]
    rows = 2 if currents else 1
    fig, axes = figure(rows=rows, height_ratios=[3, 1][:rows])
    draw_voltages(axes[0], waveforms, marks)
    axes[0].set_title(title)
    if currents:
        _draw_currents(axes[1], waveforms, currents, marks)
    axes[-1].set_xlabel(f"time ({scaled_unit(waveforms.time, 's')[1]})")
    save(fig, path)


def draw_voltages(axes: Axes, waveforms: Waveforms, marks: Marks) -> None:
    """Draw every voltage with the marks on `axes`; time in the best-fitting unit."""
    factor, _ = scaled_unit(waveforms.time, "s")
    names = [n for n in waveforms if n != "time" and not n.endswith("#branch")]
    for name, colour in zip(names, COLOURS, strict=False):
        axes.plot(waveforms.time * factor, waveforms[name], color=colour, label=f"v({name})")
    for label, level in marks.levels.items():
        axes.axhline(level, color="0.4", linestyle="--", linewidth=1, label=label)
    _mark_instants(axes, marks, factor, labelled=True)
    axes.set_ylabel("voltage (V)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _draw_currents(axes: Axes, waveforms: Waveforms, names: list[str], marks: Marks) -> None:
    factor, _ = scaled_unit(waveforms.time, "s")
    everything = np.concatenate([waveforms[name] for name in names])
    scale, unit = scaled_unit(everything, "A")
    for name, colour in zip(names, COLOURS[::-1], strict=False):
        label = f"i({name.removesuffix('#branch')})"
        # ngspice counts current into the positive terminal; a supply delivers the negative
        axes.plot(waveforms.time * factor, -waveforms[name] * scale, color=colour, label=label)
    _mark_instants(axes, marks, factor, labelled=False)
    axes.set_ylabel(f"supplied\ncurrent ({unit})")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _mark_instants(axes: Axes, marks: Marks, factor: float, *, labelled: bool) -> None:
    for index, (label, instant) in enumerate(marks.instants.items()):
        axes.axvline(instant * factor, color="0.75", linestyle=":", linewidth=1, zorder=0)
        if labelled:
            axes.annotate(
                label,
                (instant * factor, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10 - 11 * (index % 2)),
                textcoords="offset points",
                fontsize=8,
                color="0.35",
            )
