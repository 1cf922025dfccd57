"""Reads netlist files: ours, shipped as package data, and a user's own.

A foreign netlist is data, never a program: one that lets ngspice run commands
is refused unless ``NANDCOSIM_TRUST_NETLIST=1`` (``--trust-netlist``) is set. It describes
devices: one that asks for analyses or outputs of its own is refused in any case.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import nandcosim
from nandcosim.errors import InputError
from nandcosim.wording import suggestion

__all__ = [
    "TRUST_VARIABLE",
    "call_subcircuits",
    "data_folder",
    "digest",
    "find_netlist",
    "find_subcircuit",
    "netlist_files",
    "read_netlist",
]

TRUST_VARIABLE = "NANDCOSIM_TRUST_NETLIST"

#: What makes ngspice run something: beginnings of lines (``*#`` is its comment that is a
#: command), and XSPICE models that start a program or load native code, wherever they stand.
_PROGRAM = re.compile(
    r"^[^\S\n]*(\.control|\.exec|\*ng_script|\*#)|\b(d_process|d_cosim)\b",
    re.IGNORECASE | re.MULTILINE,
)

#: Lines that ngspice would take for ours: analyses, temperature, what is saved, the deck's end.
_CONTROL = re.compile(
    r"^[^\S\n]*(\.(?:tran|dc|ac|op|noise|temp|save|print|plot|end|meas\w*))\b",
    re.IGNORECASE | re.MULTILINE,
)

#: ``.lib FILE SECTION`` takes a section of a file, ``.lib SECTION`` begins one. ngspice takes
#: every keyword that begins with ``.inc`` for an include.
_DIRECTIVE = re.compile(
    r"^[^\S\n]*\.(?P<keyword>inc\w*|lib|endl)\b"
    r"(?:[^\S\n]+(?P<first>\"[^\"\n]+\"|'[^'\n]+'|[^\s;]+))?"
    r"(?:[^\S\n]+(?P<second>[^\s;$*]+))?",
    re.IGNORECASE | re.MULTILINE,
)

#: An M element up to its model: name, four nodes, model.
_TRANSISTOR = re.compile(r"^([^\S\n]*)(m\S*(?:[^\S\n]+\S+){4}[^\S\n]+(\S+))", re.I | re.M)
_SUBCIRCUIT = re.compile(r"^[^\S\n]*\.subckt[^\S\n]+(\S+)", re.IGNORECASE | re.MULTILINE)


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


def find_subcircuit(name: str) -> Path:
    """Resolve a shipped cell or a user's file, which is to hold a subcircuit of its name.

    Raises
    ------
    InputError
        If there is no such file, or neither it nor what it includes has the subcircuit.
    """
    path = find_netlist(name, "cells", ".cir")
    found = [each for file in netlist_files(path) for each in _parsed(file).subcircuits]
    if path.stem.lower() not in found:
        listed = ", ".join(found) or "none"
        raise InputError(f"{path}: no .subckt {path.stem}; found {listed}")
    return path


def read_netlist(path: Path, section: str = "") -> str:
    """Text of a netlist file, or of one section of a library, to be placed in a deck.

    Parameters
    ----------
    path : Path
    section : str
        Of a file that is divided by ``.lib NAME`` and ``.endl``; empty for a plain one.

    Returns
    -------
    str
        As it stands for a plain shipped file. The includes of a foreign one are made
        absolute, since the deck is run from another folder.

    Raises
    ------
    InputError
        If a foreign file, or one it includes in whatever section, could run commands and is
        not trusted, or has analyses or outputs of its own; if an included file or a section
        is not there or includes itself; if `section` is missing.
    """
    netlist = _parsed(path)
    if netlist.sections and not section:
        listed = ", ".join(netlist.sections)
        raise InputError(f"{path} has sections; set section, one of: {listed}")
    foreign = data_folder("netlists").resolve() not in path.resolve().parents
    if foreign:
        seen: set[Path] = set()
        _refuse_lines(path, os.environ.get(TRUST_VARIABLE) == "1", seen)
        clear: set[Path] = set()
        for file in sorted(seen):  # in order, so that the message is always the same
            _refuse_cycles(file, clear, ())
    netlist_files(path, section)
    if not foreign and not section:
        return _read(path)
    return "\n".join(_lines_in_use(path, section.lower()))


def netlist_files(path: Path, section: str = "") -> tuple[Path, ...]:
    """The file and every file it includes, of a library those that `section` needs.

    Raises
    ------
    InputError
        If one of them, or a section that is asked of it, is not there or includes itself.
    """
    found: dict[tuple[Path, str], None] = {}
    _collect(path, section, f"{path}", found, ())
    return tuple(dict.fromkeys(file for file, _ in found))


def digest(path: Path, section: str = "") -> str:
    """SHA-256 of a file, or of everything that decides a section or a file with includes."""
    files = netlist_files(path, section)
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    if not section and len(files) == 1:
        return digests[0]
    return hashlib.sha256("\n".join([section.lower(), *digests]).encode()).hexdigest()


def call_subcircuits(netlist: str) -> str:
    """Make a subcircuit call of every M element whose model the netlist gives as a subcircuit.

    A foundry hides its models in subcircuits, and a model that is loaded at run time takes
    other elements than M; the decks' transistors are the same for all of them.
    """
    names = set(_subcircuits(netlist))
    for found in _DIRECTIVE.finditer(netlist):
        if found["first"] and not _is_border(found):
            for path in netlist_files(_target(found["first"], Path()), _wanted(found)):
                names.update(_parsed(path).subcircuits)
    return _TRANSISTOR.sub(
        lambda found: f"{found[1]}x{found[2]}" if found[3].lower() in names else found[0], netlist
    )


@dataclass(frozen=True)
class _Reference:
    """``.include NAME`` or ``.lib NAME wanted`` in `section`, ``""`` outside of any."""

    line: int
    section: str
    name: str
    wanted: str


@dataclass(frozen=True)
class _Word:
    """What begins a line, and the line's number."""

    text: str
    line: int


@dataclass(frozen=True)
class _Parsed:
    """What a netlist file refers to, and the first things in it that would run or interfere."""

    sections: tuple[str, ...]
    references: tuple[_Reference, ...]
    subcircuits: tuple[str, ...]
    program: _Word | None
    control: _Word | None


def _parsed(path: Path) -> _Parsed:
    state = path.stat()
    return _parse(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)  # a foundry's library is megabytes, and asked for at every deck
def _parse(path: Path, _modified: int, _size: int) -> _Parsed:
    text = _read(path)
    sections: list[str] = []
    references: list[_Reference] = []
    inside = ""
    for found in _DIRECTIVE.finditer(text):
        if _is_border(found):
            inside = _begun(found)
            sections += [inside] * bool(inside)
        elif found["first"]:
            line = text.count("\n", 0, found.start("keyword")) + 1
            references.append(_Reference(line, inside, found["first"], _wanted(found)))
    return _Parsed(
        sections=tuple(dict.fromkeys(sections)),
        references=tuple(references),
        subcircuits=_subcircuits(text),
        program=_first(_PROGRAM, text),
        control=_first(_CONTROL, text),
    )


def _first(pattern: re.Pattern[str], text: str) -> _Word | None:
    """The first match of one of the pattern's groups, in lower case."""
    found = pattern.search(text)
    if found is None:
        return None
    group = found.lastindex or 0
    return _Word(found[group].lower(), text.count("\n", 0, found.start(group)) + 1)


def _refuse_lines(path: Path, trusted: bool, seen: set[Path]) -> None:
    """Look through `path` and all it refers to: ngspice reads the sections not in use as well."""
    seen.add(path)
    netlist = _parsed(path)
    if netlist.program and not trusted:
        raise InputError(
            f"{path}, line {netlist.program.line}: {netlist.program.text!r} lets ngspice run "
            "commands; refused without --trust-netlist"
        )
    if netlist.control:
        raise InputError(
            f"{path}, line {netlist.control.line}: {netlist.control.text!r} would override the "
            "circuit's own analysis or output; remove the line"
        )
    for reference in netlist.references:
        included = _target(reference.name, path.parent)
        if included not in seen and included.is_file():
            _refuse_lines(included, trusted, seen)


def _refuse_cycles(path: Path, clear: set[Path], within: tuple[Path, ...]) -> None:
    """Follow the plain includes of `path`; ngspice reads those of the sections not in use as well.

    `within` holds the files that led here, `clear` gets those that lead to no cycle.
    """
    within = (*within, path)
    for reference in _parsed(path).references:
        included = _target(reference.name, path.parent)
        if reference.wanted or included in clear or not included.is_file():
            continue
        if included in within:  # ngspice would include until its stack overflows
            members = tuple((file, "") for file in within[within.index(included) :])
            raise InputError(f"{path}, line {reference.line}: {_cycle(members)}")
        _refuse_cycles(included, clear, within)
    clear.add(path)


def _collect(
    path: Path,
    section: str,
    where: str,
    found: dict[tuple[Path, str], None],
    within: tuple[tuple[Path, str], ...],
) -> None:
    """Add `path` and what its `section` includes to `found`.

    `where` names who asks, `within` holds the files and sections that led here.
    """
    section = section.lower()
    if (path, section) in within:
        raise InputError(f"{where}: {_cycle(within[within.index((path, section)) :])}")
    if (path, section) in found:
        return
    if not path.is_file():
        raise InputError(f"{where}: the included file {path} is not there")
    netlist = _parsed(path)
    if section and section not in netlist.sections:
        close = suggestion(section, netlist.sections)
        listed = ", ".join(netlist.sections) or "none"
        raise InputError(
            f"{where}: no section {section!r} in {path.name}{close}; its sections: {listed}"
        )
    found[path, section] = None
    for reference in netlist.references:
        if reference.section == section:
            origin = f"{path}, line {reference.line}"
            target = _target(reference.name, path.parent)
            _collect(target, reference.wanted, origin, found, (*within, (path, section)))


def _cycle(members: tuple[tuple[Path, str], ...]) -> str:
    """Says that the last of `members`, each of which includes the next, includes the first."""
    *through, (_, section) = members
    names = ", ".join(f"section {s!r} of {p.name}" if s else p.name for p, s in through)
    subject = f"section {section!r} includes itself" if section else "includes itself"
    return f"{subject} through {names}" if names else subject


def _lines_in_use(path: Path, section: str) -> Iterator[str]:
    """Lines in `section` of a file, ``""`` outside of any, with absolute includes.

    What it takes from other sections of the same file is put in its place: ngspice would read
    the whole file again, with includes that are relative.
    """
    inside = ""
    for line in _read(path).split("\n"):
        found = _DIRECTIVE.match(line)
        if found and _is_border(found):
            inside = _begun(found)
        elif inside == section:
            if found is None or not found["first"]:
                yield line
                continue
            target, (start, end) = _target(found["first"], path.parent), found.span("first")
            if target == path.resolve():
                yield from _lines_in_use(path, _wanted(found))
            else:
                yield f'{line[:start]}"{target}"{line[end:]}'


def _is_border(directive: re.Match[str]) -> bool:
    """Whether a section begins or ends here."""
    keyword = directive["keyword"].lower()
    return keyword == "endl" or (keyword == "lib" and not directive["second"])


def _begun(border: re.Match[str]) -> str:
    """Name of the section that begins here; empty where one ends."""
    return "" if border["keyword"].lower() == "endl" else (border["first"] or "").lower()


def _target(name: str, folder: Path) -> Path:
    """What a file in `folder` includes: beside it as for ngspice, ``~`` and ``$NAME`` expanded."""
    return (folder / os.path.expandvars(os.path.expanduser(name.strip("\"'")))).resolve()


def _wanted(directive: re.Match[str]) -> str:
    """Section that is included; empty for all of a file."""
    return (directive["second"] or "").lower() if directive["keyword"].lower() == "lib" else ""


def _subcircuits(text: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _SUBCIRCUIT.findall(text))


def _read(path: Path) -> str:
    return path.read_text(errors="replace")
