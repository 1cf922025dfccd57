"""NVLLM's claims on energy, silicon and models (N5 to N7)."""

from __future__ import annotations

from nandcosim.claims.claim import Finding
from nandcosim.claims.nvllm.configurations import CLUSTERS, OPT, evaluated
from nandcosim.claims.spans import extent, span
from nandcosim.systems.nvllm import Config
from nandcosim.systems.nvllm.models import shapes
from nandcosim.systems.nvllm.silicon import SiliconFields, cmos_share, monolithic_ecc

__all__ = ["energy", "models", "silicon_claims"]

_PAPER_RATIO = 5.63  # section 4.5


def energy() -> dict[str, Finding]:
    """Data movement of a token, arrays of both systems at one energy a bit."""
    found = evaluated(array_energy=("stated", "table"))
    moved = found["energy"].sel(array_energy="stated")
    own, theirs = (moved.sel(system=name) for name in ("nvllm", "cambricon_llm"))
    ratio = float(theirs.sum("path") / own.sum("path"))
    measured = found["energy"].sel(array_energy="table", system="nvllm").sum("path")
    missing = _PAPER_RATIO * own.sum("path") - theirs.sum("path")
    channel, array = (
        1e12 * float(Config().array(name) * (1 + missing / theirs.sel(path=path)))
        for name, path in (("cambricon_channel_energy", "io"), ("cambricon_array_energy", "nand"))
    )
    assumed = 1e12 * float(Config().array("cambricon_channel_energy"))
    shared = evaluated(model=OPT, array_energy=("stated", "table"))["energy"].sel(system="nvllm")
    share = 100 * shared.sel(path="io") / shared.sum("path")
    return {
        "N5.1": Finding(
            ratio,
            ratio,
            f"{1e3 * float(theirs.sum('path')):.0f} over {1e3 * float(own.sum('path')):.0f} mJ, "
            f"{1e12 * float(Config().array('bit_energy')):g} pJ a bit from either array. "
            f"{_PAPER_RATIO:g} needs {channel:.0f} pJ a bit on Cambricon-LLM's channels "
            f"(assumed: {assumed:g}), or {array:.0f} pJ from its arrays. With the circuit's energy "
            f"for NVLLM's arrays alone: {float(theirs.sum('path') / measured):.3g}.",
        ),
        "N5.2": Finding(*extent(share), "Activations cross twice a layer, logits once a token."),
    }


def silicon_claims() -> dict[str, Finding]:
    """Bandwidth, operations, area and power (sections 4.2 and 4.3, Tables 2 and 3)."""
    found = evaluated(clusters=CLUSTERS)
    bandwidth = found["array_bandwidth"] / 1e9
    small = found.sel(clusters=8)
    own = SiliconFields(clusters=8)
    area = 100 * float(cmos_share(own))
    power = 1e3 * float(small["power"].sum())
    operations = found["operations"] / 1e9
    ecc = small["area"].sel(unit="nand", module=["detector", "corrector"]).sum()
    ratio = float(monolithic_ecc(own)["area"] / ecc)
    return {
        "N6.1": Finding(
            *extent(bandwidth),
            "Pages of 16 KiB in 5.12 us from 32, 48 and 64 planes.",
            contradiction=(
                f"By section 4.1 the {int(small['clusters']) * 4} planes of NVLLM alone read "
                f"{float(bandwidth.sel(clusters=8)):.1f} GB/s; its 12C and 16C read "
                f"{span(bandwidth.sel(clusters=[12, 16]))}."
            ),
        ),
        "N6.2": Finding(area, area, "2.69 mm2 over 32 planes of 3.07 mm2."),
        "N6.3": Finding(
            *extent(operations),
            "32 multiply-accumulates an engine and cycle, which these two figures give.",
            knobs=("segment_bytes",),
        ),
        "N6.4": Finding(
            power,
            power,
            "Sum of Table 2, which has one power an engine for 350 and for 500 MHz.",
        ),
        "N6.5": Finding(
            ratio, ratio, "Stated, not modelled: no circuit of the monolithic ECC.",
            knobs=("ecc_area_gain",),
        ),
    }  # fmt: skip


def models() -> dict[str, Finding]:
    """Counts of weights and operations (sections 1, 2.1 and 4.3)."""
    shape = shapes(("opt-30b", "llama3-8b", "llama3-70b"))
    weights = shape["ffn_weights"] + shape["attention_weights"] + shape["head_weights"]
    giga = 2 * float(weights.sel(model="opt-30b")) / 1e9
    ffn = shape["ffn_weights"].sel(model="llama3-8b")
    share = 100 * float(ffn / shape["parameters"].sel(model="llama3-8b"))
    tera = 3 * 2 * float(shape["parameters"].sel(model="llama3-70b")) / 1e12
    return {
        "N7.1": _exact(giga, "Two operations a weight of attention, FFN and head."),
        "N7.2": _exact(share, "3 x 4096 x 14336 weights in each of 32 layers."),
        "N7.3": _exact(float(ffn) / 2**30, "One byte a weight."),
        "N7.4": _exact(tera, "Two operations a parameter."),
    }


def _exact(value: float, reason: str) -> Finding:
    return Finding(value, value, reason)
