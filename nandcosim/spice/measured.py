"""Arrays that ngspice measured once, kept for the next time, in memory and on disk.

The folder is ``$XDG_CACHE_HOME/nandcosim`` (``~/.cache/nandcosim``). It may be deleted at
any time: what is missing, damaged or of other content is measured again. Where it cannot
be written, nothing is kept beyond this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

__all__ = ["cache_folder", "measured"]

#: Sets kept in memory; a sweep over temperatures or corners uses a few.
HELD = 8

_held: dict[str, dict[str, np.ndarray]] = {}


def cache_folder() -> Path:
    """Where measured arrays are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nandcosim"


def measured(
    what: str, text: str, make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Arrays that `make` returns, or has returned for the same `text`.

    Parameters
    ----------
    what : str
        Beginning of the file's name.
    text : str
        Everything that decides the result: decks, versions, settings.
    make : callable
        Measures the named arrays.
    """
    key = hashlib.sha256(f"{what}\n{text}".encode()).hexdigest()
    if key not in _held:
        path = cache_folder() / f"{what}-{key[:32]}.npz"
        found = _read(path, key)
        if found is None:
            found = dict(make())
            _write(path, key, found)
        while len(_held) >= HELD:
            del _held[next(iter(_held))]
        _held[key] = found
    return _held[key]


def _read(path: Path, key: str) -> dict[str, np.ndarray] | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return found if str(found.pop("key", "")) == key else None


def _write(path: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=".", suffix=".npz", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, allow_pickle=False, **{"key": np.array(key), **arrays})
            Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)
