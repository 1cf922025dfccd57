"""What a sweep with the fast engine says of its error: the audited samples, summed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from nandcosim.sweep.chunk import EngineUsed

__all__ = ["engine_audit"]


def engine_audit(store: xr.Dataset) -> dict[str, Any]:
    """Samples of each engine and the deviations of the audited ones.

    Parameters
    ----------
    store : xarray.Dataset
        As `nandcosim.sweep.open_store` gives it.

    Returns
    -------
    dict
        Empty for a sweep that only ngspice made. Else ``samples`` by engine and, under
        ``audited``, for every response: ``count`` of samples in which both engines found
        a value, ``one_sided`` of those in which only one did, ``unequal`` of all that
        differ at all, and over `count` the largest and the mean of the deviation,
        absolute (``max``, ``mean``, in the response's unit) and relative to ngspice's value
        (``max_relative``, ``mean_relative``). None where there is nothing to sum up.
    """
    if "engine" not in store:
        return {}
    used = np.asarray(store["engine"].values)
    names = [str(n).removeprefix("audit_") for n in store.data_vars if str(n).startswith("audit_")]
    return {
        "samples": {each.name.lower(): int((used == each).sum()) for each in EngineUsed},
        "audited": {
            name: _summary(store[f"audit_{name}"].values, store[name].values) for name in names
        },
    }


def _summary(deviation: np.ndarray, value: np.ndarray) -> dict[str, Any]:
    both = np.isfinite(deviation)
    size = np.abs(deviation[both])
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = size / np.abs(value[both])
    relative = relative[np.isfinite(relative)]
    one_sided = int(np.isinf(deviation).sum())
    return {
        "count": int(both.sum()),
        "one_sided": one_sided,
        "unequal": int((size > 0).sum()) + one_sided,
        "max": float(size.max()) if size.size else None,
        "mean": float(size.mean()) if size.size else None,
        "max_relative": float(relative.max()) if relative.size else None,
        "mean_relative": float(relative.mean()) if relative.size else None,
    }
