"""NVLLM's claims on throughput (N1, N2) and on Algorithm 2 (N9)."""

from __future__ import annotations

import xarray as xr

from nandcosim.claims.claim import Finding
from nandcosim.claims.nvllm.configurations import CLUSTERS, OPT, evaluated
from nandcosim.claims.spans import extent, span
from nandcosim.systems.nvllm import Config
from nandcosim.systems.nvllm.ssd_like import published_speeds

__all__ = ["gpu_throughput", "scheduled_growth", "ssd_like_throughput"]


def gpu_throughput() -> dict[str, Finding]:
    """Decode against the GPU systems, at rates of public figures and at calibrated ones."""
    found = evaluated(model=OPT, clusters=CLUSTERS, gpu_rates=("sourced", "calibrated"))
    speeds = found["tokens_per_second"]
    ratio = speeds.sel(system="nvllm") / speeds
    sourced, fitted = (ratio.sel(gpu_rates=rates) for rates in ("sourced", "calibrated"))
    offloaded = ["gpu_ssd", "gpu_hybrid"]
    config = Config()
    ssd, pcie, fitted_ssd = (
        f"{float(config.array(name)) / 1e9:g} GB/s"
        for name in ("ssd_bandwidth", "pcie_bandwidth", "calibrated_ssd_rate")
    )
    overhead = 1e3 * float(config.array("calibrated_layer_overhead"))

    def ranged(systems: str | list[str], reason: str) -> Finding:
        return Finding(*extent(sourced.sel(system=systems)), reason)

    calibrated = f"At rates calibrated to N1 ({fitted_ssd} and {overhead:g} ms a layer):"
    widest = ratio.sel(system="gpu_ssd", clusters=16)
    benefit = widest.sel(model=OPT[0]) / widest.sel(model=OPT[-1])
    with_overhead = benefit.sel(gpu_rates="calibrated")
    return {
        "N1.1": ranged(
            "gpu_ssd",
            f"SSD {ssd}, then PCIe {pcie}. {calibrated} {span(fitted.sel(system='gpu_ssd'))}.",
        ),
        "N1.2": ranged(
            offloaded,
            f"As N1.1; GPU-Hybrid keeps attention in host DRAM. {calibrated} "
            f"{span(fitted.sel(system=offloaded))}.",
        ),
        "N1.3": ranged("gpu_dram", f"PCIe alone, {pcie}."),
        "N1.4": Finding(
            *extent(benefit.sel(gpu_rates="sourced")),
            "Barely: with constant rates both times are proportional to the weights, but for the "
            f"head. A fixed time a layer, as calibrated, gives {span(with_overhead)}.",
        ),
    }


def ssd_like_throughput() -> dict[str, Finding]:
    """Decode of LLaMA2-7B against Cambricon-LLM and AiF."""
    found = evaluated()
    speeds = found["tokens_per_second"]
    own = float(speeds.sel(system="nvllm"))

    def over(system: str, reason: str, knobs: tuple[str, ...] = ()) -> Finding:
        ratio = own / float(speeds.sel(system=system))
        return Finding(ratio, ratio, reason, knobs=knobs)

    def rate(system: str, reason: str, knobs: tuple[str, ...] = ()) -> Finding:
        value = float(speeds.sel(system=system))
        return Finding(value, value, reason, knobs=knobs)

    fast = evaluated(cambricon_read_time=Config().read_time)["tokens_per_second"]
    equal = float(fast.sel(system="nvllm") / fast.sel(system="cambricon_llm"))
    published = float(published_speeds().sel(model="llama2-7b", cambricon_size="s"))
    share = found["token_time"] / found["token_time"].sum()
    fitted = "Its efficiency is set to its own published speed (N2.6, N2.7)."
    return {
        "N2.1": over(
            "cambricon_llm",
            f"Mostly the time of a page: {equal:.3g} if Cambricon-LLM also read in 5.12 us.",
        ),
        "N2.2": over("aif", fitted, ("aif_efficiency",)),
        "N2.3": over("aif_minus", fitted, ("aif_minus_efficiency",)),
        "N2.4": Finding(
            own,
            own,
            f"{100 * float(share.sel(stage='projection')):.0f} % projections on the NPU, "
            f"{100 * float(share.sel(stage='ffn')):.0f} % FFN in flash, one after the other, at a "
            f"raw bit error rate of {float(found['raw_bit_error_rate']):g}. Cannot hold together "
            "with N3.1 and N4.1 (see there).",
        ),
        "N2.5": rate(
            "cambricon_llm",
            f"Closed form of Cambricon-LLM-S, not calibrated; it publishes {published:g}.",
        ),
        "N2.6": rate("aif", "102.4 GB/s times a calibrated efficiency.", ("aif_efficiency",)),
        "N2.7": rate("aif_minus", "As N2.6.", ("aif_minus_efficiency",)),
    }


def scheduled_growth() -> dict[str, Finding]:
    """Token time as the context grows, with Algorithm 2, by each reading of its increment."""
    found = evaluated(
        model="opt-6.7b", context=(64, 2048), kv_increment=("token", "latency", "accumulated"),
        kv_scope=("model", "layer"),
    )  # fmt: skip
    growth = _growth(found["token_time"])
    alone = float(_growth(found["token_time_unscheduled"]).max())
    readings = growth.stack(reading=("kv_increment", "kv_scope"))
    listed = "; ".join(
        f"{increment}, bits of a {scope} {float(readings.sel(reading=(increment, scope))):.3f}"
        for increment, scope in readings["reading"].values
    )
    return {
        "N9.1": Finding(
            *extent(growth), f"{alone:.3f} without it. By reading of 'cycle increment': {listed}."
        )
    }


def _growth(time: xr.DataArray) -> xr.DataArray:
    total = time.sum("stage")
    ratio: xr.DataArray = total.isel(context=-1, drop=True) / total.isel(context=0, drop=True)
    return ratio
