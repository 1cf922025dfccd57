"""Progress: rates, times left, and how they are written."""

from __future__ import annotations

import io
import math

import pytest

from nandcosim.progress import Progress, format_duration, format_line, show_progress


def test_rate_counts_this_run_only() -> None:
    progress = Progress(done=60, total=100, elapsed=5.0, before=50)
    assert progress.rate == pytest.approx(2.0)
    assert progress.remaining == pytest.approx(20.0)
    assert progress.fraction == pytest.approx(0.6)


def test_rate_is_unknown_before_the_first_item() -> None:
    progress = Progress(done=50, total=100, elapsed=5.0, before=50)
    assert math.isnan(progress.rate)
    assert format_line("sweep", progress, "samples") == "sweep: 50/100 samples (50 %), -:-- left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3725, "1:02:05"), (math.nan, "-:--")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_plain_lines_show_first_and_last_state_and_failures() -> None:
    stream = io.StringIO()
    with show_progress("sweep", "samples", stream) as update:
        for done in range(11):
            update(Progress(done, 10, failed=done // 5, elapsed=done / 4))
    lines = stream.getvalue().splitlines()
    assert lines == [
        "sweep: 0/10 samples (0 %), -:-- left",
        "sweep: 10/10 samples (100 %), 2 failed, 4/s, 0:00 left",
    ]


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with show_progress("sweep", "samples", stream) as update:
        update(Progress(3, 10, elapsed=1.0))
        update(Progress(10, 10, elapsed=2.0))
    assert "10/10" in stream.getvalue()
