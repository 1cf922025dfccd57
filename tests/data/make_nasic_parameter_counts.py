"""Count the weights of mixtures of experts with transformers, for tests/unit/test_nasic_moe.py.

Needs torch and transformers, which the package itself does not::

    python tests/data/make_nasic_parameter_counts.py

writes nasic_parameter_counts.json beside this file. Models are made on torch's meta device,
so no memory is needed for their weights. Transformers has no ``deepseek``, the first one.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import torch
import transformers

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "nandcosim" / "systems" / "nasic" / "data" / "moe.toml"

#: Widths in which no two are equal, so that a wrong one shows.
TINY = {
    "vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 56, "num_experts_per_tok": 2,
}  # fmt: skip
LOCAL = {**TINY, "num_local_experts": 6}
QWEN = {**TINY, "num_experts": 6, "moe_intermediate_size": 13}
DEEPSEEK = {
    **TINY, "n_routed_experts": 6, "moe_intermediate_size": 13, "n_shared_experts": 2,
    "num_key_value_heads": 4, "first_k_dense_replace": 2, "kv_lora_rank": 9, "q_lora_rank": 17,
    "qk_nope_head_dim": 7, "qk_rope_head_dim": 4, "v_head_dim": 11,
}  # fmt: skip
SHARED = {"shared_expert_intermediate_size": 19}

CASES: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", **LOCAL},
    "mixtral, heads": {"model_type": "mixtral", **LOCAL, "head_dim": 10},
    "mixtral, tied": {"model_type": "mixtral", **LOCAL, "tie_word_embeddings": True},
    "olmoe, plain": {"model_type": "olmoe", **TINY, "num_experts": 6},
    "olmoe, biases": {"model_type": "olmoe", **TINY, "num_experts": 6, "attention_bias": True},
    "phimoe": {"model_type": "phimoe", **LOCAL},
    "phimoe, biases": {
        "model_type": "phimoe", **LOCAL, "attention_bias": True, "lm_head_bias": True,
    },
    "qwen2_moe": {"model_type": "qwen2_moe", **QWEN, **SHARED},
    "qwen2_moe, steps": {
        "model_type": "qwen2_moe", **QWEN, **SHARED, "decoder_sparse_step": 2, "qkv_bias": False,
    },
    "qwen3_moe": {"model_type": "qwen3_moe", **QWEN, "head_dim": 10},
    "qwen3_moe, dense layers": {
        "model_type": "qwen3_moe", **QWEN, "mlp_only_layers": [0, 3], "attention_bias": True,
    },
    "deepseek_v2": {"model_type": "deepseek_v2", **DEEPSEEK},
    "deepseek_v2, plain queries": {
        "model_type": "deepseek_v2", **DEEPSEEK, "q_lora_rank": None, "attention_bias": True,
    },
    "deepseek_v3": {"model_type": "deepseek_v3", **DEEPSEEK},
    "deepseek_v3, biases": {"model_type": "deepseek_v3", **DEEPSEEK, "attention_bias": True},
}  # fmt: skip


def counts(config: dict[str, Any]) -> dict[str, int]:
    """Weights of the model that transformers makes of a config.json, by kind of matrix."""
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    found = dict.fromkeys(("routed_weights", "router_weights", "attention_weights"), 0)
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if ".experts." in name:
            found["routed_weights"] += tensor.numel()
        elif name.endswith((".gate.weight", ".router.weight")):
            found["router_weights"] += tensor.numel()
        elif ".self_attn." in name and tensor.ndim == 2:
            found["attention_weights"] += tensor.numel()
    found["parameters"] = sum(tensor.numel() for tensor in model.parameters())
    return found


def main() -> None:
    """Write the file."""
    published = tomllib.loads(PUBLISHED.read_text())
    configs = {
        name: config
        for name, config in {**published, **CASES}.items()
        if config["model_type"] != "deepseek"
    }
    document = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "models": {name: {"config": config, **counts(config)} for name, config in configs.items()},
    }
    lines = json.dumps(document, indent=1)
    (HERE / "nasic_parameter_counts.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
