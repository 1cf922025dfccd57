"""all-mpnet-base-v2: a 12-layer MPNet (Song et al. 2020, arXiv:2004.09297).

It differs from BERT in that the attention score of two tokens gets a bias that depends
on how far they are apart, the same in all layers (Raffel et al. 2020, arXiv:1910.10683,
section 2.1).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nandcosim.systems.dnova.corpus.transformer import Architecture, Weights, write_graph

__all__ = ["ARCHITECTURE", "GRAPH_VERSION", "MAX_TOKENS", "build_graph", "distance_class"]

#: Tokens kept of a text, as the published model is configured.
MAX_TOKENS = 384
#: Raise when the graph changes, so that cached graphs are rebuilt.
GRAPH_VERSION = 1

ARCHITECTURE = Architecture(
    name="all-mpnet-base-v2",
    dimension=768,
    layers=12,
    heads=12,
    layer_norm_epsilon=1e-5,
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    output="attention.attn.o",
    norm="attention.LayerNorm",
)

#: Rows of the position table before that of the first token: it counts from the padding's.
_FIRST_POSITION = 2
#: Distance from which on all fall in the last class.
_FAR = 128


def distance_class(distance: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Class of the distance between two tokens.

    Half of the classes are for each direction. Of these, half hold one distance each
    from 0 on, the others grow logarithmically up to 128 (Raffel et al. 2020, section 2.1).

    Parameters
    ----------
    distance : ndarray of int
        Place of the token attended to, minus that of the one attending.
    classes : int
        Divisible by 4.

    Returns
    -------
    ndarray of int
        From 0 to ``classes - 1``, in the shape of `distance`.
    """
    one_way = classes // 2
    single = one_way // 2
    size = np.abs(distance)
    growth = np.log(np.maximum(size, single) / single) / math.log(_FAR / single)
    # rounded first: the logarithm of an exact power may end just below it
    wide = single + np.floor(np.round(growth * (one_way - single), 9)).astype(np.int64)
    one_sided = np.where(size < single, size, np.minimum(wide, one_way - 1))
    return one_sided + np.where(distance > 0, one_way, 0)


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
    table = weights["encoder.relative_attention_bias.weight"]  # (classes, heads)
    place = np.arange(MAX_TOKENS)
    classes = distance_class(place[None, :] - place[:, None], len(table))
    positions = weights["embeddings.position_embeddings.weight"]
    write_graph(
        ARCHITECTURE,
        weights,
        path,
        positions=positions[_FIRST_POSITION : _FIRST_POSITION + MAX_TOKENS],
        position_bias=np.moveaxis(table[classes], -1, 0),
    )
