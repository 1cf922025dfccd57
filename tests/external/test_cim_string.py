"""CIM strings and units: resistance limit, thermometer steps, sign, gate, sums, pulses."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest

from circuits.chain import new_netlist
from circuits.cim_pulse import CimPulse
from circuits.cim_string import CimString, read_voltage, source_line_voltages, stored_shifts
from circuits.cim_unit import CimUnit
from circuits.gated_string import search_voltages
from nandcosim.encodings import complement, string_states, weights
from nandcosim.spice.circuit import DcSweep, SweptSource
from nandcosim.spice.deck import Deck, build_deck
from nandcosim.spice.engine import BACKENDS, Engine, measure
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

STRING, UNIT, PULSE = CimString(), CimUnit(), CimPulse()
X = range(4)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def string(engine: Engine, knobs=None, **settings) -> np.ndarray:
    outcome = engine.sample(STRING, STRING.Params(**settings), knobs)
    assert outcome.status is Status.OK, outcome.reason
    return np.array([outcome.responses[f"i_x{x}"] for x in X])


def unit(engine: Engine, knobs=None, **settings) -> np.ndarray:
    outcome = engine.sample(UNIT, UNIT.Params(**settings), knobs)
    assert outcome.status is Status.OK, outcome.reason
    return np.array([outcome.responses[f"y_x{x}"] for x in X])


def test_current_is_proportional_to_the_input(engine) -> None:
    found = string(engine)
    assert found[0] == pytest.approx(0.0, abs=1e-13)
    np.testing.assert_allclose(found[1:] / found[3] * 3, [1, 2, 3], rtol=2e-3)


def test_source_line_levels_are_those_of_a_calibration(engine, tmp_path: Path) -> None:
    out = tmp_path / "levels.toml"
    found = STRING.calibrate(STRING.Params(), engine, out)
    params = STRING.Params()
    assert found["v_x1"] == pytest.approx(params.v_x1, abs=2e-5)
    assert found["v_x2"] == pytest.approx(params.v_x2, abs=2e-5)
    assert tomllib.loads(out.read_text())["parameters"] == found


def test_calibration_serves_another_cell(engine, tmp_path: Path) -> None:
    settings = {"states": 2, "layers": "1"}
    levels = STRING.calibrate(STRING.Params(**settings), engine, tmp_path / "levels.toml")
    found = string(engine, **settings, **levels)
    np.testing.assert_allclose(found[1:] / found[3] * 3, [1, 2, 3], rtol=2e-3)


def test_deep_on_string_is_the_sum_of_its_devices_resistances(engine) -> None:
    """Each device alone, at the string's gate voltage and a millivolt, gives its resistance."""
    params = STRING.Params(
        cells=10, v_boundary=0.48, layers="1", search_margin=1.0, pattern="erased", states=2,
        v_pass=2.0, step=1, read_margin=1.0, v_bl=0.001, v_x1=0.0003, v_x2=0.0006, v_x3=0.001,
    )  # fmt: skip
    gates = np.full(params.cells, params.v_pass)
    gates[: params.cam_cells] = search_voltages(params, params.query)
    gates[params.selected] = read_voltage(params, params.step)
    gates -= stored_shifts(params, 0)

    def resistance(gate: float, length: float) -> float:
        netlist = new_netlist("one device", params)
        netlist.V("d", "d", netlist.gnd, 0.0005)
        netlist.V("g", "g", netlist.gnd, float(gate))
        netlist.M("one", "d", "g", netlist.gnd, netlist.gnd, model="cell", w=1e-7, l=length)
        sweep = DcSweep(SweptSource("vd", 0.0005, 0.0005, 1))
        waves = SharedBackend().run(Deck(str(netlist), sweep, ("i(vd)",))).require_ok().waveforms
        return 0.0005 / -float(waves["i(vd)"][0])

    total = params.r_bl + params.r_sl + sum(resistance(gate, params.l_cell) for gate in gates)
    total += 2 * resistance(params.v_pass, 3 * params.l_cell)
    outcome = engine.sample(STRING, params)
    assert outcome.responses["i_x3"] == pytest.approx(params.v_bl / total, rel=0.02)


def test_on_off_ratio_of_a_cell(engine) -> None:
    on, off = (string(engine, step=step)[3] for step in (1, 0))
    assert on / off > 50
    assert string(engine, step=-1)[3] < 1e-3 * off


def test_mismatch_gates_whatever_the_cell_holds(engine) -> None:
    """y = M (x W): the worst mismatch leaves less than 1 % of the match."""
    match = string(engine, query=1, step=3)[3]
    for query in (0, 2, 3):
        for step in (0, 3):
            assert string(engine, query=query, step=step)[3] < 0.01 * match


@pytest.mark.parametrize("states", [2, 3])
def test_thermometer_steps_are_even(engine, states) -> None:
    """With two states a weight more is one string more in A and one fewer in B; with three it
    also is the same two currents every time: steps are equal but for the shared source line.
    """
    settings = {"states": states, "cells": 32}
    found = np.array([unit(engine, weight=int(w), **settings)[3] for w in weights(states)])
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps.mean(), rtol=1e-3)


def test_dual_block_is_antisymmetric(engine) -> None:
    plus, minus = (unit(engine, states=3, cells=32, weight=w) for w in (3, -3))
    np.testing.assert_allclose(plus, -minus, rtol=1e-4, atol=1e-12)
    np.testing.assert_allclose(unit(engine, states=3, cells=32, weight=0), 0.0, atol=1e-11)


def test_mismatched_unit_multiplies_by_nothing(engine) -> None:
    match, mismatch = (unit(engine, states=2, weight=2, query=query)[3] for query in (1, 2))
    assert abs(mismatch) < 0.005 * match


def test_unit_is_the_sum_of_its_strings_and_pulses(engine) -> None:
    """Eight strings with errors of their own, simulated one by one, pulse by pulse."""
    states, weight = 3, 1
    rng = np.random.default_rng(8)
    errors = 0.012 * rng.standard_normal((8, 128))
    together = unit(engine, {"threshold": errors.ravel()}, states=states, weight=weight)
    block_a = string_states(weight, states)
    apart = np.zeros(4)
    for index, state in enumerate([*block_a, *complement(block_a, states)]):
        for pulse in range(1, states):
            current = string(
                engine, {"threshold": errors[index]}, states=states, step=pulse - int(state)
            )
            apart += current if index < 4 else -current
    np.testing.assert_allclose(together[1:], apart[1:], rtol=1e-3)


def test_altered_unit_equals_rebuilt_deck() -> None:
    rng = np.random.default_rng(4)
    knobs = {"threshold": 0.012 * rng.standard_normal(8 * 128)}
    params = UNIT.Params(states=2, weight=1)
    one, other = (Engine(name).sample(UNIT, params, knobs).responses for name in BACKENDS)
    for name, value in one.items():
        assert value == pytest.approx(other[name], rel=1e-4, abs=1e-12)


def test_pulses_settle_at_the_operating_point(engine) -> None:
    """The transient ends where the DC sweep is; t1 and t2 are time constants, not holds."""
    settings = {"states": 3, "cells": 32}
    params = PULSE.Params(**settings)
    outcome = engine.sample(PULSE, params)
    assert outcome.status is Status.OK, outcome.reason
    found = outcome.responses
    direct = engine.sample(UNIT, UNIT.Params(weight=params.weight, **settings)).responses
    assert found["i_first"] + found["i_last"] == pytest.approx(direct["i_a"], rel=0.005)
    tau = params.tau_pass
    assert 2 * tau < found["t1"] < 10 * tau
    assert 0.5 * tau < found["t2"] < found["t1"]
    assert found["e_bl"] > 0


def test_times_are_within_1_percent_of_a_tenth_of_the_step() -> None:
    params = PULSE.Params(states=3, cells=32)
    ours = build_deck(PULSE, params)
    finer = dataclasses.replace(ours.analysis, max_step=ours.analysis.max_step / 10)
    one, other = (
        measure(PULSE, params, SharedBackend().run(deck), None).responses
        for deck in (ours, dataclasses.replace(ours, analysis=finer))
    )
    assert one["t1"] == pytest.approx(other["t1"], rel=0.01)
    assert one["t2"] == pytest.approx(other["t2"], rel=0.01)


def test_gate_energy_is_charge_times_voltage(engine) -> None:
    """A gate capacitance of order eps A / t_ox a cell, charged to the line's voltage."""
    params = PULSE.Params(states=2, cells=32)
    found = engine.sample(PULSE, params).responses["e_wl"]
    c_gate = 3.9 * 8.854e-12 / 1.2e-9 * params.w_cell * params.l_cell
    strings_lengths = 8 * (params.cells + 6)  # select transistors are three cells long
    assert found == pytest.approx(strings_lengths * c_gate * params.v_pass**2, rel=0.3)


def test_faster_selected_wordline_shortens_the_further_pulses_only(engine) -> None:
    slow, fast = (
        engine.sample(PULSE, PULSE.Params(states=3, cells=32, tau_read=tau)).responses
        for tau in (6e-6, 1e-6)
    )
    assert fast["t2"] / slow["t2"] == pytest.approx(1 / 6, rel=0.15)
    assert fast["t1"] == pytest.approx(slow["t1"], rel=0.15)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (lambda: STRING.Params(query=4), "none of the 4 identifiers"),
        (lambda: STRING.Params(v_x3=0.1), "v_x1 < v_x2 < v_x3 <= v_bl"),
        (lambda: UNIT.Params(states=2), "weight = 6 is beyond 2"),
    ],
)
def test_impossible_parameters_are_named(params, message) -> None:
    with pytest.raises(ValueError, match=message):
        params()


def test_input_zero_puts_the_source_line_at_the_bitline() -> None:
    params = STRING.Params()
    volts = source_line_voltages(params)
    assert volts[0] == params.v_bl
    assert volts[-1] == 0.0
    assert list(volts) == sorted(volts, reverse=True)
