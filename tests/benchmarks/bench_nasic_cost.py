"""A design space of NASiC in one call, against plain Python point by point.

Cost of 3 models over techniques, states, spreads, interleaving, CAM and converter bits. The peer
evaluates the same formulas with Python numbers on a random sample of the points, without energy,
and is extrapolated to all; both must agree. Wall-clock seconds of one thread; the fastest of the
repeats counts. Results have only the axes that they depend on; the product of energy and time has
all of them.

    python tests/benchmarks/bench_nasic_cost.py [--repeats 3] [--sample 2000]

prints one JSON line: ``{"name", "ours", "peer", "ratio", "goal", "unit"}``; ratio = peer / ours,
goal is a limit of ours.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.systems.nasic.cost import CostFields, cost
from nandcosim.systems.nasic.mapping import place
from nandcosim.systems.nasic.moe import MoeShape, load_moe, moe_shapes

MODELS = ("olmoe", "mixtral-8x7b", "qwen3-30b-a3b")
GOAL = 10.0
AXES = {
    "technique": ("base", "t1", "t1t2", "t1t2t3"),
    "states": (2, 3, 4, 8),
    "sigma": tuple(np.linspace(0.03, 0.3, 56).tolist()),
    "interleave": (1, 2, 4, 8, 16, 32),
    "cam_bits": (1, 2, 3),
    "adc_bits": (5, 6, 7, 8, 9),
    "bitlines_per_adc": (1, 2, 4, 8, 16),
}


def token(
    point: CostFields, m: MoeShape, planes: Sequence[float], first: float, further: float
) -> float:
    """Seconds of a token, in plain Python, on so many planes for each matrix."""
    t1, t2, t3 = (each in point.technique for each in ("t1", "t2", "t3"))
    states = point.states if t3 else 2
    rows = max(1, min(point.blocks, math.floor(128 * (0.15 / point.sigma) ** 2 * (1 + 1e-9))))
    values = 4 * (states - 1) + 1 if t2 else 3
    digits = math.ceil(point.weight_bits / math.log2(values))
    serial = math.ceil(point.input_bits / math.log2(point.input_levels if t2 else 2))
    convert = point.bitlines_per_adc * point.adc_time / 2
    cycle = first + convert + (states - 2) * (further + convert)
    total = 0.0
    matrices = ((m.hidden, 2 * m.expert_ffn), (m.expert_ffn, m.hidden))
    for (depth, outputs), at_work in zip(matrices, planes, strict=True):
        groups = math.ceil(depth / rows)
        if not t1:
            pages = math.ceil(m.experts * outputs / (point.bitlines // (2 * digits)))
            passes = math.ceil(pages / at_work)
            total += passes * groups * serial * cycle
            continue
        together = min(point.interleave, m.experts, groups, max(1, point.blocks // rows))
        pages = math.ceil(outputs / (point.bitlines // together // (2 * digits)))
        of_a_group = math.ceil(m.top_k / math.ceil(m.experts / together))
        passes = max(
            math.ceil(m.top_k * pages / at_work),
            of_a_group * math.ceil(pages / at_work),
        )
        total += passes * math.ceil(groups / together) * serial * cycle
    return m.moe_layers * total


def at(values: xr.DataArray, point: Mapping[str, Any], model: str) -> xr.DataArray:
    """Values at a point of the axes that they have."""
    return values.sel(model=model, **{n: v for n, v in point.items() if n in values.dims})


def main() -> int:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=2000)
    options = parser.parse_args()
    config = CostFields(timing="given", t1=33e-6, t2=3.3e-6, **AXES)
    cost(CostFields(), moe_shapes("olmoe"))  # reads the tables
    best = math.inf
    for _ in range(options.repeats):
        start = time.perf_counter()
        found = cost(config, moe_shapes(MODELS))
        product = found["energy"].sum("component") * found["token_time"]  # over all axes
        best = min(best, time.perf_counter() - start)
    size = product.size
    assert size == math.prod(len(values) for values in AXES.values()) * len(MODELS)
    draw = random.Random(0)
    points = [{n: draw.choice(v) for n, v in AXES.items()} for _ in range(options.sample)]
    models = [draw.choice(MODELS) for _ in points]
    shapes = {name: load_moe(name) for name in MODELS}
    configs = [CostFields(**point) for point in points]
    planes = place(config, moe_shapes(MODELS), found["input_dimension"])["planes_at_work"]
    at_work = [at(planes, point, model).values for point, model in zip(points, models, strict=True)]
    start = time.perf_counter()
    theirs = [
        token(point, shapes[model], each, 36.3e-6, 3.3e-6)
        for point, model, each in zip(configs, models, at_work, strict=True)
    ]
    seconds = (time.perf_counter() - start) / options.sample * size
    mine = [
        at(found["token_time"], point, model).item()
        for point, model in zip(points, models, strict=True)
    ]
    np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    figure = {
        "name": f"nasic cost: {size} points",
        "ours": round(best, 3),
        "peer": round(seconds, 2),
        "ratio": round(seconds / best, 1),
        "goal": GOAL,
        "unit": "s",
    }
    print(json.dumps(figure))
    return 0


if __name__ == "__main__":
    sys.exit(main())
