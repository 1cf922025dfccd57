"""SmolLM2-135M with experts in NASiC's array: losses, admissible inputs, perplexity, routing.

::

    python -m nandcosim.systems.nasic.accuracy_study cosine --set sigma=0.05,0.1 --limit 0.01
    python -m nandcosim.systems.nasic.accuracy_study perplexity --set sigma=0.05,0.1
    python -m nandcosim.systems.nasic.accuracy_study disturbed
    python -m nandcosim.systems.nasic.accuracy_study experts --top-k 28 24 16

``cosine``      loss of the experts' outputs; with --limit, the admissible input dimension;
``perplexity``  the whole model run in the array;
``disturbed``   perplexity against cosine loss, without the array;
``experts``     perplexity and load of the experts by how many a token goes to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import get_args

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.progress import counted_progress
from nandcosim.studies import one_line_errors, split_settings
from nandcosim.systems.nasic.accuracy import cosine_loss, disturbed, perplexity
from nandcosim.systems.nasic.admissible import largest_rows
from nandcosim.systems.nasic.array import Mode, ReadoutFields
from nandcosim.systems.nasic.expert_files import load_sample
from nandcosim.systems.nasic.experts import MoeModel, RoutingSample, moefied
from nandcosim.systems.nvllm.probes import Probe, dictionary_text, read_text, windows
from nandcosim.systems.nvllm.smollm import Checkpoint, load_checkpoint
from nandcosim.systems.nvllm.transformer import Tokens
from nandcosim.tables import load_tables

__all__ = ["main", "table_lines"]

_LOSSES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]


@dataclass(frozen=True)
class _Text:
    """A text in windows, and its digest."""

    windows: Tokens
    digest: str


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print what NASiC's array does to a model with experts."""
    options = _parser().parse_args(arguments)
    if options.seeds < 1:
        raise InputError(f"--seeds: found {options.seeds}, allowed: 1 or more")
    if options.set and options.study not in ("cosine", "perplexity"):
        raise InputError(f"--set: no effect on {options.study}, allowed: cosine, perplexity")
    _STUDIES[options.study](options)


def _cosine(options: argparse.Namespace) -> None:
    sample, provenance = _sample(options)
    part = sample.part(options.layers, options.sampled, options.first)
    tables, config = load_tables(options.tables), _config(options)
    with counted_progress("cosine", "points") as progress:
        result = cosine_loss(part, config, tables, range(options.seeds), options.mode, progress)
    result.attrs = {
        **provenance,
        "sample": f"{options.layers} layers, {part.layers[0].count} experts of each",
        "mode": options.mode,
        "settings": config.model_dump_json(),
        **{f"table_{name}": tables[name].digest for name in ("cim_string", "cam_string")},
    }
    print(f"{sample.name}: {options.layers} layers, {options.sampled} tokens")
    print("\n".join(table_lines(result["cosine_loss"].mean(("seed", "token")).to_dataset())))
    if options.limit is not None and "input_rows" in result.dims:
        print(f"largest input dimension within a cosine loss of {options.limit:g}, 95 % interval")
        print("\n".join(table_lines(largest_rows(result["cosine_loss"], options.limit))))
    if options.out is not None:
        packed = {"cosine_loss": {"dtype": "float32", "zlib": True}}
        result.to_netcdf(options.out, engine="h5netcdf", encoding=packed)


def _perplexity(options: argparse.Namespace) -> None:
    checkpoint, text = _model_and_text(options)
    model = moefied(checkpoint, options.experts, options.top_k[0])
    tables = load_tables(options.tables)
    with counted_progress("perplexity", "points") as progress:
        result = perplexity(
            model, text.windows, _config(options), tables, range(options.seeds), progress
        )
    unquantised = Probe(text.windows).score(model.transformer()).perplexity
    print(f"{model.name}: {text.windows[:, 1:].size} tokens, float32 {unquantised:.2f}")
    log = xr.DataArray(np.log(result["perplexity"]))
    mean = xr.DataArray(np.exp(log.mean("seed")))
    shown = {"perplexity": mean, "exact": result["exact_perplexity"]}
    if options.seeds > 1:
        shown["sd_of_ln"] = log.std("seed", ddof=1)
    print("\n".join(table_lines(xr.Dataset(shown))))
    if options.out is not None:
        result.to_netcdf(options.out, engine="h5netcdf")


def _disturbed(options: argparse.Namespace) -> None:
    checkpoint, text = _model_and_text(options)
    model = moefied(checkpoint, options.experts, options.top_k[0])
    print(f"{model.name}: ln of perplexity over the undisturbed, (sd over seeds)")
    print("cosine loss   all tokens         first of a window spared")
    seeds = range(options.seeds)
    everywhere, spared = (
        disturbed(model, text.windows, options.losses, seeds, first) for first in (0, 1)
    )
    for loss in options.losses:
        all_of_it, rest = (found.sel(cosine_loss=loss) for found in (everywhere, spared))
        print(
            f"{loss:>11.1e}   {float(all_of_it.mean()):.4f} ({float(all_of_it.std()):.4f})"
            f"    {float(rest.mean()):.4f} ({float(rest.std()):.4f})"
        )


def _experts(options: argparse.Namespace) -> None:
    checkpoint, text = _model_and_text(options)
    made = moefied(checkpoint, options.experts, options.experts)
    print(f"{made.name}; router: oracle, or learnt from {options.learn} tokens")
    learn = windows(_tokens(checkpoint, options)[options.tokens :], options.learn, options.window)
    learnt = made.with_learnt_routers(learn[:, :-1])
    print("top-k  perplexity  learnt  load max/mean  overlap with previous token")
    for k in options.top_k:
        model = replace(made, top_k=k)
        oracle, other = (
            Probe(text.windows).score(m.transformer()).perplexity
            for m in (model, replace(learnt, top_k=k))
        )
        skew, overlap = _load(model, text.windows)
        print(f"{k:>5}  {oracle:>10.2f}  {other:>6.1f}  {skew:>13.2f}  {overlap:>7.2f}", flush=True)


def _load(model: MoeModel, text: Tokens) -> tuple[float, float]:
    """Largest load over the mean, and the share of experts a token has in common with the last.

    Means over layers; the last token of a window is not followed by the next one's first.
    """
    inputs = text[:, :-1]
    chosen = np.zeros((*inputs.shape, len(model.layers), model.layers[0].count), bool)
    ids = model.sample(inputs).trace.reshape(*chosen.shape[:3], -1)
    np.put_along_axis(chosen, ids, True, axis=-1)
    load = chosen.mean(axis=(0, 1))
    common = (chosen[:, 1:] & chosen[:, :-1]).sum(axis=-1) / model.top_k
    return float((load.max(axis=-1) / load.mean(axis=-1)).mean()), float(common.mean())


def table_lines(result: xr.Dataset) -> Iterator[str]:
    """A heading, then a line for every point."""
    frame = result.to_dataframe().reset_index() if result.dims else result.to_pandas().to_frame().T
    yield "".join(f"  {name:>14}" for name in frame.columns)
    for row in frame.itertuples(index=False):
        cells = (f"{c:>14.4g}" if isinstance(c, float | int) else f"{c!s:>14}" for c in row)
        yield "".join(f"  {cell}" for cell in cells)


def _tokens(checkpoint: Checkpoint, options: argparse.Namespace) -> list[int]:
    text = dictionary_text() if options.text is None else read_text(options.text)
    return checkpoint.tokenizer.encode(text)


def _model_and_text(options: argparse.Namespace) -> tuple[Checkpoint, _Text]:
    checkpoint = load_checkpoint()
    cut = windows(_tokens(checkpoint, options), options.tokens, options.window)
    return checkpoint, _Text(cut, blake2b(cut.tobytes(), digest_size=8).hexdigest())


def _sample(options: argparse.Namespace) -> tuple[RoutingSample, dict[str, str]]:
    if options.sample is not None:
        own = load_sample(options.sample, options.trace)
        return own, {"model": own.name}
    checkpoint, text = _model_and_text(options)
    model = moefied(checkpoint, options.experts, options.top_k[0])
    return model.sample(text.windows[:, :-1]), {"model": model.name, "text": text.digest}


def _config(options: argparse.Namespace) -> ReadoutFields:
    return ReadoutFields.from_settings(split_settings(options.set), "--set")


_STUDIES: dict[str, Callable[[argparse.Namespace], None]] = {
    "cosine": _cosine,
    "perplexity": _perplexity,
    "disturbed": _disturbed,
    "experts": _experts,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nasic.accuracy_study", description=main.__doc__
    )
    parser.add_argument("study", choices=_STUDIES)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE[,VALUE]")
    parser.add_argument("--experts", type=int, default=32, help="experts an FFN is split into")
    parser.add_argument("--top-k", nargs="+", type=int, default=[28], help="experts of a token")
    parser.add_argument("--tokens", type=int, default=512, help="a multiple of --window")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=2, help="arrays with errors of their own")
    parser.add_argument("--layers", type=int, default=3, help="cosine: layers, evenly spread")
    parser.add_argument("--sampled", type=int, default=32, help="cosine: tokens, evenly spread")
    parser.add_argument("--first", type=int, help="cosine: experts of a layer, default: all")
    parser.add_argument("--mode", choices=get_args(Mode), default="moments", help="cosine")
    parser.add_argument("--limit", type=float, help="cosine: loss allowed")
    parser.add_argument("--losses", nargs="+", type=float, default=_LOSSES, help="disturbed")
    parser.add_argument("--learn", type=int, default=1536, help="experts: tokens to learn from")
    parser.add_argument("--text", type=Path, help="default: entries of WordNet")
    parser.add_argument("--sample", type=Path, help="cosine: experts of your own, .npz")
    parser.add_argument("--trace", type=Path, help="cosine: their routing, .npy")
    parser.add_argument("--tables", type=Path, help="folder of tables, default: those shipped")
    parser.add_argument("--out", type=Path, help="netCDF file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
