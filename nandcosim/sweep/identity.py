"""What a worker must be: the same code, packages, netlists, models and ngspice as the plan's.

A sweep is a pure function of its spec and seed only while everything else that makes its
numbers stays the same. The client states what that is, and a worker on another machine
says where it differs, before it simulates anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

import nandcosim
from nandcosim.errors import NandcosimError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName
from nandcosim.spice.installation import executable_version, osdi_models
from nandcosim.sweep.provenance import file_digest, netlist_paths
from nandcosim.sweep.simulation import parsed
from nandcosim.sweep.spec import SweepSpec

__all__ = ["difference", "expected_identity"]

#: Packages that draw or simulate: another version may give other numbers.
PACKAGES = ("nandcosim", "PySpice", "numpy", "scipy")

#: What else the fast engine computes with.
FAST_PACKAGES = ("numba",)

#: Folders of this package that make numbers.
FOLDERS = ("spice", "sweep")

_DIGEST = re.compile(r"[0-9a-f]{64}")


def expected_identity(spec: SweepSpec, circuit: Circuit) -> dict[str, str]:
    """What every worker of a sweep must be, taken from this process.

    Returns
    -------
    dict of str to str
        Versions and SHA-256 digests by name. ``ngspice`` is not among them, since the
        machine that plans need not have it: add it to have it compared.

    Raises
    ------
    NandcosimError
        If a netlist or an OSDI model cannot be read.
    """
    return {
        **_software(type(circuit).__module__, spec.engine == "fast"),
        **_files("netlist", netlist_paths(spec, circuit)),
        **_files("OSDI model", {Path(path).name: Path(path) for path in osdi_models()}),
    }


def difference(expected: Mapping[str, str], spec_text: str, backend: BackendName) -> str:
    """Say where this process differs from the plan of a sweep.

    The first call reads files; later ones only look whether they changed.

    Parameters
    ----------
    expected : Mapping
        From `expected_identity`; nothing is compared with an empty one.
    spec_text : str
        `SweepSpec.canonical_json`.
    backend : {"shared", "process"}
        Whose ngspice is compared.

    Returns
    -------
    str
        One line, ``""`` if nothing differs.
    """
    if not expected:
        return ""
    try:
        found = _found(spec_text, backend, "ngspice" in expected)
    except NandcosimError as error:
        return str(error)
    for name in dict.fromkeys((*expected, *found)):
        here, plan = found.get(name), expected.get(name)
        if here != plan:
            return _words(name, here, plan)
    return ""


def _found(spec_text: str, backend: BackendName, with_ngspice: bool) -> dict[str, str]:
    netlists, software = _of_sweep(spec_text)
    found = {
        **software,
        **_files("netlist", netlists),
        **_files("OSDI model", {Path(path).name: Path(path) for path in osdi_models()}),
    }
    return found | ({"ngspice": _ngspice(backend)} if with_ngspice else {})


@lru_cache(maxsize=4)
def _of_sweep(spec_text: str) -> tuple[dict[str, Path], dict[str, str]]:
    """Netlist files and software of a sweep."""
    spec, circuit = parsed(spec_text)
    software = _software(type(circuit).__module__, spec.engine == "fast")
    return netlist_paths(spec, circuit), software


@cache
def _ngspice(backend: BackendName) -> str:
    if backend == "process":
        return executable_version()
    from nandcosim.spice.shared import SharedBackend

    return SharedBackend.version()


@cache
def _software(module: str, with_fast: bool) -> dict[str, str]:
    """Versions of packages, and digests of the code of this package and of the circuit's."""
    found = {}
    for name in PACKAGES + (FAST_PACKAGES if with_fast else ()):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    package = Path(nandcosim.__file__).parent
    found["code of nandcosim"] = _code_digest(package / folder for folder in FOLDERS)
    # The whole package: a circuit may import its neighbours.
    root = sys.modules[module.partition(".")[0]]
    folders = getattr(root, "__path__", None) or [root.__file__]
    found[f"code of {root.__name__}"] = _code_digest(Path(folder) for folder in folders)
    return found


def _code_digest(places: Iterable[Path]) -> str:
    """SHA-256 over Python files, by name and content; a place is a file or a folder."""
    total = hashlib.sha256()
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            name = path.relative_to(place.parent).as_posix()
            total.update(f"{name}\0{file_digest(path)}\0".encode())
    return total.hexdigest()


def _files(kind: str, paths: Mapping[str, Path]) -> dict[str, str]:
    return {f"{kind} {name}": _digest_now(path) for name, path in paths.items()}


def _digest_now(path: Path) -> str:
    """SHA-256 of a file, read again only when its time or size has changed."""
    try:
        state = os.stat(path)
    except OSError:
        return file_digest(path)  # which says what is wrong
    return _digest_once(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _digest_once(path: Path, _time: int, _size: int) -> str:
    return file_digest(path)


def _words(name: str, here: str | None, plan: str | None) -> str:
    if here is None:
        return f"{name} is missing here, the plan has it"
    if plan is None:
        return f"{name} is used here and not in the plan"
    if _DIGEST.fullmatch(here) and _DIGEST.fullmatch(plan):
        return f"{name} differs from the plan's (SHA-256 {here[:8]} here, {plan[:8]} in the plan)"
    return f"{name} is {here} here and {plan} in the plan"
