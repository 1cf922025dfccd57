"""Families of decoders, by ``model_type``: what a config.json of theirs says of their tensors.

Keys, defaults and tensors are those of the configuration and modelling classes of
transformers 5.24. Widths, layers, heads and vocabulary have defaults there too; here they
must be given, since leaving one out is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nandcosim.systems.nand import Count

__all__ = ["FAMILIES", "AttentionBias", "Family", "Gated"]


class Family(BaseModel):
    """Keys that all families have, and what a `ModelShape` needs from them."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)
    ffn_matrices: ClassVar[int]

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    tie_word_embeddings: bool = False

    @property
    def ffn_width(self) -> int:
        """Rows of the FFN's first matrix."""
        raise NotImplementedError

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Components of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def other_weights(self) -> int:
        """Norms, biases and learnt positions of the whole model."""
        raise NotImplementedError

    def _must_divide(self, whole: int, name: str, part: int, part_name: str) -> None:
        if whole % part:
            raise ValueError(f"{name} = {whole} is no multiple of {part_name} = {part}")


class _Opt(Family):
    """Layer norms of two vectors, biases everywhere, learnt positions, plain FFN."""

    ffn_matrices: ClassVar[int] = 2

    ffn_dim: Count
    max_position_embeddings: Count = 2048
    word_embed_proj_dim: Count | None = None
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    do_layer_norm_before: bool = True
    remove_final_layer_norm: bool = Field(False, alias="_remove_final_layer_norm")
    tie_word_embeddings: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        hidden, projected = self.hidden_size, self.word_embed_proj_dim
        if projected not in {None, hidden}:
            raise ValueError(
                f"word_embed_proj_dim = {projected}, allowed: hidden_size = {hidden}; "
                "embeddings of another width are not covered"
            )
        heads = self.num_attention_heads
        self._must_divide(hidden, "hidden_size", heads, "num_attention_heads")
        return self

    @property
    def ffn_width(self) -> int:
        return self.ffn_dim

    @property
    def other_weights(self) -> int:
        hidden, layers = self.hidden_size, self.num_hidden_layers
        last = self.do_layer_norm_before and not self.remove_final_layer_norm
        norms = (2 * layers + last) * self.layer_norm_elementwise_affine
        biases = layers * (5 * hidden + self.ffn_dim) * self.enable_bias
        positions = self.max_position_embeddings + 2  # the table's first two rows stay unused
        return (2 * norms + positions) * hidden + biases


class Gated(Family):
    """Root-mean-square norms of one vector, rotary positions, gated FFN."""

    ffn_matrices: ClassVar[int] = 3
    norms: ClassVar[int] = 2  # a layer, over hidden_size
    head_norms: ClassVar[int] = 0  # a layer, over a head: of queries and keys

    intermediate_size: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        heads = self.num_attention_heads
        if self.head_dim is None:
            self._must_divide(self.hidden_size, "hidden_size", heads, "num_attention_heads")
        self._must_divide(heads, "num_attention_heads", self.kv_heads, "num_key_value_heads")
        return self

    @property
    def ffn_width(self) -> int:
        return self.intermediate_size

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def biases(self) -> int:
        """Of a layer."""
        return 0

    @property
    def other_weights(self) -> int:
        norms = self.norms * self.hidden_size + self.head_norms * self.head_width
        return self.num_hidden_layers * (norms + self.biases) + self.hidden_size

    @property
    def _qkv_width(self) -> int:
        return (self.num_attention_heads + 2 * self.kv_heads) * self.head_width


class AttentionBias(Gated):
    """Biases of all four attention matrices, or none."""

    attention_bias: bool = False

    @property
    def biases(self) -> int:
        return (self._qkv_width + self.hidden_size) * self.attention_bias


class _Llama(AttentionBias):
    mlp_bias: bool = False

    @property
    def biases(self) -> int:
        of_ffn = (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        return super().biases + of_ffn


class _Mistral(Gated):
    num_key_value_heads: Count | None = 8


class _Qwen2(Gated):
    num_key_value_heads: Count | None = 32

    @property
    def biases(self) -> int:
        return self._qkv_width  # the output projection has none


class _Qwen3(AttentionBias):
    head_norms: ClassVar[int] = 2
    num_key_value_heads: Count | None = 32
    head_dim: Count = 128


class _Gemma(AttentionBias):
    num_key_value_heads: Count = 16
    head_dim: Count = 256
    tie_word_embeddings: bool = True


class _Gemma2(_Gemma):
    norms: ClassVar[int] = 4
    num_key_value_heads: Count = 4


class _Gemma3(_Gemma2):
    head_norms: ClassVar[int] = 2


FAMILIES: Mapping[str, type[Family]] = {
    "opt": _Opt,
    "llama": _Llama,
    "mistral": _Mistral,
    "qwen2": _Qwen2,
    "qwen3": _Qwen3,
    "gemma": _Gemma,
    "gemma2": _Gemma2,
    "gemma3_text": _Gemma3,
}
