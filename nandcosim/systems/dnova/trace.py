"""What a batch of queries activates, sub-block by sub-block, in each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.hardware import HardwareFields, spread
from nandcosim.systems.dnova.mapping import Touches

__all__ = ["Trace", "activity_of", "random_trace", "refuse_axes", "uniform_trace"]

#: Fields of the search that time and energy depend on.
_SEARCH_FIELDS = ("latch_bits", "nprobe", "k2", "k1")


@dataclass(frozen=True, eq=False)
class Trace:
    """Activations of a batch of queries.

    Attributes
    ----------
    stages : three Touches
        Sub-blocks and vectors of each query in stages 1, 2, 3.
    m : three int
        Wordlines driven at once in each stage.
    dimension : int
        Components of a vector.

    Raises
    ------
    InputError
        If there are not three stages of as many queries, or no query.
    """

    stages: tuple[Touches, Touches, Touches]
    m: tuple[int, int, int]
    dimension: int

    def __post_init__(self) -> None:
        counts = [stage.offsets.size - 1 for stage in self.stages]
        if len(counts) != 3 or len(self.m) != 3 or len(set(counts)) != 1 or counts[0] < 1:
            raise InputError(
                f"trace: stages of {counts} queries with m = {self.m}, "
                "allowed: three of each, for the same number of queries, at least 1"
            )

    @property
    def nq(self) -> int:
        """Queries."""
        return int(self.stages[0].offsets.size) - 1

    def activity(self, config: HardwareFields) -> xr.Dataset:
        """What `nandcosim.systems.dnova.cost` takes, at a configuration without axes.

        Raises
        ------
        InputError
            If `config` has an axis that matters, or a vector does not fit a die.
        """
        refuse_axes(config)
        serial = config.schedule == "serial"
        groups = 1 if serial else int(spread(self.dimension, config))
        counts = {
            "activations": np.stack([stage.counts() for stage in self.stages], axis=1),
            "busiest": np.stack([stage.busiest(groups) for stage in self.stages], axis=1),
            "sensed": np.stack([stage.scored() for stage in self.stages], axis=1),
        }
        return activity_of(counts, self.m, self.dimension)


def uniform_trace(
    nq: int,
    subblocks: Sequence[ArrayLike],
    vectors: Sequence[int],
    m: tuple[int, int, int],
    dimension: int,
) -> Trace:
    """Queries that all activate the same sub-blocks.

    Parameters
    ----------
    nq : int
    subblocks : three int arrays
        Sub-blocks by stage.
    vectors : three int
        Vectors in each of them, by stage.
    m, dimension
        As in `Trace`.
    """
    return Trace(
        tuple(
            _touches(np.tile(np.sort(numbers), (nq, 1)), scored)
            for numbers, scored in zip(subblocks, vectors, strict=True)
        ),  # type: ignore[arg-type]  # checked there
        m,
        dimension,
    )


def random_trace(
    nq: int,
    activations: tuple[int, int, int],
    vectors: Sequence[int],
    m: tuple[int, int, int],
    dimension: int,
    *,
    subblocks: int,
    seed: int,
) -> Trace:
    """Queries that activate as many sub-blocks each, drawn at random.

    Parameters
    ----------
    nq : int
    activations : three int
        Sub-blocks a query, by stage: the first ones in stage 1, any of the index in stage 2,
        some of those in stage 3.
    vectors, m, dimension
        As in `uniform_trace`.
    subblocks : int
        Sub-blocks of the index.
    seed : int

    Raises
    ------
    InputError
        If stage 2 has more activations than the index sub-blocks, or less than stage 3.
    """
    first, coarse, fine = activations
    if not fine <= coarse <= subblocks:
        raise InputError(
            f"trace: activations = {activations} of {subblocks} sub-blocks, "
            "allowed: no more in stage 3 than in stage 2, nor there than sub-blocks"
        )
    rng = np.random.default_rng(seed)
    drawn = rng.permuted(np.tile(np.arange(subblocks), (nq, 1)), axis=1)[:, :coarse]
    numbers = (np.tile(np.arange(first), (nq, 1)), drawn, drawn[:, :fine])
    stages = tuple(
        _touches(np.sort(each, axis=1), scored)
        for each, scored in zip(numbers, vectors, strict=True)
    )
    return Trace(stages, m, dimension)  # type: ignore[arg-type]  # checked there


def activity_of(
    counts: Mapping[str, NDArray[np.int64]], m: tuple[int, int, int], dimension: int
) -> xr.Dataset:
    """Counts of each query and stage, (nq, 3), as an activity."""
    variables = {name: (("query", "stage"), values) for name, values in counts.items()}
    activity = xr.Dataset(variables, coords={"stage": [1, 2, 3]})
    activity["m"] = ("stage", list(m))
    return activity.assign_attrs(dimension=dimension)


def refuse_axes(config: HardwareFields) -> None:
    """Refuse a configuration that is more than one, in what time and energy depend on.

    Raises
    ------
    InputError
        Names the axes.
    """
    known = {*HardwareFields.model_fields, *_SEARCH_FIELDS}
    axes = [name for name in config.axes if name in known]
    if axes:
        raise InputError(
            f"dnova: the trace and its simulation have the axes {', '.join(axes)}, "
            "allowed: one value a field"
        )


def _touches(numbers: NDArray[np.int64], vectors: int) -> Touches:
    """The same number of sub-blocks a query, (nq, activations), with as many vectors each."""
    nq, count = numbers.shape
    return Touches(
        np.arange(nq + 1) * count, numbers.ravel(), np.full(nq * count, vectors, dtype=np.int64)
    )
