"""Count the weights of decoders with transformers, for tests/unit/test_nvllm_models.py.

Needs torch and transformers, which the package itself does not::

    python tests/data/make_nvllm_parameter_counts.py

writes nvllm_parameter_counts.json beside this file. Models are made on torch's meta device,
so no memory is needed for their weights.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import torch
import transformers

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "nandcosim" / "systems" / "nvllm" / "data" / "models.toml"

#: Widths in which no two are equal, so that a wrong one shows.
TINY = {"vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
OPT = {"model_type": "opt", **TINY, "ffn_dim": 56}
GATED = {**TINY, "intermediate_size": 56}
GROUPED = {**GATED, "num_key_value_heads": 2, "head_dim": 10}

CASES: dict[str, dict[str, Any]] = {
    "opt": OPT,
    "opt, untied": {**OPT, "tie_word_embeddings": False},
    "opt, no biases": {**OPT, "enable_bias": False},
    "opt, plain norms": {**OPT, "layer_norm_elementwise_affine": False},
    "opt, norms after": {**OPT, "do_layer_norm_before": False},
    "opt, no final norm": {**OPT, "_remove_final_layer_norm": True},
    "opt, positions": {**OPT, "max_position_embeddings": 77, "word_embed_proj_dim": 24},
    "llama": {"model_type": "llama", **GATED},
    "llama, null heads": {
        "model_type": "llama", **GATED, "num_key_value_heads": None, "head_dim": None,
    },
    "llama, grouped": {"model_type": "llama", **GROUPED},
    "llama, tied": {"model_type": "llama", **GROUPED, "tie_word_embeddings": True},
    "llama, biases": {"model_type": "llama", **GROUPED, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **GATED, "num_attention_heads": 8},
    "mistral, grouped": {"model_type": "mistral", **GROUPED, "attention_bias": True},
    "qwen2": {"model_type": "qwen2", **GATED, "hidden_size": 64, "num_attention_heads": 32},
    "qwen2, grouped": {"model_type": "qwen2", **GROUPED},
    "qwen2, tied": {"model_type": "qwen2", **GROUPED, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **GATED, "num_attention_heads": 32},
    "qwen3, grouped": {"model_type": "qwen3", **GROUPED},
    "qwen3, biases": {"model_type": "qwen3", **GROUPED, "attention_bias": True},
    "gemma": {"model_type": "gemma", **GATED, "num_attention_heads": 16},
    "gemma, grouped": {"model_type": "gemma", **GROUPED, "attention_bias": True},
    "gemma2": {"model_type": "gemma2", **GATED},
    "gemma2, untied": {"model_type": "gemma2", **GROUPED, "tie_word_embeddings": False},
    "gemma3_text": {"model_type": "gemma3_text", **GATED},
    "gemma3_text, grouped": {"model_type": "gemma3_text", **GROUPED, "attention_bias": True},
}  # fmt: skip


def counts(config: dict[str, Any]) -> dict[str, int]:
    """Weights of the model that transformers makes of a config.json, by kind of matrix."""
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    found = dict.fromkeys(("ffn_weights", "attention_weights", "head_weights"), 0)
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if tensor.ndim != 2:
            continue
        if any(part in name for part in (".mlp.", ".fc1.", ".fc2.")):
            found["ffn_weights"] += tensor.numel()
        elif ".self_attn." in name:
            found["attention_weights"] += tensor.numel()
        elif name.startswith("lm_head."):
            found["head_weights"] += tensor.numel()
    found["parameters"] = sum(tensor.numel() for tensor in model.parameters())
    return found


def main() -> None:
    """Write the file."""
    configs = {**tomllib.loads(PUBLISHED.read_text()), **CASES}
    document = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "models": {name: {"config": config, **counts(config)} for name, config in configs.items()},
    }
    lines = json.dumps(document, indent=1)
    (HERE / "nvllm_parameter_counts.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
