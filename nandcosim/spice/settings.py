"""Circuit parameters from what a person wrote: ``m=4``, ``c_bl="150 fF"``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from nandcosim.errors import InputError, unknown_name
from nandcosim.spice.circuit import Circuit, Params
from nandcosim.units import to_unit

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
            raise InputError(f"{where}: {name}: {unknown_name(name, fields)}")
        unit = circuit.Params.unit_of(name)
        values[name] = found if unit == "" else _number(found, unit, f"{where}: {name}")
    try:
        return circuit.Params(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = str(first["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if not first["loc"]:  # a rule over several parameters names them itself
            raise InputError(f"{where}: {message}") from None
        name = str(first["loc"][0])
        text = f"{where}: {name}: found {settings.get(name)!r}, {message}"
        raise InputError(text) from None


def _number(found: Any, unit: str, where: str) -> float | int:
    number = to_unit(found, unit, where)
    if not math.isfinite(number):
        raise InputError(f"{where}: found {found!r}, expected a finite number")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
