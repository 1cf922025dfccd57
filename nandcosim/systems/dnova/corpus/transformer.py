"""A sentence encoder of the BERT family as an ONNX graph, built from its published weights.

Token vectors pass through layers of self-attention and a two-layer network, each with a
residual connection and a layer norm after it (Vaswani et al. 2017, arXiv:1706.03762;
Devlin et al. 2019, arXiv:1810.04805); a sentence is the mean of its token vectors, scaled
to length 1 (Reimers & Gurevych 2019, arXiv:1908.10084).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx

__all__ = ["Architecture", "Weights", "write_graph"]

#: Tensors by their published names.
Weights = Mapping[str, NDArray[np.float32]]

#: Added to the attention score of padding: its softmax weight underflows to 0.
_MASKED = -1e9
#: First opset with Gelu, and the file format version that came with it.
_OPSET, _IR_VERSION = 20, 9


@dataclass(frozen=True)
class Architecture:
    """What tells one encoder of the family from another.

    Attributes
    ----------
    name : str
        Published name of the model.
    dimension, layers, heads : int
    layer_norm_epsilon : float
    query, key, value, output, norm : str
        Names of the attention's tensors inside a layer, without ``.weight`` and ``.bias``.
    """

    name: str
    dimension: int
    layers: int
    heads: int
    layer_norm_epsilon: float
    query: str
    key: str
    value: str
    output: str
    norm: str


def write_graph(
    architecture: Architecture,
    weights: Weights,
    path: Path,
    *,
    positions: NDArray[np.float32],
    position_bias: NDArray[np.float32] | None = None,
) -> None:
    """Write an encoder as one ``.onnx`` file.

    Inputs of the graph are ``input_ids`` and ``attention_mask``, int64 (b, s);
    its output is ``embedding``, float32 (b, D), rows of length 1.

    Parameters
    ----------
    architecture : Architecture
    weights : Mapping
    path : Path
    positions : ndarray, shape (longest, D), float32
        Added to the vector of the token at each place.
    position_bias : ndarray, shape (heads, longest, longest), float32, optional
        Added to the attention score between two places, the same in all layers.

    Raises
    ------
    KeyError
        If a tensor is missing, so that the weights are not this model's.
    """
    import onnx
    from onnx import TensorProto, helper

    graph = _Builder(architecture, weights)
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden, length = _embed_tokens(graph, positions)
    added = _attention_penalty(graph, mask)
    if position_bias is not None:
        added = graph.op("Add", added, _position_bias(graph, position_bias, length))
    for layer in range(architecture.layers):
        hidden = _layer(graph, f"encoder.layer.{layer}", hidden, added)
    _mean_of_tokens(graph, hidden, mask)

    def tokens(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])

    output = helper.make_tensor_value_info(
        "embedding", TensorProto.FLOAT, ["batch", architecture.dimension]
    )
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            architecture.name,
            [tokens("input_ids"), tokens("attention_mask")],
            [output],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


class _Builder:
    """Collects nodes and constants; every method returns the name of its output."""

    def __init__(self, architecture: Architecture, weights: Weights) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy_helper = helper, numpy_helper
        self.architecture, self.weights = architecture, weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        values: NDArray[Any] = np.ascontiguousarray(array, dtype=dtype)
        self.constants.append(self._numpy_helper.from_array(values, name))
        return name

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, inputs, [output], **attributes))
        return output

    def linear(self, x: str, key: str, scale: float = 1.0) -> str:
        """x (b, s, i) times the weight (o, i) transposed, plus the bias (o,), times `scale`."""
        weight, bias = self.weights[f"{key}.weight"], self.weights[f"{key}.bias"]
        product = self.op("MatMul", x, self.constant((scale * weight).T))
        return self.op("Add", product, self.constant(scale * bias))

    def layer_norm(self, x: str, key: str) -> str:
        scale = self.constant(self.weights[f"{key}.weight"])
        bias = self.constant(self.weights[f"{key}.bias"])
        epsilon = self.architecture.layer_norm_epsilon
        return self.op("LayerNormalization", x, scale, bias, epsilon=epsilon)


def _embed_tokens(graph: _Builder, positions: NDArray[np.float32]) -> tuple[str, str]:
    """Vectors of the tokens (b, s, D), and the number of tokens s."""
    words = graph.constant(graph.weights["embeddings.word_embeddings.weight"])
    word = graph.op("Gather", words, "input_ids")
    length = graph.op("Shape", "input_ids", start=1, end=2)
    position = graph.op("Slice", graph.constant(positions), graph.constant([0], np.int64), length)
    return graph.layer_norm(graph.op("Add", word, position), "embeddings.LayerNorm"), length


def _attention_penalty(graph: _Builder, mask: str) -> str:
    """0 for tokens and a large negative number for padding, (b, 1, 1, s)."""
    absent = graph.op("Sub", graph.constant(1.0), mask)
    penalty = graph.op("Mul", absent, graph.constant(_MASKED))
    return graph.op("Unsqueeze", penalty, graph.constant([1, 2], np.int64))


def _position_bias(graph: _Builder, bias: NDArray[np.float32], length: str) -> str:
    """The corner (heads, s, s) that a text of s tokens needs."""
    return graph.op(
        "Slice",
        graph.constant(bias),
        graph.constant([0, 0], np.int64),
        graph.op("Concat", length, length, axis=0),
        graph.constant([1, 2], np.int64),
    )


def _layer(graph: _Builder, key: str, hidden: str, added: str) -> str:
    attended = _self_attention(graph, key, hidden, added)
    hidden = graph.layer_norm(graph.op("Add", hidden, attended), f"{key}.{graph.architecture.norm}")
    wide = graph.linear(hidden, f"{key}.intermediate.dense")
    narrow = graph.linear(graph.op("Gelu", wide), f"{key}.output.dense")
    return graph.layer_norm(graph.op("Add", hidden, narrow), f"{key}.output.LayerNorm")


def _self_attention(graph: _Builder, key: str, hidden: str, added: str) -> str:
    architecture = graph.architecture
    head_size = architecture.dimension // architecture.heads
    heads = graph.constant([0, 0, architecture.heads, head_size], np.int64)

    def project(part: str, order: tuple[int, ...], scale: float = 1.0) -> str:
        projected = graph.linear(hidden, f"{key}.{part}", scale)
        return graph.op("Transpose", graph.op("Reshape", projected, heads), perm=order)

    # the scores' factor 1/sqrt(head size) is folded into the query projection
    query = project(architecture.query, (0, 2, 1, 3), 1 / math.sqrt(head_size))  # (b, h, s, e)
    keys = project(architecture.key, (0, 2, 3, 1))  # (b, h, e, s)
    value = project(architecture.value, (0, 2, 1, 3))  # (b, h, s, e)
    scores = graph.op("Add", graph.op("MatMul", query, keys), added)
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    joined = graph.op(
        "Reshape",
        graph.op("Transpose", mixed, perm=(0, 2, 1, 3)),
        graph.constant([0, 0, architecture.dimension], np.int64),
    )
    return graph.linear(joined, f"{key}.{architecture.output}")


def _mean_of_tokens(graph: _Builder, hidden: str, mask: str) -> None:
    # the length-1 scaling makes the division by the token count unnecessary
    column = graph.op("Unsqueeze", mask, graph.constant([2], np.int64))
    total = graph.op(
        "ReduceSum", graph.op("Mul", hidden, column), graph.constant([1], np.int64), keepdims=0
    )
    length = graph.op("ReduceL2", total, graph.constant([1], np.int64), keepdims=1)
    graph.op("Div", total, length, name="embedding")
