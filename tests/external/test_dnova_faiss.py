"""FP32-IVF against FAISS's own counters and against an IVF search in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.systems.dnova.ivf import IvfIndex, exact_neighbours, normalised

faiss = pytest.importorskip("faiss")
pytest.importorskip("numba")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.standard_normal((30, 48))[draw.integers(0, 30, 2000)] + draw.standard_normal(
        (2000, 48)
    )


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((25, 48))


@pytest.fixture(scope="module")
def index(vectors: np.ndarray) -> IvfIndex:
    return IvfIndex.build(vectors, 32, seed=4)


@pytest.mark.parametrize("nprobe", [1, 4, 32])
def test_fp32_ivf_is_faiss_and_is_what_it_says(
    index: IvfIndex, vectors: np.ndarray, queries: np.ndarray, nprobe: int
) -> None:
    reference = index.fp32()
    faiss.cvar.indexIVF_stats.reset()
    result = reference.search(queries, nprobe=nprobe, k1=20)
    assert result.scanned[:, 1].sum() == faiss.cvar.indexIVF_stats.ndis

    unit, rows = normalised(vectors), normalised(queries)
    for i, query in enumerate(rows):
        lists = np.argsort(-(index.centroids @ query), kind="stable")[:nprobe]
        np.testing.assert_array_equal(result.lists[i], lists)
        members = np.concatenate(
            [index.ids[index.offsets[j] : index.offsets[j + 1]] for j in lists]
        )
        assert result.scanned[i, 1] == members.size
        similarity = unit[members] @ query
        order = np.argsort(-similarity, kind="stable")[:20]
        found = min(20, members.size)
        np.testing.assert_array_equal(result.ids[i, :found], members[order])
        np.testing.assert_allclose(result.scores[i, :found], similarity[order], atol=1e-6)


@pytest.mark.parametrize("nprobe", [1, 8])
def test_faiss_scans_as_many_vectors_in_the_lists_that_dts_probes(
    index: IvfIndex, queries: np.ndarray, nprobe: int
) -> None:
    dts = index.search(queries, m=(1, 1, 1), nprobe=nprobe, k2=100, k1=10)
    reference = index.fp32().faiss_index
    reference.nprobe = nprobe
    faiss.cvar.indexIVF_stats.reset()
    similarity = np.zeros(dts.lists.shape, dtype=np.float32)
    reference.search_preassigned(normalised(queries), 10, dts.lists, similarity)
    assert dts.scanned[:, 1].sum() == faiss.cvar.indexIVF_stats.ndis


def test_exact_neighbours_is_brute_force(vectors: np.ndarray, queries: np.ndarray) -> None:
    similarity = normalised(queries) @ normalised(vectors).T
    np.testing.assert_array_equal(
        exact_neighbours(vectors, queries, 15), np.argsort(-similarity, axis=1)[:, :15]
    )
