"""Fetch files from the Debian archive with apt, without installing anything.

Packages are downloaded and unpacked in a temporary folder; descriptions are fetched
into a list folder of their own, so that the system's lists stay as they are.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nandcosim.errors import InputError, NandcosimError

__all__ = ["fetched_translations", "unpacked_packages"]

#: Reads a list file in whatever compression apt stored it.
_APT_HELPER = "/usr/lib/apt/apt-helper"


@contextlib.contextmanager
def unpacked_packages(*packages: str, instead: str) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Download and unpack packages for as long as the ``with`` block runs.

    Parameters
    ----------
    *packages : str
        Names of binary packages.
    instead : str
        What to do where there is no apt, for the error message.

    Yields
    ------
    folder : Path
        Root of the unpacked file tree.
    versions : Mapping
        Version of each package.

    Raises
    ------
    InputError
        If apt's programs are missing.
    NandcosimError
        If a download or the unpacking fails.
    """
    _require("apt-get", "dpkg-deb", instead=instead)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        _call("apt-get", "download", "--quiet", *packages, cwd=work)
        versions = {}
        for archive in sorted(work.glob("*.deb")):
            package, version = _call(
                "dpkg-deb", "--show", "--showformat=${Package}\n${Version}", archive.name, cwd=work
            ).splitlines()
            versions[package] = version
            _call("dpkg-deb", "-x", archive.name, "unpacked", cwd=work)
        yield work / "unpacked", versions


@contextlib.contextmanager
def fetched_translations(language: str = "en") -> Iterator[list[Path]]:
    """Fetch the package descriptions of the system's own archives.

    Yields
    ------
    list of Path
        One uncompressed ``Translation-LANGUAGE`` file of each archive's component
        ``main``, named as apt names it, in name order.

    Raises
    ------
    InputError
        If apt's programs are missing.
    NandcosimError
        If fetching fails or there are no descriptions.
    """
    _require("apt-get", _APT_HELPER, instead="this corpus can be built on Debian or Ubuntu only")
    with tempfile.TemporaryDirectory() as name:
        lists, texts = Path(name) / "lists", Path(name) / "texts"
        (lists / "partial").mkdir(parents=True)
        texts.mkdir()
        # apt fetches as an unprivileged user, who must be able to enter the folder
        Path(name).chmod(0o755)
        _call(
            "apt-get", "update", "--quiet",
            "-o", f"Dir::State::lists={lists}", "-o", f"Acquire::Languages={language}",
            "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
            cwd=lists,
        )  # fmt: skip
        found = sorted(lists.glob(f"*_main_i18n_Translation-{language}*"))
        if not found:
            raise NandcosimError(f"apt-get update fetched no Translation-{language} of main")
        for path in found:
            text = _call(_APT_HELPER, "cat-file", str(path), cwd=lists)
            (texts / path.stem).write_text(text, encoding="utf-8")
        yield sorted(texts.iterdir())


def _require(*programs: str, instead: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise InputError(f"{program} is not found: {instead}")


def _call(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        reason = (errors or ["no message"])[-1]
        raise NandcosimError(f"{' '.join(command)} failed: {reason}")
    return done.stdout.decode()
