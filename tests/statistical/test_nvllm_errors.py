"""Counted segments and bits against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, geom

from nandcosim.intervals import wilson
from nandcosim.systems.nvllm.ecc import (
    make_code,
    segment_error_rate,
    simulate_errors,
    uncorrectable_rate,
)
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.pages import layout, read, store
from nandcosim.systems.nvllm.rber import flipped_bits, page_error_rates
from nandcosim.tables import load_tables

pytest.importorskip("bchlib")

CONFIDENCE = 0.9999


def within(rate: float, count: int, n: int) -> bool:
    low, high = wilson(count, n, confidence=CONFIDENCE)
    return bool(low <= rate <= high)


@pytest.mark.parametrize("rber", [1e-4, 1e-3, 5e-3])
@pytest.mark.parametrize("name", ["bch", "hamming", "none"])
def test_segments_are_as_often_faulty_and_uncorrectable_as_the_binomial_has_it(name, rber) -> None:
    code, n = make_code(name), 300_000
    found = simulate_errors(code, rber, n, seed=11)
    assert within(float(segment_error_rate(rber, code.n)), n - found.clean, n)
    assert within(float(uncorrectable_rate(rber, code.n, code.t)), found.uncorrectable, n)


@pytest.mark.parametrize(("name", "spheres"), [("bch", 4), ("hamming", 1)])
def test_hopeless_words_are_miscorrected_as_often_as_spheres_fill_the_space(name, spheres) -> None:
    """A word far from its codeword lies within t of another with the spheres' share."""
    code = make_code(name)
    found = simulate_errors(code, 0.3, 50_000, seed=12)
    assert found.clean + found.corrected == 0
    share = sum(math.comb(code.n, k) for k in range(1, spheres + 1)) / 2**code.parity_bits
    assert within(share, found.miscorrected, found.segments)
    assert within(2.0**-code.parity_bits, found.undetected, found.segments)


def test_gaps_between_flipped_bits_are_geometric() -> None:
    rate = 0.02
    places = flipped_bits(5_000_000, rate, np.random.default_rng(13))
    assert within(rate, len(places), 5_000_000)
    edges = geom.ppf(np.arange(1, 10) / 10, rate)
    counts = np.bincount(np.searchsorted(edges, np.diff(places)), minlength=10)
    shares = np.diff(np.concatenate([[0.0], geom.cdf(edges, rate), [1.0]]))
    assert chisquare(counts, shares * counts.sum()).pvalue > 1e-4


def test_bits_of_every_page_are_wrong_at_its_rate() -> None:
    """On the balanced QLC code the upper page has three read levels, the others four."""
    config = HardwareFields(
        rber_source="table", cell_bits=4, sigma=0.25, clusters=2, planes_per_cluster=2,
        page_bytes=2048,
    )  # fmt: skip
    rates = page_error_rates(config, load_tables())
    stored = store(np.zeros(2_000_000, np.uint8), layout(config))
    raw = read(stored, rates, seed=14)
    wrong = np.bitwise_count(raw.data).sum(axis=1) + np.bitwise_count(raw.parity).sum(axis=1)
    types = stored.layout.place(np.arange(len(wrong))).page_type
    for number, name in enumerate(stored.layout.page_types):
        here = wrong[types == number]
        assert within(float(rates.sel(page=name)), int(here.sum()), here.size * 292)
