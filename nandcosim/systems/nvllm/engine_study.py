"""What raw bit errors cost the engines, in tables.

    python -m nandcosim.systems.nvllm.engine_study [PART ...]

``faults``: how often segments are faulty, and what each resource alone allows. ``errors``:
one layer of LLaMA2-7B on 16 clusters, cycle by cycle, against the raw bit error rate.
``correctors``: utilisation against correctors and latency. ``closed``: the closed form
against the cycles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.engine import CAUSES, EngineConfig, fault_probability, sweep
from nandcosim.systems.nvllm.engine_bounds import limits, utilisation
from nandcosim.systems.nvllm.hardware import Order
from nandcosim.systems.nvllm.models import load_model

__all__ = ["closed_form_errors", "layer_segments"]

_RATES = (1e-6, 1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 3e-3, 1e-2)
_LATENCIES = (4, 8, 12, 16, 24, 32)
_CORRECTORS = (1, 2, 3, 4)


def layer_segments(config: EngineConfig, model: str = "llama2-7b") -> int:
    """Segments of the FFN of one layer, a cluster's share."""
    shape = load_model(model)
    weights = shape.ffn_weights // shape.layers
    return -(-weights // int(config.array("segment_bytes") * config.array("clusters")))


def closed_form_errors(config: EngineConfig, segments: int) -> xr.DataArray:
    """Relative error of `utilisation` against a run, over the axes of the configuration."""
    run = sweep(config, segments)["utilisation"]
    return utilisation(config, config.array("rber")) / run - 1


def faults_part() -> Iterator[str]:
    """Chance of a fault, and bounds."""
    config = EngineConfig(rber=_RATES)
    sizes = code_sizes(config)
    rber = config.array("rber")
    chance = fault_probability(sizes["n"], sizes["parity_bits"], rber)
    bounds = limits(config, rber)
    in_order = limits(config.model_copy(update={"order": "in_order"}), rber).sel(bound="lane")
    busy = chance * config.array("corrector_latency")
    yield "rber     P (%)   next too (%)  lane    hub     supply  in order  correctors, full rate"
    for i, rate in enumerate(_RATES):
        bound = bounds.isel(rber=i)
        yield (
            f"{rate:<7.0e} {100 * float(chance[i]):6.2f}  {100 * float(chance[i]) ** 2:12.4f}  "
            f"{float(bound.sel(bound='lane')):.4f}  {float(bound.sel(bound='hub')):.4f}  "
            f"{float(bound.sel(bound='supply')):.4f}  {float(in_order[i]):8.4f}  "
            f"{max(1, int(np.ceil(busy[i]))):20d}"
        )


def errors_part() -> Iterator[str]:
    """One layer, both orders."""
    orders: tuple[Order, ...] = ("out_of_order", "in_order")
    for order in orders:
        config = EngineConfig(rber=_RATES, order=order)
        found = sweep(config, layer_segments(config))
        closed = utilisation(config, config.array("rber"))
        shown = [cause for cause in CAUSES if cause != "fill"]
        yield f"{order}; lost cycles in %"
        yield (
            "rber     cycles   utilisation closed  "
            + "  ".join(f"{cause:>10}" for cause in shown)
            + "  hub wait  waiting mean, most  open columns"
        )
        for i, rate in enumerate(_RATES):
            row = found.isel(rber=i)
            yield (
                f"{rate:<7.0e} {int(row['cycles']):8d}  {float(row['utilisation']):10.4f}  "
                f"{float(closed[i]):.4f}  "
                + "  ".join(f"{100 * float(row['lost'].sel(cause=c)):10.3f}" for c in shown)
                + f"  {float(row['hub_wait']):8.1f}  {float(row['mean_waiting']):12.2f}, "
                f"{int(row['most_waiting']):4d}  {int(row['open_columns']):12d}"
            )


def correctors_part() -> Iterator[str]:
    """Utilisation against correctors and their latency."""
    rates = (1e-4, 3e-4, 1e-3, 3e-3)
    config = EngineConfig(
        rber=rates, corrector_latency=_LATENCIES, correctors=(*_CORRECTORS, 8), clusters=1
    )
    found = sweep(config, layer_segments(EngineConfig()))["utilisation"]
    for rate in rates:
        yield f"rber {rate:.0e}; utilisation by correctors (down) and latency"
        yield (
            found.sel(rber=rate, drop=True)
            .transpose("correctors", ...)
            .to_pandas()
            .to_string(float_format=lambda value: f"{value:.3f}")
        )


def closed_part() -> Iterator[str]:
    """Closed form against cycles where the engines, not the pages, limit."""
    rates = tuple(float(f"{rate:.2g}") for rate in np.logspace(-7, -2, 16))
    cases: dict[str, dict[str, Any]] = {
        f"{entries} entries, lanes: {lanes}": {"scoreboard": entries, "lanes": lanes}
        for entries, lanes in ((2, 1), (4, 1), (16, 1), (64, 1), (16, 2), (16, 4))
    }
    cases["corrector_interval 1"] = {"corrector_interval": 1}
    cases["in order, lanes: 1"] = {"order": "in_order"}
    cases["in order, lanes: 4"] = {"order": "in_order", "lanes": 4}
    yield "case                  points  mean (%)  worst (%)  beyond 2 %  rber, latency, correctors"
    for name, settings in cases.items():
        config = EngineConfig(
            clusters=1, rber=rates, corrector_latency=_LATENCIES, correctors=_CORRECTORS,
            read_time=1e-7, **settings,
        )  # fmt: skip
        error = 100 * closed_form_errors(config, 200_000)
        size = abs(error).stack(point=("rber", "corrector_latency", "correctors"))
        where = ", ".join(f"{value:g}" for value in size["point"].values[size.argmax("point")])
        yield (
            f"{name:<21} {size.size:6d}  {float(size.mean()):8.2f}  {float(size.max()):9.2f}  "
            f"{int((size > 2).sum()):10d}  {where}"
        )


_PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "faults": faults_part,
    "errors": errors_part,
    "correctors": correctors_part,
    "closed": closed_part,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts named, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.engine_study", description=main.__doc__
    )
    print_parts(_PARTS, parse_parts(parser, _PARTS, arguments).parts)


if __name__ == "__main__":
    sys.exit(main())
