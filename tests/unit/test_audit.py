"""Reads of a search, the amplifier behind a read noise, rates from a stratified sample."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

pytest.importorskip("faiss")
pytest.importorskip("numba")

from nandcosim.audit import audit_dnova
from nandcosim.audit.amplifier import Amplifier, mismatch_of
from nandcosim.audit.comparison import (
    alternatives,
    bin_cells,
    by_companion,
    disagreement,
    series_rule,
    weights,
)
from nandcosim.audit.decisions import Decisions, Reads
from nandcosim.audit.strata import (
    allocate,
    stratified_difference,
    stratified_mean,
    stratified_rate,
)
from nandcosim.audit.workers import run_tasks
from nandcosim.errors import InputError
from nandcosim.sweep.registry import load_circuit
from nandcosim.systems.dnova import Config, Corpus
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.noise import SensingNoise, read_deficits
from nandcosim.systems.dnova.score import Accumulator, full_score, score_deficits
from nandcosim.tables import load_tables
from nandcosim.tables.table import CalibrationTable

M = (2, 4, 3)  # 3 divides no string: the last group is short
DIM = 200  # one whole string and one partly used
NOISE = SensingNoise.from_margins(0.4, {2: 0.05, 3: 0.09, 4: 0.13}, {2: 0.2, 3: 0.3, 4: 0.25})
SEED = 7


tables = cache(load_tables)


@cache
def index_and_queries() -> tuple[IvfIndex, np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, DIM), dtype=np.float32)
    queries = vectors[:4] + 0.5 * rng.standard_normal((4, DIM), dtype=np.float32)
    return IvfIndex.build(vectors, 12, value_range="sigma:9"), queries


@cache
def searched(metric: str = "dts", noise: SensingNoise = NOISE, read_noise: str = "static") -> Reads:
    index, queries = index_and_queries()
    rule = {
        "m": M,
        "alpha": 2,
        "metric": metric,
        "noise": noise,
        "seed": SEED,
        "read_noise": read_noise,
    }
    result = index.search(queries, nprobe=5, k2=40, k1=10, **rule)
    return Reads(index, queries, result, **rule)


def all_reads(reads: Reads, stage: int, query: int, vector: int) -> Decisions:
    groups, senses = reads.groups(stage), len(reads.senses)
    count = groups * senses
    return Decisions(
        stage=np.full(count, stage),
        query=np.full(count, query),
        vector=np.full(count, vector),
        sense=np.repeat(np.arange(senses), groups),
        group=np.tile(np.arange(groups), senses),
    )


def deficit(reads: Reads, stage: int, query: int, vector: int) -> int:
    """Failed groups of a vector, from every single read, saturated string by string."""
    decisions = all_reads(reads, stage, query, vector)
    told = reads.judge(decisions)
    inverted = np.array([sense.inverted for sense in reads.senses])[decisions.sense]
    strings = decisions.sense * Accumulator().strings(DIM) + told.string
    failed = np.bincount(strings, weights=told.conducts == inverted)
    return int(failed.clip(max=15).sum())


@pytest.mark.parametrize("metric", ["dts", "ubs+lbs"])
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("read_noise", ["static", "per_read"])
def test_every_read_is_decided_as_in_the_search(metric, stage, read_noise) -> None:
    """The deficits of the search's own functions, read for read the same noise."""
    reads = searched(metric, read_noise=read_noise)
    part = "centroids" if stage == 1 else "vectors"
    held, m = reads.stored[part], M[stage - 1]
    for query, vector in [(0, 3), (2, 11)]:
        rule = {"m": m, "metric": metric, "alpha": 2}
        if read_noise == "per_read":
            names = np.arange(len(held.original))
            key = (SEED, query, stage)
            expected = read_deficits(
                held, reads.codes[query], [vector], names, NOISE, key=key, **rule
            )
        else:
            draws = index_and_queries()[0].amplifiers(SEED)[part]
            rows = np.array([vector])
            original, complemented = held.effective_levels(
                NOISE.trip_margin(m), rows, offsets=NOISE.read_sigma(m) * draws
            )
            expected = score_deficits(
                original, reads.codes[query], complemented=complemented, **rule
            )
        assert deficit(reads, stage, query, vector) == expected[0]


@pytest.mark.parametrize("read_noise", ["static", "per_read"])
def test_the_results_scores_are_those_of_the_reads(read_noise) -> None:
    """From end to end: full score less the deficit of stage 3."""
    reads = searched(read_noise=read_noise)
    best = full_score(DIM, M[2])
    for query in range(2):
        found = reads.result.ids[query, :3]
        ours = [best - deficit(reads, 3, query, int(vector)) for vector in found]
        assert ours == reads.result.scores[query, :3].tolist()


def test_only_reads_that_occurred_are_drawn_and_as_often() -> None:
    reads = searched()
    drawn = reads.draw(20_000, np.random.default_rng(1))
    result, assignment = reads.result, index_and_queries()[0].assignment
    for stage in (1, 2, 3):
        here = drawn.stage == stage
        assert drawn.group[here].max() == reads.groups(stage) - 1
        for query in range(len(result.lists)):
            vectors = np.unique(drawn.vector[here & (drawn.query == query)])
            kept = result.candidates[query]
            scored = {
                1: np.arange(12),
                2: np.flatnonzero(np.isin(assignment, result.lists[query])),
                3: kept[kept >= 0],
            }[stage]
            assert set(vectors) <= set(scored.tolist())
            assert vectors.size > 0.9 * scored.size
    share = reads.reads / reads.reads.sum()
    counts = np.zeros(share.shape)
    np.add.at(counts, (drawn.query, drawn.stage - 1), 1)
    error = np.sqrt(share * (1 - share) / len(drawn))
    assert np.abs(counts / len(drawn) - share).max() < 4 * error.max()


def test_a_string_holds_its_cells_and_drives_its_group() -> None:
    reads = searched()
    drawn = reads.draw(200, np.random.default_rng(2))
    told = reads.judge(drawn)
    for i in range(len(drawn)):
        stored, applied = reads.string(drawn, i)
        active = np.flatnonzero(~np.isnan(applied))
        assert active.tolist() == list(range(told.first[i], told.first[i] + told.size[i]))
        margins = np.sort((applied - stored - 0.5)[active])
        assert margins[0] == pytest.approx(told.margin[i], abs=1e-12)
        if told.size[i] > 1:
            assert margins[1] == pytest.approx(told.companion[i], abs=1e-12)
        if told.string[i] == 1:  # cells beyond the last component are erased
            assert (stored[DIM - 128 :] == 0).all()
    assert set(told.size.tolist()) == {2, 3, 4}


def test_without_read_noise_the_margin_decides() -> None:
    quiet = SensingNoise.from_margins(0.4, {2: 0.05, 3: 0.09, 4: 0.13}, {2: 0.0, 3: 0.0, 4: 0.0})
    told = (reads := searched(noise=quiet)).judge(reads.draw(500, np.random.default_rng(3)))
    assert (told.conducts == told.ideal).all()
    assert (told.ideal == (told.excess > 0)).all()
    assert not told.score.any()


# ---------------------------------------------------------------- amplifier

AMPLIFIER = Amplifier(2, 0.04, ("sa_n", "sa_p"), np.array([0.0335, 0.0106]), np.array([-0.8, -0.9]))


def test_the_mismatch_gives_the_noise_it_stands_for() -> None:
    scores = np.linspace(-4, 4, 101)
    mismatch = AMPLIFIER.mismatch(scores, np.random.default_rng(4))
    np.testing.assert_allclose(
        mismatch @ AMPLIFIER.slopes, scores * AMPLIFIER.spread, rtol=0, atol=1e-12
    )
    assert AMPLIFIER.spread == pytest.approx(np.hypot(0.0335 * 0.8, 0.0106 * 0.9))


def test_slopes_are_differences_of_trip_margins() -> None:
    from nandcosim.audit.amplifier import TripTask

    task = TripTask("dts_sense", {}, 4, {"sa_n": 0.02, "sa_p": 0.01})
    found = Amplifier.measured(task, [0.1, 0.08, 0.12, 0.11, 0.09])
    np.testing.assert_allclose(found.slopes, [-1.0, 1.0])
    assert found.trip == 0.1


def test_the_mismatch_is_read_from_the_table() -> None:
    table = tables()["dts_sense"]
    circuit = load_circuit("dts_sense")
    assert mismatch_of(table, circuit) == {"sa_n": 0.0335, "sa_p": 0.0106}
    bare = table.dataset.copy()
    del bare.attrs["spec"]
    with pytest.raises(InputError, match="does not say which sweep"):
        mismatch_of(CalibrationTable(bare), circuit)
    odd = table.dataset.copy()
    odd.attrs["spec"] = odd.attrs["spec"].replace('"sa_n"', '"elsewhere"')
    with pytest.raises(InputError, match="elsewhere"):
        mismatch_of(CalibrationTable(odd), circuit)


# ---------------------------------------------------------------- rates


@pytest.mark.parametrize(("events", "examined"), [(3, 50), (0, 50), (1, 1), (7, 7)])
def test_one_stratum_has_its_exact_interval(events, examined) -> None:
    found = stratified_rate([1000], [events], [examined])
    expected = binomtest(events, examined).proportion_ci(method="exact")
    assert found.value == events / examined
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_strata_count_by_their_weight() -> None:
    found = stratified_rate([900, 100], [0, 50], [100, 100])
    assert found.value == pytest.approx(0.1 * 0.5)
    assert found.low < found.value < found.high
    more = stratified_rate([900, 100], [0, 50], [100, 100], [0, 20])
    assert more.value == found.value
    assert more.low < found.low
    assert more.high > found.high


def test_nothing_known_is_nothing_said() -> None:
    found = stratified_rate([5, 0], [0, 0], [0, 0])
    assert np.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)
    # a stratum that nobody looked at may hold anything
    half = stratified_rate([500, 500], [0, 0], [100, 0])
    assert half.high > 0.5
    # which sampling errors elsewhere do not make up for
    some = stratified_rate([500, 500], [10, 0], [20, 0])
    known = binomtest(10, 20).proportion_ci(method="exact")
    assert some.low == pytest.approx(0.5 * known.low)
    assert some.high == pytest.approx(0.5 * known.high + 0.5)


def test_a_mean_of_events_is_their_rate() -> None:
    label = np.repeat([0, 1], 50)
    events = np.concatenate([np.zeros(50), np.arange(50) % 4 == 0])
    rate = stratified_rate([300, 100], [0, 13], [50, 50])
    assert stratified_mean([300, 100], label, events) == rate
    half = stratified_mean([300, 100], label, events / 2, bound=0.5)
    assert (half.value, half.low, half.high) == (rate.value / 2, rate.low / 2, rate.high / 2)
    unknown = np.where(np.arange(100) == 50, np.nan, events)
    assert stratified_mean([300, 100], label, unknown) == stratified_rate(
        [300, 100], [0, 12], [50, 49], [0, 1]
    )


def test_samples_that_are_all_alike_say_little_if_they_are_few() -> None:
    """Their spread is nothing; what the population may hold is not."""
    label = np.repeat([0, 1], 2)
    found = stratified_mean([500, 500], label, [0.0, 0.0, 1.0, 1.0])
    assert found.high - found.low > 0.5
    bias = stratified_difference([500, 500], label, np.zeros(4), np.zeros(4))
    assert bias.high > 0.4
    assert bias.low < -0.4


def test_a_difference_has_a_sign() -> None:
    label = np.repeat([0, 1], 40)
    rng = np.random.default_rng(8)
    bit, chance = rng.random(80) < 0.5, rng.random(80)
    more, less = bit * (1 - chance), ~bit * chance
    found = stratified_difference([700, 100], label, more, less)
    turned = stratified_difference([700, 100], label, less, more)
    np.testing.assert_allclose(
        [found.value, found.low, found.high], [-turned.value, -turned.high, -turned.low]
    )
    parts = [stratified_mean([700, 100], label, each).value for each in (more, less)]
    assert found.value == pytest.approx(parts[0] - parts[1])
    unknown = stratified_difference([700, 100], label, np.full(80, np.nan), np.full(80, np.nan))
    assert np.isnan(unknown.value)
    assert (unknown.low, unknown.high) == (-1.0, 1.0)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(0, 1000))
@settings(deadline=None)
def test_allocation_is_complete_and_possible(available, wanted) -> None:
    given_out = allocate(available, wanted)
    assert given_out.sum() == min(wanted, sum(available))
    assert (given_out >= 0).all()
    assert (given_out <= available).all()


# ---------------------------------------------------------------- comparison


def made_up(rule, count: int = 4000) -> xr.Dataset:
    """Groups of four whose circuit follows `rule`; the model knows the worst cell alone."""
    rng = np.random.default_rng(5)
    margins = rng.integers(-1, 5, (count, 4)) + 0.5 + 0.2 * rng.standard_normal((count, 4))
    threshold = np.zeros((count, 128))
    threshold[:, 60:64] = -margins
    margin = margins.min(axis=1)
    excess = margin - 0.1
    bins = np.digitize(excess, [-1.0, 0.0, 1.0], right=True)
    drawn = np.zeros((3, 4), dtype=int)
    drawn[1] = np.bincount(bins, minlength=4)
    bit = rule(margins) * 1.0
    return xr.Dataset(
        {
            "threshold": (("sample", "cell"), threshold),
            "first": ("sample", np.full(count, 60)),
            "size": ("sample", np.full(count, 4)),
            "margin": ("sample", margin),
            "companion": ("sample", np.sort(margins, axis=1)[:, 1]),
            "excess": ("sample", excess),
            "stage": ("sample", np.full(count, 2)),
            "bin_of": ("sample", bins),
            "drawn": (("stage_of", "bin"), drawn),
            "model": (("sample", "comparison"), (excess > 0)[:, np.newaxis] * 1.0),
            "circuit": (("sample", "comparison"), bit[:, np.newaxis]),
            "status": (("sample", "comparison"), np.zeros((count, 1), dtype=int)),
        },
        coords={"comparison": ["ideal"], "stage_of": [1, 2, 3]},
    )


def test_the_rule_that_the_circuit_follows_is_found() -> None:
    def series(margins):
        return -0.5 * np.log(np.exp(-margins / 0.5).sum(axis=1)) > -0.2

    dataset = made_up(series)
    worst, found = alternatives(dataset)
    assert (worst.name, found.name) == ("worst cell", "cells in series")
    assert found.parameters["slope"] == pytest.approx(0.5, abs=0.02)
    assert found.parameters["trip"] == pytest.approx(-0.2, abs=0.02)
    assert found.found.rate.value < 0.002 < worst.found.rate.value
    assert worst.found.rate.value < disagreement(dataset, "ideal").rate.value
    # no interval in the reads of the fit; a rule from elsewhere has one
    assert np.isnan([found.found.rate.low, worst.found.rate.high]).all()
    elsewhere = series_rule(dataset, -0.2, 0.5).rate
    assert elsewhere.low <= elsewhere.value < elsewhere.high


def test_an_agreeing_circuit_has_no_other_rule_and_no_disagreement() -> None:
    dataset = made_up(lambda margins: margins.min(axis=1) > 0.1)
    assert [each.name for each in alternatives(dataset)] == []
    found = disagreement(dataset, "ideal")
    assert (found.rate.value, found.conducts, found.blocks) == (0.0, 0, 0)
    assert weights(dataset).sum() == pytest.approx(1.0)
    assert disagreement(dataset, "ideal", bin_cells(dataset, stage=2)).share == 1.0


def test_both_directions_are_told_apart_and_failures_counted() -> None:
    dataset = made_up(lambda margins: margins.min(axis=1) > 0.3)
    between = (dataset["excess"].values > 0) & (dataset["margin"].values <= 0.3)
    found = disagreement(dataset, "ideal")
    assert (found.blocks, found.conducts) == (between.sum(), 0)
    assert found.rate.value == pytest.approx(between.mean())
    dataset["status"].values[np.flatnonzero(between)[:10]] = 1
    failed = disagreement(dataset, "ideal")
    assert (failed.failed, failed.blocks) == (10, between.sum() - 10)


def test_a_second_weak_cell_is_where_a_series_blocks() -> None:
    dataset = made_up(lambda margins: -0.5 * np.log(np.exp(-margins / 0.5).sum(axis=1)) > 0)
    edges = (-np.inf, 1.0, np.inf)
    near, far = by_companion(dataset, "ideal", edges)
    assert near.share + far.share == pytest.approx(1.0)
    assert near.blocks > far.blocks
    assert near.blocks + far.blocks == disagreement(dataset, "ideal").blocks
    counts = np.array([near.examined, far.examined])
    differ = np.array([each.conducts + each.blocks for each in (near, far)])
    np.testing.assert_allclose([near.rate.value, far.rate.value], differ / counts)


# ---------------------------------------------------------------- processes


@dataclass(frozen=True)
class Work:
    number: int
    backend: str = "shared"


def fragile(work: Work) -> tuple[int, str]:
    """Kills its process as a native library may, unless that is isolated from it."""
    if work.number == 2 and work.backend == "shared":
        os.kill(os.getpid(), signal.SIGKILL)
    return work.number, work.backend


def test_a_killed_process_costs_no_task() -> None:
    found = dict(run_tasks(fragile, [Work(i) for i in range(4)], workers=2))
    assert [found[i][0] for i in range(4)] == [0, 1, 2, 3]
    assert found[2] == (2, "process")


# ---------------------------------------------------------------- wrong inputs

CORPUS = Corpus("tiny", np.eye(8, 128, dtype=np.float32), np.eye(2, 128, dtype=np.float32))


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"alpha": (1, 2), "nprobe": 1}, {}, "alpha = 1, 2"),
        ({"nprobe": (1, 2)}, {}, "nprobe = 1, 2"),
        ({"nprobe": 1}, {"samples": 0}, "samples = 0"),
        ({"nprobe": 1}, {"workers": 0}, "workers = 0"),
        ({"nprobe": 1}, {"backend": "none"}, "backend = 'none'"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(fields, arguments, message) -> None:
    with pytest.raises(InputError, match=message) as error:
        audit_dnova(Config(**fields), CORPUS, tables(), **arguments)
    assert "\n" not in str(error.value)


def test_the_table_must_be_there() -> None:
    with pytest.raises(InputError, match="'dts_sense'; loaded: none"):
        audit_dnova(Config(nprobe=1), CORPUS, {})
