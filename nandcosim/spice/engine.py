"""One sample: parameters and knobs in, a status and responses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.deck import Deck, build_deck
from nandcosim.spice.fast import FastModel
from nandcosim.spice.process import ProcessBackend
from nandcosim.spice.result import RawResult, Waveforms
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

__all__ = ["BACKENDS", "Backend", "BackendName", "Engine", "Outcome", "full_knobs"]

BackendName = Literal["shared", "process"]


class Backend(Protocol):
    """Contract of the two ways to run a deck; one test suite covers both."""

    name: str
    can_alter: bool

    def run(
        self, deck: Deck, alter: Mapping[str, float] | None = None, time_limit: float = 60.0
    ) -> RawResult: ...

    def close(self) -> None: ...

    def version(self) -> str: ...


BACKENDS: dict[str, type[SharedBackend] | type[ProcessBackend]] = {
    "shared": SharedBackend,
    "process": ProcessBackend,
}


@dataclass(frozen=True)
class Outcome:
    """One sample.

    Attributes
    ----------
    status : Status
    reason : str
        One line; empty when the status is OK.
    responses : dict of str to float
        Every wanted response; NaN where it is undefined or the run failed.
    waveforms : Waveforms
    cpu_seconds : float
        CPU time inside ngspice's analysis.
    """

    status: Status
    reason: str
    responses: dict[str, float]
    waveforms: Waveforms
    cpu_seconds: float = 0.0


class Engine:
    """Simulates samples of circuits on one backend.

    Parameters
    ----------
    backend : {"shared", "process"}
    time_limit : float
        Wall seconds a run may take.

    Raises
    ------
    InputError
        If the backend is unknown.
    """

    def __init__(self, backend: BackendName = "shared", time_limit: float = 60.0) -> None:
        if backend not in BACKENDS:
            raise InputError(f"backend: found {backend!r}, allowed are {', '.join(BACKENDS)}")
        self._backend: Backend = BACKENDS[backend]()
        self._time_limit = time_limit
        self._cache: tuple[tuple[type[Circuit], Any, frozenset[str] | None], Deck] | None = None

    def sample(
        self,
        circuit: Circuit,
        params: Any,
        knobs: Mapping[str, np.ndarray] | None = None,
        wanted: frozenset[str] | None = None,
    ) -> Outcome:
        """Simulate one sample.

        Parameters
        ----------
        circuit : Circuit
        params : Params
        knobs : Mapping of str to ndarray, optional
            Knob name -> values in the knob's unit, shape (size,); a missing knob is zero.
        wanted : frozenset of str, optional
            Responses to measure; all by default. Fewer may let the run stop early.

        Returns
        -------
        Outcome
        """
        knobs = full_knobs(circuit, params, knobs)
        if self._backend.can_alter:
            deck = self._nominal_deck(circuit, params, wanted)
            raw = self._backend.run(deck, circuit.elements(params, knobs), self._time_limit)
        else:
            deck = build_deck(circuit, params, knobs, wanted)
            raw = self._backend.run(deck, None, self._time_limit)
        return measure(circuit, params, raw, wanted)

    def fast(self, circuit: Circuit, params: Any) -> FastModel | None:
        """The circuit's fast model, if it has one; ngspice measures what it needs."""
        return circuit.fast(params, self._backend)

    def close(self) -> None:
        """Release the backend."""
        self._backend.close()

    def _nominal_deck(self, circuit: Circuit, params: Any, wanted: frozenset[str] | None) -> Deck:
        key = (type(circuit), params, wanted)
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, build_deck(circuit, params, full_knobs(circuit, params), wanted))
        return self._cache[1]


def full_knobs(
    circuit: Circuit, params: Any, knobs: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Complete `knobs` with zeros and check the shapes.

    Raises
    ------
    InputError
        If a knob is unknown or has the wrong number of values.
    """
    given = dict(knobs or {})
    full = {}
    for knob in circuit.knobs:
        size = knob.size(params)
        values = np.asarray(given.pop(knob.name, np.zeros(size)), dtype=float).ravel()
        if values.shape != (size,):
            raise InputError(
                f"{circuit.name}: knob {knob.name!r} got {values.size} values, expected {size}"
            )
        full[knob.name] = values
    if given:
        known = ", ".join(k.name for k in circuit.knobs) or "none"
        raise InputError(f"{circuit.name}: unknown knob {sorted(given)[0]!r}; known are {known}")
    return full


def measure(
    circuit: Circuit, params: Any, raw: RawResult, wanted: frozenset[str] | None
) -> Outcome:
    """Turn a run into responses; a response that must exist and does not fails the sample."""
    declared = [r for r in circuit.responses_declared if wanted is None or r.name in wanted]
    missing = {r.name: float("nan") for r in declared}
    if raw.status is not Status.OK:
        return Outcome(raw.status, raw.reason, missing, raw.waveforms, raw.cpu_seconds)
    measured = circuit.responses(raw.waveforms, params)
    responses = {r.name: float(measured[r.name]) for r in declared}
    undefined = [r.name for r in declared if not r.optional and not np.isfinite(responses[r.name])]
    if undefined:
        reason = f"response {', '.join(undefined)} is undefined on this waveform"
        return Outcome(Status.UNDEFINED_RESPONSE, reason, responses, raw.waveforms, raw.cpu_seconds)
    return Outcome(Status.OK, "", responses, raw.waveforms, raw.cpu_seconds)
