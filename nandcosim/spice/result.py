"""What a simulator gives back: plain arrays and a status, no simulator handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nandcosim.errors import NandcosimError
from nandcosim.spice.circuit import Analysis, DcSweep
from nandcosim.spice.status import Status

__all__ = ["RawResult", "Waveforms", "judge"]

#: A transient is complete when it reaches this fraction of its stop time; ngspice
#: lands on the stop time itself but for rounding.
COMPLETE = 1.0 - 1e-9


class Waveforms(Mapping[str, np.ndarray]):
    """Vectors of one analysis by their ngspice name in lower case.

    ``w["v(bl)"]`` and ``w["bl"]`` are the same voltage, ``w["i(vdd)"]`` and
    ``w["vdd#branch"]`` the same current; ``w.time`` is a transient's scale in seconds,
    ``w.swept`` a DC sweep's in V or A.
    """

    def __init__(self, vectors: Mapping[str, np.ndarray]) -> None:
        self._vectors = {canonical_name(name): data for name, data in vectors.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._vectors:
            return self._vectors[name]
        try:
            return self._vectors[canonical_name(name)]
        except KeyError:
            raise KeyError(f"no vector {name!r}; saved are {', '.join(self._vectors)}") from None

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def time(self) -> np.ndarray:
        """Time points of a transient, in seconds."""
        return self["time"]

    @property
    def scale(self) -> str:
        """Name of the vector all others depend on: ``time``, ``v-sweep`` or ``i-sweep``.

        Empty where there is none, as of a run that has no point.
        """
        return next((n for n in self._vectors if n == "time" or n.endswith("-sweep")), "")

    @property
    def swept(self) -> np.ndarray:
        """Value of a DC sweep's source at every point, in V or A."""
        return self[self.scale]


def canonical_name(name: str) -> str:
    """Reduce the spellings of a vector (``V(bl)``, ``i(vdd)``) to one (``bl``, ``vdd#branch``)."""
    name = name.lower().strip()
    if name.startswith("v(") and name.endswith(")"):
        return name[2:-1]
    if name == "i(i-sweep)":  # the raw file's spelling of a scale, no current of a source
        return "i-sweep"
    if name.startswith("i(") and name.endswith(")"):
        return f"{name[2:-1]}#branch"
    return name


@dataclass(frozen=True)
class RawResult:
    """One simulator run.

    Attributes
    ----------
    status : Status
    reason : str
        Why it is not OK, one line; empty when it is.
    waveforms : Waveforms
        What was computed, also for a run that died midway (for looking at, not for measuring).
    stopped_early : bool
        The analysis ended at its ``stop_when`` condition.
    cpu_seconds : float
        CPU time inside ngspice's analysis.
    log : tuple of str
        Everything ngspice wrote.
    """

    status: Status
    reason: str
    waveforms: Waveforms
    stopped_early: bool = False
    cpu_seconds: float = 0.0
    log: tuple[str, ...] = field(default=(), repr=False)

    def require_ok(self) -> RawResult:
        """Return self, or raise with the reason."""
        if self.status is not Status.OK:
            raise NandcosimError(f"simulation failed ({self.status.label}): {self.reason}")
        return self


def judge(waves: Waveforms, analysis: Analysis, sim_failed: bool) -> tuple[Status, str, bool]:
    """Decide from the data whether an analysis succeeded.

    Parameters
    ----------
    waves : Waveforms
        Vectors of the requested analysis, possibly none.
    analysis : Transient or DcSweep
    sim_failed : bool
        ``$sim_status`` was not 0, or the process reported failure.

    Returns
    -------
    status : Status
    reason : str
        What the data show; empty when the status is OK.
    stopped_early : bool
    """
    scale = waves[waves.scale] if waves.scale else np.empty(0)
    if scale.size < (1 if isinstance(analysis, DcSweep) else 2):
        return Status.NO_CONVERGENCE, "no operating point was found", False
    if not all(np.isfinite(data).all() for data in waves.values()):
        return Status.NO_CONVERGENCE, "a value is not finite", False
    if isinstance(analysis, DcSweep):
        complete = scale.size == analysis.points
        reached = f"died after {scale.size} of {analysis.points} points"
    else:
        complete = bool(scale[-1] >= analysis.stop * COMPLETE)
        reached = f"died at {scale[-1]:.6g} s of {analysis.stop:.6g} s"
    if complete and not sim_failed:
        return Status.OK, "", False
    if not sim_failed and analysis.stop_when is not None and analysis.stop_when.met(waves):
        return Status.OK, "", True
    return Status.TRUNCATED, reached, False
