"""Reads netlist files: ours, shipped as package data, and a user's own.

A foreign netlist is data, never a program: one that lets ngspice run commands
is refused unless ``NANDCOSIM_TRUST_NETLIST=1`` (``--trust-netlist``) is set.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

import nandcosim
from nandcosim.errors import InputError

__all__ = ["TRUST_VARIABLE", "data_folder", "digest", "find_netlist", "read_netlist"]

TRUST_VARIABLE = "NANDCOSIM_TRUST_NETLIST"

#: What makes ngspice run commands, start programs or load native code from inside a netlist.
_EXECUTABLE = re.compile(
    r"^\s*(?P<what>\.control|\.exec|\*ng_script|\.model\s+\S+\s+(?:d_process|d_cosim))\b",
    re.IGNORECASE | re.MULTILINE,
)
_INCLUDE = re.compile(
    r"^\s*\.(?:inc|include|lib)\s+[\"']?([^\s\"']+)", re.IGNORECASE | re.MULTILINE
)


@cache
def data_folder(kind: str) -> Path:
    """Folder of shipped data, ``netlists`` or ``sweeps``, in a wheel and in a checkout alike."""
    package = Path(nandcosim.__file__).parent
    installed = package / "_data" / kind
    return installed if installed.is_dir() else package.parent / kind


def find_netlist(name: str, kind: str, suffix: str) -> Path:
    """Resolve a shipped name or a user's path.

    Parameters
    ----------
    name : str
        ``"planar16lp"`` for a shipped file, or any path with a slash or a suffix.
    kind : str
        Folder below ``netlists``: ``"models"`` or ``"cells"``.
    suffix : str
        Of the shipped files, e.g. ``".lib"``.

    Raises
    ------
    InputError
        If there is no such file; the shipped names are listed.
    """
    folder = data_folder("netlists") / kind
    shipped = folder / f"{name}{suffix}"
    path = Path(name) if os.sep in name or Path(name).suffix else shipped
    if not path.is_file():
        names = ", ".join(sorted(p.name.removesuffix(suffix) for p in folder.glob(f"*{suffix}")))
        raise InputError(f"{name!r} is no file and no shipped netlist in {kind}; shipped: {names}")
    return path.resolve()


def read_netlist(path: Path) -> str:
    """Text of a netlist file, checked when it is not one of ours.

    Raises
    ------
    InputError
        If the file, or one it includes, could run commands and is not trusted.
    """
    ours = data_folder("netlists").resolve() in path.resolve().parents
    if not ours and os.environ.get(TRUST_VARIABLE) != "1":
        _refuse_programs(path, set())
    return path.read_text()


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refuse_programs(path: Path, seen: set[Path]) -> None:
    if path in seen or not path.is_file():
        return
    seen.add(path)
    text = path.read_text(errors="replace")
    found = _EXECUTABLE.search(text)
    if found:
        line = text.count("\n", 0, found.start("what")) + 1
        raise InputError(
            f"{path}, line {line}: {found.group('what').strip()!r} lets ngspice run commands; "
            "refused without --trust-netlist"
        )
    for match in _INCLUDE.finditer(text):
        _refuse_programs((path.parent / match.group(1)).resolve(), seen)
