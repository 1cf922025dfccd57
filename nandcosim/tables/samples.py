"""The samples of a sweep as the fits read them: outcomes counted, responses one at a time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.spice.status import Status

__all__ = ["Samples", "open_samples"]

#: Variables of a store that are no response.
BOOKKEEPING = ("status", "reason", "engine", "stage", "log_weight")


@dataclass(frozen=True)
class Samples:
    """A sweep's samples.

    Attributes
    ----------
    store : xarray.Dataset
        Dims: the axes, then ``sample``; interpolated axes increase.
    spec : dict
        The sweep's spec.
    digest : str
        Of the store.
    status : ndarray of int8, shape (axes..., samples)
    wanted : ndarray of int64, shape (axes...)
        Samples that the sweep asked for; the same everywhere unless its results decided it.
    """

    store: xr.Dataset
    spec: dict[str, Any]
    digest: str
    status: NDArray[np.int8] = field(repr=False)
    wanted: NDArray[np.int64] = field(repr=False)

    @property
    def circuit(self) -> str:
        """Name of the circuit."""
        return str(self.spec["circuit"])

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, in the order of the arrays' dimensions."""
        return tuple(str(dim) for dim in self.store["status"].dims if dim != "sample")

    @property
    def response_names(self) -> tuple[str, ...]:
        """Names of the responses."""
        names = map(str, self.store.data_vars)
        return tuple(n for n in names if n not in BOOKKEEPING and not n.startswith("audit_"))

    @property
    def planned(self) -> bool:
        """Whether results decided which samples were run: a precision or a rare event."""
        return not {"precision", "rare"}.isdisjoint(self.spec)

    @property
    def plan(self) -> dict[str, Any]:
        """What the plan of such a sweep last said of itself; empty if nothing yet."""
        return dict(_decoded(self.store.attrs.get("plan", {})))

    @property
    def paired(self) -> bool:
        """Whether sample k shares its random numbers between all grid points."""
        return bool(self.spec.get("common_random_numbers", False))

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which samples succeeded, shape (axes..., samples)."""
        return np.asarray(self.status == Status.OK)

    @property
    def n(self) -> NDArray[np.int64]:
        """Successful samples, shape (axes...)."""
        return np.asarray(self.ok.sum(axis=-1))

    @property
    def not_run(self) -> NDArray[np.int64]:
        """Samples asked for and without an attempt, shape (axes...)."""
        return np.asarray(self.wanted - self.n - self.failed)

    @property
    def failed(self) -> NDArray[np.int64]:
        """Samples that were run and did not succeed, whatever the reason, shape (axes...)."""
        return np.asarray((self.status != Status.NOT_RUN).sum(axis=-1) - self.n)

    def status_counts(self) -> dict[str, int]:
        """Samples of every status that occurs among those asked for, by its label."""
        counts = np.bincount(self.status.ravel().astype(np.intp), minlength=len(Status))
        counts[Status.NOT_RUN] = self.not_run.sum()
        return {each.label: int(counts[each]) for each in Status if counts[each]}

    def response(self, name: str) -> NDArray[np.float64]:
        """Values of a response, shape (axes..., samples).

        Raises
        ------
        InputError
            If the store's data cannot be read.
        """
        try:
            return np.asarray(self.store[name].values, dtype=np.float64)
        except Exception as error:  # noqa: BLE001 - zarr's codecs raise their own kinds
            text = f"{name}: the sweep's store is damaged and cannot be read: {error}"
            raise InputError(text) from None

    def describe(self, name: str) -> dict[str, str]:
        """Attributes ``units`` and ``long_name`` of a response."""
        attributes = self.store[name].attrs
        return {
            "units": str(attributes.get("units", "1")),
            "long_name": str(attributes.get("long_name", name)),
        }


def open_samples(
    source: str | os.PathLike[str] | xr.Dataset, exact: tuple[str, ...] = ()
) -> Samples:
    """Open a sweep's store for fitting.

    Parameters
    ----------
    source : path, SweepStore or xarray.Dataset
        A dataset has the layout of `nandcosim.sweep.open_store`. Of a planned sweep the
        axes are left with the values that the plan took up.
    exact : tuple of str
        Numeric axes that are never interpolated although they may hold floats.

    Raises
    ------
    InputError
        If it is no store of a sweep.
    """
    if isinstance(source, xr.Dataset):
        store, digest, where = source, _content_digest(source), "dataset"
    else:  # here, so that looking up a table does not import Dask
        from nandcosim.sweep.store import open_store, store_digest

        where = os.fspath(source)
        store = open_store(source)
        try:
            digest = store_digest(source)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - zarr's codecs raise their own kinds
            text = f"{where}: the store is damaged and cannot be read: {error}"
            raise InputError(text) from None
    spec = _spec(store, where)
    if "status" not in store or "sample" not in store["status"].dims:
        raise InputError(f"{where}: no variable 'status' with a dim 'sample', expected a sweep")
    dims = store["status"].dims
    for name, variable in store.data_vars.items():
        expected = tuple(dim for dim in dims if dim != "sample") if name == "wanted" else dims
        if variable.dims != expected:
            raise InputError(f"{where}: {name} has dims {variable.dims}, expected {expected}")
    missing = [dim for dim in dims if dim != "sample" and dim not in store.coords]
    if missing:
        raise InputError(f"{where}: the axis {missing[0]!r} has no coordinate")
    if dims[-1] != "sample":
        store = store.transpose(..., "sample")
    for dim in store["status"].dims[:-1]:
        linear = store[dim].dtype.kind == "f" and dim not in exact
        marked = store[dim].assign_attrs(interpolation="linear" if linear else "exact")
        store = store.assign_coords({dim: marked})
        if linear:
            store = store.sortby(dim)
    store, wanted = _asked_for(store)
    asked = np.arange(store.sizes["sample"]) < wanted[..., np.newaxis]
    status = np.where(asked, store["status"].values, Status.NOT_RUN).astype(np.int8)
    return Samples(store, spec, digest, status, wanted)


def _asked_for(store: xr.Dataset) -> tuple[xr.Dataset, NDArray[np.int64]]:
    """The part of a store that its sweep asked for, and how many samples at every point."""
    grid, samples = store["status"].shape[:-1], store.sizes["sample"]
    if "wanted" not in store:
        return store, np.full(grid, samples, np.int64)
    wanted = store["wanted"].load()
    if wanted.any():
        taken_up = {
            dim: np.flatnonzero(wanted.any([other for other in wanted.dims if other != dim]))
            for dim in wanted.dims
        }
        store = store.isel({**taken_up, "sample": slice(0, int(wanted.max()))})
    return store.drop_vars("wanted"), np.asarray(store["wanted"].values, np.int64)


def _decoded(value: Any) -> Any:
    """An attribute that is nested, or JSON text of it."""
    return json.loads(value) if isinstance(value, str) else value


def _spec(store: xr.Dataset, where: str) -> dict[str, Any]:
    text = store.attrs.get("spec")
    try:
        spec = json.loads(text) if isinstance(text, str) else None
    except json.JSONDecodeError:
        spec = None
    if not isinstance(spec, Mapping) or "circuit" not in spec:
        raise InputError(f"{where}: no attribute 'spec' with a circuit, expected a sweep's store")
    return dict(spec)


def _content_digest(store: xr.Dataset) -> str:
    """SHA-256 over the spec and the data of a dataset in memory."""
    total = hashlib.sha256(str(store.attrs.get("spec")).encode())
    for name in sorted(str(each) for each in store.variables):
        if name == "reason":
            continue
        values = np.ascontiguousarray(store[name].values)
        total.update(f"{name} {values.dtype.str} {values.shape}".encode())
        total.update(values.tobytes())
    return f"dataset:{total.hexdigest()}"
