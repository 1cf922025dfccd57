"""The bits that an audit of NVLLM takes, and what it makes of known circuits' answers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

from nandcosim.audit import audit_lines, audit_nvllm, audit_rows, nvllm, offenders
from nandcosim.audit.amplifier import mismatch_of
from nandcosim.audit.bit_reads import EDGES, FIRST, LATER, draw_reads, edges, is_near
from nandcosim.audit.comparison import weights
from nandcosim.audit.nvllm import choose
from nandcosim.audit.page_rates import (
    decided_error_rate,
    decision,
    drawn_error_rate,
    error_rate,
    error_rate_difference,
    headroom,
    segments,
    table_error_rate,
)
from nandcosim.audit.page_reads import PageResult, circuit_settings, page_params
from nandcosim.audit.strata import Estimate
from nandcosim.errors import InputError
from nandcosim.page_coding import level_bits, read_levels
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit
from nandcosim.systems.nvllm.cells import PageSenses, WeightCells
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.tables import load_tables
from nandcosim.tables.table import CalibrationTable

tables = cache(load_tables)

FIRST_SAMPLE = 60_000


def config(**fields) -> HardwareFields:
    return HardwareFields(page_bytes=32, **{"cell_bits": 3, "sigma": 0.25, **fields})


@cache
def reads(bits: int = 3):
    chosen = config(cell_bits=bits)
    senses = [PageSenses.of(page, chosen, tables()) for page in range(bits)]
    weights = np.random.default_rng(1).integers(0, 256, 40_000, dtype=np.uint8)
    cells = WeightCells.of(weights, bits, page_bytes=32)
    return cells, draw_reads(cells, senses, chosen, FIRST_SAMPLE, np.random.default_rng(2))


# ---------------------------------------------------------------- the reads


@pytest.mark.parametrize("bits", [1, 3, 4])
def test_a_read_is_a_bit_of_its_cell_at_its_nearest_read_level(bits) -> None:
    cells, drawn = reads(bits)
    few = drawn.take(np.arange(500))
    for i in range(len(few)):
        page, level = int(few.page[i]), int(few.level[i])
        assert few.stored[i] == level_bits(bits)[level, page]
        levels = read_levels(bits, page)
        nearest = levels[np.abs(levels - 0.5 - few.threshold[i]).argmin()]
        assert few.read_level[i] == nearest
        assert few.turn[i] == (FIRST if nearest == levels[0] else LATER)
    strings = cells.strings(few.block, few.bitline)
    assert strings.shape == (500, 128)
    np.testing.assert_array_equal(strings[np.arange(500), few.wordline], few.level)


def test_negative_clearance_is_where_the_model_errs() -> None:
    _, drawn = reads()
    wrong = drawn.ideal_bit != drawn.stored
    # but for thresholds beyond two read levels of a page, of which there are none here
    np.testing.assert_array_equal(wrong, drawn.clearance < 0)
    assert 0.005 < wrong.mean() < 0.1
    np.testing.assert_allclose(np.abs(drawn.clearance), np.abs(drawn.excess))


def test_the_noise_drawn_is_the_chance() -> None:
    _, drawn = reads(4)
    near = np.abs(drawn.excess) < 0.05
    expected, found = drawn.chance[near].mean(), drawn.noisy[near].mean()
    assert abs(found - expected) < 4 * np.sqrt(0.25 / near.sum())
    flipped = drawn.noisy != drawn.ideal
    assert flipped.any()
    # a sense that turns turns its page's bit
    np.testing.assert_array_equal(drawn.noisy_bit != drawn.ideal_bit, flipped)


def test_bins_are_the_same_voltages_in_every_cell() -> None:
    np.testing.assert_allclose(edges(4), EDGES)
    np.testing.assert_allclose(edges(1) * 8, EDGES)
    near = is_near(np.arange(len(EDGES) + 1))
    assert near.sum() == len(EDGES) + 1 - 4
    assert near[np.digitize([-0.15, 0.0, 0.15], EDGES, right=True)].all()
    assert not near[np.digitize([-0.6, -0.3, 0.3, 0.6], EDGES, right=True)].any()


@pytest.mark.parametrize("samples", [1, 40, 2000])
def test_half_of_the_samples_are_near_the_decision(samples) -> None:
    _, drawn = reads()
    bins = np.digitize(drawn.clearance, edges(3), right=True)
    stratum = drawn.turn * (len(EDGES) + 1) + bins
    chosen = choose(stratum, bins, samples, np.random.default_rng(4))
    assert len(set(chosen.tolist())) == samples
    if samples >= 40:
        assert is_near(bins[chosen]).sum() >= samples // 2
    if samples >= 2000:
        assert set(stratum[chosen]) == set(stratum)
    if samples > 1:
        assert np.bincount(stratum).argmax() in stratum[chosen]


def test_a_run_smaller_than_the_sample_is_taken_whole() -> None:
    stratum = np.array([0, 0, 5, 5, 5])
    chosen = choose(stratum, np.array([0, 0, 5, 5, 5]), 9, np.random.default_rng(0))
    assert sorted(chosen.tolist()) == [0, 1, 2, 3, 4]


def test_settings_are_those_of_the_sweep_but_for_what_a_read_sets() -> None:
    circuit, table = load_circuit("page_read"), tables()["page_read"]
    settings = circuit_settings(table, bits=3, coding="reflected", retry=2)
    for wordline in range(128):
        params = page_params(circuit, settings, wordline, 2, 5)
        assert params.selected == wordline
    assert (params.stored, params.page, params.bits, params.retry) == (5, 2, 3, 2)
    assert (params.read, params.pattern, params.coding) == ("page", "erased", "reflected")
    bare = table.dataset.copy()
    del bare.attrs["circuit_parameters"]
    with pytest.raises(InputError, match="does not tell its circuit's parameters"):
        circuit_settings(CalibrationTable(bare))
    assert mismatch_of(table, circuit, ("threshold", "data")) == {"sa_n": 0.0335, "sa_p": 0.0106}


# ---------------------------------------------------------------- a known circuit

#: The circuit of these tests: places of first and later senses, and spread of both.
PLACES, SPREAD = {FIRST: -0.03, LATER: 0.05}, 0.02


def replayed(function, replays, key, task_of, workers, progress):
    """A circuit whose decision is known; a mismatch of 33.5 mV moves it by the spread."""
    found = []
    for read in replays:
        levels = read_levels(3, read.page)
        threshold = read.level + read.threshold[read.wordline]
        turn = FIRST if read.read_level == levels[0] else LATER
        pair = []
        for mismatch in (0.0, read.mismatch["sa_n"] / 0.0335 * SPREAD):
            conducts = threshold + mismatch < levels - 0.5 - PLACES[turn]
            bit = (1 + int((~conducts).sum())) % 2
            sense = float(conducts[levels.tolist().index(read.read_level)])
            pair.append(PageResult(sense, float(bit), Status.OK, ""))
        found.append(tuple(pair))
    return found


@pytest.fixture(scope="module")
def audit() -> xr.Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvllm, "replay_in_order", replayed)
        patch.setattr(nvllm, "FIRST_SAMPLE", FIRST_SAMPLE)
        return audit_nvllm(config(), tables(), 3000, seed=3)


def test_weights_are_the_shares_of_the_run(audit) -> None:
    share = weights(audit)
    assert share.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(share, audit["weight"])
    drawn = audit["drawn"].values / audit["drawn"].values.sum()
    for turn in (FIRST, LATER):
        here = audit["turn"].values == turn
        found = np.bincount(audit["bin_of"].values[here], share[here], len(EDGES) + 1)
        np.testing.assert_allclose(found, drawn[turn - 1], atol=1e-12)


def test_the_decisions_of_a_known_circuit_are_found(audit) -> None:
    for turn, place in PLACES.items():
        inside = audit["turn"].values == turn
        fit = decision(audit, "noisy", inside)
        assert abs(fit.location - place) < 4 * fit.location_se
        assert abs(fit.spread - SPREAD) < 4 * fit.spread_se
        sharp = decision(audit, "ideal", inside)
        assert sharp.location_low < place < sharp.location_high
        assert sharp.spread == 0


def test_the_error_rate_of_a_known_circuit_is_found(audit) -> None:
    """Counted, by the fitted decisions, and as the model's plus a difference."""
    truth = expected_rate()
    for found in (error_rate(audit, "noisy"), decided_error_rate(audit)):
        assert found.low < truth < found.high
    model = table_error_rate(audit).value
    drawn = drawn_error_rate(audit)
    assert drawn.low < model < drawn.high
    for near in (False, True):
        more = error_rate_difference(audit, "noisy", near=near)
        assert more.low < truth - model < more.high
    whole = error_rate_difference(audit, "noisy")
    assert more.value == pytest.approx(whole.value)
    assert more.high - more.low < whole.high - whole.low
    assert segments(audit, Estimate(0.001, 0.0, np.nan)).value == pytest.approx(
        1 - 0.999 ** audit.attrs["segment_bits"]
    )


def expected_rate() -> float:
    """Bit error rate of TLC 2-3-2 in the known circuit, by errors of one level (sigma 0.25)."""
    total, width = 0.0, np.hypot(0.25, SPREAD)
    for page in range(3):
        for n, _ in enumerate(read_levels(3, page)):
            place = PLACES[FIRST if n == 0 else LATER]
            total += ndtr((-0.5 - place) / width) + ndtr((-0.5 + place) / width)
    return float(total) / 8 / 3


def test_disagreement_is_between_the_two_decisions(audit) -> None:
    rows = {(row["comparison"], row["part"]): row for row in audit_rows(audit)}
    ideal = rows["ideal", "all"]
    assert ideal["examined"] == 3000
    assert rows["ideal", "later sense"]["circuit_conducts"] == 0
    assert rows["ideal", "first sense"]["circuit_blocks"] == 0
    assert rows["ideal", "clear > 0.25"]["rate"] == 0
    parts = [row for (name, _), row in rows.items() if name == "ideal"]
    pages = [row["share"] for row in parts if row["part"].endswith("page")]
    lines = [row["share"] for row in parts if row["part"].startswith("wordline")]
    assert sum(pages) == pytest.approx(1.0)
    assert sum(lines) == pytest.approx(1.0)
    worst = offenders(audit, 5)
    assert len(worst) == 5
    assert abs(worst[0]["excess"]) == max(abs(each["excess"]) for each in worst)
    location = float(audit["pass_location"])
    assert all(abs(each["excess"] + location) < 0.05 for each in worst)
    text = audit_lines(audit)
    assert "3 bits a cell, balanced, sigma 0.25" in text
    assert "later sense" in text


def test_headroom_is_the_pass_voltage_above_the_weakest_other_cell(audit) -> None:
    """8 levels of 0.12 V from 0.1 V: a cell of level 7 decides at 1.0 V, v_pass is 1.2 V."""
    one = audit.isel(sample=[0]).copy(deep=True)
    one["data"].values[:], one["threshold"].values[:] = 7, 0.0
    assert headroom(one) == pytest.approx(0.2)
    other = (int(one["wordline"][0]) + 5) % 128
    one["threshold"].values[0, other] = 2.0
    assert headroom(one) == pytest.approx(-0.04)
    one["threshold"].values[0, other] = 0.0
    one["threshold"].values[0, int(one["wordline"][0])] = 2.0
    assert headroom(one) == pytest.approx(0.2)


def test_failures_are_counted_and_widen(audit) -> None:
    dataset = audit.copy(deep=True)
    lost = np.flatnonzero(is_near(dataset["bin_of"].values))[:100]
    dataset["status"].values[lost] = int(Status.TIMEOUT)
    dataset["circuit"].values[lost] = np.nan
    dataset["circuit_bit"].values[lost] = np.nan
    before, after = error_rate(audit, "noisy"), error_rate(dataset, "noisy")
    assert after.low < before.low
    assert after.high > before.high
    rows = {(row["comparison"], row["part"]): row for row in audit_rows(dataset)}
    assert rows["noisy", "all"]["failed"] == 100
    assert "timeout" in audit_lines(dataset)
    assert decision(dataset, "noisy").location == pytest.approx(
        decision(audit, "noisy").location, abs=0.01
    )


# ---------------------------------------------------------------- wrong inputs


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"sigma": (0.2, 0.3)}, {}, "sigma = 0.2, 0.3"),
        ({}, {"samples": 0}, "samples = 0"),
        ({}, {"workers": 0}, "workers = 0"),
        ({}, {"backend": "none"}, "backend = 'none'"),
        ({}, {"weights": [0.5]}, "weights: found 1 of type float64"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(fields, arguments, message) -> None:
    with pytest.raises(InputError, match=message) as error:
        audit_nvllm(config(**fields), tables(), **arguments)
    assert "\n" not in str(error.value)


def test_the_table_and_a_known_system_must_be_there(audit) -> None:
    with pytest.raises(InputError, match="'page_read'; loaded: none"):
        audit_nvllm(config(), {})
    with pytest.raises(InputError, match="dataset of 'other', allowed: dnova, nvllm"):
        audit_rows(audit.assign_attrs(audit="other"))
