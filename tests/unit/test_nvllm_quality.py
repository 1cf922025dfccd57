"""Bit errors in stored weights, on random models too small to say anything."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import int8, probes
from nandcosim.systems.nvllm.erdpe import dot
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.int8 import Int8Matrix, exact_product, quantise_rows, quantise_tokens
from nandcosim.systems.nvllm.pages import layout, read, store
from nandcosim.systems.nvllm.probes import Probe, Questions, Score, windows, word_questions
from nandcosim.systems.nvllm.quality import quality, summary, weights_used
from nandcosim.systems.nvllm.quality_study import main, table_lines
from nandcosim.systems.nvllm.smollm import Checkpoint, Tokenizer
from nandcosim.systems.nvllm.stored_model import quantised
from nandcosim.systems.nvllm.transformer import (
    HEAD,
    Architecture,
    Transformer,
    dense,
    matrix_shapes,
)

bch = pytest.mark.skipif(find_spec("bchlib") is None, reason="bchlib is not installed")
SMALL = Architecture(
    layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=16, vocab=160,
    rope_base=1e4, epsilon=1e-5,
)  # fmt: skip


def checkpoint(architecture: Architecture = SMALL, seed: int = 0) -> Checkpoint:
    draw = np.random.default_rng(seed)
    weights = {
        name: (0.3 * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in matrix_shapes(architecture).items()
    }
    names = [f"blk.{i}.{kind}_norm" for i in range(architecture.layers) for kind in ("attn", "ffn")]
    norms = {
        name: draw.uniform(0.5, 1.5, architecture.hidden).astype(np.float32)
        for name in (*names, "output_norm")
    }
    tokenizer = Tokenizer(lambda text: [ord(c) % 160 for c in text], lambda _: "")
    return Checkpoint("random", architecture, norms, weights.__getitem__, tokenizer)


# ---------------------------------------------------------------- the transformer


def plain_states(model: Checkpoint, tokens: list[int]) -> list[np.ndarray]:
    """The forward pass, token by token with a KV cache, in loops and float64."""
    a = model.architecture

    def matrix(name: str) -> np.ndarray:
        return model.matrix(name).astype(float)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x) + a.epsilon) * model.norms[name]

    def rotate(x: np.ndarray, position: int) -> np.ndarray:
        out = x.copy()
        for pair in range(a.head_dim // 2):
            angle = position * a.rope_base ** (-2 * pair / a.head_dim)
            turned = (x[2 * pair] + 1j * x[2 * pair + 1]) * np.exp(1j * angle)
            out[2 * pair], out[2 * pair + 1] = turned.real, turned.imag
        return out

    keys: list[list[np.ndarray]] = [[] for _ in range(a.layers)]
    values: list[list[np.ndarray]] = [[] for _ in range(a.layers)]
    states = []
    for position, token in enumerate(tokens):
        x = matrix(HEAD)[token]
        for layer in range(a.layers):
            name = f"blk.{layer}."
            h = norm(name + "attn_norm", x)
            query = (matrix(name + "attn_q") @ h).reshape(a.heads, a.head_dim)
            key = (matrix(name + "attn_k") @ h).reshape(a.kv_heads, a.head_dim)
            keys[layer].append(np.stack([rotate(k, position) for k in key]))
            values[layer].append((matrix(name + "attn_v") @ h).reshape(a.kv_heads, a.head_dim))
            heads = []
            for head in range(a.heads):
                shared = head // (a.heads // a.kv_heads)
                turned = rotate(query[head], position)
                scores = np.array([k[shared] @ turned for k in keys[layer]]) / a.head_dim**0.5
                shares = np.exp(scores) / np.exp(scores).sum()
                heads.append(sum(s * v[shared] for s, v in zip(shares, values[layer], strict=True)))
            x = x + matrix(name + "attn_output") @ np.concatenate(heads)
            h = norm(name + "ffn_norm", x)
            gate = matrix(name + "ffn_gate") @ h
            up = matrix(name + "ffn_up") @ h
            x = x + matrix(name + "ffn_down") @ (gate / (1 + np.exp(-gate)) * up)
        states.append(norm("output_norm", x))
    return states


def test_the_forward_pass_is_the_plain_one_with_a_cache() -> None:
    model = checkpoint()
    tokens = np.random.default_rng(1).integers(0, 160, (3, 7))
    states = model.transformer().states(tokens)
    for window, found in zip(tokens, states, strict=True):
        assert np.allclose(found, plain_states(model, window.tolist()), rtol=1e-3, atol=1e-4)


def test_no_token_sees_a_later_one() -> None:
    model = checkpoint().transformer()
    tokens = np.random.default_rng(2).integers(0, 160, (1, 9))
    changed = tokens.copy()
    changed[0, 5:] = (changed[0, 5:] + 1) % 160
    before, after = model.states(tokens)[0], model.states(changed)[0]
    assert np.allclose(before[:5], after[:5], atol=1e-5)
    assert not np.allclose(before[5], after[5], atol=1e-2)


# ---------------------------------------------------------------- INT8


@given(st.integers(1, 6), st.integers(1, 2500), st.integers(0, 2**32 - 1))
def test_products_are_exact(outputs: int, inputs: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    a = draw.integers(-127, 128, (3, inputs), dtype=np.int8)
    w = draw.integers(-128, 128, (outputs, inputs), dtype=np.int8)
    assert np.array_equal(exact_product(a, w), a.astype(np.int64) @ w.astype(np.int64).T)


def test_the_largest_sums_are_exact_too() -> None:
    for inputs in (int8._BLOCK, int8._BLOCK + 1, 4 * int8._BLOCK):
        a, w = np.full((1, inputs), 127, np.int8), np.full((1, inputs), -128, np.int8)
        assert exact_product(a, w).item() == -127 * 128 * inputs


def test_rows_are_quantised_to_half_a_step() -> None:
    weights = np.random.default_rng(3).standard_normal((40, 70)).astype(np.float32)
    weights[7] = 0
    values, scales = quantise_rows(weights)
    assert np.array_equal(scales.astype(np.float16).astype(np.float32), scales)
    # the 16-bit scale may be short by 2^-11 of 127 steps
    assert (np.abs(values * scales[:, None] - weights) <= 0.57 * scales[:, None]).all()
    assert np.abs(values[np.arange(40) != 7]).max(axis=1).min() == 127
    assert not values[7].any()


def test_tokens_are_quantised_each_by_its_largest() -> None:
    x = np.random.default_rng(4).standard_normal((5, 33)).astype(np.float32)
    x[2] = 0
    values, scales = quantise_tokens(x)
    assert (np.abs(values * scales[:, None] - x) <= 0.5001 * scales[:, None]).all()
    assert np.abs(np.delete(values, 2, axis=0)).max(axis=1).tolist() == [127] * 4
    assert not values[2].any()


def test_a_matrix_multiplies_its_integers_and_scales() -> None:
    draw = np.random.default_rng(5)
    values, scales = quantise_rows(draw.standard_normal((6, 50)).astype(np.float32))
    x = draw.standard_normal((2, 3, 50)).astype(np.float32)
    weights = values * scales[:, None]
    assert np.allclose(Int8Matrix(values, scales, "float")(x), x @ weights.T, atol=1e-4)
    integers, steps = quantise_tokens(x.reshape(-1, 50))
    expected = (integers * steps[:, None]) @ weights.T
    found = Int8Matrix(values, scales)(x).reshape(-1, 6)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- what is stored


@pytest.mark.parametrize(("parts", "numbers"), [(["ffn"], 2 * 3 * 64 * 96), (["head"], 160 * 64)])
def test_parts_go_to_flash(parts: list, numbers: int) -> None:
    stored = quantised(checkpoint(), parts)
    assert stored.flash.size == numbers
    assert set(stored.dram) | set(stored.flash_names) == set(matrix_shapes(SMALL))


def test_flash_is_used_where_it_was_stored() -> None:
    model = quantised(checkpoint())
    tokens = np.arange(8)[None]
    expected = model.transformer()
    assert np.array_equal(model.transformer(model.flash).states(tokens), expected.states(tokens))
    # the last row of the head lies last
    changed = model.flash.copy()
    changed[-64:] = 0
    logits = model.transformer(changed).logits(expected.states(tokens))
    whole = expected.logits(expected.states(tokens))
    assert np.array_equal(logits[..., :-1], whole[..., :-1])
    assert not logits[..., -1].any()


def test_what_goes_where_is_checked() -> None:
    with pytest.raises(InputError, match=r"parts in flash: found .*allowed: ffn, head"):
        quantised(checkpoint(), ["attention"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="activations: found 'int4'"):
        quantised(checkpoint(), activations="int4")  # type: ignore[arg-type]


@bch
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_the_weights_used_give_what_the_engine_gives(choice: str) -> None:
    draw = np.random.default_rng(8)
    dealt = layout(HardwareFields())
    weights = draw.integers(-127, 128, (40, 576), dtype=np.int8)
    raw = read(store(weights, dealt), 1.5e-2, seed=3)
    corrected = dealt.code.correct(raw.data, raw.parity)
    assert set(corrected.verdict.tolist()) == {0, 1, 2}
    used = weights_used(raw, corrected, "correct", choice).reshape(40, 576).view(np.int8)
    activations = draw.integers(-127, 128, 576, dtype=np.int8)
    parity = raw.parity.reshape(40, 18, -1)
    for column, product in enumerate(exact_product(activations[None], used)[0]):
        engine = dot(
            raw.data.reshape(40, 576)[column], parity[column], activations, dealt.code,
            uncorrectable=choice,
        )  # fmt: skip
        assert product == engine.value


@bch
def test_what_is_detected_only_is_left_out() -> None:
    dealt = layout(HardwareFields())
    raw = read(store(np.full(3200, 5, np.uint8), dealt), 3e-3, seed=1)
    corrected = dealt.code.correct(raw.data, raw.parity)
    used = weights_used(raw, corrected, "detect").reshape(-1, 32)
    clean = dealt.code.check(raw.data, raw.parity)
    assert 0 < clean.sum() < 100
    assert (used[clean] == 5).all()
    assert not used[~clean].any()


# ---------------------------------------------------------------- probes


def logits_model(logits: np.ndarray) -> Transformer:
    """A model of no layers whose logits are those of the last token."""
    n = len(logits)
    architecture = Architecture(0, n, 1, 1, 1, 2, n, 1e4, 0.0)
    norms = {"output_norm": np.full(n, n**-0.5, np.float32)}
    matrices = {HEAD: dense(logits.T.astype(np.float32))}
    return Transformer(architecture, np.eye(n, dtype=np.float32), norms, matrices)


def test_scores_are_those_of_the_next_token() -> None:
    chances = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    model = logits_model(np.log(chances))
    score = Probe(windows([0, 1, 1, 2, 0], 4, 2)).score(model)
    expected = np.exp(-np.mean(np.log([0.2, 0.6, 0.3, 0.25])))
    assert score.perplexity == pytest.approx(expected, rel=1e-5)
    assert score.accuracy == 0.25  # 1 after 1
    assert np.isnan(score.answers)


def test_questions_are_answered_where_the_prompt_ends() -> None:
    draw = np.random.default_rng(6)
    model = checkpoint().transformer()
    prompts = tuple(draw.integers(0, 160, n) for n in draw.integers(1, 12, 70))
    choices = np.stack([draw.choice(160, 4, replace=False) for _ in prompts])
    score = Probe(windows(range(9), 8, 8), Questions(prompts, choices)).score(model)
    right = 0
    for prompt, words in zip(prompts, choices, strict=True):
        logits = model.logits(model.states(prompt[None])[0, -1])
        right += logits[words].argmax() == 0
    assert score.answers == pytest.approx(right / 70)


def test_windows_overlap_by_one_token() -> None:
    assert windows([5, 6, 7, 8, 9, 0], 4, 2).tolist() == [[5, 6, 7], [7, 8, 9]]
    with pytest.raises(InputError, match="found 5, allowed: a multiple of the window, 2"):
        windows(range(9), 5, 2)
    with pytest.raises(InputError, match="found 6, allowed: 5 of this text at most"):
        windows(range(6), 6, 2)


def test_questions_are_about_words_of_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(c, f"like {c}" if c == "x" else "?") for c in "abcxdaef"]
    monkeypatch.setattr(probes, "_entries", lambda: [*entries, ("two, words", "many")])
    tokenizer = Tokenizer(lambda text: [ord(c) for c in text[1:]], lambda _: "")
    questions = word_questions(tokenizer, 6)
    assert questions.choices[:, 0].tolist() == [ord(c) for c in "abcdef"]
    assert all(len(set(words)) == 4 for words in questions.choices.tolist())
    with pytest.raises(InputError, match="questions: found 7, allowed: 4 to 6"):
        word_questions(tokenizer, 7)


def test_a_text_must_be_readable(tmp_path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"latin\.txt: no UTF-8 text"):
        probes.read_text(tmp_path / "latin.txt")
    with pytest.raises(InputError, match="cannot be read"):
        probes.read_text(tmp_path / "none.txt")


# ---------------------------------------------------------------- bit errors


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    model = quantised(checkpoint())
    probe = Probe(windows([i * i % 160 for i in range(33)], 32, 16))
    config = HardwareFields(rber=(0.0, 1e-4, 2e-2), page_bytes=(1024,))
    return quality(config, model, probe.score, seeds=(4, 9))


@bch
def test_without_errors_nothing_changes(result: xr.Dataset) -> None:
    none = result.isel(page_bytes=0).sel(rber=0.0)
    assert (none["perplexity"] == result["stored_perplexity"]).all()
    assert not none["wrong_weights"].any()
    assert not none["flipped_bits"].any()


@bch
def test_every_segment_has_a_verdict(result: xr.Dataset) -> None:
    segments = 47_104 // 32
    assert (result["segments"].sum("outcome") == segments).all()
    assert result["rber_read"].sel(rber=1e-4).item() == 1e-4


@bch
def test_what_is_correctable_costs_nothing(result: xr.Dataset) -> None:
    mild = result.isel(page_bytes=0).sel(rber=1e-4)
    assert (mild["flipped_bits"] > 0).all()
    assert (mild["perplexity"].sel(mode="correct") == result["stored_perplexity"]).all()
    assert (mild["wrong_weights"].sel(mode="none") > 0).all()
    # a dropped segment has 32 weights of which some are zero anyway
    faulty = mild["segments"].sel(outcome="corrected")
    dropped = mild["wrong_weights"].sel(mode="detect")
    assert ((dropped > 24 * faulty) & (dropped <= 32 * faulty)).all()


@bch
def test_many_errors_break_every_mode_but_least_the_corrected(result: xr.Dataset) -> None:
    harsh = result.isel(page_bytes=0).sel(rber=2e-2)
    wrong = harsh["wrong_weights"]
    assert (wrong.sel(mode="correct") < wrong.sel(mode="none")).all()
    assert (wrong.sel(mode="none") < wrong.sel(mode="detect")).all()
    assert (harsh["perplexity"] != result["stored_perplexity"]).all()


@bch
def test_equal_weights_are_run_once() -> None:
    model, runs = quantised(checkpoint(), ["ffn"]), []

    def score(transformer: Transformer) -> Score:
        runs.append(transformer)
        return Score(1.0, 0.5)

    quality(HardwareFields(rber=(0.0, 1e-5)), model, score, modes=["correct"])
    assert len(runs) == 1
    quality(HardwareFields(rber=1e-3), model, score, modes=["none", "detect"], seeds=[0])
    assert len(runs) == 4


@bch
def test_uncorrectable_segments_are_kept_or_dropped() -> None:
    model = quantised(checkpoint(), ["ffn"])
    wrong = {
        choice: quality(
            HardwareFields(rber=2e-2), model, lambda _: Score(1.0, 0.5),
            modes=["correct"], seeds=[0], uncorrectable=choice,
        )
        for choice in ("keep", "drop")
    }  # fmt: skip
    kept, dropped = (wrong[choice]["wrong_weights"].item() for choice in ("keep", "drop"))
    detected = wrong["keep"]["segments"].sel(outcome="detected").item()
    assert detected > 100
    assert 4 * detected < kept < 12 * detected  # five bits or more a segment
    assert 24 * detected < dropped <= 33 * detected


def test_the_choices_are_checked() -> None:
    model = quantised(checkpoint(), ["ffn"])
    with pytest.raises(InputError, match="mode: found 'fix'"):
        quality(HardwareFields(), model, lambda _: Score(1.0, 1.0), modes=["fix"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="no seed"):
        quality(HardwareFields(), model, lambda _: Score(1.0, 1.0), seeds=())
    with pytest.raises(InputError, match="uncorrectable: found 'guess'"):
        quality(
            HardwareFields(), model, lambda _: Score(1.0, 1.0),
            uncorrectable="guess",  # type: ignore[arg-type]
        )  # fmt: skip


@bch
def test_intervals_are_of_the_seeds(result: xr.Dataset) -> None:
    means = summary(result).isel(page_bytes=0).sel(rber=2e-2, mode="none")
    logs = np.log(result["perplexity"].isel(page_bytes=0).sel(rber=2e-2, mode="none").values)
    assert float(means["perplexity"]) == pytest.approx(np.exp(logs.mean()))
    # two values: the t quantile with one degree of freedom, over sqrt(2)
    half = 12.7062 * logs.std(ddof=1) / 2**0.5
    assert float(means["perplexity_high"]) == pytest.approx(np.exp(logs.mean() + half), rel=1e-4)
    alone = summary(result.isel(seed=[0]))
    assert alone["perplexity"].notnull().all()
    assert alone["perplexity_low"].isnull().all()


@bch
def test_every_point_and_mode_has_a_line(result: xr.Dataset) -> None:
    lines = list(table_lines(result))
    assert len(lines) == 1 + 3 * 3
    assert lines[0].split()[:2] == ["rber", "page_bytes"]
    assert lines[4].split()[:4] == ["0.0001", "1024", "1.00e-04", "none"]
    assert "nan" not in "".join(lines)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--set", "sigma=7"], "sigma"),
        (["--set", "correctable=99"], "correctable"),
        (["--set", "cell_bits=4,5"], "cell_bits"),
        (["--set", "rber=0.7,0.1"], "rber"),
        (["--seeds", "0"], "--seeds: found 0"),
    ],
)
def test_wrong_options_are_one_line(wrong, message, capsys) -> None:
    assert main(wrong) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
