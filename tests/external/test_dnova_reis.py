"""REIS and NSP against FAISS's binary index and against float64 arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.systems.dnova.ivf import IvfIndex, normalised
from nandcosim.systems.dnova.reis import (
    CodedLists,
    binary_codes,
    hamming_distances,
    int8_codes,
    int8_products,
    nsp_search,
    reis_search,
)

faiss = pytest.importorskip("faiss")
pytest.importorskip("numba")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    groups = draw.standard_normal((30, 72))[draw.integers(0, 30, 3000)]
    return groups + draw.standard_normal((3000, 72)) + 0.5


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    draw = np.random.default_rng(1)
    return vectors[::150] + 0.5 * draw.standard_normal((20, 72))


@pytest.fixture(scope="module")
def lists(vectors: np.ndarray) -> CodedLists:
    return CodedLists.of(IvfIndex.build(vectors, 16, seed=4), vectors)


@pytest.mark.parametrize("dim", [8, 64, 72, 384])
def test_hamming_distances_are_those_of_faiss(dim: int) -> None:
    draw = np.random.default_rng(dim)
    stored, asked = draw.standard_normal((500, dim)), draw.standard_normal((7, dim))
    centre = stored.mean(axis=0)
    index = faiss.IndexBinaryFlat(dim)
    index.add(np.packbits(stored > centre, axis=1))
    distances, ids = index.search(np.packbits(asked > centre, axis=1), 500)
    codes = binary_codes(stored, centre)
    for i, query in enumerate(binary_codes(asked, centre)):
        np.testing.assert_array_equal(hamming_distances(codes, query)[ids[i]], distances[i])


def test_binary_coarse_search_keeps_what_faiss_keeps(
    lists: CodedLists, vectors: np.ndarray, queries: np.ndarray
) -> None:
    """Probing every list, REIS' candidates are the nearest of a flat binary index."""
    unit = normalised(vectors)
    centre = unit.mean(axis=0, dtype=np.float64).astype(np.float32)
    index = faiss.IndexBinaryFlat(72)
    index.add(np.packbits(unit > centre, axis=1))
    distances, _ = index.search(np.packbits(normalised(queries) > centre, axis=1), 200)
    result = reis_search(lists, queries, nprobe=16, candidates=200, k1=10)
    codes = binary_codes(unit, centre)
    for i, query in enumerate(binary_codes(normalised(queries), centre)):
        kept = hamming_distances(codes, query)[result.candidates[i]]
        np.testing.assert_array_equal(kept, distances[i])


def test_int8_products_are_exact(vectors: np.ndarray) -> None:
    draw = np.random.default_rng(5)
    codes = draw.integers(-127, 128, (400, 768), dtype=np.int8)
    codes[0] = 127  # the largest product of all
    for query in (codes[0], codes[1]):
        exact = codes.astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_array_equal(int8_products(codes, query), exact)


@pytest.mark.parametrize("nprobe", [1, 5, 16])
def test_reis_that_keeps_everything_is_exact_int8_search(
    lists: CodedLists, vectors: np.ndarray, queries: np.ndarray, nprobe: int
) -> None:
    found = reis_search(lists, queries, nprobe=nprobe, candidates=3000, k1=50)
    unit = normalised(vectors)
    codes = int8_codes(unit).astype(np.float64)
    members = [lists.ids[lists.offsets[i] : lists.offsets[i + 1]] for i in range(16)]
    for i, row in enumerate(normalised(queries)):
        rows = np.concatenate([members[j] for j in found.lists[i]])
        products = codes[rows] @ int8_codes(row).astype(np.float64)
        order = np.lexsort((rows, -products))[:50]
        np.testing.assert_array_equal(found.ids[i, : order.size], rows[order])
        np.testing.assert_array_equal(found.scores[i, : order.size], products[order])
        assert (found.ids[i, order.size :] == -1).all()


def test_nsp_over_all_lists_is_exact_int8_search(
    lists: CodedLists, vectors: np.ndarray, queries: np.ndarray
) -> None:
    found = nsp_search(lists, queries, nprobe=16, k2=100, k1=100)
    codes = int8_codes(normalised(vectors)).astype(np.float64)
    for i, row in enumerate(normalised(queries)):
        products = codes @ int8_codes(row).astype(np.float64)
        order = np.lexsort((np.arange(3000), -products))[:100]
        np.testing.assert_array_equal(found.ids[i], order)


def test_fp32_list_selection_is_that_of_fp32_ivf(vectors: np.ndarray, queries: np.ndarray) -> None:
    index = IvfIndex.build(vectors, 16, seed=4)
    ours = reis_search(
        CodedLists.of(index, vectors), queries, nprobe=4, candidates=50, k1=10, select_lists="fp32"
    )
    reference = index.fp32().search(queries, nprobe=4, k1=10)
    np.testing.assert_array_equal(ours.lists, reference.lists)
    np.testing.assert_array_equal(ours.scanned[:, :2], reference.scanned[:, :2])
