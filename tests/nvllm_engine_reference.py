"""The error-resilient engine as a plain machine, one cycle after the other.

Written from the rules in `nandcosim.systems.nvllm.engine`, for tests and as the peer of a
benchmark; it shares no code with the compiled one.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf


@dataclass(eq=False)
class Correction:
    segment: int
    masked_at: int
    back_at: float = inf


@dataclass(eq=False)
class Lane:
    """Segments still ahead by number, and those under correction."""

    ahead: deque[int]
    bank: int
    waiting: deque[Correction] = field(default_factory=deque)
    half_masked: bool = False
    seen: int = 0  # segments of this lane that were taken from the FIFO
    newest: int = -1
    lost: Counter = field(default_factory=Counter)
    multiplied: list[int] = field(default_factory=list)
    cycles: int = 0
    most_waiting: int = 0
    residence: int = 0
    open_columns: int = 0


@dataclass
class Pages:
    """Reads of one cluster."""

    group: int
    total: int
    registers: int
    time: Fraction
    came: list[Fraction]
    left: list[int] = field(default_factory=list)
    there: int = 0  # groups

    def arrived(self, cycle: int) -> int:
        """Segments that are there in a cycle."""
        while self.there < len(self.came) and ceil(self.came[self.there]) <= cycle:
            self.there += 1
        return min(self.total, self.there * self.group)

    def plan(self) -> None:
        while len(self.came) * self.group < self.total:
            k = len(self.came)
            start = self.came[-1] if self.came else Fraction(0)
            if k >= self.registers:
                if len(self.left) <= k - self.registers:
                    return
                start = max(start, Fraction(self.left[k - self.registers]))
            self.came.append(start + self.time)


def run(  # noqa: PLR0912, PLR0915 - the rules in the order of a cycle
    faulty,  # one list of bool a cluster
    *,
    lanes,
    correctors,
    latency,
    interval,
    scoreboard,
    in_order,
    hub,
    group,
    bank,
    registers,
    read_time,
    prefetched,
    column,
):
    clusters = len(faulty)
    everything = [
        [Lane(deque(range(lane, len(faulty[c]), lanes)), bank) for lane in range(lanes)]
        for c in range(clusters)
    ]
    pages = [
        Pages(group, len(f), registers, read_time,
              [Fraction(0)] * min(prefetched, ceil(len(f) / group)))
        for f in faulty
    ]  # fmt: skip
    hubs = 1 if hub == "device" else clusters
    queues = [deque() for _ in range(hubs)]
    free_at = [[0] * (correctors * clusters // hubs) for _ in range(hubs)]
    moving = []  # masked in the last cycle: hub, correction
    hub_wait = corrections = 0

    def note_left(cycle):
        for c in range(clusters):
            while len(pages[c].left) * group < pages[c].total:
                end = min((len(pages[c].left) + 1) * group, pages[c].total)
                if not all(
                    lane.seen + lane.bank >= len(range(index, end, lanes))
                    for index, lane in enumerate(everything[c])
                ):
                    break
                pages[c].left.append(cycle)
            pages[c].plan()

    note_left(0)
    cycle = 0
    while any(lane.ahead or lane.waiting for cluster in everything for lane in cluster):
        # correctors take what the arbiter moved in earlier cycles
        for h in range(hubs):
            while queues[h] and min(free_at[h]) <= cycle:
                server = free_at[h].index(min(free_at[h]))
                correction = queues[h].popleft()
                correction.back_at = cycle + latency
                hub_wait += cycle - correction.masked_at - 2
                free_at[h][server] = cycle + interval
        # the arbiter moves what was masked in the cycle before
        for h, correction in moving:
            queues[h].append(correction)
        moving = []
        for c, cluster in enumerate(everything):
            there = pages[c].arrived(cycle)
            for lane in cluster:
                if not lane.ahead and not lane.waiting:
                    continue
                lane.cycles = cycle + 1
                masked = None
                returned = bool(lane.waiting) and lane.waiting[0].back_at <= cycle
                if returned:
                    done = lane.waiting.popleft()
                    lane.multiplied.append(done.segment)
                    lane.residence += cycle - done.masked_at
                    columns = lane.newest // column - done.segment // column + 1
                    lane.open_columns = max(lane.open_columns, columns)
                if in_order and (returned or lane.waiting):
                    if not returned:
                        lane.lost["in_order"] += 1
                    continue
                halves = min(1 if lane.half_masked else 2, len(lane.ahead))
                buffer = [lane.ahead[k] for k in range(halves) if lane.ahead[k] < there]
                if not lane.ahead:
                    if not returned:
                        lane.lost["drain"] += 1
                elif not buffer:
                    if not returned:
                        lane.lost["supply"] += 1
                elif not faulty[c][buffer[0]]:
                    if not returned:
                        lane.multiplied.append(buffer[0])
                        lane.ahead.popleft()
                elif len(lane.waiting) == scoreboard and not in_order:
                    assert not returned
                    lane.lost["scoreboard"] += 1
                else:
                    masked = Correction(lane.ahead.popleft(), cycle)
                    if returned:
                        pass
                    elif in_order:
                        lane.lost["in_order"] += 1
                    elif len(buffer) == 2 and not faulty[c][buffer[1]]:
                        lane.multiplied.append(lane.ahead.popleft())
                    elif not lane.ahead:
                        lane.lost["drain"] += 1
                    elif lane.half_masked or len(buffer) == 2:
                        lane.lost["in_a_row"] += 1
                    else:
                        lane.lost["supply"] += 1
                    lane.waiting.append(masked)
                    lane.most_waiting = max(lane.most_waiting, len(lane.waiting))
                    moving.append((0 if hub == "device" else c, masked))
                    corrections += 1
                lane.half_masked = masked is not None
                before = lane.seen
                total = len(range(cluster.index(lane), len(faulty[c]), lanes))
                lane.seen = total - len(lane.ahead)
                if lane.seen > before:
                    lane.newest = cluster.index(lane) + (lane.seen - 1) * lanes
        cycle += 1
        note_left(cycle)

    flat = [lane for cluster in everything for lane in cluster]
    lost = Counter()
    for lane in flat:
        lost.update(lane.lost)
        lost["drain"] += cycle - lane.cycles
    assert all(
        sorted(s for lane in cluster for s in lane.multiplied) == list(range(len(faulty[c])))
        for c, cluster in enumerate(everything)
    )
    return {
        "cycles": cycle,
        "lost": dict(+lost),
        "corrections": corrections,
        "hub_wait": hub_wait,
        "residence": sum(lane.residence for lane in flat),
        "most_waiting": max((lane.most_waiting for lane in flat), default=0),
        "open_columns": max((lane.open_columns for lane in flat), default=0),
    }
