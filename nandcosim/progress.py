"""How far long work has come: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

__all__ = [
    "Progress",
    "ProgressCallback",
    "counted_progress",
    "format_duration",
    "format_line",
    "show_progress",
]

#: Seconds between two plain lines.
LINE_INTERVAL = 10.0


@dataclass(frozen=True)
class Progress:
    """A snapshot of long work.

    Attributes
    ----------
    done, total : int
        Finished items (failed ones and those of earlier runs included), and all of them.
    failed : int
        Items among `done` that failed.
    elapsed : float
        Seconds since this run began.
    before : int
        Items that were finished before this run began; they do not count in the rate.
    growing : bool
        Whether more items may yet be asked for, so that `total` is no end.
    """

    done: int
    total: int
    failed: int = 0
    elapsed: float = 0.0
    before: int = 0
    growing: bool = False

    @property
    def fraction(self) -> float:
        """Finished share, 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def rate(self) -> float:
        """Items a second in this run; NaN before the first item."""
        new = self.done - self.before
        return new / self.elapsed if new > 0 and self.elapsed > 0 else float("nan")

    @property
    def remaining(self) -> float:
        """Seconds left at the present rate; NaN while unknown."""
        if self.growing:
            return float("nan")
        if self.done >= self.total:
            return 0.0
        return (self.total - self.done) / self.rate


ProgressCallback = Callable[[Progress], None]


def format_duration(seconds: float) -> str:
    """Write a duration as ``m:ss`` or ``h:mm:ss``; ``-:--`` for NaN."""
    if math.isnan(seconds):
        return "-:--"
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def format_line(description: str, progress: Progress, unit: str) -> str:
    """One plain line: ``sweep: 1200/4000 samples (30 %), 2 failed, 14.2/s, 3:17 left``.

    Without an end in sight: ``sweep: 1200 samples so far, 2 failed, 14.2/s``.
    """
    failed = f", {progress.failed} failed" if progress.failed else ""
    rate = "" if math.isnan(progress.rate) else f", {progress.rate:.3g}/s"
    if progress.growing:
        return f"{description}: {progress.done} {unit} so far{failed}{rate}"
    return (
        f"{description}: {progress.done}/{progress.total} {unit} "
        f"({100 * progress.fraction:.0f} %){failed}{rate}, "
        f"{format_duration(progress.remaining)} left"
    )


@contextmanager
def show_progress(
    description: str, unit: str = "items", stream: TextIO | None = None
) -> Iterator[ProgressCallback]:
    """Show the progress of the work done inside the ``with`` block.

    Parameters
    ----------
    description : str
        What is being done, one or two words.
    unit : str
        Plural name of the items.
    stream : TextIO, optional
        Where to write; default: standard error, so that standard output stays data.

    Yields
    ------
    callable
        Call it with a `Progress` as often as you like; drawing is rate-limited.
    """
    stream = sys.stderr if stream is None else stream
    show = _bar if stream.isatty() else _lines
    with show(description, unit, stream) as callback:
        yield callback


@contextmanager
def counted_progress(description: str, unit: str = "items") -> Iterator[Callable[[int, int], None]]:
    """As `show_progress`, but call it with items done and in all; the time is kept here."""
    start = time.monotonic()
    with show_progress(description, unit) as show:
        yield lambda done, total: show(Progress(done, total, elapsed=time.monotonic() - start))


@contextmanager
def _lines(description: str, unit: str, stream: TextIO) -> Iterator[ProgressCallback]:
    last_time = -LINE_INTERVAL
    last: Progress | None = None

    def update(progress: Progress) -> None:
        nonlocal last_time, last
        now = time.monotonic()
        finished = progress.done >= progress.total and not progress.growing
        same = last is not None and (progress.done, progress.growing) == (last.done, last.growing)
        if same or (now - last_time < LINE_INTERVAL and not finished):
            return
        last_time, last = now, progress
        print(format_line(description, progress, unit), file=stream, flush=True)

    yield update


@contextmanager
def _bar(description: str, unit: str, stream: TextIO) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit + "{task.fields[note]}"),
    )
    with RichProgress(*columns, console=Console(file=stream)) as bars:
        task = bars.add_task(description, total=None, note="")

        def update(progress: Progress) -> None:
            failed = f"  {progress.failed} failed" if progress.failed else ""
            rate = "" if math.isnan(progress.rate) else f"  {progress.rate:.3g}/s"
            note = f"{failed}{rate}  {format_duration(progress.remaining)} left"
            total = None if progress.growing else progress.total
            bars.update(task, completed=progress.done, total=total, note=note)

        yield update
