"""CalibrationTable: what a circuit was measured to do, with its uncertainty and its origin."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from nandcosim.errors import InputError
from nandcosim.tables.interpolation import interpolate
from nandcosim.tables.perturbation import perturb

__all__ = ["DATA_FOLDER", "FORMAT", "CalibrationTable", "Tables", "load_tables", "open_table"]

#: Version of the table format: variables, their attributes and their meaning.
FORMAT = 1

#: Tables that ship with this package.
DATA_FOLDER = Path(__file__).parent / "data"

#: Attributes that say when, not what.
TIME_ATTRIBUTES = ("created",)

#: A table is stored and read as it is: no scaling, no filling, no guessing of times.
_READ_AS_IS: dict[str, Any] = {
    "mask_and_scale": False,
    "decode_times": False,
    "decode_timedelta": False,
}


class CalibrationTable:
    """Fitted quantities over the axes of a sweep.

    Parameters
    ----------
    dataset : xarray.Dataset
        Every axis is a coordinate with the attributes ``units`` and ``interpolation``
        (``linear`` or ``exact``). Every variable has ``units`` and ``long_name``; a
        fitted quantity names the variables with its ``standard_error`` or its limits
        ``low`` and ``high``, says in ``perturb`` how it is redrawn, and in
        ``undefined`` why it can be NaN. ``n`` and ``failed`` count the samples.

    Attributes
    ----------
    dataset : xarray.Dataset

    Raises
    ------
    InputError
        If it is no table, or of a later format.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        _check_layout(dataset, "dataset")
        self.dataset = dataset

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}: {size}" for name, size in self.sizes.items())
        count = len(self.dataset.data_vars)
        return f"<CalibrationTable {self.circuit} ({axes}), {count} variables>"

    @property
    def circuit(self) -> str:
        """Name of the circuit."""
        return str(self.dataset.attrs["circuit"])

    @property
    def sizes(self) -> dict[str, int]:
        """Length of every axis."""
        return {str(name): int(size) for name, size in self.dataset.sizes.items()}

    @property
    def digest(self) -> str:
        """SHA-256 over all values, axes and attributes except the time of fitting."""
        total = hashlib.sha256()
        attributes = {k: v for k, v in self.dataset.attrs.items() if k not in TIME_ATTRIBUTES}
        total.update(json.dumps(attributes, sort_keys=True).encode())
        for name in sorted(str(each) for each in self.dataset.variables):
            variable = self.dataset[name]
            header = [name, list(variable.dims), list(variable.shape), variable.attrs]
            total.update(json.dumps(header, sort_keys=True).encode())
            total.update(_bytes(variable.values))
        return total.hexdigest()

    def lookup(
        self, name: str, /, *, extrapolate: bool = False, **coords: xr.DataArray | ArrayLike | str
    ) -> xr.DataArray:
        """Values of a quantity at any coordinates.

        Linear interpolation on the axes marked ``linear``, of the logarithm of a quantity
        with the attribute ``scale = "log"``; on those marked ``exact`` (text, integers, the
        group size m) only tabulated values are known.

        Parameters
        ----------
        name : str
            A variable of the table.
        extrapolate : bool
            Continue the outermost segment of a ``linear`` axis beyond its ends, kept
            within the physical range of the quantity.
        **coords
            By axis. DataArrays broadcast against each other by their dims; a plain
            one-dimensional array becomes a dim of the axis' name.

        Returns
        -------
        xarray.DataArray
            Over the dims of `coords`, and every axis of the quantity that is not given
            and longer than one.

        Raises
        ------
        InputError
            For an unknown name or axis, a coordinate outside the valid range or not
            tabulated, and where the table has no value.
        """
        if name not in self.dataset.data_vars:
            known = ", ".join(sorted(str(each) for each in self.dataset.data_vars))
            absent = json.loads(self.dataset.attrs.get("not_fitted", "{}")).get(name)
            raise InputError(
                f"table {self.circuit}: {name} was not fitted: {absent}"
                if absent
                else f"table {self.circuit}: found {name!r}, allowed: {known}"
            )
        return interpolate(self.dataset[name], coords, extrapolate, f"table {self.circuit}")

    def at(self, **coords: float | str) -> CalibrationTable:
        """The table at tabulated values of some axes, which it then no longer has.

        Raises
        ------
        InputError
            For an unknown axis, or a value that is not tabulated.
        """
        dataset = self.dataset
        for axis, value in coords.items():
            if axis not in dataset.dims:
                axes = ", ".join(self.sizes) or "none"
                raise InputError(f"table {self.circuit}: found axis {axis!r}, allowed: {axes}")
            try:
                dataset = dataset.sel({axis: value})
            except (KeyError, TypeError):
                tabulated = ", ".join(str(each) for each in dataset[axis].values.tolist())
                raise InputError(
                    f"table {self.circuit}: {axis} = {value} is not tabulated, allowed: {tabulated}"
                ) from None
        return CalibrationTable(dataset)

    def perturbed(self, rng: np.random.Generator | int) -> CalibrationTable:
        """A copy with every fitted quantity redrawn from its uncertainty, by a generator or seed.

        A system model evaluated on many such copies gets an interval. Counts, limits,
        standard errors and residuals still describe the original fit. See
        `nandcosim.tables.perturbation`.
        """
        return CalibrationTable(perturb(self.dataset, rng))

    def to_netcdf(self, path: str | os.PathLike[str]) -> Path:
        """Write the table; an existing file is replaced at once or not at all.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        path = Path(path)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        encoding = {name: {"_FillValue": None} for name in self.dataset.variables}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.dataset.to_netcdf(draft, engine="h5netcdf", encoding=encoding)
            draft.replace(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        finally:
            with contextlib.suppress(OSError):  # it is gone, or never came to be
                draft.unlink()
        return path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> CalibrationTable:
        """Read a table; see `open_table`."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: does not exist, expected the netCDF file of a table")
        try:
            with xr.open_dataset(path, engine="h5netcdf", **_READ_AS_IS) as file:
                dataset = file.load()
        except (OSError, ValueError, KeyError, RuntimeError):
            raise InputError(f"{path}: is no netCDF file, expected that of a table") from None
        _check_layout(dataset, str(path))
        return cls(_normalised(dataset))


def open_table(path: str | os.PathLike[str]) -> CalibrationTable:
    """Read a table from a netCDF file.

    Parameters
    ----------
    path : path

    Raises
    ------
    InputError
        If the file does not exist, is no table, or has a later format.
    """
    return CalibrationTable.open(path)


class Tables(Mapping[str, CalibrationTable]):
    """Tables by name; asking for one that is not there raises `InputError`."""

    def __init__(
        self, tables: Mapping[str, CalibrationTable | Path], where: str = "tables"
    ) -> None:
        self._tables = dict(tables)  # a path is opened when it is first asked for
        self._where = where

    def __getitem__(self, name: str) -> CalibrationTable:
        if name not in self._tables:
            known = ", ".join(self._tables) or "none"
            raise InputError(f"{self._where}: found no table {name!r}, there are: {known}")
        held = self._tables[name]
        table = open_table(held) if isinstance(held, Path) else held
        self._tables[name] = table
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def get(self, name: str, default: Any = None) -> Any:
        """The table, or `default` where there is none."""
        return self[name] if name in self else default  # noqa: SIM401 - this is what get is

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"Tables({', '.join(self._tables)})"

    def perturbed(self, rng: np.random.Generator | int) -> Tables:
        """All tables redrawn; see `CalibrationTable.perturbed`."""
        rng = np.random.default_rng(rng)  # one for all of them
        return Tables({name: self[name].perturbed(rng) for name in self}, self._where)


def load_tables(folder: str | os.PathLike[str] | None = None) -> Tables:
    """Read every table of a folder.

    Parameters
    ----------
    folder : path, optional
        Holds ``*.nc``; by default the tables that ship with this package.

    Returns
    -------
    Tables
        By the file's name without ``.nc``. Those of the package are opened when they are
        first asked for.

    Raises
    ------
    InputError
        If the folder does not exist or holds no table, or a file is no table.
    """
    where = DATA_FOLDER if folder is None else Path(folder)
    paths = sorted(where.glob("*.nc"))
    if not paths:
        raise InputError(f"{where}: no tables here, expected *.nc as 'nandcosim fit' writes them")
    if folder is None:
        return Tables({path.stem: path for path in paths}, str(where))
    return Tables({path.stem: open_table(path) for path in paths}, str(where))


# ---------------------------------------------------------------- helpers


def _check_layout(dataset: xr.Dataset, where: str) -> None:
    version = dataset.attrs.get("nandcosim_table")
    if version is None or "circuit" not in dataset.attrs:
        raise InputError(f"{where}: is no calibration table (no attribute 'nandcosim_table')")
    if version != FORMAT:
        raise InputError(
            f"{where}: found table format {version}, this version reads format {FORMAT}"
        )
    for axis in dataset.dims:
        kind = dataset[axis].attrs.get("interpolation") if axis in dataset.coords else None
        if kind not in ("linear", "exact"):
            raise InputError(
                f"{where}: axis {axis!r}: found interpolation {kind!r}, allowed: linear, exact"
            )
        if kind == "linear" and not (np.diff(dataset[axis].values) > 0).all():
            raise InputError(f"{where}: axis {axis!r}: values do not increase")


def _normalised(dataset: xr.Dataset) -> xr.Dataset:
    """Python scalars as attributes and fixed-width text, whatever the file format made of them."""
    coords = {
        name: (variable.dims, variable.values.astype(str), variable.attrs)
        for name, variable in dataset.coords.items()
        if variable.dtype.kind in "OT"
    }
    dataset = dataset.assign_coords(coords)
    for holder in (dataset, *(dataset[name] for name in dataset.variables)):
        holder.attrs = {
            str(name): value.item() if isinstance(value, np.generic) else value
            for name, value in holder.attrs.items()
        }
    for variable in dataset.variables.values():
        variable.encoding = {}
    dataset.encoding = {}
    return dataset


def _bytes(values: np.ndarray) -> bytes:
    """Bytes that do not depend on the machine; NaNs all alike."""
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), np.nan, values).astype("<f8").tobytes()
    if values.dtype.kind in "iub":
        return values.astype("<i8").tobytes()
    return json.dumps(values.astype(str).tolist()).encode()
