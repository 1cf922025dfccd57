"""Time, energy and area of NASiC: the numbers of docs/systems/nasic_cost.md.

::

    python -m nandcosim.systems.nasic.cost_study cycles pulses t2 energy aedp models

prints the parts named, all of them by default. The paper names no models: *one of n* has a layer
of n experts, one of them routed to, 2048 inputs, and planes enough to take Base's page at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nasic.cost import CostFields, at_ratio, cost, input_dimension, pulse_times
from nandcosim.systems.nasic.efficiency import gains, shares
from nandcosim.systems.nasic.mapping import place
from nandcosim.systems.nasic.moe import moe_shapes

__all__ = [
    "aedp_part",
    "cycles_part",
    "energy_part",
    "models_part",
    "one_of",
    "pulses_part",
    "t2_part",
]

_ALL = ("base", "t1", "t1t2", "t1t2t3")
_SIGMAS = (0.0375, 0.053, 0.075, 0.106, 0.15, 0.2)
_MODELS = (
    "mixtral-8x7b", "phi-3.5-moe", "olmoe", "deepseek-moe-16b", "qwen1.5-moe", "qwen3-30b-a3b",
    "deepseek-v3",
)  # fmt: skip
_WIDE = {"planes": 128, "blocks": 4096}  # room for 64 experts of 2048 x 1024 side by side
#: r = 1/4 and pages of two experts of OLMoE.
_QUARTER: dict[str, Any] = {"ratio": 0.25, "interleave": 4, "bitlines": 24_576}

#: Readings of what a cycle's energy is.
_READINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "wordlines held over input digits": {"between_inputs": "hold"},
    "wordlines of 1.2 V": {"pass_voltage": 1.2},
    "held, 1.2 V": {"between_inputs": "hold", "pass_voltage": 1.2},
    "all blocks of a plane rise": {"precharged": "plane"},
    "all blocks, converter 1000 times": {"precharged": "plane", "adc_energy": 1.1e-9},
    "Base rests bitlines": {"redundancy": "bitlines"},
    "Base rests planes": {"redundancy": "planes"},
}


def one_of(experts: int, hidden: int = 2048, expert_ffn: int = 1024) -> xr.Dataset:
    """Shapes of one layer of which one expert is routed to."""
    return xr.Dataset(
        {
            "hidden": float(hidden),
            "expert_ffn": float(expert_ffn),
            "ffn_matrices": 3.0,
            "moe_layers": 1.0,
            "experts": float(experts),
            "top_k": 1.0,
            "shared_ffn": 0.0,
            "active_weights": 3.0 * hidden * expert_ffn,
        }
    )


def cycles_part() -> Iterator[str]:
    """T1 against Base where sigma bounds the rows of a cycle (Fig. 8(b), S1)."""
    yield "Cycles of Base over those of T1, D = 2048; one of 64, 128 planes of 4096 blocks"
    rows = input_dimension(CostFields(sigma=_SIGMAS))
    yield "sigma          " + " ".join(f"{s:7.4g}" for s in _SIGMAS)
    yield "rows (N)       " + " ".join(f"{int(n):7d}" for n in rows.values)
    for interleave in (4, 8, 16):
        config = CostFields(technique=_ALL[:2], sigma=_SIGMAS, interleave=interleave, **_WIDE)
        cycles = cost(config, one_of(64))["cycles"].sel(matrix="in")
        ratio = cycles.sel(technique="base") / cycles.sel(technique="t1")
        yield f"interleave {interleave:3d} " + " ".join(f"{r:7.2f}" for r in ratio.values)
    yield ""
    yield "Speed of a token, T1 over Base, sigma = 0.15, interleave 16"
    yield "model             r      16 planes  128 planes  1024 planes  one search at a time, 1024"
    for name in _MODELS:
        shapes, found = moe_shapes(name), []
        for planes, search in ((16, "planes"), (128, "planes"), (1024, "planes"), (1024, "serial")):
            config = CostFields(technique=_ALL[:2], planes=planes, search=search)
            found.append(gains(cost(config, shapes))["speed"].sel(technique="t1").item())
        yield (
            f"{name:<16} 1/{1 / shapes['ratio'].item():<5.3g} {found[0]:9.2f} {found[1]:11.2f} "
            f"{found[2]:12.2f} {found[3]:14.2f}"
        )


def pulses_part() -> Iterator[str]:
    """T3 against m (Fig. 8(d), S2)."""
    states = (2, 3, 4, 8)
    yield "Operations a second of m states over those of 2, in the paper's counting"
    yield "pulses                                t2/t1 (m=4)   m = 3     4     8"
    free = {"adc_time": 0.0}
    given = {f"given, t2 / t1 = {r}": {"timing": "given", "t2": 33e-6 * r} for r in (0.05, 0.1)}
    tables: dict[str, dict[str, Any]] = {
        f"table, selected wordline {t * 1e6:g} us": {"tau_read": t} for t in (0.6e-6, 2e-6, 6e-6)
    }
    wordlines: dict[str, dict[str, Any]] = {
        f"scaled to {n} bitlines": {"timing": "wordline", "bitlines": n} for n in (16_384, 65_536)
    }
    cases: dict[str, dict[str, Any]] = {
        n: v | free for n, v in (given | tables | wordlines).items()
    }
    cases |= {
        "table, 6 us, converted every pulse": {},
        "table, 0.6 us, converted every pulse": {"tau_read": 0.6e-6},
        "16384 bitlines, converted every pulse": {"timing": "wordline"},
        "16384 bitlines, converted every cycle": {"timing": "wordline", "conversion": "cycle"},
    }
    for name, settings in cases.items():
        config = CostFields(states=states, **settings)
        rate = cost(config, one_of(64))["array_throughput"]
        times = pulse_times(CostFields(states=4, **settings))
        rho = (times["further"] / (times["first"] - times["further"])).item()
        ratio = (rate / rate.sel(states=2)).values
        yield f"{name:<38} {rho:9.3f}   " + " ".join(f"{r:5.2f}" for r in ratio[1:])
    yield ""
    yield "In weights: speed of a token over that of 2 states; one of 64, t2 = t1 / 10, ADC free"
    yield "weight bits  planes   units of a weight m = 2, 3, 4, 8    m = 3     4     8"
    for bits in (3, 4, 5, 8):
        for planes in (1, 128):
            config = CostFields(
                states=states, weight_bits=bits, planes=planes, timing="given", **free
            )
            time = cost(config, one_of(64))["token_time"]
            units = np.ceil(bits / np.log2(4 * (np.array(states) - 1) + 1)).astype(int)
            ratio = (time.sel(states=2) / time).values
            yield (
                f"{bits:11d} {planes:7d}   {' '.join(map(str, units)):>20} "
                f"{'':<18}" + " ".join(f"{r:5.2f}" for r in ratio[1:])
            )


def t2_part() -> Iterator[str]:
    """T2 against r (Fig. 8(c), S2)."""
    ratios = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
    yield "T1 and T2 over T1, and over Base; one routed to, sigma = 0.15, interleave 16"
    yield "planes  what                         r = " + " ".join(f"1/{1 / r:<6.0f}" for r in ratios)
    for planes in (4, 128):
        config = CostFields(technique=_ALL[:3], ratio=ratios, planes=planes)
        found = gains(cost(config, one_of(64)))
        for what in ("speed", "array_speed"):
            times = found[what]
            once, both = (times.sel(technique=t).values for t in ("t1", "t1t2"))
            label = "tokens" if what == "speed" else "the paper's operations"
            yield f"{planes:6d}  {label:<28}     " + " ".join(
                f"{b / a:.2f}/{b:<6.1f}" for a, b in zip(once, both, strict=True)
            )


def _quarter(**settings: Any) -> xr.Dataset:
    """OLMoE with a quarter of its experts routed to."""
    return cost(CostFields(technique=_ALL, **_QUARTER, **settings), moe_shapes("olmoe"))


def energy_part() -> Iterator[str]:
    """Breakdown and energy efficiency (Fig. 9, S3)."""
    yield "OLMoE, r = 1/4, 4 interleaved, pages of 2 experts, m = 4, N = 128: share of array and"
    yield "of converters (%), and energy of Base over that of T1, T1+T2, T1+T2+T3"
    yield f"{'reading':<34} {'base':>11} {'t1':>11} {'t1t2':>11} {'t1t2t3':>11}   gains"
    for name, settings in _READINGS.items():
        found = _quarter(**settings)
        part = shares(found["energy"])
        text = " ".join(
            f"{100 * a:5.1f}/{100 * c:5.1f}"
            for a, c in zip(part["array"].values, part["adc"].values, strict=True)
        )
        better = gains(found)["energy"].values
        yield f"{name:<34} {text}   " + " ".join(f"{g:5.2f}" for g in better[1:])
    yield ""
    found = _quarter()
    yield "By component (uJ a token)"
    table = (1e6 * found["energy"]).to_pandas()
    yield from table.to_string(float_format=lambda v: f"{v:.1f}").splitlines()
    yield ""
    yield "Converter energy (pJ, 8 bits) at which converters take half in T1+T2+T3, and at which"
    yield "T1+T2+T3 gains 5.1 / 3.9 over T1; precharge of"
    for which in ("active", "plane"):
        half, reached = _converters(precharged=which)
        yield f"  {which:<8} {half:9.0f} {reached:9.0f}"
    yield ""
    yield "Energy efficiency against m (operations/pJ), T1+T2+T3, weights of 4 and of 8 bits"
    for name, settings in (("defaults", {}), ("converter 1000 times", {"adc_energy": 1.1e-9})):
        config = CostFields(states=(2, 3, 4, 8), weight_bits=(4, 8), **_QUARTER, **settings)
        rate = 1e-12 * cost(config, moe_shapes("olmoe"))["energy_efficiency"]
        for bits in (4, 8):
            values = rate.sel(weight_bits=bits).values
            yield f"  {name:<22} {bits} bits, m = 2, 3, 4, 8: " + " ".join(
                f"{v:.5f}" for v in values
            )


def _converters(**settings: Any) -> tuple[float, float]:
    """Converter energy (pJ) for half of T1+T2+T3's energy, and for the paper's gain over T1."""
    found = _quarter(**settings)
    whole, adc = found["energy"].sum("component"), found["energy"].sel(component="adc")
    per_joule, rest = adc / CostFields().adc_energy, whole - adc
    t1, t3 = ((rest.sel(technique=t), per_joule.sel(technique=t)) for t in ("t1", "t1t2t3"))
    gain = 5.1 / 3.9
    # (rest1 + adc1 e) / (rest3 + adc3 e) = gain; the array's part of T1 alone exceeds it
    reached = (t1[0] - gain * t3[0]) / (gain * t3[1] - t1[1])
    return 1e12 * float(t3[0] / t3[1]), 1e12 * float(reached)


def aedp_part() -> Iterator[str]:
    """Area-energy-delay product in both readings (S5)."""
    yield "OLMoE, r = 1/4, 4 interleaved, pages of 2 experts, m = 4, over Base"
    yield (
        f"{'reading':<34} {'technique':<8}  speed  energy   area  A E D  area efficiency  "
        "energy x it"
    )
    for name, settings in _READINGS.items():
        config = CostFields(technique=_ALL, **_QUARTER, **settings)
        shapes = at_ratio(config, moe_shapes("olmoe"))
        placed = place(config, shapes, input_dimension(config))
        better = gains(cost(config, shapes, placed), placed)
        for technique in _ALL[1:]:
            at = {n: float(v) for n, v in better.sel(technique=technique).data_vars.items()}
            yield (
                f"{name:<34} {technique:<8} {at['speed']:6.2f} {at['energy']:7.2f} "
                f"{at['area']:6.2f} {at['aedp']:6.2f} {at['area_efficiency']:16.2f} "
                f"{at['aedp_paper']:12.2f}"
            )


def models_part() -> Iterator[str]:
    """Real models, defaults."""
    yield "Experts of a token, on 16 planes or as many as hold the model"
    yield f"{'model':<18}{'technique':<9} planes  time (ms)  energy (mJ)  Gop/s  Gop/J  area (mm^2)"
    config = CostFields(technique=_ALL)
    rows = input_dimension(config)
    for name in _MODELS:
        shapes = at_ratio(config, moe_shapes(name))
        placed = place(config, shapes, rows)
        found = cost(config, shapes, placed)
        planes = placed["planes_at_work"].sum("matrix")
        for technique in _ALL:
            at = found.sel(technique=technique)
            yield (
                f"{name:<18}{technique:<9}{planes.sel(technique=technique).item():7.0f} "
                f"{1e3 * at['token_time'].item():10.1f} "
                f"{1e3 * at['energy'].sum().item():12.1f} {1e-9 * at['throughput'].item():6.1f} "
                f"{1e-9 * at['energy_efficiency'].item():6.2f} {at['area'].item():12.0f}"
            )


_PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "cycles": cycles_part,
    "pulses": pulses_part,
    "t2": t2_part,
    "energy": energy_part,
    "aedp": aedp_part,
    "models": models_part,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts named, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nasic.cost_study", description=main.__doc__
    )
    print_parts(_PARTS, parse_parts(parser, _PARTS, arguments).parts)


if __name__ == "__main__":
    sys.exit(main())
