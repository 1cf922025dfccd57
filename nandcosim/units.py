"""Quantities written by people: ``"20 fF"``, ``"85 degC"``, ``0.06``.

Inside the package every number is a bare float in the unit that its parameter
declares (PySpice's unit objects render ``2 A`` as ``2A``, which ngspice >= 40
reads as 2 atto).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from nandcosim.errors import InputError

if TYPE_CHECKING:
    import pint

__all__ = ["to_unit"]

#: The one unit pint does not know: the spacing of two neighbouring threshold levels.
_LEVEL_DEFINITION = "level = [threshold_level]"


@cache
def _registry() -> pint.UnitRegistry[Any]:
    import pint

    registry: pint.UnitRegistry[Any] = pint.UnitRegistry(autoconvert_offset_to_baseunit=True)
    registry.define(_LEVEL_DEFINITION)
    return registry


def to_unit(value: float | int | str, unit: str, where: str) -> float:
    """Express a value in a declared unit.

    Parameters
    ----------
    value : float, int or str
        A bare number (already in `unit`), or a number with a unit, ``"20 fF"``.
    unit : str
        The declared unit; ``"1"`` for a pure number, ``"level"`` for level spacings.
    where : str
        Names the file and key in the error message.

    Returns
    -------
    float
        The value in `unit`.

    Raises
    ------
    InputError
        If the text is no quantity, or its unit cannot be converted to `unit`.
    """
    if isinstance(value, bool):
        raise InputError(f"{where}: found {value!r}, expected a number in {unit}")
    if isinstance(value, (int, float)):
        return float(value)
    import pint

    registry = _registry()
    target = "" if unit == "1" else unit
    try:
        quantity: Any = registry.Quantity(value)
        if quantity.unitless and target and quantity.dimensionless:
            return float(quantity.magnitude)
        return float(quantity.to(target).magnitude)
    except pint.DimensionalityError:
        raise InputError(f"{where}: found {value!r}, expected a quantity in {unit}") from None
    except Exception:  # noqa: BLE001 - pint raises many kinds for text it cannot read
        raise InputError(
            f"{where}: {value!r} is no quantity, expected a number or a number with a unit "
            f"such as '1.5 {unit}'"
        ) from None
