"""What a circuit is to this package: parameters, a deck, knobs, responses.

A circuit is a class registered in the entry-point group ``nandcosim.circuits``;
ours live in the import package ``circuits``, and a user's own package adds
hers the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from nandcosim.errors import InputError

if TYPE_CHECKING:
    from PySpice.Spice.Netlist import Circuit as Netlist

    from nandcosim.spice.engine import Backend, Engine
    from nandcosim.spice.fast import FastModel
    from nandcosim.spice.result import Waveforms

__all__ = [
    "Analysis",
    "Circuit",
    "DcSweep",
    "Knob",
    "Marks",
    "Params",
    "Response",
    "StopWhen",
    "SweptSource",
    "Transient",
    "parameter",
]


def parameter(
    default: Any, *, unit: str, meaning: str, source: str, ge: Any = None, le: Any = None
) -> Any:
    """Declare one circuit parameter inside a `Params` class.

    Parameters
    ----------
    default : Any
        Value used when none is given.
    unit : str
        SI unit of the bare number; ``"1"`` for pure numbers, ``"level"`` for level spacings,
        ``""`` for text.
    meaning : str
        One line.
    source : str
        Starts with ``stated:``, ``derived:``, ``sourced:``, ``assumed:`` or ``calibrated:``.
    ge, le : optional
        Inclusive bounds.
    """
    extra: dict[str, Any] = {"unit": unit, "source": source}
    return Field(default, ge=ge, le=le, description=meaning, json_schema_extra=extra)


class Params(BaseModel):
    """Typed, immutable parameters of a circuit; fields are made by `parameter`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def unit_of(cls, name: str) -> str:
        """Unit that the parameter `name` declares."""
        return str(_extra(cls.model_fields[name])["unit"])

    @classmethod
    def source_of(cls, name: str) -> str:
        """Origin of the default of the parameter `name`."""
        return str(_extra(cls.model_fields[name])["source"])


def _extra(info: FieldInfo) -> dict[str, Any]:
    assert isinstance(info.json_schema_extra, dict)
    return dict(info.json_schema_extra)


@dataclass(frozen=True)
class Knob:
    """A quantity that a Monte Carlo sample changes without rebuilding the deck.

    Attributes
    ----------
    name : str
    unit : str
    meaning : str
    size : callable
        ``size(params) -> int``: number of values, 1 for a scalar.
    groups : Mapping[str, callable]
        Named subsets of a vector knob: ``groups["active"](params)`` gives an
        index array. ``"all"`` always exists.
    """

    name: str
    unit: str
    meaning: str
    size: Callable[[Any], int] = lambda params: 1
    groups: Mapping[str, Callable[[Any], np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """A number measured on the waveforms of one sample.

    Attributes
    ----------
    name, unit, meaning : str
    optional : bool
        NaN is then a measured fact (a bitline that never crossed) and not a failure.
    """

    name: str
    unit: str
    meaning: str
    optional: bool = False


@dataclass(frozen=True)
class Marks:
    """What a reader of the waveforms wants marked.

    Attributes
    ----------
    instants : Mapping of str to float
        Label -> time in s.
    levels : Mapping of str to float
        Label -> voltage in V.
    """

    instants: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StopWhen:
    """Vectors that must all have passed a value, ``StopWhen((("v(out)", ">", 0.7),))``.

    Not for ``time``: ngspice makes that a breakpoint of the solver, and the run would
    take other steps than one without the condition.
    """

    passed: tuple[tuple[str, Literal["<", ">"], float], ...]

    @property
    def command(self) -> str:
        """The ngspice command that arms it."""
        return "stop" + "".join(f" when {vec} {rel} {value!r}" for vec, rel, value in self.passed)

    def met(self, waveforms: Mapping[str, np.ndarray]) -> bool:
        """Whether the last point of the waveforms satisfies the condition."""
        return all(
            waveforms[vec][-1] < value if rel == "<" else waveforms[vec][-1] > value
            for vec, rel, value in self.passed
        )


@dataclass(frozen=True)
class Transient:
    """A transient analysis in seconds.

    Attributes
    ----------
    stop : float
        Stop time.
    step : float
        Printing step; also the initial internal step's scale.
    max_step : float
        Largest internal step.
    stop_when : StopWhen or None
        Ends the run early once the requested responses are known; a backend may ignore it.
    """

    stop: float
    step: float
    max_step: float
    stop_when: StopWhen | None = None

    #: How ngspice calls its results: the start of the plot's name, in memory and in a file.
    plot: ClassVar[tuple[str, str]] = ("tran", "Transient")

    @property
    def line(self) -> str:
        """The deck's line that asks for it."""
        return f".tran {self.step!r} {self.stop!r} 0 {self.max_step!r}"


@dataclass(frozen=True)
class SweptSource:
    """A source that a DC sweep steps.

    Attributes
    ----------
    name : str
        Voltage or current source as ngspice names it, e.g. ``"vd"``.
    start, stop : float
        First and last value in V or A.
    points : int
        Equally spaced values, both ends included; 1 for `start` alone.
    """

    name: str
    start: float
    stop: float
    points: int

    def __post_init__(self) -> None:
        if self.points < 1 or (self.points > 1 and self.start == self.stop):
            raise InputError(
                f"sweep of {self.name}: {self.points} points from {self.start:g} to {self.stop:g}"
            )

    @property
    def line(self) -> str:
        """Its part of a ``.dc`` line."""
        if self.points == 1:
            return f"{self.name} {self.start!r} {self.start!r} 1"
        step = (self.stop - self.start) / (self.points - 1)
        return f"{self.name} {self.start!r} {self.stop!r} {step!r}"


@dataclass(frozen=True)
class DcSweep:
    """Operating points at stepped source values; with one point, the operating point.

    Unlike a transient's first point, these heed no ``.ic``.

    Attributes
    ----------
    source : SweptSource
        Runs fastest.
    outer : SweptSource or None
        For each of its values `source` runs once; vectors reshape to
        ``(outer.points, source.points)``.
    """

    source: SweptSource
    outer: SweptSource | None = None

    plot: ClassVar[tuple[str, str]] = ("dc", "DC transfer")
    stop_when: ClassVar[None] = None

    @property
    def points(self) -> int:
        """Number of operating points."""
        return self.source.points * (self.outer.points if self.outer is not None else 1)

    @property
    def line(self) -> str:
        """The deck's line that asks for it."""
        sources = (self.source,) if self.outer is None else (self.source, self.outer)
        return " ".join([".dc", *(source.line for source in sources)])


Analysis = Transient | DcSweep


class Circuit(ABC):
    """A parameterised circuit.

    Subclasses set the class attributes and are stateless: every method is a
    pure function of its arguments.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Params: ClassVar[type[Params]]
    knobs: ClassVar[tuple[Knob, ...]]
    responses_declared: ClassVar[tuple[Response, ...]]
    #: Names of the responses that `fast` gives; empty where there is no fast model.
    fast_responses: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def build(self, params: Any, knobs: Mapping[str, np.ndarray] | None = None) -> Netlist:
        """Return the complete PySpice circuit, `knobs` (nominal: zeros) placed in it."""

    @abstractmethod
    def elements(self, params: Any, knobs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Element name -> value in SI units for everything that `knobs` change.

        `build` places exactly these values, so that an altered deck and a rebuilt
        one are the same circuit.
        """

    @abstractmethod
    def analysis(self, params: Any, wanted: frozenset[str] | None = None) -> Analysis:
        """The analysis; `wanted` names the responses that are asked for (None: all).

        The fewer are wanted, the earlier the run may stop.
        """

    @abstractmethod
    def saved(self, params: Any) -> tuple[str, ...]:
        """Vectors that the responses need, as ngspice names them (``v(bl)``, ``i(vdd)``)."""

    @abstractmethod
    def responses(self, waveforms: Waveforms, params: Any) -> dict[str, float]:
        """Measure every response; NaN where it is undefined on these waveforms."""

    def marks(self, params: Any) -> Marks:
        """Instants and levels to mark in a picture of the waveforms."""
        return Marks()

    def measures(self, params: Any) -> tuple[str, ...]:
        """``.meas`` lines for people who run the deck in batch mode."""
        return ()

    def calibrate(self, params: Any, engine: Engine, out: Path) -> dict[str, float]:
        """Find what the circuit's level map needs and write it to `out`.

        Raises
        ------
        InputError
            If the circuit has nothing to calibrate.
        """
        raise InputError(f"{self.name} has nothing to calibrate")

    def fast(self, params: Any, backend: Backend) -> FastModel | None:
        """A fast model of the circuit, what it needs measured with `backend`; None: has none."""
        return None

    def files(self, params: Any) -> tuple[str, ...]:
        """Paths of the netlist files the deck includes, for the digest of a sweep."""
        return ()
