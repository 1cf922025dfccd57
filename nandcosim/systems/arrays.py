"""Element-wise functions of DataArrays, typed, and results put together from parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

__all__ = ["Number", "ceil", "described", "floor", "maximum", "minimum", "stacked", "where"]

Number = xr.DataArray | float


def ceil(values: Number) -> xr.DataArray:
    """`numpy.ceil`, as a DataArray."""
    return xr.DataArray(np.ceil(values))


def floor(values: Number) -> xr.DataArray:
    """`numpy.floor`, as a DataArray."""
    return xr.DataArray(np.floor(values))


def maximum(a: Number, b: Number) -> xr.DataArray:
    """`numpy.maximum`, as a DataArray."""
    return xr.DataArray(np.maximum(a, b))


def minimum(a: Number, b: Number) -> xr.DataArray:
    """`numpy.minimum`, as a DataArray."""
    return xr.DataArray(np.minimum(a, b))


def where(
    condition: xr.DataArray, yes: Number | NDArray[Any], no: Number | NDArray[Any]
) -> xr.DataArray:
    """`xarray.where`, without attributes."""
    chosen: xr.DataArray = xr.where(condition, yes, no, keep_attrs=False)  # type: ignore[no-untyped-call]
    return chosen


def stacked(parts: Mapping[str, xr.DataArray], dim: str) -> xr.DataArray:
    """Parts, broadcast, along a new last dimension with their names."""
    arrays = [part.drop_attrs() for part in xr.broadcast(*parts.values())]
    whole = xr.concat(
        arrays, dim=xr.Variable(dim, list(parts)), coords="minimal", compat="override"
    )
    return whole.transpose(..., dim)


def described(dataset: xr.Dataset, texts: Mapping[str, tuple[str, str]]) -> xr.Dataset:
    """Give each variable named in `texts` its unit and meaning, where it is there."""
    for name, (unit, meaning) in texts.items():
        if name in dataset:
            dataset[name].attrs = {"units": unit, "long_name": meaning}
    return dataset
