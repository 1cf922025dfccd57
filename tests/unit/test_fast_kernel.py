"""The compiled transient where its solution is known: a bitline and nothing but resistors."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from circuits.fast_kernel import RESISTOR, discharge
from nandcosim.errors import MissingExtraError

CAPACITANCE = 200e-15
START, STOP = 0.8, 20e-6


def run(resistances, levels, sinks, bitline_error=2e-4):
    resistances = np.atleast_2d(resistances)
    samples, elements = resistances.shape
    axis = np.array([0.05, 1 / 0.01])
    charge = CAPACITANCE * (axis[0] + np.arange(80) / axis[1])
    return discharge(
        np.zeros((1, 2, 2, 2, 4)),
        np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
        np.array([[0.0, 0.0, 1.0]]),
        np.full(elements, RESISTOR),
        1.0 / resistances,
        np.array([], dtype=np.int64),
        1.2,
        10e-9,
        charge,
        axis,
        START,
        np.resize(np.asarray(sinks, dtype=float), samples),
        np.resize(np.asarray(levels, dtype=float), (samples, 2)),
        STOP,
        2e-9,
        0.08,
        bitline_error,
    )


def test_discharge_through_resistors_follows_its_closed_form() -> None:
    resistances = np.array([[1e6, 2e6, 3e6, 4e6], [1e7, 1e7, 1e7, 1e7], [5e5, 1e6, 2e6, 5e5]])
    sinks = np.array([0.0, -0.05, 0.1])
    times, solved = run(resistances, [0.4, 0.3], sinks, bitline_error=5e-6)
    assert solved.all()
    tau = CAPACITANCE * resistances.sum(axis=1)
    for column, level in enumerate((0.4, 0.3)):
        expected = tau * np.log((START - sinks) / (level - sinks))
        np.testing.assert_allclose(times[:, column], expected, rtol=5e-4)


def test_tolerance_governs_the_error() -> None:
    exact = CAPACITANCE * 1e7 * np.log(2.0)
    errors = [
        abs(run(np.full(4, 2.5e6), [0.4, 0.4], 0.0, tolerance)[0][0, 0] / exact - 1.0)
        for tolerance in (1e-2, 1e-4)
    ]
    assert errors[1] < errors[0] / 5
    assert errors[1] < 1e-3


def test_level_that_is_not_reached_is_nan_and_no_failure() -> None:
    times, solved = run(np.full(4, 1e9), [0.4, 0.799], 0.0)
    assert solved.all()
    assert np.isnan(times[0, 0])
    assert np.isfinite(times[0, 1])


def test_nonsense_is_a_failure_and_not_a_crash() -> None:
    resistances = np.full((3, 4), 1e6)
    resistances[1, 2] = np.nan
    times, solved = run(resistances, [0.4, 0.3], 0.0)
    assert solved.tolist() == [True, False, True]
    assert np.isnan(times[1]).all()
    np.testing.assert_array_equal(times[0], times[2])


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "circuits.fast_kernel")
    with pytest.raises(MissingExtraError, match=r"numba.*nandcosim\[fast\]"):
        importlib.import_module("circuits.fast_kernel")
