"""The products that an audit of NASiC takes, and what it makes of known circuits' answers."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nandcosim.audit import audit_lines, audit_nasic, audit_rows, nasic, offenders
from nandcosim.audit.comparison import weights
from nandcosim.audit.nasic import choose
from nandcosim.audit.unit_products import (
    BEYOND,
    MATCH,
    NEIGHBOUR,
    bins_of,
    cam_layers,
    draw_products,
    integer_weights,
    random_weights,
)
from nandcosim.audit.unit_rates import gain, leakage, slope, weighted_mean, weighted_sd
from nandcosim.audit.unit_replays import UnitResult
from nandcosim.errors import InputError
from nandcosim.spice.status import Status
from nandcosim.systems.nasic.currents import CurrentFields, load
from nandcosim.systems.nasic.hardware import HardwareFields
from nandcosim.tables import load_tables

tables = cache(load_tables)


def config(**fields) -> CurrentFields:
    return CurrentFields(**{"states": 3, "interleave": 4, **fields})


def products(count: int = 20_000, layers: str = "2", **fields):
    chosen = config(**fields)
    rng = np.random.default_rng(1)
    stored = random_weights(4, 5000, rng)
    return draw_products(stored, chosen, load(tables(), chosen), layers, count, rng)


# ---------------------------------------------------------------- the products


def test_cells_tell_all_experts_apart() -> None:
    assert cam_layers(1, 2) == cam_layers(4, 2) == "2"
    assert cam_layers(5, 2) == cam_layers(16, 2) == "2+2"
    assert cam_layers(8, 3) == "3"
    assert cam_layers(8, 3, given="1+2") == "1+2"
    with pytest.raises(InputError, match=r"cam_layers = 2, allowed: bits for 5 experts"):
        cam_layers(5, 2, given="2")
    with pytest.raises(InputError, match=r"cam_layers: .*'x'"):
        cam_layers(5, 2, given="x")


@pytest.mark.parametrize(("experts", "layers"), [(4, "2"), (16, "2+2"), (6, "1+2")])
def test_one_in_all_interleaved_experts_matches(experts, layers) -> None:
    drawn = products(interleave=experts, layers=layers)
    match = drawn.entry == drawn.query
    np.testing.assert_array_equal(drawn.group == MATCH, match)
    p = 1 / experts
    assert abs(match.mean() - p) < 4 * np.sqrt(p * (1 - p) / match.size)
    np.testing.assert_array_equal(drawn.ideal, match * drawn.weight * drawn.level)
    assert (drawn.entry.max(), drawn.query.max()) == (experts - 1, experts - 1)


def test_a_neighbour_is_one_code_off_in_one_cell() -> None:
    drawn = products(interleave=16, layers="2+2")
    high, low = (abs(drawn.entry // 4 - drawn.query // 4), abs(drawn.entry % 4 - drawn.query % 4))
    near = ((high == 1) & (low == 0)) | ((high == 0) & (low == 1))
    np.testing.assert_array_equal(drawn.group == NEIGHBOUR, near)
    np.testing.assert_array_equal(drawn.group == BEYOND, ~near & (drawn.entry != drawn.query))
    # of 16 x 15 ordered pairs: two cells, 2 x 3 neighbours in one, 4 codes of the other
    assert near.mean() == pytest.approx(48 / 256, abs=0.02)


@pytest.mark.parametrize("states", [2, 3, 4])
@pytest.mark.parametrize("rule", ["scaled", "threshold"])
def test_the_model_is_that_of_the_system(states, rule) -> None:
    fields = {"states": states, "spread_rule": rule, "sigma": 0.12}
    drawn, currents = products(500, **fields), load(tables(), config(**fields))
    at = {"weight": xr.DataArray(drawn.weight), "level": xr.DataArray(drawn.level)}
    match = drawn.group == MATCH
    inl = (drawn.mean - drawn.ideal)[match]
    np.testing.assert_allclose(inl, currents.inl.sel(at).values[match], atol=1e-9)
    np.testing.assert_allclose(drawn.sd[match], currents.unit_sd.sel(at).values[match])
    rms = np.hypot(drawn.mean, drawn.sd)[~match]
    np.testing.assert_allclose(rms, currents.unit_leak.sel(at).values[~match], atol=1e-12)
    assert np.abs(drawn.weight).max() <= 2 * (states - 1)


def test_the_chance_of_a_wrong_integer_is_the_normal_tail() -> None:
    drawn = products(60)
    noise = np.random.default_rng(2).standard_normal((200_000, 1))
    counted = (np.abs(drawn.mean + drawn.sd * noise - drawn.ideal) > 0.5).mean(axis=0)
    np.testing.assert_allclose(drawn.wrong, counted, atol=0.006)


def test_sizes_are_thirds_of_the_largest() -> None:
    weight, level = np.array([0, 1, -2, 2, 4, -4, 4]), np.array([3, 3, 2, 3, 2, 3, 1])
    np.testing.assert_array_equal(bins_of(weight, level, 12), [0, 1, 1, 2, 2, 3, 1])


@given(st.integers(2, 8), st.integers(1, 30), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_floats_are_scaled_by_their_column(bits, rows, columns) -> None:
    given_ = np.random.default_rng(rows).standard_normal((2, rows, columns))
    found, limit = integer_weights(given_, bits), 2 ** (bits - 1) - 1
    assert found.shape == given_.shape
    np.testing.assert_array_equal(np.abs(found).max(axis=1), limit)
    scale = np.abs(given_).max(axis=1, keepdims=True) / limit
    assert (np.abs(found * scale - given_) <= scale / 2 + 1e-12).all()


@pytest.mark.parametrize(
    ("weights_", "message"),
    [
        ([[8, 1]], r"weights 1 \.\. 8, allowed: -7 \.\. 7 of 4 bits"),
        ([], r"shape \(0,\), allowed: finite numbers"),
        ([[np.nan]], r"allowed: finite numbers"),
        (["a"], r"allowed: finite numbers"),
    ],
)
def test_weights_that_cannot_be_stored_are_refused(weights_, message) -> None:
    with pytest.raises(InputError, match=message):
        integer_weights(weights_, 4)


@pytest.mark.parametrize("samples", [1, 3, 60, 500])
def test_two_thirds_of_the_sample_match(samples) -> None:
    drawn = products(4000)
    stratum = drawn.group * 4 + np.minimum(np.abs(drawn.weight), 3)
    match = drawn.group == MATCH
    chosen = choose(stratum, match, samples, np.random.default_rng(3))
    assert len(set(chosen.tolist())) == samples
    assert match[chosen].sum() == round(samples * 2 / 3)


def test_a_run_smaller_than_the_sample_is_taken_whole() -> None:
    match = np.array([True, False, False])
    chosen = choose(np.array([0, 1, 1]), match, 9, np.random.default_rng(0))
    assert sorted(chosen.tolist()) == [0, 1, 2]


# ---------------------------------------------------------------- statistics


def test_equal_weights_have_the_textbook_intervals() -> None:
    z = np.random.default_rng(5).standard_normal(80) + 0.3
    mean, sd = weighted_mean(z, np.ones(80)), weighted_sd(z, np.ones(80))
    low, high = stats.t.interval(0.95, 79, z.mean(), stats.sem(z))
    assert (mean.value, mean.low, mean.high) == pytest.approx((z.mean(), low, high))
    assert sd.value == pytest.approx(z.std(ddof=1))
    fit = stats.linregress(z, 2 * z)
    line = slope(z, 2 * z, np.ones(80))
    assert (line.value, line.low, line.high) == pytest.approx((fit.slope,) * 3)


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_intervals_of_weighted_moments_cover(draw) -> None:
    """Strata of unequal weight; no distribution is assumed."""
    rng = np.random.default_rng(6)
    weight = np.repeat([0.7 / 100, 0.3 / 50], [100, 50])
    truth = 1.0 if draw == "normal" else np.sqrt(2)
    inside = np.zeros(3)
    for _ in range(400):
        z = getattr(rng, draw)(size=150)
        mean, sd = weighted_mean(z, weight), weighted_sd(z, weight)
        x = rng.uniform(1, 3, 150)
        line = slope(x, 2 * x + z * x, weight)
        inside += [mean.low < 0 < mean.high, sd.low < truth < sd.high, line.low < 2 < line.high]
    assert (inside / 400 > 0.90).all()
    assert (inside / 400 < 0.99).all()


def test_one_value_has_no_interval() -> None:
    assert np.isnan(weighted_mean([1.0], [1.0]).low)
    assert np.isnan(weighted_sd([1.0], [1.0]).value)
    assert np.isnan(slope([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]).value)


# ---------------------------------------------------------------- known circuits


def circuit_of(chosen: CurrentFields, *, scale: float, spread: float, leak: float, fail: float = 0):
    """Units of the model's mean times `scale`, with a share of its spread."""
    currents = load(tables(), chosen)
    lsb, sd, inl = 2 * float(currents.lsb), currents.unit_sd, currents.inl

    def replay(task):
        found = []
        for one in task.products:
            rng = np.random.default_rng(abs(int(1e9 * one.threshold[0])))
            through = scale if one.entry == one.query else leak
            noise = spread * rng.standard_normal() * sd.sel(weight=one.weight).values
            match = one.entry == one.query
            product = one.weight * np.arange(4) + match * inl.sel(weight=one.weight).values
            y = lsb * (through * product + match * noise)
            if rng.random() < fail:
                nan = (float("nan"),) * 4
                found.append((UnitResult(nan, Status.NO_CONVERGENCE, "made up"),))
            else:
                found.append((UnitResult(tuple(y.tolist()), Status.OK, ""),))
        return found

    return replay


def audit(monkeypatch, samples: int = 900, **known) -> xr.Dataset:
    chosen = config(states=2)
    monkeypatch.setattr(nasic, "replay_units", circuit_of(chosen, **known))
    return audit_nasic(chosen, tables(), samples, seed=3, workers=1)


def test_a_known_circuit_is_found(monkeypatch) -> None:
    found = audit(monkeypatch, scale=1.2, spread=0.5, leak=0.01)
    assert weights(found).sum() == pytest.approx(1)
    by_part = {row["part"]: row for row in audit_rows(found)}
    match = by_part["match"]
    assert match["examined"] == 600
    assert match["share"] == pytest.approx(0.25, abs=0.01)
    assert by_part["match, W = 0"]["spread"] == pytest.approx(0.5, abs=0.06)
    assert match["tail"] < 0.05
    line = gain(found)
    assert line.low < 1.2 < line.high
    assert line.high - line.low < 0.05
    leaks = leakage(found, found["group"].values != MATCH)
    assert leaks.circuit.value == pytest.approx(0.01)
    assert by_part["neighbour"]["leakage"] == pytest.approx(0.01)
    assert match["gain"] == line.value
    assert leaks.model.value == pytest.approx(0.0014, abs=0.0004)
    assert by_part["match, large"]["bias"] > 0.6
    assert by_part["match, large"]["wrong_circuit"] > 0.5 > by_part["match, large"]["wrong_model"]
    assert by_part["match, medium"]["wrong_more_low"] > 0
    assert by_part["neighbour"]["wrong_circuit"] == 0
    assert "wrong_model" not in by_part["match, x = 2"]


def test_the_models_own_products_pass(monkeypatch) -> None:
    found = audit(monkeypatch, scale=1.0, spread=1.0, leak=0.0014)
    match = next(row for row in audit_rows(found) if row["part"] == "match")
    assert match["spread_low"] < 1 < match["spread_high"]
    assert match["wrong_more_low"] < 0 < match["wrong_more_high"]
    assert match["wrong_circuit_low"] < match["wrong_model"] < match["wrong_circuit_high"]
    assert match["tail_low"] < 0.0455 < match["tail_high"]


def test_failures_are_counted_and_widen(monkeypatch) -> None:
    all_ = audit(monkeypatch, scale=1.0, spread=1.0, leak=0.0)
    some = audit(monkeypatch, scale=1.0, spread=1.0, leak=0.0, fail=0.1)
    before, after = audit_rows(all_)[0], audit_rows(some)[0]
    assert after["failed"] > 50
    assert after["examined"] + after["failed"] == before["examined"] == 900
    assert after["wrong_circuit_high"] > before["wrong_circuit_high"] + 0.05
    assert "no_convergence" in audit_lines(some)
    json.dumps([audit_rows(some), offenders(some)], allow_nan=False)


def test_a_single_product_can_be_listed(monkeypatch) -> None:
    one = audit(monkeypatch, samples=1, scale=1.0, spread=1.0, leak=0.0, fail=1.0)
    assert "1 no_convergence" in audit_lines(one)
    assert offenders(one) == []
    json.dumps(audit_rows(one), allow_nan=False)


def test_offenders_are_the_largest_residuals(monkeypatch) -> None:
    found = audit(monkeypatch, scale=1.0, spread=1.0, leak=0.0)
    listed = offenders(found, 20)
    z = [abs(each["circuit"] - each["mean"]) / each["sd"] for each in listed]
    assert z == sorted(z, reverse=True)
    assert all(each["entry"] == each["query"] for each in listed)
    assert "nandcosim simulate cim_unit --set" in listed[0]["simulate"]
    with pytest.raises(InputError, match="comparison = 'noisy'"):
        offenders(found, comparison="noisy")


def test_the_systems_own_configuration_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(
        nasic, "replay_units", circuit_of(config(states=2), scale=1, spread=1, leak=0)
    )
    chosen = HardwareFields(technique="t1t2", interleave=4)
    found = audit_nasic(chosen, tables(), 30, seed=3, workers=1, weights=np.array([[-7, 0, 7]]))
    assert json.loads(found.attrs["circuit_settings"])["states"] == 2
    assert found.attrs["weights"] == "given, 3"
    assert set(np.unique(found["weight"]).tolist()) <= {-2, -1, 0, 1, 2}
    # sigma of the current is met by a threshold spread between the table's
    assert 0.012 < found.attrs["threshold_sigma"] < 0.024


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"technique": "t1"}, r"technique = t1, allowed: t1t2, t1t2t3"),
        ({"sigma": 0.3}, r"sigma = 0\.3, allowed: up to 0\.21"),
        ({"sigma": (0.1, 0.15)}, r"sigma = 0\.1, 0\.15, allowed: one value"),
        ({"states": 5}, r"needs the table 'cim_string_5'"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(fields, message) -> None:
    with pytest.raises(InputError, match=message) as refused:
        audit_nasic(config(**fields), tables(), 10, workers=1)
    assert "\n" not in str(refused.value)


def test_a_missing_table_is_named() -> None:
    with pytest.raises(InputError, match="needs the table 'cim_string'; loaded: none"):
        audit_nasic(config(), {}, 10, workers=1)
    with pytest.raises(InputError, match="samples = 0"):
        audit_nasic(config(), tables(), 0)
