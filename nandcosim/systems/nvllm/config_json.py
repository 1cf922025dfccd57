"""A model by name or by its config.json: found, read, checked by its family, tabulated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr
from pydantic import BaseModel, ValidationError

from nandcosim.errors import InputError
from nandcosim.wording import first_mistake, unknown_value

__all__ = ["along_model", "checked", "find"]

F = TypeVar("F", bound=BaseModel)


def find(
    name: str | Path, published: Mapping[str, Mapping[str, Any]]
) -> tuple[Mapping[str, Any], str]:
    """Keys of a published model, or of a config.json or a folder that holds one.

    Parameters
    ----------
    name : str or Path
        A key of `published`; anything else is taken for a path if there is a file or
        folder of that name, or if it looks like one.
    published : mapping

    Returns
    -------
    mapping, str
        The keys, and where they are from, for messages.

    Raises
    ------
    InputError
        If the name is unknown, or the file cannot be read or is no JSON object.
    """
    if name in published:
        return published[str(name)], str(name)
    path = Path(name)
    if not path.exists() and path.name == str(name) and path.suffix != ".json":
        raise InputError(
            f"model: {unknown_value(str(name), published)}, or a path to a config.json"
        )
    file = path / "config.json" if path.is_dir() else path
    return _document(file), str(file)


def checked(document: Mapping[str, Any], families: Mapping[str, type[F]], where: str) -> F:
    """Keys of a config.json as its family has them, by ``model_type``.

    Raises
    ------
    InputError
        One line naming `where`, the key, what was found and what is allowed.
    """
    model_type = document.get("model_type")
    family = families.get(str(model_type))
    if family is None:
        found = unknown_value(str(model_type), families) if model_type else "not given"
        raise InputError(f"{where}: model_type: {found}")
    try:
        return family.model_validate(document)
    except ValidationError as error:
        key, value, message = first_mistake(error)
        found = "" if not key else f"{key}: "
        found += "" if value is document or not key else f"found {value!r}, "
        raise InputError(f"{where}: {found}{message}") from None


def along_model(
    names: str | tuple[str, ...], load: Callable[[str], Any], sizes: Mapping[str, str]
) -> xr.Dataset:
    """Sizes of one model or several.

    Parameters
    ----------
    names : str or tuple of str
    load : callable
        Model of a name, with an attribute of each size.
    sizes : mapping
        Meaning of each size.

    Returns
    -------
    xarray.Dataset
        Every size as a float variable along ``model``, labelled with the names as given;
        without a dimension for a single str.

    Raises
    ------
    InputError
        As `load`, or if a name is given twice.
    """
    if isinstance(names, str):
        return along_model((names,), load, sizes).squeeze("model")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(f"model: {twice[0]!r} is given twice")
    models = [load(name) for name in names]
    found = xr.Dataset(coords={"model": list(names)})
    for size, meaning in sizes.items():
        values = [float(getattr(model, size)) for model in models]
        found[size] = ("model", values, {"units": "1", "long_name": meaning})
    return found


def _document(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or too deep
        raise InputError(f"{file}: no valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{file}: found {type(document).__name__}, expected an object of keys")
    return document
