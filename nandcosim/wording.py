"""How an error names what is wrong: one line, what was found, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

__all__ = ["first_mistake", "readable", "suggestion", "unknown_key", "unknown_value"]


def suggestion(found: str, allowed: Iterable[str]) -> str:
    """``, did you mean 'vdd'?`` if one of the allowed names is close, else nothing."""
    close = difflib.get_close_matches(found, list(allowed), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """Words for a key that does not exist: ``unknown, did you mean 'm'?; allowed: m, vdd``."""
    names = list(allowed)
    return f"unknown{suggestion(key, names)}; allowed: {', '.join(names) or 'none'}"


def unknown_value(found: str, allowed: Iterable[str], kinds: str = "") -> str:
    """Words for a value that names nothing: ``found 'x'; allowed groups: all, active``."""
    names = list(allowed)
    of_kind = f" {kinds}" if kinds else ""
    listed = ", ".join(names) or "none"
    return f"found {found!r}{suggestion(found, names)}; allowed{of_kind}: {listed}"


def readable(message: str) -> str:
    """A pydantic message as the second half of ``found ..., ...``."""
    message = message.removeprefix("Value error, ").replace("Input should be", "expected")
    message = message.replace("valid tuple", "list").replace("valid dictionary", "table")
    return message[:1].lower() + message[1:]


def first_mistake(error: ValidationError) -> tuple[str, Any, str]:
    """Field ("" for a rule over several), what was found, and a readable message."""
    found = error.errors(include_url=False)
    # Of a value that may be of several kinds, what is wrong deepest inside it says most.
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    first = max(same, key=lambda each: len(each["loc"]))
    name = str(first["loc"][0]) if first["loc"] else ""
    return name, first["input"], readable(str(first["msg"]))
