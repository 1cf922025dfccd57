"""What arrays the store of a sweep has, and how they are cut into files.

Every array over samples has the shape (axes..., samples) and the same chunks, and a chunk is
one file. In C order over the whole array a sample has the flat number
``K = point * spec.samples + k``, and each chunk is a run of consecutive flat numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from nandcosim.spice.circuit import Circuit, Response
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import EngineUsed
from nandcosim.sweep.spec import SweepSpec

__all__ = [
    "Region",
    "audit_name",
    "chunk_shape",
    "declare_arrays",
    "has_checksums",
    "regions",
    "sample_arrays",
    "slabs",
    "write_coordinate",
]

#: Samples of a chunk at most. A write replaces a whole chunk, which takes about 15 ms at
#: this size, once for every task of some seconds.
MAX_CHUNK = 10_000

#: Samples of a chunk over several grid points at most: each point is a write of its own.
MAX_SHARED_CHUNK = 1_000

#: Values read at a time where the whole store is read.
SLAB = 100_000


@dataclass(frozen=True)
class Region:
    """One chunk of an array over samples.

    Attributes
    ----------
    file : str
        Its file, relative to the array's folder.
    place : tuple of slice
    first, stop : int
        Its flat samples.
    """

    file: str
    place: tuple[slice, ...]
    first: int
    stop: int


def sample_arrays(spec: SweepSpec) -> tuple[str, ...]:
    """Arrays over samples, in the order of the store's digest; ``status`` is the first."""
    names = ["status", "reason", *spec.responses]
    if spec.engine == "fast":
        names += ["engine", *map(audit_name, spec.responses)]
    if spec.rare is not None:
        names += ["stage", "log_weight"]
    return tuple(names)


def audit_name(response: str) -> str:
    """Array of what the fast engine gave less what ngspice gave."""
    return f"audit_{response}"


# ----------------------------------------------------------------- chunks


def chunk_shape(spec: SweepSpec, chunk: int | None = None) -> tuple[int, ...]:
    """Shape of a chunk: up to `MAX_CHUNK` samples of a point, or a few small points together.

    Parameters
    ----------
    spec : SweepSpec
    chunk : int, optional
        Samples of one grid point that make a chunk, instead.
    """
    if chunk is not None:
        return (*(1 for _ in spec.axes), _whole_blocks(chunk, spec))
    shape = [_whole_blocks(_even(spec.samples, MAX_CHUNK), spec)]
    room = MAX_SHARED_CHUNK // spec.samples
    for length in reversed(spec.grid_shape):
        shape.insert(0, _even(length, max(1, room)))
        room = room // length if shape[0] == length else 1
    return tuple(shape)


def _even(length: int, most: int) -> int:
    """The length of the fewest equal parts that are no longer than `most`."""
    return math.ceil(length / math.ceil(length / most))


def _whole_blocks(chunk: int, spec: SweepSpec) -> int:
    """A chunk's length such that an audited sample is in the chunk of its block."""
    if spec.engine == "fast":
        chunk = spec.block * max(1, round(chunk / spec.block))
    return min(chunk, spec.samples)


def regions(array: Any) -> Iterator[Region]:
    """Chunks of an array over samples, in the order of their flat samples."""
    shape, chunks = array.shape, array.chunks
    starts = [range(0, length, step) for length, step in zip(shape, chunks, strict=True)]
    first = 0
    for corner in product(*starts):
        ends = [min(at + step, n) for at, step, n in zip(corner, chunks, shape, strict=True)]
        stop = first + math.prod(end - at for at, end in zip(corner, ends, strict=True))
        numbers = [str(at // step) for at, step in zip(corner, chunks, strict=True)]
        place = tuple(slice(at, end) for at, end in zip(corner, ends, strict=True))
        yield Region("/".join(["c", *numbers]), place, first, stop)
        first = stop


def slabs(array: Any) -> Iterator[tuple[Any, ...]]:
    """Selections of whole chunks, some `SLAB` values each, that cover an array in C order."""
    shape, chunks = array.shape, array.chunks
    depth = 0
    while math.prod(shape[depth + 1 :]) > SLAB:
        depth += 1
    each = chunks[depth] * math.prod(shape[depth + 1 :])
    step = chunks[depth] * max(1, SLAB // each)
    for index in np.ndindex(shape[:depth]):
        for start in range(0, shape[depth], step):
            yield (*index, slice(start, min(start + step, shape[depth])))


def has_checksums(array: Any) -> bool:
    """Whether every chunk is written with a checksum, so that none can be missing unseen."""
    return any(isinstance(codec, Crc32cCodec) for codec in array.metadata.codecs)


# ------------------------------------------------------------ declaration


def declare_arrays(
    group: zarr.Group, spec: SweepSpec, circuit: Circuit, chunk: int | None = None
) -> None:
    """Write the metadata of every array, and the coordinates; see `chunk_shape`."""
    declared = {response.name: response for response in circuit.responses_declared}
    shape, chunks = (*spec.grid_shape, spec.samples), chunk_shape(spec, chunk)
    for name in sample_arrays(spec):
        _create(group, name, shape, chunks, spec.dims, **_described(name, declared))
    if spec.planned:
        _create(
            group, "wanted", spec.grid_shape, spec.grid_shape, tuple(spec.axes),
            dtype="int64", fill_value=0, attributes={"long_name": "samples asked for so far"},
        )  # fmt: skip
    for name in spec.axes:
        _declare_coordinate(group, name, spec, circuit)


def _create(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dims: tuple[str, ...],
    **kind: Any,
) -> Any:
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dimension_names=dims,
        compressors=[ZstdCodec(), Crc32cCodec()],
        config={"write_empty_chunks": True},
        **kind,
    )


def _described(name: str, declared: Mapping[str, Response]) -> dict[str, Any]:
    """Type, fill value and attributes of an array over samples."""
    if name in _BOOKKEEPING:
        return _BOOKKEEPING[name]
    if name in declared:
        return _number(declared[name].unit, declared[name].meaning)
    response = declared[name.removeprefix(audit_name(""))]
    meaning = f"fast engine less ngspice, of audited samples: {response.meaning}"
    return _number(response.unit, meaning)


def _flags(meaning: str, labels: Mapping[int, str], fill: int) -> dict[str, Any]:
    attributes = {
        "long_name": meaning,
        "flag_values": list(labels),
        "flag_meanings": " ".join(labels.values()),
    }
    return {"dtype": "int8", "fill_value": int(fill), "attributes": attributes}


def _number(unit: str, meaning: str) -> dict[str, Any]:
    attributes = {"units": unit, "long_name": meaning}
    return {"dtype": "float64", "fill_value": float("nan"), "attributes": attributes}


#: Arrays over samples that are no numbers of the circuit.
_BOOKKEEPING: dict[str, dict[str, Any]] = {
    "status": _flags(
        "outcome of the sample", {int(each): each.label for each in Status}, Status.NOT_RUN
    ),
    "reason": {
        "dtype": "string",
        "fill_value": "",
        "attributes": {"long_name": "why the sample is not ok"},
    },
    "engine": _flags(
        "what made the sample",
        {int(each): each.name.lower() for each in EngineUsed},
        EngineUsed.NGSPICE,
    ),
    "stage": {
        "dtype": "int8",
        "fill_value": -1,
        "attributes": {"long_name": "stage of the plan, -1 where it has not come to the sample"},
    },
    "log_weight": _number("1", "natural logarithm of the sample's weight"),
}


def _declare_coordinate(group: zarr.Group, name: str, spec: SweepSpec, circuit: Circuit) -> None:
    values, unit = spec.axes[name], spec.units[name]
    attributes: dict[str, Any] = {"units": unit} if unit else {}
    field = circuit.Params.model_fields.get(name)
    if field is not None and field.description:
        attributes["long_name"] = field.description
    shape = (len(values),)
    dtype = "string" if isinstance(values[0], str) else np.array(values).dtype
    array = _create(group, name, shape, shape, (name,), dtype=dtype, attributes=attributes)
    write_coordinate(array, values)


def write_coordinate(array: Any, values: tuple[Any, ...]) -> None:
    """Write the values of an axis."""
    array[...] = np.array(values, dtype=object if isinstance(values[0], str) else None)
