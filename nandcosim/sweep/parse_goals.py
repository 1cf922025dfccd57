"""The tables ``[precision]`` and ``[rare]`` of a sweep file, checked against its circuit."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Response
from nandcosim.sweep.goals import Condition, Precision, RareEvent
from nandcosim.units import to_unit
from nandcosim.wording import first_mistake, unknown_key, unknown_value

__all__ = ["parse_precision", "parse_rare"]

_CONDITION = re.compile(r"\s*(?P<response>\w+)\s*(?P<relation>[<>])(?!=)\s*(?P<value>\S.*?)\s*")

Goal = TypeVar("Goal", bound=BaseModel)


def parse_precision(
    raw: Mapping[str, Any],
    responses: Mapping[str, Response],
    axes: Mapping[str, Sequence[Any]],
    samples: int,
    where: str,
) -> Precision:
    """Check a ``[precision]`` table.

    Parameters
    ----------
    raw : Mapping
        The table as written.
    responses : Mapping of str to Response
        Those that the sweep asks for.
    axes : Mapping of str to sequence
        The sweep's axes and their values.
    samples : int
        The most that a point may take.
    where : str
        Names the file.

    Raises
    ------
    InputError
        For the first mistake.
    """
    key = f"{where}: precision"
    values = dict(raw)
    response = _response(values.get("response"), responses, f"{key}.response")
    for name in ("half_width", "tolerance"):
        if name in values:
            values[name] = _value(values[name], response, f"{key}.{name}")
    precision = _validated(Precision, values, key)
    if "start" in raw and precision.start > samples:
        raise InputError(
            f"{key}.start: found {precision.start}, allowed: 20 to {samples} (samples)"
        )
    for name in ("first", "tolerance"):
        if name in raw and not precision.refine:
            raise InputError(f"{key}.{name}: is for axes to refine; give refine too")
    if len(set(precision.refine)) < len(precision.refine):
        raise InputError(f"{key}.refine: found {raw['refine']}, an axis is given twice")
    for name in precision.refine:
        if name not in axes:
            raise InputError(f"{key}.refine: {unknown_value(name, axes, kinds='axes')}")
        if isinstance(axes[name][0], (bool, str)):
            raise InputError(f"{key}.refine: found {name!r}, allowed: axes of numbers")
        length = len(axes[name])
        if length < 3:
            raise InputError(
                f"{key}.refine: found {name!r} with {length} values, allowed: 3 or more"
            )
        if "first" in raw and precision.first > length:
            raise InputError(
                f"{key}.first: found {precision.first}, allowed for {name}: 3 to {length}"
            )
    return precision


def parse_rare(raw: Mapping[str, Any], responses: Mapping[str, Response], where: str) -> RareEvent:
    """Check a ``[rare]`` table; see `parse_precision`."""
    key = f"{where}: rare"
    values = dict(raw)
    for name in ("failure", "guide"):
        if name in values:
            values[name] = _condition(values[name], responses, f"{key}.{name}")
    if "failure" in values:
        name = values["failure"].response
        if responses[name].optional:  # what does not exist would be taken for no failure
            always = ", ".join(r.name for r in responses.values() if not r.optional) or "none"
            raise InputError(
                f"{key}.failure: {name} does not exist in every run, which only a guide may do; "
                f"responses that always exist: {always}"
            )
        values.setdefault("guide", values["failure"])
    return _validated(RareEvent, values, key)


def _condition(text: Any, responses: Mapping[str, Response], key: str) -> Condition:
    match = _CONDITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(f"{key}: found {text!r}, expected one such as 'bit < 0.5'")
    response = _response(match["response"], responses, key)
    written = match["value"]
    value: float | str = written
    with contextlib.suppress(ValueError):
        value = float(written)
    return Condition(
        response=response.name, relation=match["relation"], value=_value(value, response, key)
    )


def _response(name: Any, responses: Mapping[str, Response], key: str) -> Response:
    if name is None:
        raise InputError(f"{key}: is missing, allowed: {', '.join(responses)}")
    if not isinstance(name, str):
        raise InputError(f"{key}: found {name!r}, expected a response: {', '.join(responses)}")
    if name not in responses:
        raise InputError(f"{key}: {unknown_value(name, responses, kinds='responses')}")
    return responses[name]


def _value(value: Any, response: Response, key: str) -> float:
    if not isinstance(value, (int, float, str)):
        unit = response.unit
        kind = "a number" if unit == "1" else f"a quantity in {unit}"
        raise InputError(f"{key}: found {value!r}, expected {kind}")
    number = to_unit(value, response.unit, key)
    if not math.isfinite(number):
        raise InputError(f"{key}: found {value!r}, expected a finite number")
    return number


def _validated(model: type[Goal], values: Mapping[str, Any], key: str) -> Goal:
    unknown = [name for name in values if name not in model.model_fields]
    if unknown:
        raise InputError(f"{key}.{unknown[0]}: {unknown_key(unknown[0], model.model_fields)}")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        name, found, message = first_mistake(error)
        if message == "field required":
            raise InputError(f"{key}.{name}: is missing") from None
        place = f"{key}.{name}: found {found!r}" if name else key
        raise InputError(f"{place}, {message}" if name else f"{place}: {message}") from None
