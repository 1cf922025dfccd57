# mypy: disable-error-code="no-untyped-def"
"""The cycles of error-resilient dot-product engines, compiled.

This module imports Numba and is itself imported only inside functions. What the hardware
does in a cycle is stated in `nandcosim.systems.nvllm.engine`; a plain machine that does it
cycle by cycle is kept equal to this one by `tests/unit/test_nvllm_engine.py`.

Nothing happens in a lane between two of these: a fault at its head, a correction that comes
back, the end of what the pages brought. So a lane jumps from one to the next, and the cost is
one of faults and pages, not of segments. Lanes meet in two places only:

- At the hub, first come, first served. Its corrections take equally long and begin in the
  order of their requests, so the n-th begins when it is there and the (n - servers)-th has
  cleared its corrector, and its end is known at once. Requests must be made in the order of
  time, so each lane runs to its next fault and the earliest of those is carried out.
- At the page registers: one is free for a read when every lane has taken its segments from
  it. A lane that needs to know a page's time, which another has not yet decided, waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nandcosim.errors import MissingExtraError
from nandcosim.systems.nvllm.engine import DETECT_AND_MOVE

try:
    import numba
except ImportError as error:  # pragma: no cover - depends on the environment
    raise MissingExtraError("the cycle-level engine", "numba", "fast") from error

__all__ = ["TALLIES", "Rules", "run_hub"]

#: Columns of the tallies of a lane, in order.
TALLIES = (
    "cycles", "supply", "in_a_row", "scoreboard", "in_order", "drain",
    "corrections", "hub_wait", "residence", "most_waiting", "open_columns",
)  # fmt: skip
(
    _CYCLES, _SUPPLY, _IN_A_ROW, _SCOREBOARD, _IN_ORDER, _DRAIN,
    _CORRECTIONS, _HUB_WAIT, _RESIDENCE, _MOST_WAITING, _OPEN_COLUMNS,
) = range(len(TALLIES))  # fmt: skip

# What is kept of a lane while others run. First what the choice of the next one looks at.
_STATE = 10
_AT, _TIME, _PAGES = range(3)
_FAULT, _HEAD, _COME, _MASKED, _LEAVE, _OLDEST, _WAITING = range(3, _STATE)
_RUNS, _AT_FAULT, _BLOCKED, _DONE = range(4)

_NEVER = np.iinfo(np.int64).max

_jit = numba.njit(nogil=True, cache=True, boundscheck=False)
_inline = numba.njit(nogil=True, cache=True, inline="always")


class Rules(NamedTuple):
    """What the cycles depend on, as whole numbers."""

    clusters: int
    lanes: int  # of a cluster
    segments: int  # of a cluster
    group: int  # segments that a read of a cluster brings: a page, below
    bank: int  # segments that a lane's bank of the FIFO holds
    buffers: int  # page registers
    read: int  # time of a read in parts of a cycle
    parts: int  # of a cycle
    prefetched: int  # reads that have come when the layer starts
    column: int  # segments
    in_order: int  # 1: yes
    entries: int  # of a lane's scoreboard
    servers: int  # correctors of the hub
    interval: int  # cycles between corrections of one corrector
    latency: int  # cycles of a correction


@_inline
def _share(segments, lane, lanes):
    """How many of the first `segments` of a cluster are a lane's."""
    return max(0, (segments - lane + lanes - 1) // lanes)


@_inline
def _left_at(page, lane, rules):
    """Segments that a lane has taken when it has left nothing of a page in the registers."""
    end = min((page + 1) * rules.group, rules.segments)
    return _share(end, lane, rules.lanes) - rules.bank


@_jit
def _plan_reads(rules, known, last, arrival, left, leaving):
    """Time the page reads of a cluster whose register is known to be free.

    known, last : int64 array (1,)
        Pages whose time is known, and when the last of those came, in parts of a cycle.
    arrival, left, leaving : int64 array (pages,)
        First cycle in which a page is there, cycle in which it left its register, and lanes
        that it has still to leave to.
    """
    k = known[0]
    while k < arrival.size:
        start = last[0]
        if k >= rules.buffers:
            if leaving[k - rules.buffers] > 0:
                break
            start = max(start, left[k - rules.buffers] * rules.parts)
        last[0] = start + rules.read
        arrival[k] = -((-last[0]) // rules.parts)
        k += 1
    known[0] = k


@_jit
def _leave_pages(page, lane, start, begin, now, head, rules, left, leaving):
    """Note what a lane has left from `page` on, which went from `begin` to `head`; the next."""
    changed = False
    while page < left.size and _left_at(page, lane, rules) <= head:
        # a run takes a segment a cycle; a bypass takes two in one
        when = min(start + max(0, _left_at(page, lane, rules) - begin), now)
        left[page] = max(left[page], when)
        leaving[page] -= 1
        changed = changed or leaving[page] == 0
        page += 1
    return page, changed


@_jit
def _next_lane(state, known, lanes):
    """The lane to run, and up to where it may meet faults: by (cycle, lane), as one number.

    First those that can run to a fault, then the one whose fault is the earliest; -1: none.
    """
    earliest, second = _NEVER, _NEVER
    n = state.shape[0]
    for i in range(n):
        at = state[i, _AT]
        if at == _RUNS or (at == _BLOCKED and state[i, _PAGES] < known[i // lanes, 0]):
            return i, -1
        if at == _AT_FAULT:
            key = state[i, _TIME] * n + i
            if key < earliest:
                earliest, second = key, earliest
            elif key < second:
                second = key
    return (earliest % n, second) if earliest < _NEVER else (-1, -1)


@_jit
def run_hub(rules, faults, first):  # noqa: PLR0912, PLR0915 - calls that carry the state cost more
    """Run the lanes that share a corrector hub through one layer.

    Parameters
    ----------
    rules : Rules
    faults : int64 array
        Faulty segments of each lane, by their position in the lane, ascending; after each
        lane's, one that is its number of segments.
    first : int64 array (clusters * lanes,)
        Where each lane's begin.

    Returns
    -------
    int64 array (clusters * lanes, len(TALLIES))
    """
    lanes, n = rules.lanes, rules.clusters * rules.lanes
    n_pages = (rules.segments + rules.group - 1) // rules.group
    slots = min(rules.entries, faults.size) + 1
    state = np.zeros((n, _STATE), np.int64)
    tally = np.zeros((n, len(TALLIES)), np.int64)
    # corrections under way, of each lane in the order in which they come back
    back = np.zeros((n, slots), np.int64)
    since = np.zeros((n, slots), np.int64)
    which = np.zeros((n, slots), np.int64)
    busy = np.zeros(rules.servers, np.int64)
    server = 0
    known = np.full((rules.clusters, 1), min(rules.prefetched, n_pages), np.int64)
    last = np.zeros((rules.clusters, 1), np.int64)
    arrival = np.zeros((rules.clusters, n_pages), np.int64)
    left = np.zeros((rules.clusters, n_pages), np.int64)
    leaving = np.full((rules.clusters, n_pages), lanes, np.int64)
    for c in range(rules.clusters):
        _plan_reads(rules, known[c], last[c], arrival[c], left[c], leaving[c])
    state[:, _FAULT] = first
    while True:
        i, stop = _next_lane(state, known, lanes)
        if i < 0:
            return tally
        c, lane = i // lanes, i % lanes
        total = _share(rules.segments, lane, lanes)
        at, now = state[i, _AT], state[i, _TIME]
        pages, come = state[i, _PAGES], state[i, _COME]  # that have come; segments, too
        head, fault = state[i, _HEAD], state[i, _FAULT]  # segments taken; index of next fault
        masked = state[i, _MASKED]  # whether half of the segment buffer holds a masked segment
        leave = state[i, _LEAVE]  # next page to leave its register
        oldest, waiting = state[i, _OLDEST], state[i, _WAITING]  # corrections under way
        supply = in_a_row = scoreboard = in_order = drain = 0
        corrections = hub_wait = residence = most_waiting = open_columns = 0
        start, begin = now, head
        left_at = _left_at(leave, lane, rules)
        while True:
            if head >= left_at and leave < n_pages:
                leave, changed = _leave_pages(
                    leave, lane, start, begin, now, head, rules, left[c], leaving[c]
                )
                left_at = _left_at(leave, lane, rules)
                if changed:
                    _plan_reads(rules, known[c], last[c], arrival[c], left[c], leaving[c])
                    stop = -1 if n > 1 else stop  # a lane that waited for it may go on
            start, begin = now, head
            while pages < known[c, 0] and arrival[c, pages] <= now:
                pages += 1
                come = _share(min(pages * rules.group, rules.segments), lane, lanes)
            returns = back[i, oldest] if waiting else _NEVER
            faulty = False
            if waiting and rules.in_order:
                in_order += returns - now
                now = returns
            elif head == total:
                if waiting == 0:
                    at = _DONE
                    break
                drain += max(0, returns - now)
                now = max(now, returns)
            elif head == come:
                if pages == known[c, 0]:
                    at = _BLOCKED
                    break
                if returns > now:
                    until = min(arrival[c, pages], returns)
                    supply += until - now
                    now = until
                    masked = 0
                    continue
            elif faults[fault] > head:
                if returns > now:
                    run = min(faults[fault] - head, come - head, returns - now)
                    head += run
                    now += run
                    masked = 0
                    continue
            elif waiting == rules.entries and returns > now:
                scoreboard += returns - now
                now = returns
                masked = 0
                continue
            elif now * n + i >= stop:
                at = _AT_FAULT
                break
            else:
                faulty = True
            # a cycle with a correction that is back, a fault at the head, or both
            taken = 0
            if returns <= now:
                residence += now - since[i, oldest]
                newest_column = ((head - 1) * lanes + lane) // rules.column
                column = (which[i, oldest] * lanes + lane) // rules.column
                open_columns = max(open_columns, newest_column - column + 1)
                oldest = oldest + 1 if oldest + 1 < slots else 0
                waiting -= 1
            elif rules.in_order:
                in_order += 1
            elif head + 1 == total:
                drain += 1
            elif masked:
                in_a_row += 1
            elif head + 1 == come:
                supply += 1
            elif faults[fault + 1] == head + 1:
                in_a_row += 1
            else:
                taken = 1  # through the bypass
            if faulty:
                earliest = now + DETECT_AND_MOVE
                begins = max(earliest, busy[server])
                busy[server] = begins + rules.interval
                server = server + 1 if server + 1 < rules.servers else 0
                slot = oldest + waiting
                slot = slot if slot < slots else slot - slots
                back[i, slot] = begins + rules.latency
                since[i, slot] = now
                which[i, slot] = head
                waiting += 1
                corrections += 1
                hub_wait += begins - earliest
                most_waiting = max(most_waiting, waiting)
                fault += 1
                taken += 1
            masked = int(faulty)
            head += taken
            now += 1
        state[i, _AT], state[i, _TIME] = at, now
        state[i, _PAGES], state[i, _COME] = pages, come
        state[i, _HEAD], state[i, _FAULT] = head, fault
        state[i, _MASKED], state[i, _LEAVE] = masked, leave
        state[i, _OLDEST], state[i, _WAITING] = oldest, waiting
        tally[i, _CYCLES] = now
        tally[i, _SUPPLY] += supply
        tally[i, _IN_A_ROW] += in_a_row
        tally[i, _SCOREBOARD] += scoreboard
        tally[i, _IN_ORDER] += in_order
        tally[i, _DRAIN] += drain
        tally[i, _CORRECTIONS] += corrections
        tally[i, _HUB_WAIT] += hub_wait
        tally[i, _RESIDENCE] += residence
        tally[i, _MOST_WAITING] = max(tally[i, _MOST_WAITING], most_waiting)
        tally[i, _OPEN_COLUMNS] = max(tally[i, _OPEN_COLUMNS], open_columns)
