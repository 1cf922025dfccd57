"""TOML files of users, with one line for what is wrong."""

from __future__ import annotations

import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

from nandcosim.errors import InputError

__all__ = ["read_toml"]


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    InputError
        If it cannot be read or is not TOML; the line names it.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: invalid TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
