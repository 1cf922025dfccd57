"""From a TOML file to a `SweepSpec`, checked against its circuit.

Every mistake gets one line: file, key, what was found, what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit, Params
from nandcosim.sweep.distributions import DISTRIBUTIONS
from nandcosim.sweep.goals import Precision, RareEvent
from nandcosim.sweep.parse_goals import parse_precision, parse_rare
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.spec import (
    NumberOrText,
    RandomVariable,
    Scalar,
    SweepSpec,
    base_params,
    checked_points,
    knob_cells,
)
from nandcosim.toml import read_toml
from nandcosim.units import to_unit
from nandcosim.wording import first_mistake, readable, suggestion, unknown_key, unknown_value

__all__ = ["load_spec", "parse_spec"]

#: Names of the store that an axis must not take.
RESERVED_NAMES = ("sample", "status", "reason", "engine", "wanted", "stage", "log_weight")

#: Share of samples that the fast engine runs in both.
DEFAULT_AUDIT = 0.01

#: Largest number of scores (samples x dimensions) of one Latin hypercube design,
#: which must be held in memory as a whole: 2**27 doubles are 1 GiB.
MAX_DESIGN_SIZE = 2**27


class _SpecFile(BaseModel):
    """The file as written; meaning is checked afterwards, against the circuit."""

    model_config = ConfigDict(extra="forbid")

    circuit: StrictStr
    samples: StrictInt = Field(ge=1, le=2**30)
    seed: StrictInt = Field(ge=0, lt=2**64)
    sampler: Literal["monte-carlo", "latin-hypercube", "sobol"] = "monte-carlo"
    common_random_numbers: StrictBool = False
    responses: list[StrictStr] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, Any] = Field(default_factory=dict)
    random: list[RandomVariable] = Field(default_factory=list)
    engine: Literal["ngspice", "fast"] = "ngspice"
    audit: float | None = Field(default=None, gt=0, le=1)
    precision: dict[str, Any] | None = None
    rare: dict[str, Any] | None = None


class _Linspace(BaseModel):
    """The short form of an axis: ``{start, stop, num, spacing}``."""

    model_config = ConfigDict(extra="forbid")

    start: NumberOrText
    stop: NumberOrText
    num: StrictInt = Field(ge=1)
    spacing: Literal["linear", "log"] = "linear"


def load_spec(path: str | PathLike[str]) -> SweepSpec:
    """Read and check a sweep file.

    Parameters
    ----------
    path : path
        A TOML file.

    Raises
    ------
    InputError
        For the first mistake: one line with file, key, what was found, what is allowed.
    """
    return parse_spec(read_toml(path), where=str(path))


def parse_spec(document: Mapping[str, Any], where: str = "sweep") -> SweepSpec:
    """Check a sweep given as nested dicts, laid out like the TOML file.

    Parameters
    ----------
    document : Mapping
    where : str
        Names the source in error messages.

    Raises
    ------
    InputError
        For the first mistake, as in `load_spec`.
    """
    try:
        file = _SpecFile.model_validate(dict(document))
    except ValidationError as error:
        raise InputError(_one_line(error, where, _SpecFile)) from None
    try:
        circuit = load_circuit(file.circuit)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return _Checker(file, circuit, where).spec()


# ----------------------------------------------------------------- meaning


class _Checker:
    """Turns a `_SpecFile` into a `SweepSpec`, or raises the first mistake."""

    def __init__(self, file: _SpecFile, circuit: Circuit, where: str) -> None:
        self.file = file
        self.circuit = circuit
        self.where = where
        self.fields = circuit.Params.model_fields
        self.knobs = {knob.name: knob for knob in circuit.knobs}
        self.axis_units: dict[str, str] = {}

    def spec(self) -> SweepSpec:
        parameters = self._parameters()
        self._axis_names(parameters)
        raw_axes = self.file.axes
        random = tuple(self._random(i, each) for i, each in enumerate(self.file.random))
        for name in raw_axes:
            if name not in self.axis_units:
                allowed = sorted(self.fields)
                raise self._error(
                    f"axes.{name}",
                    f"is no parameter of {self.file.circuit!r} and no random variable uses it"
                    f"{suggestion(name, allowed)}; parameters: {', '.join(allowed)}",
                )
        axes = {name: self._axis(name, value) for name, value in raw_axes.items()}
        precision, rare = self._goals(axes)
        spec = SweepSpec(
            circuit=self.file.circuit,
            samples=self.file.samples,
            seed=self.file.seed,
            sampler=self.file.sampler,
            common_random_numbers=self.file.common_random_numbers,
            responses=self._responses(),
            parameters=parameters,
            axes=axes,
            units={name: self.axis_units[name] for name in axes},
            random=random,
            engine=self.file.engine,
            audit=DEFAULT_AUDIT if self.file.audit is None else self.file.audit,
            precision=precision,
            rare=rare,
        )
        self._check_engine(spec)
        for point in checked_points(spec.grid_shape):
            self._check_point(spec, point)
        return spec

    def _error(self, key: str, text: str) -> InputError:
        return InputError(f"{self.where}: {key}: {text}")

    def _check_engine(self, spec: SweepSpec) -> None:
        """The fast model must give all that is asked for, at fixed circuit parameters."""
        if spec.engine == "ngspice":
            if self.file.audit is not None:
                raise self._error("audit", "is for engine = 'fast' only")
            return
        able = sorted(self.circuit.fast_responses)
        if not able:
            raise self._error("engine", f"found 'fast', {spec.circuit!r} has no fast model")
        for name in spec.responses:
            if name not in able:
                raise self._error(
                    "responses", f"found {name!r}, allowed with engine = 'fast': {', '.join(able)}"
                )
        for i, entry in enumerate(spec.random):
            if entry.target in self.fields:
                raise self._error(
                    f"random[{i}].target",
                    f"found {entry.target!r}, allowed with engine = 'fast': "
                    f"{', '.join(self.knobs)}",
                )

    def _goals(
        self, axes: Mapping[str, tuple[Scalar, ...]]
    ) -> tuple[Precision | None, RareEvent | None]:
        """What the sweep asks for instead of a number of samples."""
        file = self.file
        given = [name for name in ("precision", "rare") if getattr(file, name) is not None]
        if not given:
            return None, None
        if len(given) > 1:
            raise self._error("precision", "is given and rare too; keep one of the two")
        (key,) = given
        # The size of a stratified design would have to be known beforehand.
        if file.sampler != "monte-carlo":
            raise self._error(
                "sampler", f"found {file.sampler!r}, allowed with {key}: 'monte-carlo'"
            )
        asked = self._responses()
        responses = {r.name: r for r in self.circuit.responses_declared if r.name in asked}
        if file.precision is not None:
            return parse_precision(file.precision, responses, axes, file.samples, self.where), None
        assert file.rare is not None
        if file.engine != "ngspice":
            raise self._error("engine", f"found {file.engine!r}, allowed with rare: 'ngspice'")
        if not file.random:
            raise self._error("random", "is missing; a rare event needs random variables")
        return None, parse_rare(file.rare, responses, self.where)

    def _responses(self) -> tuple[str, ...]:
        declared = [response.name for response in self.circuit.responses_declared]
        asked = self.file.responses
        if asked is None:
            return tuple(declared)
        if not asked:
            raise self._error("responses", f"is empty, allowed: {', '.join(declared)}")
        for name in asked:
            if name not in declared:
                raise self._error("responses", unknown_value(name, declared))
        if len(set(asked)) != len(asked):
            raise self._error("responses", f"found {asked}, a name is given twice")
        return tuple(asked)

    def _parameters(self) -> dict[str, Scalar]:
        converted = {}
        for name, value in sorted(self.file.parameters.items()):
            key = f"parameters.{name}"
            if name not in self.fields:
                raise self._error(key, unknown_key(name, self.fields))
            if name in self.file.axes:
                raise self._error(key, f"is also an axis (axes.{name}); keep one of the two")
            converted[name] = self._parameter_value(name, value, key)
        return converted

    def _parameter_value(self, name: str, value: Any, key: str) -> Scalar:
        """`value` in the declared unit of the circuit parameter `name`."""
        unit = self.circuit.Params.unit_of(name)
        if unit == "":
            if isinstance(value, (bool, int, float, str)):
                return value
            raise self._error(key, f"found {value!r}, expected a single value")
        number = self._quantity(value, unit, key)
        is_whole = number.is_integer() and not _accepts_real(self.fields[name].annotation)
        return int(number) if is_whole else number

    def _quantity(self, value: Any, unit: str, key: str) -> float:
        if not isinstance(value, (bool, int, float, str)):
            raise self._error(key, f"found {value!r}, expected a number or quantity in {unit}")
        number = to_unit(value, unit, f"{self.where}: {key}")
        if not math.isfinite(number):
            raise self._error(key, f"found {value!r}, expected a finite number")
        return number

    # -- axes

    def _axis_names(self, parameters: Mapping[str, Scalar]) -> None:
        taken = {*RESERVED_NAMES, *(each.name for each in self.circuit.responses_declared)}
        for name in self.file.axes:
            if name in taken:
                raise self._error(
                    f"axes.{name}", "this name is taken by a variable of the store; use another"
                )
            if name in self.fields:
                self.axis_units[name] = self.circuit.Params.unit_of(name)

    def _axis(self, name: str, raw: Any) -> tuple[Scalar, ...]:
        key = f"axes.{name}"
        if isinstance(raw, Mapping):
            raw = self._linspace(name, raw, key)
        if not isinstance(raw, list):
            raise self._error(
                key, f"found {raw!r}, expected a list of values or {{start, stop, num}}"
            )
        if not raw:
            raise self._error(key, "is empty, expected at least one value")
        values: dict[Scalar, None] = {}
        for value in raw:
            if name in self.fields:
                converted = self._parameter_value(name, value, key)
            else:
                converted = self._quantity(value, self.axis_units[name], key)
            if converted in values:
                raise self._error(key, f"{value!r} appears twice, expected distinct values")
            values[converted] = None
        if len({isinstance(value, (bool, str)) for value in values}) > 1:
            raise self._error(key, f"found {raw}, expected either all numbers or all text")
        return tuple(values)

    def _linspace(self, name: str, raw: Mapping[str, Any], key: str) -> list[float]:
        try:
            form = _Linspace.model_validate(dict(raw))
        except ValidationError as error:
            raise InputError(_one_line(error, self.where, _Linspace, prefix=key)) from None
        unit = self.axis_units[name]
        if unit == "":
            raise self._error(key, "is a text parameter, expected a list of values")
        start = self._quantity(form.start, unit, f"{key}.start")
        stop = self._quantity(form.stop, unit, f"{key}.stop")
        if form.spacing == "linear":
            return [float(value) for value in np.linspace(start, stop, form.num)]
        if start <= 0 or stop <= 0:
            raise self._error(key, f"log spacing from {start:g} to {stop:g}, expected both > 0")
        return [float(value) for value in np.geomspace(start, stop, form.num)]

    # -- random variables

    def _random(self, position: int, entry: RandomVariable) -> RandomVariable:
        key = f"random[{position}]"
        unit = self._target_unit(entry, key)
        if entry.distribution not in DISTRIBUTIONS:
            raise self._error(
                f"{key}.distribution", unknown_value(entry.distribution, DISTRIBUTIONS)
            )
        kinds = DISTRIBUTIONS[entry.distribution].parameters
        units = {"value": unit, "spread": _spread_unit(unit), "pure": "1"}
        update: dict[str, Any] = {}
        for name in _DISTRIBUTION_KEYS:
            value = getattr(entry, name)
            if name in kinds and value is None:
                raise self._error(
                    f"{key}.{name}",
                    f"is missing; {entry.distribution} needs {', '.join(kinds)}",
                )
            if name not in kinds and value is not None:
                raise self._error(
                    f"{key}.{name}",
                    f"is no parameter of {entry.distribution}, allowed: {', '.join(kinds)}",
                )
            if name in kinds:
                update[name] = self._number_or_axis(value, units[kinds[name]], f"{key}.{name}")
        for name in ("correlation", "correlation_length"):
            value = getattr(entry, name)
            if value is not None:
                update[name] = self._number_or_axis(value, "1", f"{key}.{name}")
        self._check_cells(entry, key)
        return entry.model_copy(update=update)

    def _target_unit(self, entry: RandomVariable, key: str) -> str:
        name = entry.target
        if name in self.knobs:
            return self.knobs[name].unit
        if name not in self.fields:
            raise self._error(
                f"{key}.target",
                unknown_value(name, [*self.knobs, *self.fields], kinds="knobs and parameters"),
            )
        if not _accepts_real(self.fields[name].annotation):
            raise self._error(
                f"{key}.target", f"{name!r} takes no real number, so it cannot be random"
            )
        for table in ("axes", "parameters"):
            if name in getattr(self.file, table):
                raise self._error(
                    f"{key}.target",
                    f"{name!r} is random and also given in {table}.{name}; keep one of the two",
                )
        return self.circuit.Params.unit_of(name)

    def _check_cells(self, entry: RandomVariable, key: str) -> None:
        if entry.target not in self.knobs:
            for name in ("cells", "correlation", "correlation_length", "shared"):
                if name in entry.model_fields_set:
                    raise self._error(
                        f"{key}.{name}",
                        f"the target {entry.target!r} is a parameter, which has no cells",
                    )
            return
        groups = ["all", *(g for g in self.knobs[entry.target].groups if g != "all")]
        if isinstance(entry.cells, str) and entry.cells not in groups:
            raise self._error(
                f"{key}.cells",
                unknown_value(entry.cells, groups, kinds="groups") + ", or a list of indices",
            )
        if not entry.cells:
            raise self._error(f"{key}.cells", "is empty, expected at least one index")
        if not isinstance(entry.cells, str) and len(set(entry.cells)) != len(entry.cells):
            raise self._error(f"{key}.cells", "an index is given twice, expected distinct indices")
        correlated = "correlation" in entry.model_fields_set and entry.correlation != 0
        if entry.shared and (correlated or entry.correlation_length is not None):
            raise self._error(
                f"{key}.shared", "one draw shared by all the cells has no correlation to set"
            )
        if correlated and entry.correlation_length is not None:
            raise self._error(
                f"{key}.correlation_length",
                "correlation is also given; use one, or two entries whose draws add up",
            )

    def _number_or_axis(self, value: float | str, unit: str, key: str) -> float | str:
        """A number in `unit`, or the name of an axis (which then gets this unit)."""
        if not (isinstance(value, str) and value in self.file.axes):
            if isinstance(value, str) and value.isidentifier():
                axes = ", ".join(self.file.axes) or "none"
                raise self._error(
                    key,
                    f"found {value!r}, expected a number, a quantity or an axis (axes: {axes})"
                    + suggestion(value, self.file.axes),
                )
            return self._quantity(value, unit, key)
        known = self.axis_units.setdefault(value, unit)
        if known == "":
            raise self._error(key, f"the axis {value!r} holds text, expected numbers")
        if known != unit:
            raise self._error(key, f"the axis {value!r} is in {known}, expected an axis in {unit}")
        return value

    # -- grid points

    def _check_point(self, spec: SweepSpec, point: int) -> None:
        coordinates = spec.coordinates(point)
        params = self._params(spec, coordinates)
        dimensions = 0
        for position, entry in enumerate(spec.random):
            key = f"random[{position}]"
            fault = DISTRIBUTIONS[entry.distribution].fault(entry.values(coordinates))
            if fault:
                raise self._error(key, fault + _used_axes(entry, coordinates))
            if entry.target in self.knobs:
                dimensions += self._check_knob(entry, params, coordinates, key)
            else:
                dimensions += 1
                self._check_median(spec, entry, coordinates, key)
        self._check_design(spec, dimensions)

    def _params(self, spec: SweepSpec, coordinates: Mapping[str, Scalar]) -> Params:
        try:
            return base_params(spec, self.circuit, coordinates)
        except ValidationError as error:
            name, found, message = first_mistake(error)
            if name in spec.axes:
                key = f"axes.{name}"
            elif name in spec.parameters:
                key = f"parameters.{name}"
            else:
                given = {**spec.parameters, **coordinates}
                settings = ", ".join(f"{k} = {v}" for k, v in given.items())
                raise self._error("parameters", f"{message} (at {settings})") from None
            raise self._error(key, f"found {found!r}, {message}") from None

    def _check_knob(
        self, entry: RandomVariable, params: Params, coordinates: Mapping[str, Scalar], key: str
    ) -> int:
        knob = self.knobs[entry.target]
        size = knob.size(params)
        if not isinstance(entry.cells, str):
            outside = [i for i in entry.cells if not 0 <= i < size]
            if outside:
                raise self._error(f"{key}.cells", f"found {outside[0]}, allowed: 0 to {size - 1}")
        count = len(knob_cells(knob, params, entry.cells))
        rho = entry.correlation_at(coordinates)
        lowest = -1.0 / (count - 1) if count > 1 else -1.0
        if not lowest <= rho <= 1.0:
            raise self._error(
                f"{key}.correlation",
                f"found {rho:g}, allowed for {count} cells: {lowest:.6g} to 1"
                + _used_axes(entry, coordinates),
            )
        length = entry.correlation_length_at(coordinates)
        if length is not None and length <= 0:
            raise self._error(f"{key}.correlation_length", f"found {length:g}, allowed: > 0")
        return 1 if entry.shared else size

    def _check_median(
        self,
        spec: SweepSpec,
        entry: RandomVariable,
        coordinates: Mapping[str, Scalar],
        key: str,
    ) -> None:
        """A random parameter whose entries' medians add up to a forbidden value is a mistake."""
        middle = sum(
            float(DISTRIBUTIONS[e.distribution].quantile(np.zeros(1), e.values(coordinates))[0])
            for e in spec.random
            if e.target == entry.target
        )
        try:
            base_params(spec, self.circuit, coordinates, {entry.target: middle})
        except ValidationError as error:
            _, found, message = first_mistake(error)
            raise self._error(
                key, f"the median of {entry.target!r} is {found!r}, {message}"
            ) from None

    def _check_design(self, spec: SweepSpec, dimensions: int) -> None:
        total = spec.points * spec.samples
        if total > MAX_SAMPLES:
            raise self._error(
                "samples",
                f"found {spec.samples} at each of {spec.points} grid points, allowed are "
                f"{MAX_SAMPLES:,} in all",
            )
        if spec.sampler == "latin-hypercube" and spec.samples * dimensions > MAX_DESIGN_SIZE:
            raise self._error(
                "samples",
                f"found {spec.samples} x {dimensions} random dimensions, allowed for a Latin "
                f"hypercube: {MAX_DESIGN_SIZE // dimensions} samples; use sobol or monte-carlo",
            )
        if spec.sampler == "sobol" and dimensions > MAX_SOBOL_DIMENSIONS:
            raise self._error(
                "sampler",
                f"{dimensions} random dimensions, allowed for sobol: {MAX_SOBOL_DIMENSIONS}",
            )


#: Samples of one store; their statuses alone then take 100 MB.
MAX_SAMPLES = 10**8

#: Direction numbers that scipy.stats.qmc.Sobol has (its MAXDIM).
MAX_SOBOL_DIMENSIONS = 21201

_DISTRIBUTION_KEYS = ("mean", "std", "median", "log_std", "low", "high", "scale", "df")


def _accepts_real(annotation: Any) -> bool:
    """Whether a parameter annotated so takes any real number: ``float``, ``float | None``."""
    return annotation is float or float in get_args(annotation)


# ------------------------------------------------------------ error texts


def _spread_unit(unit: str) -> str:
    """Unit of a difference: a temperature spread in degC is no temperature."""
    return {"degC": "delta_degC", "degF": "delta_degF"}.get(unit, unit)


def _used_axes(entry: RandomVariable, coordinates: Mapping[str, Scalar]) -> str:
    names = [v for v in entry.model_dump().values() if isinstance(v, str) and v in coordinates]
    return "".join(f" (from axes.{name})" for name in dict.fromkeys(names))


def _one_line(error: ValidationError, where: str, model: type[BaseModel], prefix: str = "") -> str:
    """The first error of a pydantic model in the form ``file: key: found ..., allowed ...``."""
    # A union reports each of its branches; an unknown key is the clearer news.
    details = error.errors(include_url=False)
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    loc = list(first["loc"])
    key = prefix
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            key += f"[{part}]"
        elif depth == 0 or isinstance(loc[depth - 1], int) or first["type"] == "extra_forbidden":
            key += f".{part}" if key else str(part)
    if first["type"] == "extra_forbidden":
        owner = RandomVariable if loc[0] == "random" and len(loc) > 1 else model
        return f"{where}: {key}: {unknown_key(str(loc[-1]), owner.model_fields)}"
    if first["type"] == "missing":
        return f"{where}: {key}: is missing"
    message = readable(first["msg"])
    return f"{where}: {key}: found {first['input']!r}, {message}"
