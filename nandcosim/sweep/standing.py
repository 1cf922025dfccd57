"""How far a sweep is: samples by outcome, failures with their numbers, rate and time left."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import EngineUsed
from nandcosim.sweep.layout import regions
from nandcosim.sweep.verification import lost_files

if TYPE_CHECKING:
    from nandcosim.sweep.store import SweepStore

__all__ = ["standing"]

#: Samples of each kind of failure that are named.
NAMED = 3


#: Says that the reasons of a kind differ by a number.
_ALIKE = " (and alike)"

#: A number in a reason, by which reasons of one kind differ.
_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")


@dataclass
class _Failures:
    """Failures of one kind."""

    status: Status
    reason: str
    count: int = 0
    samples: list[int] = field(default_factory=list)

    def add(self, sample: int, reason: str) -> None:
        self.count += 1
        if reason != self.reason and not self.reason.endswith(_ALIKE):
            self.reason += _ALIKE
        if len(self.samples) < NAMED:
            self.samples.append(sample)

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status.label,
            "reason": self.reason,
            "count": self.count,
            "samples": self.samples,
        }


def standing(store: SweepStore) -> dict[str, Any]:
    """How far a sweep is; see `nandcosim.sweep.store.status`."""
    codes = store.status_codes().ravel()
    counts = np.zeros(len(Status), dtype=np.int64)
    reasons: Counter[str] = Counter()
    kinds: dict[tuple[int, str], _Failures] = {}
    for region in regions(store.array("status")):
        here = codes[region.first : region.stop]
        counts += np.bincount(here, minlength=len(Status))
        failed = np.flatnonzero((here != Status.OK) & (here != Status.NOT_RUN))
        if failed.size == 0:
            continue
        texts = np.asarray(store.array("reason")[region.place], dtype=object).ravel()
        for place in failed.tolist():
            code, text = int(here[place]), str(texts[place])
            reasons[text] += 1
            key = code, _NUMBER.sub("#", text)
            kind = kinds.setdefault(key, _Failures(Status(code), text))
            kind.add(region.first + place, text)
    total = int(store.wanted().sum())
    done = codes.size - int(counts[Status.NOT_RUN])
    counts[Status.NOT_RUN] = max(0, total - done)
    failures = sorted(kinds.values(), key=lambda kind: (-kind.count, kind.reason, kind.status))
    return {
        "path": str(store.path),
        "circuit": store.spec.circuit,
        "total": total,
        "done": done,
        "failed": done - int(counts[Status.OK]),
        "fraction_done": min(1.0, done / total) if total else 0.0,
        "counts": {each.label: int(counts[each]) for each in Status},
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "failures": [each.to_dict() for each in failures],
        "damaged": lost_files(store),
        **_pace(store, done, total),
        **_engines(store, codes),
    }


def _pace(store: SweepStore, done: int, total: int) -> dict[str, Any]:
    """Whether the sweep runs, samples a second in its last run, seconds left."""
    runs = store.attributes["runs"]
    samples, seconds = (
        (runs[-1].get(name, 0) for name in ("samples", "seconds")) if runs else (0, 0)
    )
    rate = samples / seconds if samples and seconds else None
    pace: dict[str, Any] = {"running": store.is_running(), "rate": rate}
    remaining = (total - done) / rate if rate else None
    if store.spec.planned:
        plan = pace["plan"] = store.attributes.get("plan", {})
        if not plan.get("complete"):
            remaining = None  # what is asked for next depends on what comes out
    return {**pace, "remaining": remaining}


def _engines(store: SweepStore, codes: np.ndarray) -> dict[str, Any]:
    """Samples of each engine, and the blocks in which the fast one disagreed."""
    spec = store.spec
    if spec.engine == "ngspice":
        return {}
    made = np.zeros(len(EngineUsed), dtype=np.int64)
    disagreements = 0
    for region in regions(store.array("engine")):
        done = codes[region.first : region.stop] != Status.NOT_RUN
        used = np.asarray(store.array("engine")[region.place]).ravel()
        made += np.bincount(used[done], minlength=len(EngineUsed))
        point, k = np.divmod(
            region.first + np.flatnonzero(done & (used == EngineUsed.FALLBACK)), spec.samples
        )
        disagreements += np.unique(point * spec.samples + k // spec.block).size
    return {
        "engines": {each.name.lower(): int(made[each]) for each in EngineUsed},
        "disagreements": disagreements,
    }
