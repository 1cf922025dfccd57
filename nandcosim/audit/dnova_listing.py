"""An audit of D-NOVA as text, as rows, and its worst reads as decks."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.audit.comparison import (
    Disagreement,
    alternatives,
    bin_cells,
    by_companion,
    disagreement,
    farthest,
    noise_means,
)
from nandcosim.audit.strata import Estimate
from nandcosim.audit.strings import string_params
from nandcosim.audit.text import HEADER, failures, part_line, part_row, percent, span
from nandcosim.intervals import wilson
from nandcosim.spice.deck import build_deck
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit

__all__ = ["lines", "offender_deck", "offenders", "rows"]

_OFFENDERS_SHOWN = 5

_ALIKE = (
    "  (alike: the same group over uniform data, a similar read whose bit may differ; "
    "the read itself: nandcosim.audit.offender_deck)"
)

#: Of the second worst cell's margin, in level spacings; without errors that is 0.5, 1.5, ...
_COMPANION_EDGES = (-np.inf, 0.25, 0.75, 1.25, 2.25, np.inf)


def rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The comparison over all reads, by stage and by bin of the excess margin.

    The part ``as they occur`` is the plain sample, with Wilson's interval; the parts ``next
    cell`` (by the margin of the second worst cell) have none.
    """
    found = []
    for comparison in dataset["comparison"].values.tolist():
        found.append(part_row(comparison, "all", disagreement(dataset, comparison)))
        found.append(_uniform_row(dataset, comparison))
        for stage in dataset["stage_of"].values.tolist():
            part = disagreement(dataset, comparison, bin_cells(dataset, stage=stage))
            found.append(part_row(comparison, f"stage {stage}", part))
        edges = zip(dataset["bin_low"].values, dataset["bin_high"].values, strict=True)
        for number, (low, high) in enumerate(edges):
            part = disagreement(dataset, comparison, bin_cells(dataset, number=number))
            found.append(part_row(comparison, f"excess {span(low, high)}", part))
        parts = by_companion(dataset, comparison, _COMPANION_EDGES)
        for (low, high), part in zip(pairwise(_COMPANION_EDGES), parts, strict=True):
            found.append(part_row(comparison, f"next cell {span(low, high)}", part))
    return found


def lines(dataset: xr.Dataset) -> str:
    """The audit as text for a terminal."""
    config = json.loads(dataset.attrs["config"])
    reads = int(dataset["reads"].sum())
    searched = (
        f"{dataset.sizes['sample']} of {reads:.3g} reads of {dataset.attrs['queries']} queries "
        f"replayed in ngspice: dts {config['dts']}, alpha {config['alpha']}, "
        f"sigma {config['sigma']:g}, nprobe {config['nprobe']}, {dataset.attrs['corpus']}"
    )
    text = [
        searched,
        failures(dataset),
        "",
        f"{'amplifier':<12}{'trip margin':>24}{'read noise':>24}   (level spacings)",
        f"{'':<12}{'table':>12}{'ngspice':>12}{'table':>12}{'ngspice':>12}",
    ]
    text += [
        f"{f'm = {int(m)}':<12}"
        + "".join(
            f"{float(dataset[name].sel(m=m)):>12.3f}"
            for name in ("trip_table", "trip_measured", "read_sigma_table", "read_sigma_measured")
        )
        for m in dataset["m"].values
    ]
    for comparison in dataset["comparison"].values.tolist():
        title = {
            "ideal": "ideal amplifier in both",
            "noisy": "the same amplifier noise in both",
        }[comparison]
        text += ["", f"{title}: disagreement", HEADER]
        text += [part_line(row) for row in rows(dataset) if row["comparison"] == comparison]
    means = noise_means(dataset)
    text += [
        "",
        "independent amplifier noise in both, over the search's reads (95 %)",
        f"  circuit against model       {percent(means['expected'])}",
        f"  model against itself        {percent(means['floor'])}",
        f"  circuit conducts more often {percent(means['bias'])}",
    ]
    text += ["", *_alternative_lines(dataset)]
    worst = offenders(dataset, _OFFENDERS_SHOWN)
    if worst:
        text += ["", "farthest from the decision, ideal amplifier:"]
        text += [_ALIKE, *(_offender_line(each) for each in worst)]
    return "\n".join(text)


def offenders(
    dataset: xr.Dataset, count: int = 10, comparison: str = "ideal"
) -> list[dict[str, Any]]:
    """The reads in which circuit and model disagree, largest excess margin first.

    The command ``simulate`` takes the worst and the second worst cell's margin.
    """
    here = dataset.sel(comparison=comparison)
    names = ("stage", "query", "vector", "sense", "string", "first", "size")
    found = []
    for row in farthest(dataset, comparison)[:count].tolist():
        one = here.isel(sample=row)
        values: dict[str, Any] = {name: int(one[name]) for name in names}
        values |= {name: float(one[name]) for name in ("margin", "companion", "excess", "score")}
        values |= {"model": int(one["model"]), "circuit": int(one["circuit"])}
        found.append({"sample": row, **values, "simulate": _command(dataset, values)})
    return found


def offender_deck(dataset: xr.Dataset, sample: int, comparison: str = "ideal") -> str:
    """A complete deck of one read's simulation, for ``ngspice -b``.

    The ``.meas`` line ``bit`` is the output buffer's voltage at the strobe.
    """
    circuit = load_circuit(dataset.attrs["circuit"])
    one = dataset.isel(sample=sample)
    settings = json.loads(dataset.attrs["circuit_settings"])
    params = string_params(circuit, settings, int(one["first"]), int(one["size"]))
    knobs = {"threshold": one["threshold"].values}
    if comparison == "noisy":
        knobs |= {
            str(k): np.array([v])
            for k, v in zip(one["knob"].values, one["mismatch"].values, strict=True)
        }
    deck = build_deck(circuit, params, knobs, frozenset({"bit"}))
    strobe = circuit.marks(params).instants["strobe"]
    return deck.text((f".meas tran bit find v(out) at={strobe!r}",))


def _uniform_row(dataset: xr.Dataset, comparison: str) -> dict[str, Any]:
    here = dataset.sel(comparison=comparison).isel(sample=np.flatnonzero(dataset["uniform"].values))
    ok = here["status"].values == Status.OK
    model, circuit = here["model"].values[ok] > 0.5, here["circuit"].values[ok] > 0.5
    conducts, blocks = int((circuit & ~model).sum()), int((~circuit & model).sum())
    n = int(ok.sum())
    low, high = wilson(conducts + blocks, n, int((~ok).sum()))
    rate = Estimate((conducts + blocks) / n if n else float("nan"), float(low), float(high))
    found = Disagreement(1.0, n, int((~ok).sum()), conducts, blocks, rate)
    return part_row(comparison, "as they occur", found)


def _alternative_lines(dataset: xr.Dataset) -> list[str]:
    lines = [
        "other rules, fitted to these reads with an ideal amplifier (level spacings); no interval,",
        "as the rate is in the reads of the fit",
    ]
    for each in alternatives(dataset):
        values = ", ".join(f"{name} {value:.3f}" for name, value in each.parameters.items())
        found = each.found
        directions = f"circuit conducts {found.conducts}, blocks {found.blocks}"
        lines.append(f"  {each.name}: {values}")
        lines.append(f"    disagreement {percent(found.rate)}, {directions}")
    return lines


def _offender_line(each: dict[str, Any]) -> str:
    said = {0: "blocks", 1: "conducts"}
    return (
        f"  sample {each['sample']}: stage {each['stage']}, query {each['query']}, vector "
        f"{each['vector']}, sense {each['sense']}, string {each['string']}, cells {each['first']} "
        f"to {each['first'] + each['size'] - 1}: margin {each['margin']:.3f}, next "
        f"{each['companion']:.3f}; model {said[each['model']]}, circuit {said[each['circuit']]}\n"
        f"    alike: {each['simulate']}"
    )


def _command(dataset: xr.Dataset, read: dict[str, Any]) -> str:
    settings = json.loads(dataset.attrs["circuit_settings"])
    circuit = load_circuit(dataset.attrs["circuit"])
    defaults = {name: field.default for name, field in circuit.Params.model_fields.items()}
    params = string_params(circuit, settings, read["first"], read["size"])
    chosen = {
        **{k: v for k, v in settings.items() if v != defaults[k]},
        "m": read["size"],
        "position": params.position,
        "critical": 1,
        "margin": round(read["margin"], 4),
    }
    if read["size"] > 1:
        chosen["companion_margin"] = round(read["companion"], 4)
    words = [f"--set {name}={value}" for name, value in chosen.items()]
    return " ".join(["nandcosim simulate", circuit.name, *words])
