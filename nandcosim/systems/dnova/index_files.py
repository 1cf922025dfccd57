"""An index on disk: one folder, plain arrays, a header that describes them.

::

    index.json              the header, written last
    centroids.npy           float32 (nlist, D)
    quantiser.npy           float64 (2, 1 or D): lower and upper end of the range
    segment-000/ids.npy     int64 (n,), list by list
    segment-000/offsets.npy int64 (nlist + 1,)
    segment-000/planes.npy  uint64, the codes as `plane_kernels` lays them out
    segment-000/vectors.npy float32 (n, D), where the index keeps them

Planes, ids and vectors are memory-mapped, read only, and a list is contiguous in each,
so a search reads the lists that it probes. Nothing is unpickled. The header names
every file with its size, type, shape and SHA-256; it is replaced in one step, so a
folder is either as before or complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nandcosim import __version__
from nandcosim.errors import InputError
from nandcosim.systems.dnova.planes import PlaneLists, planes_for, words_of
from nandcosim.systems.dnova.quantise import Quantiser

if TYPE_CHECKING:
    from nandcosim.systems.dnova.ivf import IvfIndex, Segment

__all__ = ["FORMAT", "HEADER", "open_index", "save_index"]

FORMAT = 1
"""Version of the format."""

HEADER = "index.json"

_Array = NDArray[Any]


def save_index(index: IvfIndex, folder: str | Path) -> None:
    """Write an index to a folder, or append to a folder that holds its first segments.

    Parameters
    ----------
    index : IvfIndex
    folder : str or Path
        Written under a temporary name and renamed when whole. Where the index is there
        already, only the segments that it lacks are written.

    Raises
    ------
    InputError
        If the folder holds something else.
    """
    target = Path(folder)
    if not target.exists():
        with _whole_or_nothing(target) as partial:
            _write_header(partial, index, _describe(_shared(index), partial), [])
            _append(index, partial, _read_header(partial))
        return
    header = _read_header(target)
    _check_same_index(index, target, header)
    _append(index, target, header)


def open_index(folder: str | Path, *, verify: bool = False) -> IvfIndex:
    """Open a folder written by `save_index`, memory-mapped.

    Parameters
    ----------
    folder : str or Path
    verify : bool
        Compare the digest of every file, which reads all of them. Without it sizes,
        types and shapes are compared, and the digests of the small files.

    Raises
    ------
    InputError
        If the folder holds no whole index of this format.
    """
    from nandcosim.systems.dnova.ivf import IvfIndex

    path = Path(folder)
    header = _read_header(path)
    shared = {
        name: np.array(_open_array(path, name, header["arrays"], verify=True))
        for name in ("centroids", "quantiser")
    }
    low, high = (end[0] if end.size == 1 else end for end in shared["quantiser"])
    quantiser = Quantiser(np.asarray(low), np.asarray(high), header["levels"])
    segments = tuple(
        _open_segment(path / part["folder"], part["arrays"], header, verify)
        for part in header["segments"]
    )
    return IvfIndex(shared["centroids"], quantiser, segments)


# ---------------------------------------------------------------- writing


def _append(index: IvfIndex, folder: Path, header: dict[str, Any]) -> None:
    parts = list(header["segments"])
    for number in range(len(parts), len(index.segments)):
        name = f"segment-{number:03d}"
        unlisted = folder / name  # of a save that did not come to its end
        if unlisted.exists():
            shutil.rmtree(unlisted)
        with _whole_or_nothing(folder / name) as partial:
            arrays = _describe(_segment_arrays(index.segments[number]), partial)
        parts.append({"folder": name, "arrays": arrays})
        _write_header(folder, index, header["arrays"], parts)


@contextmanager
def _whole_or_nothing(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name at the end or vanishes."""
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_header(
    folder: Path, index: IvfIndex, arrays: dict[str, Any], segments: list[dict[str, Any]]
) -> None:
    header = {
        "nandcosim_index": FORMAT,
        "dimension": index.dim,
        "levels": index.quantiser.levels,
        "lists": index.nlist,
        "arrays": arrays,
        "segments": segments,
        "provenance": {
            "nandcosim": __version__,
            "numpy": np.__version__,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    partial = folder / f".{HEADER}.partial"
    partial.write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / HEADER)


def _describe(arrays: dict[str, _Array], folder: Path) -> dict[str, Any]:
    """Write arrays as ``.npy`` and say what was written."""
    described = {}
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        np.save(path, array, allow_pickle=False)
        described[name] = {
            "type": array.dtype.str,
            "shape": list(array.shape),
            "bytes": path.stat().st_size,
            "sha256": _file_digest(path),
        }
    return described


def _shared(index: IvfIndex) -> dict[str, _Array]:
    ends = np.stack([np.ravel(index.quantiser.low), np.ravel(index.quantiser.high)])
    return {"centroids": index.centroids, "quantiser": ends}


def _segment_arrays(segment: Segment) -> dict[str, _Array]:
    arrays: dict[str, _Array] = {
        "ids": segment.ids,
        "offsets": segment.offsets,
        "planes": segment.cells.original,
    }
    if segment.vectors is not None:
        arrays["vectors"] = segment.vectors
    return arrays


def _check_same_index(index: IvfIndex, folder: Path, header: dict[str, Any]) -> None:
    """Refuse a folder whose segments are not the first ones of this index."""
    same = len(header["segments"]) <= len(index.segments) and _matches(
        _shared(index), header["arrays"]
    )
    for part, segment in zip(header["segments"], index.segments, strict=False):
        opened_here = segment.source == (folder / part["folder"]).resolve()
        same = same and (opened_here or _matches(_segment_arrays(segment), part["arrays"]))
    if not same:
        raise InputError(
            f"save: {folder} holds another index, allowed: a new folder, or one that holds "
            "this index or its first segments"
        )


def _matches(arrays: dict[str, _Array], described: dict[str, Any]) -> bool:
    """Whether arrays are those that a header describes, by type, shape and content."""
    return arrays.keys() == described.keys() and all(
        array.dtype.str == described[name]["type"]
        and list(array.shape) == described[name]["shape"]
        and _npy_digest(array) == described[name]["sha256"]
        for name, array in arrays.items()
    )


# ---------------------------------------------------------------- reading


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        raise InputError(f"{folder}: no {HEADER} in it, allowed: a folder that IvfIndex.save wrote")
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        version = header["nandcosim_index"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no header of an index ({type(error).__name__})") from error
    if version != FORMAT:
        raise InputError(f"{path}: format {version}, allowed: {FORMAT}")
    expected = ("dimension", "levels", "lists", "arrays", "segments")
    missing = [name for name in expected if name not in header]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}")
    return dict(header)


def _open_segment(
    folder: Path, described: dict[str, Any], header: dict[str, Any], verify: bool
) -> Segment:
    from nandcosim.systems.dnova.ivf import Segment

    offsets = np.array(_open_array(folder, "offsets", described, verify=True))
    ids, store = (_open_array(folder, name, described, verify) for name in ("ids", "planes"))
    vectors = None
    if "vectors" in described:
        vectors = _open_array(folder, "vectors", described, verify)
    dim, levels = header["dimension"], header["levels"]
    planes, low = planes_for(levels)
    count = int(offsets[-1])
    whole = (
        offsets.shape == (header["lists"] + 1,)
        and offsets[0] == 0
        and (np.diff(offsets) >= 0).all()
        and ids.shape == (count,)
        and store.size >= count * words_of(dim) * planes
        and (vectors is None or vectors.shape == (count, dim))
    )
    if not whole:
        raise InputError(f"{folder}: its arrays do not fit together; the index is damaged")
    cells = PlaneLists(store, None, offsets, dim, levels, planes, low)
    return Segment(ids=ids, cells=cells, vectors=vectors, source=folder.resolve())


def _open_array(folder: Path, name: str, described: dict[str, Any], verify: bool) -> _Array:
    """One array, memory-mapped, as the header describes it."""
    path = folder / f"{name}.npy"
    if name not in described:
        raise InputError(f"{folder.parent / HEADER}: does not describe {path.name}")
    if not path.is_file():
        raise InputError(f"{path}: missing; the index is damaged")
    size, expected = path.stat().st_size, described[name]["bytes"]
    if size != expected:
        raise InputError(f"{path}: {size} bytes, allowed: {expected}; the index is damaged")
    if verify and _file_digest(path) != described[name]["sha256"]:
        raise InputError(f"{path}: its content has changed since it was written")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{path}: no array ({error})") from error
    if array.dtype.str != described[name]["type"] or list(array.shape) != described[name]["shape"]:
        raise InputError(
            f"{path}: {array.dtype.str} {array.shape}, allowed: {described[name]['type']} "
            f"{tuple(described[name]['shape'])}"
        )
    return np.asarray(array)  # a plain view; it keeps the map open


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _npy_digest(array: _Array) -> str:
    """Digest of the file that `np.save` makes of an array."""
    sink = _Hasher()
    np.lib.format.write_array(sink, array, allow_pickle=False)
    return sink.digest.hexdigest()


class _Hasher:
    """A file to write to that keeps the digest alone."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return len(data)
