"""Vectorised lookup in a gridded quantity, which refuses what the grid does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from nandcosim.errors import InputError

__all__ = ["interpolate"]

#: A coordinate this close to the end of the range, relative to its length, is the end:
#: 0.1 * 3 is to be found in a table up to 0.3.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Place:
    """Where coordinates fall on one axis.

    The value there is ``value[index] * (1 - weight) + value[index + 1] * weight``, and
    ``value[index]`` on an axis without interpolation, where ``weight`` is None.
    """

    axis: str
    index: xr.DataArray
    weight: xr.DataArray | None


def interpolate(
    quantity: xr.DataArray,
    coords: Mapping[str, xr.DataArray | ArrayLike | str],
    extrapolate: bool,
    where: str,
) -> xr.DataArray:
    """Evaluate `quantity` at `coords`; see `CalibrationTable.lookup`."""
    name = str(quantity.name)
    for axis in coords:
        if axis not in quantity.dims:
            raise InputError(f"{where}: {_no_axis(quantity, axis)}")
    single = [dim for dim in quantity.dims if dim not in coords and quantity.sizes[dim] == 1]
    places = [
        _place(
            quantity[axis],
            _as_array(axis, given, f"{where}: {name}"),
            extrapolate,
            f"{where}: {name}",
        )
        for axis, given in coords.items()
    ]
    tabulated = quantity.squeeze(single, drop=True)
    if quantity.attrs.get("scale") == "log":  # of a probability, decades apart
        with np.errstate(divide="ignore"):
            logarithms = tabulated.copy(data=np.log(tabulated.values))
        summed = _weighted_sum(logarithms, places)
        result = summed.copy(data=np.exp(summed.values))
    else:
        result = _weighted_sum(tabulated, places)
    _require_defined(result, f"{where}: {name}", str(quantity.attrs.get("undefined", "")))
    if extrapolate:
        result = result.clip(quantity.attrs.get("valid_min"), quantity.attrs.get("valid_max"))
    for place in places:  # the coordinates asked for, also where they are no index
        if place.axis not in result.coords and place.index.ndim == 0:
            result = result.assign_coords({place.axis: _scalar(coords[place.axis])})
    result.name = name
    result.attrs = {k: quantity.attrs[k] for k in ("units", "long_name") if k in quantity.attrs}
    return result


def _no_axis(quantity: xr.DataArray, axis: str) -> str:
    if axis in quantity.coords:
        value = quantity.coords[axis].item()
        return f"{quantity.name} is taken at {axis} = {value}, which is no axis of it"
    axes = ", ".join(str(dim) for dim in quantity.dims) or "none"
    return f"{quantity.name} has no axis {axis!r}, its axes: {axes}"


def _scalar(given: Any) -> Any:
    """A scalar coordinate as it was given."""
    return given.item() if isinstance(given, (xr.DataArray, np.ndarray, np.generic)) else given


def _as_array(axis: str, given: Any, where: str) -> xr.DataArray:
    if isinstance(given, xr.DataArray):
        return given
    values = np.asarray(given)
    if values.ndim > 1:
        raise InputError(
            f"{where}: {axis} has {values.ndim} dims, expected a scalar, a one-dimensional "
            "array or a DataArray with named dims"
        )
    if values.ndim == 1:
        return xr.DataArray(values, dims=axis, coords={axis: values})
    return xr.DataArray(values)


def _place(axis: xr.DataArray, given: xr.DataArray, extrapolate: bool, where: str) -> _Place:
    if axis.attrs["interpolation"] == "linear":
        return _place_linear(axis, given, extrapolate, where)
    grid, values = axis.values, given.values
    order = np.argsort(grid)
    wrong_kind = (grid.dtype.kind in "US") != (values.dtype.kind in "USOT")
    if not wrong_kind and values.dtype.kind in "OT":
        values = values.astype(str)
    found = (
        order[np.clip(np.searchsorted(grid, values, sorter=order), 0, grid.size - 1)]
        if not wrong_kind
        else np.zeros(values.shape, dtype=np.intp)
    )
    missing = np.ones(values.shape, bool) if wrong_kind else grid[found] != values
    if missing.any():
        allowed = ", ".join(str(each) for each in grid.tolist())
        first = values[missing].flat[0]
        raise InputError(f"{where}: {axis.name} = {first} is not tabulated, allowed: {allowed}")
    return _Place(str(axis.name), given.copy(data=found), None)


def _place_linear(axis: xr.DataArray, given: xr.DataArray, extrapolate: bool, where: str) -> _Place:
    grid, unit = axis.values, axis.attrs.get("units", "")
    if given.dtype.kind not in "iufb":
        raise InputError(
            f"{where}: {axis.name} = {str(given.values.flat[0])!r}, expected a number in {unit}"
        )
    values = np.asarray(given.values, dtype=float)
    low, high = float(grid[0]), float(grid[-1])
    slack = TOLERANCE * max(high - low, abs(low), abs(high))
    inside = (values >= low - slack) & (values <= high + slack)
    refused = np.isnan(values) if extrapolate else ~inside
    if refused.any():
        first = float(values[refused].flat[0])
        raise InputError(
            f"{where}: {axis.name} = {first:g} {unit} is outside the valid range "
            f"{low:g} to {high:g} {unit}"
        )
    values = np.where(inside, np.clip(values, low, high), values)
    if grid.size == 1:  # no slope: asked to extrapolate, the only value holds everywhere
        return _Place(str(axis.name), given.copy(data=np.zeros(values.shape, np.intp)), None)
    index = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, grid.size - 2)
    weight = (values - grid[index]) / (grid[index + 1] - grid[index])
    return _Place(str(axis.name), given.copy(data=index), given.copy(data=weight))


def _weighted_sum(quantity: xr.DataArray, places: list[_Place]) -> xr.DataArray:
    """Sum over the corners of the grid cells that the coordinates fall in."""
    bare = quantity.drop_vars([place.axis for place in places])
    linear = [place for place in places if place.weight is not None]
    exact = {place.axis: place.index for place in places if place.weight is None}
    if not linear:
        return bare.isel(exact)
    total: xr.DataArray | None = None
    for corner in product((0, 1), repeat=len(linear)):
        index, weight = dict(exact), xr.DataArray(1.0)
        for side, place in zip(corner, linear, strict=True):
            assert place.weight is not None
            index[place.axis] = place.index + side
            weight = weight * (place.weight if side else 1 - place.weight)
        # A corner without weight has no say, even where it is undefined.
        part = (bare.isel(index) * weight).where(weight != 0, 0.0)
        total = part if total is None else total + part
    assert total is not None
    return total


def _require_defined(result: xr.DataArray, where: str, reason: str) -> None:
    undefined = np.isnan(result.values) if result.dtype.kind == "f" else np.array(False)
    if undefined.any():
        why = f": {reason}" if reason else ""
        raise InputError(
            f"{where}: the table has no value at {int(undefined.sum())} of {undefined.size} "
            f"points asked for{why}"
        )
