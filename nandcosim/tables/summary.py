"""What is in a table, for people and for ``--json``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.sweep.goals import plan_in_words
from nandcosim.tables.probit import FitKind
from nandcosim.tables.table import CalibrationTable

__all__ = ["render_summary", "summarise"]

#: Grid points of a rare event whose estimates are printed.
MOST_POINTS = 12


def summarise(table: CalibrationTable) -> dict[str, Any]:
    """Axes, ranges, counts and residuals as plain values that JSON can hold.

    Returns
    -------
    dict
        ``circuit``, ``digest``, ``store_digest``, ``created``; ``samples`` (n, failed,
        by status); ``axes`` (units, interpolation, values); ``variables`` (dims, units,
        range, undefined points, meaning); ``fit`` (how many fits of each kind, largest
        residuals, smallest p-value) where there is one; ``not_fitted``; of a sweep that
        planned its samples ``plan``, of a rare event ``event``, ``method`` and ``notes``.
    """
    dataset = table.dataset
    attributes = dataset.attrs
    return {
        "circuit": table.circuit,
        "digest": table.digest,
        "store_digest": attributes.get("store_digest"),
        "created": attributes.get("created"),
        "perturbed": bool(attributes.get("perturbed", 0)),
        "samples": {
            "n": int(dataset["n"].sum()),
            "failed": int(dataset["failed"].sum()),
            "smallest_n": int(dataset["n"].min()),
            "by_status": json.loads(attributes.get("status_counts", "{}")),
        },
        "axes": {
            str(axis): {
                "units": dataset[axis].attrs.get("units", ""),
                "interpolation": dataset[axis].attrs["interpolation"],
                "values": dataset[axis].values.tolist(),
            }
            for axis in dataset.dims
        },
        "variables": {str(name): _describe(dataset[name]) for name in dataset.data_vars},
        "fit": _fit_quality(dataset),
        "not_fitted": json.loads(attributes.get("not_fitted", "{}")),
        **_planned(dataset),
    }


def _planned(dataset: xr.Dataset) -> dict[str, Any]:
    """What only the table of a planned sweep has."""
    attributes = dataset.attrs
    found: dict[str, Any] = {
        name: attributes[name] for name in ("event", "method") if name in attributes
    }
    for name in ("notes", "plan"):
        if name in attributes:
            found[name] = json.loads(attributes[name])
    if "event" in attributes:
        found["estimates"] = _estimates(dataset)
    return found


def _estimates(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Probability of the event at every grid point, with its limits; None where there is none."""
    probability = dataset["probability"]
    found = []
    for at in np.ndindex(probability.shape):
        place = zip(map(str, probability.dims), at, strict=True)
        entry: dict[str, Any] = {"at": {axis: dataset[axis].values[i].item() for axis, i in place}}
        for name in ("probability", "probability_low", "probability_high", "runs"):
            value = dataset[name].values[at].item()
            entry[name] = value if np.isfinite(value) else None
        found.append(entry)
    return found


def _describe(variable: xr.DataArray) -> dict[str, Any]:
    values = np.asarray(variable.values, float)
    finite = values[np.isfinite(values)]
    return {
        "dims": [str(dim) for dim in variable.dims],
        "units": variable.attrs.get("units", ""),
        "meaning": variable.attrs.get("long_name", ""),
        "low": float(finite.min()) if finite.size else None,
        "high": float(finite.max()) if finite.size else None,
        "undefined": int(np.isnan(values).sum()),
        "size": int(values.size),
    }


def _fit_quality(dataset: xr.Dataset) -> dict[str, Any] | None:
    if "fit_kind" not in dataset:
        return None
    kinds = dataset["fit_kind"].values
    return {
        "kinds": {k.name.lower(): int((kinds == k).sum()) for k in FitKind if (kinds == k).any()},
        "largest_residual": _extreme(np.abs(dataset["pass_residual"].values), np.max),
        "largest_deviance_residual": _extreme(
            np.abs(dataset["pass_deviance_residual"].values), np.max
        ),
        "smallest_p_value": _extreme(dataset["fit_p_value"].values, np.min),
    }


def _extreme(values: np.ndarray, choose: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(choose(finite)) if finite.size else None


def render_summary(summary: dict[str, Any]) -> str:
    """The dict of `summarise` as lines of text."""
    samples = summary["samples"]
    by_status = ", ".join(f"{label} {count}" for label, count in samples["by_status"].items())
    lines = [
        f"table of {summary['circuit']}, fitted {summary['created']}",
        f"  store   {summary['store_digest']}",
        f"  table   {summary['digest']}",
        f"  samples {samples['n']} successful, {samples['failed']} failed ({by_status})",
        f"          at least {samples['smallest_n']} successful a point",
        "axes",
    ]
    for name, axis in summary["axes"].items():
        lines.append(
            f"  {name:<12} {_values(axis['values'])} {_unit(axis)}".rstrip()
            + f"  ({axis['interpolation']})"
        )
    lines.append("quantities")
    main = {k: v for k, v in summary["variables"].items() if not _is_ancillary(k)}
    for name, entry in main.items():
        lines.append(f"  {name:<24} {_span(entry)}  over {', '.join(entry['dims']) or '-'}")
    fit = summary["fit"]
    if fit is not None:
        kinds = ", ".join(f"{count} {kind}" for kind, count in fit["kinds"].items())
        lines += ["fit of the pass probability", f"  {kinds}"]
        for key in ("largest_residual", "largest_deviance_residual", "smallest_p_value"):
            if fit[key] is not None:
                lines.append(f"  {key.replace('_', ' ')} {fit[key]:.3g}")
    if "event" in summary:
        lines.append(f"event {summary['event']}, by {summary['method']}")
        lines += map(_estimate_line, summary["estimates"][:MOST_POINTS])
        lines += [
            f"  {place}: {note}".replace("  : ", "  ") for place, note in summary["notes"].items()
        ]
    if summary.get("plan"):
        lines.append(f"plan {plan_in_words(summary['plan'])}")
    lines += [f"not fitted: {name}: {why}" for name, why in summary["not_fitted"].items()]
    return "\n".join(lines)


def _estimate_line(entry: dict[str, Any]) -> str:
    place = ", ".join(f"{axis} = {_text(value)}" for axis, value in entry["at"].items())
    low, high = entry["probability_low"], entry["probability_high"]
    if entry["probability"] is None:
        found = "no estimate" if high is None else f"at most {high:.3g}"
    else:
        found = f"{entry['probability']:.3g} ({low:.3g} to {high:.3g})"
    return f"  {place or 'probability'}: {found}, {entry['runs']} runs"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unit(entry: dict[str, Any]) -> str:
    return "" if entry["units"] == "1" else str(entry["units"])


def _span(entry: dict[str, Any]) -> str:
    if entry["low"] is None:
        return "no value"
    span = f"{entry['low']:.4g} to {entry['high']:.4g} {_unit(entry)}".rstrip()
    gaps = f", undefined at {entry['undefined']} of {entry['size']}" if entry["undefined"] else ""
    return span + gaps


def _is_ancillary(name: str) -> bool:
    """Errors, limits and counts, which stand beside a quantity."""
    return name.endswith(("_se", "_sd", "_n", "_low", "_high")) or name.startswith("n_")


def _values(values: list[Any]) -> str:
    if len(values) <= 8:
        return ", ".join(map(_text, values))
    return f"{values[0]:g} to {values[-1]:g} in {len(values)} values"
