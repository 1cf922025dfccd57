"""One Zarr store a sweep: the results, and everything needed to know what they are.

Layout. The dimensions are the sweep's axes, then ``sample``. Variables: ``status``
(int8, see `nandcosim.spice.status.Status`), ``reason`` (text, empty where there is
nothing to say) and one float64 variable a response. A sweep with the fast engine also has
``engine`` (int8, see `nandcosim.sweep.chunk.EngineUsed`) and one float64 variable
``audit_<response>`` a response. A sweep that plans its samples (``spec.planned``) has
``wanted`` over the axes alone, int64, the samples asked for so far; that of a rare event
``stage`` (int8) and ``log_weight`` (float64) as well. How they are cut into files is in
`nandcosim.sweep.layout`.

Order of writing. The responses and reasons of a task are written first and its status
last, and every file is replaced atomically (zarr's LocalStore writes a temporary file
and renames it), so whatever kills the process, a sample whose status is not
``not_run`` has its data. What else may happen to files is in
`nandcosim.sweep.verification`. There is one writer, the process that runs the sweep; a
lock keeps a second one out.

Times, hosts and versions live in attributes only: the same sweep run twice gives the
same arrays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.errors
from pydantic import ValidationError

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import Chunk, ChunkResult
from nandcosim.sweep.layout import audit_name, declare_arrays, sample_arrays, slabs
from nandcosim.sweep.provenance import netlist_digests
from nandcosim.sweep.spec import SweepSpec, base_params
from nandcosim.sweep.standing import standing
from nandcosim.sweep.verification import damage_named, mend, require_complete

__all__ = ["SweepStore", "open_store", "status", "store_digest"]

#: Version of the layout above.
FORMAT = 1

#: Locked while the store is written: no file that is ever replaced, and no folder, which
#: network file systems do not lock.
LOCKED_FILE = Path("status", "zarr.json")

#: Times a lock is tried, and seconds between them; `SweepStore.is_running` takes it for an instant.
LOCK_TRIES, LOCK_WAIT = 3, 0.1


class SweepStore(os.PathLike[str]):
    """A sweep on disk; made by `SweepStore.create` or `SweepStore.open`.

    Attributes
    ----------
    path : Path
    spec : SweepSpec
    """

    def __init__(self, path: Path, group: zarr.Group, spec: SweepSpec) -> None:
        self.path = path
        self.spec = spec
        self._group = group
        self._arrays: dict[str, Any] = {}

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"SweepStore({str(self.path)!r})"

    # -- making and opening

    @classmethod
    def create(
        cls, path: Path, spec: SweepSpec, circuit: Circuit, chunk: int | None = None
    ) -> SweepStore:
        """Write an empty store, all samples ``not_run``.

        It is built beside `path` and renamed, so that a half-made store never exists.

        Raises
        ------
        InputError
            If `path` exists or cannot be written.
        """
        if path.exists():
            raise InputError(f"{path}: exists already")
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            group = zarr.create_group(str(draft), zarr_format=3)
            declare_arrays(group, spec, circuit, chunk)
            group.attrs.update(_identity(spec, circuit))
            draft.rename(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls.open(path, writable=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> SweepStore:
        """Open an existing store.

        Raises
        ------
        InputError
            If `path` is no store of this package, or of a later format.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(f"{path}: does not exist, expected the store of a sweep")
        try:
            group = zarr.open_group(str(path), mode="r+" if writable else "r", zarr_format=3)
            attributes = dict(group.attrs)
        except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError) as error:
            of_array = isinstance(error, zarr.errors.ContainsArrayError)
            if (path / "zarr.json").exists() and not of_array:
                raise _broken_metadata(path, "zarr.json", error) from None
            attributes = {}
        if "nandcosim_sweep" not in attributes:
            raise InputError(f"{path}: is not the store of a sweep")
        if attributes["nandcosim_sweep"] != FORMAT:
            raise InputError(
                f"{path}: found store format {attributes['nandcosim_sweep']!r}, "
                f"this version reads format {FORMAT}"
            )
        try:
            spec = SweepSpec.model_validate_json(str(attributes["spec"]))
        except (KeyError, ValidationError) as error:
            raise _broken_metadata(path, "zarr.json", error) from None
        store = cls(path, group, spec)
        for name in (*sample_arrays(spec), *spec.axes, *(["wanted"] if spec.planned else [])):
            store.array(name)
        return store

    def require_same(self, spec: SweepSpec, circuit: Circuit) -> None:
        """Refuse to continue the store with another sweep.

        Raises
        ------
        InputError
            Naming the first thing that differs.
        """
        stored, asked = self.attributes, _identity(spec, circuit)
        difference = _first_difference(self.spec.to_dict(), spec.to_dict())
        for name in ("netlists", "circuit_parameters"):
            if not difference:
                difference = _first_difference(stored[name], asked[name], name)
        if difference:
            raise InputError(
                f"{self.path}: holds another sweep: {difference}; "
                "use a new --out, or the spec the store was made from"
            )

    # -- reading

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the store: spec, seed, digests, and a record of every run."""
        return dict(self._group.attrs)

    @property
    def chunk(self) -> int:
        """Samples of a grid point that one chunk holds."""
        return int(self.array("status").chunks[-1])

    def array(self, name: str) -> Any:  # zarr's own type rejects tuples it accepts
        """One of the store's arrays.

        Raises
        ------
        InputError
            If the store has lost it.
        """
        if name not in self._arrays:
            try:
                found: Any = self._group[name]
            except KeyError:
                raise InputError(
                    f"{self.path}: the store is damaged, its array {name!r} is missing"
                ) from None
            except (OSError, ValueError, TypeError, zarr.errors.BaseZarrError) as error:
                raise _broken_metadata(self.path, f"{name}/zarr.json", error) from None
            # A chunk of nothing but fill values is told from one that was lost.
            self._arrays[name] = found.with_config({"write_empty_chunks": True})
        return self._arrays[name]

    def status_codes(self) -> np.ndarray:
        """Status of every sample, int8, shape (points, samples)."""
        with damage_named(self):
            codes = np.asarray(self.array("status")[...], dtype=np.int8)
        return codes.reshape(self.spec.points, self.spec.samples)

    def wanted(self) -> np.ndarray:
        """Samples asked for so far at every grid point, int64, shape (points,)."""
        if not self.spec.planned:
            return np.full(self.spec.points, self.spec.samples, dtype=np.int64)
        with damage_named(self):
            return np.asarray(self.array("wanted")[...], dtype=np.int64).reshape(-1)

    def outcomes(
        self, point: int, names: Sequence[str], stop: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Samples 0 to `stop` of a grid point.

        Parameters
        ----------
        point : int
        names : sequence of str
            Responses, or other arrays over samples.
        stop : int

        Returns
        -------
        status : ndarray of int8, shape (stop,)
        values : dict of str to ndarray, shape (stop,)
        """
        place = (*self.spec.index(point), slice(0, stop))
        with damage_named(self):
            values = {name: np.asarray(self.array(name)[place]) for name in names}
            return np.asarray(self.array("status")[place], dtype=np.int8), values

    def pending(
        self,
        codes: np.ndarray,
        retry_failed: bool = False,
        length: Callable[[], int] | None = None,
    ) -> Iterator[Chunk]:
        """Tasks still to run, in the order of the store, lazily.

        Of a sweep that plans its samples they are those below `wanted` at the time of the
        call. A task with the fast engine has whole blocks, or samples to run again.

        Parameters
        ----------
        codes : ndarray
            What `status_codes` returned.
        retry_failed : bool
            Whether failed samples are run again too.
        length : callable, optional
            Gives the most samples that the next task may have; default: a chunk of the store.
        """
        chunk = self.chunk
        for point, stop in enumerate(self.wanted().tolist()):
            row = codes[point, :stop]
            again = row != Status.OK if retry_failed else row == Status.NOT_RUN
            if not again.any():
                continue
            for start in range(0, stop, chunk):
                places = start + np.flatnonzero(again[start : start + chunk])
                while places.size:
                    task = self._next_task(point, places, stop, length() if length else chunk)
                    places = places[len(task.samples) :]
                    yield task

    def _next_task(self, point: int, places: np.ndarray, stop: int, length: int) -> Chunk:
        """The first of the samples at `places` that may make one task."""
        if self.spec.engine == "ngspice":
            here = places[: max(1, length)]
            return Chunk(point, int(here[0]), int(here[-1]) + 1, tuple(here.tolist()))
        block = self.spec.block
        blocks, first, count = np.unique(places // block, return_index=True, return_counts=True)
        whole = count == np.minimum(block, stop - blocks * block)
        alike = (whole == whole[0]) & (blocks - blocks[0] == np.arange(blocks.size))
        number = min(max(1, length // block), int(np.append(alike, False).argmin()))
        here = places[: first[number] if number < blocks.size else None]
        start = int(blocks[0]) * block
        end = min((int(blocks[number - 1]) + 1) * block, stop)
        return Chunk(point, start, end, tuple(here.tolist()))

    def dataset(self) -> xr.Dataset:
        """The store as a lazy dataset (dask arrays)."""
        with damage_named(self):
            dataset: xr.Dataset = xr.open_zarr(
                str(self.path), consolidated=False, mask_and_scale=False
            )
        # Text coordinates as fixed-width text: numpy's StringDType is not yet understood
        # by every format a table may be written to.
        text = {
            name: coordinate.astype(f"<U{max(map(len, coordinate.values.tolist()))}")
            for name, coordinate in dataset.coords.items()
            if coordinate.dtype.kind == "T"
        }
        return dataset.assign_coords(text)

    def digest(self) -> str:
        """SHA-256 over spec, netlist digests and all data; independent of chunking and time.

        Raises
        ------
        InputError
            If a file of the store is damaged or missing.
        """
        require_complete(self)
        total = hashlib.sha256(self.spec.canonical_json().encode())
        total.update(json.dumps(self.attributes["netlists"], sort_keys=True).encode())
        with damage_named(self):
            for name in sample_arrays(self.spec):
                total.update(name.encode())
                for slab in slabs(self.array(name)):
                    total.update(_bytes(np.asarray(self.array(name)[slab])))
        if self.spec.planned:
            total.update(b"wanted" + _bytes(self.wanted()))
        return total.hexdigest()

    def status(self) -> dict[str, Any]:
        """How far the sweep is; see `status`."""
        with damage_named(self):
            return standing(self)

    def is_running(self) -> bool:
        """Whether a process holds the store for writing."""
        with (self.path / LOCKED_FILE).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    # -- writing

    def write(self, chunk: Chunk, result: ChunkResult) -> None:
        """Put the outcome of a task into the store, its status last.

        Raises
        ------
        NandcosimError
            If the disk is full; what was written before stays exact.
        """
        columns: dict[str, Any] = {name: result.responses[name] for name in self.spec.responses}
        if result.engine is not None:
            columns["engine"] = result.engine
            nothing = np.full(len(chunk.samples), np.nan)
            for name in self.spec.responses:
                columns[audit_name(name)] = result.deviations.get(name, nothing)
        columns["reason"] = np.array(result.reason, dtype=object)
        place = (*self.spec.index(chunk.point), slice(chunk.start, chunk.stop))
        inside = np.asarray(chunk.samples) - chunk.start
        status_array = self.array("status")
        with _room_on_disk(self.path):
            codes = np.asarray(status_array[place])
            if (codes[inside] != Status.NOT_RUN).any():
                # Samples run again: never an old status beside new numbers.
                codes[inside] = Status.NOT_RUN
                status_array[place] = codes
            for name, values in columns.items():
                self._overlay(name, place, inside, values)
            codes[inside] = result.status
            status_array[place] = codes

    def _overlay(
        self, name: str, place: tuple[Any, ...], inside: np.ndarray, values: np.ndarray
    ) -> None:
        array = self.array(name)
        if inside.size < place[-1].stop - place[-1].start:
            block = np.asarray(array[place])
            block[inside] = values
            values = block
        array[place] = values

    def set_wanted(self, wanted: np.ndarray) -> None:
        """Ask for samples 0 to ``wanted[p]`` of every grid point p.

        With the fast engine they are rounded up to whole blocks.

        Parameters
        ----------
        wanted : ndarray of int, shape (points,)
        """
        block = self.spec.block if self.spec.engine == "fast" else 1
        rounded = np.minimum(-(-np.asarray(wanted) // block) * block, self.spec.samples)
        with _room_on_disk(self.path):
            self.array("wanted")[...] = rounded.reshape(self.spec.grid_shape)

    def write_plan_of(
        self, point: int, start: int, stage: np.ndarray, log_weight: np.ndarray
    ) -> None:
        """Put what the plan says of a point's samples from `start` on beside them.

        Before they are run: a sample that is done has all its data.

        Parameters
        ----------
        point, start : int
        stage : ndarray of int8, shape (n,)
        log_weight : ndarray of float64, shape (n,)
        """
        place = (*self.spec.index(point), slice(start, start + len(stage)))
        with _room_on_disk(self.path):
            self.array("stage")[place] = stage
            self.array("log_weight")[place] = log_weight

    def record_plan(self, plan: Mapping[str, Any]) -> None:
        """Put the state of the plan into the attributes: ``complete``, ``runs`` and the like."""
        with _room_on_disk(self.path):
            self._group.attrs["plan"] = dict(plan)

    def record_run(self, run: Mapping[str, Any]) -> None:
        """Append (or, for the same ``id``, replace) the record of a run in the attributes.

        Its ``samples`` and ``seconds`` so far give the rate that `status` tells.
        """
        runs = [each for each in self.attributes["runs"] if each["id"] != run["id"]]
        with _room_on_disk(self.path):
            self._group.attrs["runs"] = [*runs, dict(run)]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store for writing, whole; the lock ends with the process, however it ends.

        What a process that was killed left behind is removed, and damaged files are taken
        out (`nandcosim.sweep.verification.mend`), so that read the status afterwards.

        Raises
        ------
        NandcosimError
            If another process holds it.
        """
        with (self.path / LOCKED_FILE).open("r+b") as file:
            _lock(file.fileno(), self.path)
            for leftover in self.path.rglob("*.partial"):
                leftover.unlink()
            with _room_on_disk(self.path):
                mend(self)
            yield


def open_store(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open a sweep's store as a lazy dataset.

    Parameters
    ----------
    path : path
        The Zarr folder.

    Returns
    -------
    xarray.Dataset
        Dims: the axes, then ``sample``. Variables: ``status`` (int8), ``reason``
        (text) and the responses with attributes ``units`` and ``long_name``.

    Raises
    ------
    InputError
        If `path` is no store of a sweep.
    """
    return SweepStore.open(path).dataset()


def store_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a store's spec, netlists and data; see `SweepStore.digest`."""
    return SweepStore.open(path).digest()


def status(path: str | os.PathLike[str]) -> dict[str, Any]:
    """How far a sweep is and what failed.

    Returns
    -------
    dict
        ``total`` (samples asked for so far), ``done``, ``failed``, ``fraction_done``;
        ``damaged`` (files that are missing; that a file is altered shows when it is read);
        ``counts`` (samples of every status by its label), ``reasons`` (failed samples by
        reason, most frequent first) and ``failures`` (by kind, reasons that differ by a number
        alone taken together: ``status``, ``reason``, ``count``, the first ``samples``).
        ``running``; ``rate`` (samples a second in the last run) and ``remaining`` (seconds),
        None if unknown.
        Of a sweep that plans its samples ``plan``, of the fast engine ``engines`` and
        ``disagreements``.

    Raises
    ------
    InputError
        If `path` is no store of a sweep, or damaged.
    """
    return SweepStore.open(path).status()


# ---------------------------------------------------------------- helpers


def _broken_metadata(path: Path, name: str, error: Exception) -> InputError:
    said = str(error).partition("\n")[0] or type(error).__name__
    return InputError(f"{path}: the store is damaged, its file {name} cannot be read: {said}")


@contextlib.contextmanager
def _room_on_disk(path: Path) -> Iterator[None]:
    """Turn the error of a full disk into one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NandcosimError(
            f"{path}: {error.strerror}; free some and run the same command again"
        ) from None


def _identity(spec: SweepSpec, circuit: Circuit) -> dict[str, Any]:
    """Attributes that say what the sweep is."""
    params = base_params(spec, circuit, spec.coordinates(0))
    return {
        "nandcosim_sweep": FORMAT,
        "spec": spec.canonical_json(),
        "spec_digest": spec.digest,
        "seed": spec.seed,
        "netlists": netlist_digests(spec, circuit),
        # Defaults included: a changed default in the circuit is a changed sweep.
        "circuit_parameters": params.model_dump(mode="json"),
        "runs": [],
    }


def _first_difference(stored: Mapping[str, Any], asked: Mapping[str, Any], inside: str = "") -> str:
    """Say where two nested dicts differ first, ``""`` if nowhere."""
    for name in dict.fromkeys((*stored, *asked)):
        key = f"{inside}.{name}" if inside else str(name)
        old, new = stored.get(name), asked.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            deeper = _first_difference(old, new, key)
            if deeper:
                return deeper
        elif old != new:
            return f"{key} is {_absent(old)} in the store and {_absent(new)} here"
    # Same entries in another order: the order of the axes is that of the dimensions.
    if inside == "axes" and list(stored) != list(asked):
        return f"the axes are {list(stored)} in the store and {list(asked)} here"
    return ""


def _absent(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _bytes(block: np.ndarray) -> bytes:
    """Bytes of a block in C order and little endian; NaNs all alike, texts length-prefixed."""
    if block.dtype.kind == "f":
        return np.where(np.isnan(block), np.nan, block).astype("<f8").tobytes()
    if block.dtype.kind == "i":
        return block.tobytes()
    encoded = (str(text).encode() for text in block.ravel())
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def _lock(file: int, path: Path) -> None:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_WAIT)
        else:
            return
    raise NandcosimError(f"{path}: another process is running this sweep")
