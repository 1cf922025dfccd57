"""Shapes of decoder models: how many weights each stage of a token reads.

A model is one of a table of published ones, or any decoder whose config.json is of a
family in `families`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import config_json
from nandcosim.systems.nvllm.families import FAMILIES

__all__ = ["ModelShape", "load_model", "model_names", "shapes"]


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder; every count is of numbers, one byte each at INT8.

    Attributes
    ----------
    name : str
        As asked for.
    layers, hidden, ffn : int
        Decoder layers, width of the residual stream, width inside the FFN.
    ffn_matrices : int
        2 (up, down), or 3 with a gate.
    heads, kv_heads, head_dim : int
        Heads of queries, of keys and values, and their components.
    vocab : int
    tied_head : bool
        The output projection is the table of input embeddings.
    other_weights : int
        Norms, biases and learnt positions.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    ffn_matrices: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied_head: bool
    other_weights: int = 0

    @property
    def ffn_weights(self) -> int:
        """Matrices of all FFNs."""
        return self.layers * self.ffn_matrices * self.hidden * self.ffn

    @property
    def attention_weights(self) -> int:
        """Q, K, V and O of all layers."""
        return self.layers * 2 * (self.heads + self.kv_heads) * self.head_dim * self.hidden

    @property
    def head_weights(self) -> int:
        """Output projection to the vocabulary."""
        return self.vocab * self.hidden

    @property
    def embedding_weights(self) -> int:
        """Table of input embeddings where it is one of its own: 0 with a tied head."""
        return 0 if self.tied_head else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All there are: the four kinds of matrices and `other_weights`."""
        matrices = self.ffn_weights + self.attention_weights + self.head_weights
        return matrices + self.embedding_weights + self.other_weights

    @property
    def kv_values(self) -> int:
        """Values that a token adds to the KV cache, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


_SIZES = {
    "layers": "decoder layers",
    "hidden": "width of the residual stream",
    "ffn": "width inside the FFN",
    "ffn_matrices": "matrices of an FFN",
    "heads": "heads of queries",
    "kv_heads": "heads of keys and values",
    "head_dim": "components of a head",
    "vocab": "vocabulary",
    "tied_head": "1 if the output projection is the table of input embeddings",
    "ffn_weights": "matrices of all FFNs",
    "attention_weights": "Q, K, V and O of all layers",
    "head_weights": "output projection to the vocabulary",
    "embedding_weights": "table of input embeddings, 0 with a tied head",
    "other_weights": "norms, biases and learnt positions",
    "parameters": "all weights",
    "kv_values": "values a token adds to the KV cache",
}


def model_names() -> tuple[str, ...]:
    """Names of the published models that are known."""
    return tuple(_published())


def load_model(name: str | Path) -> ModelShape:
    """Shape of a published model, or of a config.json or a folder that holds one.

    Parameters
    ----------
    name : str or Path
        A name of `model_names`; anything else is taken for a path if there is a file or
        folder of that name, or if it looks like one.

    Raises
    ------
    InputError
        If the name is unknown, the file cannot be read, or its model is not covered.
    """
    document, where = config_json.find(name, _published())
    return _shape(document, str(name), where)


def shapes(names: str | tuple[str, ...]) -> xr.Dataset:
    """Sizes of one model or several.

    Parameters
    ----------
    names : str or tuple of str
        As `load_model` takes them.

    Returns
    -------
    xarray.Dataset
        Every size and property of `ModelShape` as a float variable along ``model``,
        labelled with the names as given; without a dimension for a single str.

    Raises
    ------
    InputError
        As `load_model`, or if a name is given twice.
    """
    return config_json.along_model(names, load_model, _SIZES)


@cache
def _published() -> Mapping[str, Mapping[str, Any]]:
    table = resources.files("nandcosim.systems.nvllm") / "data" / "models.toml"
    return tomllib.loads(table.read_text())


def _shape(document: Mapping[str, Any], name: str, where: str) -> ModelShape:
    _refuse_other_kinds(document, where)
    config = config_json.checked(document, FAMILIES, where)
    return ModelShape(
        name=name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        ffn=config.ffn_width,
        ffn_matrices=config.ffn_matrices,
        heads=config.num_attention_heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_width,
        vocab=config.vocab_size,
        tied_head=config.tie_word_embeddings,
        other_weights=config.other_weights,
    )


def _refuse_other_kinds(document: Mapping[str, Any], where: str) -> None:
    kinds = {
        "is_encoder_decoder": "a decoder with an encoder",
        "num_experts": "a mixture of experts",
        "num_local_experts": "a mixture of experts",
        "n_routed_experts": "a mixture of experts",
        "text_config": "a model of text and images",
    }
    for key, kind in kinds.items():
        if document.get(key):
            raise InputError(
                f"{where}: {key}: found {kind}, which is not covered; allowed: decoders of "
                f"model_type {', '.join(FAMILIES)}"
            )
