"""Circuit parameters from what a person wrote: ``m=4``, ``c_bl="150 fF"``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit, Params
from nandcosim.units import to_unit
from nandcosim.wording import first_mistake, unknown_key

__all__ = ["circuit_params"]


def circuit_params(circuit: Circuit, settings: Mapping[str, Any], where: str) -> Params:
    """Build a circuit's parameters.

    Parameters
    ----------
    circuit : Circuit
    settings : Mapping
        Parameter name -> number in its declared unit, or text with a unit.
    where : str
        Names the origin in error messages, e.g. ``"--set"``.

    Raises
    ------
    InputError
        One line naming the parameter, what was found and what is allowed.
    """
    fields = circuit.Params.model_fields
    values: dict[str, Any] = {}
    for name, found in settings.items():
        if name not in fields:
            raise InputError(f"{where}: {name}: {unknown_key(name, fields)}")
        unit = circuit.Params.unit_of(name)
        values[name] = found if unit == "" else _number(found, unit, f"{where}: {name}")
    try:
        return circuit.Params(**values)
    except ValidationError as error:
        name, _, message = first_mistake(error)
        found = f"{name}: found {settings.get(name)!r}, " if name else ""
        raise InputError(f"{where}: {found}{message}") from None


def _number(found: Any, unit: str, where: str) -> float | int:
    number = to_unit(found, unit, where)
    if not math.isfinite(number):
        raise InputError(f"{where}: found {found!r}, expected a finite number")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
