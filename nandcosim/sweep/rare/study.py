"""Limit states with a known probability, and what the methods make of them.

python -m nandcosim.sweep.rare.study
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import chi2, norm

from nandcosim.sweep.rare.contract import Batch, Estimate, Method, Outcomes, Settings
from nandcosim.sweep.rare.importance import importance
from nandcosim.sweep.rare.subset import subset

__all__ = [
    "LimitState",
    "corner",
    "hyperplane",
    "opposite",
    "paraboloid",
    "run",
    "sphere",
    "spread",
]


@dataclass(frozen=True)
class LimitState:
    """An event with a known probability.

    Attributes
    ----------
    name : str
    dimensions : int
    probability : float
    guide : callable
        Scores (n, dimensions) to the guide (n,); the event is a guide of zero or less.
    """

    name: str
    dimensions: int
    probability: float
    guide: Callable[[np.ndarray], np.ndarray]

    def outcomes(self, batch: Batch) -> Outcomes:
        """What becomes of a batch."""
        guide = self.guide(batch.scores)
        return Outcomes(guide <= 0, guide, np.ones(len(guide), bool))


def run(method: Method, outcomes: Callable[[Batch], Outcomes]) -> Estimate:
    """Drive a method to its answer with a function that makes the runs."""
    try:
        batch = next(method)
        while True:
            batch = method.send(outcomes(batch))
    except StopIteration as end:
        answer: Estimate = end.value
        return answer


def hyperplane(probability: float, dimensions: int) -> LimitState:
    """One score decides: beta - z_0."""
    beta = -float(ndtri(probability))
    return LimitState("hyperplane", dimensions, probability, lambda z: beta - z[:, 0])


def spread(probability: float, dimensions: int) -> LimitState:
    """All scores matter alike: beta - sum z / sqrt(d)."""
    beta = -float(ndtri(probability))
    root = np.sqrt(dimensions)
    return LimitState("all alike", dimensions, probability, lambda z: beta - z.sum(axis=1) / root)


def opposite(probability: float, dimensions: int) -> LimitState:
    """Two regions on opposite sides: beta - |z_0|."""
    beta = -float(ndtri(probability / 2))
    return LimitState("two opposite", dimensions, probability, lambda z: beta - np.abs(z[:, 0]))


def corner(probability: float, dimensions: int) -> LimitState:
    """Two regions at right angles: beta - max(z_0, z_1)."""
    beta = -float(ndtri(-np.expm1(np.log1p(-probability) / 2)))
    return LimitState(
        "two at 90 degrees", dimensions, probability, lambda z: beta - z[:, :2].max(axis=1)
    )


def paraboloid(beta: float, curvature: float, dimensions: int) -> LimitState:
    """A boundary that bends away from the origin (or, if negative, around it).

    The event is z_0 >= beta + curvature / 2 * sum of the other squares; given those, which
    follow a chi-square law, its probability is that of one normal score.
    """
    others = chi2(dimensions - 1)
    top = float(others.isf(1e-16))
    exact, _ = quad(
        lambda s: others.pdf(s) * norm.sf(beta + curvature / 2 * s),
        0,
        top,
        points=[others.mean()],
        epsabs=0,
        limit=500,
    )
    return LimitState(
        f"paraboloid, curvature {curvature:g}",
        dimensions,
        float(exact),
        lambda z: beta + curvature / 2 * (z[:, 1:] ** 2).sum(axis=1) - z[:, 0],
    )


def sphere(probability: float, dimensions: int) -> LimitState:
    """Failure in every direction: R - |z|."""
    radius = float(np.sqrt(chi2.isf(probability, dimensions)))
    return LimitState(
        "sphere", dimensions, probability, lambda z: radius - np.linalg.norm(z, axis=1)
    )


_STATES = (
    hyperplane(1e-6, 131),
    spread(1e-6, 131),
    hyperplane(1e-9, 131),
    opposite(1e-6, 131),
    corner(1e-6, 131),
    paraboloid(4.0, 0.02, 131),
    paraboloid(6.0, -0.02, 131),
    hyperplane(1e-7, 3),
    sphere(1e-6, 2),
    sphere(1e-6, 3),
    sphere(1e-6, 131),
)

_HEADER = """\
| limit state | d | exact | method | answers | mean / exact | scatter | stated error | covered \
| converged | runs | plain runs |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


def main(repeats: int = 100) -> None:
    """Print a Markdown table of what the methods answer at a precision of 0.1, 5000 runs."""
    settings = Settings(precision=0.1, max_runs=5000)
    print(_HEADER)
    for state in _STATES:
        for method in (importance, subset):
            found = [
                run(method(state.dimensions, np.random.default_rng(seed), settings), state.outcomes)
                for seed in range(repeats)
            ]
            print(_row(state, method.__name__, found))


def _row(state: LimitState, method: str, found: list[Estimate]) -> str:
    exact = state.probability
    answered = [each for each in found if np.isfinite(each.probability)]
    ratio = np.array([each.probability for each in answered]) / exact
    error = np.array([each.standard_error / each.probability for each in answered])
    covered = np.mean([each.low <= exact <= each.high for each in found])
    converged = np.mean([each.converged for each in found])
    runs = np.mean([each.runs for each in found])
    if answered:
        plain = (1 - exact) / (exact * ratio.var())
        accuracy = f"{ratio.mean():.2f} | {ratio.std():.2f} | {error.mean():.2f}"
        equal = f"{plain:.0e}"
    else:
        accuracy, equal = "- | - | -", "-"
    return (
        f"| {state.name} | {state.dimensions} | {exact:.1e} | {method} | {len(answered)} "
        f"| {accuracy} | {covered:.2f} | {converged:.2f} | {runs:.0f} | {equal} |"
    )


if __name__ == "__main__":
    main()
