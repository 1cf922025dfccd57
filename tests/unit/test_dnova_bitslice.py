"""The compiled kernels equal the plain reference bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from nandcosim.errors import InputError
from nandcosim.systems.dnova import kernels
from nandcosim.systems.dnova.bitslice import BitSliced, candidate_deficits
from nandcosim.systems.dnova.score import METRICS, Accumulator, score_deficits

accumulators = st.builds(
    Accumulator,
    cells=st.sampled_from([16, 31, 64, 128]),
    latch_bits=st.sampled_from([None, 1, 2, 3, 4, 5, 8]),
    merge_bits=st.sampled_from([None, 3, 6]),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple:
    """Stored levels (some out of the code range, as noise makes them), query and rule."""
    n, dim = draw(st.integers(1, 300)), draw(st.integers(1, 290))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0, 1, 4]))
    centre = random.integers(0, 16, dim)
    original = centre + random.integers(-spread, spread + 1, (n, dim))
    separate = draw(st.booleans())
    complemented = 15 - original + random.integers(-1, 2, (n, dim)) if separate else None
    rule = {
        "alpha": draw(st.integers(0, 17)),
        "m": draw(st.integers(1, 16)),
        "metric": draw(st.sampled_from(sorted(METRICS))),
        "accumulator": draw(accumulators),
    }
    return original, complemented, random.integers(0, 16, dim), rule


@settings(max_examples=200, deadline=None)
@given(problem=problems())
def test_bit_sliced_equals_reference(problem: tuple) -> None:
    original, complemented, query, rule = problem
    expected = score_deficits(original, query, complemented=complemented, **rule)
    sliced = BitSliced(original, complemented)
    np.testing.assert_array_equal(sliced.deficits(query, **rule), expected)
    gathered = candidate_deficits(original, query, complemented=complemented, **rule)
    np.testing.assert_array_equal(gathered, expected)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("dim", [384, 300])
def test_more_vectors_than_one_block(m: int, dim: int) -> None:
    draw = np.random.default_rng(m)
    n = 64 * kernels.TILE + 1000
    stored = draw.integers(3, 12, (n, dim), dtype=np.int16)
    query = draw.integers(3, 12, dim)
    got = BitSliced(stored).deficits(query, alpha=4, m=m)
    sample = np.concatenate([np.arange(40), draw.integers(0, n, 100), np.arange(n - 40, n)])
    expected = score_deficits(stored[sample], query, alpha=4, m=m)
    assert np.unique(expected).size > 3
    np.testing.assert_array_equal(got[sample], expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)).map(sorted), max_size=6))
def test_ranges_score_what_they_cover(ranges: list) -> None:
    draw = np.random.default_rng(1)
    stored, query = draw.integers(0, 16, (700, 40)), draw.integers(0, 16, 40)
    whole = score_deficits(stored, query, m=2)
    out = np.full(700, 9999, dtype=np.uint16)
    BitSliced(stored).deficits(query, m=2, ranges=ranges, out=out)
    covered = np.zeros(700, dtype=bool)
    for start, end in ranges:
        covered[start:end] = True
    np.testing.assert_array_equal(out[covered], whole[covered])
    untouched = out == 9999
    np.testing.assert_array_equal(out[~untouched], whole[~untouched])
    words = np.repeat(np.add.reduceat(covered, np.arange(0, 700, 64)) > 0, 64)[:700]
    assert untouched[~words].all()


@given(levels=st.integers(2, 64), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_other_level_counts(levels: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    stored, query = draw.integers(0, levels, (70, 33)), draw.integers(0, levels, 33)
    np.testing.assert_array_equal(
        BitSliced(stored, levels=levels).deficits(query, m=3),
        score_deficits(stored, query, m=3, levels=levels),
    )


@given(
    seed=st.integers(0, 1000),
    n=st.integers(1, 300),
    k=st.integers(0, 320),
    top=st.sampled_from([1, 3, 200]),
)
@settings(deadline=None)
def test_selection_breaks_ties_by_id(seed: int, n: int, k: int, top: int) -> None:
    draw = np.random.default_rng(seed)
    deficits, ids = draw.integers(0, top, n), draw.permutation(n) * 7
    expected = np.lexsort((ids, deficits))[:k]
    np.testing.assert_array_equal(kernels.select_smallest(deficits, ids, k), expected)


def test_what_is_refused() -> None:
    stored = np.zeros((10, 8), dtype=int)
    sliced = BitSliced(stored)
    with pytest.raises(InputError, match=r"query has shape \(7,\).*\(8,\)"):
        sliced.deficits(np.zeros(7))
    with pytest.raises(
        InputError, match=r"ranges of positions reach 0 \.\. 11, allowed: 0 \.\. 10"
    ):
        sliced.deficits(np.zeros(8), ranges=[(0, 11)])
    with pytest.raises(InputError, match="complement levels have shape"):
        BitSliced(stored, stored[:5])
    with pytest.raises(InputError, match="narrow latch_bits"):
        sliced.deficits(np.zeros(8), accumulator=Accumulator(cells=4, latch_bits=15))
