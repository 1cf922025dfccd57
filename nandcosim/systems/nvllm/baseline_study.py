"""What the baselines cost, and what the paper's ratios say about them, in tables.

    python -m nandcosim.systems.nvllm.baseline_study systems     # all of them, side by side
    python -m nandcosim.systems.nvllm.baseline_study gpu         # rates implied, speedups
    python -m nandcosim.systems.nvllm.baseline_study prefill     # shares of prefill
    python -m nandcosim.systems.nvllm.baseline_study cambricon   # the 21 published points
    python -m nandcosim.systems.nvllm.baseline_study energy      # what 5.63 x needs

NVLLM's own times are those of `inference` with engines that never wait and all projections on
the NPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors
from nandcosim.systems.nvllm import gpu, inference, ssd_like
from nandcosim.systems.nvllm.baselines import BaselineFields, baselines
from nandcosim.systems.nvllm.models import shapes

__all__ = [
    "aif_efficiency",
    "cambricon_efficiency",
    "energy_needed",
    "implied_decode_speedup",
    "implied_rate",
    "needed_operations",
    "nvllm_latency",
    "nvllm_time",
    "overhead_fit",
    "relative_error",
]

OPT = ("opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b")

#: Seconds an inference of NVLLM-16C by total tokens, prompt and output half each (section 4.4).
LATENCY = {32: 1.9, 128: 7.5, 512: 30.3, 2048: 124.3}
#: End-to-end speedups of NVLLM-16C (section 4.4).
END_TO_END = {"gpu_dram": 2.7, "gpu_ssd": 28.2}
#: Decode speedups over GPU-SSD, most and least, and over all out-of-core GPUs (section 4.3).
DECODE = (37.9, 22.4)
#: Shares of prefill, most and least (section 4.4).
PREFILL = {"nvllm": (0.450, 0.441), "gpu_ssd": (0.069, 0.001), "gpu_dram": (0.0584, 0.0015)}
#: Tokens a second on LLaMA2-7B (section 4.3), and of the energy (section 4.5).
AIF_SPEED = {"aif": 13.1, "aif_minus": 9.8}
ENERGY_RATIO = 5.63
#: Context of the decode tests (section 4.3), and of Cambricon-LLM's as IFC-cambricon-llm has it.
CONTEXT, CAMBRICON_CONTEXT = 64.0, 1000.0


# ---------------------------------------------------------------- what the paper implies


def implied_rate(system: str, model: str = "opt-6.7b") -> xr.DataArray:
    """Rate (B/s) at which a GPU's weights arrive by N3's speedup, over ``tokens``.

    An inference takes 1 + output passes over the weights. The model is not stated;
    OPT-6.7B is the one with NVLLM's latencies.
    """
    config, shape = BaselineFields(), shapes(model)
    total = list(LATENCY)
    seconds = END_TO_END[system] * xr.DataArray(
        list(LATENCY.values()), dims="tokens", coords={"tokens": total}
    )
    return (1 + seconds["tokens"] / 2) * gpu.weight_bytes(config, shape) / seconds


def implied_decode_speedup(system: str = "gpu_ssd") -> tuple[float, float]:
    """Least and most decode speedup of NVLLM-16C by its end-to-end one and both prefill shares."""
    (most, least), (gpu_most, gpu_least) = PREFILL["nvllm"], PREFILL[system]
    ratio = END_TO_END[system]
    return ratio * (1 - gpu_most) / (1 - least), ratio * (1 - gpu_least) / (1 - most)


def overhead_fit(per_layer: bool) -> tuple[float, float]:
    """SSD rate (B/s) and fixed time of a layer, or of a token (s), that give both ends of N1.

    Those are taken as 37.9 on OPT-1.3B and 22.4 on OPT-30B, over NVLLM with 8 clusters.
    """
    ends = shapes((OPT[0], OPT[-1]))
    fixed = ends["layers"] if per_layer else xr.ones_like(ends["layers"])
    seconds = np.array(DECODE) * nvllm_time(ends, 8)
    weights = gpu.weight_bytes(BaselineFields(), ends)
    slope, overhead = np.linalg.solve(np.stack([weights, fixed], axis=-1), seconds)
    return 1 / float(slope), float(overhead)


def needed_operations(share: float = PREFILL["gpu_dram"][1], n: float = 1024.0) -> float:
    """Operations a second for a share of prefill on GPU-DRAM, OPT-6.7B, nothing overlapped."""
    fields = {"gpu_rates": "calibrated", "gpu_overlap": "serial", "gpu_efficiency": 1.0}
    config, shape = BaselineFields.checked(fields, "study"), shapes("opt-6.7b")
    stream = gpu.stream_time(config, shape)["gpu_dram"]
    reading = gpu.weight_bytes(config, shape) / config.array("hbm_bandwidth")
    work = gpu.prefill_time(config, shape, n)["gpu_dram"] - stream - reading
    decode = gpu.generation_time(config, shape, n, n)["gpu_dram"]
    allowed = share / (1 - share) * decode - stream - reading
    return float(config.array("gpu_ops") * work / allowed)


def cambricon_efficiency(context: float = CAMBRICON_CONTEXT) -> xr.DataArray:
    """Share of the closed form's weight rate of each published point of Cambricon-LLM."""
    published = ssd_like.published_speeds()
    config = BaselineFields(cambricon_size=tuple(published["cambricon_size"].values.tolist()))
    shape = shapes(tuple(published["model"].values.tolist()))
    alone = ssd_like.decode_time(config, shape, 0.0)["cambricon_llm"]
    attention = ssd_like.decode_time(config, shape, context)["cambricon_llm"] - alone
    return alone / (1 / published - attention)


def relative_error(rate: str, context: float) -> xr.DataArray:
    """Error of every published point of Cambricon-LLM, with a choice of `cambricon_rate`."""
    published = ssd_like.published_speeds()
    sizes = tuple(published["cambricon_size"].values.tolist())
    config = BaselineFields.checked({"cambricon_size": sizes, "cambricon_rate": rate}, "study")
    shape = shapes(tuple(published["model"].values.tolist()))
    return 1 / ssd_like.decode_time(config, shape, context)["cambricon_llm"] / published - 1


def aif_efficiency(system: str) -> float:
    """Share of AiF's internal bandwidth at which it has NVLLM's tokens a second for it."""
    config = BaselineFields(aif_efficiency=1.0, aif_minus_efficiency=1.0)
    peak = 1 / ssd_like.decode_time(config, shapes("llama2-7b"), CONTEXT)[system]
    return AIF_SPEED[system] / float(peak)


def energy_needed(model: str = "llama2-7b") -> dict[str, float]:
    """What makes Cambricon-LLM's data movement 5.63 times NVLLM's, by the same energies a bit.

    NVLLM reads FFN and head from its array, attention weights and KV cache from DRAM.

    Returns
    -------
    dict
        ``nvllm``, ``cambricon`` (J), their ``ratio``; ``channel``, the energy of a bit on the
        channels (J), or ``array``, of one from Cambricon-LLM's array alone (J), for 5.63.
    """
    config, shape = BaselineFields(), shapes(model)
    paths = ssd_like.cambricon_energy(config, shape, CONTEXT)
    array = config.array("cambricon_array_energy")
    channel = config.array("cambricon_channel_energy")
    flash = 8 * (shape["ffn_weights"] + shape["head_weights"]) * array
    dram = 8 * shape["attention_weights"] * config.array("dram_energy") + paths.sel(path="dram")
    goal = ENERGY_RATIO * (flash + dram)
    needed = {
        "nvllm": flash + dram,
        "cambricon": paths.sum("path"),
        "ratio": paths.sum("path") / (flash + dram),
        "channel": channel * (goal - paths.sel(path=["nand", "dram"]).sum()) / paths.sel(path="io"),
        "array": array * (goal - paths.sel(path=["io", "dram"]).sum()) / paths.sel(path="nand"),
    }
    return {name: float(value) for name, value in needed.items()}


def nvllm_time(shape: xr.Dataset, clusters: int) -> xr.DataArray:
    """A decoded token of NVLLM (s) at 64 tokens of context, engines never waiting."""
    config = inference.InferenceFields(clusters=clusters, kv_schedule="off")
    return inference.decode(config, shape, CONTEXT, 1.0)["time"].sum("stage")


def nvllm_latency(shape: xr.Dataset, clusters: int, pairs: xr.DataArray) -> xr.DataArray:
    """A whole inference of NVLLM (s), prompt and output of the same length."""
    config = inference.InferenceFields(clusters=clusters, kv_schedule="off", prefill_split="none")
    return inference.generate(config, shape, pairs, pairs, 1.0)["latency"]


# ---------------------------------------------------------------- tables


def _print_systems() -> None:
    found = baselines(BaselineFields(), shapes((*OPT, "llama2-7b")), CONTEXT, 64.0, 64.0)
    print("tokens/s at 64 tokens of context")
    _print_table(found["tokens_per_second"], 1.0, ".2f")
    print("time to first token, 64 of prompt, s")
    _print_table(found["time_to_first_token"], 1.0, ".3f")
    print("end to end, 64 and 64 tokens, s")
    _print_table(found["end_to_end"], 1.0, ".2f")
    for path in found["path"].values:
        print(f"data movement, {path}, mJ/token")
        _print_table(found["energy_per_token"].sel(path=path, drop=True), 1e3, ".1f")


def _print_gpu() -> None:
    for system in END_TO_END:
        rates = implied_rate(system)
        mean = float(_geometric_mean(rates, "tokens"))
        listed = ", ".join(f"{n}: {1e-9 * rate:.2f}" for n, rate in rates.to_series().items())
        print(f"{system}: GB/s by N3 for total tokens {listed}; geometric mean {1e-9 * mean:.2f}")
        low, high = implied_decode_speedup(system)
        print(f"{system}: decode speedup of NVLLM-16C by N3 and N4: {low:.1f} to {high:.1f}")
    layer, token = overhead_fit(per_layer=True), overhead_fit(per_layer=False)
    print(f"N1's ends: {1e-9 * layer[0]:.2f} GB/s and {1e3 * layer[1]:.1f} ms a layer, or "
          f"{1e-9 * token[0]:.2f} GB/s and {1e3 * token[1]:.0f} ms a token")  # fmt: skip
    shape = shapes(OPT)
    config = BaselineFields(gpu_rates=("sourced", "calibrated"))
    time = gpu.decode_time(config, shape, CONTEXT).to_dataarray("system")
    for clusters in (8, 16):
        for chosen in config.axes["gpu_rates"]:
            print(f"decode speedup of NVLLM with {clusters} clusters, {chosen}")
            speedup = time.sel(gpu_rates=chosen, drop=True) / nvllm_time(shape, clusters)
            _print_table(speedup, 1.0, ".1f")
    fitted = gpu.weight_bytes(BaselineFields(), shape) / token[0] + token[1]
    print("decode speedup of NVLLM with 8 clusters over GPU-SSD, fixed time a token")
    _print_table((fitted / nvllm_time(shape, 8)).expand_dims(system=["gpu_ssd"]), 1.0, ".1f")
    for system in END_TO_END:
        print(f"end-to-end speedup of NVLLM with 16 clusters over {system}, calibrated")
        pairs = _pairs()
        whole = gpu.generation_time(config, shape, pairs, pairs)
        whole = whole + gpu.prefill_time(config, shape, pairs)
        ratio = whole[system].sel(gpu_rates="calibrated") / nvllm_latency(shape, 16, pairs)
        _print_table(ratio.transpose("model", "pair"), 1.0, ".2f")
    alone = gpu.resident(config, shape, CONTEXT)
    print("tokens/s with the weights on the GPU, where they fit")
    _print_table((1 / alone["time"]).where(alone["fits"]).expand_dims(system=["gpu"]), 1.0, ".0f")


def _print_prefill() -> None:
    for overlap in ("overlapped", "serial"):
        fields = {"gpu_rates": "calibrated", "gpu_overlap": overlap}
        config = BaselineFields.checked(fields, "study")
        print(f"share of prefill in %, OPT-6.7B, {overlap}")
        pairs = _pairs()
        share = baselines(config, shapes("opt-6.7b"), CONTEXT, pairs, pairs)["prefill_share"]
        _print_table(share.sel(system=list(gpu.GPU_SYSTEMS)), 100.0, ".3f")
    print(f"0.15 % at 1024/1024 needs {1e-12 * needed_operations():.0f} TOPS, not overlapped")


def _print_cambricon() -> None:
    rates = ssd_like.cambricon_rates(BaselineFields(cambricon_size=("s", "m", "l")))
    for size in rates["cambricon_size"].values:
        one = rates.sel(cambricon_size=size)
        print(
            f"{size}: tile {float(one['tile_height']):.0f} x {float(one['tile_width']):.0f}, "
            f"in flash {1e-9 * float(one['in_flash']):.1f} GB/s, sliced "
            f"{1e-9 * float(one['sliced']):.1f} GB/s, crossing {100 * float(one['crossing']):.1f} %"
        )
    cases = (
        ("closed_form", 0.0),
        ("closed_form", CAMBRICON_CONTEXT),
        ("calibrated", CAMBRICON_CONTEXT),
    )
    for rate, context in cases:
        error = relative_error(rate, context)
        print(
            f"error in %, {rate}, {context:.0f} tokens; mean {100 * float(abs(error).mean()):.1f}"
        )
        _print_table(error, 100.0, "+.1f")
    print(f"efficiency in %, {CAMBRICON_CONTEXT:.0f} tokens")
    _print_table(cambricon_efficiency(), 100.0, ".1f")
    means = _geometric_mean(cambricon_efficiency(), "model").to_series()
    print("geometric mean", ", ".join(f"{size}: {mean:.3f}" for size, mean in means.items()))
    fast = BaselineFields(cambricon_read_time=inference.InferenceFields().read_time)
    shape = shapes("llama2-7b")
    for title, fields in (("as published", BaselineFields()), ("with NVLLM's page read", fast)):
        speed = 1 / ssd_like.decode_time(fields, shape, CONTEXT)["cambricon_llm"]
        ratio = 1 / (speed * nvllm_time(shape, 16))
        print(f"LLaMA2-7B, {title}: {float(speed):.2f} tokens/s, NVLLM-16C {float(ratio):.2f} x")
    for system in AIF_SPEED:
        print(f"{system}: efficiency {aif_efficiency(system):.3f}")


def _print_energy() -> None:
    found = energy_needed()
    print(
        f"LLaMA2-7B: NVLLM {1e3 * found['nvllm']:.0f} mJ/token, Cambricon-LLM-S "
        f"{1e3 * found['cambricon']:.0f} mJ/token: {found['ratio']:.2f} x"
    )
    print(
        f"5.63 x needs {1e12 * found['channel']:.1f} pJ/bit on the channels, or "
        f"{1e12 * found['array']:.1f} pJ/bit from Cambricon-LLM's array"
    )


def _geometric_mean(values: xr.DataArray, dim: str) -> xr.DataArray:
    logarithms: xr.DataArray = xr.apply_ufunc(np.log, values)
    mean: xr.DataArray = xr.apply_ufunc(np.exp, logarithms.mean(dim))
    return mean


def _pairs() -> xr.DataArray:
    """Prompt and output lengths of section 4.4."""
    lengths = [n / 2 for n in LATENCY]
    return xr.DataArray(
        lengths, dims="pair", coords={"pair": [f"{n:.0f}/{n:.0f}" for n in lengths]}
    )


def _print_table(values: xr.DataArray, scale: float, style: str) -> None:
    """A table of two dimensions, the first named one down."""
    rows = next(dim for dim in ("model", "pair") if dim in values.dims)
    (columns,) = (dim for dim in values.dims if dim != rows)
    print(f"{'':<12}" + "".join(f"{label!s:>14}" for label in values[columns].values))
    for label in values[rows].values:
        cells = scale * values.sel({rows: label}).values
        print(f"{label:<12}" + "".join(f"{format(cell, style):>14}" for cell in cells))


_TABLES = {
    "systems": _print_systems,
    "gpu": _print_gpu,
    "prefill": _print_prefill,
    "cambricon": _print_cambricon,
    "energy": _print_energy,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.baseline_study", description=main.__doc__
    )
    parser.add_argument("table", choices=list(_TABLES))
    _TABLES[parser.parse_args(arguments).table]()


if __name__ == "__main__":
    sys.exit(main())
