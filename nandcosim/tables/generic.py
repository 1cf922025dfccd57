"""The summary that every circuit gets: mean, standard error and counts of each response."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr

from nandcosim.intervals import mean_and_error
from nandcosim.tables.samples import Samples

__all__ = ["add_mean", "fit_responses"]


def fit_responses(samples: Samples, names: Iterable[str] | None = None) -> xr.Dataset:
    """Summarise responses over the successful samples of every grid point.

    Parameters
    ----------
    samples : Samples
    names : iterable of str, optional
        All responses by default.

    Returns
    -------
    xarray.Dataset
        For a response x: ``x`` (mean), ``x_se`` (its standard error), ``x_sd`` (standard
        deviation of the samples) and ``x_n`` (samples that have a value), over the axes.
    """
    dataset = _empty(samples)
    for name in samples.response_names if names is None else names:
        values = samples.response(name)
        add_mean(
            dataset,
            samples,
            name,
            values,
            samples.ok & np.isfinite(values),
            **(samples.describe(name)),
        )
    return dataset


def add_mean(
    dataset: xr.Dataset,
    samples: Samples,
    name: str,
    values: np.ndarray,
    used: np.ndarray,
    *,
    units: str,
    long_name: str,
) -> None:
    """Add mean, standard error, standard deviation and count of a quantity to `dataset`."""
    mean, error, deviation = mean_and_error(values, used)
    axes = samples.axes
    dataset[name] = (
        axes,
        mean,
        {
            "units": units,
            "long_name": long_name,
            "standard_error": f"{name}_se",
            "perturb": "normal",
            "undefined": "no successful sample has a value",
        },
    )
    dataset[f"{name}_se"] = (
        axes,
        error,
        {
            "units": units,
            "long_name": f"standard error of {name}",
            "undefined": "fewer than two samples have a value",
        },
    )
    dataset[f"{name}_sd"] = (
        axes,
        deviation,
        {
            "units": units,
            "long_name": f"standard deviation of the samples of {name}",
            "undefined": "fewer than two samples have a value",
        },
    )
    dataset[f"{name}_n"] = (
        axes,
        used.sum(axis=-1),
        {
            "units": "1",
            "long_name": f"samples in the mean {name}",
        },
    )


def _empty(samples: Samples) -> xr.Dataset:
    return xr.Dataset(coords={axis: samples.store[axis] for axis in samples.axes})
