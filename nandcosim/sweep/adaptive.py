"""How many samples a grid point takes, and which grid points, where a sweep asks for a precision.

Each wave of samples is decided from the results of those before it and from nothing else:
the plan is a function of the spec and the results, so it is the same wherever and however
often the sweep was interrupted.

A point is finished when the 95 % interval of its mean is as narrow as asked. If all its
values are 0 or 1 the interval is Wilson's, widened by failed samples; else it is Student's,
of the samples that have a value. When every active point is finished, axes to be refined
are tested: each inner value is left out and interpolated from its neighbours, and where
that is wrong by more than noise and the tolerance, the gaps on both sides are halved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from nandcosim.intervals import (
    CONFIDENCE,
    mean_and_error,
    normal_quantile,
    student_half_width,
    wilson,
)
from nandcosim.spice.status import Status
from nandcosim.sweep.goals import Precision
from nandcosim.sweep.spec import SweepSpec

__all__ = ["Report", "next_wanted", "start"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.intp]

#: Counts are multiples of this, so that points are finished in few waves.
STEP = 10

#: A point takes at least and at most so many times its samples in the next wave. The
#: spread of few samples is a poor guide to what many of them need.
LEAST_GROWTH, MOST_GROWTH = 1.1, 2.0


class Report(TypedDict):
    """What a plan has come to, as the store records it.

    Attributes
    ----------
    complete : bool
        Whether nothing is left to run.
    runs : int
        Samples asked for, over all points.
    uniform_runs : int
        Samples of the uniform plan that gives as much: refined axes evenly spaced by the
        smallest spacing that was used, and as many samples at every point as at the worst.
    saved : float
        Share of `uniform_runs` that was not needed.
    active : int
        Grid points that were taken up.
    imprecise : list of int
        Numbers of the grid points that ended without the precision: at their maximum, or
        because none of their samples has a value.
    worst_error : float or None
        Largest error of interpolation along a refined axis, less noise, in the unit of the
        response; None until the points are finished, and without an axis to refine.
    unresolved : list of str
        Refined axes that still exceed the tolerance and have no value left to add.
    """

    complete: bool
    runs: int
    uniform_runs: int
    saved: float
    active: int
    imprecise: list[int]
    worst_error: float | None
    unresolved: list[str]


@dataclass(frozen=True)
class _Measured:
    """The response at every point, each of shape (points,).

    Attributes
    ----------
    mean : ndarray of float
        NaN without a value.
    half_width : ndarray of float
        Of its 95 % interval; infinite where that is not known.
    used : ndarray of int
        Samples that have a value.
    """

    mean: Floats
    half_width: Floats
    used: Counts


def start(spec: SweepSpec) -> Counts:
    """Samples of the first wave, int64, shape (points,); 0 where a point is not active."""
    asked = _asked(spec)
    indices = [
        _first(spec, name) if name in asked.refine else np.arange(len(values))
        for name, values in spec.axes.items()
    ]
    return _activated(spec, np.zeros(spec.points, np.int64), indices)


def next_wanted(
    spec: SweepSpec, wanted: Counts, status: NDArray[np.int8], values: Floats
) -> tuple[Counts, Report]:
    """Samples to have after the next wave.

    Parameters
    ----------
    spec : SweepSpec
        With `precision`.
    wanted : ndarray of int64, shape (points,)
        Samples asked for so far, all of them run.
    status : ndarray of int8, shape (points, n)
        Outcomes; n may be cut to the largest of `wanted`, what lies beyond does not count.
    values : ndarray of float, shape (points, n)
        The response that the precision is asked of, in its unit; NaN where undefined.

    Returns
    -------
    wanted : ndarray of int64, shape (points,)
        Nowhere smaller than before; equal to it if the plan is complete.
    report : Report
        On the samples asked for before.
    """
    measured = _measured(wanted, status, values)
    precise = _precise(spec, measured)
    finished = precise | (wanted >= spec.samples) | (measured.used == 0)
    active = wanted > 0
    runs, uniform = int(wanted.sum()), _uniform_runs(spec, wanted)

    def report(
        complete: bool, worst_error: float | None = None, unresolved: Sequence[str] = ()
    ) -> Report:
        return Report(
            complete=complete,
            runs=runs,
            uniform_runs=uniform,
            saved=1 - runs / uniform,
            active=int(active.sum()),
            imprecise=np.flatnonzero(active & finished & ~precise).tolist(),
            worst_error=worst_error,
            unresolved=list(unresolved),
        )

    if not finished[active].all():
        return np.where(active & ~finished, _grown(spec, wanted, measured), wanted), report(False)
    if not _asked(spec).refine:
        return wanted, report(True)
    indices, worst_error, unresolved = _refined(spec, wanted, measured)
    refined = _activated(spec, wanted, indices)
    return refined, report(bool((refined == wanted).all()), worst_error, unresolved)


def _asked(spec: SweepSpec) -> Precision:
    assert spec.precision is not None
    return spec.precision


# ---------------------------------------------------------------- samples of a point


def _measured(wanted: Counts, status: NDArray[np.int8], values: Floats) -> _Measured:
    asked_for = np.arange(status.shape[1]) < wanted[:, np.newaxis]
    ok = asked_for & (status == Status.OK)
    failed = (asked_for & ~ok & (status != Status.NOT_RUN)).sum(axis=1)
    has_value = ok & np.isfinite(values)
    used = has_value.sum(axis=1)
    mean, error, _ = mean_and_error(values, has_value)
    ones = (has_value & (values == 1.0)).sum(axis=1)
    zeros = (has_value & (values == 0.0)).sum(axis=1)
    low, high = wilson(ones, used, failed)
    is_proportion = ones + zeros == used
    half_width = np.where(is_proportion, (high - low) / 2, student_half_width(error, used))
    return _Measured(mean, np.where(used > 0, half_width, np.inf), used)


def _target(spec: SweepSpec, mean: Floats) -> Floats:
    """Half-width that is asked for at every point."""
    asked = _asked(spec)
    if asked.half_width is not None:
        return np.full(mean.shape, asked.half_width)
    assert asked.relative is not None
    return asked.relative * np.abs(mean)


def _precise(spec: SweepSpec, measured: _Measured) -> NDArray[np.bool_]:
    return measured.half_width <= _target(spec, measured.mean)


def _grown(spec: SweepSpec, wanted: Counts, measured: _Measured) -> Counts:
    """What each point needs if its spread stays, within the limits of growth."""
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (measured.half_width / _target(spec, measured.mean)) ** 2
    needed = wanted * np.clip(factor, LEAST_GROWTH, MOST_GROWTH)
    return _whole_steps(spec, np.where(np.isnan(factor), wanted, needed))


def _whole_steps(spec: SweepSpec, counts: Floats | Counts) -> Counts:
    """Counts rounded up to steps, as far as the spec allows."""
    whole = np.minimum(STEP * np.ceil(counts / STEP), spec.samples)
    return np.asarray(whole, dtype=np.int64)


# ---------------------------------------------------------------- values of an axis


def _first(spec: SweepSpec, name: str) -> Indices:
    """Values that a refined axis begins with, spread evenly in position, as indices."""
    order = np.argsort(spec.axes[name])
    count = min(_asked(spec).first, order.size)
    return order[np.linspace(0, order.size - 1, count).round().astype(np.intp)]


def _activated(spec: SweepSpec, wanted: Counts, indices: Sequence[Indices]) -> Counts:
    """`wanted` with the start's samples at least where the chosen values of the axes cross."""
    grid = wanted.reshape(spec.grid_shape).copy()
    chosen = np.ix_(*indices)
    first = _whole_steps(spec, np.array(_asked(spec).start))
    grid[chosen] = np.maximum(grid[chosen], first)
    return grid.ravel()


def _active(spec: SweepSpec, wanted: Counts) -> list[Indices]:
    """Values of every axis that have been taken up, as indices."""
    grid = wanted.reshape(spec.grid_shape) > 0
    dims = range(grid.ndim)
    return [np.flatnonzero(grid.any(axis=tuple(d for d in dims if d != axis))) for axis in dims]


def _refined(
    spec: SweepSpec, wanted: Counts, measured: _Measured
) -> tuple[list[Indices], float, list[str]]:
    """Values of every axis with those to add, the worst error, and the axes that lack values."""
    asked = _asked(spec)
    tolerance = asked.tolerance or asked.half_width
    assert tolerance is not None
    active = _active(spec, wanted)
    indices = list(active)
    worst, unresolved = 0.0, []
    for name in asked.refine:
        at = list(spec.axes).index(name)
        order = np.argsort(spec.axes[name])
        places = np.flatnonzero(np.isin(order, active[at]))
        errors = _axis_errors(
            spec, name, [*active[:at], order[places], *active[at + 1 :]], measured
        )
        wrong = errors > tolerance
        added = order[_middles(places, wrong)]
        indices[at] = np.concatenate([active[at], added])
        worst = max(worst, float(errors.max()))
        if wrong.any() and not added.size:
            unresolved.append(name)
    return indices, worst, unresolved


def _axis_errors(
    spec: SweepSpec, name: str, active: Sequence[Indices], measured: _Measured
) -> Floats:
    """`_left_out_errors` along an axis, whose active values come in increasing order."""
    at = list(spec.axes).index(name)

    def along(quantity: Floats) -> Floats:
        grid = quantity.reshape(spec.grid_shape)[np.ix_(*active)]
        return np.moveaxis(grid, at, 0).reshape(active[at].size, -1)

    position = np.array(spec.axes[name], float)[active[at]]
    return _left_out_errors(position, along(measured.mean), along(measured.half_width))


def _left_out_errors(position: Floats, mean: Floats, half_width: Floats) -> Floats:
    """Error, less noise, of interpolating each inner value of an axis from its neighbours.

    Parameters
    ----------
    position : ndarray, shape (n,)
        Values of the axis, increasing.
    mean, half_width : ndarray, shape (n, others)
        The response there, at every combination of the other axes.

    Returns
    -------
    ndarray, shape (n - 2,)
        The worst over the others. Noise is the half-width of a joint 95 % interval of all
        the differences (Z. Šidák, J. Am. Stat. Assoc. 62, 626, 1967), the points taken as
        independent.
    """
    above = ((position[1:-1] - position[:-2]) / (position[2:] - position[:-2]))[:, np.newaxis]
    below = 1 - above
    difference = np.abs(mean[1:-1] - below * mean[:-2] - above * mean[2:])
    known = np.isfinite(difference)
    joint = CONFIDENCE ** (1 / max(int(known.sum()), 1))
    variance = (
        half_width[1:-1] ** 2 + (below * half_width[:-2]) ** 2 + (above * half_width[2:]) ** 2
    )
    noise = np.sqrt(variance) * (normal_quantile(joint) / normal_quantile())
    errors = np.where(known, np.maximum(difference - noise, 0.0), 0.0)
    return np.asarray(errors.max(axis=1))


def _middles(places: Indices, wrong: NDArray[np.bool_]) -> Indices:
    """Middle of each gap beside a wrong inner place, where there is something between."""
    inner = 1 + np.flatnonzero(wrong)
    gaps = np.union1d(inner - 1, inner).astype(np.intp)
    left, right = places[gaps], places[gaps + 1]
    return ((left + right) // 2)[right - left > 1]


def _uniform_runs(spec: SweepSpec, wanted: Counts) -> int:
    """Samples of the uniform plan that gives as much; see `Report`."""
    points = 1
    for (name, values), active in zip(spec.axes.items(), _active(spec, wanted), strict=True):
        count = active.size
        if name in _asked(spec).refine and count > _first(spec, name).size:
            places = np.flatnonzero(np.isin(np.argsort(values), active))
            count = 1 + int(np.ceil((len(values) - 1) / np.diff(places).min()))
        points *= count
    return points * int(wanted.max())
