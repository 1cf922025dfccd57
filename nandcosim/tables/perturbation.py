"""Redraw a table from its uncertainty.

How a quantity is redrawn is written beside it, in its attribute ``perturb``:

``normal``
    Normal with the standard error, kept within ``valid_min`` and ``valid_max``.
``proportion``
    The Jeffreys posterior Beta(k + 1/2, n - k + 1/2) of k passes of n (Brown, Cai,
    DasGupta, Stat. Sci. 16, 101, 2001, section 3.1.3).
``decision``
    Location and spread of a fitted decision, jointly: both normal with their
    correlation, the spread on a logarithmic scale. Of a separated fit the location is
    uniform in its bracket and the spread the absolute value of a normal number whose
    95 % point is its upper limit.
``same_draw``
    A slice of another quantity: what has been drawn for that one.
``pass_model``, ``ratio``
    Computed anew from what has been drawn.

Different grid points are drawn independently.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.tables.intervals import normal_quantile
from nandcosim.tables.probit import FitKind, pass_model

__all__ = ["perturb"]

Draw = Callable[[xr.Dataset, str, np.random.Generator], np.ndarray]


def perturb(dataset: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
    """A copy of a table's dataset with every fitted quantity redrawn.

    A value without a standard error (fewer than two samples) becomes NaN, which a lookup
    refuses: its uncertainty is not known to be small.

    Parameters
    ----------
    dataset : xarray.Dataset
        Left as it is.
    rng : numpy.random.Generator

    Returns
    -------
    xarray.Dataset
        Marked with the attribute ``perturbed = 1``.

    Raises
    ------
    InputError
        If a variable asks to be redrawn in a way this version does not know.
    """
    drawn = dataset.copy()
    for step in (_DRAWN, _DERIVED):  # what is computed comes after what it is computed from
        for name in sorted(str(each) for each in dataset.data_vars):
            how = dataset[name].attrs.get("perturb")
            if how is not None and how not in {**_DRAWN, **_DERIVED}:
                raise InputError(f"table: {name}: found perturb {how!r}, this version knows it not")
            if how in step:
                values = step[how](drawn, name, rng)
                drawn[name] = drawn[name].copy(data=_physical(values, drawn[name]))
    drawn.attrs["perturbed"] = 1
    return drawn


def _physical(values: np.ndarray, quantity: xr.DataArray) -> np.ndarray:
    low, high = quantity.attrs.get("valid_min"), quantity.attrs.get("valid_max")
    return values if low is None and high is None else np.clip(values, low, high)


def _normal(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    quantity = table[name]
    error = table[quantity.attrs["standard_error"]].values
    return np.asarray(quantity.values + error * rng.standard_normal(quantity.shape))


def _proportion(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    n = table["n"].values
    passes = np.where(n > 0, np.rint(table[name].values * n), 0.0)
    return np.where(n > 0, rng.beta(passes + 0.5, n - passes + 0.5), np.nan)


def _decision(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    """Location when called for it (first, by its name); it draws the spread along."""
    partner = str(table[name].attrs["partner"])
    location_name, spread_name = sorted((name, partner))
    if name != location_name:
        return np.asarray(table[name].values)  # drawn together with the location
    location, spread = table[location_name], table[spread_name]
    kind, shape = table["fit_kind"].values, location.shape
    first, second = rng.standard_normal(shape), rng.standard_normal(shape)
    rho = table["pass_correlation"].values
    with np.errstate(invalid="ignore", divide="ignore"):
        smooth = location.values + _of(table, location, "standard_error") * first
        score = rho * first + np.sqrt(1 - rho**2) * second
        relative = _of(table, spread, "standard_error") / spread.values
        wide = spread.values * np.exp(relative * score)
        low, high = _of(table, location, "low"), _of(table, location, "high")
        bracket = low + (high - low) * rng.random(shape)
        sharp = np.abs(second) * _of(table, spread, "high") / normal_quantile()
    fits = [kind == FitKind.PROBIT, kind == FitKind.SEPARATED]
    table[spread_name] = spread.copy(data=np.select(fits, [wide, sharp], np.nan))
    return np.select(fits, [smooth, bracket], np.nan)


def _of(table: xr.Dataset, quantity: xr.DataArray, role: str) -> np.ndarray:
    return np.asarray(table[quantity.attrs[role]].values)


def _same_draw(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    quantity = table[name]
    source = table[quantity.attrs["source"]]
    at = json.loads(quantity.attrs["at"])
    lost = [axis for axis in at if axis not in source.dims]
    if any(source.coords[axis].item() != at[axis] for axis in lost):
        raise InputError(
            f"table: {name} belongs to {at}, but the table has been reduced to another "
            f"{lost[0]}; perturb it before using at()"
        )
    chosen = source.sel({axis: value for axis, value in at.items() if axis in source.dims})
    return np.asarray(chosen.transpose(*quantity.dims).values)


def _pass_model(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    quantity = table[name]
    attributes = quantity.attrs
    order = [dim for dim in quantity.dims if dim != attributes["axis"]]
    location, spread = (
        table[attributes[role]].transpose(*order).values[..., np.newaxis]
        for role in ("location", "spread")
    )
    if attributes["axis"] not in quantity.dims:  # reduced to one margin
        margin = float(quantity.coords[attributes["axis"]])
        return pass_model(margin, location[..., 0], spread[..., 0])
    modelled = pass_model(table[attributes["axis"]].values, location, spread)
    return np.moveaxis(modelled, -1, quantity.dims.index(attributes["axis"]))


def _ratio(table: xr.Dataset, name: str, rng: np.random.Generator) -> np.ndarray:
    quantity = table[name]
    source = table[quantity.attrs["source"]]
    axis, reference = quantity.attrs["axis"], quantity.attrs["reference"]
    if axis not in source.dims:
        return _normal(table, name, rng)
    ratio = source / source.sel({axis: reference}, drop=True) - 1
    return np.asarray(ratio.transpose(*quantity.dims).values)


_DRAWN: dict[str, Draw] = {"normal": _normal, "proportion": _proportion, "decision": _decision}
_DERIVED: dict[str, Draw] = {"same_draw": _same_draw, "pass_model": _pass_model, "ratio": _ratio}
