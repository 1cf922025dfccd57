"""The page buffer against hand analysis, DC curves of ngspice -b, and capacitive dividers."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from circuits.card import CORNERS
from circuits.dts_sense import DtsSense
from circuits.sense_amp import SenseAmp, SenseAmpParams, pelgrom
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import BACKENDS, Engine, measure
from nandcosim.spice.measure import crossing
from nandcosim.spice.netlists import data_folder
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status
from nandcosim.sweep.parse import load_spec
from nandcosim.sweep.sampling import draw

SENSE = SenseAmp()
TRIP = frozenset({"v_trip", "offset"})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def responses(engine: Engine, knobs: dict | None = None, **settings) -> dict[str, float]:
    outcome = engine.sample(SENSE, SENSE.Params(**settings), knobs)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def batch(tmp_path: Path, netlist: str, analysis: str, *vectors: str) -> np.ndarray:
    """Columns of what ``ngspice -b`` prints for a DC sweep: its scale, then the vectors."""
    parameters = [f".param {name}={value}" for name, value in CORNERS["tt"].items()]
    folder = data_folder("netlists")
    text = [
        "dc curves",
        *parameters,
        (folder / "models" / "planar16lp.lib").read_text(),
        (folder / "cells" / "page_buffer.cir").read_text(),
        netlist,
        ".options noacct gmin=1e-15 reltol=1e-6",
        f".dc {analysis}",
        f".print dc {' '.join(vectors)}",
        ".end\n",
    ]
    deck = tmp_path / "dc.cir"
    deck.write_text("\n".join(text))
    done = subprocess.run(["ngspice", "-b", deck], capture_output=True, text=True, check=False)
    rows = re.findall(
        rf"^\d+((?:\s+[-+.\de]+){{{len(vectors) + 1}}})\s*$", done.stdout, re.MULTILINE
    )
    assert rows, done.stdout[-1000:] + done.stderr[-1000:]
    return np.array([[float(each) for each in row.split()] for row in rows]).T


def sense_currents(tmp_path: Path, sweep: str, bitline: float, out: float) -> np.ndarray:
    """Scale, current of the sense nMOS and of the sense pMOS, both nodes held by sources."""
    p = SENSE.Params()
    devices = (
        f"vdd vdd 0 {p.vdd}\nvbl bl 0 {bitline}\nvso so 0 {out}\nvn so dn 0\nvp dp so 0\n"
        f"mn dn bl 0 0 nper w={p.w_n} l={p.l_n}\nmp dp bl vdd vdd pper w={p.w_p} l={p.l_p}"
    )
    return batch(tmp_path, devices, sweep, "i(vn)", "i(vp)")


@pytest.fixture(scope="module")
def small_signal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Trip point, current and both gm there, from the transistors' own DC curves."""
    volts, nmos, pmos = sense_currents(
        tmp_path_factory.mktemp("dc"), "vbl 0.3 0.5 0.0005", bitline=0.4, out=0.4
    )
    trip = float(np.interp(0.0, nmos - pmos, volts))
    current = float(np.interp(trip, volts, nmos))
    gm_n, gm_p = (float(np.interp(trip, volts, np.gradient(i, volts))) for i in (nmos, -pmos))
    return {"trip": trip, "current": current, "n": gm_n, "p": gm_p}


def hand_analysis(found: dict[str, float], params: SenseAmpParams) -> dict[str, float]:
    """Shift of the trip point by one standard deviation of each mismatch, to first order.

    I_n(V - dV_n) (1 + b_n) = I_p(V - dV_p) (1 + b_p) at the trip point.
    """
    total = found["n"] + found["p"]
    shift = {}
    for kind, sign in (("n", -1), ("p", 1)):
        threshold, current_factor = params.sigmas[kind]
        shift[f"vt_{kind}"] = found[kind] * threshold / total
        shift[f"beta_{kind}"] = sign * found["current"] * current_factor / total
    return shift


def test_pelgrom_scales_with_the_root_of_the_area() -> None:
    threshold, current_factor = pelgrom(1.5e-9, 1e-8, 50e-9, 40e-9)
    assert threshold == pytest.approx(33.5e-3, abs=0.05e-3)  # what sweeps/dts_sense.toml draws
    assert current_factor == pytest.approx(0.2236, rel=1e-3)
    wide = pelgrom(1.5e-9, 1e-8, 200e-9, 40e-9)
    assert wide == pytest.approx((threshold / 2, current_factor / 2))
    assert pelgrom(1.5e-9, 1e-8, 500e-9, 40e-9)[0] == pytest.approx(10.6e-3, abs=0.05e-3)


def test_dts_sense_s_sweep_draws_pelgrom_s_thresholds() -> None:
    spec = load_spec(data_folder("sweeps") / "dts_sense.toml")
    stated = {each.target: each.values({"sigma": 0.0})["std"] for each in spec.random}
    sigmas = SENSE.Params().sigmas
    assert stated["sa_n"] == pytest.approx(sigmas["n"][0], rel=2e-3)
    assert stated["sa_p"] == pytest.approx(sigmas["p"][0], rel=2e-3)


def test_trip_point_is_that_of_the_dc_transfer_curve(engine, tmp_path, small_signal) -> None:
    buffer = "vdd vdd 0 0.8\nvbl bl 0 0\nvpch pch 0 0.8\nxpb bl out pch vdd vdd page_buffer"
    volts, sense = batch(tmp_path, buffer, "vbl 0.3 0.5 0.0005", "v(xpb.so)")
    trip = float(np.interp(-0.4, -sense, volts))
    assert responses(engine)["v_trip"] == pytest.approx(trip, abs=0.2e-3)
    assert small_signal["trip"] == pytest.approx(trip, abs=0.2e-3)


@pytest.mark.parametrize("knob", ["vt_n", "vt_p", "beta_n", "beta_p"])
def test_each_mismatch_moves_the_trip_point_as_hand_analysis_says(
    engine, small_signal, knob
) -> None:
    params = SENSE.Params()
    up, down = (
        engine.sample(SENSE, params, {knob: [z]}, wanted=TRIP).responses["v_trip"]
        for z in (0.5, -0.5)
    )
    assert up - down == pytest.approx(hand_analysis(small_signal, params)[knob], rel=0.03)


def test_offset_spread_is_that_of_hand_analysis(engine, small_signal) -> None:
    """200 samples of the shipped sweep; three standard errors of a deviation are 15 %."""
    spec = load_spec(data_folder("sweeps") / "sense_amp.toml")
    found = []
    for k in range(200):
        params, knobs = draw(spec, SENSE, 0, k)
        found.append(engine.sample(SENSE, params, knobs, wanted=TRIP).responses["offset"])
    predicted = np.linalg.norm(list(hand_analysis(small_signal, SENSE.Params()).values()))
    assert np.std(found, ddof=1) == pytest.approx(predicted, rel=3 / np.sqrt(2 * 199))


def test_trip_spread_of_dts_sense_is_that_of_the_thresholds_alone(engine) -> None:
    """dts_sense draws thresholds only; a slow bitline shows the sense inverter's static trip."""
    dts = DtsSense()
    slow = dts.Params(
        cells=8,
        v_boundary=0.48,
        margin=0.3,
        c_bl=2e-12,
        t_pre=50e-6,
        t_sense=400e-6,
        max_step=2e-6,
    )
    n, p = (SENSE.Params().sigmas[kind][0] for kind in "np")

    def shift(circuit, params, response: str, *pairs) -> list[float]:
        values = [engine.sample(circuit, params, knobs).responses[response] for knobs in pairs]
        return [values[0] - values[1], values[2] - values[3]]

    here = shift(
        SENSE,
        SENSE.Params(),
        "v_trip",
        *({knob: [z]} for knob in ("vt_n", "vt_p") for z in (0.5, -0.5)),
    )
    there = shift(
        dts,
        slow,
        "v_trip_out",
        *({f"sa_{kind}": [z * s]} for kind, s in (("n", n), ("p", p)) for z in (0.5, -0.5)),
    )
    assert there == pytest.approx(here, rel=0.03)


def test_altered_sample_equals_rebuilt_deck() -> None:
    """The current factor of a loaded deck as well."""
    knobs = {"vt_n": [0.7], "vt_p": [-1.1], "beta_n": [-0.8], "beta_p": [1.3]}
    one, other = (responses(Engine(name), knobs) for name in BACKENDS)
    assert one == pytest.approx(other, rel=1e-5)
    nominal = responses(Engine("shared"))
    assert abs(one["v_trip"] - nominal["v_trip"]) > 1e-3


def test_delay_falls_with_overdrive(engine) -> None:
    delays = [responses(engine, overdrive=v)["t_delay"] for v in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)]
    assert (np.diff(delays) < 0).all()


def test_delay_is_inverse_in_small_overdrives(engine) -> None:
    """Charging the sense node by gm times the overdrive: t ~ 1 / (distance from the trip)."""
    small, large = responses(engine, overdrive=0.02), responses(engine, overdrive=0.05)
    distance = [0.05 + small["offset"], 0.02 + small["offset"]]
    exponent = np.log(small["t_delay"] / large["t_delay"]) / np.log(distance[0] / distance[1])
    assert exponent == pytest.approx(1.0, abs=0.15)


def test_sense_node_is_charged_by_the_static_current(engine, tmp_path) -> None:
    """t = integral C dV / (I_p - I_n): one capacitance for currents that differ by 20 times."""
    capacitances = []
    for overdrive in (0.03, 0.15):
        wave = engine.sample(SENSE, SENSE.Params(overdrive=overdrive)).waveforms
        after = wave.time > SENSE.Params().t_ramp + 2e-6
        times = [
            crossing(wave.time[after], wave["v(xpb.so)"][after], level, rising=True)
            for level in (0.05, 0.2)
        ]
        volts, nmos, pmos = sense_currents(
            tmp_path, "vso 0.05 0.2 0.005", bitline=0.4 - overdrive, out=0.0
        )
        capacitances.append((times[1] - times[0]) / np.trapezoid(1 / (pmos - nmos), volts))
    assert capacitances[0] == pytest.approx(capacitances[1], rel=0.05)
    assert 0.5e-15 < capacitances[0] < 2e-15  # gates and overlaps of some 1 um of width


def test_decision_is_that_of_the_sample_s_own_trip_point(engine) -> None:
    for z in (-2.0, 2.0):
        found = responses(engine, {"vt_n": [z]}, overdrive=0.0)
        assert found["bit"] == (found["v_trip"] > 0.4)


def test_kick_back_is_a_capacitive_divider(engine) -> None:
    """The output's swing through an added capacitance against the whole bitline node."""
    bare, coupled = (responses(engine, c_kick=c)["v_kick"] for c in (0.0, 5e-15))
    params = SENSE.Params()
    divider = params.vdd * 5e-15 / (params.c_bl + 5e-15)
    assert coupled - bare == pytest.approx(divider, rel=0.03)


def test_kick_back_falls_with_the_bitline_s_capacitance(engine) -> None:
    once, twice = (responses(engine, c_bl=c)["v_kick"] for c in (200e-15, 400e-15))
    assert twice == pytest.approx(once / 2, rel=0.05)


def test_energy_is_that_of_charging_the_bitline_and_little_more(engine) -> None:
    params = SENSE.Params()
    floor = params.c_bl * params.vdd**2
    assert floor < responses(engine)["e_sense"] < 1.15 * floor


@pytest.mark.parametrize("overdrive", [0.01, 0.03, 0.1])
def test_step_control_costs_less_than_declared(overdrive) -> None:
    """Against every tolerance a hundred times smaller and every device evaluated at each step."""
    params = SENSE.Params(overdrive=overdrive)
    ours = build_deck(SENSE, params)
    strict = {"reltol": "1e-5", "abstol": "1e-15", "bypass": "0"}
    netlist = ours.netlist.replace("chgtol=1e-16", "chgtol=1e-18")
    assert netlist != ours.netlist
    fine = dataclasses.replace(ours, netlist=netlist, options=ours.options | strict)
    one, other = (
        measure(SENSE, params, SharedBackend().run(deck), None).responses for deck in (ours, fine)
    )
    assert one["v_trip"] == pytest.approx(other["v_trip"], abs=1e-4)
    for name in ("t_delay", "e_sense", "v_kick"):
        assert one[name] == pytest.approx(other[name], rel=0.01)


def test_strobe_opens_and_closes_the_latch(engine) -> None:
    late = responses(engine, t_strobe=0.5e-6)
    assert late["bit"] == 1.0
    assert late["t_delay"] < 1e-9  # the sense node has long switched when the latch opens
    short = responses(engine, overdrive=0.01, strobe_width=10e-9)
    assert short["bit"] == 0.0  # closed before the sense node is there


def test_bitline_that_is_not_precharged_is_no_decision(engine) -> None:
    outcome = engine.sample(SENSE, SENSE.Params(c_bl=2e-12))
    assert outcome.status is Status.UNDEFINED_RESPONSE
    assert "bit" in outcome.reason


def test_emitted_deck_gives_the_engine_s_trip_point_and_delay(engine) -> None:
    deck = data_folder("netlists") / "decks" / "sense_amp.cir"
    done = subprocess.run(["ngspice", "-b", deck], capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^(v_trip|t_delay)\s+=\s+(\S+)", done.stdout, re.MULTILINE))
    ours = responses(engine)
    assert float(found["v_trip"]) == pytest.approx(ours["v_trip"], rel=1e-5)
    assert float(found["t_delay"]) == pytest.approx(ours["t_delay"], rel=1e-3)


def test_impossible_sensing_level_is_refused() -> None:
    with pytest.raises(ValueError, match="not within 0 to"):
        SENSE.Params(overdrive=0.5)
