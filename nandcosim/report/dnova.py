"""The sections of a D-NOVA evaluation on the page."""

from __future__ import annotations

import json

import xarray as xr

from nandcosim.report.configuration import MOST_ROWS, changed, first_rows, parameters, span
from nandcosim.report.cost import (
    SHOWN,
    cost_table,
    cut_at,
    draw_shares,
    draw_throughput,
    stage_table,
)
from nandcosim.report.page import Picture, Section, as_svg
from nandcosim.report.retrieval import (
    DEFICIT_AXES,
    deficit_table,
    draw_heat_map,
    draw_recall,
    gap_table,
    heat_map_axes,
    recall_table,
)
from nandcosim.systems.dnova.config import Config

__all__ = ["dnova_sections"]


def dnova_sections(name: str, dataset: xr.Dataset) -> list[Section]:
    """Sections of one result of `nandcosim.systems.dnova.evaluate`; `name` is its file's."""
    return [
        _recall(name, dataset),
        _every_recall(dataset),
        *_costs(name, dataset),
        parameters(dataset, Config),
    ]


def _recall(name: str, dataset: xr.Dataset) -> Section:
    k = int(dataset["k"].max())
    pictures = []
    if "nprobe" in dataset.dims:
        pictures = [
            Picture(
                as_svg(draw_recall(dataset, reference, k), f"{name}{reference}"),
                f"Recall@{k} after probing more and more lists; bars are one standard error "
                "over the queries. Points at one nprobe stand side by side.",
            )
            for reference in dataset["reference"].values.tolist()
        ]
    if heat_map_axes(dataset) is not None:
        pictures.append(
            Picture(
                as_svg(draw_heat_map(dataset, k), f"{name}heat"),
                f"Points of recall@{k} that FP32-IVF has more, against the wordlines sensed at "
                "once in stage 2 (m2) and in stages 1 and 3 (m1 = m3).",
            )
        )
    judged = (
        " Judged documents are those that its relevance judgements name."
        if "judged" in dataset["reference"]
        else ""
    )
    text = (
        "D-NOVA retrieves inside the array. DTSabc senses a, b and c wordlines at once in its "
        "three stages (lists, candidates, re-ranking); nprobe is how many inverted lists are "
        "searched. FP32-IVF is the float32 search of the same lists in FAISS. "
        f"Corpus {dataset.attrs['corpus']}: {dataset.attrs['documents']} documents, "
        f"{dataset.attrs['queries']} queries, searched in every configuration.{judged} "
        "The table gives the recall "
        f"at {k}, in points, that FP32-IVF has more, paired by query, ± one standard error "
        "(over the queries, and over the chips where several were drawn)."
    )
    facts = {
        "file": name,
        "settings": changed(dataset, Config()),
        "tables, by digest": _used_tables(dataset),
        "made by": f"nandcosim {dataset.attrs['nandcosim']}, {dataset.attrs['made']}",
    }
    return Section("Recall of D-NOVA", text, pictures, facts, gap_table(dataset, k))


def _every_recall(dataset: xr.Dataset) -> Section:
    text = "Share of the reference found in the first k, ± one standard error."
    return Section("Every recall", text, rows=recall_table(dataset))


def _costs(name: str, dataset: xr.Dataset) -> list[Section]:
    if "system" not in dataset.dims:  # of a version that measured recall only
        return []
    cut = cut_at(dataset, SHOWN)
    rows = cost_table(dataset)
    pictures = [
        Picture(
            as_svg(draw_shares(dataset), f"{name}shares"),
            "Where a query's time and energy go; totals at the right. array: sensing or reading "
            f"the cells; bus: flash channels; memory: DRAM{cut}.",
        ),
        Picture(
            as_svg(draw_throughput(dataset), f"{name}throughput"),
            f"Queries a second with the device saturated{cut}.",
        ),
    ]
    text = (
        "All systems score the same vectors of the same lists. CPU (FAISS) is the scan rate of "
        "FAISS on one thread, CPU (paper) the rate that the paper's ratio needs (calibrated). "
        "Times are those of a query alone; axes that cost does not depend on are left out, and "
        f"chips are averaged.{first_rows(rows)}"
    )
    facts = _facts(dataset)
    sections = [Section("Latency, energy, throughput", text, pictures, facts, rows[:MOST_ROWS])]
    stages = (
        "Sub-blocks are activated one by one or in parallel as the schedule says; medians are "
        "over the queries."
    )
    by_stage = stage_table(dataset)
    stages += first_rows(by_stage)
    sections.append(Section("D-NOVA by stage", stages, rows=by_stage[:MOST_ROWS]))
    if "deficit" in dataset:
        text = (
            "Failed groups of one string among the vectors that a stage keeps: a latch of b bits "
            f"stops at 2^b - 1{cut_at(dataset, DEFICIT_AXES)}."
        )
        sections.append(Section("Deficits of a string", text, rows=deficit_table(dataset)))
    return sections


def _facts(dataset: xr.Dataset) -> dict[str, str]:
    """The device and its power; a range where it differs over the axes."""
    cap = dataset["power_capped_at"]
    rows = {
        "time and energy of a sense from": dataset.attrs["cost"],
        "device": span(dataset["device_capacity"], "B"),
        "sub-blocks of the index": f"{span(dataset['device_vector_subblocks'], '1')} of "
        f"{span(dataset['device_subblocks'], '1')}, {span(dataset['device_copies'], '1')} "
        "copies",
        "controller memory": f"{span(dataset['device_sram_peak'], 'B')} at most",
        "merged deficit": f"{span(dataset['device_merge_bits_needed'], '1')} bits needed",
        "power, every plane sensing": span(dataset["power_all_planes"], "W"),
        "power, all streams sensing": span(dataset["power_saturated"], "W"),
        "power, average when saturated": span(dataset["power_average"], "W"),
        "power cap": span(cap, "W"),
        "bottleneck": ", ".join(sorted(set(dataset["bottleneck"].values.ravel().tolist()))),
    }
    if bool((dataset["qps_capped"] < dataset["qps"].sel(system="dnova")).any()):
        rows["beyond the power cap"] = (
            f"the average is; {span(dataset['qps_capped'], '1/s')} within it, latency "
            f"{span(dataset['latency_capped'], 's')}"
        )
    elif bool((dataset["power_all_planes"] > cap).any()):
        rows["beyond the power cap"] = "every plane sensing at once; the schedule does not do that"
    if "event_qps" in dataset:
        rows["event-driven simulation"] = (
            f"latency alone {span(dataset['event_latency_ratio'], '1')} of the closed form, "
            f"{span(dataset['event_qps'], '1/s')} saturated"
        )
    return rows


def _used_tables(dataset: xr.Dataset) -> str:
    digests = json.loads(dataset.attrs["tables"])
    used = [name for name in ("dts_sense", "dts_discharge", "dts_energy") if name in digests]
    return ", ".join(f"{name} {digests[name][:16]}" for name in used) or "none"
