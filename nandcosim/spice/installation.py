"""Finds ngspice, the executable and the shared library, on this machine.

``NGSPICE`` and ``NGSPICE_LIBRARY_PATH`` override the search. ``NANDCOSIM_OSDI`` names compiled
Verilog-A models to load: native code, so only ever by the user's word, never by a netlist's.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from nandcosim.errors import NandcosimError

__all__ = [
    "OSDI_VARIABLE",
    "NgspiceNotFoundError",
    "executable",
    "executable_version",
    "osdi_models",
    "osdi_refusal",
    "shared_library",
]

#: Paths of compiled Verilog-A models, separated as in PATH.
OSDI_VARIABLE = "NANDCOSIM_OSDI"

HOW_TO_GET = "on Debian or Ubuntu: sudo apt-get install ngspice libngspice0"


class NgspiceNotFoundError(NandcosimError):
    """ngspice is not installed, or the environment points to a file that is not there."""

    exit_code = 2


@dataclass(frozen=True)
class Found:
    """Where something was found, and by which rule."""

    path: str
    rule: str


@cache
def executable() -> Found:
    """Path of the ngspice executable.

    Raises
    ------
    NgspiceNotFoundError
        Naming what was searched and how to install it.
    """
    given = os.environ.get("NGSPICE")
    path = shutil.which(given or "ngspice")
    if path is None:
        what = f"NGSPICE={given!r} is no executable" if given else "no 'ngspice' on PATH"
        raise NgspiceNotFoundError(f"{what}; {HOW_TO_GET}")
    return Found(path, "NGSPICE" if given else "PATH")


@cache
def shared_library() -> Found:
    """Path or soname of libngspice.

    Raises
    ------
    NgspiceNotFoundError
        Naming what was searched and how to install it.
    """
    given = os.environ.get("NGSPICE_LIBRARY_PATH")
    if given:
        if not os.path.exists(given):
            raise NgspiceNotFoundError(f"NGSPICE_LIBRARY_PATH={given!r} does not exist")
        # absolute, since it is loaded from another working folder
        return Found(os.path.abspath(given), "NGSPICE_LIBRARY_PATH")
    # Debian's runtime package has libngspice.so.0 but not the unversioned link of -dev.
    found = ctypes.util.find_library("ngspice")
    if found is None:
        raise NgspiceNotFoundError(f"the dynamic linker knows no libngspice; {HOW_TO_GET}")
    return Found(found, "dynamic linker")


@cache
def executable_version() -> str:
    """Version of the executable, e.g. ``"39"``."""
    out = subprocess.run(
        [executable().path, "--version"], capture_output=True, text=True, check=False, timeout=30
    ).stdout
    match = re.search(r"ngspice-(\S+)", out)
    if match is None:
        raise NgspiceNotFoundError(f"{executable().path} is no ngspice: it prints no version")
    return match.group(1)


def osdi_models() -> tuple[str, ...]:
    """Absolute paths of the compiled Verilog-A models that ngspice is to load.

    Raises
    ------
    NgspiceNotFoundError
        If one is not there, or ngspice's command line cannot express its path.
    """
    given = filter(None, os.environ.get(OSDI_VARIABLE, "").split(os.pathsep))
    paths = tuple(os.path.abspath(path) for path in given)
    for path in paths:
        if not os.path.isfile(path):
            raise NgspiceNotFoundError(f"OSDI model {path} does not exist")
        if not path.isascii() or re.search(r"[\s;\"'`$]", path):
            raise NgspiceNotFoundError(
                f"OSDI model {path!r}: ngspice takes no path with spaces, quotes or accents"
            )
    return paths


def osdi_refusal(ngspice: str, log: Iterable[str]) -> str:
    """What `log` says against loading an OSDI model, in one line; empty if nothing.

    Parameters
    ----------
    ngspice : str
        Names the ngspice that was asked, e.g. ``"libngspice 39"``.
    log : iterable of str
        What it wrote.
    """
    for line in log:
        if "osdi: no such command" in line:
            return f"{ngspice} cannot load OSDI models: it was built without OSDI"
        if "Error opening osdi lib" in line or "OSDI version" in line:
            return f"{ngspice}: {line.removeprefix('stderr ').strip()}"
    return ""
