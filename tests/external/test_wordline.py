"""The RC ladder against the continuous line's step response, Elmore's delay and C V^2."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq

from circuits.wordline import Line, Wordline, lines
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import BACKENDS, Engine
from nandcosim.spice.measure import integral
from nandcosim.spice.netlists import data_folder
from nandcosim.spice.status import Status

WORDLINE = Wordline()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def responses(engine: Engine, knobs: dict | None = None, **settings) -> dict[str, float]:
    outcome = engine.sample(WORDLINE, WORDLINE.Params(**settings), knobs)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def step_response(line: Line, time: float, *, far: bool, terms: int = 100) -> float:
    """Voltage of a continuous line's end over the step, by the residues of its Laplace form.

    With theta = sqrt(s R C) and rho = R_source / R the ends follow the step by
    1 / D (far) and cosh(theta) / D (near), D = cosh(theta) + rho theta sinh(theta). Its
    zeros are theta = j b with cos b = rho b sin b, one in every [n pi, n pi + pi / 2].
    """
    rho, rc = line.r_source / line.r, line.r * line.c
    volts = 1.0
    for n in range(terms):
        b = brentq(lambda x: np.cos(x) - rho * x * np.sin(x), n * np.pi + 1e-12, (n + 0.5) * np.pi)
        theta, s = 1j * b, -b * b / rc
        slope = np.sinh(theta) + rho * (np.sinh(theta) + theta * np.cosh(theta))
        residue = (1.0 if far else np.cosh(theta)) / (s * slope * rc / (2 * theta))
        volts += residue.real * np.exp(s * time)
    return volts


def settling(line: Line, settle: float, *, far: bool) -> float:
    return brentq(
        lambda t: step_response(line, t, far=far) - (1 - settle),
        1e-2 * line.elmore,
        20 * line.elmore,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"width": 2048.0, "m": 16},
        {"width": 135168.0},
        {"width": 135168.0, "m": 8, "settle": 0.1},
        {"line": "bitline"},
        {"line": "bitline", "layers": 32, "settle": 1e-3},
    ],
)
def test_settling_is_that_of_the_continuous_line(engine, settings) -> None:
    """With the default number of sections, to the 1 % (far end: 0.1 %) it declares."""
    found, params = responses(engine, **settings), WORDLINE.Params(**settings)
    ends = (("t_near", "t_far"), ("t_pass_near", "t_pass_far"))
    for line, (near, far) in zip(lines(params), ends, strict=False):
        assert found[near] == pytest.approx(settling(line, params.settle, far=False), rel=1e-2)
        assert found[far] == pytest.approx(settling(line, params.settle, far=True), rel=1e-3)


def test_delay_is_elmore_s(engine) -> None:
    """The integral of 1 - v(t) is Elmore's delay, exactly, for any RC line."""
    params = WORDLINE.Params(width=135168.0)
    line = lines(params)[0]
    wave = engine.sample(WORDLINE, params).waveforms
    far = wave[f"v(sel{params.sections})"] / line.volts
    assert integral(wave.time, 1 - far) == pytest.approx(line.elmore, rel=2e-3)


def test_driver_delivers_c_v_squared_and_half_of_it_is_lost(engine) -> None:
    params = WORDLINE.Params(width=65536.0, sections=20)
    line = lines(params)[0]
    deck = build_deck(WORDLINE, params)
    nodes = ("sel_in", *(f"sel{k}" for k in range(params.sections + 1)))
    deck = dataclasses.replace(deck, saved=(*(f"v({n})" for n in nodes), "i(vsel)"))
    backend = BACKENDS["shared"]()
    wave = backend.run(deck).require_ok().waveforms
    resistances = [line.r_source, *[line.r / params.sections] * params.sections]
    lost = sum(
        integral(wave.time, (wave[a] - wave[b]) ** 2 / r)
        for (a, b), r in zip(pairwise(nodes), resistances, strict=True)
    )
    energy = line.c * line.volts**2
    assert lost == pytest.approx(energy / 2, rel=5e-3)
    assert responses(engine, width=65536.0)["e_drive"] == pytest.approx(energy, rel=1e-3)


def test_energies_of_a_page(engine) -> None:
    found, p = responses(engine, m=4), WORDLINE.Params(m=4)
    one = p.width * p.strings * p.c_cell
    assert found["e_drive"] == pytest.approx(4 * one * p.v_read**2, rel=1e-3)
    assert found["e_pass"] == pytest.approx((p.layers - 4) * one * p.v_pass**2, rel=1e-3)
    assert found["e_page"] == found["e_drive"] + found["e_pass"]
    found, p = responses(engine, line="bitline"), WORDLINE.Params(line="bitline")
    bitline = p.plane_wordlines / p.layers * p.c_block * p.v_pre**2
    assert found["e_page"] == pytest.approx(p.width * bitline, rel=1e-3)
    assert np.isnan(found["e_pass"])


def test_settling_grows_with_the_square_of_the_width(engine) -> None:
    wide = {"r_driver": 0.1, "r_stair": 0.0}
    once, twice = (responses(engine, width=w, **wide)["t_far"] for w in (65536.0, 131072.0))
    assert twice == pytest.approx(4 * once, rel=1e-3)


def test_bitline_shortens_as_layers_grow(engine) -> None:
    short = {"line": "bitline", "r_precharge": 0.1}
    few, many = (responses(engine, layers=n, **short)["t_far"] for n in (64, 128))
    assert few == pytest.approx(4 * many, rel=1e-3)


def test_wordlines_of_one_driver_load_it_m_times(engine) -> None:
    """Behind a driver that rules, m lines are m capacitors."""
    weak = {"r_driver": 1e6, "width": 2048.0}
    one, eight = (responses(engine, m=m, **weak) for m in (1, 8))
    assert eight["t_far"] == pytest.approx(8 * one["t_far"], rel=0.01)
    assert eight["t_pass_far"] == pytest.approx(one["t_pass_far"], rel=1e-3)
    assert one["t_far"] == pytest.approx(one["t_pass_far"], rel=1e-3)  # linear: no voltage in it


def test_voltage_changes_energy_by_its_square_and_no_time(engine) -> None:
    scaled, real = responses(engine), responses(engine, v_read=3.5, v_pass=6.0)
    for name in ("t_near", "t_far", "t_pass_far"):
        assert real[name] == pytest.approx(scaled[name], rel=1e-3)
    assert real["e_drive"] == pytest.approx(25 * scaled["e_drive"], rel=1e-3)
    assert real["e_pass"] == pytest.approx(25 * scaled["e_pass"], rel=1e-3)


def test_variation_of_the_sections(engine) -> None:
    """A common factor scales the line; resistance at the near end counts most (Elmore)."""
    n, line = WORDLINE.Params().sections, {"width": 135168.0, "r_driver": 0.1, "r_stair": 0.0}
    nominal = responses(engine, **line)["t_far"]
    common = {"log_r": np.full(n, np.log(1.1)), "log_c": np.full(n, np.log(1.2))}
    assert responses(engine, common, **line)["t_far"] == pytest.approx(1.32 * nominal, rel=2e-3)
    ramp = np.linspace(0.1, -0.1, n)
    near, far = (responses(engine, {"log_r": s * ramp}, **line)["t_far"] for s in (1, -1))
    assert near > nominal > far


def test_altered_sample_equals_rebuilt_deck() -> None:
    rng = np.random.default_rng(5)
    knobs = {name: 0.1 * rng.standard_normal(40) for name in ("log_r", "log_c")}
    one, other = (responses(Engine(name), knobs) for name in BACKENDS)
    assert one == pytest.approx(other, rel=1e-6)


def test_deck_needs_no_card() -> None:
    assert ".model" not in build_deck(WORDLINE, WORDLINE.Params()).text()


def test_emitted_deck_gives_the_engine_s_settling_time(engine) -> None:
    deck = data_folder("netlists") / "decks" / "wordline.cir"
    done = subprocess.run(["ngspice", "-b", deck], capture_output=True, text=True, check=False)
    found = re.search(r"^t_far\s+=\s+(\S+)", done.stdout, re.MULTILINE)
    assert found, done.stdout[-1000:] + done.stderr[-1000:]
    assert float(found.group(1)) == pytest.approx(responses(engine)["t_far"], rel=1e-4)


def test_more_selected_wordlines_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"m = 8 wordlines in a block of layers = 4"):
        WORDLINE.Params(m=8, layers=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 4, "plane_wordlines": 2}, r"layers = 4 .* plane_wordlines = 2"),
        ({"width": 1.5}, r"width = 1\.5: expected a whole number of bitlines"),
        ({"strings": 1.5}, "valid integer"),
    ],
)
def test_counts_that_no_plane_has_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        WORDLINE.Params(**settings)
