"""The outcome of one simulated sample."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """Outcome of a sample; stored as an integer beside its data.

    The values are part of the store's format and never change meaning.
    """

    OK = 0
    NO_CONVERGENCE = 1
    """The solver gave up before the first point of the requested analysis."""
    TRUNCATED = 2
    """A transient died midway: waveforms exist but do not reach the stop time."""
    TIMEOUT = 3
    """The time limit of the sample was hit."""
    UNDEFINED_RESPONSE = 4
    """The run succeeded, but a response that must be finite is not."""
    DECK_ERROR = 5
    """ngspice refused the deck."""
    CRASHED = 6
    """The native library or the simulator process died."""
    NOT_RUN = 7
    """No attempt has been stored yet."""

    @property
    def label(self) -> str:
        """The status as written in tables and messages, e.g. ``no_convergence``."""
        return self.name.lower()
