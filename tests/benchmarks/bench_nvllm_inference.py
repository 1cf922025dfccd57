"""A design space of NVLLM in one call, against plain Python point by point.

Decode over 4 models, 3 numbers of clusters, 100 contexts, 3 schedules, 10 DRAM bandwidths and
28 utilisations, and whole generations over as many prompts. The peer evaluates the same formulas
with Python numbers on a random sample of the points and is extrapolated to all; both must agree.
Wall-clock seconds of one thread; the fastest of the repeats counts.

    python tests/benchmarks/bench_nvllm_inference.py [--repeats 3] [--sample 2000]

prints one JSON line a figure:
``{"name", "ours", "peer", "ratio", "goal", "unit"}``; ratio = peer / ours, goal is a limit of
ours.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from nandcosim.systems.nvllm.inference import InferenceFields, decode, generate
from nandcosim.systems.nvllm.models import ModelShape, load_model, shapes

MODELS = ("opt-1.3b", "opt-6.7b", "opt-30b", "llama2-7b")
CLUSTERS = (8, 12, 16)
SCHEDULES = ("off", "algorithm", "balanced")
BANDWIDTHS = tuple(float(b) for b in np.linspace(20e9, 110e9, 10))
CONTEXTS = np.arange(16, 1616, 16)
USED = np.linspace(0.7, 1.0, 28)
OUTPUT = 64
GOAL = 10.0


def ours(task: Callable[..., xr.Dataset]) -> xr.DataArray:
    """Seconds of every point; over (context, used) and the axes of the configuration."""
    config = InferenceFields(
        clusters=CLUSTERS, kv_schedule=SCHEDULES, dram_bandwidth=BANDWIDTHS, prefill_split="none"
    )
    tokens = xr.DataArray(CONTEXTS, coords={"context": CONTEXTS})
    used = xr.DataArray(USED, coords={"used": USED})
    found = task(config, shapes(MODELS), tokens, utilisation=used)
    return found["time"].sum([d for d in ("phase", "stage") if d in found["time"].dims])


def token(
    point: InferenceFields, m: ModelShape, context: int, generated: int, used: float
) -> float:
    """One generated token, in plain Python."""
    flash = point.clusters * point.segment_bytes * point.engine_clock * used
    per_cycle = point.npu_engines * point.segment_bytes
    dram = point.dram_bandwidth * point.dram_efficiency
    npu = min(per_cycle * point.npu_clock, dram)
    weights = m.attention_weights
    attention = max(
        2 * m.heads * m.head_dim * m.layers / (per_cycle * point.npu_clock),
        m.kv_values * point.kv_bytes / dram,
    )
    share = 0.0
    if point.kv_schedule == "balanced":
        share = flash / (flash + npu)
    elif point.kv_schedule == "algorithm":
        held = point.planes_per_cluster * point.page_bytes // m.hidden
        threshold = held * math.ceil(m.hidden / npu * point.npu_clock)
        growth = math.ceil(attention * point.npu_clock)
        bits = math.ceil(weights / m.hidden / held)
        step = math.ceil(growth / threshold) if growth > threshold else 0
        share = min(bits, step * generated) / bits
    sent = 2 * m.layers * m.hidden
    if point.kv_schedule != "off":
        sent += 2 * m.layers * m.hidden + share * weights / m.hidden
    sent = (sent + m.hidden) * point.activation_bytes + m.vocab * point.logit_bytes
    return (
        max((1 - share) * weights / npu, share * weights / flash)
        + context * attention
        + (m.ffn_weights + m.head_weights) / flash
        + sent / point.link_bandwidth
    )


def a_token(point: InferenceFields, m: ModelShape, context: int, used: float) -> float:
    return token(point, m, context, context - 1, used)


def a_text(point: InferenceFields, m: ModelShape, prompt: int, used: float) -> float:
    """All tokens of prompt and output, one by one."""
    alone = point.model_copy(update={"kv_schedule": "off"})
    flash = point.clusters * point.segment_bytes * point.engine_clock * used
    head = m.head_weights / flash
    sent = m.hidden * point.activation_bytes + m.vocab * point.logit_bytes
    head += sent / point.link_bandwidth
    text = sum(token(alone, m, c, 0, used) - head for c in range(1, prompt + 1)) + head
    return text + sum(token(point, m, prompt + i + 1, i, used) for i in range(OUTPUT))


def figure(
    name: str,
    task: Callable[..., xr.Dataset],
    plain: Callable[..., float],
    repeats: int,
    sample: int,
) -> dict[str, object]:
    """Time both and compare their results on the sample."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        found = ours(task)
        best = min(best, time.perf_counter() - start)
    draw = random.Random(0)
    points = [
        {"model": draw.choice(MODELS), "clusters": draw.choice(CLUSTERS),
         "kv_schedule": draw.choice(SCHEDULES), "dram_bandwidth": draw.choice(BANDWIDTHS),
         "context": int(draw.choice(CONTEXTS)), "used": float(draw.choice(USED))}
        for _ in range(sample)
    ]  # fmt: skip
    models = {name: load_model(name) for name in MODELS}
    configs = [
        InferenceFields(**{n: p[n] for n in ("clusters", "kv_schedule", "dram_bandwidth")})
        for p in points
    ]
    start = time.perf_counter()
    theirs = [
        plain(config, models[p["model"]], p["context"], p["used"])
        for config, p in zip(configs, points, strict=True)
    ]
    seconds = (time.perf_counter() - start) / sample * found.size
    mine = [found.sel(p).item() for p in points]
    np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    return {
        "name": f"nvllm {name}: {found.size} points",
        "ours": round(best, 3),
        "peer": round(seconds, 2),
        "ratio": round(seconds / best, 1),
        "goal": GOAL,
        "unit": "s",
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=2000)
    options = parser.parse_args()
    whole = partial(generate, output=OUTPUT)
    print(json.dumps(figure("decode", decode, a_token, options.repeats, options.sample)))
    few = max(1, options.sample // 50)  # a text has hundreds of tokens
    print(json.dumps(figure("generate", whole, a_text, options.repeats, few)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
