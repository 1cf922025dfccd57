"""NVLLM's claims on raw bit errors (N8)."""

from __future__ import annotations

import xarray as xr

from nandcosim.claims.claim import Finding
from nandcosim.claims.spans import extent
from nandcosim.systems.nvllm import load_model
from nandcosim.systems.nvllm.ecc import code_sizes, segment_error_rate
from nandcosim.systems.nvllm.engine import EngineConfig, sweep
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.probes import Probe, dictionary_text, windows
from nandcosim.systems.nvllm.quality import quality
from nandcosim.systems.nvllm.smollm import load_checkpoint
from nandcosim.systems.nvllm.stored_model import quantised

__all__ = ["consecutive_errors", "engine_rate", "model_quality"]

_RATES = (1e-6, 1e-5, 1e-4, 1e-3)
_TOKENS, _WINDOW = 1024, 256


def consecutive_errors() -> dict[str, Finding]:
    """Probability that the segment behind a faulty one is faulty."""
    config = HardwareFields(rber=_RATES)
    chance = 100 * segment_error_rate(config.array("rber"), code_sizes(config)["n"])
    return {
        "N8.1": Finding(
            *extent(chance),
            "Errors are independent, so it is that of any segment of 292 bits: "
            f"{_listed(chance, ' %')}.",
        )
    }


def engine_rate() -> dict[str, Finding]:
    """A layer of LLaMA2-7B through the engines of NVLLM-16C, cycle by cycle."""
    shape = load_model("llama2-7b")
    config = EngineConfig(rber=_RATES, order=("out_of_order", "in_order"))
    segments = shape.ffn_weights // shape.layers // config.segment_bytes // config.clusters  # type: ignore[operator]
    used = 100 * sweep(config, segments)["utilisation"]
    ahead, waiting = (used.sel(order=kind) for kind in ("out_of_order", "in_order"))
    return {
        "N8.2": Finding(
            *extent(ahead),
            f"{_listed(ahead, ' %')}; in order {_listed(waiting, ' %')}. At 1e-3 one corrector a "
            f"cluster, {config.corrector_latency} cycles each, limits.",
        )
    }


def model_quality() -> dict[str, Finding]:
    """Perplexity of SmolLM2-135M read from flash (text: entries of WordNet)."""
    checkpoint = load_checkpoint()
    probe = Probe(windows(checkpoint.tokenizer.encode(dictionary_text()), _TOKENS, _WINDOW))
    found = quality(
        HardwareFields(rber=_RATES[1:]), quantised(checkpoint), probe.score,
        modes=("none", "correct"),
    )  # fmt: skip
    ratio = (found["perplexity"] / found["stored_perplexity"]).mean("seed")
    bare, corrected = (ratio.sel(mode=mode) for mode in ("none", "correct"))
    start = f"Error-free {float(found['stored_perplexity']):.4g}"
    return {
        "N8.3": Finding(*extent(bare), f"{start}; {_listed(bare, 'x')}."),
        "N8.4": Finding(*extent(corrected), f"{start}; {_listed(corrected, 'x')}."),
    }


def _listed(values: xr.DataArray, unit: str) -> str:
    """``0.3 % at 1e-05, 2.9 % at 0.0001``."""
    return ", ".join(f"{float(v):.4g}{unit} at {float(v['rber']):g}" for v in values)
