"""The plan of a sweep that asks for a precision."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from adaptive_specs import sweep

from nandcosim.intervals import mean_and_error, student_half_width, wilson
from nandcosim.spice.status import Status
from nandcosim.sweep.adaptive import Report, next_wanted, start
from nandcosim.sweep.spec import SweepSpec

Results = tuple[np.ndarray, np.ndarray]


def normal_results(spec: SweepSpec, deviation: float | np.ndarray = 1.0) -> Results:
    """All samples ok, their values normal about 0."""
    shape = (spec.points, spec.samples)
    values = np.random.default_rng(4).standard_normal(shape)
    return np.zeros(shape, np.int8), values * np.broadcast_to(deviation, spec.points)[:, np.newaxis]


def exact_results(spec: SweepSpec, truth: Callable[..., float]) -> Results:
    """Every sample has the value of `truth` at its grid point."""
    means = [truth(**spec.coordinates(p)) for p in range(spec.points)]
    shape = (spec.points, spec.samples)
    return np.zeros(shape, np.int8), np.broadcast_to(np.array(means)[:, np.newaxis], shape)


def carried_out(spec: SweepSpec, results: Results) -> tuple[list[np.ndarray], Report]:
    """Every wave's counts, and the last report."""
    waves = [start(spec)]
    while True:
        wanted, report = next_wanted(spec, waves[-1], *results)
        if report["complete"]:
            assert np.array_equal(wanted, waves[-1])
            return waves, report
        assert (wanted >= waves[-1]).all()
        assert (wanted > waves[-1]).any()
        waves.append(wanted)


# ---------------------------------------------------------------- samples of a point


def test_every_point_begins_with_the_same_samples() -> None:
    assert start(sweep(half_width=0.1)).tolist() == [50, 50]
    assert start(sweep(half_width=0.1, start=33)).tolist() == [40, 40]
    assert start(sweep(half_width=0.1, samples=30)).tolist() == [30, 30]
    assert start(sweep({}, half_width=0.1)).tolist() == [50]


def test_a_point_stops_when_the_interval_of_its_mean_is_narrow_enough() -> None:
    spec = sweep(half_width=0.1)
    status, values = normal_results(spec, np.array([1.0, 0.1]))
    waves, report = carried_out(spec, (status, values))
    final = waves[-1]
    for before, reached in ((waves[-2], False), (final, True)):
        used = np.arange(spec.samples) < before[:, np.newaxis]
        width = student_half_width(mean_and_error(values, used)[1], before)
        assert (width[0] <= 0.1) == reached
    assert final[1] == 50  # its spread is a tenth
    assert report["imprecise"] == []
    assert report["runs"] == final.sum()
    assert report["uniform_runs"] == 2 * final.max()
    assert report["saved"] == 1 - final.sum() / (2 * final.max())


def test_a_relative_precision_is_a_share_of_the_mean() -> None:
    spec = sweep(relative=0.05)
    status, noise = normal_results(spec)
    values = noise + np.array([[2.0], [8.0]])
    waves, _ = carried_out(spec, (status, values))
    used = np.arange(spec.samples) < waves[-1][:, np.newaxis]
    mean, error, _ = mean_and_error(values, used)
    assert (student_half_width(error, waves[-1]) <= 0.05 * mean).all()
    assert waves[-1][0] > waves[-1][1] == 50


def test_counts_grow_by_whole_tens_and_not_by_more_than_twice() -> None:
    waves, _ = carried_out(sweep(half_width=0.06), normal_results(sweep(half_width=0.06)))
    counts = np.array(waves)
    growing = counts[1:] > counts[:-1]
    assert (counts % 10 == 0).all()
    assert (counts[1:][growing] >= 1.1 * counts[:-1][growing]).all()
    assert (counts[1:] <= 2 * counts[:-1]).all()


@pytest.mark.parametrize("bit", [0.0, 1.0])
def test_equal_bits_are_not_certain(bit: float) -> None:
    """Their spread is 0, Wilson's interval is not: 190 equal bits are known to 0.01."""
    spec = sweep({}, half_width=0.01)
    waves, _ = carried_out(spec, exact_results(spec, lambda: bit))
    assert [int(n[0]) for n in waves] == [50, 100, 200]
    low, high = wilson(0, [100, 200])
    assert ((high - low) / 2 > 0.01).tolist() == [True, False]


def test_values_without_spread_are_certain() -> None:
    spec = sweep(half_width=1e-9)
    waves, report = carried_out(spec, exact_results(spec, lambda x: 3.0 + x))
    assert len(waves) == 1
    assert report["imprecise"] == []


def test_failed_samples_widen_the_interval_of_a_proportion() -> None:
    spec = sweep(half_width=0.06)
    bits = np.broadcast_to(np.arange(spec.samples) % 2, (2, spec.samples)).astype(float)
    status = np.zeros(bits.shape, np.int8)
    status[1, ::20] = Status.TIMEOUT
    waves, report = carried_out(spec, (status, np.where(status == Status.OK, bits, np.nan)))
    assert waves[-1][0] < waves[-1][1] < spec.samples
    assert report["imprecise"] == []
    # One in ten is 0.05 of half-width, however many samples there are.
    status[1, ::10] = Status.TIMEOUT
    waves, report = carried_out(
        sweep(half_width=0.05), (status, np.where(status == Status.OK, bits, np.nan))
    )
    assert waves[-1][1] == spec.samples
    assert report["imprecise"] == [1]


def test_samples_without_a_value_do_not_count() -> None:
    spec = sweep({}, half_width=0.1)
    status, values = normal_results(spec)
    values[0, ::2] = np.nan
    waves, _ = carried_out(spec, (status, values))
    used = (np.arange(spec.samples) < waves[-1][0]) & np.isfinite(values[0])
    error = mean_and_error(values[0], used)[1]
    assert student_half_width(error, used.sum()) <= 0.1
    assert waves[-1][0] >= 2 * used.sum()


def test_a_point_whose_samples_have_no_value_is_given_up() -> None:
    spec = sweep(half_width=0.1)
    status, values = normal_results(spec)
    values[1] = np.nan
    waves, report = carried_out(spec, (status, values))
    assert waves[-1][1] == 50
    assert report["imprecise"] == [1]


def test_the_maximum_ends_a_point() -> None:
    spec = sweep(half_width=0.01, samples=75)
    waves, report = carried_out(spec, normal_results(spec))
    assert waves[-1].tolist() == [75, 75]
    assert report["imprecise"] == [0, 1]
    assert report["complete"]


def test_results_beyond_what_was_asked_for_do_not_count() -> None:
    spec = sweep(half_width=0.2)
    status, values = normal_results(spec)
    beyond = np.arange(spec.samples) >= 50
    other = np.where(beyond, 1e3, values), np.where(beyond, Status.CRASHED, status)
    assert np.array_equal(
        next_wanted(spec, start(spec), other[1].astype(np.int8), other[0])[0],
        next_wanted(spec, start(spec), status[:, :50], values[:, :50])[0],
    )


def test_reports_can_be_stored_as_json() -> None:
    spec = sweep(half_width=0.2)
    _, report = next_wanted(spec, start(spec), *normal_results(spec))
    assert json.loads(json.dumps(report, allow_nan=False)) == report


# ---------------------------------------------------------------- values of an axis

FINE = tuple(float(x) for x in np.linspace(-1, 1, 17))


def bend(x: float) -> float:
    """A kink at 1/4, which is a value of the fine axis and not of the first five."""
    return 2.0 + max(0.0, x - 0.25)


def active(spec: SweepSpec, wanted: np.ndarray) -> list[list[float | str]]:
    grid = wanted.reshape(spec.grid_shape) > 0
    rectangle = np.ones(1, bool)
    values = []
    for axis, name in enumerate(spec.axes):
        held = grid.any(axis=tuple(d for d in range(grid.ndim) if d != axis))
        rectangle = np.multiply.outer(rectangle, held)
        values.append([v for v, is_held in zip(spec.axes[name], held, strict=True) if is_held])
    assert np.array_equal(rectangle[0], grid)
    return values


def test_a_refined_axis_begins_with_a_few_values_ends_included() -> None:
    spec = sweep({"x": FINE, "corner": ("tt", "ss")}, half_width=0.1, refine=("x",))
    assert active(spec, start(spec)) == [[-1.0, -0.5, 0.0, 0.5, 1.0], ["tt", "ss"]]
    shuffled = sweep({"x": FINE[::-1]}, half_width=0.1, refine=("x",), first=3)
    assert active(shuffled, start(shuffled)) == [[1.0, 0.0, -1.0]]


def test_a_straight_line_is_not_refined() -> None:
    spec = sweep({"x": FINE}, half_width=0.01, refine=("x",))
    waves, report = carried_out(spec, exact_results(spec, lambda x: 2.0 + 3 * x))
    assert len(waves) == 1
    assert report["worst_error"] == pytest.approx(0, abs=1e-12)
    assert report["uniform_runs"] == report["runs"] == 5 * 50
    assert report["active"] == 5


def test_values_are_added_where_interpolation_is_worst() -> None:
    spec = sweep({"x": FINE}, half_width=1e-6, tolerance=0.07, refine=("x",))
    waves, report = carried_out(spec, exact_results(spec, bend))
    (values,) = active(spec, waves[-1])
    added = [v for v in values if v not in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    # 0 and 0.5, beside the kink, are wrong by 0.125 when left out: the gaps beside them are
    # halved. Then 0.25 is, by as much, and after halving the gaps beside it by half of that.
    assert added == [-0.25, 0.125, 0.25, 0.375, 0.75]
    assert len(waves) == 3
    assert report["worst_error"] == pytest.approx(0.0625)
    assert report["unresolved"] == []


def test_a_plan_says_what_is_left() -> None:
    spec = sweep({"x": FINE}, half_width=1e-6, refine=("x",))
    waves, report = carried_out(spec, exact_results(spec, bend))
    assert report["complete"]
    assert report["unresolved"] == ["x"]
    (values,) = active(spec, waves[-1])
    spacing = FINE[1] - FINE[0]
    assert {0.25 - spacing, 0.25, 0.25 + spacing} <= set(values)
    assert report["worst_error"] == pytest.approx(spacing / 2)
    assert report["uniform_runs"] == 17 * 50
    assert report["runs"] == 50 * len(values) < report["uniform_runs"]


def test_two_axes_are_refined_by_whole_slices() -> None:
    spec = sweep(
        {"x": FINE, "corner": ("tt", "ss"), "y": tuple(range(9))},
        half_width=1e-6,
        tolerance=0.01,
        refine=("x", "y"),
        first=3,
    )
    truth = exact_results(
        spec, lambda x, corner, y: 5.0 + (corner == "ss") * bend(x) + (y > 3) * (y - 3)
    )
    waves, report = carried_out(spec, truth)
    x, corner, y = active(spec, waves[-1])
    assert 0.25 in x
    assert corner == ["tt", "ss"]
    assert {2, 3, 4} <= set(y)
    assert len(x) < 17
    assert len(y) < 9
    assert report["active"] == len(x) * 2 * len(y)
    assert report["unresolved"] == ["x", "y"]


def test_uneven_axes_are_interpolated_in_their_own_values() -> None:
    spec = sweep(
        {"x": tuple(float(x) for x in np.geomspace(1, 1000, 13))}, half_width=1e-6, refine=("x",)
    )
    waves, _ = carried_out(spec, exact_results(spec, lambda x: 2.0 + x))
    assert len(waves) == 1


def test_points_that_have_no_mean_say_nothing_of_an_axis() -> None:
    spec = sweep({"x": FINE}, half_width=1e-6, refine=("x",))
    status, values = exact_results(spec, lambda x: 2.0 if x < 0.6 else np.nan)
    waves, report = carried_out(spec, (status, values))
    assert len(waves) == 1
    assert report["imprecise"] == [16]
    assert report["worst_error"] == 0.0
