"""Damage of a store's files: found, and mended by running the samples again.

Every file is replaced by a rename, so a process that dies leaves none half written; a power
cut, a failing disk or a copy that was broken off may. Each chunk has a checksum (CRC-32C) and
is written even where it holds only fill values, so that a chunk which was lost is not taken
for one without news. Stores from before there were checksums show what cannot be decoded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.status import Status
from nandcosim.sweep.layout import (
    Region,
    has_checksums,
    regions,
    sample_arrays,
    slabs,
    write_coordinate,
)

if TYPE_CHECKING:
    from nandcosim.sweep.store import SweepStore

__all__ = ["Damage", "damage_named", "lost_files", "mend", "require_complete", "verify"]

log = logging.getLogger(__name__)

#: Files that a message names.
NAMED = 3


@dataclass(frozen=True)
class Damage:
    """A file of a store that cannot be relied on.

    Attributes
    ----------
    array : str
    file : Path
        Relative to the store.
    problem : str
        ``missing``, or what reading it said.
    region : Region or None
        The samples it holds; None for what is no array over samples.
    """

    array: str
    file: Path
    problem: str
    region: Region | None = None

    def __str__(self) -> str:
        where = f"{self.file} ({self.problem})"
        if self.region is None:
            return where
        return f"{where}: samples {self.region.first} to {self.region.stop - 1}"


def verify(store: SweepStore) -> list[Damage]:
    """Read every file of a store.

    Returns
    -------
    list of Damage
        Chunks that cannot be read, and those that are missing although samples in them are
        done; in the order of the arrays, ``status`` first.

    Raises
    ------
    OSError
        If the disk itself cannot be read.
    """
    found = [each for name in sample_arrays(store.spec) for each in _unreadable(store, name)]
    unknown = {each.region.first for each in found if each.region and each.array == "status"}
    found += _lost_status(store)
    found += _missing(store, _regions_done(store, unknown))
    found += _damaged_axes(store)
    if store.spec.planned:
        found += _whole_array(store, "wanted", needed=False)
    return found


def mend(store: SweepStore) -> list[Damage]:
    """Take damaged files out of a store, so that their samples are run again.

    What no sample says needs none: coordinates are written anew from the spec, and ``wanted``
    starts from nothing, from which the plan comes to the same again.

    Parameters
    ----------
    store : SweepStore
        Held for writing.

    Returns
    -------
    list of Damage
        What `verify` found.
    """
    found = verify(store)
    for damage in found:
        file = store.path / damage.file
        if damage.array in store.spec.axes:
            write_coordinate(store.array(damage.array), store.spec.axes[damage.array])
        elif damage.region is None or damage.array == "status":
            file.unlink(missing_ok=True)  # without its status no sample is done
        else:
            store.array("status")[damage.region.place] = int(Status.NOT_RUN)
            file.unlink(missing_ok=True)  # last, or a death here would hide the damage
    if found:
        log.warning("%s: damaged and made again: %s", store.path, _listed(found))
    return found


@contextlib.contextmanager
def damage_named(store: SweepStore) -> Iterator[None]:
    """Turn what reading a damaged store raises into one line that names the file.

    Raises
    ------
    InputError
    """
    try:
        yield
    except (NandcosimError, OSError, MemoryError):
        raise
    except Exception:  # zarr's codecs raise their own kinds
        found = verify(store)
        if not found:
            raise
        raise _damaged(store, found) from None


def require_complete(store: SweepStore) -> None:
    """Refuse a store that has lost a file; nothing is read but the status and the axes.

    Raises
    ------
    InputError
        Naming the files.
    """
    with damage_named(store):
        found = [*_missing(store, _regions_done(store)), *_damaged_axes(store)]
    if found:
        raise _damaged(store, found)


def lost_files(store: SweepStore) -> list[str]:
    """What `require_complete` would refuse the store for, a line each."""
    return [str(each) for each in (*_missing(store, _regions_done(store)), *_damaged_axes(store))]


def _damaged(store: SweepStore, found: list[Damage]) -> InputError:
    """The error of a store that somebody wants to read."""
    return InputError(
        f"{store.path}: damaged: {_listed(found)}; the sweep's command makes them again"
    )


def _listed(found: list[Damage]) -> str:
    more = f"; and {len(found) - NAMED} files more" if len(found) > NAMED else ""
    return "; ".join(map(str, found[:NAMED])) + more


def _unreadable(store: SweepStore, name: str) -> Iterator[Damage]:
    array = store.array(name)
    if not any(_problem(array, slab) for slab in slabs(array)):
        return
    for region in regions(array):
        problem = _problem(array, region.place)
        if problem:
            yield Damage(name, Path(name, region.file), problem, region)


def _whole_array(store: SweepStore, name: str, needed: bool) -> Iterator[Damage]:
    """Damage of an array that is one file and not over samples."""
    array = store.array(name)
    file = Path(name, "c", *("0" for _ in array.shape))
    problem = _problem(array, ...)
    if not problem and needed and has_checksums(array) and not (store.path / file).exists():
        problem = "missing"
    if problem:
        yield Damage(name, file, problem)


def _damaged_axes(store: SweepStore) -> Iterator[Damage]:
    for name in store.spec.axes:
        yield from _whole_array(store, name, needed=True)


def _lost_status(store: SweepStore) -> Iterator[Damage]:
    """Status files that are not there although what is written before them is."""
    status = store.array("status")
    if not has_checksums(status):
        return
    for region in regions(status):
        written = (store.path / "reason" / region.file).exists()
        if written and not (store.path / "status" / region.file).exists():
            file = Path("status", region.file)
            yield Damage("status", file, "lost, or never written", region)


def _regions_done(store: SweepStore, unknown: Collection[int] = ()) -> list[Region]:
    """Chunks with samples that are done, but for those whose status is unknown."""
    codes = store.array("status")
    return [
        region
        for region in regions(codes)
        if region.first not in unknown and (np.asarray(codes[region.place]) != Status.NOT_RUN).any()
    ]


def _missing(store: SweepStore, done: list[Region]) -> Iterator[Damage]:
    for name in sample_arrays(store.spec):
        if not has_checksums(store.array(name)):
            continue
        for region in done:
            if not (store.path / name / region.file).exists():
                yield Damage(name, Path(name, region.file), "missing", region)


def _problem(array: Any, place: Any) -> str:
    """Why a part of an array cannot be read, on one line; ``""`` if it can."""
    try:
        array[place]
    except (OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - zarr's codecs raise their own kinds
        said = str(error).partition("\n")[0] or type(error).__name__
        return "its checksum is wrong" if "checksum" in said else said
    return ""
