"""Lengths of tasks: from what samples have cost, and such that workers end together."""

from __future__ import annotations

import pytest

from nandcosim.sweep.pace import GROWTH, LEAST_SECONDS, SHARE, TASK_SECONDS, Pace


def test_first_task_is_one_sample() -> None:
    assert Pace().length(left=10**6, workers=2) == 1


def test_tasks_grow_stepwise_to_what_their_seconds_allow() -> None:
    pace, seconds = Pace(), 0.01
    lengths = []
    for _ in range(6):
        lengths.append(pace.length(left=10**6, workers=2))
        pace.record(lengths[-1], seconds * lengths[-1])
    assert lengths[:3] == [1, GROWTH, GROWTH**2]
    assert lengths[-1] == round(TASK_SECONDS / seconds)


def test_start_up_of_a_worker_is_forgotten() -> None:
    pace = Pace()
    pace.record(1, 30.0)  # it loaded its libraries
    assert pace.length(left=10**6, workers=1) == 1
    for _ in range(20):
        pace.record(10, 0.1)
    assert pace.seconds_per_sample == pytest.approx(0.01)
    assert pace.length(left=10**6, workers=1) == 10 * GROWTH


def test_samples_slower_than_a_task_go_one_by_one() -> None:
    pace = Pace()
    pace.record(1, 5 * TASK_SECONDS)
    assert pace.length(left=100, workers=2) == 1


def test_last_tasks_are_shared_out() -> None:
    pace = Pace()
    pace.record(1000, 100.0)
    assert pace.length(left=800, workers=2) == 800 // (2 * SHARE)
    least = round(LEAST_SECONDS / 0.1)
    assert pace.length(left=3, workers=2) == least
    assert pace.length(left=3, workers=0) == least


def test_samples_that_cost_nothing() -> None:
    pace = Pace()
    pace.record(1, 0.0)
    assert pace.length(left=10**6, workers=1) == GROWTH
