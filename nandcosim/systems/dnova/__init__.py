"""D-NOVA: in-storage vector retrieval by threshold sensing along NAND strings."""

from __future__ import annotations

from nandcosim.systems.dnova.adapter import Adapter, load_adapter
from nandcosim.systems.dnova.config import Config
from nandcosim.systems.dnova.corpus import Corpus, load_corpus
from nandcosim.systems.dnova.evaluation import evaluate
from nandcosim.systems.dnova.ivf import IvfIndex, SearchResult
from nandcosim.systems.dnova.noise import SensingNoise

__all__ = [
    "Adapter",
    "Config",
    "Corpus",
    "IvfIndex",
    "SearchResult",
    "SensingNoise",
    "evaluate",
    "load_adapter",
    "load_corpus",
]
