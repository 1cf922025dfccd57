"""What is tried before a sweep starts, so that a mistake does not cost its samples."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.spice.circuit import Circuit, Params
from nandcosim.sweep.plan import check_rare
from nandcosim.sweep.spec import SweepSpec, base_params

__all__ = ["rehearse"]


def rehearse(spec: SweepSpec, circuit: Circuit) -> None:
    """Build the nominal deck of every axis value, the others at their first, simulating nothing.

    Anything but a user's mistake (an accident in a circuit's code) is left to the samples.

    Raises
    ------
    InputError
        If a deck refuses what it was given (a netlist, a level map; the axis value is named),
        or a rare event has too few samples to search for it.
    MissingExtraError
        If the fast engine lacks a package.
    """
    tried: list[Params] = []
    for point, axes in _points(spec):
        coordinates = spec.coordinates(point)
        with _accidents_aside():
            params = base_params(spec, circuit, coordinates)
            if params in tried:
                continue  # an axis of a random variable alone
            tried.append(params)
            try:
                circuit.build(params)
            except MissingExtraError:
                raise
            except InputError as error:
                where = ", ".join(f"axes.{name} = {coordinates[name]!r}" for name in axes)
                raise InputError(f"{where}: {error}" if where else str(error)) from error
    if spec.rare is not None:
        check_rare(spec, circuit)
    if spec.engine == "fast":
        with _accidents_aside():
            circuit.fast(base_params(spec, circuit, spec.coordinates(0)), _NoBackend())


@contextlib.contextmanager
def _accidents_aside() -> Iterator[None]:
    """Let a user's mistake pass; what else is raised becomes the status of samples."""
    try:
        yield
    except InputError:
        raise
    except Exception:  # noqa: BLE001 - code of a user's circuit raises whatever it likes
        return


def _points(spec: SweepSpec) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Number of each grid point to try, and the axes to name if its deck is refused.

    Those are all axes at the first point, then the one along which it is left.
    """
    yield 0, tuple(spec.axes)
    for place, (name, values) in enumerate(spec.axes.items()):
        stride = math.prod(spec.grid_shape[place + 1 :])
        yield from ((i * stride, (name,)) for i in range(1, len(values)))


class _MeasurementError(Exception):
    """The fast model has come as far as its measurements."""


class _NoBackend:
    """Stands where a fast model wants ngspice: its imports are tried, not its measurements."""

    name = "none"
    can_alter = False

    def run(self, *_args: Any, **_more: Any) -> NoReturn:
        raise _MeasurementError

    def version(self) -> NoReturn:
        raise _MeasurementError

    def close(self) -> None:
        pass
