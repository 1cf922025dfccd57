"""A product as parameters and knobs of the circuit of a unit, and its replay in ngspice."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nandcosim.audit.workers import sampled
from nandcosim.errors import InputError, SimulationError
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import BackendName, Engine
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit
from nandcosim.tables.table import CalibrationTable

__all__ = [
    "INPUTS",
    "UNIT",
    "Gate",
    "UnitReplay",
    "UnitReplayTask",
    "UnitResult",
    "measured_gate",
    "replay_units",
    "unit_params",
    "unit_settings",
]

UNIT, STRING = "cim_unit", "cim_string"

#: Responses of a simulation, the product at each input of the circuit.
INPUTS = ("y_x0", "y_x1", "y_x2", "y_x3")

#: Parameters that each product sets, and one that a unit has not.
_OF_A_PRODUCT = frozenset({"entry", "query", "states", "step", "weight"})


@dataclass(frozen=True)
class Gate:
    """The CAM layers of a run's strings, and what was set to suit them.

    Attributes
    ----------
    layers : str
    drops : dict of str to float
        Bitline above source line at the inputs 1 and 2 (V), so that the current of a
        string with these layers is in proportion to the input.
    gain : float
        Current of the nominal unit over that with the layers of the table: what a
        converter's reference takes off.
    """

    layers: str
    drops: dict[str, float]
    gain: float


@dataclass(frozen=True, eq=False)
class UnitReplay:
    """One product to be simulated.

    Attributes
    ----------
    weight, entry, query : int
    threshold : float array (8 cells,)
        Error of every cell's threshold in V, string after string.
    """

    weight: int
    entry: int
    query: int
    threshold: NDArray[np.float64]


@dataclass(frozen=True)
class UnitReplayTask:
    """Products that one process simulates after each other."""

    settings: dict[str, Any]
    products: tuple[UnitReplay, ...]
    backend: BackendName = "shared"
    time_limit: float = 60.0


@dataclass(frozen=True)
class UnitResult:
    """What the circuit found; NaN where the run failed.

    Attributes
    ----------
    currents : tuple of float
        Product at each of `INPUTS` (A).
    status : Status
    reason : str
    """

    currents: tuple[float, ...]
    status: Status
    reason: str


def unit_settings(table: CalibrationTable, states: int) -> dict[str, Any]:
    """Parameters of the unit as in the sweep behind the table of its strings.

    Raises
    ------
    InputError
        If the table does not tell its circuit's parameters.
    """
    recorded = table.dataset.attrs.get("circuit_parameters")
    if recorded is None:
        raise InputError(
            f"audit: table {table.circuit} does not tell its circuit's parameters, allowed: one "
            "made by nandcosim fit"
        )
    held = json.loads(recorded).items()
    kept = {name: v for name, v in held if v is not None and name not in _OF_A_PRODUCT}
    return kept | {"states": states}


def measured_gate(
    settings: dict[str, Any],
    layers: str,
    backend: BackendName = "shared",
    time_limit: float = 60.0,
) -> Gate:
    """Set the source line for other CAM layers than the table's, and measure their gain.

    Parameters
    ----------
    settings : dict
        Of `unit_settings`.
    layers : str
    backend : {"shared", "process"}
    time_limit : float

    Raises
    ------
    SimulationError
        If a run fails.
    """
    if layers == settings["layers"]:
        return Gate(layers, {}, 1.0)
    string = load_circuit(STRING)
    # as for the table, the levels are those of strings of the default number of states
    shared = {name: value for name, value in settings.items() if name != "states"}
    params = string.Params(**{**shared, "layers": layers})
    with (
        contextlib.closing(Engine(backend, time_limit)) as engine,
        tempfile.TemporaryDirectory() as folder,
    ):
        drops = string.calibrate(params, engine, Path(folder) / "levels.toml")
        own = _nominal(settings | drops | {"layers": layers}, engine)
        return Gate(layers, drops, own / _nominal(settings, engine))


def unit_params(settings: dict[str, Any], weight: int, entry: int, query: int) -> Any:
    """Parameters of the unit for one product."""
    one = {"weight": weight, "entry": entry, "query": query}
    return load_circuit(UNIT).Params(**settings, **one)


def replay_units(task: UnitReplayTask) -> list[tuple[UnitResult, ...]]:
    """Simulate products, each at every input."""
    circuit = load_circuit(UNIT)
    with contextlib.closing(Engine(task.backend, task.time_limit)) as engine:
        return [(_result(engine, task, circuit, product),) for product in task.products]


def _result(
    engine: Engine, task: UnitReplayTask, circuit: Circuit, product: UnitReplay
) -> UnitResult:
    params = unit_params(task.settings, product.weight, product.entry, product.query)
    knobs = {"threshold": product.threshold}
    outcome = sampled(engine, task, circuit, params, knobs, frozenset(INPUTS))
    currents = tuple(outcome.responses[name] for name in INPUTS)
    return UnitResult(currents, outcome.status, outcome.reason)


def _nominal(settings: dict[str, Any], engine: Engine) -> float:
    """Product of the largest weight and input without threshold errors (A)."""
    params = unit_params(settings, 2 * (settings["states"] - 1), 0, 0)
    outcome = engine.sample(load_circuit(UNIT), params, wanted=frozenset(INPUTS))
    if outcome.status is not Status.OK:
        raise SimulationError(f"audit: {outcome.status.label}: {outcome.reason}")
    return outcome.responses[INPUTS[-1]]
