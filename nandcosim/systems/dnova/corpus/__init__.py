"""Text collections as embedding vectors: the shipped one, a user's own, and how to make one.

============ ==========================================================================
module       what it holds
============ ==========================================================================
collection   `Corpus`: documents, queries and judgements, checked on construction
formats      `load_corpus`: ``.npy``, ``.parquet``, ann-benchmarks HDF5, BEIR folders
judgements   relevance judgement (qrels) files
packed       the compact ``.npz`` that ships
passages     text files to encode: ``.txt``, ``.csv``, ``.jsonl``
encoder      `encode` and `encode_corpus`: text to vectors
minilm       the sentence encoder as an ONNX graph
quality      exact-search recall and reciprocal rank of a corpus
wordnet      makes the shipped corpus out of two Debian packages
dictionaries reads those two
============ ==========================================================================
"""

from __future__ import annotations

from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.corpus.encoder import encode, encode_corpus
from nandcosim.systems.dnova.corpus.formats import SHIPPED, load_corpus
from nandcosim.systems.dnova.corpus.quality import ExactQuality, exact_quality

__all__ = [
    "SHIPPED",
    "Corpus",
    "ExactQuality",
    "encode",
    "encode_corpus",
    "exact_quality",
    "load_corpus",
]
