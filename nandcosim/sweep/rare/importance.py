"""Importance sampling around the most probable failure points.

The proposal is a mixture q of normal distributions, one around each point c_i
(M. Shinozuka, J. Struct. Eng. 109, 721, 1983; G. I. Schueller and R. Stix, Struct. Saf.
4, 293, 1987), and every run has the weight

    w = phi(z) / q(z),   q(z) = sum_i pi_i (0.8 phi(z - c_i) + 0.2 phi_2(z - c_i))

with the whole mixture below the bar (E. Veach, L. J. Guibas, SIGGRAPH 1995: the
balance heuristic), so that a run may fail through a region other than its own. The
probability is the mean of w over the runs, counting the failing ones.

The wider density phi_2 has the standard deviation 2 along the directions that the search
found (along all in few dimensions). With phi alone, the weights along a boundary of
curvature kappa that bends round the origin have no variance once kappa beta > 1/2: their
second moment goes as exp((kappa beta - 1/2) y^2), and before that the standard error is
found too small. The limit is 7/8 with phi_2. It cannot serve in all of many dimensions,
where hardly a run would be near.

There is no defensive component phi(z) (T. Hesterberg, Technometrics 37, 185, 1995). It
would bound the weights by 1 / pi_0; but a run of it fails with the rare probability
itself, so that with some thousand runs it never meets the failure that the other
components miss. It would cost its share of the runs and protect from nothing. What
protects is the search for further regions, and what it leaves open is said in a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import logsumexp, ndtr

from nandcosim.sweep.rare.contract import Asking, Batch, Estimate, Method, Outcomes, Settings, Stage
from nandcosim.sweep.rare.interval import log_normal_interval
from nandcosim.sweep.rare.search import RADIUS, Findings, find_regions

__all__ = ["importance"]

#: Runs of a pilot round, which only moves the centres, and rounds at most.
_PILOT = 100
_PILOTS = 8

#: A region's centre moves when its failing runs are worth this many, and may be left when
#: they are worth so many.
_WORTH = 10.0
_ENOUGH = 30.0

#: A score that the search took for irrelevant is taken up when the mean of the failing runs
#: in it is so many of its standard errors from zero: by chance once in a hundred estimates
#: of 131 scores.
_SIGNIFICANT = 4.0

#: Centres have settled when none moves further than this, in sigma.
_SETTLED = 0.5

#: Shares of the mixture: this part equally, the rest as Phi(-beta).
_EQUAL = 0.5

#: Share of the runs that are drawn wider, and their standard deviation along the basis.
_WIDE_SHARE = 0.2
_WIDTH = 2.0

#: Runs a batch, at least and at most.
_BATCH = (50, 500)

#: In so few dimensions centres may move anywhere.
_FEW = 8

#: Directions whose singular value is below this share of the largest are the same.
_DISTINCT = 0.1

#: A run that holds more than this share of the sum is worth a note.
_HEAVY = 0.1


def importance(dimensions: int, rng: np.random.Generator, settings: Settings) -> Method:
    """Estimate the probability of an event by importance sampling.

    The search may take half of the runs. A few pilot rounds then move the centres to the
    mean of the failing scores (R. Y. Rubinstein, Eur. J. Oper. Res. 99, 89, 1997: the
    cross-entropy optimum), within the span of the directions that the search found: in
    all dimensions the mean of a few runs is noise. A score that the guide did not show,
    and whose mean is more than noise, is added to them. Pilots do not count in the estimate.

    Parameters
    ----------
    dimensions : int
        Number of standard normal scores.
    rng : numpy.random.Generator
    settings : Settings

    Returns
    -------
    Method

    Raises
    ------
    InputError
        If `settings.max_runs` does not suffice for a search.
    """
    findings = yield from find_regions(dimensions, rng, settings.max_runs // 2)
    if findings.nominal:
        nowhere = np.empty((dimensions, 0))
        at_origin = _Mixture(np.zeros((1, dimensions)), np.ones(1), nowhere)
        return (yield from _sample(at_origin, rng, settings, findings, findings.runs))
    if not findings.regions:
        return _nothing_found(dimensions, findings)
    mixture, runs = yield from _settle(_around(findings), rng, settings, findings)
    return (yield from _sample(mixture, rng, settings, findings, runs))


# ----------------------------------------------------------------- proposal


@dataclass(frozen=True)
class _Mixture:
    """Normal distributions around centres, some of the runs wider along a basis.

    Attributes
    ----------
    centres : ndarray, shape (n, d)
    shares : ndarray, shape (n,)
    basis : ndarray, shape (d, k)
        Orthonormal.
    """

    centres: np.ndarray
    shares: np.ndarray
    basis: np.ndarray

    def draw(self, rng: np.random.Generator, n: int) -> Batch:
        which = rng.choice(len(self.shares), size=n, p=self.shares)
        steps = rng.standard_normal((n, len(self.basis)))
        wide = (rng.random(n) < _WIDE_SHARE)[:, np.newaxis]
        steps += np.where(wide, (_WIDTH - 1) * (steps @ self.basis) @ self.basis.T, 0.0)
        scores = self.centres[which] + steps
        return Batch(scores, Stage.SAMPLE, -logsumexp(self._log_ratios(scores), axis=1))

    def responsibilities(self, scores: np.ndarray) -> np.ndarray:
        """Probability that a run came from each centre, shape (runs, n)."""
        ratios = self._log_ratios(scores)
        return np.asarray(np.exp(ratios - logsumexp(ratios, axis=1, keepdims=True)))

    def _log_ratios(self, scores: np.ndarray) -> np.ndarray:
        """Logarithm of each centre's part of q over phi, shape (runs, n)."""
        half_squares = (self.centres**2).sum(axis=1) / 2
        unit = scores @ self.centres.T - half_squares + np.log(self.shares)
        along = (scores[:, np.newaxis] - self.centres) @ self.basis
        wider = (1 - _WIDTH**-2) / 2 * (along**2).sum(axis=2)
        wider -= self.basis.shape[1] * math.log(_WIDTH)
        return np.asarray(
            np.logaddexp(unit + math.log1p(-_WIDE_SHARE), unit + wider + math.log(_WIDE_SHARE))
        )


def _around(findings: Findings) -> _Mixture:
    centres = np.array([region.centre for region in findings.regions])
    probable = ndtr(-np.array([region.beta for region in findings.regions]))
    shares = _EQUAL / len(centres) + (1 - _EQUAL) * probable / probable.sum()
    return _Mixture(centres, shares / shares.sum(), _basis(findings))


def _basis(findings: Findings) -> np.ndarray:
    """Orthonormal basis (d, k) of the directions in which centres may move."""
    dimensions = findings.regions[0].direction.size
    if dimensions <= _FEW:
        return np.eye(dimensions)
    directions = [*findings.directions, *(region.direction for region in findings.regions)]
    left, lengths, _ = np.linalg.svd(np.array(directions).T, full_matrices=False)
    return np.asarray(left[:, lengths > _DISTINCT * lengths[0]])


def _settle(
    mixture: _Mixture,
    rng: np.random.Generator,
    settings: Settings,
    findings: Findings,
) -> Asking[tuple[_Mixture, int]]:
    """Pilot rounds; returns the mixture with its centres moved, and the runs so far."""
    runs = findings.runs
    pilots = _Pilots(np.empty((0, mixture.centres.shape[1])), np.empty(0))
    for _ in range(_PILOTS):
        if runs + _PILOT + settings.min_samples > settings.max_runs:
            break
        batch = replace(mixture.draw(rng, _PILOT), stage=Stage.PILOT)
        outcomes = yield batch
        runs += _PILOT
        pilots = pilots.add(batch, outcomes)
        before, mixture = mixture, _recentred(mixture, pilots)
        moved = np.linalg.norm(mixture.centres - before.centres, axis=1).max()
        grown = mixture.basis.shape[1] > before.basis.shape[1]
        if moved < _SETTLED and not grown and _effective(pilots.weight) >= _ENOUGH:
            break
    return mixture, runs


@dataclass(frozen=True)
class _Pilots:
    """All pilot runs so far: each is weighted for the target, whatever it was drawn from.

    Attributes
    ----------
    scores : ndarray, shape (n, d)
    weight : ndarray, shape (n,)
        Zero where the event did not occur.
    """

    scores: np.ndarray
    weight: np.ndarray

    def add(self, batch: Batch, outcomes: Outcomes) -> _Pilots:
        weight = np.where(outcomes.event, np.exp(batch.log_weight), 0.0)
        return _Pilots(
            np.concatenate([self.scores, batch.scores]), np.concatenate([self.weight, weight])
        )


def _recentred(mixture: _Mixture, pilots: _Pilots) -> _Mixture:
    """Centres moved to the mean of their failing runs, in a basis that may have grown."""
    owned = [pilots.weight * share for share in mixture.responsibilities(pilots.scores).T]
    means = [
        own @ pilots.scores / own.sum() if _effective(own) >= _WORTH else None for own in owned
    ]
    basis = mixture.basis
    for own, mean in zip(owned, means, strict=True):
        if mean is not None:
            basis = _with_scores(basis, mean, 1 / math.sqrt(_effective(own)))
    centres = mixture.centres.copy()
    for i, (own, mean) in enumerate(zip(owned, means, strict=True)):
        if not own.any():  # the boundary bends away: meet it further out
            centres[i] *= 1 + 1 / np.linalg.norm(centres[i])
        elif mean is not None:
            centres[i] = basis @ (basis.T @ mean)
    return replace(mixture, centres=centres, basis=basis)


def _with_scores(basis: np.ndarray, mean: np.ndarray, error: float) -> np.ndarray:
    """`basis` and the scores whose part of `mean` outside it is more than `error` explains."""
    outside = mean - basis @ (basis.T @ mean)
    added = np.flatnonzero(np.abs(outside) > _SIGNIFICANT * error)
    if not added.size:
        return basis
    units = np.zeros((len(mean), added.size))
    units[added, np.arange(added.size)] = 1.0
    return np.asarray(np.linalg.qr(np.hstack([basis, units]))[0])


# ----------------------------------------------------------------- estimate


def _sample(
    mixture: _Mixture,
    rng: np.random.Generator,
    settings: Settings,
    findings: Findings,
    before: int,
) -> Method:
    """Sample until precise or out of runs."""
    tally = _Tally()
    while True:
        n = min(tally.next(settings), settings.max_runs - before - tally.runs)
        if n <= 0:
            return _estimate(tally, settings, findings, before + tally.runs)
        batch = mixture.draw(rng, n)
        outcomes = yield batch
        tally = tally.add(batch, outcomes)


@dataclass(frozen=True)
class _Tally:
    """Weights and outcomes of the runs that count, shape (n,)."""

    weight: np.ndarray = field(default_factory=lambda: np.empty(0))
    event: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    known: np.ndarray = field(default_factory=lambda: np.empty(0, bool))

    @property
    def runs(self) -> int:
        return len(self.weight)

    def add(self, batch: Batch, outcomes: Outcomes) -> _Tally:
        return _Tally(
            np.concatenate([self.weight, np.exp(batch.log_weight)]),
            np.concatenate([self.event, outcomes.event]),
            np.concatenate([self.known, outcomes.known]),
        )

    @property
    def contributions(self) -> np.ndarray:
        """Weights of the failing runs, zero of the others, without the unknown ones."""
        return np.asarray((self.weight * self.event)[self.known])

    def next(self, settings: Settings) -> int:
        """Runs to make next; 0 when the estimate is precise."""
        if self.runs < settings.min_samples:
            return settings.min_samples - self.runs
        _, relative = _mean(self.contributions)
        if relative <= settings.precision:
            return 0
        wanted = self.runs * (relative / settings.precision) ** 2 - self.runs
        return int(np.clip(wanted, *_BATCH))

    def limits(self) -> tuple[float, float]:
        """The interval; its ends take the unknown runs as safe and as failing."""
        low, _ = log_normal_interval(*_mean(self.weight * self.event))
        _, high = log_normal_interval(*_mean(self.weight * (self.event | ~self.known)))
        return low, high


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean and its relative standard error; infinite for a mean of zero."""
    if len(values) < 2 or not values.any():
        return 0.0, math.inf
    mean = float(values.mean())
    return mean, float(values.std(ddof=1)) / math.sqrt(len(values)) / mean


def _effective(weights: np.ndarray) -> float:
    """Number of equal weights that say as much: (sum w)^2 / sum w^2 (Kish, 1965)."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _estimate(tally: _Tally, settings: Settings, findings: Findings, runs: int) -> Estimate:
    dimensions = findings.directions.shape[1]
    contributions = tally.contributions
    probability, relative = _mean(contributions)
    precise = relative <= settings.precision
    low, high = tally.limits()
    return Estimate(
        probability=probability,
        standard_error=probability * relative if probability else math.nan,
        low=low,
        high=high,
        effective_samples=_effective(contributions),
        runs=runs,
        beta=0.0 if findings.nominal else findings.regions[0].beta,
        centres=np.array([r.centre for r in findings.regions]).reshape(-1, dimensions),
        converged=precise and not findings.unexplained,
        note="; ".join(_remarks(tally, precise, findings)),
    )


def _remarks(tally: _Tally, precise: bool, findings: Findings) -> Iterator[str]:
    if findings.nominal:
        yield "the event occurs with every score at zero: plain Monte Carlo"
    if findings.unexplained:
        yield (
            "the search left failures that no centre covers "
            f"({findings.unexplained} exploring runs): the probability may be too low"
        )
    if not precise:
        yield f"stopped after {tally.runs} samples"
    contributions = tally.contributions
    if contributions.any() and (share := contributions.max() / contributions.sum()) > _HEAVY:
        yield f"one run holds {share:.0%} of the weight"
    if unknown := int((~tally.known).sum()):
        yield f"{unknown} of {tally.runs} samples could not be simulated"


def _nothing_found(dimensions: int, findings: Findings) -> Estimate:
    if findings.astray:
        high = 1.0
        note = (
            f"exploring runs failed, but no single direction within {RADIUS:g} sigma does: "
            "use subset simulation"
        )
    else:
        high = float(ndtr(-RADIUS))
        note = (
            f"no failure found within {RADIUS:g} sigma in {findings.runs} runs: the upper limit "
            "holds for one region with a flat boundary"
        )
    return Estimate(
        probability=math.nan,
        standard_error=math.nan,
        low=0.0,
        high=high,
        effective_samples=0.0,
        runs=findings.runs,
        beta=RADIUS,
        centres=np.empty((0, dimensions)),
        converged=False,
        note=note,
    )
