"""Where numbers come from: versions, commit and machine, recorded with every run."""

from __future__ import annotations

import contextlib
import platform
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from nandcosim.errors import NandcosimError
from nandcosim.spice.installation import executable_version, osdi_models
from nandcosim.spice.netlists import digest

__all__ = ["host", "versions"]

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
