"""The ``.toml`` that stands beside a corpus: licence, provenance, digests, measured quality."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nandcosim.errors import InputError
from nandcosim.toml import read_toml

__all__ = ["description_text", "read_description"]


def description_text(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Write tables as TOML.

    Parameters
    ----------
    tables : Mapping
        Title -> keys and values (str, int or float, floats to four digits); the
        title ``""`` holds the keys that stand before any table and must come first.

    Returns
    -------
    str
    """
    lines = []
    for title, entries in tables.items():
        lines += [f"\n[{title}]"] if title else []
        lines += [f"{_key(key)} = {_value(entry)}" for key, entry in entries.items()]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"\w+", key, re.ASCII) else json.dumps(key)


def _value(value: object) -> str:
    # a JSON string is a TOML string
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def read_description(path: Path) -> dict[str, Any]:
    """Read a description.

    Raises
    ------
    InputError
        If the file is missing, is not TOML, or lacks ``licence`` or ``provenance``.
    """
    if not path.exists():
        raise InputError(f"{path}: the description of the corpus is missing")
    description = read_toml(path)
    for key in ("licence", "provenance"):
        if key not in description:
            raise InputError(f"{path}: the key {key!r} is missing")
    return description
