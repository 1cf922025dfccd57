"""Perplexity and accuracy of SmolLM2-135M against bit errors.

::

    python -m nandcosim.systems.nvllm.quality_study --set rber=1e-5,1e-4,1e-3

prints the model in float32 and in INT8 without errors, then one line a point and mode: means
over the reads (seeds) with their 95 % interval. Settings are those of `HardwareFields`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path
from typing import get_args

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.progress import counted_progress
from nandcosim.studies import one_line_errors, split_settings
from nandcosim.systems.nvllm.erdpe import Uncorrectable
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.int8 import Activations
from nandcosim.systems.nvllm.probes import (
    Probe,
    Score,
    dictionary_text,
    read_text,
    windows,
    word_questions,
)
from nandcosim.systems.nvllm.quality import MODES, SCORES, quality, summary
from nandcosim.systems.nvllm.smollm import Checkpoint, load_checkpoint
from nandcosim.systems.nvllm.stored_model import PARTS, quantised
from nandcosim.tables import load_tables

__all__ = ["main", "table_lines"]

_RATES = "1e-6,1e-5,1e-4,1e-3,1e-2"


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print what bit errors do to SmolLM2."""
    options = _parser().parse_args(arguments)
    config = _config(options)
    if options.seeds < 1:
        raise InputError(f"--seeds: found {options.seeds}, allowed: 1 or more")
    checkpoint = load_checkpoint()
    probe = _probe(checkpoint, options)
    with counted_progress("quality", "reads") as progress:
        result = quality(
            config,
            quantised(checkpoint, options.parts, options.activations),
            probe.score,
            load_tables(options.tables),
            modes=options.modes,
            seeds=range(options.seeds),
            uncorrectable=options.uncorrectable,
            progress=progress,
        )
    unquantised = probe.score(checkpoint.transformer())
    without_errors = Score(*(float(result.get(f"stored_{name}", nan)) for name in SCORES))
    print(f"{checkpoint.name}, {options.tokens} tokens, {options.seeds} reads")
    for name, score in (("float32", unquantised), ("stored", without_errors)):
        answers = f", answers {score.answers:.3f}" if options.questions else ""
        print(f"{name}: perplexity {score.perplexity:.2f}, accuracy {score.accuracy:.3f}{answers}")
    for line in table_lines(result):
        print(line)
    if options.out is not None:
        result.to_netcdf(options.out, engine="h5netcdf")


def table_lines(result: xr.Dataset) -> Iterator[str]:
    """A heading, then a line for every point and mode of a result of `quality`."""
    axes = [str(name) for name in result["flipped_bits"].dims if name != "seed"]
    means = summary(result)
    answers = "  answers" if "answers" in means else ""
    heading = "".join(f"  {name:>10}" for name in axes)
    yield (
        f"{heading}  read RBER  mode        perplexity (95 % interval)         accuracy{answers}"
        "   wrong weights  uncorrectable"
    )
    shape = [result.sizes[name] for name in axes]
    for index in np.ndindex(*shape):
        here = dict(zip(axes, index, strict=True))
        point = means.isel(here)
        values = "".join(f"  {point[name].item():>10.4g}" for name in axes)
        rate = float(result["rber_read"].isel(here, missing_dims="ignore"))
        lost = float(point["segments"].sel(outcome=["detected", "miscorrected"]).sum())
        share = lost / float(point["segments"].sum())
        for mode in result["mode"].values:
            at = point.sel(mode=mode)
            limits = f"({float(at['perplexity_low']):.4g} to {float(at['perplexity_high']):.4g})"
            told = f"  {float(at['answers']):>7.3f}" if answers else ""
            yield (
                f"{values}  {rate:>9.2e}  {mode:<8} {float(at['perplexity']):>13.5g} {limits:<26}"
                f"  {float(at['accuracy']):>6.3f}{told}  {float(at['wrong_weights']):>13.4g}"
                f"  {share:>11.2e}"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.quality_study", description=main.__doc__
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="K=V",
        dest="settings",
        help="setting of the hardware, as rber=1e-5,1e-4 or rber_source=aged; may be repeated",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="in flash")
    parser.add_argument("--activations", choices=get_args(Activations), default="int8")
    parser.add_argument("--uncorrectable", choices=get_args(Uncorrectable), default="keep")
    parser.add_argument("--seeds", type=int, default=3, help="reads of all weights")
    parser.add_argument("--tokens", type=int, default=512, help="a multiple of --window")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--questions", type=int, default=0, help="definitions to find words for")
    parser.add_argument("--text", type=Path, help="default: entries of WordNet")
    parser.add_argument("--tables", type=Path, help="folder of tables, default: those shipped")
    parser.add_argument("--out", type=Path, help="netCDF file for the result")
    return parser


def _config(options: argparse.Namespace) -> HardwareFields:
    settings = split_settings(options.settings)
    if "rber_source" not in settings:
        settings.setdefault("rber", _RATES)
    return HardwareFields.from_settings(settings, "--set")


def _probe(checkpoint: Checkpoint, options: argparse.Namespace) -> Probe:
    text = dictionary_text() if options.text is None else read_text(options.text)
    tokens = checkpoint.tokenizer.encode(text)
    questions = (
        word_questions(checkpoint.tokenizer, options.questions) if options.questions else None
    )
    return Probe(windows(tokens, options.tokens, options.window), questions)


if __name__ == "__main__":
    sys.exit(main())
