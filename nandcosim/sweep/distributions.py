"""The distributions a random variable may have, as functions of standard normal scores.

Every sampler delivers standard normal scores ``z`` (shape: any) and every
marginal is ``F**-1(Phi(z))``. Correlation is introduced between the scores, so a
non-normal variable is correlated through a Gaussian copula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["DISTRIBUTIONS", "Distribution"]

Values = Mapping[str, float]


@dataclass(frozen=True)
class Distribution:
    """A family of one-dimensional distributions.

    Attributes
    ----------
    name : str
    meaning : str
        One line for the documentation.
    parameters : Mapping[str, str]
        Name -> kind: ``"value"`` (unit of the target), ``"spread"`` (a difference in
        that unit) or ``"pure"`` (no unit).
    quantile : callable
        ``quantile(z, values) -> ndarray``: standard normal scores to values in the
        unit of the target, same shape.
    fault : callable
        ``fault(values) -> str``: what is impossible about the values, ``""`` if nothing.
    """

    name: str
    meaning: str
    parameters: Mapping[str, str]
    quantile: Callable[[np.ndarray, Values], np.ndarray]
    fault: Callable[[Values], str]


def _normal(z: np.ndarray, p: Values) -> np.ndarray:
    return p["mean"] + p["std"] * z


def _lognormal(z: np.ndarray, p: Values) -> np.ndarray:
    return p["median"] * np.exp(p["log_std"] * z)


def _uniform(z: np.ndarray, p: Values) -> np.ndarray:
    return np.asarray(p["low"] + (p["high"] - p["low"]) * special.ndtr(z))


def _truncated_normal(z: np.ndarray, p: Values) -> np.ndarray:
    if p["std"] == 0:
        return np.full_like(z, p["mean"])
    a, b = (p["low"] - p["mean"]) / p["std"], (p["high"] - p["mean"]) / p["std"]
    # Phi rounds to 1 in the upper tail: a window up there is mirrored to the lower one.
    side = 1.0 if a <= 0 else -1.0
    if side < 0:
        a, b, z = -b, -a, -z
    below = special.ndtr(a)
    u = below + (special.ndtr(b) - below) * special.ndtr(z)
    values = p["mean"] + p["std"] * side * special.ndtri(u)
    return np.asarray(np.clip(values, p["low"], p["high"]))


def _student_t(z: np.ndarray, p: Values) -> np.ndarray:
    # The distribution is symmetric; going through the lower tail keeps the far
    # upper one exact, where Phi(z) rounds to 1.
    tail = special.stdtrit(p["df"], special.ndtr(-np.abs(z)))
    return np.asarray(p["mean"] - p["scale"] * np.sign(z) * tail)


def _negative(key: str) -> Callable[[Values], str]:
    return lambda p: "" if p[key] >= 0 else f"{key} = {p[key]:g} is negative, allowed: >= 0"


def _range_fault(p: Values) -> str:
    if p["low"] < p["high"]:
        return ""
    return f"low = {p['low']:g} is not below high = {p['high']:g}"


def _lognormal_fault(p: Values) -> str:
    if p["median"] <= 0:
        return f"median = {p['median']:g} is not positive, allowed: > 0"
    return _negative("log_std")(p)


def _truncated_fault(p: Values) -> str:
    fault = _negative("std")(p) or _range_fault(p)
    if not fault and p["std"] == 0 and not p["low"] <= p["mean"] <= p["high"]:
        fault = f"std is 0 and mean = {p['mean']:g} lies outside low..high"
    return fault


def _student_fault(p: Values) -> str:
    if p["df"] <= 0:
        return f"df = {p['df']:g} is not positive, allowed: > 0"
    return _negative("scale")(p)


#: All the distributions, by the name used in a spec.
DISTRIBUTIONS: dict[str, Distribution] = {
    each.name: each
    for each in (
        Distribution(
            "normal",
            "normal with this mean and standard deviation",
            {"mean": "value", "std": "spread"},
            _normal,
            _negative("std"),
        ),
        Distribution(
            "lognormal",
            "exp of a normal: its median, and the standard deviation of its natural logarithm",
            {"median": "value", "log_std": "pure"},
            _lognormal,
            _lognormal_fault,
        ),
        Distribution(
            "uniform",
            "uniform between low and high",
            {"low": "value", "high": "value"},
            _uniform,
            _range_fault,
        ),
        Distribution(
            "truncated-normal",
            "normal (mean and std before truncation) cut to low..high",
            {"mean": "value", "std": "spread", "low": "value", "high": "value"},
            _truncated_normal,
            _truncated_fault,
        ),
        Distribution(
            "student-t",
            "mean + scale * t with df degrees of freedom (heavy tails)",
            {"mean": "value", "scale": "spread", "df": "pure"},
            _student_t,
            _student_fault,
        ),
    )
}
