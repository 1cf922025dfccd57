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
    heights = [3] * bool(_voltages(waveforms)) + [1] * bool(currents)
    fig, axes = figure(rows=len(heights), height_ratios=heights)
    axes[0].set_title(title)
    if 3 in heights:
        draw_voltages(axes[0], waveforms, marks)
    if currents:
        _draw_currents(axes[-1], waveforms, currents, marks)
    name, _, unit = _scale(waveforms)
    axes[-1].set_xlabel(f"{name} ({unit})")
    save(fig, path)


def draw_voltages(axes: Axes, waveforms: Waveforms, marks: Marks) -> None:
    """Draw every voltage with the marks on `axes` against time or the swept source."""
    _, factor, _ = _scale(waveforms)
    scale = _parted(waveforms, waveforms.scale)
    for name, colour in zip(_voltages(waveforms), COLOURS, strict=False):
        axes.plot(
            scale * factor, _parted(waveforms, name), _dot(scale), color=colour, label=f"v({name})"
        )
    for label, level in marks.levels.items():
        axes.axhline(level, color="0.4", linestyle="--", linewidth=1, label=label)
    _mark_instants(axes, marks, factor, labelled=True)
    axes.set_ylabel("voltage (V)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _draw_currents(axes: Axes, waveforms: Waveforms, names: list[str], marks: Marks) -> None:
    _, factor, _ = _scale(waveforms)
    abscissa = _parted(waveforms, waveforms.scale)
    everything = np.concatenate([waveforms[name] for name in names])
    scale, unit = scaled_unit(everything, "A")
    for name, colour in zip(names, COLOURS[::-1], strict=False):
        label = f"i({name.removesuffix('#branch')})"
        # ngspice counts current into the positive terminal; a supply delivers the negative
        current = -_parted(waveforms, name) * scale
        axes.plot(abscissa * factor, current, _dot(abscissa), color=colour, label=label)
    _mark_instants(axes, marks, factor, labelled=False)
    axes.set_ylabel(f"supplied\ncurrent ({unit})")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _voltages(waveforms: Waveforms) -> list[str]:
    return [n for n in waveforms if n != waveforms.scale and not n.endswith("#branch")]


def _scale(waveforms: Waveforms) -> tuple[str, float, str]:
    """What the waveforms are drawn against: its name, the factor to its best unit, the unit."""
    name, unit = {
        "time": ("time", "s"),
        "v-sweep": ("swept voltage", "V"),
        "i-sweep": ("swept current", "A"),
    }[waveforms.scale]
    return name, *scaled_unit(waveforms[waveforms.scale], unit)


def _parted(waveforms: Waveforms, name: str) -> np.ndarray:
    """A vector with a gap wherever an inner source starts again for the next outer value."""
    scale = waveforms[waveforms.scale]
    again = np.flatnonzero(scale[1:] == scale[0]) + 1
    return np.insert(waveforms[name], again, np.nan)


def _dot(scale: np.ndarray) -> str:
    """Format of a curve: a single operating point has no line that could be seen."""
    return "o" if scale.size == 1 else "-"


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
