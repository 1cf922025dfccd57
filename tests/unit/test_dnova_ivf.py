"""The three-stage search equals the same search written out with the plain reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.errors import InputError
from nandcosim.systems.dnova.ivf import IvfIndex, exact_neighbours, normalised
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.recall import recall_at
from nandcosim.systems.dnova.score import Accumulator, full_score, score_deficits

NLIST = 12
NOISE = SensingNoise.from_margins(0.3, {1: 0.05, 2: 0.1, 4: 0.2})
READS = SensingNoise.from_margins(0.2, None, dict.fromkeys((1, 2, 4), 0.2))


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(7)
    return draw.standard_normal((25, 40))[draw.integers(0, 25, 900)] + draw.normal(
        0, 0.9, (900, 40)
    )


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    return vectors[::75] + np.random.default_rng(8).normal(0, 0.4, (12, 40))


@pytest.fixture(scope="module")
def index(vectors: np.ndarray) -> IvfIndex:
    return IvfIndex.build(vectors, NLIST, seed=3, value_range="sigma:6")


def plain_search(
    codes: Callable[[str, int], tuple[np.ndarray, np.ndarray]],
    members: list[np.ndarray],
    query: np.ndarray,
    m: tuple[int, int, int],
    metric: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Stages 1 to 3 with nprobe 5, K2 60, K1 20; ids, deficits, lists, vectors scanned."""

    def ranked(what: str, ids: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        original, complemented = codes(what, size)
        deficits = score_deficits(
            original[ids], query, complemented=complemented[ids], m=size, metric=metric
        )
        order = np.lexsort((ids, deficits))
        return ids[order], deficits[order]

    lists = ranked("centroids", np.arange(NLIST), m[0])[0][:5]
    candidates = np.concatenate([members[i] for i in lists])
    kept = ranked("vectors", candidates, m[1])[0][:60]
    ids, deficits = ranked("vectors", kept, m[2])
    return ids[:20], deficits[:20], lists, candidates.size


@pytest.mark.parametrize("metric", ["dts", "ubs+lbs"])
@pytest.mark.parametrize("m", [(1, 1, 1), (2, 4, 1)])
@pytest.mark.parametrize("noise", [None, NOISE, READS], ids=["perfect", "stored", "amplifiers"])
def test_search_equals_the_plain_three_stages(
    index: IvfIndex,
    vectors: np.ndarray,
    queries: np.ndarray,
    metric: str,
    m: tuple[int, int, int],
    noise: SensingNoise | None,
) -> None:
    encode = index.quantiser.encode
    perfect = {"centroids": encode(index.centroids), "vectors": encode(normalised(vectors))}

    def codes(what: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        if noise is None:
            return perfect[what], 15 - perfect[what]
        cells = index.stored_cells(noise, seed=11)[what]
        offsets = noise.read_sigma(size) * index.amplifiers(seed=11)[what]
        return cells.effective_levels(noise.trip_margin(size), offsets=offsets)

    members = [np.sort(part) for part in np.split(index.ids, index.offsets[1:-1])]
    result = index.search(queries, m=m, nprobe=5, k2=60, k1=20, metric=metric, noise=noise, seed=11)
    best = full_score(40, m[2], metric=metric)
    for i, query in enumerate(encode(normalised(queries))):
        ids, deficits, lists, scanned = plain_search(codes, members, query, m, metric)
        np.testing.assert_array_equal(result.lists[i], lists)
        np.testing.assert_array_equal(result.ids[i], ids)
        np.testing.assert_array_equal(result.scores[i], best - deficits)
        assert result.scanned[i].tolist() == [NLIST, scanned, min(60, scanned)]


def test_the_lists_partition_the_corpus(index: IvfIndex, vectors: np.ndarray) -> None:
    assert sorted(index.ids) == list(range(900))
    assert index.list_sizes.sum() == 900
    np.testing.assert_array_equal(index.vectors, normalised(vectors)[index.ids])
    member = np.repeat(np.arange(NLIST), index.list_sizes)
    np.testing.assert_array_equal(member, np.argmax(index.vectors @ index.centroids.T, axis=1))


def test_probing_everything_is_exhaustive(
    index: IvfIndex, vectors: np.ndarray, queries: np.ndarray
) -> None:
    result = index.search(queries, m=(1, 2, 2), nprobe=NLIST, k2=900, k1=50)
    codes = index.quantiser.encode(normalised(vectors))
    for i, query in enumerate(index.quantiser.encode(normalised(queries))):
        deficits = score_deficits(codes, query, m=2)
        np.testing.assert_array_equal(result.ids[i], np.lexsort((np.arange(900), deficits))[:50])


def test_it_finds_most_of_the_exact_neighbours(
    index: IvfIndex, vectors: np.ndarray, queries: np.ndarray
) -> None:
    exact = exact_neighbours(vectors, queries, 10)
    rule = {"nprobe": 6, "k2": 200, "k1": 100}
    fine = recall_at(index.search(queries, m=(1, 1, 1), **rule).ids, exact, 100)
    blurred = SensingNoise(1.5)
    noisy = recall_at(index.search(queries, m=(1, 1, 1), noise=blurred, **rule).ids, exact, 100)
    fp32 = recall_at(index.fp32().search(queries, nprobe=6, k1=100).ids, exact, 100)
    assert noisy < fine
    assert 0.9 < fine <= fp32 <= 1


@pytest.mark.parametrize("read_noise", ["static", "per_read"])
@pytest.mark.parametrize("noise", [None, NOISE, READS], ids=["perfect", "stored", "reads"])
def test_threads_and_batches_do_not_change_the_result(
    index: IvfIndex, queries: np.ndarray, noise: SensingNoise | None, read_noise: str
) -> None:
    rule = {"m": (1, 4, 2), "nprobe": 4, "k2": 80, "k1": 30, "noise": noise, "seed": 5}
    rule["read_noise"] = read_noise
    whole = index.search(queries, **rule)
    threaded = index.search(queries, threads=2, **rule)
    tail = index.search(queries[7:], query_ids=np.arange(7, 12), **rule)
    for name in ("ids", "scores", "scanned", "lists", "candidates"):
        np.testing.assert_array_equal(getattr(threaded, name), getattr(whole, name))
    np.testing.assert_array_equal(tail.ids, whole.ids[7:])
    np.testing.assert_array_equal(tail.scores, whole.scores[7:])


def test_the_seed_names_the_noise(index: IvfIndex, queries: np.ndarray) -> None:
    for noise in (NOISE, READS):
        rule = {"m": (1, 1, 1), "nprobe": 4, "k2": 80, "k1": 30, "noise": noise}
        first = index.search(queries, seed=1, **rule)
        other = index.search(queries, seed=2, **rule)
        again = index.search(queries, seed=1, **rule)
        np.testing.assert_array_equal(first.ids, again.ids)
        assert (first.scores != other.scores).any()


def test_asking_twice_reads_afresh_but_stores_once(index: IvfIndex, queries: np.ndarray) -> None:
    twice = np.repeat(queries[:1], 2, axis=0)
    rule = {"m": (1, 1, 1), "nprobe": NLIST, "k2": 80, "k1": 30}
    read = index.search(twice, noise=READS, read_noise="per_read", **rule)
    assert (read.scores[0] != read.scores[1]).any()
    for noise in (NOISE, READS):
        stored = index.search(twice, noise=noise, **rule)
        np.testing.assert_array_equal(stored.ids[0], stored.ids[1])
        np.testing.assert_array_equal(stored.scores[0], stored.scores[1])


def test_noise_of_nothing_is_no_noise(index: IvfIndex, queries: np.ndarray) -> None:
    rule = {"nprobe": 4, "k2": 80, "k1": 30}
    np.testing.assert_array_equal(
        index.search(queries, noise=SensingNoise(0.0), **rule).ids,
        index.search(queries, **rule).ids,
    )


def test_too_few_vectors_leave_padding(index: IvfIndex, queries: np.ndarray) -> None:
    result = index.search(queries[:1], nprobe=1, k2=900, k1=900)
    found = int(result.scanned[0, 1])
    assert 0 < found < 900
    assert (result.ids[0, :found] >= 0).all()
    assert (result.ids[0, found:] == -1).all()
    assert np.isnan(result.scores[0, found:]).all()


def test_building_twice_gives_the_same_index(vectors: np.ndarray, index: IvfIndex) -> None:
    again = IvfIndex.build(vectors, NLIST, seed=3, value_range="sigma:6")
    np.testing.assert_array_equal(again.ids, index.ids)
    np.testing.assert_array_equal(again.centroids, index.centroids)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"nprobe": 13}, r"nprobe = 13, allowed: 1 \.\. 12"),
        ({"k1": 90, "k2": 80}, "k1 = 90 and k2 = 80"),
        ({"m": (1, 2)}, "one group size for each of three stages"),
        ({"m": (1, 0, 1)}, "m = 0"),
        ({"metric": "l2"}, "'l2': allowed are"),
        ({"query_ids": [1]}, "query_ids has shape"),
        ({"read_noise": "loud"}, "read_noise = 'loud', allowed: static, per_read"),
        ({"threads": 0}, "threads = 0, allowed: 1 or more"),
        ({"noise": SensingNoise.from_margins(0.1, {1: 0.0})}, "m = 2: characterised only"),
    ],
)
def test_what_search_refuses(
    index: IvfIndex, queries: np.ndarray, kwargs: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        index.search(queries, **{"nprobe": 4, "k2": 80, "k1": 30, **kwargs})


def test_what_build_refuses(vectors: np.ndarray, index: IvfIndex) -> None:
    with pytest.raises(InputError, match=r"nlist = 901, allowed: 1 \.\. 900"):
        IvfIndex.build(vectors, 901)
    with pytest.raises(InputError, match="row 2 has length 0"):
        IvfIndex.build(np.where(np.arange(900)[:, None] == 2, 0, vectors), 4)
    unit = normalised(vectors)
    with pytest.raises(InputError, match=r"reaches -1 \.\. 0, allowed: \(900,\), 0 \.\. 11"):
        IvfIndex.from_lists(unit, index.centroids, np.zeros(900) - (unit[:, 0] > 0), None)
    with pytest.raises(InputError, match="queries have 39 dimensions, the index has 40"):
        index.search(vectors[:, :39])


ALL = ("ids", "scores", "scanned", "lists", "candidates")


@pytest.mark.parametrize("noise", [None, NOISE, READS], ids=["perfect", "stored", "amplifiers"])
@pytest.mark.parametrize("own_ids", [False, True])
def test_insertion_finds_what_an_index_built_with_the_vectors_finds(
    index: IvfIndex,
    vectors: np.ndarray,
    queries: np.ndarray,
    noise: SensingNoise | None,
    own_ids: bool,
) -> None:
    ids = np.random.default_rng(5).permutation(3000)[:900] if own_ids else np.arange(900)
    parts = np.split(np.arange(900), [500, 501, 780])
    member = np.argmax(normalised(vectors) @ index.centroids.T, axis=1)

    def built(rows: np.ndarray) -> IvfIndex:
        return IvfIndex.from_lists(
            vectors[rows], index.centroids, member[rows], index.quantiser, ids=ids[rows]
        )

    grown = built(parts[0])
    for rows in parts[1:]:
        grown = grown.insert(vectors[rows], ids[rows] if own_ids else None)
    assert len(grown.segments) == 4
    whole = built(np.arange(900))
    compacted = grown.compact()
    assert len(compacted.segments) == 1
    rule = {"m": (2, 4, 1), "nprobe": 5, "k2": 90, "k1": 40, "noise": noise, "seed": 3}
    for read_noise in ("static", "per_read"):
        expected = whole.search(queries, read_noise=read_noise, **rule)
        for other in (grown, compacted):
            found = other.search(queries, read_noise=read_noise, **rule)
            for name in ALL:
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for name in ("ids", "offsets", "vectors", "assignment"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(whole, name))
    reference = whole.fp32().search(queries, nprobe=5, k1=20)
    np.testing.assert_array_equal(grown.fp32().search(queries, nprobe=5, k1=20).ids, reference.ids)


def test_insertion_leaves_the_index_as_it_was(index: IvfIndex, queries: np.ndarray) -> None:
    before = index.search(queries, nprobe=3, k2=50, k1=20)
    grown = index.insert(queries)
    assert (index.n, grown.n) == (900, 912)
    np.testing.assert_array_equal(index.search(queries, nprobe=3, k2=50, k1=20).ids, before.ids)
    found = grown.search(queries, nprobe=NLIST, k2=912, k1=1, m=(1, 1, 1))
    assert (found.scores[:, 0] == full_score(40, 1)).all()  # each finds itself or an equal


def test_what_insertion_refuses(index: IvfIndex, queries: np.ndarray) -> None:
    with pytest.raises(InputError, match="insert: vectors have 39 dimensions, the index has 40"):
        index.insert(queries[:, :39])
    with pytest.raises(InputError, match="id 899 twice"):
        index.insert(queries[:1], [899])
    with pytest.raises(InputError, match=r"ids reach -1 \.\. -1, allowed: 0"):
        index.insert(queries[:1], [-1])
    with pytest.raises(InputError, match=r"ids have shape \(1,\), allowed: \(2,\)"):
        index.insert(queries[:2], [1000])


def test_without_float_vectors_only_the_reference_is_missing(
    vectors: np.ndarray, index: IvfIndex, queries: np.ndarray
) -> None:
    bare = IvfIndex.build(vectors, NLIST, seed=3, value_range="sigma:6", keep_vectors=False)
    rule = {"nprobe": 3, "k2": 50, "k1": 20}
    expected = index.search(queries, **rule)
    np.testing.assert_array_equal(bare.search(queries, **rule).ids, expected.ids)
    np.testing.assert_array_equal(bare.insert(queries).compact().list_sizes.sum(), 912)
    with pytest.raises(InputError, match="keeps no float vectors"):
        bare.fp32()


@pytest.mark.parametrize("merge_bits", [3, 6, 8])
def test_the_merged_deficit_saturates(
    index: IvfIndex, vectors: np.ndarray, queries: np.ndarray, merge_bits: int
) -> None:
    accumulator = Accumulator(cells=16, latch_bits=None, merge_bits=merge_bits)
    found = index.search(
        queries, m=(1, 1, 1), nprobe=NLIST, k2=900, k1=900, alpha=1, accumulator=accumulator
    )
    codes = index.quantiser.encode(normalised(vectors))
    for i, query in enumerate(index.encode(queries)):
        deficits = score_deficits(codes, query, alpha=1, accumulator=accumulator)
        np.testing.assert_array_equal(found.scores[i], full_score(40, 1, 16) - np.sort(deficits))
        assert deficits.max() <= 2**merge_bits - 1
