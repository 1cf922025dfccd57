"""Quantiser: ranges, clipping, complement, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.dnova.quantise import (
    DimensionSigma,
    GlobalQuantile,
    GlobalSigma,
    Quantiser,
    complement,
    fit_quantiser,
    parse_range,
)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.normal(0.1, 0.5, (400, 6)) * np.arange(1, 7)


@given(levels=st.integers(2, 64), seed=st.integers(0, 100))
def test_codes_lie_within_half_a_step_of_the_value(levels: int, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1, 1, (20, 5))
    quantiser = Quantiser(np.asarray(-1.0), np.asarray(1.0), levels)
    codes = quantiser.encode(values)
    assert codes.max() < levels
    error = np.abs(quantiser.decode(codes) - values)
    assert error.max() <= quantiser.step / 2 * (1 + 1e-12)


def test_values_outside_the_range_are_clipped() -> None:
    quantiser = Quantiser(np.asarray(-1.0), np.asarray(1.0), 16)
    np.testing.assert_array_equal(
        quantiser.encode([[-9.0, -1.0, 0.999, 1.0, 9.0]]), [[0, 0, 15, 15, 15]]
    )


def test_ranges(vectors: np.ndarray) -> None:
    low, high = GlobalSigma(2).limits(vectors)
    assert low.shape == ()
    np.testing.assert_allclose([low, high], vectors.mean() + vectors.std() * np.array([-2, 2]))
    low, high = DimensionSigma(3).limits(vectors)
    np.testing.assert_allclose(high - low, 6 * vectors.std(axis=0))
    low, high = GlobalQuantile(0.1).limits(vectors)
    assert np.mean(vectors < low) == pytest.approx(0.1, abs=1 / 400)
    assert np.mean(vectors > high) == pytest.approx(0.1, abs=1 / 400)


def test_a_constant_dimension_takes_the_global_width(vectors: np.ndarray) -> None:
    flat = vectors.copy()
    flat[:, 2] = 0.25
    low, high = DimensionSigma(3).limits(flat)
    assert high[2] - low[2] == pytest.approx(6 * flat.std())
    assert (low[2] + high[2]) / 2 == pytest.approx(0.25)


def test_the_range_comes_from_the_corpus_not_the_query(vectors: np.ndarray) -> None:
    quantiser = fit_quantiser(vectors, policy="sigma:3")
    alone = quantiser.encode(vectors[:1] * 10)
    together = quantiser.encode(np.concatenate([vectors * 10, vectors]))[:1]
    np.testing.assert_array_equal(alone, together)


@given(levels=st.integers(2, 64))
def test_complement_mirrors_the_codes(levels: int) -> None:
    codes = np.arange(levels, dtype=np.uint8)
    np.testing.assert_array_equal(complement(codes, levels), codes[::-1])
    np.testing.assert_array_equal(complement(complement(codes, levels), levels), codes)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("sigma:4.5", GlobalSigma(4.5)),
        ("dimension-sigma:3", DimensionSigma(3.0)),
        ("quantile:0.01", GlobalQuantile(0.01)),
    ],
)
def test_ranges_are_written_as_text(text: str, policy: object) -> None:
    assert parse_range(text) == policy


@pytest.mark.parametrize("text", ["sigma", "sigma:-1", "sigma:x", "quantile:0.5", "minmax:1"])
def test_a_wrong_range_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="allowed are 'sigma:K'") as caught:
        parse_range(text)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused(vectors: np.ndarray) -> None:
    with pytest.raises(InputError, match="not finite"):
        fit_quantiser(np.where(vectors > 1, np.nan, vectors))
    with pytest.raises(InputError, match=r"allowed: \(n, D\)"):
        fit_quantiser(vectors[0])
    with pytest.raises(InputError, match="levels = 1"):
        fit_quantiser(vectors, levels=1)
    with pytest.raises(InputError, match="range is empty"):
        fit_quantiser(np.ones((3, 3)))
    with pytest.raises(InputError, match="fitted for 6"):
        fit_quantiser(vectors, policy="dimension-sigma:3").encode(vectors[:, :5])
