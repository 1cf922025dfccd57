"""String deficits by stage equal those written out with the plain reference."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.errors import InputError
from nandcosim.systems.dnova.deficits import deficit_counts, deficit_quantiles
from nandcosim.systems.dnova.ivf import IvfIndex, normalised
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.quantise import complement
from nandcosim.systems.dnova.score import Accumulator, string_deficits, ubs

RULE = {"m": (1, 2, 1), "nprobe": 3, "k2": 60, "k1": 25}
NOISE = SensingNoise.from_margins(0.2, None, {1: 0.2, 2: 0.3})


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.standard_normal((9, 150))[draw.integers(0, 9, 500)] + draw.normal(
        0, 0.8, (500, 150)
    )


@pytest.fixture(scope="module")
def index(vectors: np.ndarray) -> IvfIndex:
    first = IvfIndex.build(vectors[:400], 8, seed=1, value_range="sigma:4")
    return first.insert(vectors[400:])


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    return vectors[::60] + np.random.default_rng(3).normal(0, 0.3, (9, 150))


@pytest.mark.parametrize("noise", [None, NOISE], ids=["perfect", "noise"])
@pytest.mark.parametrize("latch_bits", [4, None])
def test_counts_are_those_of_the_plain_reference(
    index: IvfIndex,
    vectors: np.ndarray,
    queries: np.ndarray,
    noise: SensingNoise | None,
    latch_bits: int | None,
) -> None:
    accumulator = Accumulator(cells=64, latch_bits=latch_bits)
    rule = {**RULE, "accumulator": accumulator, "noise": noise, "seed": 4}
    counted = deficit_counts(index, queries, **rule)
    found = index.search(queries, **rule)
    expected = np.zeros((2, *counted.best.shape), dtype=np.int64)

    def add(row: int, stage: int, what: str, ids: np.ndarray, query: np.ndarray) -> None:
        size = RULE["m"][stage]
        rows = {"centroids": index.centroids, "vectors": normalised(vectors)}[what]
        first = index.quantiser.encode(rows).astype(int)
        second = complement(first)
        if noise is not None:
            offsets = noise.read_sigma(size) * index.amplifiers(4, cells=64)[what]
            first, second = index.stored_cells(noise, 4)[what].effective_levels(
                0.0, offsets=offsets, cells=64
            )
        for cells, asked in ((first, query), (second, complement(query))):
            passes = ubs(cells[ids], asked, 2, size, 64)
            each = string_deficits(passes, 150, size, accumulator)
            expected[row, stage] += np.bincount(each.ravel(), minlength=expected.shape[2])

    for i, query in enumerate(index.encode(queries)):
        add(0, 0, "centroids", np.arange(8), query)
        add(1, 0, "centroids", found.lists[i], query)
        add(0, 1, "vectors", np.flatnonzero(np.isin(index.assignment, found.lists[i])), query)
        kept = found.candidates[i][found.candidates[i] >= 0]
        add(1, 1, "vectors", kept, query)
        add(0, 2, "vectors", kept, query)
        add(1, 2, "vectors", found.ids[i][found.ids[i] >= 0], query)
    np.testing.assert_array_equal(counted.scored, expected[0])
    np.testing.assert_array_equal(counted.best, expected[1])


def test_exact_and_latched_agree_where_nothing_saturates(
    index: IvfIndex, queries: np.ndarray
) -> None:
    wide, narrow = (
        deficit_quantiles(
            index, queries, accumulator=Accumulator(latch_bits=bits), alpha=alpha, **RULE,
            quantiles=(0.0, 0.5, 0.9, 1.0),
        )
        for bits, alpha in ((None, 8), (4, 8))
    )  # fmt: skip
    assert 0 < wide.max() < 15
    np.testing.assert_array_equal(narrow, wide)
    tight = {"alpha": 1, "quantiles": (0.5, 1.0), **RULE}
    exact = deficit_quantiles(index, queries, accumulator=Accumulator(latch_bits=None), **tight)
    latched = deficit_quantiles(index, queries, which="scored", **tight)
    assert exact.max() > 15
    assert latched.max() == 15


def test_quantiles_are_those_of_the_sample(index: IvfIndex, queries: np.ndarray) -> None:
    counts = deficit_counts(index, queries, **RULE).best
    shares = np.array([0.1, 0.5, 0.9, 1.0])
    got = deficit_quantiles(index, queries, quantiles=shares, **RULE)
    for stage in range(3):
        sample = np.repeat(np.arange(counts.shape[1]), counts[stage])
        expected = np.quantile(sample, shares, method="inverted_cdf")
        np.testing.assert_array_equal(got[stage], expected)


def test_what_is_refused(index: IvfIndex, queries: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"quantiles reach 0\.5 \.\. 2, allowed: 0 \.\. 1"):
        deficit_quantiles(index, queries, quantiles=(0.5, 2), **RULE)
    with pytest.raises(InputError, match="which = 'worst', allowed: best, scored"):
        deficit_quantiles(index, queries, which="worst", **RULE)
