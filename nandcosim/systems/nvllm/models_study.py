"""Models, their placement and the silicon: the numbers of docs/systems/nvllm_models.md.

::

    python -m nandcosim.systems.nvllm.models_study models placement silicon

prints the parts named, all of them by default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import xarray as xr

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.models import load_model, model_names, shapes
from nandcosim.systems.nvllm.placement import POLICIES, copy_cost, place, usable_share
from nandcosim.systems.nvllm.rber import page_cost
from nandcosim.systems.nvllm.silicon import (
    BUFFER_KIB,
    FIFO_KIB,
    TABLE_2,
    SiliconFields,
    bit_density,
    cmos_share,
    monolithic_ecc,
    silicon,
)
from nandcosim.tables import load_tables

__all__ = ["models_part", "placement_part", "silicon_part"]

_CLUSTERS = (8, 12, 16)  # Table 3
_CONTEXT = 2048  # section 4.4: the longest pair, 1024 and 1024 tokens


def models_part() -> Iterator[str]:
    """Every published model, and what the paper says of three."""
    yield "model  parameters  FFN (GB)  attention  head  embedding  FFN share  KV (kB/token)"
    for model in map(load_model, model_names()):
        sizes = (
            model.ffn_weights, model.attention_weights, model.head_weights,
            model.embedding_weights,
        )  # fmt: skip
        yield (
            f"{model.name:<13} {model.parameters:>14,}"
            + "".join(f" {size / 1e9:>8.3f}" for size in sizes)
            + f" {model.ffn_weights / model.parameters:>7.1%} {model.kv_values / 1e3:>9.1f}"
        )
    opt, llama, large = map(load_model, ("opt-30b", "llama3-8b", "llama3-70b"))
    matrices = opt.ffn_weights + opt.attention_weights + opt.head_weights
    yield f"OPT-30B: {2e-9 * opt.parameters:.2f} GOP a token, {2e-9 * matrices:.2f} in matrices"
    yield (
        f"LLaMA3-8B: FFN {llama.ffn_weights / 2**30:.2f} GiB, "
        f"{llama.ffn / llama.hidden} times as wide, {llama.ffn_weights / llama.parameters:.1%}"
    )
    yield f"LLaMA3-70B at 3 tokens/s: {6e-12 * large.parameters:.3f} TOPS"


def placement_part() -> Iterator[str]:
    """Flash and DRAM of every model; the copy at initialisation; policies of OPT-30B."""
    config = HardwareFields(clusters=8, kv_bytes=(1.0, 2.0))
    parity = code_sizes(config)["parity_bits"]
    yield f"Share of the flash that weights may take: {usable_share(config, parity).item():.1%}"
    placed = place(config, shapes(model_names()), context=_CONTEXT, parity_bits=parity)
    copied = copy_cost(config, placed, page_cost(config, load_tables()))
    yield (
        f"8 clusters, {placed['flash_capacity'].item() / 2**30:.0f} GiB flash, "
        f"{placed['dram_capacity'].item() / 2**30:.0f} GiB DRAM; {_CONTEXT} tokens"
    )
    yield "model  flash (GiB)  DRAM with KV at 1 B (GiB)  at 2 B  copy (s)  (J)"
    for name in model_names():
        row, cost = placed.sel(model=name), copied.sel(model=name)
        drams = "".join(
            f" {size / 2**30:>8.2f}" + ("*" if size > row["dram_capacity"].item() else " ")
            for size in row["dram"].values
        )
        yield (
            f"{name:<13} {row['flash'].item() / 2**30:>7.2f}{drams}"
            f" {cost['time'].item():>7.3f} {cost['energy'].item():>7.3f}"
        )
    yield "*: does not fit"
    names = list(POLICIES)
    policy = xr.DataArray(names, dims="policy", coords={"policy": names})
    dram = place(HardwareFields(), shapes("opt-30b"), policy, _CONTEXT)["dram"]
    yield "OPT-30B in DRAM (GiB): " + ", ".join(
        f"{name} {size / 2**30:.2f}" for name, size in zip(names, dram.values, strict=True)
    )


def silicon_part() -> Iterator[str]:
    """Area and power by size, and what Table 2 implies."""
    config = SiliconFields(clusters=_CLUSTERS, power_scaling=("none", "linear"))
    total, share = silicon(config).sum("module"), cmos_share(config)
    yield "clusters  NPU (mm2)  flash logic  share of CMOS  power (W): NPU  flash logic  linear"
    for clusters in _CLUSTERS:
        row = total.sel(clusters=clusters)
        stated = row["power"].sel(power_scaling="none")
        linear = row["power"].sel(unit="nand", power_scaling="linear").item()
        yield (
            f"{clusters:>8} {row['area'].sel(unit='npu').item():>9.3f}"
            f" {row['area'].sel(unit='nand').item():>12.3f}"
            f" {share.sel(clusters=clusters).item():>13.2%}"
            f" {stated.sel(unit='npu').item():>13.3f}"
            f" {stated.sel(unit='nand').item():>12.3f} {linear:>8.3f}"
        )
    yield from _table_lines(SiliconFields(clusters=8))


def _table_lines(config: SiliconFields) -> Iterator[str]:
    modules = silicon(config)
    logic, monolithic = modules.sel(unit="nand", drop=True), monolithic_ecc(config)
    for quantity, unit in (("area", "mm2"), ("power", "W")):
        whole = logic[quantity].sum("module").item()
        detector, corrector = logic[quantity].sel(module=["detector", "corrector"]).values
        single = monolithic[quantity].item()
        with_single = whole - detector - corrector + single
        yield (
            f"ECC {quantity}: {detector + corrector:.4f} {unit}, "
            f"{(detector + corrector) / whole:.1%} of the flash logic; "
            f"monolithic {single:.4f}, a detector and {(single - detector) / corrector:.2f} "
            f"correctors; with it the flash logic takes {with_single:.3f} {unit}, "
            f"{with_single / whole - 1:+.1%}"
        )
    saved = logic["area"].sel(module=["detector", "corrector"]).sum() - monolithic["area"]
    share = cmos_share(config) * (1 - saved / logic["area"].sum())
    yield f"With a monolithic ECC the flash logic takes {share.item():.2%} of the CMOS"
    yield from _sram_lines()
    density = bit_density(config).item() / 1e9
    yield f"Density: {density:.2f} Gb/mm2; the same cells as QLC, if that is SLC: {4 * density:.1f}"


def _sram_lines() -> Iterator[str]:
    (npu_area, npu_power), (area, power) = (TABLE_2[unit, "sram"] for unit in ("npu", "nand"))
    macros = 4  # of the NPU, one an engine
    yield (
        f"SRAM: NPU {macros} macros of {npu_area / macros:,.0f} um2, {npu_power / macros:.2f} mW; "
        f"flash logic {macros * area / npu_area:.3f} and {macros * power / npu_power:.3f} of them; "
        f"{area / (FIFO_KIB + BUFFER_KIB):,.0f} um2 a KiB with the FIFOs, "
        f"{area / BUFFER_KIB:,.0f} without"
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts named, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nvllm.models_study", description=main.__doc__
    )
    makers = {"models": models_part, "placement": placement_part, "silicon": silicon_part}
    print_parts(makers, parse_parts(parser, makers, arguments).parts)


if __name__ == "__main__":
    sys.exit(main())
