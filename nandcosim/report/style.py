"""One look for every figure: colour-blind-safe colours, units on axes, no display needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nandcosim.errors import InputError

__all__ = ["COLOURS", "figure", "save", "scaled_unit"]

#: Okabe and Ito's palette, told apart with every common kind of colour vision.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]

_PREFIXES = [(1e15, "f"), (1e12, "p"), (1e9, "n"), (1e6, "µ"), (1e3, "m"), (1.0, "")]


def figure(
    rows: int = 1, columns: int = 1, *, width: float = 7.5, height: float = 4.2, **grid: Any
) -> tuple[Figure, list[Any]]:
    """Make a figure without pyplot, so that nothing global is touched.

    Returns
    -------
    Figure
    list of Axes
        Row by row; axes of a column share their x axis.
    """
    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, squeeze=False, sharex="col", gridspec_kw=grid)
    flat = list(axes.ravel())
    for each in flat:
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
    return fig, flat


def save(fig: Figure, path: Path) -> None:
    """Write a figure; the suffix decides the format.

    Raises
    ------
    InputError
        If the suffix is none that matplotlib writes, or the folder does not exist.
    """
    allowed = fig.canvas.get_supported_filetypes()
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in allowed:
        raise InputError(f"{path}: picture format {suffix!r}, allowed are {', '.join(allowed)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no folder {path.parent}")
    fig.savefig(path, dpi=150)


def scaled_unit(values: np.ndarray, unit: str) -> tuple[float, str]:
    """Factor and prefixed unit that bring the largest of `values` between 1 and 1000."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    for factor, prefix in _PREFIXES:
        if 0 < largest * factor < 1000:
            return factor, prefix + unit
    return 1.0, unit
