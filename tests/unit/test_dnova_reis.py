"""Rules of REIS and NSP that hold whatever the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.dnova.reis import CodedLists, int8_codes, nsp_search, reis_search


def coded(n: int = 200, dim: int = 20, nlist: int = 5, **options: Any) -> CodedLists:
    draw = np.random.default_rng(3)
    vectors = draw.standard_normal((n, dim)) + 1.0
    return CodedLists.build(vectors, vectors[:nlist], np.arange(n) % nlist, **options)


QUERIES = np.random.default_rng(4).standard_normal((6, 20)) + 1.0


def test_ties_rank_by_id() -> None:
    vectors = np.ones((40, 8))
    lists = CodedLists.build(vectors, vectors[:4], np.arange(40)[::-1] % 4)
    for found in (
        reis_search(lists, vectors[:1], nprobe=2, candidates=15, k1=5),
        nsp_search(lists, vectors[:1], nprobe=2, k2=15, k1=5),
    ):
        np.testing.assert_array_equal(found.lists, [[0, 1]])
        np.testing.assert_array_equal(found.ids[0], [2, 3, 6, 7, 10])
        np.testing.assert_array_equal(np.sort(found.candidates[0]), found.candidates[0])


def test_counts_and_padding() -> None:
    reis = reis_search(coded(), QUERIES, nprobe=2, candidates=70, k1=60)
    np.testing.assert_array_equal(reis.scanned, np.tile([5, 80, 70], (6, 1)))
    assert reis.candidates.shape == (6, 70)
    short = reis_search(coded(), QUERIES, nprobe=1, candidates=20_000, k1=50)
    np.testing.assert_array_equal(short.scanned, np.tile([5, 40, 40], (6, 1)))
    assert short.candidates.shape == (6, 40)
    assert (short.ids[:, 40:] == -1).all()
    assert np.isnan(short.scores[:, 40:]).all()
    nsp = nsp_search(coded(), QUERIES, nprobe=2, k2=70, k1=60)
    np.testing.assert_array_equal(nsp.scanned, np.tile([5, 80, 0], (6, 1)))
    np.testing.assert_array_equal(nsp.candidates[:, :60], nsp.ids)


def test_fewer_candidates_find_a_subset_of_better_ones() -> None:
    """Re-ranking is exact on what it is given, so more candidates never score worse."""
    last = np.full((6, 10), -np.inf)
    for candidates in (10, 30, 80):
        found = reis_search(coded(), QUERIES, nprobe=2, candidates=candidates, k1=10)
        assert (found.scores >= last).all()
        last = found.scores


def test_the_centre_decides_the_bits() -> None:
    """Vectors that are positive throughout have equal bits around zero, not around their mean."""
    vectors = np.random.default_rng(0).uniform(0.5, 1.5, (50, 16))
    member = np.zeros(50, int)
    zero = CodedLists.build(vectors, vectors[:1], member, centre="zero")
    mean = CodedLists.build(vectors, vectors[:1], member)
    assert len(np.unique(zero.bits)) == 1
    share = np.bitwise_count(mean.bits).sum() / vectors.size
    assert 0.4 < share < 0.6


def test_int8_codes_use_the_whole_range_and_round() -> None:
    codes = int8_codes(np.array([[1.0, -0.5], [0.25, 0.0]]))
    np.testing.assert_array_equal(codes, [[127, -64], [32, 0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nprobe": 6}, "nprobe = 6, allowed: 1 .. 5"),
        ({"nprobe": 0}, "nprobe = 0, allowed: 1 .. 5"),
        ({"k1": 101, "candidates": 100}, "k1 = 101 of 100 candidates"),
        ({"select_lists": "int4"}, "'int4', allowed: hamming, fp32"),
    ],
)
def test_wrong_searches_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reis_search(coded(), QUERIES, **{"nprobe": 2, **options})


def test_wrong_lists_are_one_line() -> None:
    draw = np.random.default_rng(3)
    vectors = draw.standard_normal((10, 4))
    with pytest.raises(InputError, match=r"centroids have shape \(2, 3\), allowed: \(nlist, 4\)"):
        CodedLists.build(vectors, np.ones((2, 3)), np.zeros(10, int))
    with pytest.raises(InputError, match=r"lists 0 .. 2 are assigned, allowed: 0 .. 1"):
        CodedLists.build(vectors, vectors[:2], np.arange(10) % 3)
    with pytest.raises(InputError, match=r"assignment has shape \(9,\), allowed: \(10,\)"):
        CodedLists.build(vectors, vectors[:2], np.zeros(9, int))
    with pytest.raises(InputError, match="centre 'median'"):
        CodedLists.build(vectors, vectors[:2], np.zeros(10, int), centre="median")
    with pytest.raises(InputError, match="queries have 7 dimensions, the lists have 20"):
        nsp_search(coded(), np.ones((1, 7)), nprobe=1)
