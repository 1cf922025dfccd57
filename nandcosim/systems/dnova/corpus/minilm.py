"""all-MiniLM-L6-v2 as an ONNX graph, built from its published weights.

The encoder is a 6-layer BERT (Devlin et al. 2019, arXiv:1810.04805) distilled by
Wang et al. 2020 (MiniLM, arXiv:2002.10957); a sentence is the mean of its token
vectors, scaled to length 1 (Reimers & Gurevych 2019, arXiv:1908.10084).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx

__all__ = ["DIMENSION", "GRAPH_VERSION", "MAX_TOKENS", "build_graph"]

DIMENSION = 384
#: Tokens kept of a text, as the published model is configured.
MAX_TOKENS = 256
#: Raise when the graph changes, so that cached graphs are rebuilt.
GRAPH_VERSION = 1

_LAYERS = 6
_HEADS = 12
_HEAD_SIZE = DIMENSION // _HEADS
_LAYER_NORM_EPSILON = 1e-12
#: Added to the attention score of padding: its softmax weight underflows to 0.
_MASKED = -1e9
#: First opset with Gelu, and the file format version that came with it.
_OPSET, _IR_VERSION = 20, 9


class _Builder:
    """Collects nodes and constants; every method returns the name of its output."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy_helper = helper, numpy_helper
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

    def linear(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """x (b, s, i) times weight (o, i) transposed, plus bias (o,)."""
        product = self.op("MatMul", x, self.constant(weight.T))
        return self.op("Add", product, self.constant(bias))

    def layer_norm(self, x: str, weights: Mapping[str, NDArray[np.float32]], key: str) -> str:
        scale = self.constant(weights[f"{key}.weight"])
        bias = self.constant(weights[f"{key}.bias"])
        return self.op("LayerNormalization", x, scale, bias, epsilon=_LAYER_NORM_EPSILON)


def build_graph(weights: Mapping[str, NDArray[np.float32]], path: Path) -> None:
    """Write the encoder as one ``.onnx`` file.

    Inputs of the graph are ``input_ids`` and ``attention_mask``, int64 (b, s);
    its output is ``embedding``, float32 (b, 384), rows of length 1.

    Parameters
    ----------
    weights : Mapping
        Tensors by their published names.
    path : Path

    Raises
    ------
    KeyError
        If a tensor is missing, so that the weights are not this model's.
    """
    import onnx
    from onnx import TensorProto, helper

    graph = _Builder()
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = _embed_tokens(graph, weights)
    penalty = _attention_penalty(graph, mask)
    for layer in range(_LAYERS):
        hidden = _layer(graph, weights, f"encoder.layer.{layer}", hidden, penalty)
    _mean_of_tokens(graph, hidden, mask)

    def tokens(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])

    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", DIMENSION])
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [tokens("input_ids"), tokens("attention_mask")],
            [output],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def _embed_tokens(graph: _Builder, weights: Mapping[str, NDArray[np.float32]]) -> str:
    # a single text has segment 0 throughout: its vector is folded into the positions
    positions = (
        weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    words = graph.constant(weights["embeddings.word_embeddings.weight"])
    word = graph.op("Gather", words, "input_ids")
    length = graph.op("Shape", "input_ids", start=1, end=2)
    position = graph.op("Slice", graph.constant(positions), graph.constant([0], np.int64), length)
    return graph.layer_norm(graph.op("Add", word, position), weights, "embeddings.LayerNorm")


def _attention_penalty(graph: _Builder, mask: str) -> str:
    """0 for tokens and a large negative number for padding, (b, 1, 1, s)."""
    absent = graph.op("Sub", graph.constant(1.0), mask)
    penalty = graph.op("Mul", absent, graph.constant(_MASKED))
    return graph.op("Unsqueeze", penalty, graph.constant([1, 2], np.int64))


def _layer(
    graph: _Builder,
    weights: Mapping[str, NDArray[np.float32]],
    key: str,
    hidden: str,
    penalty: str,
) -> str:
    attended = _self_attention(graph, weights, f"{key}.attention", hidden, penalty)
    hidden = graph.layer_norm(
        graph.op("Add", hidden, attended), weights, f"{key}.attention.output.LayerNorm"
    )
    wide = graph.linear(
        hidden,
        weights[f"{key}.intermediate.dense.weight"],
        weights[f"{key}.intermediate.dense.bias"],
    )
    narrow = graph.linear(
        graph.op("Gelu", wide),
        weights[f"{key}.output.dense.weight"],
        weights[f"{key}.output.dense.bias"],
    )
    return graph.layer_norm(graph.op("Add", hidden, narrow), weights, f"{key}.output.LayerNorm")


def _self_attention(
    graph: _Builder,
    weights: Mapping[str, NDArray[np.float32]],
    key: str,
    hidden: str,
    penalty: str,
) -> str:
    heads = graph.constant([0, 0, _HEADS, _HEAD_SIZE], np.int64)

    def project(part: str, order: tuple[int, ...], scale: float = 1.0) -> str:
        projected = graph.linear(
            hidden,
            scale * weights[f"{key}.self.{part}.weight"],
            scale * weights[f"{key}.self.{part}.bias"],
        )
        return graph.op("Transpose", graph.op("Reshape", projected, heads), perm=order)

    # the scores' factor 1/sqrt(head size) is folded into the query projection
    query = project("query", (0, 2, 1, 3), 1 / math.sqrt(_HEAD_SIZE))  # (b, h, s, e)
    keys = project("key", (0, 2, 3, 1))  # (b, h, e, s)
    value = project("value", (0, 2, 1, 3))  # (b, h, s, e)
    scores = graph.op("Add", graph.op("MatMul", query, keys), penalty)
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    joined = graph.op(
        "Reshape",
        graph.op("Transpose", mixed, perm=(0, 2, 1, 3)),
        graph.constant([0, 0, DIMENSION], np.int64),
    )
    return graph.linear(
        joined, weights[f"{key}.output.dense.weight"], weights[f"{key}.output.dense.bias"]
    )


def _mean_of_tokens(graph: _Builder, hidden: str, mask: str) -> None:
    # the length-1 scaling makes the division by the token count unnecessary
    column = graph.op("Unsqueeze", mask, graph.constant([2], np.int64))
    total = graph.op(
        "ReduceSum", graph.op("Mul", hidden, column), graph.constant([1], np.int64), keepdims=0
    )
    length = graph.op("ReduceL2", total, graph.constant([1], np.int64), keepdims=1)
    graph.op("Div", total, length, name="embedding")
