"""One sample of a sweep made again, alone: its deck, its waveforms, what it measures.

It runs the way the sweep ran it, in a child process, so that a sample that crashes the
library or hangs says so again and takes nothing with it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from nandcosim.errors import InputError
from nandcosim.spice.circuit import Circuit, Marks, Params
from nandcosim.spice.engine import BackendName
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status
from nandcosim.sweep.alone import DECK, WAVEFORMS, load_waveforms, observe
from nandcosim.sweep.chunk import Chunk, EngineUsed, Job
from nandcosim.sweep.plan import chosen_scores
from nandcosim.sweep.registry import load_circuit
from nandcosim.sweep.simulation import SampleResult, drawn
from nandcosim.sweep.spec import Scalar
from nandcosim.sweep.store import SweepStore
from nandcosim.sweep.verification import require_complete

__all__ = ["Reproduced", "reproduce"]


@dataclass(frozen=True)
class Reproduced:
    """A sample made again.

    Attributes
    ----------
    store : Path
    sample : int
        Its flat number.
    circuit : Circuit
    coordinates : dict of str to Scalar
        Axis values of its grid point.
    params : Params or None
        None if what was drawn is out of the circuit's bounds.
    knobs : dict of str to ndarray
        Values in each knob's unit.
    stored, found : SampleResult
        What the store holds, and what came out now.
    by_fast_engine : bool
        Whether the stored responses are the fast engine's; those found are always ngspice's.
    deck : Path or None
        For ``ngspice -b``, with the knobs in place; None if it could not be built.
    waveforms_file : Path or None
        netCDF; None if there are no waveforms.
    waveforms : Waveforms or None
    """

    store: Path
    sample: int
    circuit: Circuit
    coordinates: dict[str, Scalar]
    params: Params | None
    knobs: dict[str, np.ndarray] = field(repr=False)
    stored: SampleResult
    found: SampleResult
    by_fast_engine: bool = False
    deck: Path | None = None
    waveforms_file: Path | None = None
    waveforms: Waveforms | None = field(default=None, repr=False)

    @property
    def same(self) -> bool:
        """False if the store holds another outcome; responses are compared bit by bit."""
        if self.stored.status is Status.NOT_RUN:
            return True
        if self.stored.status is not self.found.status:
            return False
        return self.by_fast_engine or _bits(self.stored) == _bits(self.found)

    @property
    def title(self) -> str:
        """For a picture of the waveforms."""
        place = ", ".join(
            f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
            for name, value in self.coordinates.items()
        )
        return f"{self.circuit.name}, sample {self.sample}" + (f": {place}" if place else "")

    @property
    def marks(self) -> Marks:
        """What to mark in that picture."""
        return Marks() if self.params is None else self.circuit.marks(self.params)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it; None stands for a value that does not exist."""
        return {
            "store": str(self.store),
            "sample": self.sample,
            "circuit": self.circuit.name,
            "coordinates": self.coordinates,
            "knobs": {name: values.tolist() for name, values in self.knobs.items()},
            "stored": _plain(self.stored),
            "found": _plain(self.found),
            "same": self.same,
            "deck": None if self.deck is None else str(self.deck),
            "waveforms": None if self.waveforms_file is None else str(self.waveforms_file),
        }


def _plain(result: SampleResult) -> dict[str, Any]:
    responses = {
        name: None if np.isnan(value) else value for name, value in result.responses.items()
    }
    return {"status": result.status.label, "reason": result.reason, "responses": responses}


def _bits(result: SampleResult) -> dict[str, str]:
    """Responses that have a value, exactly."""
    return {name: float(v).hex() for name, v in result.responses.items() if not np.isnan(v)}


def reproduce(
    store: str | os.PathLike[str],
    sample: int,
    out: str | os.PathLike[str],
    *,
    backend: BackendName | None = None,
    time_limit: float = 60.0,
) -> Reproduced:
    """Make one sample of a store again.

    Parameters
    ----------
    store : path
    sample : int
        Flat number of the sample, ``point * spec.samples + k``, as `status` tells it.
    out : path
        Folder for ``deck.cir`` and ``waveforms.nc``; made if it does not exist.
    backend : {"shared", "process"}, optional
        Default: that of the store's last run.
    time_limit : float
        Seconds the run may take.

    Raises
    ------
    InputError
        If there is no such sample, or a netlist or the circuit has changed since.
    SimulationError
        If the run cannot be started.
    """
    held = SweepStore.open(store)
    spec, circuit = held.spec, load_circuit(held.spec.circuit)
    held.require_same(spec, circuit)
    if not 0 <= sample < spec.points * spec.samples:
        raise InputError(f"sample: found {sample}, allowed: 0 to {spec.points * spec.samples - 1}")
    point, k = divmod(sample, spec.samples)
    asked = int(held.wanted()[point])
    if k >= asked:
        raise InputError(
            f"sample {sample}: its plan has not asked for it; of that grid point it asked for "
            f"{asked} samples from {point * spec.samples} on"
        )
    require_complete(held)
    scores = chosen_scores(held, circuit, point, (k,))
    runs = held.attributes["runs"]
    chosen = backend or (runs[-1]["backend"] if runs else "shared")
    job = Job(spec.canonical_json(), Chunk(point, k, k + 1, (k,)), chosen, time_limit, {}, scores)
    params: Params | None = None
    knobs: dict[str, np.ndarray] = {}
    with contextlib.suppress(ValidationError):  # which is the sample's outcome
        params, knobs = drawn(job, k)
    folder = Path(out)
    _prepare(folder)
    stored, by_fast_engine = _stored(held, point, k)
    made = Reproduced(
        held.path, sample, circuit, spec.coordinates(point), params, knobs,
        stored, observe(job, folder), by_fast_engine,
    )  # fmt: skip
    if (folder / DECK).exists():
        made = replace(made, deck=folder / DECK)
    if (folder / WAVEFORMS).exists():
        file = folder / WAVEFORMS
        made = replace(made, waveforms_file=file, waveforms=load_waveforms(file))
    return made


def _prepare(folder: Path) -> None:
    """Make the folder; what an earlier reproduction left must not be taken for this one's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (DECK, WAVEFORMS):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None


def _stored(store: SweepStore, point: int, k: int) -> tuple[SampleResult, bool]:
    spec = store.spec
    names = ["reason", *spec.responses, *(["engine"] if spec.engine == "fast" else [])]
    codes, values = store.outcomes(point, names, k + 1)
    responses = {name: float(values[name][k]) for name in spec.responses}
    by_fast_engine = spec.engine == "fast" and values["engine"][k] == EngineUsed.FAST
    return SampleResult(Status(codes[k]), str(values["reason"][k]), responses), by_fast_engine
