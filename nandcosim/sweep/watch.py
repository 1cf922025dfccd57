"""A worker that ends itself when a sample does not return.

Native code may ignore its time limit, and a circuit's own Python code knows none. Nothing
in the process can break either off, so the process ends; the sweep then runs the task in
child processes, which find the sample to blame.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from collections.abc import Iterator

from distributed import get_worker

__all__ = ["Watch", "patience", "watched"]

#: Seconds beyond a sample's own time limit: at most, and at least.
MOST_GRACE, LEAST_GRACE = 60.0, 5.0

#: Seconds for which the clock need not be set again; setting it takes a thread.
SLACK = 1.0


def patience(time_limit: float) -> float:
    """Seconds after which a sample that has not returned is taken to hang."""
    return time_limit + min(MOST_GRACE, max(LEAST_GRACE, time_limit))


class Watch:
    """Ends this process when the time between two calls of `restart` is too long."""

    def __init__(self, seconds: float, silence: int) -> None:
        self._seconds = seconds + SLACK
        self._silence = silence
        self._set = float("-inf")

    def restart(self) -> None:
        """Before a sample."""
        if time.monotonic() - self._set > SLACK:
            # A thread of its own in C, which no lock of the interpreter holds up.
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._silence)
            self._set = time.monotonic()


class _NoWatch:
    def restart(self) -> None:
        pass


@contextlib.contextmanager
def watched(time_limit: float) -> Iterator[Watch | _NoWatch]:
    """Watch the samples that run inside the ``with`` block, if this process may end.

    It may if it is a worker with a nanny, which starts another one.
    """
    try:
        may_end = get_worker().nanny is not None
    except ValueError:  # no worker at all
        may_end = False
    if not may_end:
        yield _NoWatch()
        return
    with open(os.devnull, "w") as silence:
        try:
            yield Watch(patience(time_limit), silence.fileno())
        finally:
            faulthandler.cancel_dump_traceback_later()
