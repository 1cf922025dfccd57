"""Where numbers come from: versions, commit and machine, recorded with every run."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.installation import executable_version, osdi_models
from nandcosim.spice.netlists import digest
from nandcosim.sweep.spec import SweepSpec, base_params, checked_points

__all__ = ["file_digest", "host", "netlist_digests", "netlist_paths", "versions"]

_PACKAGES = ("nandcosim", "PySpice", "numpy", "scipy", "xarray", "zarr", "dask")


def versions() -> dict[str, str]:
    """Versions of everything that decides the numbers."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    with contextlib.suppress(NandcosimError):
        found["ngspice"] = executable_version()
    for model in osdi_models():
        found[f"osdi {Path(model).name}"] = digest(Path(model))
    commit = _git_commit()
    if commit:
        found["git"] = commit
    return found


def _git_commit() -> str:
    """Commit of the checkout this package runs from, ``+changes`` if edited; else ``""``."""
    here = Path(__file__).resolve().parent
    if "site-packages" in here.parts or shutil.which("git") is None:
        return ""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    if not commit:
        return ""
    return commit + ("+changes" if git("status", "--porcelain", "-uno") else "")


def host() -> dict[str, str]:
    """The machine that ran."""
    return {"name": socket.gethostname(), "system": platform.platform()}


def netlist_paths(spec: SweepSpec, circuit: Circuit) -> dict[str, Path]:
    """Netlist files of a sweep, by folder and file name (the rest differs by machine)."""
    paths: set[str] = set()
    for point in checked_points(spec.grid_shape):
        paths.update(circuit.files(base_params(spec, circuit, spec.coordinates(point))))
    return {"/".join(Path(path).parts[-2:]): Path(path) for path in sorted(paths)}


def netlist_digests(spec: SweepSpec, circuit: Circuit) -> dict[str, str]:
    """SHA-256 of every netlist file of a sweep, by folder and file name.

    Raises
    ------
    InputError
        If one cannot be read.
    """
    return {name: file_digest(path) for name, path in netlist_paths(spec, circuit).items()}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
