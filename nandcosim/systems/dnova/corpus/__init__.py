"""Text collections as embedding vectors: the shipped one, a user's own, and how to make one.

============== ========================================================================
module         what it holds
============== ========================================================================
collection     `Corpus`: documents, queries and judgements, checked on construction
formats        `load_corpus`: ``.npy``, ``.parquet``, ann-benchmarks HDF5, BEIR folders
judgements     relevance judgement (qrels) files
packed         the compact ``.npz`` that ships
description    the ``.toml`` beside a corpus: licence, provenance, digests
passages       text files to encode: ``.txt``, ``.csv``, ``.jsonl``
encoder        `encode` and `encode_corpus`: text to vectors
models         which encoders there are, and where their weights are found
transformer    an encoder as an ONNX graph
minilm, mpnet  the two encoders' architectures
cache          the folder where graphs and corpora are kept
quality        exact-search recall and reciprocal rank of a corpus
texts          documents, queries and judgements as text: splits, and parts for a trial
wordnet        makes the shipped corpus out of two Debian packages
dictionaries   reads those two
wordnet_full   all of WordNet as texts
debian         Debian's package descriptions as texts
debian_archive fetches from the Debian archive
built          `BUILT`: the corpora built on demand, and where they are kept
build          builds one
============== ========================================================================
"""

from __future__ import annotations

from nandcosim.systems.dnova.corpus.built import BUILT
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.corpus.encoder import encode, encode_corpus
from nandcosim.systems.dnova.corpus.formats import SHIPPED, load_corpus
from nandcosim.systems.dnova.corpus.quality import ExactQuality, exact_quality

__all__ = [
    "BUILT",
    "SHIPPED",
    "Corpus",
    "ExactQuality",
    "encode",
    "encode_corpus",
    "exact_quality",
    "load_corpus",
]
