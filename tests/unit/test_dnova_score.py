"""Equations (1) to (4) on cases small enough to see, and their degenerate limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.dnova.quantise import complement
from nandcosim.systems.dnova.score import (
    METRICS,
    Accumulator,
    dts_score,
    full_score,
    group_starts,
    lbs,
    score_deficits,
    ubs,
)

# The paper's worked example (Fig. 6): one group of four cells.
STORED = np.array([[8, 4, 5, 8]])
QUERY = np.array([7, 7, 4, 7])


def test_worked_example_upper_bound() -> None:
    # 8 < 9, 4 < 9, 5 < 6, 8 < 9: conducts.
    assert ubs(STORED, QUERY, alpha=2, m=4).tolist() == [[True]]


def test_worked_example_lower_bound() -> None:
    # Only 4 < 7 - 2 is below; the others are not, so the string is off: pass.
    assert lbs(STORED, QUERY, alpha=2, m=4).tolist() == [[True]]
    assert lbs(STORED, QUERY, alpha=2, m=1).tolist() == [[True, False, True, True]]


def test_the_printed_lower_bound_passes_its_boundary_and_the_strict_one_does_not() -> None:
    stored, query = np.array([[4], [5], [6]]), np.array([7])
    assert lbs(stored, query, alpha=2, m=1).ravel().tolist() == [False, True, True]
    assert lbs(stored, query, alpha=2, m=1, strict=True).ravel().tolist() == [False, False, True]


def test_worked_example_complement_rejects_what_the_lower_bound_lets_through() -> None:
    # Complements 7, 11, 10, 7 against 8 + 2, 8 + 2, 11 + 2, 8 + 2: 11 is too high.
    upper = ubs(complement(STORED), complement(QUERY), alpha=2, m=4)
    assert upper.tolist() == [[False]]
    assert dts_score(STORED, QUERY, alpha=2, m=4).tolist() == [1]
    assert score_deficits(STORED, QUERY, alpha=2, m=4).tolist() == [1]
    assert score_deficits(STORED, QUERY, alpha=2, m=4, metric="ubs+lbs").tolist() == [0]


codes = st.integers(0, 10_000).map(np.random.default_rng)


@given(draw=codes, dim=st.integers(1, 300), alpha=st.integers(0, 16))
def test_one_cell_groups_count_components(draw: np.random.Generator, dim: int, alpha: int) -> None:
    stored, query = draw.integers(0, 16, (9, dim)), draw.integers(0, 16, dim)
    both = np.sum(np.abs(stored - query) < alpha, axis=1)
    either = np.sum((stored < query + alpha) | (stored > query - alpha), axis=1)
    # Inclusion-exclusion: passes of the two bounds = components in both + in either.
    np.testing.assert_array_equal(dts_score(stored, query, alpha=alpha, m=1), both + either)
    if alpha > 0:  # then every component is inside at least one bound
        np.testing.assert_array_equal(dts_score(stored, query, alpha=alpha, m=1) - dim, both)


@given(draw=codes, m=st.integers(1, 16), dim=st.integers(1, 300))
def test_wide_tolerance_passes_every_group(draw: np.random.Generator, m: int, dim: int) -> None:
    stored, query = draw.integers(0, 16, (5, dim)), draw.integers(0, 16, dim)
    assert (dts_score(stored, query, alpha=16, m=m) == full_score(dim, m)).all()
    assert not score_deficits(stored, query, alpha=16, m=m).any()


@given(draw=codes, m=st.integers(1, 16), dim=st.integers(1, 300), alpha=st.integers(0, 6))
def test_unsaturated_deficit_is_full_score_less_score(
    draw: np.random.Generator, m: int, dim: int, alpha: int
) -> None:
    stored, query = draw.integers(0, 16, (5, dim)), draw.integers(0, 16, dim)
    exact = Accumulator(latch_bits=None)
    deficit = score_deficits(stored, query, alpha=alpha, m=m, accumulator=exact)
    np.testing.assert_array_equal(
        deficit, full_score(dim, m) - dts_score(stored, query, alpha=alpha, m=m)
    )


@given(draw=codes, alpha=st.integers(1, 8))
def test_dts_equals_ubs_and_strict_lbs_at_m_1_only(draw: np.random.Generator, alpha: int) -> None:
    stored, query = draw.integers(0, 16, (50, 64)), draw.integers(0, 16, 64)
    kwargs = {"alpha": alpha, "accumulator": Accumulator(latch_bits=None)}
    dts = score_deficits(stored, query, m=1, **kwargs)
    np.testing.assert_array_equal(
        dts, score_deficits(stored, query, m=1, metric="ubs+lbs-strict", **kwargs)
    )
    # Equation (2) as printed is one level looser: r = q - alpha passes.
    looser = score_deficits(stored, query, m=1, metric="ubs+lbs", **kwargs)
    np.testing.assert_array_equal(dts - looser, np.sum(stored == query - alpha, axis=1))
    # Groups of four: LBS passes whenever any cell is high enough, so it fails less.
    dts4 = score_deficits(stored, query, m=4, **kwargs)
    assert (score_deficits(stored, query, m=4, metric="ubs+lbs-strict", **kwargs) <= dts4).all()


def test_groups_do_not_straddle_strings() -> None:
    assert group_starts(20, m=3, cells=8).tolist() == [0, 3, 6, 8, 11, 14, 16, 19]
    stored = np.zeros((1, 20), dtype=int)
    stored[0, [7, 8]] = 15  # last cell of string 0 and first of string 1: two groups fail
    query = np.full(20, 5)
    assert (~ubs(stored, query, 2, m=3, cells=8)).nonzero()[1].tolist() == [2, 3]


def test_each_string_saturates_on_its_own() -> None:
    stored = np.zeros((1, 48), dtype=int)
    stored[0, :20] = 15  # 16 failures in string 0, 4 in string 1, none in string 2
    query = np.full(48, 1)
    accumulator = Accumulator(cells=16, latch_bits=3)
    kwargs = {"alpha": 2, "m": 1, "metric": "ubs"}
    assert score_deficits(stored, query, accumulator=accumulator, **kwargs).tolist() == [7 + 4]
    narrow = Accumulator(cells=16, latch_bits=3, merge_bits=3)
    assert score_deficits(stored, query, accumulator=narrow, **kwargs).tolist() == [7]


def test_separate_complement_cells_are_used() -> None:
    stored, query = np.full((1, 8), 7), np.full(8, 7)
    broken = np.full((1, 8), 8)
    broken[0, 3] = 12  # not the complement of 7: an error of that cell alone
    assert score_deficits(stored, query, alpha=2, m=4, complemented=broken).tolist() == [1]
    assert score_deficits(stored, query, alpha=2, m=4).tolist() == [0]


@settings(max_examples=20)
@given(draw=codes, m=st.integers(1, 8))
def test_stricter_tolerance_never_raises_the_score(draw: np.random.Generator, m: int) -> None:
    stored, query = draw.integers(0, 16, (10, 40)), draw.integers(0, 16, 40)
    scores = np.stack([dts_score(stored, query, alpha=alpha, m=m) for alpha in range(6)])
    assert (np.diff(scores, axis=0) >= 0).all()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"m": 0}, "m = 0, allowed: 1 .. 128"),
        ({"m": 129}, "m = 129, allowed: 1 .. 128"),
        ({"alpha": -1}, "alpha = -1, allowed: whole levels"),
        ({"alpha": 1.5}, "alpha = 1.5, allowed: whole levels"),
        ({"metric": "cosine"}, "'cosine': allowed are dts, ubs"),
    ],
)
def test_what_is_refused(kwargs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score_deficits(STORED, QUERY, **kwargs)


def test_accumulator_refuses_impossible_widths() -> None:
    with pytest.raises(InputError, match=r"latch_bits = 0, allowed: 1 \.\. 15"):
        Accumulator(latch_bits=0)
    with pytest.raises(InputError, match="cells = 0"):
        Accumulator(cells=0)


def test_every_metric_scores_a_perfect_match_best() -> None:
    query = np.random.default_rng(3).integers(0, 16, 96)
    for metric in METRICS:
        assert score_deficits(query[None], query, alpha=1, m=4, metric=metric).tolist() == [0]
