"""Finds ngspice, the executable and the shared library, on this machine.

``NGSPICE`` and ``NGSPICE_LIBRARY_PATH`` override the search.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from nandcosim.errors import NandcosimError

__all__ = ["NgspiceNotFoundError", "executable", "executable_version", "shared_library"]

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
