"""NASiC's claims on throughput, energy and their product with the area (S1 to S3, S5, S6)."""

from __future__ import annotations

import xarray as xr

from nandcosim.claims.claim import Finding
from nandcosim.claims.nasic.configurations import ALL, MODELS, SPARSE, evaluated
from nandcosim.claims.spans import extent, span
from nandcosim.systems.nasic import Config
from nandcosim.systems.nasic.cost import CostFields, pulse_times
from nandcosim.systems.nasic.efficiency import shares

__all__ = ["energy", "products", "throughput"]


def throughput() -> dict[str, Finding]:
    """Growth with sigma and interleaving, with sparsity, and with states."""
    grown = evaluated(technique="t1", sigma=(0.075, 0.15), interleave=(4, 16))
    row_gain = _row_gain()
    listed = ", ".join(
        f"{float(row_gain.sel(sigma=s, interleave=i)):.3g} at sigma {s:g} and {i}"
        for i in (4, 16)
        for s in (0.075, 0.15)
    )
    sparse = evaluated(technique=ALL, ratio=SPARSE)["gain_speed"]
    second = sparse.sel(technique="t1t2") / sparse.sel(technique="t1")
    third = sparse.sel(technique="t1t2t3") / sparse.sel(technique="t1t2")
    states = evaluated(states=(2, 3, 4, 8))
    speed = states["array_throughput"] / states["array_throughput"].sel(states=2)
    delays = states["cycle_time"] / states["cycle_time"].sel(states=2)
    times = pulse_times(CostFields())
    ends = (SPARSE[-1], SPARSE[0])
    return {
        "S1.1": Finding(
            *extent(row_gain),
            f"Cycles of an expert's 2048 inputs: {listed}. In time of a whole token "
            f"{span(grown['gain_speed'])}: the 1024 inputs of the second matrix fill no more than "
            "a half, and experts do not fill planes evenly.",
        ),
        "S2.1": _ratio(
            second,
            ends,
            "In time of a token; what T2 gains depends on r only through how experts fill planes.",
        ),
        "S2.2": _ratio(
            third,
            ends,
            "Below 1 each: 4-bit weights take two digits at m = 2 and at m = 4 (13 levels are "
            "3.7 bits), so more pulses gain nothing here.",
        ),
        "S2.3": Finding(
            *extent(speed.sel(states=8)),
            f"In the paper's counting; m = 3 and 4: {span(speed.sel(states=[3, 4]))}. Cycle "
            f"{span(delays.sel(states=8))} times as long; a further pulse takes "
            f"{_share(times)} of the first, and its conversions as long as any.",
        ),
    }


def energy() -> dict[str, Finding]:
    """Energy of a token's experts."""
    found = evaluated(technique=ALL, model=MODELS)
    gain = found["gain_energy"]
    wide = evaluated(states=(4, 8), weight_bits=(4, 8))["token_energy"]
    efficiency = wide.sel(states=4) / wide.sel(states=8)
    short, long = (float(efficiency.sel(weight_bits=bits)) for bits in (4, 8))
    parts = shares(found["energy"].sel(model="olmoe"))
    ratio = (parts["adc"] / parts["array"]).sel(technique="t1t2t3")
    needed = 1e12 * float(Config().array("adc_energy") / ratio)
    whole = evaluated(technique=ALL, model=MODELS, precharged="plane")["gain_energy"]
    other = {name: span(whole.sel(technique=name)) for name in ALL}
    return {
        "S3.1": Finding(
            *extent(gain.sel(technique="t1")),
            "A cycle precharges the wordlines of blocks with inputs, of I times as many under T1, "
            f"which has I times fewer cycles. If all blocks of a plane rose: {other['t1']}.",
        ),
        "S3.2": Finding(
            *extent(gain.sel(technique="t1t2t3")),
            f"As S3.1; if all blocks rose: {other['t1t2t3']}.",
        ),
        "S3.3": Finding(
            *extent(efficiency),
            f"Energy of a token at m = 4 over that at m = 8: {short:.3g} with 4-bit weights, which "
            f"take two digits at m = 4 and one at m = 8, {long:.3g} with 8-bit ones.",
        ),
        "S3.4": Finding(
            *extent(ratio),
            "Wordlines of 6 V: the array takes "
            f"{100 * float(parts['array'].sel(technique='t1t2t3')):.1f} %. For equal shares a "
            f"conversion would have to take {needed:.0f} pJ, not 1 to 9.",
        ),
    }


def products() -> dict[str, Finding]:
    """Area-energy-delay product, and the abstract's ranges."""
    found = evaluated(technique=ALL[1:], model=MODELS)
    wide = evaluated(technique=ALL[1:], states=(2, 4, 8), model=(*MODELS, "deepseek-v3"))
    return {
        "S5.1": Finding(
            *extent(found["gain_aedp"]),
            f"Area times energy times delay; energy times area efficiency is "
            f"{span(found['gain_aedp_paper'])}.",
            contradiction="By the paper's own gains it would be 4 x 3.9 = 15.6 (T1) and more; 3.5 "
            "and 8.3 are 3.9 x 0.90 and 5.1 x 1.63, energy times area efficiency without delay.",
        ),
        "S6.1": Finding(
            *extent(wide["gain_array_speed"]),
            "In the paper's counting; the designs compared with are not in its text.",
        ),
        "S6.2": Finding(*extent(wide["gain_energy"]), "As S3.1."),
    }


def _row_gain() -> xr.DataArray:
    """Cycles of Base over T1's for the inputs of one expert of OLMoE (2048)."""
    found = evaluated(
        technique=("base", "t1"), sigma=(0.075, 0.15), interleave=(4, 16), ratio=1 / 32,
    )["row_cycles"].sel(matrix="in")  # fmt: skip
    ratio: xr.DataArray = found.sel(technique="base") / found.sel(technique="t1")
    return ratio


def _ratio(values: xr.DataArray, ends: tuple[float, float], reason: str) -> Finding:
    first, last = (float(values.sel(ratio=end)) for end in ends)
    return Finding(first / last, first / last, f"{first:.3g} over {last:.3g}. {reason}")


def _share(times: xr.Dataset) -> str:
    share = float(times["further"] / times["first"])
    return f"{100 * share:.0f} %"
