"""The table of a sweep that asked for a rare event: its probability at every grid point."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.tables.samples import Samples

if TYPE_CHECKING:
    from nandcosim.sweep.rare.contract import Estimate

__all__ = ["fit_rare_event"]

NOT_ESTIMATED = "there is no estimate, at most an upper limit: see notes"

#: Fields of an estimate by the variable that holds them, with unit and meaning.
QUANTITIES = {
    "probability": ("probability", "1", "probability of the event"),
    "probability_se": ("standard_error", "1", "standard error of probability"),
    "probability_low": ("low", "1", "lower 95 % limit of probability"),
    "probability_high": ("high", "1", "upper 95 % limit of probability"),
    "effective_samples": ("effective_samples", "1", "effective samples that show the event"),
    "beta": ("beta", "1", "reliability index, distance of the nearest failure in sigma"),
    "runs": ("runs", "1", "simulator runs, the search included"),
    "converged": ("converged", "1", "1 where the precision that was asked for is reached"),
}

#: Variables that count or flag; they are always defined.
WHOLE = {"runs": np.int64, "converged": np.int8}


def fit_rare_event(samples: Samples, source: str | os.PathLike[str]) -> xr.Dataset:
    """Estimate the probability of the event from the runs that a store holds.

    Parameters
    ----------
    samples : Samples
        Of the store at `source`.
    source : path

    Returns
    -------
    xarray.Dataset
        Over the axes: ``probability`` with its ``_se``, ``_low`` and ``_high`` (95 %,
        samples that failed taken as outside and as inside the event),
        ``effective_samples``, ``beta``, ``runs`` and ``converged``. Attributes: ``event`` in
        words, ``method``, and ``notes``, by grid point what a reader must know, as JSON.
    """
    # Here, so that looking up a table does not import Dask.
    from nandcosim.sweep.plan import estimates
    from nandcosim.sweep.store import SweepStore

    store = SweepStore.open(source)
    found = [
        each or _unfinished(int(runs))
        for each, runs in zip(estimates(store), store.wanted(), strict=True)
    ]
    table = xr.Dataset(coords={axis: samples.store[axis] for axis in samples.axes})
    grid = xr.Dataset(
        {
            name: (tuple(store.spec.axes), _gathered(found, store.spec.grid_shape, name))
            for name in QUANTITIES
        },
        coords={axis: list(values) for axis, values in store.spec.axes.items()},
    )
    # The table's axes are sorted, and hold the points that were run.
    grid = grid.sel({axis: table[axis].values for axis in samples.axes})
    for name, (_, unit, meaning) in QUANTITIES.items():
        about = {"units": unit, "long_name": meaning}
        if name not in WHOLE:
            about["undefined"] = NOT_ESTIMATED
        table[name] = (samples.axes, grid[name].transpose(*samples.axes).values, about)
    rare = samples.spec["rare"]
    event = _in_words(rare["failure"], samples)
    table["probability"].attrs.update(
        long_name=f"probability of {event}",
        valid_min=0.0,
        valid_max=1.0,
        standard_error="probability_se",
        low="probability_low",
        high="probability_high",
        perturb="log_normal",
        scale="log",
    )
    notes = {
        _place(store.spec.coordinates(p)): each.note for p, each in enumerate(found) if each.note
    }
    table.attrs.update(event=event, method=rare["method"], notes=json.dumps(notes))
    return table


def _unfinished(runs: int) -> Estimate:
    from nandcosim.sweep.rare.contract import Estimate

    unknown = float("nan")
    return Estimate(
        probability=unknown,
        standard_error=unknown,
        low=unknown,
        high=unknown,
        effective_samples=unknown,
        runs=runs,
        beta=unknown,
        centres=np.empty((0, 0)),
        converged=False,
        note="not finished",
    )


def _gathered(found: list[Estimate], shape: tuple[int, ...], name: str) -> np.ndarray:
    """One field of every estimate over the axes."""
    field, _, _ = QUANTITIES[name]
    values = [getattr(each, field) for each in found]
    return np.array(values, WHOLE.get(name, np.float64)).reshape(shape)


def _in_words(condition: Mapping[str, Any], samples: Samples) -> str:
    """A condition with its unit, ``t_cross > 2e-05 s``."""
    unit = samples.describe(condition["response"])["units"]
    words = f"{condition['response']} {condition['relation']} {condition['value']:g}"
    return words if unit == "1" else f"{words} {unit}"


def _place(coordinates: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} = {value}" for axis, value in coordinates.items())
