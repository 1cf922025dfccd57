"""The circuits against closed forms, ngspice -b, and the paper's rule for a check."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from circuits.dts_sense import DtsSense
from circuits.nand_string import NandString
from circuits.string import stored_levels
from nandcosim.errors import InputError, SimulationError
from nandcosim.spice.circuit import Transient
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import BACKENDS, Engine, full_knobs, measure
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status
from nandcosim.units import to_unit

DTS = DtsSense()
BIT = frozenset({"bit", "t_cross"})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def bit(engine: Engine, **settings) -> float:
    outcome = engine.sample(DTS, DTS.Params(**settings), wanted=BIT)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses["bit"]


@pytest.mark.parametrize("bits", [4, 3])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_nominal_string_passes_below_the_bound_and_fails_at_it(engine, bits, place) -> None:
    """Eq. (1): pass iff r < q + alpha; the boundary lies half a level either side."""
    stored = round(place * (2**bits - 1))
    for t, expected in [(stored + 1, 1.0), (stored, 0.0)]:  # t = q + alpha
        margin = t - stored - 0.5
        assert bit(engine, bits=bits, stored=stored, margin=margin) == expected


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_one_blocking_cell_blocks_a_group(engine, m) -> None:
    assert bit(engine, m=m, margin=1.5) == 1.0
    assert bit(engine, m=m, margin=-1.5) == 0.0


def test_decision_boundary_is_at_margin_zero(engine) -> None:
    assert bit(engine, margin=0.02) == 1.0
    assert bit(engine, margin=-0.02) == 0.0


@pytest.mark.parametrize(("m", "margin"), [(1, 0.5), (4, 0.5), (8, 1.0)])
def test_step_control_and_bypass_cost_less_than_1e_3(m, margin) -> None:
    """Our settings against steps 25 times finer with every device evaluated at every one."""
    params = DTS.Params(m=m, margin=margin)
    ours = build_deck(DTS, params, wanted=BIT)
    options = {name: value for name, value in ours.options.items() if name != "bypass"}
    fine = Transient(ours.analysis.stop, ours.analysis.step, params.max_step / 25)
    reference = dataclasses.replace(ours, analysis=fine, options=options)
    rng = np.random.default_rng(11)
    crossed = 0
    for _ in range(4):
        knobs = full_knobs(DTS, params, {"threshold": 0.2 * rng.standard_normal(128)})
        found = [
            measure(DTS, params, SharedBackend().run(deck, DTS.elements(params, knobs)), BIT)
            for deck in (ours, reference)
        ]
        assert found[0].responses["bit"] == found[1].responses["bit"]
        times = [outcome.responses["t_cross"] for outcome in found]
        crossed += np.isfinite(times[0])
        assert times[0] == pytest.approx(times[1], rel=1e-3, nan_ok=True)
    assert crossed >= 2


def test_early_stop_changes_neither_bit_nor_crossing_time(engine) -> None:
    params = DTS.Params(m=4)
    early = engine.sample(DTS, params, wanted=BIT)
    coarse = engine.sample(DTS, params, wanted=BIT | {"v_strobe"})
    assert early.waveforms.time[-1] < coarse.waveforms.time[-1]
    for name in BIT:
        assert early.responses[name] == coarse.responses[name]


@pytest.mark.parametrize("mismatch", [-0.06, 0.06])
def test_early_stop_waits_for_the_bitline_of_a_mismatched_sense_amplifier(engine, mismatch) -> None:
    params = DTS.Params(margin=0.5)
    knobs = {"sa_n": [mismatch], "sa_p": [-mismatch]}
    early = engine.sample(DTS, params, knobs, wanted=BIT)
    whole = engine.sample(DTS, params, knobs, wanted=BIT | {"v_strobe"})
    assert early.responses["bit"] == whole.responses["bit"] == 1.0
    assert early.responses["t_cross"] == whole.responses["t_cross"] > 0


def test_energy_is_at_least_that_of_charging_the_bitline(engine) -> None:
    """A supply charging C to V delivers C V^2; a blocked string adds little to it."""
    params = DTS.Params(margin=-3.0)
    energy = engine.sample(DTS, params).responses["e_sense"]
    floor = params.c_bl * params.vdd**2
    assert floor < energy < 1.15 * floor


def test_energy_is_within_3_percent_of_a_fifth_of_the_step(engine) -> None:
    settings = {"m": 4, "margin": 1.5}
    step = DTS.Params().max_step
    ours, fine = (
        engine.sample(DTS, DTS.Params(max_step=s, **settings)).responses["e_sense"]
        for s in (step, step / 5)
    )
    assert ours == pytest.approx(fine, rel=0.03)


def test_sense_amplifier_trips_where_the_paper_says(engine) -> None:
    trip = engine.sample(DTS, DTS.Params(margin=0.1)).responses["v_trip_out"]
    assert trip == pytest.approx(0.40, abs=0.005)


def test_bitline_slope_is_string_current_over_capacitance(engine) -> None:
    """dV/dt = I/C on a bitline of 100 times the string's capacitance, at the trip point."""
    params = DTS.Params(m=2, c_bl=4e-12, t_pre=100e-6, t_sense=400e-6, max_step=2e-6)
    wave = engine.sample(DTS, params, wanted=BIT | {"v_strobe"}).waveforms
    near = (np.abs(wave["v(bl)"] - 0.4) < 0.05) & (wave.time > params.t_pre)
    assert near.sum() >= 5
    slope = np.polyfit(wave.time[near], wave["v(bl)"][near], 1)[0]
    held = engine.sample(NandString(), NandString.Params(m=2, v_bl=0.4))
    assert -slope * params.c_bl == pytest.approx(held.responses["i_string"], rel=0.03)


def test_short_string_current_is_the_series_resistance_limit(engine) -> None:
    """Cells far above threshold are a few kiloohm each: R_BL + R_SL alone set the current."""
    string = NandString()
    params = string.Params(
        cells=1, v_pass=3.0, v_boundary=0.48, margin=20.0, r_bl=1e6, r_sl=1e6, v_bl=0.05
    )
    current = engine.sample(string, params).responses["i_string"]
    assert current == pytest.approx(0.05 / 2e6, rel=0.03)


def test_string_resistance_grows_with_its_cells(engine) -> None:
    string = NandString()
    r = [
        engine.sample(
            string,
            string.Params(cells=n, v_boundary=0.48, margin=5.0, pattern="erased", v_bl=0.02),
        ).responses["r_string"]
        for n in (8, 16, 32)
    ]
    assert (r[2] - r[1]) / (r[1] - r[0]) == pytest.approx(2.0, rel=0.05)


def test_a_threshold_error_is_a_shift_of_the_margin(engine) -> None:
    """One level more in the critical cell and one level more on its wordline cancel."""
    params = DTS.Params(margin=0.4, companion_margin=2.0, m=2)
    error = np.zeros(128)
    error[params.active[0]] = 1.0
    moved = DTS.Params(margin=1.4, companion_margin=2.0, m=2)
    before = engine.sample(DTS, params, wanted=BIT).responses["t_cross"]
    after = engine.sample(DTS, moved, {"threshold": error}, wanted=BIT).responses["t_cross"]
    assert after == pytest.approx(before, rel=1e-6)


def test_altered_sample_equals_rebuilt_deck() -> None:
    rng = np.random.default_rng(3)
    knobs = {"threshold": 0.2 * rng.standard_normal(128), "sa_n": [0.02], "sa_p": [-0.01]}
    params = DTS.Params(m=4)
    outcomes = [Engine(name).sample(DTS, params, knobs) for name in BACKENDS]
    one, other = (o.responses for o in outcomes)
    assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(
    ("circuit", "response"),
    [(DTS, "t_cross"), (NandString(), "i_string")],
    ids=("dts_sense", "nand_string"),
)
def test_emitted_deck_gives_the_engine_s_figure(engine, circuit, response) -> None:
    """nandcosim netlist CIRCUIT | ngspice -b"""
    deck = subprocess.run(
        [sys.executable, "-m", "nandcosim", "netlist", circuit.name, "--set", "m=4"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    done = subprocess.run(
        ["ngspice", "-b"], input=deck, capture_output=True, text=True, check=False
    )
    found = re.search(rf"^{response}\s+=\s+(\S+)", done.stdout, re.MULTILINE)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    ours = engine.sample(circuit, circuit.Params(m=4)).responses[response]
    assert float(found.group(1)) == pytest.approx(ours, rel=1e-4)


def test_deck_holds_bare_numbers(engine) -> None:
    """No unit letters: ngspice >= 40 reads 2A as 2 atto."""
    text = build_deck(DTS, DTS.Params()).text()
    elements = [line for line in text.splitlines() if re.match(r"^[VRCX]\w+ ", line)]
    assert len(elements) > 128
    assert not [line for line in elements if re.search(r"\d\s?(A|V|F|Ohm|s)\b", line)]


def test_spread_pattern_visits_every_level_alike() -> None:
    levels = stored_levels(DTS.Params(m=1, stored=3))
    counts = np.bincount(levels.astype(int), minlength=16)
    assert counts.min() >= 7
    assert counts.max() <= 9


def test_calibrate_writes_a_map_that_the_circuit_reads(engine, tmp_path: Path) -> None:
    path = tmp_path / "mine.levels.toml"
    params = DTS.Params(cells=16, levels=str(path))
    found = DTS.calibrate(params, engine, path)["v_boundary"]
    assert 0.3 < found < 0.7
    assert bit(engine, cells=16, levels=str(path), margin=0.02) == 1.0
    assert bit(engine, cells=16, levels=str(path), margin=-0.02) == 0.0


def test_level_map_is_among_the_files_a_sweep_records() -> None:
    """It decides every sample, so a sweep must not go on after it has changed."""
    assert any(name.endswith(".levels.toml") for name in DTS.files(DTS.Params()))
    given = DTS.files(DTS.Params(v_boundary=0.48))
    assert not any(name.endswith(".levels.toml") for name in given)


def test_missing_level_map_names_the_command(engine) -> None:
    with pytest.raises(InputError, match="nandcosim calibrate dts_sense"):
        DTS.build(DTS.Params(cells=77))


def test_shipped_level_map_is_reproducible(engine, tmp_path: Path) -> None:
    path = tmp_path / "again.levels.toml"
    found = DTS.calibrate(DTS.Params(), engine, path)["v_boundary"]
    nominal = build_deck(DTS, DTS.Params(v_boundary=found)).netlist
    assert nominal != ""
    from circuits.levels import boundary

    assert found == pytest.approx(boundary(DTS.Params()), abs=2e-6)


def test_no_boundary_is_an_error_not_a_number(engine, tmp_path: Path) -> None:
    weak = DTS.Params(t_sense=1e-8)
    with pytest.raises(SimulationError, match="never reaches"):
        DTS.calibrate(weak, engine, tmp_path / "x.toml")


class TestOwnCard:
    """A user's card replaces ours; a program in it is refused."""

    def card(self, tmp_path: Path, extra: str = "") -> Path:
        from nandcosim.spice.netlists import find_netlist

        text = find_netlist("planar16lp", "models", ".lib").read_text()
        path = tmp_path / "mine.lib"
        path.write_text(text.replace("0.68191", "0.72191") + extra)
        return path

    def test_another_card_needs_and_gets_its_own_level_map(self, engine, tmp_path) -> None:
        card = str(self.card(tmp_path))
        with pytest.raises(InputError, match="no level map"):
            DTS.build(DTS.Params(card=card))
        levels = tmp_path / "mine.levels.toml"
        params = DTS.Params(card=card, levels=str(levels))
        found = DTS.calibrate(params, engine, levels)["v_boundary"]
        from circuits.levels import boundary

        # the threshold is 40 mV higher and so is the boundary
        assert found - boundary(DTS.Params()) == pytest.approx(0.04, abs=0.004)
        assert bit(engine, card=card, levels=str(levels), margin=0.05) == 1.0

    @pytest.mark.parametrize(
        "program",
        ["\n.control\nshell touch pwned\n.endc\n", "\n  .CONTROL\n", "\n.model p d_process()\n"],
    )
    def test_program_is_refused_with_its_line(self, tmp_path, program, monkeypatch) -> None:
        monkeypatch.delenv("NANDCOSIM_TRUST_NETLIST", raising=False)
        card = self.card(tmp_path, program)
        with pytest.raises(InputError, match=r"mine\.lib, line \d+: .*--trust-netlist"):
            DTS.build(DTS.Params(card=str(card), v_boundary=0.48))
        monkeypatch.setenv("NANDCOSIM_TRUST_NETLIST", "1")
        DTS.build(DTS.Params(card=str(card), v_boundary=0.48))

    def test_program_in_an_included_file_is_refused_too(self, tmp_path, monkeypatch) -> None:
        monkeypatch.delenv("NANDCOSIM_TRUST_NETLIST", raising=False)
        (tmp_path / "inner.inc").write_text(".control\nquit\n.endc\n")
        card = self.card(tmp_path, "\n.include inner.inc\n")
        with pytest.raises(InputError, match=r"inner\.inc, line 1"):
            DTS.build(DTS.Params(card=str(card), v_boundary=0.48))


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        ("20 fF", "F", 20e-15),
        ("85 degC", "degC", 85.0),
        ("300 K", "degC", 26.85),
        ("1.5", "level", 1.5),
        (3, "1", 3.0),
        ("12 mV", "V", 0.012),
    ],
)
def test_units(value, unit, expected) -> None:
    assert to_unit(value, unit, "here") == pytest.approx(expected)


@pytest.mark.parametrize("value", ["20 fF", "abc", "1 +", True, ""])
def test_wrong_units_are_one_line(value) -> None:
    with pytest.raises(InputError, match=r"^spec\.toml: vdd: .*V") as caught:
        to_unit(value, "V", "spec.toml: vdd")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["0,5", "1_2", "1e-13+1e-13", "33,5 mV", "2*3", "0x10", "nan V"])
def test_what_pint_would_guess_at_is_refused(value) -> None:
    """pint drops the comma of 0,5 and evaluates 1+1: wrong numbers, silently."""
    with pytest.raises(InputError, match="is no quantity"):
        to_unit(value, "V", "--set: vdd")


@pytest.mark.parametrize(
    "line",
    ["*#shell touch x", "*# shell touch x", ".incl 'inner.lib'", ".include ~/inner.lib",
     ".inc inner.lib", ".model x\n+ d_process(file=1)", ".lib inner.lib all"],
)  # fmt: skip
def test_hidden_programs_are_refused(tmp_path, monkeypatch, line) -> None:
    monkeypatch.delenv("NANDCOSIM_TRUST_NETLIST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "inner.lib").write_text("\t.CONTROL\nquit\n.endc\n")
    card = tmp_path / "card.lib"
    card.write_text(f"* a card\n{line}\n")
    with pytest.raises(InputError, match="--trust-netlist"):
        DTS.build(DTS.Params(card=str(card), v_boundary=0.48))


def test_includes_of_a_foreign_card_are_found_from_anywhere(engine, tmp_path) -> None:
    from nandcosim.spice.netlists import find_netlist

    (tmp_path / "sub").mkdir()
    shipped = find_netlist("planar16lp", "models", ".lib").read_text()
    (tmp_path / "sub" / "inner.lib").write_text(shipped)
    card = tmp_path / "card.lib"
    card.write_text("* mine\n.include sub/inner.lib\n")
    outcome = engine.sample(DTS, DTS.Params(card=str(card), v_boundary=0.48285), wanted=BIT)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.responses["bit"] == 1.0


def test_card_without_a_model_is_named(engine, tmp_path) -> None:
    card = tmp_path / "empty.lib"
    card.write_text("* nothing\n")
    outcome = engine.sample(DTS, DTS.Params(card=str(card), v_boundary=0.48))
    assert outcome.status is Status.DECK_ERROR
    assert "pper" in outcome.reason
    assert "valid modelname" in outcome.reason


def test_bitline_that_was_not_precharged_decides_nothing(engine) -> None:
    outcome = engine.sample(DTS, DTS.Params(t_pre=1e-9))
    assert outcome.status is Status.UNDEFINED_RESPONSE
    assert "bit" in outcome.reason
