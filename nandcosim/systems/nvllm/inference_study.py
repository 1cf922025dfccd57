"""Time and energy of inference on NVLLM: the numbers of docs/systems/nvllm_inference.md.

::

    python -m nandcosim.systems.nvllm.inference_study token latency context schedule energy

prints the parts named, all of them by default. "Paper" has utilisation 1, a DRAM and a link that
never bind and nothing in flash but FFN and head; "model" has the defaults, with the utilisation of
`engine_bounds` at the default raw bit error rate (or `--utilisation`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.energy import (
    decode_bytes,
    logic_energy,
    movement_energy,
    prefill_bytes,
)
from nandcosim.systems.nvllm.engine_bounds import utilisation
from nandcosim.systems.nvllm.inference import InferenceFields, decode, generate, rates
from nandcosim.systems.nvllm.models import shapes
from nandcosim.systems.nvllm.rber import page_cost
from nandcosim.systems.nvllm.schedule import Increment, Schedule, run_schedule
from nandcosim.systems.nvllm.silicon import SiliconFields, silicon
from nandcosim.tables import load_tables

__all__ = ["context_part", "energy_part", "latency_part", "schedule_part", "token_part"]

_CLUSTERS = (8, 12, 16)  # Table 3
_MODELS = (
    "opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b", "llama2-7b", "llama2-13b", "llama3-8b"
)  # fmt: skip
_MODEL = "opt-6.7b"  # the one whose end-to-end times fit section 4.4
_PAIRS = xr.DataArray([16, 64, 256, 1024], dims="tokens")
_PAPER: dict[str, Any] = {
    "kv_schedule": "off", "prefill_split": "none", "dram_bandwidth": 1e18, "link_bandwidth": 1e18
}  # fmt: skip
_STATED = (1.9, 7.5, 30.3, 124.3)  # section 4.4, NVLLM-16C


def token_part(used: float | None) -> Iterator[str]:
    """Decode at a context of 64, as Fig. 6."""
    plain = InferenceFields(clusters=_CLUSTERS, **_PAPER)
    config = InferenceFields(clusters=_CLUSTERS)
    paper = decode(plain, shapes(_MODELS), 64, 1.0)["time"]
    found = decode(config, shapes(_MODELS), 64, _used(config, used))["time"]
    yield f"utilisation {float(_used(config, used).max()):.4f}; ms a token"
    yield "model  paper 8C 12C 16C (tokens/s 16C)  model 8C 12C 16C (tokens/s 16C)  16C by stage"
    for model in _MODELS:
        texts = []
        for time in (paper.sel(model=model), found.sel(model=model)):
            whole = time.sum("stage").values
            texts.append(" ".join(f"{t * 1e3:7.2f}" for t in whole) + f" ({1 / whole[-1]:.2f})")
        at = found.sel(model=model, clusters=16)
        stages = " ".join(
            f"{name} {t * 1e3:.2f}" for name, t in zip(at["stage"].values, at.values, strict=True)
        )
        yield f"{model:<10}  {texts[0]}   {texts[1]}   {stages}"


def latency_part(used: float | None) -> Iterator[str]:
    """End to end, as Fig. 7: prompt and output of 16, 64, 256, 1024 tokens each."""
    yield f"{_MODEL}, 16C, s; section 4.4 has {' '.join(map(str, _STATED))}; share of prefill"
    policies: list[tuple[str, dict[str, Any]]] = [
        (f"paper: prefill {split}, {schedule}", {"prefill_split": split, "kv_schedule": schedule})
        for split, schedule in product(("none", "balanced"), ("off", "balanced"))
    ]
    policies += [
        (
            f"paper: prefill none, {increment}, {scope}",
            {"kv_schedule": "algorithm", "kv_increment": increment, "kv_scope": scope},
        )
        for increment, scope in product(get_args(Increment), ("model", "layer"))
    ]
    policies += [
        (
            f"paper: {clusters}C, prefill balanced, off, {logits} logits",
            {"clusters": clusters, "prefill_split": "balanced", "head_in_prefill": logits},
        )
        for clusters, logits in product(_CLUSTERS, ("last", "all"))
    ]
    for text, policy in policies:
        config = InferenceFields(**{**_PAPER, **policy})
        yield _generation(text, generate(config, shapes(_MODEL), _PAIRS, _PAIRS, 1.0))
    for clusters, split in product(_CLUSTERS, ("none", "balanced")):
        config = InferenceFields(clusters=clusters, prefill_split=split)
        found = generate(config, shapes(_MODEL), _PAIRS, _PAIRS, _used(config, used))
        yield _generation(f"model: {clusters}C, prefill {split}", found)


def _generation(text: str, found: xr.Dataset) -> str:
    seconds = " ".join(f"{s:8.3f}" for s in found["latency"].values)
    shares = " ".join(f"{100 * s:5.1f}" for s in found["prefill_share"].values)
    return f"{text:<46} {seconds}   {shares} %"


def context_part(used: float | None) -> Iterator[str]:
    """A token against its context, as Fig. 8(a); decoding begins at a context of 64."""
    context = xr.DataArray([65, 512, 1024, 2048, 4096, 8192, 16_384], dims="context")
    config = InferenceFields(kv_schedule=get_args(Schedule))
    found = decode(config, shapes(_MODEL), context, _used(config, used), start=64)
    yield f"{_MODEL}, 16C, model: ms a token, and share of Q, K, V, O in flash; busy NAND / NPU"
    for i, tokens in enumerate(context.values):
        at = found.isel(context=i)
        text = []
        for schedule in get_args(Schedule):
            one = at.sel(kv_schedule=schedule)
            time = one["time"].sum().item()
            busy = "/".join(f"{100 * b / time:.0f}" for b in one["busy"].values)
            share = one["flash_share"].item()
            text.append(f"{schedule} {time * 1e3:.2f} {100 * share:.1f}% busy {busy}%")
        yield f"{tokens:>6}  " + "   ".join(text)


def schedule_part(_: float | None) -> Iterator[str]:
    """What the readings of Algorithm 2 do, in the paper's arithmetic."""
    yield (
        "model  growth (cycles/token)  C_th  of the model: k  made up for; of a layer: "
        "fires after  k  made up for;  flash slower from, all clear (tokens, token/model)"
    )
    models, page = shapes(_MODELS), 4 * 16_384
    rate = rates(InferenceFields())
    balance = (rate["flash"] / (rate["flash"] + rate["npu"])).item()
    for name in _MODELS:
        m = models.sel(model=name)
        hidden, layers = int(m["hidden"]), int(m["layers"])
        growth = int(2 * m["heads"] * m["head_dim"] * m["layers"]) // 128
        held, column = page // hidden, -(-hidden // 128)
        bits = -(-int(m["attention_weights"]) // hidden // held)
        whole = run_schedule(200, growth, column, hidden, page, bits, "token")
        layer = run_schedule(
            200, growth / layers, column, hidden, page, bits // layers, "accumulated"
        )
        fires = int(np.flatnonzero(layer)[0])
        last = int(np.flatnonzero(np.diff(layer))[-1]) + 1  # passes up to the last change
        c_th, step = held * column, int(whole[1])
        yield (
            f"{name:<10} {growth:>6} {c_th:>5}   {step:>3} {_over(step * c_th, growth)}"
            f"   {fires:>3} {layer[fires]:>3} {_over(layer[last] * c_th, last * growth / layers)}"
            f"   {bits / step * balance:>6.0f} {bits / step:>6.0f}"
        )


def _over(made_up: float, growth: float) -> str:
    return f"{100 * made_up / growth:4.0f} %"


def energy_part(used: float | None) -> Iterator[str]:
    """Energy a token: data by path, and the logic."""
    tables = load_tables()
    yield "16C, context 64, mJ a token by path; logic gated, never gated; a prompt token of 64"
    for policy, source in product(("off", "balanced"), ("stated", "table")):
        config = InferenceFields(kv_schedule=policy, array_energy=source, prefill_split="none")
        u, parity = _used(config, used), code_sizes(config)["parity_bits"]
        bit = page_cost(config, tables)["bit_energy"]
        power = silicon(SiliconFields(clusters=16))["power"].sum("module")
        models = shapes(_MODELS)
        found = decode(config, models, 64, u)
        moved = decode_bytes(config, models, 64, found["flash_share"], parity)
        joules = movement_energy(moved, config, bit)
        gated = logic_energy(power, found["busy"]).sum("unit")
        always = logic_energy(power, found["time"].sum("stage")).sum("unit")
        first = movement_energy(prefill_bytes(config, models, 64, 0.0, parity), config, bit) / 64
        yield f"kv_schedule {policy}, array {bit.item() * 1e12:.2f} pJ/bit ({source})"
        for name in _MODELS:
            paths = joules.sel(model=name)
            text = " ".join(
                f"{p} {e * 1e3:.3f}"
                for p, e in zip(paths["path"].values, paths.values, strict=True)
            )
            yield (
                f"{name:<10} {text}  sum {paths.sum().item() * 1e3:.1f}  "
                f"io {100 * (paths.sel(path='io') / paths.sum()).item():.4f} %  "
                f"logic {gated.sel(model=name).item() * 1e3:.1f} "
                f"{always.sel(model=name).item() * 1e3:.1f}  "
                f"prompt {first.sel(model=name).sum().item() * 1e3:.1f}"
            )


def _used(config: InferenceFields, given: float | None) -> xr.DataArray:
    if given is not None:
        return xr.DataArray(given)
    parity = code_sizes(config)["parity_bits"]
    return utilisation(config, config.array("rber"), parity_bits=parity)


_PARTS = {
    "token": token_part,
    "latency": latency_part,
    "context": context_part,
    "schedule": schedule_part,
    "energy": energy_part,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print parts of the study."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.inference_study", description=main.__doc__
    )
    parser.add_argument("--utilisation", type=float, help="of the engines in flash")
    options = parse_parts(parser, _PARTS, arguments)
    makers = {name: partial(part, options.utilisation) for name, part in _PARTS.items()}
    print_parts(makers, options.parts)


if __name__ == "__main__":
    sys.exit(main())
