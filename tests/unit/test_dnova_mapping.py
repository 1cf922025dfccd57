"""Placement and footprint equal the same thing written out vector by vector."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.dnova.mapping import (
    Layout,
    list_chain,
    place,
    touched,
    touched_centroids,
    touched_lists,
)


def plain_fit(order: list[int], sizes: list[int], capacity: int, packing: str) -> list[list[int]]:
    """Content of each sub-block, as the number of the list of each vector."""
    blocks: list[list[int]] = []
    for one in order:
        whole, rest = divmod(sizes[one], capacity)
        for piece in [capacity] * whole + [rest] * (rest > 0):
            for block in blocks if packing == "first-fit" else blocks[-1:]:
                if len(block) + piece <= capacity:
                    break
            else:
                block = []
                blocks.append(block)
            block += [one] * piece
    return blocks


def plain_chain(sizes: list[int], centroids: np.ndarray) -> list[int]:
    left = list(range(len(sizes)))
    chain = [max(left, key=lambda i: (sizes[i], -i))]
    left.remove(chain[0])
    while left:
        chain.append(
            min(left, key=lambda i: (np.sum((centroids[i] - centroids[chain[-1]]) ** 2), i))
        )
        left.remove(chain[-1])
    return chain


@st.composite
def indexes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Assignment of rows, whole-numbered centroids (exact distances), and a capacity."""
    nlist = draw(st.integers(1, 9))
    member = draw(st.lists(st.integers(0, nlist - 1), max_size=60))
    centroids = draw(
        st.lists(st.lists(st.integers(-4, 4), min_size=2, max_size=2), min_size=nlist,
                 max_size=nlist)
    )  # fmt: skip
    return (
        np.array(member, dtype=np.int64),
        np.array(centroids, dtype=np.float32),
        draw(st.integers(1, 12)),
    )


def laid_out(index: tuple[np.ndarray, np.ndarray, int], mapping: str, packing: str) -> Layout:
    member, centroids, capacity = index
    sizes = np.bincount(member, minlength=len(centroids))
    return place(sizes, centroids, member, capacity, mapping, packing=packing)


def contents(layout: Layout) -> list[Counter[int]]:
    return [
        Counter(layout.assignment[layout.subblock == block].tolist())
        for block in range(layout.subblocks)
    ]


@given(
    indexes(), st.sampled_from(["naive", "locality"]), st.sampled_from(["first-fit", "next-fit"])
)
def test_lists_go_where_the_rule_says(index, mapping, packing) -> None:
    member, centroids, capacity = index
    sizes = np.bincount(member, minlength=len(centroids)).tolist()
    by_size = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    order = by_size if mapping == "naive" else plain_chain(sizes, centroids)
    layout = laid_out(index, mapping, packing)
    expected = plain_fit(order, sizes, capacity, packing)
    assert contents(layout) == [Counter(block) for block in expected]


@given(indexes(), st.sampled_from(["naive", "locality"]))
def test_continuous_packing_leaves_no_gap_and_keeps_the_order(index, mapping) -> None:
    member, centroids, capacity = index
    sizes = np.bincount(member, minlength=len(centroids)).tolist()
    by_size = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    order = by_size if mapping == "naive" else plain_chain(sizes, centroids)
    row = [one for one in order for _ in range(sizes[one])]
    blocks = [row[start : start + capacity] for start in range(0, len(row), capacity)]
    assert contents(laid_out(index, mapping, "continuous")) == [Counter(b) for b in blocks]


@given(
    indexes(), st.sampled_from(["first-fit", "next-fit", "continuous"]),
    st.sampled_from(["arrival", "lists"]),
    st.integers(0, 2**32 - 1), st.integers(1, 5),
)  # fmt: skip
def test_touches_are_those_counted_one_by_one(index, packing, order, seed, units) -> None:
    draw = np.random.default_rng(seed)
    layout = laid_out(index, "locality", packing)
    layout = layout.append(draw.integers(0, layout.nlist, 17), order)
    n = layout.subblock.size
    probed = np.stack([draw.permutation(layout.nlist)[: 1 + layout.nlist // 2] for _ in range(4)])
    rows = np.stack([draw.permutation(n)[:10] for _ in range(4)])
    rows[1, 6:] = -1
    rows[2] = -1
    for touches, found in (
        (touched_lists(layout, probed), [np.flatnonzero(np.isin(layout.assignment, p))
                                         for p in probed]),
        (touched(layout, rows), [r[r >= 0] for r in rows]),
    ):  # fmt: skip
        assert touches.scored().tolist() == [len(f) for f in found]
        for i, mine in enumerate(found):
            expected = sorted(Counter(layout.subblock[mine].tolist()).items())
            part = slice(touches.offsets[i], touches.offsets[i + 1])
            got = zip(touches.subblocks[part].tolist(), touches.vectors[part].tolist(), strict=True)
            assert list(got) == expected
            assert touches.counts()[i] == len(expected)
            load = Counter(block % units for block, _ in expected)
            assert touches.busiest(units)[i] == max(load.values(), default=0)


@given(indexes(), st.sampled_from(["arrival", "lists"]), st.integers(0, 2**32 - 1))
def test_appending_moves_nothing_and_mixes_with_nothing_old(index, order, seed) -> None:
    layout = laid_out(index, "locality", "first-fit")
    new = np.random.default_rng(seed).integers(0, layout.nlist, 23)
    grown = layout.append(new, order)
    n = layout.subblock.size
    assert np.array_equal(grown.subblock[:n], layout.subblock)
    assert np.array_equal(grown.assignment[n:], new)
    later = grown.subblock[n:]
    assert later.min() == layout.subblocks
    assert np.bincount(grown.subblock).max() <= layout.capacity
    if order == "arrival":
        assert np.array_equal(later, layout.subblocks + np.arange(23) // layout.capacity)
    else:
        sizes = np.bincount(new, minlength=layout.nlist)
        alone = place(sizes, np.zeros((layout.nlist, 1)), new, layout.capacity, "naive")
        assert np.array_equal(later - layout.subblocks, alone.subblock)


@given(indexes(), st.sampled_from(["first-fit", "next-fit", "continuous"]), st.integers(1, 20))
def test_numbers_without_a_row_change_nothing(index, packing, gaps) -> None:
    member, centroids, capacity = index
    holes = np.sort(np.random.default_rng(gaps).integers(0, member.size + 1, gaps))
    sparse = np.insert(member, holes, -1)
    layout = laid_out(index, "locality", packing)
    sizes = np.bincount(member, minlength=len(centroids))
    spread = place(sizes, centroids, sparse, capacity, "locality", packing=packing)
    assert np.array_equal(spread.subblock[sparse >= 0], layout.subblock)
    assert (spread.subblock[sparse < 0] == -1).all()
    assert spread.fill == layout.fill
    assert np.array_equal(spread.segments.toarray(), layout.segments.toarray())
    with pytest.raises(InputError, match="placed"):
        touched(spread, [[int(np.flatnonzero(sparse < 0)[0])]])


def test_the_chain_starts_at_the_largest_list_and_walks_to_the_nearest() -> None:
    centroids = np.random.default_rng(2).standard_normal((200, 6)).astype(np.float32)
    sizes = np.random.default_rng(3).integers(1, 50, 200)
    chain = list_chain(sizes, centroids)
    assert chain.tolist() == plain_chain(sizes.tolist(), centroids.astype(float))


def test_locality_gathers_neighbouring_lists() -> None:
    """Lists on a line, numbered at random: a query that probes 8 neighbours of 256."""
    draw = np.random.default_rng(4)
    where = draw.permutation(256)
    member = np.repeat(np.arange(256), draw.integers(20, 60, 256))
    sizes = np.bincount(member)
    neighbours = np.argsort(where)[np.arange(249)[:, None] + np.arange(8)]
    counts = {
        mapping: touched_lists(
            place(sizes, where[:, None], member, 400, mapping), neighbours
        ).counts()
        for mapping in ("naive", "locality")
    }
    assert np.median(counts["locality"]) < np.median(counts["naive"]) / 2


def test_stage_one_scores_all_centroids_in_sub_blocks_of_their_own() -> None:
    touches = touched_centroids(3, 40_000, 16_384)
    assert touches.counts().tolist() == [3, 3, 3]
    assert touches.scored().tolist() == [40_000] * 3
    assert touches.subblocks.tolist() == [0, 1, 2] * 3
    assert touched_centroids(2, 1024, 16_384).counts().tolist() == [1, 1]
    assert touched_centroids(2, 32, 16).vectors.tolist() == [16, 16] * 2


MEMBER = np.array([0, 0, 1, 2])
GOOD = {
    "list_sizes": [2, 1, 1],
    "centroids": np.eye(3),
    "assignment": MEMBER,
    "capacity": 2,
    "mapping": "naive",
}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"list_sizes": [2, 2, 1]}, "list_sizes"),
        ({"list_sizes": []}, "list_sizes"),
        ({"centroids": np.eye(2)}, "centroids"),
        ({"assignment": [0, 0, 1, 3]}, "0 .. 3"),
        ({"assignment": [0, 0, 1, -2]}, "-2 .. 1"),
        ({"assignment": [[0]]}, "assignment"),
        ({"capacity": 0}, "capacity"),
        ({"mapping": "random"}, "naive, locality"),
        ({"packing": "best-fit"}, "first-fit, next-fit, continuous"),
    ],
)
def test_wrong_input_is_one_line(change, names) -> None:
    with pytest.raises(InputError, match=names) as error:
        place(**{**GOOD, **change})
    assert "\n" not in str(error.value)


def test_wrong_queries_are_refused() -> None:
    layout = place(**GOOD)
    for call in (
        lambda: touched(layout, [[0, 4]]),
        lambda: touched(layout, [0, 1]),
        lambda: touched_lists(layout, [[-2]]),
        lambda: touched_lists(layout, [[3]]),
        lambda: touched(layout, [[0]]).busiest(0),
        lambda: layout.append([0], "later"),
        lambda: layout.append([5]),
        lambda: layout.append([-1]),
    ):
        with pytest.raises(InputError, match="allowed"):
            call()
