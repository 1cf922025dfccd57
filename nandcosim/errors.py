"""Errors that reach a user: one clear line each, never a traceback."""

from __future__ import annotations

__all__ = [
    "InputError",
    "MissingExtraError",
    "NandcosimError",
    "SimulationError",
]


class NandcosimError(Exception):
    """Base of every error this package raises on purpose (exit code 1)."""

    exit_code = 1


class InputError(NandcosimError, ValueError):
    """What the user gave is wrong (exit code 2).

    The message is one line: what, where (file and key), what was found and
    what is allowed.
    """

    exit_code = 2


class MissingExtraError(InputError):
    """An optional dependency is not installed.

    Parameters
    ----------
    what : str
        The feature that needs it.
    package : str
        The package that could not be imported.
    extra : str
        The extra of this distribution that brings it.
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        self._parts = (what, package, extra)
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed: "
            f"pip install 'nandcosim[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        return type(self), self._parts  # comes back whole from a worker process


class SimulationError(NandcosimError):
    """A single simulation asked for by name did not succeed."""
