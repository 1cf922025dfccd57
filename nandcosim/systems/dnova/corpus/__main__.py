"""Exact-search quality of a corpus: ``python -m nandcosim.systems.dnova.corpus CORPUS``.

``--reencode`` compares the stored vectors with fresh ones made from the corpus's own texts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from nandcosim.studies import one_line_errors
from nandcosim.systems.dnova.corpus.formats import load_corpus
from nandcosim.systems.dnova.corpus.models import MODELS
from nandcosim.systems.dnova.corpus.quality import (
    ExactQuality,
    cosine_error,
    exact_quality,
    reencoded,
)


def _row(label: str, quality: ExactQuality) -> str:
    cells = "  ".join(f"{key} {value:.4g}" for key, value in asdict(quality).items())
    return f"{label:<8} {cells}"


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the exact-search quality of a corpus."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.dnova.corpus", description=main.__doc__
    )
    parser.add_argument("corpus", help="name of a shipped or built corpus, or a path")
    parser.add_argument("--split", default="test")
    parser.add_argument(
        "--reencode",
        nargs="?",
        const="fp32",
        choices=("fp32", "int8"),
        help="also encode the texts afresh, with the encoder's weights in this precision",
    )
    parser.add_argument("--encoder", default="minilm", choices=tuple(MODELS), help="for --reencode")
    options = parser.parse_args(arguments)
    corpus = load_corpus(options.corpus, split=options.split)
    print(_row("stored", exact_quality(corpus)))
    if options.reencode:
        fresh = reencoded(corpus, options.reencode, encoder=options.encoder)
        print(_row(options.reencode, exact_quality(fresh)))
        mean, worst = cosine_error(corpus, fresh)
        print(f"1 - cosine(stored, {options.reencode}): mean {mean:.3g}, largest {worst:.3g}")


if __name__ == "__main__":
    sys.exit(main())
