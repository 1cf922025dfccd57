"""How many samples a task takes, from what samples have cost so far."""

from __future__ import annotations

from collections import deque

__all__ = ["Pace"]

#: Seconds that a task should take: what is lost when a worker dies, against what a task
#: costs the scheduler and a write costs the store (some ms each).
TASK_SECONDS = 10.0

#: Tasks that are remembered.
MEMORY = 16

#: Share of what is left that one task of a worker may take, so that all end together; but a
#: task takes this many seconds at least.
SHARE = 4
LEAST_SECONDS = 0.5

#: Growth from one task to the next, so that a few quick samples cannot make a long task.
GROWTH = 10


class Pace:
    """Chooses the length of the next task.

    The first tasks are of one sample: it shows what a sample costs.
    """

    def __init__(self) -> None:
        self._taken: deque[tuple[int, float]] = deque(maxlen=MEMORY)

    def record(self, samples: int, seconds: float) -> None:
        """Note that a task of `samples` took `seconds` on its worker."""
        self._taken.append((samples, seconds))

    @property
    def seconds_per_sample(self) -> float:
        """NaN before the first task."""
        samples = sum(each for each, _ in self._taken)
        return sum(each for _, each in self._taken) / samples if samples else float("nan")

    def length(self, left: int, workers: int) -> int:
        """Samples of the next task.

        Parameters
        ----------
        left : int
            Samples that are in no task yet.
        workers : int
        """
        if not self._taken:
            return 1
        affordable = TASK_SECONDS / max(self.seconds_per_sample, 1e-9)
        longest = max(each for each, _ in self._taken)
        fair = left / (SHARE * max(workers, 1))
        worthwhile = affordable * LEAST_SECONDS / TASK_SECONDS
        return max(1, int(min(affordable, GROWTH * longest, max(fair, worthwhile))))
