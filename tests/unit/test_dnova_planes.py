"""Bit planes, list by list, equal the plain reference bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from nandcosim.errors import InputError
from nandcosim.systems.dnova.planes import PlaneLists, planes_for
from nandcosim.systems.dnova.score import METRICS, Accumulator, score_deficits

accumulators = st.builds(
    Accumulator,
    cells=st.sampled_from([16, 31, 64, 128, 128, 256]),
    latch_bits=st.sampled_from([None, 1, 2, 3, 4, 5, 8]),
    merge_bits=st.sampled_from([None, 3, 6]),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple:
    """Codes or noisy levels in a few lists, some of them empty, a query and a rule."""
    n, dim = draw(st.integers(0, 300)), draw(st.integers(1, 400))
    levels = draw(st.sampled_from([2, 8, 16, 16, 33]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rule = {
        "alpha": draw(st.integers(0, 17)),
        "m": draw(st.sampled_from([1, 2, 2, 3, 4, 4, 5, 8, 16])),
        "metric": draw(st.sampled_from(sorted(METRICS))),
        "accumulator": draw(accumulators),
    }
    stored = random.integers(0, levels, (n, dim))
    query = random.integers(0, levels, dim)
    complemented = None
    if draw(st.booleans()):
        stored = stored + random.integers(-40, 41, (n, dim)) * (random.random((n, dim)) < 0.2)
        complemented = levels - 1 - stored + random.integers(-2, 3, (n, dim))
    offsets = np.concatenate([[0], np.sort(random.integers(0, n + 1, 4)), [n]])
    return stored, complemented, offsets, levels, query, rule


@settings(max_examples=200, deadline=None)
@given(problem=problems())
def test_planes_equal_the_reference(problem: tuple) -> None:
    stored, complemented, offsets, levels, query, rule = problem
    alpha = None if complemented is None else rule["alpha"]
    lists = PlaneLists.pack(stored, offsets, complemented=complemented, levels=levels, alpha=alpha)
    expected = (
        score_deficits(stored, query, levels=levels, complemented=complemented, **rule)
        if len(stored)
        else np.empty(0, int)
    )
    np.testing.assert_array_equal(lists.deficits(query, **rule), expected)
    chosen = np.array([3, 0])
    rows = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in chosen])
    np.testing.assert_array_equal(lists.deficits(query, chosen, **rule), expected[rows])
    if complemented is None:
        np.testing.assert_array_equal(lists.codes(), stored)


def test_half_a_byte_a_component() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (1000, 384))
    lists = PlaneLists.pack(codes, np.array([0, 3, 700, 1000]))
    assert 1000 * 192 <= lists.nbytes <= 1000 * 192 + 64
    assert planes_for(16) == (4, 0)
    planes, low = planes_for(16, alpha=2)
    assert low <= -3
    assert low + 2**planes - 1 >= 18


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"stored levels reach 0 \.\. 16, allowed: 0 \.\. 15"):
        PlaneLists.pack(np.array([[0, 16]]), [0, 1])
    with pytest.raises(InputError, match=r"complement levels have shape \(1, 3\)"):
        PlaneLists.pack(np.zeros((1, 2), int), [0, 1], complemented=np.zeros((1, 3)), alpha=1)
    lists = PlaneLists.pack(np.zeros((10, 8), int), [0, 10])
    with pytest.raises(InputError, match=r"query has shape \(7,\), the stored vectors need \(8,\)"):
        lists.deficits(np.zeros(7))
    with pytest.raises(InputError, match="narrow latch_bits"):
        lists.deficits(np.zeros(8), accumulator=Accumulator(cells=4, latch_bits=15))
