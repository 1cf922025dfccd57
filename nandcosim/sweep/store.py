"""One Zarr store a sweep: the results, and everything needed to know what they are.

Layout. The dimensions are the sweep's axes, then ``sample``. Variables: ``status``
(int8, see `nandcosim.spice.status.Status`), ``reason`` (text, empty where there is
nothing to say) and one float64 variable a response. A sweep with the fast engine also has
``engine`` (int8, see `nandcosim.sweep.chunk.EngineUsed`) and one float64 variable
``audit_<response>`` a response. A chunk is one grid point times
up to ``chunk`` samples.

Order of writing. A chunk's responses and reasons are written first and its status
last, and every file is replaced atomically (zarr's LocalStore writes a temporary file
and renames it), so whatever kills the process, a sample whose status is not
``not_run`` has its data. There is one writer, the process that runs the sweep; a lock
on the folder keeps a second one out.

Times, hosts and versions live in attributes only: the same sweep run twice gives the
same arrays.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.errors

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.circuit import Circuit, Response
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import Chunk, ChunkResult, EngineUsed
from nandcosim.sweep.spec import SweepSpec, base_params, checked_points

__all__ = ["SweepStore", "open_store", "status", "store_digest"]

#: Version of the layout above.
FORMAT = 1

#: Limits to the samples of a chunk, unless one is asked for. A chunk is what is lost when
#: a machine dies, and what progress moves by; it should take seconds.
MIN_CHUNK, USUAL_CHUNK, MAX_CHUNK = 10, 100, 1000

#: Chunks that a sweep should have at least, to keep workers busy, and at most, since each
#: is a few files.
FEWEST_CHUNKS, MOST_CHUNKS = 50, 10_000


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
        chunk = _whole_blocks(_chunk_length(spec) if chunk is None else chunk, spec)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            group = zarr.create_group(str(draft), zarr_format=3)
            _declare_arrays(group, spec, circuit, chunk)
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
        except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError):
            attributes = {}
        if "nandcosim_sweep" not in attributes:
            raise InputError(f"{path}: is not the store of a sweep")
        if attributes["nandcosim_sweep"] != FORMAT:
            raise InputError(
                f"{path}: found store format {attributes['nandcosim_sweep']!r}, "
                f"this version reads format {FORMAT}"
            )
        spec = SweepSpec.model_validate_json(str(attributes["spec"]))
        lost = [name for name in _array_names(spec) if name not in group]
        if lost:
            raise InputError(f"{path}: the store is damaged, its array {lost[0]!r} is missing")
        return cls(path, group, spec)

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
        """Samples a chunk."""
        return int(self._array("status").chunks[-1])

    def _array(self, name: str) -> Any:  # zarr's own type rejects tuples it accepts
        return self._group[name]

    def status_codes(self) -> np.ndarray:
        """Status of every sample, int8, shape (points, samples)."""
        codes = np.asarray(self._array("status")[...], dtype=np.int8)
        return codes.reshape(self.spec.points, self.spec.samples)

    def pending(self, codes: np.ndarray, retry_failed: bool = False) -> Iterator[Chunk]:
        """Chunks still to run, in the order of the store, lazily.

        Parameters
        ----------
        codes : ndarray
            What `status_codes` returned.
        retry_failed : bool
            Whether failed samples are run again too.
        """
        chunk = self.chunk
        for point in range(self.spec.points):
            row = codes[point]
            wanted = row != Status.OK if retry_failed else row == Status.NOT_RUN
            if not wanted.any():
                continue
            for start in range(0, self.spec.samples, chunk):
                stop = min(start + chunk, self.spec.samples)
                samples = tuple(int(k) for k in start + np.flatnonzero(wanted[start:stop]))
                if samples:
                    yield Chunk(point, start, stop, samples)

    def dataset(self) -> xr.Dataset:
        """The store as a lazy dataset (dask arrays)."""
        dataset: xr.Dataset = xr.open_zarr(str(self.path), consolidated=False, mask_and_scale=False)
        # Text coordinates as fixed-width text: numpy's StringDType is not yet understood
        # by every format a table may be written to.
        text = {
            name: coordinate.astype(f"<U{max(map(len, coordinate.values.tolist()))}")
            for name, coordinate in dataset.coords.items()
            if coordinate.dtype.kind == "T"
        }
        return dataset.assign_coords(text)

    def digest(self) -> str:
        """SHA-256 over spec, netlist digests and all data; independent of chunking and time."""
        total = hashlib.sha256(self.spec.canonical_json().encode())
        total.update(json.dumps(self.attributes["netlists"], sort_keys=True).encode())
        for name in _array_names(self.spec):
            array = self._array(name)
            total.update(name.encode())
            for slab in self._slabs():
                total.update(_bytes(np.asarray(array[slab])))
        return total.hexdigest()

    def _slabs(self) -> Iterator[Any]:
        """Selections that cover the store in order; the whole may not fit in memory."""
        if not self.spec.axes:
            yield ...
        else:
            yield from range(self.spec.grid_shape[0])

    def status(self) -> dict[str, Any]:
        """How far the sweep is; see `status`."""
        codes = self.status_codes()
        counts = _status_counts(codes)
        total = codes.size
        done = total - counts["not_run"]
        return {
            "path": str(self.path),
            "circuit": self.spec.circuit,
            "total": total,
            "done": done,
            "failed": done - counts["ok"],
            "fraction_done": done / total,
            "counts": counts,
            "reasons": self._reason_counts(codes),
            **self._engine_counts(codes),
        }

    def _engine_counts(self, codes: np.ndarray) -> dict[str, Any]:
        """Samples of each engine, and the blocks in which the fast one disagreed."""
        if self.spec.engine == "ngspice":
            return {}
        used = np.asarray(self._array("engine")[...]).reshape(codes.shape)
        done = codes != Status.NOT_RUN
        starts = np.arange(0, self.spec.samples, self.spec.block)
        fell_back = np.logical_or.reduceat(done & (used == EngineUsed.FALLBACK), starts, axis=1)
        return {
            "engines": {e.name.lower(): int((used[done] == e).sum()) for e in EngineUsed},
            "disagreements": int(fell_back.sum()),
        }

    def _reason_counts(self, codes: np.ndarray) -> dict[str, int]:
        array = self._array("reason")
        counts: dict[str, int] = {}
        failed = (codes != Status.OK) & (codes != Status.NOT_RUN)
        for point in np.flatnonzero(failed.any(axis=1)):
            row = np.asarray(array[self.spec.index(int(point))], dtype=object)
            for text in row[failed[point]]:
                counts[str(text)] = counts.get(str(text), 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    # -- writing

    def write(self, chunk: Chunk, result: ChunkResult) -> None:
        """Put the outcome of `chunk` into the store, its status last."""
        place = (*self.spec.index(chunk.point), slice(chunk.start, chunk.stop))
        inside = np.asarray(chunk.samples) - chunk.start
        status_array = self._array("status")
        codes = np.asarray(status_array[place])
        if (codes[inside] != Status.NOT_RUN).any():
            # Samples run again: never an old status beside new numbers.
            codes[inside] = Status.NOT_RUN
            status_array[place] = codes
        for name in self.spec.responses:
            self._overlay(name, place, inside, result.responses[name])
        if result.engine is not None:
            self._overlay("engine", place, inside, result.engine)
        for name, values in result.deviations.items():
            self._overlay(_audit(name), place, inside, values)
        self._overlay("reason", place, inside, np.array(result.reason, dtype=object))
        codes[inside] = result.status
        status_array[place] = codes

    def _overlay(
        self, name: str, place: tuple[Any, ...], inside: np.ndarray, values: np.ndarray
    ) -> None:
        array = self._array(name)
        block = np.asarray(array[place])
        block[inside] = values
        array[place] = block

    def record_run(self, run: Mapping[str, Any]) -> None:
        """Append (or, for the same ``id``, replace) the record of a run in the attributes."""
        runs = [each for each in self.attributes["runs"] if each["id"] != run["id"]]
        self._group.attrs["runs"] = [*runs, dict(run)]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store for writing; the lock ends with the process, however it ends.

        Raises
        ------
        NandcosimError
            If another process holds it.
        """
        # The folder itself is locked: a lock file would be foreign matter in a Zarr group.
        folder = os.open(self.path, os.O_RDONLY)
        try:
            _lock(folder, self.path)
            # Left behind by a process killed while it replaced the attributes.
            for leftover in self.path.glob("zarr.*.partial"):
                leftover.unlink()
            yield
        finally:
            os.close(folder)


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
        ``total``, ``done``, ``failed``, ``fraction_done``; ``counts`` (samples of every
        status by its label) and ``reasons`` (failed samples by reason, most frequent first).
    """
    return SweepStore.open(path).status()


# ---------------------------------------------------------------- helpers


def _chunk_length(spec: SweepSpec) -> int:
    total = spec.points * spec.samples
    chunk = min(max(total // FEWEST_CHUNKS, MIN_CHUNK), USUAL_CHUNK)
    return max(chunk, min(total // MOST_CHUNKS, MAX_CHUNK))


def _whole_blocks(chunk: int, spec: SweepSpec) -> int:
    """A chunk's length such that an audited sample is in the chunk of its block."""
    if spec.engine == "fast":
        chunk = spec.block * max(1, round(chunk / spec.block))
    return min(chunk, spec.samples)


def _array_names(spec: SweepSpec) -> tuple[str, ...]:
    """Arrays of a store, in the order of its digest."""
    names = ("status", "reason", *spec.responses)
    if spec.engine == "ngspice":
        return names
    return (*names, "engine", *map(_audit, spec.responses))


def _audit(response: str) -> str:
    return f"audit_{response}"


def _declare_arrays(group: zarr.Group, spec: SweepSpec, circuit: Circuit, chunk: int) -> None:
    shape = (*spec.grid_shape, spec.samples)
    chunks = (*(1 for _ in spec.axes), chunk)
    declared = {response.name: response for response in circuit.responses_declared}
    common: dict[str, Any] = {"shape": shape, "chunks": chunks, "dimension_names": spec.dims}
    group.create_array(
        "status",
        dtype="int8",
        fill_value=int(Status.NOT_RUN),
        attributes={
            "long_name": "outcome of the sample",
            "flag_values": [int(each) for each in Status],
            "flag_meanings": " ".join(each.label for each in Status),
        },
        **common,
    )
    group.create_array(
        "reason",
        dtype="string",
        fill_value="",
        attributes={"long_name": "why the sample is not ok"},
        **common,
    )
    for name in spec.responses:
        attributes: dict[str, Any] = {
            "units": declared[name].unit,
            "long_name": declared[name].meaning,
        }
        group.create_array(
            name, dtype="float64", fill_value=float("nan"), attributes=attributes, **common
        )
    if spec.engine == "fast":
        _declare_engine(group, spec, declared, common)
    for name, values in spec.axes.items():
        _declare_coordinate(group, name, values, spec.units[name], circuit)


def _declare_engine(
    group: zarr.Group,
    spec: SweepSpec,
    declared: Mapping[str, Response],
    common: Mapping[str, Any],
) -> None:
    group.create_array(
        "engine",
        dtype="int8",
        fill_value=int(EngineUsed.NGSPICE),
        attributes={
            "long_name": "what made the sample",
            "flag_values": [int(each) for each in EngineUsed],
            "flag_meanings": " ".join(each.name.lower() for each in EngineUsed),
        },
        **common,
    )
    for name in spec.responses:
        attributes: dict[str, Any] = {
            "units": declared[name].unit,
            "long_name": f"fast engine less ngspice, of audited samples: {declared[name].meaning}",
        }
        group.create_array(
            _audit(name), dtype="float64", fill_value=float("nan"), attributes=attributes, **common
        )


def _declare_coordinate(
    group: zarr.Group, name: str, values: tuple[Any, ...], unit: str, circuit: Circuit
) -> None:
    is_text = isinstance(values[0], str)
    data = np.array(values, dtype=object if is_text else None)
    attributes: dict[str, Any] = {"units": unit} if unit else {}
    field = circuit.Params.model_fields.get(name)
    if field is not None and field.description:
        attributes["long_name"] = field.description
    array = group.create_array(
        name,
        shape=data.shape,
        chunks=data.shape,
        dtype="string" if is_text else data.dtype,
        dimension_names=(name,),
        attributes=attributes,
    )
    array[...] = data


def _identity(spec: SweepSpec, circuit: Circuit) -> dict[str, Any]:
    """Attributes that say what the sweep is."""
    params = base_params(spec, circuit, spec.coordinates(0))
    return {
        "nandcosim_sweep": FORMAT,
        "spec": spec.canonical_json(),
        "spec_digest": spec.digest,
        "seed": spec.seed,
        "netlists": _netlist_digests(spec, circuit),
        # Defaults included: a changed default in the circuit is a changed sweep.
        "circuit_parameters": params.model_dump(mode="json"),
        "runs": [],
    }


def _netlist_digests(spec: SweepSpec, circuit: Circuit) -> dict[str, str]:
    """SHA-256 of every netlist file, by folder and file name (the rest differs by machine)."""
    paths: set[str] = set()
    for point in checked_points(spec.grid_shape):
        paths.update(circuit.files(base_params(spec, circuit, spec.coordinates(point))))
    digests = {}
    for path in sorted(paths):
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        digests["/".join(Path(path).parts[-2:])] = hashlib.sha256(content).hexdigest()
    return digests


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


def _status_counts(codes: np.ndarray) -> dict[str, int]:
    numbers = np.bincount(codes.ravel(), minlength=len(Status))
    return {each.label: int(numbers[each]) for each in Status}


def _bytes(block: np.ndarray) -> bytes:
    """Bytes of a block in C order and little endian; NaNs all alike, texts length-prefixed."""
    if block.dtype.kind == "f":
        return np.where(np.isnan(block), np.nan, block).astype("<f8").tobytes()
    if block.dtype.kind == "i":
        return block.tobytes()
    encoded = (str(text).encode() for text in block.ravel())
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def _lock(folder: int, path: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise NandcosimError(f"{path}: another process is running this sweep") from None
