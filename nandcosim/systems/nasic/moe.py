"""Shapes of mixtures of experts: how many weights an expert has, and how many are routed to.

A model is one of a table of published ones, or any whose config.json is of a family in
`moe_families`.
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
from nandcosim.systems.nasic.moe_families import FAMILIES
from nandcosim.systems.nvllm import config_json
from nandcosim.systems.nvllm.families import FAMILIES as DENSE

__all__ = ["MoeShape", "load_moe", "moe_names", "moe_shapes"]


@dataclass(frozen=True)
class MoeShape:
    """Sizes of a decoder with routed experts; every count is of numbers.

    Attributes
    ----------
    name : str
        As asked for.
    hidden, expert_ffn : int
        Width of the residual stream, and inside a routed expert.
    moe_layers, layers : int
        Layers with experts, and all.
    experts, top_k : int
        Routed experts of a layer, and how many of them a token is routed to.
    ffn_matrices : int
        Of an expert: 3, a gate, up and down.
    shared_ffn : int
        Width inside the always-on experts of a layer, all together.
    dense_ffn : int
        Width inside the FFN of layers without experts.
    heads, attention_weights : int
        Heads of queries; matrices of attention in all layers.
    vocab : int
    tied_head : bool
        The output projection is the table of input embeddings.
    other_weights : int
        Norms, biases and gates of shared experts.

    Raises
    ------
    InputError
        If a size is below what makes sense, or `top_k` is above `experts`.
    """

    name: str
    hidden: int
    expert_ffn: int
    moe_layers: int
    layers: int
    experts: int
    top_k: int
    ffn_matrices: int = 3
    shared_ffn: int = 0
    dense_ffn: int = 0
    heads: int = 0
    attention_weights: int = 0
    vocab: int = 0
    tied_head: bool = False
    other_weights: int = 0

    def __post_init__(self) -> None:
        for size in ("hidden", "expert_ffn", "moe_layers", "experts", "top_k"):
            if getattr(self, size) < 1:
                self._refuse(size, "1 or more")
        if self.ffn_matrices < 2:
            self._refuse("ffn_matrices", "2 or more: up and down")
        if self.top_k > self.experts:
            self._refuse("top_k", f"at most experts = {self.experts}")
        if self.layers < self.moe_layers:
            self._refuse("layers", f"at least moe_layers = {self.moe_layers}")

    @property
    def expert_weights(self) -> int:
        """Matrices of one routed expert."""
        return self.ffn_matrices * self.hidden * self.expert_ffn

    @property
    def shared_weights(self) -> int:
        """Matrices of the always-on experts of one layer."""
        return self.ffn_matrices * self.hidden * self.shared_ffn

    @property
    def routed_weights(self) -> int:
        """Matrices of the routed experts of all layers."""
        return self.moe_layers * self.experts * self.expert_weights

    @property
    def active_weights(self) -> int:
        """Matrices of experts that a token passes through in all layers, always-on ones too."""
        return self.moe_layers * (self.top_k * self.expert_weights + self.shared_weights)

    @property
    def ratio(self) -> float:
        """Share of the routed experts that a token is routed to (r of the paper)."""
        return self.top_k / self.experts

    @property
    def router_weights(self) -> int:
        """Matrices of the routers of all layers."""
        return self.moe_layers * self.experts * self.hidden

    @property
    def dense_weights(self) -> int:
        """FFNs of the layers without experts."""
        return (self.layers - self.moe_layers) * self.ffn_matrices * self.hidden * self.dense_ffn

    @property
    def parameters(self) -> int:
        """All weights of the model."""
        of_experts = self.routed_weights + self.moe_layers * self.shared_weights
        tables = (1 if self.tied_head else 2) * self.vocab * self.hidden
        rest = self.router_weights + self.dense_weights + self.attention_weights
        return of_experts + rest + tables + self.other_weights

    def _refuse(self, size: str, allowed: str) -> None:
        found = getattr(self, size)
        raise InputError(f"{self.name}: {size}: found {found}, allowed: {allowed}")


_SIZES = {
    "hidden": "width of the residual stream",
    "expert_ffn": "width inside a routed expert",
    "ffn_matrices": "matrices of an expert",
    "moe_layers": "layers with experts",
    "layers": "decoder layers",
    "experts": "routed experts of a layer",
    "top_k": "experts a token is routed to",
    "shared_ffn": "width inside the always-on experts of a layer",
    "ratio": "share of the routed experts that a token is routed to",
    "expert_weights": "matrices of a routed expert",
    "shared_weights": "matrices of the always-on experts of a layer",
    "routed_weights": "matrices of the routed experts of all layers",
    "active_weights": "matrices of experts that a token passes through",
    "router_weights": "matrices of the routers of all layers",
    "dense_weights": "FFNs of the layers without experts",
    "attention_weights": "matrices of attention in all layers",
    "parameters": "all weights",
}


def moe_names() -> tuple[str, ...]:
    """Names of the published models that are known."""
    return tuple(_published())


def load_moe(name: str | Path) -> MoeShape:
    """Shape of a published model, or of a config.json or a folder that holds one.

    Parameters
    ----------
    name : str or Path
        A name of `moe_names`; anything else is taken for a path if there is a file or
        folder of that name, or if it looks like one.

    Raises
    ------
    InputError
        If the name is unknown, the file cannot be read, or its model has no routed experts
        or is not covered.
    """
    document, where = config_json.find(name, _published())
    return _shape(document, str(name), where)


def moe_shapes(names: str | tuple[str, ...]) -> xr.Dataset:
    """Sizes of one model or several.

    Parameters
    ----------
    names : str or tuple of str
        As `load_moe` takes them.

    Returns
    -------
    xarray.Dataset
        Sizes and properties of `MoeShape` as float variables along ``model``, labelled with
        the names as given; without a dimension for a single str.

    Raises
    ------
    InputError
        As `load_moe`, or if a name is given twice.
    """
    return config_json.along_model(names, load_moe, _SIZES)


@cache
def _published() -> Mapping[str, Mapping[str, Any]]:
    table = resources.files("nandcosim.systems.nasic") / "data" / "moe.toml"
    return tomllib.loads(table.read_text())


def _shape(document: Mapping[str, Any], name: str, where: str) -> MoeShape:
    model_type = document.get("model_type")
    if model_type in list(DENSE):
        raise InputError(
            f"{where}: model_type: found {model_type!r}, a dense model without experts to route "
            f"to; allowed: {', '.join(FAMILIES)}"
        )
    config = config_json.checked(document, FAMILIES, where)
    return MoeShape(
        name=name,
        hidden=config.hidden_size,
        expert_ffn=config.expert_width,
        moe_layers=config.moe_layers,
        layers=config.num_hidden_layers,
        experts=config.num_local_experts,
        top_k=config.num_experts_per_tok,
        ffn_matrices=config.ffn_matrices,
        shared_ffn=config.shared_width,
        dense_ffn=config.intermediate_size,
        heads=config.num_attention_heads,
        attention_weights=config.attention_weights,
        vocab=config.vocab_size,
        tied_head=config.tie_word_embeddings,
        other_weights=config.other_weights,
    )
