"""What every audit does around its replays: arguments, progress, tasks, provenance."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import xarray as xr

from nandcosim import __version__
from nandcosim.audit.workers import run_tasks
from nandcosim.errors import InputError
from nandcosim.progress import Progress, ProgressCallback, show_progress
from nandcosim.spice.engine import BACKENDS
from nandcosim.spice.status import Status
from nandcosim.sweep.provenance import host, versions
from nandcosim.systems.config import SystemConfig
from nandcosim.tables.table import CalibrationTable

__all__ = [
    "READS_A_TASK",
    "check_arguments",
    "describe",
    "one_point",
    "provenance",
    "replay_in_order",
    "shown",
]

#: Reads a task; a task has one deck, where there are enough reads of it.
READS_A_TASK = 24

_Config = TypeVar("_Config", bound=SystemConfig)
_Replay = TypeVar("_Replay")
_Task = TypeVar("_Task")


class _Simulated(Protocol):
    @property
    def status(self) -> Status: ...


_Result = TypeVar("_Result", bound=_Simulated)


def check_arguments(samples: int, backend: str, workers: int | None) -> None:
    """Refuse what no audit can do.

    Raises
    ------
    InputError
    """
    for name, value in (("samples", samples), ("workers", workers)):
        if value is not None and value < 1:
            raise InputError(f"audit: {name} = {value}, allowed: 1 or more")
    if backend not in BACKENDS:
        raise InputError(f"audit: backend = {backend!r}, allowed: {', '.join(BACKENDS)}")


def one_point(config: _Config, what: str, **chosen: Any) -> _Config:
    """The configuration of one run: of a field whose default is an axis, the last value.

    Parameters
    ----------
    config : SystemConfig
    what : str
        What is audited, for the error: ``a search``.
    **chosen
        Fields that an audit sets itself.

    Raises
    ------
    InputError
        If a field is an axis that is not its default.
    """
    for name, values in config.axes.items():
        if values != type(config).model_fields[name].default:
            listed = ", ".join(map(str, values))
            raise InputError(f"audit: {name} = {listed}, allowed: one value ({what}, not a study)")
        chosen.setdefault(name, values[-1])
    return config.model_copy(update=chosen)


@contextlib.contextmanager
def shown(progress: bool | ProgressCallback | None) -> Iterator[ProgressCallback]:
    """The function that is told of the progress."""
    if callable(progress):
        yield progress
    elif progress:
        with show_progress("audit", "reads") as callback:
            yield callback
    else:
        yield lambda state: None


def replay_in_order(
    function: Callable[[_Task], list[tuple[_Result, ...]]],
    replays: Sequence[_Replay],
    key: Callable[[_Replay], Any],
    task_of: Callable[[tuple[_Replay, ...]], _Task],
    workers: int | None,
    progress: ProgressCallback,
) -> list[tuple[_Result, ...]]:
    """The simulations of every read, in the order of the reads.

    Parameters
    ----------
    function : callable
        Simulates the reads of a task; importable by a fresh process.
    replays : sequence
    key : callable
        What a read's deck depends on; reads of one deck are given to one task.
    task_of : callable
        The task of some reads.
    workers : int, optional
    progress : callable
    """
    order = sorted(range(len(replays)), key=lambda i: key(replays[i]))
    parts = [order[i : i + READS_A_TASK] for i in range(0, len(order), READS_A_TASK)]
    tasks = [task_of(tuple(replays[i] for i in part)) for part in parts]
    found: dict[int, tuple[_Result, ...]] = {}
    failed, start = 0, time.monotonic()
    for number, results in run_tasks(function, tasks, workers):
        found.update(zip(parts[number], results, strict=True))
        failed += sum(any(one.status is not Status.OK for one in each) for each in results)
        progress(Progress(len(found), len(replays), failed, time.monotonic() - start))
    return [found[i] for i in range(len(replays))]


def describe(dataset: xr.Dataset, told: Mapping[str, tuple[str, str]]) -> None:
    """Give variables their unit and meaning, and ``status`` its codes."""
    for name, (unit, meaning) in told.items():
        dataset[name].attrs.update(units=unit, long_name=meaning)
    codes = [int(status) for status in Status]
    dataset["status"].attrs.update(
        flag_values=", ".join(map(str, codes)),
        flag_meanings=" ".join(status.label for status in Status),
    )


def provenance(
    audit: str, config: SystemConfig, table: CalibrationTable, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What an audit was made of, in types that netCDF holds."""
    return {
        "audit": audit,
        "config": config.model_dump_json(),
        "circuit": table.circuit,
        "circuit_settings": json.dumps(dict(settings)),
        "tables": json.dumps({table.circuit: table.digest}),
        "netlists": str(table.dataset.attrs.get("netlists", "{}")),
        "nandcosim": __version__,
        "versions": json.dumps(versions()),
        "host": json.dumps(host()),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
