"""Redraw a table from its uncertainty.

How a quantity is redrawn is written beside it, in its attribute ``perturb``:

``normal``
    Normal with the standard error, kept within ``valid_min`` and ``valid_max``.
``proportion``
    The Jeffreys posterior Beta(k + 1/2, n - k + 1/2) of k passes of n (Brown, Cai,
    DasGupta, Stat. Sci. 16, 101, 2001, section 3.1.3).
``log_normal``
    Log-normal with the value as mean and its standard error as standard deviation: a
    probability known to within a factor, far from 0 and 1.
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
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.intervals import normal_quantile
from nandcosim.tables.probit import FitKind, pass_model

__all__ = ["perturb"]

Floats = NDArray[np.float64]

#: Values by variable: those that have been redrawn replace the table's own.
Values = dict[str, np.ndarray]
Draw = Callable[[xr.Dataset, Values, str, np.random.Generator], Values]


def perturb(dataset: xr.Dataset, rng: np.random.Generator | int) -> xr.Dataset:
    """A copy of a table's dataset with every fitted quantity redrawn.

    A value without a standard error (fewer than two samples) becomes NaN, which a lookup
    refuses: its uncertainty is not known to be small.

    Parameters
    ----------
    dataset : xarray.Dataset
        Left as it is.
    rng : numpy.random.Generator or int
        An integer is the seed of a generator.

    Returns
    -------
    xarray.Dataset
        Marked with the attribute ``perturbed = 1``.

    Raises
    ------
    InputError
        If a variable asks to be redrawn in a way this version does not know.
    """
    rng = np.random.default_rng(rng)
    how = {
        str(name): str(variable.attrs["perturb"])
        for name, variable in sorted(dataset.variables.items(), key=lambda item: str(item[0]))
        if "perturb" in variable.attrs
    }
    values: Values = {str(name): dataset.variables[name].values for name in dataset.data_vars}
    redrawn: Values = {}
    for name, way in how.items():
        if way not in {**_DRAWN, **_DERIVED}:
            raise InputError(f"table: {name}: found perturb {way!r}, this version knows it not")
    for step in (_DRAWN, _DERIVED):  # what is computed comes after what it is computed from
        for name in (each for each in how if how[each] in step and each not in redrawn):
            for each, new in step[how[name]](dataset, values, name, rng).items():
                redrawn[each] = values[each] = _physical(new, dataset.variables[each])
    return dataset.assign(
        {n: (dataset[n].dims, new, dataset[n].attrs) for n, new in redrawn.items()}
    ).assign_attrs(perturbed=1)


def _physical(values: np.ndarray, quantity: xr.Variable) -> np.ndarray:
    low, high = quantity.attrs.get("valid_min"), quantity.attrs.get("valid_max")
    return values if low is None and high is None else np.clip(values, low, high)


def _normal(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    error = values[table[name].attrs["standard_error"]]
    return {name: values[name] + error * rng.standard_normal(error.shape)}


def _proportion(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    n = values[str(table[name].attrs.get("count", "n"))]
    passes = np.where(n > 0, np.rint(values[name] * n), 0.0)
    return {name: np.where(n > 0, rng.beta(passes + 0.5, n - passes + 0.5), np.nan)}


def _log_normal(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    mean, error = values[name], values[table[name].attrs["standard_error"]]
    score = rng.standard_normal(error.shape)
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN where the mean is 0
        variance = np.log1p((error / mean) ** 2)
        return {name: mean * np.exp(np.sqrt(variance) * score - variance / 2)}


def _decision(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    """Location and spread together."""
    location, spread = sorted((name, str(table[name].attrs["partner"])))

    def role(quantity: str, kind: str) -> Floats:
        return np.asarray(values[table[quantity].attrs[kind]])

    kind, rho = values["fit_kind"], values["pass_correlation"]
    first, second = rng.standard_normal(kind.shape), rng.standard_normal(kind.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        smooth = values[location] + role(location, "standard_error") * first
        score = rho * first + np.sqrt(1 - rho**2) * second
        wide = values[spread] * np.exp(role(spread, "standard_error") / values[spread] * score)
        low, high = role(location, "low"), role(location, "high")
        bracket = low + (high - low) * rng.random(kind.shape)
        sharp = np.abs(second) * role(spread, "high") / normal_quantile()
    fits = [kind == FitKind.PROBIT, kind == FitKind.SEPARATED]
    return {
        location: np.select(fits, [smooth, bracket], np.nan),
        spread: np.select(fits, [wide, sharp], np.nan),
    }


def _same_draw(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    attributes = table[name].attrs
    source = table[attributes["source"]]
    at = json.loads(attributes["at"])
    index: list[int | slice] = [slice(None)] * source.ndim
    for axis, value in at.items():
        if axis in source.dims:
            position = np.flatnonzero(source[axis].values == value)
            index[source.dims.index(axis)] = int(position[0])
        elif source[axis].item() != value:
            raise InputError(
                f"table: {name} belongs to {axis} = {value}, but the table has been reduced to "
                f"{axis} = {source[axis].item()}; perturb it before using at()"
            )
    drawn = values[attributes["source"]][tuple(index)]
    # what the slice leaves undefined stays so
    return {name: np.where(np.isnan(table[name].values), np.nan, drawn)}


def _pass_model(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    quantity = table[name]
    axis = quantity.attrs["axis"]
    location, spread = values[quantity.attrs["location"]], values[quantity.attrs["spread"]]
    if axis in quantity.dims:
        at = quantity.dims.index(axis)
        location, spread = np.expand_dims(location, at), np.expand_dims(spread, at)
        shape = [-1 if dim == axis else 1 for dim in quantity.dims]
        margin = table[axis].values.reshape(shape)
    else:  # reduced to one margin
        margin = table[axis].values
    return {name: pass_model(margin, location, spread)}


def _ratio(table: xr.Dataset, values: Values, name: str, rng: np.random.Generator) -> Values:
    quantity = table[name]
    axis, source = quantity.attrs["axis"], values[quantity.attrs["source"]]
    if axis not in quantity.dims:
        return _normal(table, values, name, rng)
    reference = np.flatnonzero(table[axis].values == quantity.attrs["reference"])[:1]
    return {name: source / np.take(source, reference, axis=quantity.dims.index(axis)) - 1}


_DRAWN: dict[str, Draw] = {
    "normal": _normal,
    "proportion": _proportion,
    "log_normal": _log_normal,
    "decision": _decision,
}
_DERIVED: dict[str, Draw] = {"same_draw": _same_draw, "pass_model": _pass_model, "ratio": _ratio}
