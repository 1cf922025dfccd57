"""The best designs of an evaluation: those that no other one beats in everything."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.wording import unknown_value

__all__ = ["OBJECTIVES", "front", "non_dominated"]

#: Variables of an evaluation that a design should have little of.
OBJECTIVES: Mapping[str, str] = {
    "token_time": "time of a token's experts",
    "token_energy": "energy of a token's experts",
    "area": "area",
}


def non_dominated(costs: ArrayLike) -> NDArray[np.bool_]:
    """Which points no other point beats: is nowhere worse than and somewhere better.

    Parameters
    ----------
    costs : array_like (points, objectives)
        Less is better; a point with NaN is dominated. Of equal points all are kept.

    Returns
    -------
    bool array (points,)
    """
    values = np.asarray(costs, dtype=float)
    best: NDArray[np.bool_] = ~np.isnan(values).any(axis=1)
    # Sorted by the sum, a point can be beaten by earlier ones only.
    for i in np.argsort(np.where(best, values.sum(axis=1), np.inf), kind="stable"):
        if best[i]:
            worse = (values >= values[i]).all(axis=1) & (values > values[i]).any(axis=1)
            best &= ~worse
    return best


def front(
    found: xr.Dataset, limit: float, objectives: Mapping[str, str] = OBJECTIVES
) -> xr.Dataset:
    """The Pareto front over all axes of an evaluation but ``model``.

    Parameters
    ----------
    found : xarray.Dataset
        Of `nandcosim.systems.nasic.evaluate`, one model.
    limit : float
        Largest error of an output over its standard deviation (``output_total``).
    objectives : mapping
        Variables, less of which is better.

    Returns
    -------
    xarray.Dataset
        The objectives, ``output_total`` and ``best`` (bool) over ``design``; the axes are
        coordinates of it. Designs beyond the limit or that do not fit are left out.

    Raises
    ------
    InputError
        If an objective is no variable, there are several models, or no design is left.
    """
    for name in objectives:
        if name not in found:
            raise InputError(f"front: objective: {unknown_value(name, map(str, found.data_vars))}")
    if "output_total" not in found:
        raise InputError("front: found no output_total, allowed: an evaluation with its errors")
    if "model" in found.dims:
        raise InputError("front: model: found an axis, allowed: one, as by found.sel(model=...)")
    wanted = xr.broadcast(found[[*objectives, "output_total", "fits"]])[0]
    axes = [str(dim) for dim in wanted.dims]
    if axes:
        designs = wanted.stack(design=axes, create_index=False)
    else:
        designs = wanted.expand_dims("design")
    allowed = (designs["output_total"] <= limit) & designs["fits"]
    designs = designs.isel(design=np.flatnonzero(allowed)).drop_vars("fits")
    if not designs.sizes["design"]:
        raise InputError(f"front: no design that fits has an error of {limit:g} or less")
    costs = np.stack([designs[name].values for name in objectives], axis=1)
    designs["best"] = ("design", non_dominated(costs))
    designs["best"].attrs = {"units": "1", "long_name": "not beaten in everything"}
    return designs
