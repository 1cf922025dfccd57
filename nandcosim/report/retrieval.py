"""Figures and tables of a D-NOVA evaluation."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.report.cost import representative
from nandcosim.report.style import COLOURS, figure
from nandcosim.systems.dnova.config import group_sizes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DEFICIT_AXES",
    "deficit_table",
    "draw_heat_map",
    "draw_recall",
    "gap_table",
    "heat_map_axes",
    "over_chips",
    "recall_rows",
    "recall_table",
]

#: Octaves between neighbouring lines at one nprobe, so that they don't hide each other.
_SIDESTEP = 0.07

#: Octaves that all lines at one nprobe may take.
_SPREAD = 0.5

#: Axes that the table of deficits has rows for.
DEFICIT_AXES = ("dts", "alpha")

_MARKERS = "os^Dvp*X"
_STYLES = ("-", "--", ":", "-.")
_TITLES = {
    "judged": "share of judged documents found",
    "exact": "share of the exact top k found",
    "fp32_ivf": "share of FP32-IVF's top k found",
}


_SHORT = {"judged": "judged documents", "exact": "the exact top k"}


def draw_recall(dataset: xr.Dataset, reference: str = "judged", k: int = 100) -> Figure:
    """Draw recall@k against nprobe, one line a configuration, bars of one standard error.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `nandcosim.systems.dnova.evaluate` returns it, with the axis ``nprobe``.
    reference : str
        ``judged``, ``exact`` or ``fp32_ivf``.
    k : int
    """
    lines = _lines(dataset, reference)
    fig, (axes,) = figure(height=max(3.8, 0.6 + 0.21 * len(lines)))
    sidestep = min(_SIDESTEP, _SPREAD / len(lines))
    # The first look is FP32-IVF's, also where it is the reference and has no line.
    first = 1 if reference == "fp32_ivf" else 0
    for index, (label, values, errors) in enumerate(lines):
        look = index + first
        axes.errorbar(
            values["nprobe"].values * 2 ** (sidestep * (index - (len(lines) - 1) / 2)),
            values.sel(k=k).values,
            errors.sel(k=k).values,
            color=COLOURS[look % len(COLOURS)],
            marker=_MARKERS[look % len(_MARKERS)],
            linestyle=_STYLES[look // len(COLOURS) % len(_STYLES)],
            markersize=4,
            linewidth=1,
            capsize=2,
            label=label,
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("lists probed, nprobe")
    nprobe = dataset["nprobe"].values
    axes.set_xticks(nprobe, [f"{n:d}" for n in nprobe])
    axes.set_xticks([], minor=True)
    axes.set_ylabel(f"recall@{k}: {_TITLES[reference]}")
    axes.set_ylim(0, 1)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return fig


def heat_map_axes(dataset: xr.Dataset) -> tuple[list[int], list[int]] | None:
    """Values of m1 = m3 and of m2 if the triples of ``dts`` make a whole grid, else None."""
    if "dts" not in dataset.dims:
        return None
    triples = [group_sizes(str(value)) for value in dataset["dts"].values]
    outer, inner = sorted({t[0] for t in triples}), sorted({t[1] for t in triples})
    whole = len(outer) > 1 and len(inner) > 1 and len(triples) == len(outer) * len(inner)
    return (outer, inner) if whole and all(t[0] == t[2] for t in triples) else None


def draw_heat_map(dataset: xr.Dataset, k: int = 100) -> Figure:
    """Draw the gap to FP32-IVF over m2 and m1 = m3 (Fig. 12), at the most lists probed.

    Parameters
    ----------
    dataset : xarray.Dataset
        With the axis ``dts`` as `heat_map_axes` asks for; of other axes the last value.
    k : int
    """
    axes_values = heat_map_axes(dataset)
    assert axes_values is not None
    outer, inner = axes_values
    gap = over_chips(dataset)["gap"].sel(k=k)
    reference = "judged" if "judged" in gap["reference"] else "exact"
    gap = gap.sel(reference=reference)
    gap = gap.isel({dim: -1 for dim in gap.dims if dim != "dts"})
    points = np.empty((len(outer), len(inner)))
    for triple, value in zip(dataset["dts"].values, gap.values, strict=True):
        m1, m2, _ = group_sizes(str(triple))
        points[outer.index(m1), inner.index(m2)] = 100 * value
    fig, (axes,) = figure(width=4.6, height=3.6)
    image = axes.imshow(points, cmap="viridis_r", origin="lower", aspect="auto")
    middle = (points.min() + points.max()) / 2
    for row, column in np.ndindex(points.shape):
        value = points[row, column]
        colour = "white" if value > middle else "black"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(inner)), [str(m) for m in inner])
    axes.set_yticks(range(len(outer)), [str(m) for m in outer])
    axes.set_xlabel("wordlines at once in stage 2, m2")
    axes.set_ylabel("in stages 1 and 3, m1 = m3")
    axes.grid(visible=False)
    fig.colorbar(image, label=f"gap of recall@{k} to FP32-IVF (points)")
    return fig


def deficit_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Quantiles of the deficit of a string by stage, for every DTS and alpha."""
    at = representative(dataset, DEFICIT_AXES)
    deficit = dataset["deficit"].isel(at, drop=True, missing_dims="ignore")
    keep = [str(dim) for dim in deficit.dims if dim in DEFICIT_AXES]
    lines = deficit.stack(line=[*keep, "stage"], create_index=False)
    rows = []
    for number in range(lines.sizes["line"]):
        one = lines.isel(line=number)
        settings = {dim: str(one[dim].item()) for dim in [*keep, "stage"]}
        found = {
            f"quantile {float(q):g}": f"{float(one.sel(quantile=q)):.3g}" for q in one["quantile"]
        }
        rows.append({**settings, **found})
    return rows


def recall_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One row a configuration and measure: label, nprobe, k, value and standard error."""
    rows = []
    for reference in dataset["reference"].values.tolist():
        for label, values, errors in _lines(dataset, reference):
            for k in dataset["k"].values:
                nprobe, recall = _along_nprobe(dataset, values.sel(k=k))
                _, error = _along_nprobe(dataset, errors.sel(k=k))
                rows += [
                    {
                        "measure": _TITLES[reference],
                        "configuration": label,
                        "nprobe": int(n),
                        "k": int(k),
                        "recall": float(r),
                        "se": float(e),
                    }
                    for n, r, e in zip(nprobe, recall, error, strict=True)
                ]
    return rows


def recall_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """`recall_rows` for reading: one column a nprobe, each cell recall ± standard error."""
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in recall_rows(dataset):
        found = row["measure"].removeprefix("share of ").removesuffix(" found")
        head = {"recall of": found, "configuration": row["configuration"], "k": row["k"]}
        line = table.setdefault(tuple(head.values()), head)
        error = "" if math.isnan(row["se"]) else f" ± {row['se']:.3f}"
        line[f"nprobe {row['nprobe']}"] = f"{row['recall']:.3f}{error}"
    return list(table.values())


def over_chips(dataset: xr.Dataset) -> xr.Dataset:
    """Average over the draws of the hardware; their spread joins the standard errors."""
    if "chip" not in dataset.dims:
        return dataset
    count = dataset.sizes["chip"]
    merged = dataset.mean("chip", keep_attrs=True)
    for name in ("recall", "gap"):
        between = dataset[name].var("chip", ddof=1) / count if count > 1 else 0.0
        merged[f"{name}_se"] = np.sqrt((dataset[f"{name}_se"] ** 2).mean("chip") + between)
    return merged


def gap_table(dataset: xr.Dataset, k: int) -> list[dict[str, Any]]:
    """Recall@k that FP32-IVF has more, in points, paired by query: a row a configuration."""
    merged = over_chips(dataset)
    rows = []
    for reference in ("judged", "exact"):
        if reference not in merged["reference"]:
            continue
        one = merged.sel(reference=reference, k=k)
        for label, values, errors in _split("", one["gap"], one["gap_se"]):
            row: dict[str, Any] = {"gap against": _SHORT[reference], "configuration": label}
            nprobes, gaps = _along_nprobe(dataset, values)
            _, spread = _along_nprobe(dataset, errors)
            for nprobe, gap, error in zip(nprobes, gaps, spread, strict=True):
                row[f"nprobe {nprobe}"] = f"{100 * gap:.1f} ± {100 * error:.1f}"
            rows.append(row)
    return rows


def _lines(dataset: xr.Dataset, reference: str) -> list[tuple[str, xr.DataArray, xr.DataArray]]:
    """Label, values and standard errors over (nprobe, k) of every line; FP32-IVF first."""
    one = over_chips(dataset).sel(reference=reference)
    lines = []
    if reference != "fp32_ivf":  # against itself it would be 1
        lines += _split("FP32-IVF", one["ivf_recall"], one["ivf_recall_se"])
    for system in ("nsp", "reis"):
        if f"{system}_recall" in one:  # with baselines=executed
            values = one[f"{system}_recall"], one[f"{system}_recall_se"]
            lines += _split(system.upper(), *values)
    return lines + _split("", one["recall"], one["recall_se"])


def _split(
    prefix: str, values: xr.DataArray, errors: xr.DataArray
) -> list[tuple[str, xr.DataArray, xr.DataArray]]:
    others = [str(dim) for dim in values.dims if dim not in ("nprobe", "k")]
    if not others:
        return [(prefix or "D-NOVA", values, errors)]
    stacked = values.stack(line=others)
    stacked_errors = errors.stack(line=others)
    lines = []
    for index in range(stacked.sizes["line"]):
        one = stacked.isel(line=index)
        label = ", ".join(_setting(name, one.coords[name].item()) for name in others)
        lines.append((f"{prefix} {label}".strip(), one, stacked_errors.isel(line=index)))
    return lines


def _setting(name: str, value: Any) -> str:
    if name == "dts":
        return f"DTS{value}"
    if name == "noise":
        return "ideal sensing" if value == "none" else "circuit noise"
    return f"{name} {value}"


def _along_nprobe(dataset: xr.Dataset, values: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    if "nprobe" in values.dims:
        return values["nprobe"].values, values.values
    only = json.loads(dataset.attrs["config"])["nprobe"]  # no axis: one value for all
    return np.array([only]), np.atleast_1d(values.values)
