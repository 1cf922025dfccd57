"""NVLLM's claims on the latency of prompt and output (N3, N4)."""

from __future__ import annotations

import numpy as np
import xarray as xr

from nandcosim.claims.claim import Finding
from nandcosim.claims.nvllm.configurations import CLUSTERS, evaluated
from nandcosim.claims.spans import extent, span

__all__ = ["latency", "prefill_shares"]

#: Prompt and output tokens of Fig. 7; the latencies are of four of them.
_LENGTHS = (16, 64, 256, 1024)

#: Of sections 4.3 and 4.4: what the claims' arithmetic compares.
_PAPER_16 = (1.85, 1.95)  # s of 32 tokens, rounded to 1.9
_PAPER_SPEED = (16.7, 17.0)  # tokens/s of N2
_PAPER_RATIO = 28.2  # GPU-SSD over NVLLM, end to end
_PAPER_GPU_PREFILL = 0.069  # largest share of GPU-SSD
_PAPER_SPEEDUP = 37.9  # largest over GPU-SSD, decode


def latency() -> dict[str, Finding]:
    """End-to-end latency of NVLLM-16C; projections of the prompt on the NPU alone."""
    found = _of_lengths(clusters=16, prefill_split=("none", "balanced"))
    whole = found["end_to_end"].sel(system="nvllm")
    results = {}
    for number, length in enumerate(_LENGTHS, start=1):
        at = whole.sel(length=length)
        alone, split = (float(at.sel(prefill_split=kind)) for kind in ("none", "balanced"))
        reason = (
            "Q, K, V, O of the prompt on the NPU alone; with the split over flash and NPU that "
            f"section 3.5 states it is {split:.4g} s."
        )
        if number == 1:
            reason += " Cannot hold together with N2.4 and N4.1 (see there)."
        results[f"N3.{number}"] = Finding(alone, alone, reason, knobs=("prefill_split",))
    ratio = found["end_to_end"] / whole
    stated, unsplit = (ratio.sel(prefill_split=kind) for kind in ("balanced", "none"))
    needed = 1 - _PAPER_RATIO * (1 - _PAPER_GPU_PREFILL) / _PAPER_SPEEDUP
    return results | {
        "N3.5": Finding(
            *extent(stated.sel(system="gpu_ssd")),
            f"At sourced rates, prompt split; not split {span(unsplit.sel(system='gpu_ssd'))}.",
            contradiction=(
                f"GPU-SSD decodes in {100 * (1 - _PAPER_GPU_PREFILL):.1f} % or more of its time, "
                f"so {_PAPER_RATIO:g} end to end within {_PAPER_SPEEDUP:g} in decode (N1) leaves "
                f"NVLLM's prefill at most {100 * needed:.0f} % of its time, not 44 to 45 % (N4.1)."
            ),
        ),
        "N3.6": Finding(
            *extent(stated.sel(system="gpu_dram")),
            f"At sourced rates, prompt split; not split {span(unsplit.sel(system='gpu_dram'))}.",
        ),
    }


def prefill_shares() -> dict[str, Finding]:
    """Share of prefill, of NVLLM with the stated split, and of the GPU systems."""
    found = _of_lengths(clusters=CLUSTERS, prefill_split=("none", "balanced"))
    share = 100 * found["prefill_share"]
    own = share.sel(system="nvllm")
    split, alone = (own.sel(prefill_split=kind) for kind in ("balanced", "none"))
    slowest, fastest = (16 / speed for speed in _PAPER_SPEED)
    low = 100 * (1 - slowest / _PAPER_16[0])
    high = 100 * (1 - fastest / _PAPER_16[1])
    trend = split.sel(clusters=16) / split.sel(clusters=8)
    gpu = "One pass over the weights for the whole prompt, one for each output token: 1 / (1 + n)."
    return {
        "N4.1": Finding(
            *extent(split),
            f"With the split of section 3.5; with the NPU alone, which N3 needs, {span(alone)}.",
            contradiction=(
                f"16 tokens at N2.4's {_PAPER_SPEED[0]:g} to {_PAPER_SPEED[1]:g} a second are "
                f"{fastest:.2f} to {slowest:.2f} s of N3.1's 1.9, so prefill is {low:.0f} to "
                f"{high:.0f} %: N2.4, N3.1 and N4.1 cannot hold for one configuration."
            ),
        ),
        "N4.2": Finding(*extent(share.sel(system="gpu_ssd", prefill_split="none")), gpu),
        "N4.3": Finding(*extent(share.sel(system="gpu_dram", prefill_split="none")), gpu),
        "N4.4": Finding(
            *extent(trend),
            f"Split: more clusters take more of the prompt's projections. With the NPU alone "
            f"{span(alone.sel(clusters=16) / alone.sel(clusters=8))}.",
        ),
    }


def _of_lengths(**settings: object) -> xr.Dataset:
    """Prompt and output of each length, along ``length``."""
    found = evaluated(model="opt-6.7b", prompt=_LENGTHS, output=_LENGTHS, **settings)
    both = xr.DataArray(np.array(_LENGTHS), dims="length", coords={"length": list(_LENGTHS)})
    chosen: xr.Dataset = found.sel(prompt=both, output=both)
    return chosen
