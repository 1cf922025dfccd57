"""What a batch of queries makes the device do: sub-blocks activated and vectors scored.

Between the search, which says which lists and candidates each query has, and the
cost model, which says what that takes: the layout puts lists into sub-blocks, the
schedule spreads sub-blocks over plane groups.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.systems.dnova.config import Config, group_sizes
from nandcosim.systems.dnova.hardware import spread
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult
from nandcosim.systems.dnova.mapping import (
    Layout,
    Touches,
    place,
    touched,
    touched_centroids,
    touched_lists,
)
from nandcosim.systems.dnova.trace import Trace

__all__ = [
    "LAYOUT_AXES",
    "footprint",
    "group_sizes_along",
    "measure_activity",
    "plane_units",
    "trace_of",
]

#: Fields that decide which sub-blocks a query touches and where they lie.
LAYOUT_AXES = ("mapping", "packing", "bitlines", "schedule", "channels", "dies", "planes")


def footprint(layout: Layout, found: SearchResult) -> tuple[Touches, Touches, Touches]:
    """Sub-blocks that each query of a search touches in stages 1, 2 and 3."""
    return (
        touched_centroids(len(found.lists), layout.nlist, layout.capacity),
        touched_lists(layout, found.lists),
        touched(layout, found.candidates),
    )


def measure_activity(
    config: Config, index: IvfIndex, found: SearchResult, dimension: int
) -> xr.Dataset:
    """Activity of a batch of queries over the layout axes of `config`.

    Parameters
    ----------
    config : Config
        Axes of `LAYOUT_AXES` become dimensions; others are not looked at.
    index : IvfIndex
    found : SearchResult
        Of nq queries.
    dimension : int
        Components of a vector.

    Returns
    -------
    xarray.Dataset
        Over the axes, ``query`` and ``stage``: ``activations``, sub-blocks activated;
        ``busiest``, those on the busiest plane group under the schedule; ``sensed``,
        vectors scored (without the axes).
    """
    axes = {name: values for name, values in config.axes.items() if name in LAYOUT_AXES}
    shape = (*(len(values) for values in axes.values()), len(found.lists), 3)
    activations, busiest = np.empty(shape, np.int64), np.empty(shape, np.int64)

    @lru_cache(maxsize=8)
    def placed(*layout: Any) -> tuple[Touches, Touches, Touches]:
        return footprint(_layout(index, *layout), found)

    for at, point in config.points(axes):
        stages = placed(point.bitlines, point.mapping, point.packing)
        units = plane_units(point, dimension)
        for stage, touches in enumerate(stages):
            activations[at][:, stage] = touches.counts()
            busiest[at][:, stage] = touches.busiest(units)
    dims = (*axes, "query", "stage")
    activity = xr.Dataset(
        {
            "activations": (dims, activations),
            "busiest": (dims, busiest),
            "sensed": (("query", "stage"), found.scanned),
        },
        coords={**{n: list(v) for n, v in axes.items()}, "stage": [1, 2, 3]},
        attrs={"dimension": dimension},
    )
    for name, meaning in _MEANING.items():
        activity[name].attrs = {"units": "1", "long_name": meaning}
    return activity


def trace_of(point: Any, index: IvfIndex, found: SearchResult, dimension: int) -> Trace:
    """The activations of a search, sub-block by sub-block; `point` is without axes."""
    layout = _layout(index, point.bitlines, point.mapping, point.packing)
    return Trace(footprint(layout, found), group_sizes(str(point.dts)), dimension)


def _layout(index: IvfIndex, bitlines: int, mapping: Any, packing: Any) -> Layout:
    rows = (index.list_sizes, index.centroids, index.assignment)
    return place(*rows, bitlines, mapping, packing=packing)


_MEANING = {
    "activations": "sub-blocks activated a query",
    "busiest": "activations a query on its busiest plane group",
    "sensed": "vectors scored a query",
}


def plane_units(point: Any, dimension: int) -> int:
    """Plane groups over which one query's activations spread under the schedule.

    Parameters
    ----------
    point : Config
        Without axes in what this depends on.
    dimension : int
    """
    if point.schedule == "serial":
        return 1
    return int(spread(dimension, point))


def group_sizes_along(config: Config) -> xr.DataArray:
    """Group size m of each stage, along ``dts`` too if that is an axis."""
    triples = config.dts if isinstance(config.dts, tuple) else (config.dts,)
    values: NDArray[np.int64] = np.array([group_sizes(str(triple)) for triple in triples])
    m = xr.DataArray(
        values, dims=("dts", "stage"), coords={"dts": list(triples), "stage": [1, 2, 3]}
    )
    m.attrs = {"units": "1", "long_name": "wordlines driven at once"}
    return m if isinstance(config.dts, tuple) else m.isel(dts=0, drop=True)
