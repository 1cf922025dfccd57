"""Configuration fields of a system model: unit, origin, and values that may be axes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self

import xarray as xr
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nandcosim.errors import InputError
from nandcosim.toml import read_toml
from nandcosim.units import to_unit
from nandcosim.wording import first_mistake, unknown_key

__all__ = ["SystemConfig", "setting"]


def setting(default: Any, *, unit: str, meaning: str, origin: str) -> Any:
    """Declare one field of a `SystemConfig`.

    Parameters
    ----------
    default : Any
        A value, or a tuple of values, which makes the field an axis.
    unit : str
        ``"1"`` for pure numbers, ``""`` for text.
    meaning : str
        One line.
    origin : str
        Starts with ``stated:``, ``derived:``, ``measured:``, ``sourced:``, ``assumed:`` or
        ``calibrated:``.
    """
    extra: dict[str, Any] = {"unit": unit, "origin": origin}
    return Field(default, description=meaning, json_schema_extra=extra)


class SystemConfig(BaseModel):
    """Immutable configuration; a field given as a list or tuple is an axis of the result."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __init__(self, **values: Any) -> None:
        self._fill(type(self).__name__, values)

    def _fill(self, where: str, values: Mapping[str, Any]) -> None:
        """Validate, with pydantic's error in one line."""
        for name in values:
            self._check_name(name, where)
        try:
            super().__init__(**values)
        except ValidationError as error:
            name, _, message = first_mistake(error)
            found = f"{name}: found {values.get(name)!r}, " if name else ""
            raise InputError(f"{where}: {found}{message}") from None

    @field_validator("*", mode="before")
    @classmethod
    def _sequence_is_axis(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        if not value:
            raise ValueError("an axis needs at least one value")
        if any(each in value[:n] for n, each in enumerate(value)):
            raise ValueError("an axis has a value twice")
        return tuple(value)

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Fields that are axes, with their values."""
        fields = type(self).model_fields
        return {n: getattr(self, n) for n in fields if isinstance(getattr(self, n), tuple)}

    def points(
        self, names: Collection[str] | None = None
    ) -> Iterator[tuple[tuple[int, ...], Self]]:
        """Every combination of axis values: its index on the axes and its configuration.

        With `names`, of those axes only; the others stay axes.
        """
        axes = {n: v for n, v in self.axes.items() if names is None or n in names}
        for index in itertools.product(*(range(len(values)) for values in axes.values())):
            chosen = {name: axes[name][i] for name, i in zip(axes, index, strict=True)}
            yield index, self.model_copy(update=chosen)

    def array(self, name: str) -> xr.DataArray:
        """One field as a DataArray: along its own dimension if it is an axis, else a scalar.

        Formulas over these broadcast over whatever axes the configuration has.
        """
        value = getattr(self, name)
        extra = type(self).model_fields[name].json_schema_extra
        assert isinstance(extra, dict)
        attrs = {"units": extra["unit"], "origin": extra["origin"]}
        if isinstance(value, tuple):
            return xr.DataArray(list(value), dims=name, coords={name: list(value)}, attrs=attrs)
        return xr.DataArray(value, attrs=attrs)

    @classmethod
    def unit_of(cls, name: str) -> str:
        """Unit of a field, empty for text."""
        extra = cls.model_fields[name].json_schema_extra
        assert isinstance(extra, dict)
        return str(extra["unit"])

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str) -> Self:
        """Build from what a person wrote: ``{"alpha": "1,2,3"}`` or values of a TOML file.

        Raises
        ------
        InputError
            One line naming `where`, the key, what was found and what is allowed.
        """
        values = {name: cls._parsed(name, found, where) for name, found in settings.items()}
        return cls.checked(values, where)

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: str) -> Self:
        """Build from values of the right types; an error names `where`.

        Raises
        ------
        InputError
            One line naming the field, what was found and what is allowed.
        """
        made = cls.__new__(cls)
        made._fill(where, values)
        return made

    @classmethod
    def from_toml(
        cls, path: str | os.PathLike[str], settings: Mapping[str, Any] | None = None
    ) -> Self:
        """Build from a TOML file, overridden by `settings`.

        Raises
        ------
        InputError
            If the file is not there, no TOML, or a value is wrong.
        """
        document = read_toml(path)
        where = str(path) if not settings else f"{path} with --set"
        return cls.from_settings({**document, **(settings or {})}, where)

    @classmethod
    def _parsed(cls, name: str, found: Any, where: str) -> Any:
        cls._check_name(name, where)
        if isinstance(found, str) and "," in found:
            found = [part.strip() for part in found.split(",")]
        if isinstance(found, list):
            return [cls._parsed(name, part, where) for part in found]
        unit = cls.unit_of(name)
        if unit == "" or isinstance(found, bool):
            return str(found)
        number = to_unit(found, unit, f"{where}: {name}")
        return int(number) if number.is_integer() else number

    @classmethod
    def _check_name(cls, name: str, where: str) -> None:
        if name not in cls.model_fields:
            raise InputError(f"{where}: {name}: {unknown_key(name, cls.model_fields)}")
