"""Quantities written by people: ``"20 fF"``, ``"85 degC"``, ``0.06``.

Inside the package every number is a bare float in the unit that its parameter
declares (PySpice's unit objects render ``2 A`` as ``2A``, which ngspice >= 40
reads as 2 atto).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from nandcosim.errors import InputError

if TYPE_CHECKING:
    import pint

__all__ = ["to_unit"]

#: The one unit pint does not know: the spacing of two neighbouring threshold levels.
_LEVEL_DEFINITION = "level = [threshold_level]"


_QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d_][^,;]*?)?\s*"
)


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
    expected = (
        f"a number in {unit} or one such as '1.5 {unit}'" if unit != "1" else "a plain number"
    )
    if isinstance(value, bool):
        raise InputError(f"{where}: found {value!r}, expected {expected}")
    if isinstance(value, (int, float)):
        return float(value)
    # pint alone would evaluate "1+1" and drop the comma of "0,5".
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise InputError(f"{where}: {value!r} is no quantity, expected {expected}")
    number, written = float(match["number"]), match["unit"]
    if not written:
        return number
    import pint

    try:
        quantity: Any = _registry().Quantity(number, written)
        converted = float(quantity.to("" if unit == "1" else unit).magnitude)
        return float(f"{converted:.15g}")  # 20 us is 2e-05, not 1.9999999999999998e-05
    except pint.DimensionalityError:
        wanted = expected if unit == "1" else f"a quantity in {unit}"
        raise InputError(f"{where}: found {value!r}, expected {wanted}") from None
    except Exception:  # noqa: BLE001 - pint raises many kinds for a unit it cannot read
        raise InputError(f"{where}: {value!r} is no quantity, expected {expected}") from None
