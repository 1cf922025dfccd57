"""Which samples the fast engine's audit takes: every place of a block alike, no pattern."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy import stats

from nandcosim.sweep import parse_spec
from nandcosim.sweep.audited import audited_sample
from nandcosim.sweep.spec import SweepSpec

sys.path.insert(0, str(Path(__file__).parents[1]))  # fast_circuits_for_tests

BLOCK, BLOCKS, POINTS = 20, 100, 40


def spec_of(seed: int, samples: int = BLOCK * BLOCKS) -> SweepSpec:
    return parse_spec(
        {
            "circuit": "fast_circuits_for_tests:FastRC",
            "samples": samples,
            "seed": seed,
            "engine": "fast",
            "audit": 1 / BLOCK,
        }
    )


def places(seed: int) -> np.ndarray:
    """Place within its block of every audited sample, shape (points, blocks)."""
    spec = spec_of(seed)
    return np.array(
        [[audited_sample(spec, p, b) - b * BLOCK for b in range(BLOCKS)] for p in range(POINTS)]
    )


def test_every_place_is_as_likely() -> None:
    counts = np.bincount(places(1).ravel(), minlength=BLOCK)
    assert counts.size == BLOCK
    assert stats.chisquare(counts).pvalue > 1e-3


def test_points_blocks_and_seeds_choose_independently() -> None:
    first = places(1)
    expected = first.size / BLOCK
    for other in (places(2), np.roll(first, 1, axis=0), np.roll(first, 1, axis=1)):
        same = int((first == other).sum())
        assert stats.binomtest(same, first.size, 1 / BLOCK).pvalue > 1e-3, (same, expected)


def test_a_short_last_block_is_audited_too() -> None:
    spec = spec_of(3, samples=2 * BLOCK + 3)
    chosen = {audited_sample(spec, point, 2) for point in range(50)}
    assert chosen == {40, 41, 42}
