"""Subset simulation: a rare event as a chain of frequent ones.

Levels of the guide are chosen so that a tenth of the samples of one lies beyond the
next (S.-K. Au, J. L. Beck, Probab. Eng. Mech. 16, 263, 2001); the probability is the
product. Samples beyond a level come from Markov chains that start at those found there
and move by conditional sampling, ``z' = rho z + sqrt(1 - rho^2) xi``, whose step adapts
to an acceptance of 0.44 (I. Papaioannou, W. Betz, K. Zwirglmaier, D. Straub, Probab.
Eng. Mech. 41, 89, 2015). All chains advance together: a batch is one step of each.

The standard error comes from the families, which are independent: with the share s_f of
the final failures in the family f of N, the relative variance is sum s_f^2 - 1 / N
(H. P. Chan, T. L. Lai, Ann. Stat. 41, 2877, 2013; A. Lee, N. Whiteley, Biometrika 105,
609, 2018). It holds the correlation within chains, between chains of one ancestor and
between levels. The sum over levels of Au and Beck (their eqs. 25 to 29) holds the first
only, and is too small by a fifth.

No point need be found and no gradient: it serves where there are many regions, or a
guide without slope at the origin. It takes many more runs, and needs a guide that ranks
the safe runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from nandcosim.sweep.rare.contract import Asking, Batch, Estimate, Method, Outcomes, Settings, Stage
from nandcosim.sweep.rare.interval import log_normal_interval

__all__ = ["subset"]

#: Probability of a level given the one before (Au and Beck 2001: 0.1).
_LEVEL = 0.1

#: Runs a level for a relative standard error of 1, from eq. 28 of Au and Beck: six levels
#: of variance (1 - p) / p (1 + gamma), with gamma of 2 for the correlation in chains.
_RUNS_FOR_UNIT_ERROR = 6 * (1 - _LEVEL) / _LEVEL * (1 + 2)

#: Runs a level at least, and share of all runs at most.
_FEWEST = 100
_MOST = 1 / 8

#: Acceptance that the step of a chain aims at (Papaioannou et al. 2015, section 4).
_ACCEPTANCE = 0.44
_FIRST_STEP = 0.6

#: A level that keeps more than this share of its samples leads nowhere: the guide is flat.
_FLAT = 0.5


def subset(dimensions: int, rng: np.random.Generator, settings: Settings) -> Method:
    """Estimate the probability of an event by subset simulation.

    Parameters
    ----------
    dimensions : int
        Number of standard normal scores.
    rng : numpy.random.Generator
    settings : Settings
        The runs of a level follow from `precision` and `max_runs`.

    Returns
    -------
    Method
    """
    return (yield from _Subset(dimensions, rng, settings).run())


@dataclass(frozen=True)
class _Samples:
    """Samples of one level, in the order (step, chain).

    Attributes
    ----------
    scores : ndarray, shape (steps, chains, dimensions)
    rank : ndarray, shape (steps, chains)
        The guide; -inf where the event occurred, inf where a safe run has none.
    family : ndarray of int, shape (steps, chains)
        The independent sample that each descends from.
    unknown : int
        Runs of the level whose simulation failed.
    """

    scores: np.ndarray
    rank: np.ndarray
    family: np.ndarray
    unknown: int

    def share(self, level: float) -> float:
        """Share of the samples at or beyond `level`."""
        return float((self.rank <= level).mean())

    def family_sizes(self, level: float) -> np.ndarray:
        """Samples at or beyond `level` in each family that has any, shape (families,)."""
        _, sizes = np.unique(self.family[self.rank <= level], return_counts=True)
        return np.asarray(sizes, float)


class _Subset:
    def __init__(self, dimensions: int, rng: np.random.Generator, settings: Settings) -> None:
        self.dimensions = dimensions
        self.rng = rng
        self.settings = settings
        self.runs = 0
        self.step = _FIRST_STEP
        wanted = min(_RUNS_FOR_UNIT_ERROR / settings.precision**2, settings.max_runs * _MOST)
        self.size = max(_FEWEST, round(wanted))

    def run(self) -> Method:
        probability, doubt = 1.0, 1.0
        samples = yield from self._first()
        while True:
            level = _next_level(samples.rank)
            share = samples.share(level)
            probability *= share
            doubt *= 1 + samples.unknown / (share * samples.rank.size)
            obstacle = "" if level == -math.inf else self._obstacle(level, share)
            if level == -math.inf or obstacle:
                sizes = samples.family_sizes(level)
                return self._estimate(probability, sizes, doubt, obstacle)
            samples = yield from self._beyond(samples, level)

    def _obstacle(self, level: float, share: float) -> str:
        """Why there can be no further level; empty if there can."""
        if level == math.inf or share > _FLAT:
            return "the guide does not rank the safe runs"
        if self.runs + self.size > self.settings.max_runs:
            return f"stopped after {self.runs} runs, before a level that holds the event"
        return ""

    def _first(self) -> Asking[_Samples]:
        """Independent samples."""
        scores = self.rng.standard_normal((1, self.size, self.dimensions))
        outcomes = yield from self._ask(scores[0])
        family = np.arange(self.size)[np.newaxis]
        return _Samples(scores, _rank(outcomes)[np.newaxis], family, _count_unknown(outcomes))

    def _beyond(self, samples: _Samples, level: float) -> Asking[_Samples]:
        """Samples beyond `level`, from chains that start at those there already."""
        there = samples.rank <= level
        score, rank = samples.scores[there], samples.rank[there]
        scores, ranks, unknown = [score], [rank], 0
        for turn in range(1, self.size // len(rank)):
            keep = math.sqrt(1 - self.step**2)
            proposed = keep * score + self.step * self.rng.standard_normal(score.shape)
            outcomes = yield from self._ask(proposed)
            unknown += _count_unknown(outcomes)
            found = _rank(outcomes)
            accepted = found <= level
            score = np.where(accepted[:, np.newaxis], proposed, score)
            rank = np.where(accepted, found, rank)
            scores.append(score)
            ranks.append(rank)
            excess = float(accepted.mean()) - _ACCEPTANCE
            self.step = min(1.0, self.step * math.exp(excess / math.sqrt(turn)))
        family = np.tile(samples.family[there], (len(scores), 1))
        return _Samples(np.array(scores), np.array(ranks), family, unknown)

    def _ask(self, scores: np.ndarray) -> Asking[Outcomes]:
        self.runs += len(scores)
        return (yield Batch.unweighted(scores, Stage.SAMPLE))

    def _estimate(
        self, probability: float, sizes: np.ndarray, doubt: float, obstacle: str
    ) -> Estimate:
        shares = sizes / sizes.sum()
        relative = math.sqrt(max(0.0, float((shares**2).sum()) - 1 / self.size))
        low, high = log_normal_interval(probability, relative, families=len(sizes))
        remarks = []
        if obstacle:
            remarks.append(f"{obstacle}: there is an upper limit only")
        if doubt > 1:
            remarks.append("some runs could not be simulated")
        if relative > self.settings.precision:
            remarks.append(f"{self.size} runs a level do not give the precision")
        return Estimate(
            probability=math.nan if obstacle else probability,
            standard_error=math.nan if obstacle else probability * relative,
            low=0.0 if obstacle else low / doubt,
            high=min(1.0, high * doubt),
            effective_samples=1 / float((shares**2).sum()),
            runs=self.runs,
            beta=math.nan if obstacle else -float(ndtri(probability)),
            centres=np.empty((0, self.dimensions)),
            converged=not obstacle and relative <= self.settings.precision,
            note="; ".join(remarks),
        )


def _count_unknown(outcomes: Outcomes) -> int:
    return int((~outcomes.known).sum())


def _rank(outcomes: Outcomes) -> np.ndarray:
    """The order in which runs come nearer to the event, lowest nearest."""
    usable = outcomes.known & ~np.isnan(outcomes.guide)
    return np.where(outcomes.event, -np.inf, np.where(usable, outcomes.guide, np.inf))


def _next_level(rank: np.ndarray) -> float:
    """The guide that a tenth of the samples reach; -inf if so many show the event."""
    ranks = np.sort(rank, axis=None)
    return float(ranks[math.ceil(_LEVEL * ranks.size) - 1])
