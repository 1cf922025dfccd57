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

#: Beginnings of lines that make ngspice run commands; ``*#`` is its comment that is one.
_COMMANDS = (".control", ".exec", "*ng_script", "*#")

#: XSPICE models that start a program or load native code.
_PROGRAM_MODELS = {"d_process", "d_cosim"}

#: ngspice takes every keyword that begins with ``.inc`` for an include.
_INCLUDE = re.compile(r"^\.(?:inc\w*|lib)\s+(?:\"([^\"]+)\"|'([^']+)'|(\S+))", re.IGNORECASE)


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
    """Text of a netlist file; a foreign one is checked and its includes are made absolute.

    Raises
    ------
    InputError
        If the file, or one it includes, could run commands and is not trusted, or an
        included file is not there.
    """
    if data_folder("netlists").resolve() in path.resolve().parents:
        return path.read_text()
    if os.environ.get(TRUST_VARIABLE) != "1":
        _refuse_programs(path, set())
    return "\n".join(_with_absolute_include(line, path) for line in _lines(path))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refuse_programs(path: Path, seen: set[Path]) -> None:
    if path in seen:
        return
    seen.add(path)
    for number, line in _logical_lines(path):
        what = _program_in(line)
        if what:
            raise InputError(
                f"{path}, line {number}: {what!r} lets ngspice run commands; "
                "refused without --trust-netlist"
            )
        included = _included(line, path)
        if included is None:
            continue
        if included.is_file():
            _refuse_programs(included, seen)
        elif _INCLUDE.match(line.strip()) and not line.strip().lower().startswith(".lib"):
            raise InputError(f"{path}, line {number}: the included file {included} is not there")


def _program_in(line: str) -> str:
    """The word of a logical line by which ngspice would run something; empty if none."""
    text = line.strip().lower()
    for word in _COMMANDS:
        if text.startswith(word):
            return word
    words = re.findall(r"[\w.*#]+", text)
    if words[:1] == [".model"] and _PROGRAM_MODELS.intersection(words[2:3]):
        return " ".join(words[:3])
    return ""


def _included(line: str, path: Path) -> Path | None:
    """File that a line includes, as ngspice would find it: beside the file, ``~`` expanded."""
    match = _INCLUDE.match(line.strip())
    if match is None:
        return None
    name = next(group for group in match.groups() if group)
    return (path.parent / os.path.expandvars(os.path.expanduser(name))).resolve()


def _with_absolute_include(line: str, path: Path) -> str:
    """The deck is run from another folder than the file lies in."""
    included = _included(line, path)
    if included is None or not included.is_file():
        return line
    match = _INCLUDE.match(line.strip())
    assert match is not None
    keyword = line.strip().split()[0]
    return f'{keyword} "{included}"{line.strip()[match.end() :]}'


def _logical_lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their continuations (``+``) joined, and the number each starts at."""
    joined: list[tuple[int, str]] = []
    for number, line in enumerate(_lines(path), start=1):
        if line.lstrip().startswith("+") and joined:
            start, before = joined[-1]
            joined[-1] = (start, f"{before} {line.lstrip()[1:]}")
        else:
            joined.append((number, line))
    return joined


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()
