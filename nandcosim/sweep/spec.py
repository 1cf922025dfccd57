"""What a sweep is: an immutable `SweepSpec`, made by `nandcosim.sweep.parse` from a TOML file.

Every number of a `SweepSpec` is in the unit that the circuit declares. The text of
`SweepSpec.canonical_json` identifies the sweep: two files that mean the same have the
same digest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Strict, StrictBool, StrictInt, StrictStr

from nandcosim.spice.circuit import Circuit, Knob, Params
from nandcosim.sweep.distributions import DISTRIBUTIONS
from nandcosim.sweep.goals import Precision, RareEvent

__all__ = [
    "NumberOrText",
    "RandomVariable",
    "Scalar",
    "SweepSpec",
    "base_params",
    "checked_points",
    "knob_cells",
]

Scalar = bool | int | float | str

#: A number, or text: the name of an axis or a quantity. True is no number.
NumberOrText = Annotated[float, Strict()] | StrictStr

#: Grids up to this size are checked point by point before the sweep starts; of a
#: larger one, every value of every axis with the other axes at their first value.
MAX_CHECKED_POINTS = 10_000


class RandomVariable(BaseModel):
    """One ``[[random]]`` entry; texts among its numbers are names of axes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: StrictStr
    distribution: StrictStr
    cells: StrictStr | tuple[StrictInt, ...] = "all"
    correlation: NumberOrText = 0.0
    correlation_length: NumberOrText | None = None
    shared: StrictBool = False
    mean: NumberOrText | None = None
    std: NumberOrText | None = None
    median: NumberOrText | None = None
    log_std: NumberOrText | None = None
    low: NumberOrText | None = None
    high: NumberOrText | None = None
    scale: NumberOrText | None = None
    df: NumberOrText | None = None

    def values(self, coordinates: Mapping[str, Scalar]) -> dict[str, float]:
        """Parameters of the distribution at the grid point `coordinates`."""
        names = DISTRIBUTIONS[self.distribution].parameters
        return {name: _at(getattr(self, name), coordinates) for name in names}

    def correlation_at(self, coordinates: Mapping[str, Scalar]) -> float:
        """Correlation coefficient between any two cells at the grid point."""
        return _at(self.correlation, coordinates)

    def correlation_length_at(self, coordinates: Mapping[str, Scalar]) -> float | None:
        """Correlation length in cells at the grid point; None: not used."""
        if self.correlation_length is None:
            return None
        return _at(self.correlation_length, coordinates)


def _at(value: float | str, coordinates: Mapping[str, Scalar]) -> float:
    return float(coordinates[value] if isinstance(value, str) else value)


class SweepSpec(BaseModel):
    """A checked sweep; made by `nandcosim.sweep.load_spec` or `parse_spec`.

    Attributes
    ----------
    circuit : str
        Name that `load_circuit` understands.
    samples : int
        Samples at every grid point; the most of them, if the sweep is planned.
    seed : int
    sampler : str
        ``monte-carlo``, ``latin-hypercube`` or ``sobol``.
    common_random_numbers : bool
        Whether sample k draws the same scores at every grid point.
    responses : tuple of str
    parameters : dict
        Fixed circuit parameters in their declared units.
    axes : dict
        Axis name -> its values; the order is the order of the store's dimensions.
    units : dict
        Unit of every axis (``""`` for text).
    random : tuple of RandomVariable
    engine : str
        ``ngspice``, or ``fast``: the circuit's fast model, audited.
    audit : float
        Share of samples that ``fast`` also runs in ngspice.
    precision : Precision or None
    rare : RareEvent or None
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    circuit: str
    samples: int
    seed: int
    sampler: Literal["monte-carlo", "latin-hypercube", "sobol"]
    common_random_numbers: bool
    responses: tuple[str, ...]
    parameters: dict[str, Scalar]
    axes: dict[str, tuple[Scalar, ...]]
    units: dict[str, str]
    random: tuple[RandomVariable, ...]
    engine: Literal["ngspice", "fast"] = "ngspice"
    audit: float = 0.01
    precision: Precision | None = None
    rare: RareEvent | None = None

    @property
    def planned(self) -> bool:
        """Whether the results decide which samples are run: see `nandcosim.sweep.plan`."""
        return self.precision is not None or self.rare is not None

    @property
    def block(self) -> int:
        """Consecutive samples of a grid point that share one audited sample."""
        return min(round(1.0 / self.audit), self.samples)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the store's dimensions: the axes, then ``sample``."""
        return (*self.axes, "sample")

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Lengths of the axes; ``()`` for a single point."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def points(self) -> int:
        """Number of grid points."""
        return math.prod(self.grid_shape)

    def index(self, point: int) -> tuple[int, ...]:
        """Axis indices of the grid point number `point` (last axis fastest)."""
        return tuple(int(i) for i in np.unravel_index(point, self.grid_shape))

    def coordinates(self, point: int) -> dict[str, Scalar]:
        """Axis values of the grid point number `point`."""
        indices = self.index(point)
        return {
            name: values[i] for (name, values), i in zip(self.axes.items(), indices, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain dict in a fixed order, absent values left out.

        So is the default engine: a sweep from before there was another keeps its digest.
        """
        default = {"engine", "audit"} if self.engine == "ngspice" else None
        return self.model_dump(mode="json", exclude_none=True, exclude=default)

    def canonical_json(self) -> str:
        """The one text of this sweep."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical_json`, hexadecimal."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()


def base_params(
    spec: SweepSpec,
    circuit: Circuit,
    coordinates: Mapping[str, Scalar],
    drawn: Mapping[str, float] | None = None,
) -> Params:
    """Circuit parameters at a grid point.

    Parameters
    ----------
    spec : SweepSpec
    circuit : Circuit
    coordinates : Mapping
        Axis values, as `SweepSpec.coordinates` gives them.
    drawn : Mapping, optional
        Values of the random parameters; their defaults are used without it.

    Raises
    ------
    pydantic.ValidationError
        If a value is out of the circuit's bounds.
    """
    on_grid = {n: v for n, v in coordinates.items() if n in circuit.Params.model_fields}
    return circuit.Params(**{**spec.parameters, **on_grid, **(drawn or {})})


def knob_cells(knob: Knob, params: Params, cells: str | tuple[int, ...]) -> np.ndarray:
    """Indices of the cells of `knob` that a random variable applies to, shape (n,)."""
    if not isinstance(cells, str):
        return np.asarray(cells, dtype=np.intp)
    if cells in knob.groups:
        return np.asarray(knob.groups[cells](params), dtype=np.intp)
    return np.arange(knob.size(params))


def checked_points(grid_shape: tuple[int, ...]) -> Iterator[int]:
    """Grid points that stand for the whole grid in checks; see `MAX_CHECKED_POINTS`."""
    if math.prod(grid_shape) <= MAX_CHECKED_POINTS:
        yield from range(math.prod(grid_shape))
        return
    for axis, length in enumerate(grid_shape):
        stride = math.prod(grid_shape[axis + 1 :])
        yield from (i * stride for i in range(length))
