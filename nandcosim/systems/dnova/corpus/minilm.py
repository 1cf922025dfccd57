"""all-MiniLM-L6-v2: a 6-layer BERT distilled by Wang et al. 2020 (MiniLM, arXiv:2002.10957)."""

from __future__ import annotations

from pathlib import Path

from nandcosim.systems.dnova.corpus.transformer import Architecture, Weights, write_graph

__all__ = ["ARCHITECTURE", "GRAPH_VERSION", "MAX_TOKENS", "build_graph"]

#: Tokens kept of a text, as the published model is configured.
MAX_TOKENS = 256
#: Raise when the graph changes, so that cached graphs are rebuilt.
GRAPH_VERSION = 1

ARCHITECTURE = Architecture(
    name="all-MiniLM-L6-v2",
    dimension=384,
    layers=6,
    heads=12,
    layer_norm_epsilon=1e-12,
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    norm="attention.output.LayerNorm",
)


def build_graph(weights: Weights, path: Path) -> None:
    """Write the encoder as one ``.onnx`` file.

    Parameters
    ----------
    weights : Mapping
    path : Path

    Raises
    ------
    KeyError
        If a tensor is missing, so that the weights are not this model's.
    """
    # a single text has segment 0 throughout: its vector is folded into the positions
    positions = (
        weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    write_graph(ARCHITECTURE, weights, path, positions=positions)
