"""NASiC: losses and perplexity of experts in the array, on small random models."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.systems.nasic.accuracy import (
    cosine_loss,
    disturbed,
    disturbed_model,
    exact_multiplier,
    multiplier,
    perplexity,
)
from nandcosim.systems.nasic.array import Mode, ReadoutFields
from nandcosim.systems.nasic.currents import ideal, load
from nandcosim.systems.nasic.experts import RoutingSample, split_ffn
from nandcosim.systems.nvllm.probes import Probe
from nandcosim.systems.nvllm.transformer import Floats
from nandcosim.tables import load_tables
from tests.unit.test_nasic_experts import SMALL, WINDOWS, moe_model

#: Binary cells, a converter that resolves single strings, no spread: no error.
EXACT = {"technique": "base", "sigma": 0.0, "input_rows": 16, "adc_range": "full"}


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def sample(tokens: int = 6) -> RoutingSample:
    layers = tuple(
        split_ffn(normal(12, 24, seed=i), normal(12, 24, seed=i + 9), normal(24, 12, seed=i), 3)
        for i in range(2)
    )
    trace = np.tile([0, 2], (tokens, 2, 1))
    return RoutingSample("random", layers, normal(2, tokens, 24), trace)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_exact_multiplier_is_the_product_of_whole_numbers(bits: int) -> None:
    weights, x = normal(5, 40), normal(7, 40, seed=1)
    row = np.abs(weights).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    token = np.abs(x).max(axis=1, keepdims=True) / 127
    expected = (np.rint(x / token) @ np.rint(weights / row).T) * token * row.T
    found = exact_multiplier(ReadoutFields(weight_bits=bits))(weights)(x)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["cells", "moments"])
def test_both_modes_are_exact_without_errors(mode: Mode) -> None:
    config = ReadoutFields(sigma=0.0, adc_bits=16, adc_range="full", input_rows=16)
    weights, x = normal(5, 40), normal(7, 40, seed=1)
    found = multiplier(config, ideal(), mode=mode)(weights)(x)
    assert np.allclose(found, exact_multiplier(config)(weights)(x), rtol=1e-4, atol=1e-4)


def test_matrices_have_errors_of_their_own_and_a_seed_has_the_same_ones() -> None:
    config = ReadoutFields(input_rows=16)
    currents = load(load_tables(), config)
    weights, x = normal(5, 40), normal(7, 40, seed=1)
    once, again = (multiplier(config, currents, seed=3) for _ in range(2))
    first, second = once(weights)(x), once(weights)(x)
    assert np.array_equal(first, again(weights)(x))
    assert not np.allclose(first, second)


def test_losses_have_the_axes_asked_for_and_grow_with_sigma() -> None:
    config = ReadoutFields(sigma=(0.0, 0.1, 0.2), adc_bits=(6, 10), input_rows=8)
    found = cosine_loss(sample(), config, load_tables(), seeds=[0, 1], mode="cells")["cosine_loss"]
    assert found.sizes == {"sigma": 3, "adc_bits": 2, "seed": 2, "token": 6}
    assert (found.mean(("seed", "token")).diff("sigma") > 0).all()


def test_binary_cells_without_spread_lose_nothing() -> None:
    found = cosine_loss(sample(), ReadoutFields(**EXACT), load_tables(), seeds=[0], mode="cells")
    assert abs(found["cosine_loss"]).max() < 1e-5


def test_progress_counts_the_points() -> None:
    seen: list[tuple[int, int]] = []
    config = ReadoutFields(sigma=(0.0, 0.1))
    cosine_loss(sample(2), config, load_tables(), [0], "cells", lambda *at: seen.append(at))
    assert seen == [(1, 2), (2, 2)]


def test_no_seeds_are_refused() -> None:
    with pytest.raises(InputError, match="seeds: found none"):
        cosine_loss(sample(), ReadoutFields(), load_tables(), seeds=[])


def test_perplexity_of_an_exact_array_is_the_exact_one() -> None:
    model = moe_model(1, count=1)
    config = ReadoutFields(**{**EXACT, "sigma": (0.0, 0.5)})
    found = perplexity(model, WINDOWS, config, load_tables(), seeds=[0])
    assert found["perplexity"].sizes == {"sigma": 2, "seed": 1}
    exact, noisy = found["perplexity"].values[:, 0]
    assert exact == pytest.approx(float(found["exact_perplexity"][0]), rel=1e-4)
    assert noisy != pytest.approx(exact, rel=1e-3)


def test_disturbing_makes_the_cosine_loss_asked_for() -> None:
    model, x = moe_model(4), normal(3000, SMALL.hidden)
    exact = model.ffns()[0](x)
    found = disturbed_model(model, 0.1, seed=0, spared=2, length=5).ffns[0](x)
    assert np.array_equal(found.reshape(-1, 5, 8)[:, :2], exact.reshape(-1, 5, 8)[:, :2])
    error, size = ((y.reshape(-1, 5, 8)[:, 2:] ** 2).sum(axis=-1) for y in (found - exact, exact))
    # without error along the sum, 1 / sqrt(1 + e^2)
    assert np.mean(error / size) == pytest.approx(1 / 0.9**2 - 1, rel=0.05)


def test_disturbing_nothing_changes_nothing() -> None:
    model = moe_model(4)
    assert np.allclose(disturbed(model, WINDOWS, [0.0], seeds=[0]), 0, atol=1e-6)
    found = disturbed(model, WINDOWS, [0.5], seeds=range(3), spared=WINDOWS.shape[1])
    assert found.sizes == {"cosine_loss": 1, "seed": 3}
    assert np.allclose(found, 0, atol=1e-6)
    with pytest.raises(InputError, match=r"cosine loss: found .* below 1"):
        disturbed(model, WINDOWS, [1.0])


def test_undisturbed_is_the_probes_score() -> None:
    model = moe_model(4)
    rest = Probe(WINDOWS).score(model.rest).perplexity
    assert Probe(WINDOWS).score(model.transformer()).perplexity == pytest.approx(rest, rel=1e-4)
