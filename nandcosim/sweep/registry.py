"""Circuits by name: the entry-point group ``nandcosim.circuits`` and ``package.module:Class``."""

from __future__ import annotations

import importlib
from importlib import metadata

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.circuit import Circuit

__all__ = ["GROUP", "circuit_names", "load_circuit"]

#: Entry-point group in which a distribution registers its circuits.
GROUP = "nandcosim.circuits"


def circuit_names() -> tuple[str, ...]:
    """Names of all the registered circuits, sorted."""
    return tuple(sorted({entry.name for entry in metadata.entry_points(group=GROUP)}))


def load_circuit(name: str) -> Circuit:
    """Return an instance of the circuit `name`.

    Parameters
    ----------
    name : str
        A name registered in the entry-point group ``nandcosim.circuits``, or the
        address of a class, ``"package.module:Class"``.

    Raises
    ------
    InputError
        If nothing of that name exists, it cannot be imported, or it is no `Circuit`.
    """
    address = name if ":" in name else _registered_address(name)
    module_name, _, attribute = address.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except NandcosimError:
        raise
    except Exception as error:  # importing runs the module: anything can come out
        raise InputError(
            f"circuit {name!r}: {address} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Circuit)):
        raise InputError(f"circuit {name!r}: {address} is {found!r}, expected a Circuit class")
    return found()


def _registered_address(name: str) -> str:
    for entry in metadata.entry_points(group=GROUP, name=name):
        return str(entry.value)
    known = ", ".join(circuit_names()) or "none"
    raise InputError(
        f"circuit {name!r} is unknown; registered circuits: {known}; "
        "a class may also be given as 'package.module:Class'"
    )
