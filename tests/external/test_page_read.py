"""Page reads in ngspice: against dts_sense, the Gray code, and ngspice -b."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from circuits.dts_sense import DtsSense
from circuits.levels import shift_of
from circuits.page_read import PageRead, shifts, stored_levels
from nandcosim.page_coding import level_bits, read_levels
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import BACKENDS, Engine, full_knobs
from nandcosim.spice.status import Status
from nandcosim.threshold import level_distributions

READ = PageRead()
BIT = frozenset({"bit", "t_cross"})
AGED = {"placement": "aged", "cycles": 1000.0, "retention": 9e6, "storage_temperature": 40.0}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def sensed(engine: Engine, wanted: frozenset[str], knobs=None, **settings) -> dict[str, float]:
    outcome = engine.sample(READ, READ.Params(**settings), knobs, wanted)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def every(bits: int) -> frozenset[str]:
    names = {f"{kind}_{n}" for kind in ("bit", "t") for n in range(1, 2**bits)}
    return frozenset(names | {"bit", "sensed_level"})


# ---------------------------------------------------------------- one sense


@pytest.mark.parametrize("margin", [-0.5, 0.05, 1.5])
def test_one_sense_is_that_of_dts_sense_with_one_wordline(engine, margin) -> None:
    dts = DtsSense()
    # both select the middle: 0.5 of 127 places
    other = engine.sample(dts, dts.Params(stored=1, margin=margin), wanted=BIT).responses
    ours = sensed(engine, BIT, read="margin", margin=margin)
    assert ours == pytest.approx(other, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("read_level", [8, 15])
def test_all_read_levels_are_alike(engine, read_level) -> None:
    """Only the gate's voltage less the stored charge's matters, so one sweep serves all."""
    first = sensed(engine, BIT, read="level", read_level=1, stored=0)
    here = sensed(engine, BIT, read="level", read_level=read_level, stored=read_level - 1)
    assert here == pytest.approx(first, rel=1e-6)


def test_offset_and_retry_move_the_read_level(engine) -> None:
    plain = sensed(engine, BIT, read="margin", margin=0.3, stored=7)
    offset = sensed(engine, BIT, read="level", read_level=8, stored=7, offset=-0.2)
    assert offset == pytest.approx(plain, rel=1e-9)
    # read level 8 of 15 lies at half of the top level's place
    retry = sensed(engine, BIT, read="level", read_level=8, stored=7, retry=4, retry_step=0.1)
    assert retry == pytest.approx(plain, rel=1e-6)


def test_early_stop_changes_neither_bit_nor_crossing_time(engine) -> None:
    params = READ.Params(read="margin", margin=0.5)
    early = engine.sample(READ, params, wanted=BIT)
    knobs = full_knobs(READ, params)
    deck = build_deck(READ, params, knobs, BIT)
    assert deck.analysis.stop_when is not None
    assert early.waveforms.time[-1] < deck.analysis.stop
    whole = sensed(engine, BIT, read="all", bits=1, stored=0)
    margin = sensed(engine, BIT, read="margin", bits=1, stored=0, margin=0.5)
    assert whole == pytest.approx(margin, rel=1e-6)


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("bits", "levels"), [(1, [0, 1]), (2, [0, 1, 2, 3]), (3, [2, 7]), (4, [6, 15])]
)
def test_levels_are_read_as_themselves(engine, bits, levels) -> None:
    for stored in levels:
        found = sensed(engine, every(bits), read="all", bits=bits, stored=stored)
        assert found["sensed_level"] == stored
        bits_found = [found[f"bit_{n}"] for n in range(1, 2**bits)]
        assert bits_found == [float(stored < n) for n in range(1, 2**bits)]


@pytest.mark.parametrize("coding", ["reflected", "balanced"])
def test_pages_give_the_bits_that_were_stored(engine, coding) -> None:
    wanted = frozenset({"bit", "data_bit", "t_read"})
    code = level_bits(3, coding)
    for stored, page in [(0, 0), (2, 1), (3, 2), (5, 0), (6, 1), (7, 2)]:
        found = sensed(engine, wanted, read="page", bits=3, stored=stored, page=page, coding=coding)
        assert found["data_bit"] == code[stored, page]
        senses = read_levels(3, page, coding).size
        assert found["t_read"] == pytest.approx(5e-6 + senses * 22e-6)


def test_history_slows_a_sense_but_decides_nothing(engine) -> None:
    """After a read level that blocked, the string holds charge that must go as well."""
    found = sensed(engine, every(4), read="all", stored=6)
    alone = sensed(engine, BIT, read="margin", stored=6, margin=0.5)["t_cross"]
    assert alone < found["t_7"] < 1.05 * alone
    first = sensed(engine, every(4), read="all", stored=0)
    assert first["t_1"] == pytest.approx(alone, rel=1e-3)


def test_a_blocking_sense_costs_little_after_the_first(engine) -> None:
    """The bitline keeps its charge: C V^2 is paid once, by one sense of three."""
    wanted = frozenset({"bit", "e_sense"})
    params = READ.Params(bits=2, stored=3)
    whole = sensed(engine, wanted, read="all", bits=2, stored=3)["e_sense"] * 3
    charge = params.c_bl * params.vdd**2
    assert charge < whole < 1.5 * charge
    single = sensed(engine, wanted, read="level", read_level=1, bits=2, stored=3)["e_sense"]
    assert charge < single < 1.15 * charge


# ---------------------------------------------------------------- thresholds


def test_data_are_whole_levels_of_the_unselected_cells() -> None:
    params = READ.Params(cells=32, stored=3, pattern="erased")
    data = np.linspace(0.0, 31.9, 32)
    levels = stored_levels(params, data)
    assert levels[params.selected] == 3
    others = params.unselected
    assert levels[others].tolist() == np.mod(np.floor(data[others]), 16).tolist()
    assert stored_levels(params, np.zeros(32))[others].tolist() == [0] * 31


def test_aged_thresholds_are_those_of_the_threshold_model() -> None:
    params = READ.Params(cells=32, stored=15, **AGED)
    score = np.linspace(-2, 2, 32)
    knobs = full_knobs(READ, params, {"score": score})
    levels = stored_levels(params, np.zeros(32))
    model = level_distributions(4, cycles=1000.0, retention=9e6, storage_temperature=40.0).sel(
        level=levels
    )
    expected = levels + model["mean_shift"].values + model["sigma"].values * score
    assert shifts(params, knobs) == pytest.approx(shift_of(params, expected))
    exact = READ.Params(cells=32, stored=15)
    assert shifts(exact, knobs) == pytest.approx(shift_of(exact, levels))


def test_an_aged_cell_conducts_where_its_level_has_moved_to(engine) -> None:
    """A read level lowered by what the level has lost sees the cell as it was."""
    where = {"read": "level", "read_level": 15, "stored": 14}
    params = READ.Params(**where)
    moved = level_distributions(4, cycles=1000.0, retention=9e6, storage_temperature=40.0)
    lost = moved["mean_shift"].values
    assert lost[14] < -0.1
    others = lost[stored_levels(params, np.zeros(128))]
    others[params.selected] = 0.0
    expected = sensed(engine, BIT, {"threshold": others}, **where)["t_cross"]
    aged = sensed(engine, BIT, **where, **AGED)["t_cross"]
    followed = sensed(engine, BIT, **where, **AGED, offset=lost[14])["t_cross"]
    assert aged < 0.9 * followed
    assert followed == pytest.approx(expected, rel=1e-6)


# ---------------------------------------------------------------- decks


def test_altered_sample_equals_rebuilt_deck() -> None:
    rng = np.random.default_rng(3)
    knobs = {
        "threshold": 0.2 * rng.standard_normal(128),
        "score": rng.standard_normal(128),
        "data": 16 * rng.random(128),
        "sa_n": [0.02],
        "sa_p": [-0.01],
        "source_line": [0.003],
    }
    params = READ.Params(bits=2, page=1, stored=1, **AGED)
    wanted = frozenset({"bit", "data_bit", "t_1", "t_3"})
    one, other = (Engine(name).sample(READ, params, knobs, wanted) for name in BACKENDS)
    assert one.status is other.status is Status.OK
    assert one.responses == pytest.approx(other.responses, rel=1e-6, nan_ok=True)


def test_emitted_deck_gives_the_engine_s_crossing_time(engine) -> None:
    """nandcosim netlist page_read | ngspice -b"""
    settings = {"bits": 2, "page": 1, "stored": 1}
    changes = [f"--set={name}={value}" for name, value in settings.items()]
    deck = subprocess.run(
        [sys.executable, "-m", "nandcosim", "netlist", "page_read", *changes],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    done = subprocess.run(
        ["ngspice", "-b"], input=deck, capture_output=True, text=True, check=False
    )
    found = re.search(r"^t_cross\s+=\s+(\S+)", done.stdout, re.MULTILINE)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    ours = engine.sample(READ, READ.Params(**settings)).responses["t_cross"]
    assert float(found.group(1)) == pytest.approx(ours, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 2, "page": 2}, "page = 2 of 2 pages"),
        ({"bits": 2, "stored": 4}, "stored = 4 is no level of 4"),
        ({"bits": 1, "read_level": 2}, "read_level = 2 of 1 read levels"),
        ({"margin": 0.2}, "margin has no effect with read = page, expected read = margin"),
        ({"read": "all", "page": 1}, "page has no effect with read = all"),
        ({"read": "margin", "read_level": 2}, "read_level has no effect with read = margin"),
        ({"cycles": 1000.0}, "cycles has no effect with placement = exact, expected .*aged"),
        ({"read": "margin", "retry": 1}, "read = margin places the read level itself"),
        ({"v_trip": 0.9}, r"v_trip = 0\.9 V is not below vdd"),
    ],
)
def test_what_contradicts_itself_is_refused(settings, message) -> None:
    with pytest.raises(ValidationError, match=message):
        READ.Params(**settings)
