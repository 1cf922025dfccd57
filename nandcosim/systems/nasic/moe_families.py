"""Families of mixtures of experts, by ``model_type``: what a config.json of theirs says.

Keys, defaults and tensors are those of transformers 5.24, and of ``deepseek`` those of the
code published with DeepSeekMoE. Widths, layers, heads, vocabulary and everything about
experts must be given: OLMoE's default width, for one, is twice that of its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import AliasChoices, Field, model_validator

from nandcosim.systems.nand import Count, Whole
from nandcosim.systems.nvllm.families import AttentionBias, Gated

__all__ = ["FAMILIES", "Routed"]


class Routed(Gated):
    """Experts in every layer, as wide as ``intermediate_size``."""

    num_local_experts: Count = Field(
        validation_alias=AliasChoices("num_local_experts", "num_experts")
    )
    num_experts_per_tok: Count

    @model_validator(mode="after")
    def _routes(self) -> Self:
        if self.num_experts_per_tok > self.num_local_experts:
            raise ValueError(
                f"num_experts_per_tok = {self.num_experts_per_tok}, "
                f"allowed: at most the {self.num_local_experts} experts"
            )
        if not self.moe_layers:
            raise ValueError(f"no layer of {self.num_hidden_layers} has experts: a dense model")
        return self

    @property
    def expert_width(self) -> int:
        """Width inside a routed expert."""
        return self.intermediate_size

    @property
    def shared_width(self) -> int:
        """Width inside all always-on experts of a layer together."""
        return 0

    @property
    def moe_layers(self) -> int:
        """Layers with experts; the others have an FFN of ``intermediate_size``."""
        return self.num_hidden_layers

    @property
    def attention_weights(self) -> int:
        """Matrices of attention in all layers."""
        heads = self.num_attention_heads + self.kv_heads
        return self.num_hidden_layers * 2 * heads * self.head_width * self.hidden_size


class _Mixtral(Routed):
    num_key_value_heads: Count | None = 8


class _Olmoe(Routed, AttentionBias):
    @property
    def other_weights(self) -> int:
        # Queries and keys are normalised over all heads together.
        of_keys = self.hidden_size // self.num_attention_heads * self.kv_heads
        return super().other_weights + self.num_hidden_layers * (self.hidden_size + of_keys)


class _Phimoe(Routed, AttentionBias):
    num_key_value_heads: Count | None = 8
    lm_head_bias: bool = False

    @property
    def other_weights(self) -> int:
        # Layer norms have a second vector.
        norms = self.norms * self.num_hidden_layers + 1
        biases = self.vocab_size * self.lm_head_bias
        return super().other_weights + norms * self.hidden_size + biases


class _Qwen(Routed):
    """Dense layers every so often."""

    num_local_experts: Count = Field(
        validation_alias=AliasChoices("num_experts", "num_local_experts")
    )
    moe_intermediate_size: Count
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[Whole] | None = None

    @property
    def expert_width(self) -> int:
        return self.moe_intermediate_size

    @property
    def moe_layers(self) -> int:
        dense = set(self.mlp_only_layers or ())
        sparse = range(self.decoder_sparse_step - 1, self.num_hidden_layers)
        return len(set(sparse[:: self.decoder_sparse_step]) - dense)


class _Qwen2Moe(_Qwen):
    num_key_value_heads: Count | None = 16
    shared_expert_intermediate_size: Count
    qkv_bias: bool = True

    @property
    def shared_width(self) -> int:
        return self.shared_expert_intermediate_size

    @property
    def biases(self) -> int:
        return self._qkv_width * self.qkv_bias

    @property
    def other_weights(self) -> int:
        # The shared expert has a gate of one row.
        return super().other_weights + self.moe_layers * self.hidden_size


class _Qwen3Moe(_Qwen, AttentionBias):
    head_norms = 2
    num_key_value_heads: Count | None = 4


class _Deepseek(Routed):
    """Dense layers first, shared experts as wide as routed ones."""

    num_local_experts: Count = Field(
        validation_alias=AliasChoices("n_routed_experts", "num_local_experts", "num_experts")
    )
    moe_intermediate_size: Count
    n_shared_experts: Whole | None
    first_k_dense_replace: Whole
    moe_layer_freq: Count = 1

    @property
    def expert_width(self) -> int:
        return self.moe_intermediate_size

    @property
    def shared_width(self) -> int:
        return self.moe_intermediate_size * (self.n_shared_experts or 0)

    @property
    def moe_layers(self) -> int:
        sparse = range(0, self.num_hidden_layers, self.moe_layer_freq)
        return sum(layer >= self.first_k_dense_replace for layer in sparse)


class _LatentAttention(_Deepseek, AttentionBias):
    """Keys and values, and mostly queries, from latent vectors."""

    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    @property
    def head_width(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def attention_weights(self) -> int:
        hidden, heads, keys = self.hidden_size, self.num_attention_heads, self.kv_lora_rank
        width = heads * self.head_width
        queries = (hidden + width) * self.q_lora_rank if self.q_lora_rank else hidden * width
        values = heads * (self.qk_nope_head_dim + self.v_head_dim)
        latent = hidden * self._latent_width + keys * values
        out = heads * self.v_head_dim * hidden
        return self.num_hidden_layers * (queries + latent + out)

    @property
    def _latent_width(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def biases(self) -> int:
        biased = (self.q_lora_rank or 0) + self._latent_width + self.hidden_size
        return biased * self.attention_bias

    @property
    def other_weights(self) -> int:
        norms = (self.q_lora_rank or 0) + self.kv_lora_rank
        return super().other_weights + self.num_hidden_layers * norms


FAMILIES: Mapping[str, type[Routed]] = {
    "mixtral": _Mixtral,
    "olmoe": _Olmoe,
    "phimoe": _Phimoe,
    "qwen2_moe": _Qwen2Moe,
    "qwen3_moe": _Qwen3Moe,
    "deepseek": _Deepseek,
    "deepseek_v2": _LatentAttention,
    "deepseek_v3": _LatentAttention,
}
