"""The most probable failure points: where the density of failing scores is highest.

In standard normal space that is the point of the failure region nearest the origin
(A. M. Hasofer, N. C. Lind, J. Eng. Mech. Div. ASCE 100, 111, 1974); its distance is
the reliability index beta. R. Rackwitz and B. Fiessler (Comput. Struct. 9, 489, 1978)
find it from gradients of a guide g: at the boundary the direction to the point is
-grad g. A full step may overshoot, hence a line search (Y. Zhang, A. Der Kiureghian,
in Reliability and Optimization of Structural Systems, 1995, "improved HL-RF").

Here a point is a direction, and its distance is found by the event itself, along the
ray: the guide only proposes directions. So a guide that saturates, that carries solver
noise, or that exists on one side of the boundary, can make the search slow but cannot
put a point off the boundary, and of two directions the one whose boundary is nearer is
better whatever the guide says.

Further regions are looked for along the opposite direction, and from failing runs of an
exploration with inflated scores (S. Sun, X. Li, H. Liu, K. Luo, B. Gu, IEEE Trans. CAD
34, 1096, 2015: "scaled-sigma sampling") that fail without the half-spaces found so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from scipy.special import ndtr

from nandcosim.errors import InputError
from nandcosim.sweep.rare.contract import Asking, Batch, Outcomes, Stage

__all__ = ["RADIUS", "Findings", "Region", "find_regions"]

#: Directions are searched up to this distance: Phi(-9) = 1e-19.
RADIUS = 9.0

#: Regions kept at most.
MAX_REGIONS = 8

#: Finite difference of a gradient, in sigma: large against solver noise.
_STEP = 0.5

#: Gradients are taken this far off the boundary, so that no step of one score crosses it.
_RETREAT = 0.6

#: Runs a section of a ray; three sections leave 1/729 of it.
_SECTION = 8
_SECTIONS = 3
_RAY = _SECTION * _SECTIONS + 1

#: A direction has settled when its boundary comes no nearer than this, in sigma. A
#: direction off by delta sigma costs delta^2 / (2 beta) in distance and a factor
#: exp(delta^2) in runs: 0.05 at beta = 5 is a factor of 1.6.
_SETTLED = 0.05

#: Of the two directions tried after a gradient one is the full step, the other about half:
#: not quite, so that a step to the opposite direction still has a middle.
_HALFWAY = 0.99

#: Gradients a region at most.
_MAX_TURNS = 6

#: Share of a gradient's squared length in the scores that later gradients measure.
_KEPT = 0.99

#: Points nearer than this, in sigma, are one region: a normal distribution covers both.
_SAME = 1.5

#: How far in front of a tangent plane a failure must be to need another region, in sigma.
_IN_FRONT = 0.3

#: What a point on a plane may seem beyond it by rounding.
_ROUNDING = 1e-9

#: A region this much less probable than the nearest is left out.
_NEGLIGIBLE = 1e-3

#: Inflation of the exploring runs, and runs at each.
_SCALES = (2.0, 3.0, 4.0)
_EXPLORED = 40

#: Explored failures in a row that may lead to nothing new before the search stops.
_MAX_STRIKES = 2


@dataclass(frozen=True)
class Region:
    """A most probable failure point.

    Attributes
    ----------
    direction : ndarray, shape (dimensions,)
        Unit vector.
    beta : float
        Distance of the boundary along it, in sigma.
    """

    direction: np.ndarray
    beta: float

    @property
    def centre(self) -> np.ndarray:
        """The point itself, shape (dimensions,)."""
        return self.beta * self.direction


@dataclass(frozen=True)
class Findings:
    """What a search found.

    Attributes
    ----------
    regions : tuple of Region
        The nearest first; empty if no failure was found.
    directions : ndarray, shape (k, dimensions)
        Directions in which the guide fell, from every gradient near a boundary.
    nominal : bool
        Whether the event occurs at the origin already.
    astray : int
        Explored failures from which no point within `RADIUS` was found.
    unexplained : int
        Explored failures that may belong to a region that is missing.
    runs : int
    """

    regions: tuple[Region, ...]
    directions: np.ndarray
    nominal: bool
    astray: int
    unexplained: int
    runs: int


def find_regions(dimensions: int, rng: np.random.Generator, max_runs: int) -> Asking[Findings]:
    """Search for the most probable failure points.

    Parameters
    ----------
    dimensions : int
        Number of scores.
    rng : numpy.random.Generator
    max_runs : int

    Raises
    ------
    InputError
        If `max_runs` does not suffice for the first batch and the rays after it.
    """
    least = 1 + dimensions + len(_SCALES) * _EXPLORED + 2 * _RAY
    if max_runs < least:
        raise InputError(
            f"rare event: found {max_runs} runs for the search (half of all), "
            f"allowed with {dimensions} random scores: {least} or more"
        )
    return (yield from _Search(dimensions, max_runs).run(rng))


class _Found(Enum):
    """Where a start led: to a new region, to a known one, or to none within `RADIUS`."""

    NEW = auto()
    KNOWN = auto()
    ASTRAY = auto()


class _Search:
    def __init__(self, dimensions: int, max_runs: int) -> None:
        self.dimensions = dimensions
        self.max_runs = max_runs
        self.runs = 0
        self.regions: list[Region] = []
        self.directions: list[np.ndarray] = []

    def run(self, rng: np.random.Generator) -> Asking[Findings]:
        scales = np.repeat(_SCALES, _EXPLORED)[:, np.newaxis]
        explored = scales * rng.standard_normal((len(scales), self.dimensions))
        origin = np.zeros((1, self.dimensions))
        steps = _STEP * np.eye(self.dimensions)
        outcomes = yield from self._ask(np.concatenate([origin, steps, explored]))
        if outcomes.event[0]:
            return self._findings(nominal=True)
        guide = _guide(outcomes)
        downhill = _downhill((guide[1 : self.dimensions + 1] - guide[0]) / _STEP)
        if downhill is not None:
            for start in (downhill, -downhill):
                yield from self._add_region(RADIUS * start)
        failed = outcomes.event[self.dimensions + 1 :]
        astray, left = yield from self._explain(explored[failed], scales[failed, 0])
        return self._findings(astray=astray, unexplained=left)

    def _findings(self, nominal: bool = False, astray: int = 0, unexplained: int = 0) -> Findings:
        regions = sorted(self.regions, key=lambda region: region.beta)
        kept = tuple(r for r in regions if ndtr(-r.beta) > _NEGLIGIBLE * ndtr(-regions[0].beta))
        directions = np.array(self.directions).reshape(-1, self.dimensions)
        return Findings(kept, directions, nominal, astray, unexplained, self.runs)

    def _explain(self, failures: np.ndarray, scales: np.ndarray) -> Asking[tuple[int, int]]:
        """Search from failures that no region explains; returns those astray and unexplained.

        The one least in the direction of any region comes first. When two in a row lead to
        nothing new, the others are taken to belong to the regions known.

        A failure at the smallest scale that leads astray is unexplained: beyond `RADIUS` a
        flat boundary is met there with a probability of 1e-6, so many scores together must
        have done it. At the larger scales any one of them may, which says nothing of the
        probability at scale 1.
        """
        strikes = astray = unexplained = 0
        while True:
            failures, needed = yield from self._drawn_back(failures)
            failures, scales = failures[needed], scales[needed]
            if not len(failures):
                break
            if len(self.regions) == MAX_REGIONS or not self._affords_turn():
                unexplained += len(failures)
                break
            first = self._least_covered(failures)
            found = yield from self._add_region(failures[first])
            strikes = 0 if found is _Found.NEW else strikes + 1
            last = strikes == _MAX_STRIKES
            if found is _Found.ASTRAY:
                astray += 1
                near = scales == min(_SCALES)
                unexplained += int(near.sum() if last else near[first])
            if last:
                break
            failures, scales = np.delete(failures, first, axis=0), np.delete(scales, first)
        return astray, unexplained

    def _drawn_back(self, failures: np.ndarray) -> Asking[tuple[np.ndarray, np.ndarray]]:
        """Failures drawn back along their rays, and which of them need another region.

        Each is put just in front of the first tangent plane; where it still fails, it
        entered the failure region elsewhere.
        """
        needed = np.ones(len(failures), bool)
        if not self.regions or not len(failures):
            return failures, needed
        planes = np.array([r.direction / max(r.beta - _IN_FRONT, _SETTLED) for r in self.regions])
        beyond = np.maximum(1.0, (failures @ planes.T).max(axis=1))
        moved = np.flatnonzero(beyond > 1 + _ROUNDING)
        if self.runs + len(moved) > self.max_runs:
            return failures, needed
        failures = failures / beyond[:, np.newaxis]
        needed[moved] = (yield from self._ask(failures[moved])).event
        return failures, needed

    def _least_covered(self, points: np.ndarray) -> int:
        """Index of the point furthest in angle from every region; without any, the nearest."""
        lengths = np.linalg.norm(points, axis=1)
        if not self.regions:
            return int(np.argmin(lengths))
        directions = np.array([region.direction for region in self.regions])
        return int(np.argmin((points @ directions.T).max(axis=1) / lengths))

    def _add_region(self, end: np.ndarray) -> Asking[_Found]:
        """Search from the ray from the origin to `end` and keep what is new."""
        length = float(np.linalg.norm(end))
        region = yield from self._refine(end / length, length)
        if region is None or region.beta > RADIUS:
            return _Found.ASTRAY
        if any(np.linalg.norm(region.centre - other.centre) < _SAME for other in self.regions):
            return _Found.KNOWN
        self.regions.append(region)
        return _Found.NEW

    def _refine(self, direction: np.ndarray, limit: float) -> Asking[Region | None]:
        beta = float((yield from self._boundaries(direction[np.newaxis], limit))[0])
        if not np.isfinite(beta):
            return None
        slope: np.ndarray | None = None
        for _ in range(_MAX_TURNS):
            if not self._affords_turn():
                break
            slope = yield from self._slope(direction, beta, slope)
            normal = _downhill(slope)
            if normal is None:
                break
            self.directions.append(normal)
            candidates = np.array([normal, _unit(normal + _HALFWAY * direction)])
            found = yield from self._boundaries(candidates, beta)
            best = int(np.argmin(found))
            gain = beta - found[best]
            if gain > 0:
                direction, beta = candidates[best], float(found[best])
            if gain < _SETTLED:
                break
        return Region(direction, beta)

    def _slope(
        self, direction: np.ndarray, beta: float, last: np.ndarray | None
    ) -> Asking[np.ndarray]:
        """Gradient of the guide beside the boundary, shape (dimensions,); NaN if it has none.

        After the first one only the scores that matter are measured; the others keep their
        slope, scaled as those that are measured.
        """
        sides = np.array([max(beta - _RETREAT, 0.0), beta + _RETREAT])
        bases = sides[:, np.newaxis] * direction
        guides = _guide((yield from self._ask(bases)))
        side = 0 if np.isfinite(guides[0]) else 1
        if not np.isfinite(guides[side]):
            return np.full(self.dimensions, np.nan)
        measured = np.arange(self.dimensions) if last is None else _heaviest(last)
        found = yield from self._differences(bases[side], float(guides[side]), measured)
        if last is None:
            return found
        scale = np.linalg.norm(found) / np.linalg.norm(last[measured])
        slope = last * scale
        slope[measured] = found
        return np.asarray(slope)

    def _differences(
        self, base: np.ndarray, guide: float, measured: np.ndarray
    ) -> Asking[np.ndarray]:
        """Slopes along the scores `measured`; backward where forward has no guide."""
        slopes = np.full(len(measured), np.nan)
        for step in (_STEP, -_STEP):
            missing = np.flatnonzero(~np.isfinite(slopes))
            if len(missing):
                scores = np.tile(base, (len(missing), 1))
                scores[np.arange(len(missing)), measured[missing]] += step
                slopes[missing] = (_guide((yield from self._ask(scores))) - guide) / step
        return np.asarray(np.nan_to_num(slopes, nan=0.0))

    def _boundaries(self, directions: np.ndarray, limit: float) -> Asking[np.ndarray]:
        """Distance of the first failure along each direction, shape (n,).

        Infinity where there is none up to `limit`. Ray sections are cut at the first
        failing point, all rays and all points of a section at once.
        """
        n = len(directions)
        low, high = np.zeros(n), np.full(n, limit)
        found = np.full(n, np.inf)
        for section in range(_SECTIONS):
            # The first section asks at the limit too, later ones know that the end fails.
            cuts = np.arange(1, _SECTION + (2 if section == 0 else 1)) / (_SECTION + 1)
            alive = np.flatnonzero(np.isfinite(found)) if section else np.arange(n)
            if len(alive) == 0:
                break
            radii = low[alive, np.newaxis] + (high - low)[alive, np.newaxis] * cuts
            scores = radii[:, :, np.newaxis] * directions[alive, np.newaxis]
            outcomes = yield from self._ask(scores.reshape(-1, self.dimensions))
            fails = outcomes.event.reshape(radii.shape)
            for ray, r, f in zip(alive, radii, fails, strict=True):
                first = int(np.argmax(f)) if f.any() else len(r)
                if first < len(r):
                    high[ray] = found[ray] = r[first]
                if first > 0:
                    low[ray] = r[first - 1]
        return found

    def _affords_turn(self) -> bool:
        """Whether a gradient and the rays after it, and before the next one, fit in."""
        return self.runs + 2 * self.dimensions + 4 * _RAY <= self.max_runs

    def _ask(self, scores: np.ndarray) -> Asking[Outcomes]:
        self.runs += len(scores)
        return (yield Batch.unweighted(scores, Stage.SEARCH))


def _guide(outcomes: Outcomes) -> np.ndarray:
    """The guide; NaN where it is unknown or infinite."""
    usable = outcomes.known & np.isfinite(outcomes.guide)
    return np.where(usable, outcomes.guide, np.nan)


def _unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector))


def _downhill(slope: np.ndarray) -> np.ndarray | None:
    """Unit vector against the slope; None if the guide does not change."""
    slope = np.nan_to_num(slope, nan=0.0)
    return _unit(-slope) if np.any(slope) else None


def _heaviest(slope: np.ndarray) -> np.ndarray:
    """Indices of the fewest scores that hold `_KEPT` of the slope's squared length."""
    order = np.argsort(-(slope**2), kind="stable")
    share = np.cumsum(slope[order] ** 2) / (slope**2).sum()
    return np.sort(order[: int(np.searchsorted(share, _KEPT)) + 1])
