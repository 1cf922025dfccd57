"""Routing and what it does to planes: the numbers of docs/systems/nasic_routing.md.

::

    python -m nandcosim.systems.nasic.routing_study traces uniform planes interleave gain batch

prints the parts named, all of them by default. The real trace is the first 8 of 64 experts
made from each FFN of SmolLM2-135M, ordered by what they add in the model with all of them;
``--trace FILE --experts N`` takes another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nasic.cost import CostFields, cost
from nandcosim.systems.nasic.moe import load_moe, moe_shapes
from nandcosim.systems.nasic.routing import (
    Floats,
    Trace,
    balanced,
    expected_busiest,
    load_trace,
    occupation,
    round_robin,
    serve,
    shared_experts,
    statistics,
    tiled_occupation,
    uniform_trace,
    zipf_trace,
)

__all__ = ["batch_part", "gain_part", "interleave_part", "planes_part", "real_trace", "traces_part",
           "uniform_part"]  # fmt: skip

_MODEL = "olmoe"  # 64 experts, 8 of a token, as the real trace has
_WINDOW = 256
_MODELS = ("mixtral-8x7b", "phi-3.5-moe", "olmoe", "qwen1.5-moe", "qwen3-30b-a3b", "deepseek-v3")


def real_trace(tokens: int = 1024, experts: int = 64, top_k: int = 8) -> Trace:
    """Where a dictionary's tokens go in SmolLM2 with its FFNs cut into experts.

    All experts are computed, so that the model stays what it is; the strongest are kept.

    Parameters
    ----------
    tokens : int
        A multiple of 256.
    experts, top_k : int

    Raises
    ------
    MissingExtraError
        Without the packages of the model.
    """
    from nandcosim.systems.nasic.experts import moefied, trace
    from nandcosim.systems.nvllm.probes import dictionary_text, windows
    from nandcosim.systems.nvllm.smollm import load_checkpoint

    checkpoint = load_checkpoint()
    text = checkpoint.tokenizer.encode(dictionary_text()[: 8 * tokens])
    cut = windows(text, tokens, _WINDOW)[:, :-1]
    ids = trace(moefied(checkpoint, experts, experts), cut)
    return Trace(ids[..., :top_k], experts, "smollm2")


def traces_part(load: Callable[[], Trace]) -> Iterator[str]:
    """Statistics of traces, mean over layers (least to most)."""
    real = load()
    sizes = (real.tokens, real.layers, real.experts, real.top_k)
    traces = [real, uniform_trace(*sizes), uniform_trace(*sizes, persistence=0.3)]
    traces += [zipf_trace(*sizes, exponent=s) for s in (0.25, 0.5, 1.0)]
    yield "{} tokens, {} layers, {} experts, {} a token".format(*sizes)
    titles = ("trace", "skew of load", "entropy (bit)", "overlap", "by load alone")
    yield f"{titles[0]:<18} " + " ".join(f"{title:<20}" for title in titles[1:])
    for each in traces:
        found = statistics(each)
        names = ("skew", "entropy", "overlap", "overlap_by_load")
        yield f"{each.name:<18} " + " ".join(_spread(found[name].values) for name in names)


def _spread(values: Floats) -> str:
    return f"{values.mean():6.3f} ({values.min():.2f}-{values.max():.2f})".ljust(20)


def uniform_part(_: Callable[[], Trace]) -> Iterator[str]:
    """The closed form of the busiest plane against simulation, uniform routing."""
    yield "searches on the busiest plane, 1024 batches; error: standard error of the simulation"
    yield "experts k planes batch   even  closed form  simulated  error"
    cases = product(((8, 2), (64, 8), (256, 8)), (4, 8, 16), (1, 8, 64))
    for (experts, top_k), planes, batch in cases:
        if planes > experts:
            continue
        trace = uniform_trace(1024 * batch, 1, experts, top_k, seed=1)
        served = serve(trace, occupation(round_robin(experts, planes)), batch=batch)
        sizes = np.bincount(round_robin(experts, planes))
        error = served["latency"].values.std() / 32
        yield (
            f"{experts:>7} {top_k} {planes:>6} {batch:>5} {top_k * batch / planes:>6.2f} "
            f"{expected_busiest(sizes, top_k, batch):>11.3f} "
            f"{served['busiest'].item():>11.3f} {error:>6.3f}"
        )


def planes_part(load: Callable[[], Trace]) -> Iterator[str]:
    """Experts on one plane each: searches on the busiest over an even spread."""
    real = load()
    half, sizes = real.tokens // 2, (real.tokens, real.layers, real.experts, real.top_k)
    yield "busiest plane over evenly busy planes, mean of layers; second half of the trace,"
    yield "balanced by the first one; round robin -> balanced"
    yield "trace      batch  " + "".join(f"{p:>3} planes       " for p in (4, 8, 16, 32))
    for trace, batch in product((real, uniform_trace(*sizes), zipf_trace(*sizes)), (1, 32)):
        learnt, served = trace.part(0, half), trace.part(half, real.tokens)
        texts = []
        for planes in (4, 8, 16, 32):
            dealt = occupation(round_robin(real.experts, planes))
            chosen = balanced(learnt, dealt, batch)
            ratios = [serve(served, o, batch=batch)["imbalance"].mean() for o in (dealt, chosen)]
            texts.append(" -> ".join(f"{ratio.item():5.2f}" for ratio in ratios))
        yield f"{trace.name:<10} {batch:>5}  " + "   ".join(texts)


def interleave_part(_: Callable[[], Trace]) -> Iterator[str]:
    """Models as they lie in the array, uniform routing, one token: interleaving and planes."""
    yield "token time (ms) x imbalance at interleave 1, 4, 16; (planes): those the model needs"
    for name, planes in product(_MODELS, (16, 1024)):
        shape, texts, used = load_moe(name), [], 0
        trace = uniform_trace(400, 1, shape.experts, shape.top_k, seed=1)
        trace = trace.with_shared(shared_experts(shape))
        for interleave in (1, 4, 16):
            config = CostFields(planes=planes, interleave=interleave)
            occupied = tiled_occupation(config, shape)
            served, used = serve(trace, occupied), occupied.shape[-1]
            time = served["latency"].mean().item() * shape.moe_layers
            texts.append(f"{time * 1e3:9.2f} x {served['imbalance'].item():5.2f}")
        yield f"{name:<14} {planes:>5} ({used:>5})  " + "   ".join(texts)


def gain_part(_: Callable[[], Trace]) -> Iterator[str]:
    """T1 over Base, a token at a time: in the closed form of `cost`, and routed."""
    shape, shapes = load_moe(_MODEL), moe_shapes(_MODEL)
    trace = uniform_trace(400, 1, shape.experts, shape.top_k, seed=1)
    yield f"{_MODEL}, T1 over Base: closed form, even spread -> routed, uniform (imbalance)"
    yield "planes packing     interleave 1           4                      16"
    for planes, packing in product((64, 256, 1024), ("contiguous", "whole")):
        base = cost(CostFields(planes=planes, technique="base"), shapes)["token_time"].item()
        texts = []
        for interleave in (1, 4, 16):
            config = CostFields(
                planes=planes, technique="t1", packing=packing, interleave=interleave
            )
            served = serve(trace, tiled_occupation(config, shape))
            routed = served["latency"].mean().item() * shape.moe_layers
            even = cost(config, shapes)["token_time"].item()
            ratio = served["imbalance"].item()
            texts.append(f"{base / even:5.2f} -> {base / routed:5.2f} ({ratio:4.2f})")
        yield f"{planes:>6} {packing:<11} " + "   ".join(texts)


def batch_part(load: Callable[[], Trace]) -> Iterator[str]:
    """Throughput and latency against the batch, on the array."""
    real, shape = load(), load_moe(_MODEL)
    layers = min(real.layers, shape.moe_layers)
    if (real.experts, real.top_k) != (shape.experts, shape.top_k):
        yield f"needs a trace of {shape.experts} experts, {shape.top_k} a token"
        return
    real = Trace(real.ids[:, :layers], real.experts, real.name)
    sizes = (real.tokens, layers, shape.experts, shape.top_k)
    traces = (real, uniform_trace(*sizes), zipf_trace(*sizes))
    yield f"{_MODEL}, {layers} layers; under way: batches, with layers on planes of their own"
    yield "trace    planes batch under way   tokens/s  p50 ms  p99 ms  imbalance  busy (of a layer)"
    for planes, trace in product((16, 128), traces):
        occupied = tiled_occupation(CostFields(planes=planes), shape)
        for batch, in_flight in ((1, 1), (8, 1), (64, 1), (1, 16), (8, 16)):
            found = serve(trace, occupied, batch=batch, in_flight=in_flight)
            p50, _, p99 = found["latency_percentile"].values * 1e3
            busy = found["utilisation"].mean("plane")
            used = busy.sum() if in_flight == 1 else busy.mean()
            yield (
                f"{trace.name:<8} {planes:>6} {batch:>5} {in_flight:>9} "
                f"{found['tokens_per_second'].item():>10.1f} {p50:>7.1f} {p99:>7.1f} "
                f"{found['imbalance'].mean().item():>10.2f} {used.item():>5.2f}"
            )


_PARTS = {
    "traces": traces_part,
    "uniform": uniform_part,
    "planes": planes_part,
    "interleave": interleave_part,
    "gain": gain_part,
    "batch": batch_part,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print parts of the study."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nasic.routing_study", description=main.__doc__
    )
    parser.add_argument("--trace", type=Path, help="instead of that of SmolLM2: .npy or .npz")
    parser.add_argument("--experts", type=int, help="of a layer, where the file does not say")
    parser.add_argument("--tokens", type=int, default=1024, help="of SmolLM2's trace")
    options = parse_parts(parser, _PARTS, arguments)

    @cache
    def load() -> Trace:
        if options.trace is None:
            return real_trace(options.tokens)
        return load_trace(options.trace, options.experts)

    print_parts({name: partial(part, load) for name, part in _PARTS.items()}, options.parts)


if __name__ == "__main__":
    sys.exit(main())
