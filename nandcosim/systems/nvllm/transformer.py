"""Decoder-only transformer of the LLaMA family in NumPy, whatever multiplies its matrices.

RMS norms, rotary positions, grouped queries, a gated FFN. How a matrix is stored and
multiplied is its own affair: float32, or INT8 as read from flash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FFN_MATRICES",
    "HEAD",
    "Architecture",
    "Floats",
    "Linear",
    "Tokens",
    "Transformer",
    "dense",
    "layer_matrix",
    "matrix_shapes",
    "norm_names",
]

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
#: Multiplies: (..., inputs) -> (..., outputs).
Linear = Callable[[Floats], Floats]

FFN_MATRICES = ("ffn_gate", "ffn_up", "ffn_down")
HEAD = "output"
_LAYER_NORMS = ("attn_norm", "ffn_norm")
_FINAL_NORM = "output_norm"


@dataclass(frozen=True)
class Architecture:
    """Sizes of a model.

    Attributes
    ----------
    layers, hidden, ffn, heads, kv_heads, head_dim, vocab : int
    rope_base : float
        Base of the rotary frequencies.
    epsilon : float
        Added to the mean square of a norm.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rope_base: float
    epsilon: float


def layer_matrix(layer: int, matrix: str) -> str:
    """Name of a matrix or norm of one layer, as in GGUF files."""
    return f"blk.{layer}.{matrix}"


def norm_names(architecture: Architecture) -> tuple[str, ...]:
    """Names of all norms."""
    layers = range(architecture.layers)
    return (*(layer_matrix(i, name) for i in layers for name in _LAYER_NORMS), _FINAL_NORM)


def matrix_shapes(architecture: Architecture) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of every matrix, layer by layer, the head last."""
    a = architecture
    queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    layer = {
        "attn_q": (queries, a.hidden),
        "attn_k": (keys, a.hidden),
        "attn_v": (keys, a.hidden),
        "attn_output": (a.hidden, queries),
        "ffn_gate": (a.ffn, a.hidden),
        "ffn_up": (a.ffn, a.hidden),
        "ffn_down": (a.hidden, a.ffn),
    }
    shapes = {layer_matrix(i, name): s for i in range(a.layers) for name, s in layer.items()}
    return {**shapes, HEAD: (a.vocab, a.hidden)}


def dense(weights: Floats) -> Linear:
    """Matrix (outputs, inputs) in float32."""

    def multiply(x: Floats) -> Floats:
        # one large product instead of one a window
        y = x.reshape(-1, x.shape[-1]) @ weights.T
        return y.reshape(*x.shape[:-1], -1)

    return multiply


@dataclass(frozen=True)
class Transformer:
    """A model that can be run.

    Attributes
    ----------
    architecture : Architecture
    embedding : ndarray of float32, (vocab, hidden)
    norms : Mapping
        Name (see `norm_names`) -> float32 (hidden,).
    matrices : Mapping
        Name (see `matrix_shapes`) -> `Linear`.
    """

    architecture: Architecture
    embedding: Floats
    norms: Mapping[str, Floats]
    matrices: Mapping[str, Linear]

    def states(self, tokens: Tokens) -> Floats:
        """What the head multiplies: the last layer's normed output.

        Parameters
        ----------
        tokens : ndarray of int, (windows, length)
            Each window starts at position 0 and sees itself only.

        Returns
        -------
        ndarray of float32, (windows, length, hidden)
        """
        x = self.embedding[tokens]
        for layer in range(self.architecture.layers):
            x = x + self._attention(layer, self._normed(layer_matrix(layer, "attn_norm"), x))
            x = x + self._ffn(layer, self._normed(layer_matrix(layer, "ffn_norm"), x))
        return self._normed(_FINAL_NORM, x)

    def logits(self, states: Floats) -> Floats:
        """Scores (..., vocab) of the next token."""
        return self.matrices[HEAD](states)

    def _multiply(self, layer: int, matrix: str, x: Floats) -> Floats:
        return self.matrices[layer_matrix(layer, matrix)](x)

    def _normed(self, name: str, x: Floats) -> Floats:
        square = np.mean(x * x, axis=-1, keepdims=True)
        scaled: Floats = x / np.sqrt(square + np.float32(self.architecture.epsilon))
        return scaled * self.norms[name]

    def _ffn(self, layer: int, x: Floats) -> Floats:
        gate = self._multiply(layer, "ffn_gate", x)
        up = self._multiply(layer, "ffn_up", x)
        return self._multiply(layer, "ffn_down", _silu(gate) * up)

    def _attention(self, layer: int, x: Floats) -> Floats:
        a = self.architecture
        windows, length, _ = x.shape
        groups = a.heads // a.kv_heads

        def heads(matrix: str) -> Floats:
            """(windows, kv heads, queries a kv head, length, head_dim)"""
            y = self._multiply(layer, matrix, x)
            split = y.reshape(windows, length, a.kv_heads, -1, a.head_dim)
            return split.transpose(0, 2, 3, 1, 4)

        query = _rotated(heads("attn_q"), a.rope_base)
        key = _rotated(heads("attn_k"), a.rope_base)
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(a.head_dim))
        future = np.triu(np.ones((length, length), bool), 1)
        mixed = _softmax(np.where(future, np.float32(-np.inf), scores)) @ heads("attn_v")
        assert mixed.shape[2] == groups
        merged = mixed.transpose(0, 3, 1, 2, 4).reshape(windows, length, a.heads * a.head_dim)
        return self._multiply(layer, "attn_output", merged)


def _silu(x: Floats) -> Floats:
    # x / (1 + exp(-x)) by a tanh, since the exp overflows for very negative x
    half = x * np.float32(0.5)
    gated: Floats = half + half * np.tanh(half)
    return gated


def _softmax(x: Floats) -> Floats:
    shares: Floats = np.exp(x - x.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _rotated(x: Floats, base: float) -> Floats:
    """Rotate neighbouring pairs of (..., length, head_dim) by position times frequency.

    GGUF files order the rows of Q and K so that a pair lies side by side.
    """
    length, head_dim = x.shape[-2:]
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.arange(length)[:, None] * frequencies
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = np.empty_like(x)
    rotated[..., 0::2] = even * cos - odd * sin
    rotated[..., 1::2] = even * sin + odd * cos
    return rotated
