"""The sections of an NVLLM evaluation on the page."""

from __future__ import annotations

import json

import xarray as xr

from nandcosim.report.configuration import MOST_ROWS, changed, first_rows, parameters, span
from nandcosim.report.inference import (
    AXES,
    draw_context,
    draw_energy,
    draw_stages,
    draw_throughput,
    latency_table,
    part_table,
    speed_table,
)
from nandcosim.report.page import Picture, Section, as_svg
from nandcosim.systems.nvllm.config import Config

__all__ = ["nvllm_sections"]


def nvllm_sections(name: str, dataset: xr.Dataset) -> list[Section]:
    """Sections of one result of `nandcosim.systems.nvllm.evaluate`; `name` is its file's."""
    return [
        _speed(name, dataset),
        _time(name, dataset),
        _latency(dataset),
        _energy(name, dataset),
        parameters(dataset, Config),
    ]


def _speed(name: str, dataset: xr.Dataset) -> Section:
    rows = speed_table(dataset)
    text = (
        "NVLLM keeps FFN and head in flash and multiplies them there, under the planes; attention "
        "weights and the KV cache are in DRAM, beside an NPU. Rivals stream the weights to a GPU "
        "from DRAM, SSD or both, or compute in flash chips behind SSD channels; in brackets "
        f"NVLLM's speed over theirs.{_unfit(dataset)}{first_rows(rows)}"
    )
    picture = Picture(
        as_svg(draw_throughput(dataset), f"{name}throughput"),
        f"Tokens decoded a second{AXES.cut_at(dataset, ('model', 'clusters'))}.",
    )
    facts = {
        "file": name,
        "settings": changed(dataset, Config()),
        "tables, by digest": _tables(dataset),
        "compute of flash and NPU": span(dataset["operations"] / 1e9, "GOPS"),
        "pages read from all planes": span(dataset["array_bandwidth"] / 1e9, "GB/s"),
        "page read": span(dataset["page_read_time"], "s"),
        "flash used": f"{span(dataset['flash'], 'B')} of {span(dataset['flash_capacity'], 'B')}",
        "DRAM used": f"{span(dataset['dram'], 'B')} of {span(dataset['dram_capacity'], 'B')}",
        "power of the logic": span(dataset["power"].sum(["unit", "module"]), "W"),
        "area of the flash logic": span(
            dataset["area"].sel(unit="nand").sum("module"), "mm²"
        ),
        "made by": f"nandcosim {dataset.attrs['nandcosim']}, {dataset.attrs['made']}",
    }  # fmt: skip
    return Section("Throughput of NVLLM", text, [picture], facts, rows[:MOST_ROWS])


def _time(name: str, dataset: xr.Dataset) -> Section:
    rows = part_table(dataset)
    shown = ("model", "clusters", "context")
    pictures = [
        Picture(
            as_svg(draw_stages(dataset), f"{name}stages"),
            "Where the time of a token goes, and how prefill and decode share the latency of "
            f"prompt and output; totals at the right{AXES.cut_at(dataset, shown)}.",
        )
    ]
    if "context" in dataset.dims:
        pictures.append(
            Picture(
                as_svg(draw_context(dataset), f"{name}context"),
                "Time of a token as the context grows; dashed: the NPU computes all projections. "
                "Algorithm 2 rounds up, so that it may more than make up for the growth"
                f"{AXES.cut_at(dataset, ('model', 'context'))}.",
            )
        )
    text = (
        "projection: Q, K, V, O; attention: over the KV cache; io: activations between NPU and "
        "flash. A segment with errors goes to a corrector and is multiplied later; engines "
        f"multiply in all other cycles.{first_rows(rows)}"
    )
    facts = {
        "raw bit error rate": span(dataset["raw_bit_error_rate"], "1"),
        "segments with errors": span(dataset["segment_error_rate"], "1"),
        "segments beyond correction": span(dataset["uncorrectable_rate"], "1"),
        "cycles in which an engine multiplies": span(dataset["utilisation"], "1"),
    }
    return Section("Where a token's time goes", text, pictures, facts, rows[:MOST_ROWS])


def _latency(dataset: xr.Dataset) -> Section:
    rows = latency_table(dataset)
    text = (
        "Prefill of the prompt, until the first token, and decode of the output, one token after "
        "the other over a growing context. SSD-like rivals have no published prefill: not "
        f"modelled.{first_rows(rows)}"
    )
    return Section("Latency of prompt and output", text, rows=rows[:MOST_ROWS])


def _energy(name: str, dataset: xr.Dataset) -> Section:
    picture = Picture(
        as_svg(draw_energy(dataset), f"{name}energy"),
        f"Energy of the data that a token moves{AXES.cut_at(dataset, ('model',))}.",
    )
    text = (
        "nand: out of the arrays; io: between flash and NPU (of Cambricon-LLM: over the flash "
        "channels); dram: attention weights and KV cache. The logic is apart."
    )
    facts = {
        "array": span(dataset["energy_per_bit"] * 1e12, "pJ a bit"),
        "logic while it works": f"{span(dataset['logic_energy'].sum('unit'), 'J')} a token",
    }
    return Section("Energy of data movement", text, [picture], facts)


def _unfit(dataset: xr.Dataset) -> str:
    if bool(dataset["fits"].all()):
        return ""
    return " What does not fit flash or DRAM is computed as if it did, and marked."


def _tables(dataset: xr.Dataset) -> str:
    """Digests of the tables that figures come from."""
    digests = json.loads(dataset.attrs["tables"])
    return ", ".join(f"{name} {digest[:16]}" for name, digest in digests.items()) or "none"
