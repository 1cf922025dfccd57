"""An audit of NVLLM as text, as rows, and its worst reads as decks."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.audit import page_rates
from nandcosim.audit.bit_reads import FIRST, LATER
from nandcosim.audit.comparison import among, bin_cells, disagreement, farthest, noise_means
from nandcosim.audit.page_reads import PageReplay, knobs_of, page_params
from nandcosim.audit.strata import Estimate
from nandcosim.audit.text import HEADER, failures, part_line, part_row, percent, span
from nandcosim.page_coding import page_names
from nandcosim.spice.deck import build_deck
from nandcosim.sweep.registry import load_circuit

__all__ = ["lines", "offender_deck", "offenders", "rows"]

_OFFENDERS_SHOWN = 5

_TURNS = {FIRST: "first sense", LATER: "later sense"}

#: Of the weakest other cell of a string, in V.
_HEADROOM_EDGES = (-np.inf, 0.0, 0.05, 0.1, 0.15, np.inf)

_ALIKE = (
    "  (alike: the same cell among others at all levels in turn, a similar read whose bit may "
    "differ; the read itself: nandcosim.audit.offender_deck)"
)


def rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The comparison over all reads, by sense, clearance, page, wordline and headroom.

    A first sense is a page's lowest read level, a later one follows senses that blocked.
    Headroom is the pass voltage's above the weakest other cell, in V. The parts by page, by
    wordline and by headroom have no interval.
    """
    found = []
    for comparison in dataset["comparison"].values.tolist():
        parts = {"all": disagreement(dataset, comparison)}
        for turn in dataset["turn_of"].values.tolist():
            cells = bin_cells(dataset, turn=turn)
            parts[_TURNS[turn]] = disagreement(dataset, comparison, cells)
        edges = zip(dataset["bin_low"].values, dataset["bin_high"].values, strict=True)
        for number, (low, high) in enumerate(edges):
            cells = bin_cells(dataset, number=number)
            parts[f"clear {span(low, high)}"] = disagreement(dataset, comparison, cells)
        parts |= {
            name: among(dataset, comparison, inside) for name, inside in _apart(dataset).items()
        }
        found += [part_row(comparison, name, part) for name, part in parts.items()]
    return found


def lines(dataset: xr.Dataset) -> str:
    """The audit as text for a terminal."""
    config = json.loads(dataset.attrs["config"])
    order = "randomised" if dataset.attrs["randomised"] else "as they are"
    run = (
        f"{dataset.sizes['sample']} of {8 * dataset.attrs['weight_bytes']:.3g} bits replayed in "
        f"ngspice: {config['cell_bits']} bits a cell, {config['coding']}, {_condition(config)}, "
        f"retry {config['retry']}; weights: {dataset.attrs['weights']}, {order}"
    )
    text = [
        run,
        failures(dataset),
        "",
        *_decision_lines(dataset),
        "",
        *_rate_lines(dataset),
    ]
    for comparison in dataset["comparison"].values.tolist():
        title = {
            "ideal": "ideal amplifier in both",
            "noisy": "amplifier noise in both, independent",
        }[comparison]
        text += ["", f"{title}: disagreement", HEADER]
        text += [part_line(row) for row in rows(dataset) if row["comparison"] == comparison]
    means = noise_means(dataset)
    text += [
        "",
        "amplifier noise in both, expected over the model's (95 %)",
        f"  circuit against model       {percent(means['expected'])}",
        f"  model against itself        {percent(means['floor'])}",
        f"  circuit conducts more often {percent(means['bias'])}",
    ]
    worst = offenders(dataset, _OFFENDERS_SHOWN)
    if worst:
        text += ["", "farthest from the decision, ideal amplifier:"]
        text += [_ALIKE, *(_offender_line(each) for each in worst)]
    return "\n".join(text)


def offenders(
    dataset: xr.Dataset, count: int = 10, comparison: str = "ideal"
) -> list[dict[str, Any]]:
    """The bits whose nearest sense differs, farthest from the decision first."""
    here = dataset.sel(comparison=comparison)
    whole = ("block", "wordline", "page", "bitline", "level", "read_level", "turn", "stored")
    found = []
    for row in farthest(dataset, comparison)[:count].tolist():
        one = here.isel(sample=row)
        values: dict[str, Any] = {name: int(one[name]) for name in whole}
        values |= {"excess": float(one["excess"])}
        values |= {"model": int(one["model"]), "circuit": int(one["circuit"])}
        found.append({"sample": row, **values, "simulate": _command(dataset, row)})
    return found


def offender_deck(dataset: xr.Dataset, sample: int, comparison: str = "ideal") -> str:
    """A complete deck; its ``.meas`` lines ``bit_<n>`` are the output at each read level."""
    circuit = load_circuit(dataset.attrs["circuit"])
    params = _params(dataset, sample)
    one = dataset.isel(sample=sample)
    mismatch = zip(one["knob"].values.tolist(), one["mismatch"].values.tolist(), strict=True)
    read = PageReplay(
        int(one["wordline"]),
        int(one["page"]),
        int(one["level"]),
        int(one["read_level"]),
        one["data"].values,
        one["threshold"].values,
        dict(mismatch),
    )
    knobs = knobs_of(read, mismatch=comparison == "noisy")
    deck = build_deck(circuit, params, knobs, frozenset({"data_bit"}))
    # ngspice's last point may lie a rounding error before the last strobe
    strobes = [instant * (1 - 1e-6) for instant in circuit.marks(params).instants.values()]
    return deck.text(tuple(
        f".meas tran bit_{level} find v(out) at={strobe!r}"
        for level, strobe in zip(params.levels_read, strobes, strict=True)
    ))  # fmt: skip


def _apart(dataset: xr.Dataset) -> dict[str, NDArray[np.bool_]]:
    """Parts that the sample is not stratified by: pages, thirds of the string, headroom."""
    bits = json.loads(dataset.attrs["config"])["cell_bits"]
    page, wordline = dataset["page"].values, dataset["wordline"].values
    parts = {f"{name} page": page == number for number, name in enumerate(page_names(bits))}
    edges = np.linspace(1, dataset.sizes["cell"], 4).astype(int)
    parts["wordline 0"] = wordline == 0
    for low, high in pairwise(edges.tolist()):
        parts[f"wordlines {low} .. {high - 1}"] = (wordline >= low) & (wordline < high)
    volts = page_rates.headroom(dataset)
    for lower, upper in pairwise(_HEADROOM_EDGES):
        parts[f"headroom {span(lower, upper)}"] = (volts > lower) & (volts <= upper)
    return parts


def _decision_lines(dataset: xr.Dataset) -> list[str]:
    text = [f"{'decision of a sense (level spacings)':<40}{'place':>28}{'spread':>28}"]
    place, spread = (
        Estimate(*(float(dataset[f"{name}{end}"]) for end in ("", "_low", "_high")))
        for name in ("pass_location", "pass_spread")
    )
    text.append(f"{'table':<40}{_level(place):>28}{_level(spread):>28}")
    for comparison in dataset["comparison"].values.tolist():
        for turn in dataset["turn_of"].values.tolist():
            fit = page_rates.decision(dataset, comparison, dataset["turn"].values == turn)
            place = Estimate(fit.location, fit.location_low, fit.location_high)
            spread = Estimate(fit.spread, fit.spread_low, fit.spread_high)
            name = f"ngspice, {comparison}, {_TURNS[turn]}"
            text.append(f"{name:<40}{_level(place):>28}{_level(spread):>28}")
    return text


def _rate_lines(dataset: xr.Dataset) -> list[str]:
    rates = {
        "model, closed form": page_rates.table_error_rate(dataset),
        "model, as drawn": page_rates.drawn_error_rate(dataset),
        "ngspice, by its decisions": page_rates.decided_error_rate(dataset),
        "ngspice, counted": page_rates.error_rate(dataset, "noisy"),
        "ngspice, counted, ideal amplifier": page_rates.error_rate(dataset, "ideal"),
    }
    segments = f"segments of {dataset.attrs['segment_bits']} bits"
    text = [f"{'errors (95 %)':<40}{'bits':>32}{segments:>32}"]
    text += [
        f"{name:<40}{_rate(rate):>32}{_rate(page_rates.segments(dataset, rate)):>32}"
        for name, rate in rates.items()
    ]
    for comparison in dataset["comparison"].values.tolist():
        for within in (False, True):
            more = _rate(page_rates.error_rate_difference(dataset, comparison, near=within))
            name = f"ngspice less model, {comparison}{', near only' if within else ''}"
            text.append(f"{name:<40}{more:>32}")
    return text


def _rate(found: Estimate) -> str:
    """A rate that may be very small."""
    if np.isnan(found.value):
        return "-"
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"


def _level(found: Estimate) -> str:
    if np.isnan(found.value):
        return "-"
    return f"{found.value:.4f} ({found.low:.4f} to {found.high:.4f})"


def _offender_line(each: dict[str, Any]) -> str:
    said = {0: "blocks", 1: "conducts"}
    return (
        f"  sample {each['sample']}: block {each['block']}, wordline {each['wordline']}, page "
        f"{each['page']}, bitline {each['bitline']}: level {each['level']} at read level "
        f"{each['read_level']}, excess {each['excess']:.4f}; model {said[each['model']]}, circuit "
        f"{said[each['circuit']]}\n    alike: {each['simulate']}"
    )


def _params(dataset: xr.Dataset, sample: int) -> Any:
    settings = json.loads(dataset.attrs["circuit_settings"])
    one = dataset.isel(sample=sample)
    circuit = load_circuit(dataset.attrs["circuit"])
    return page_params(circuit, settings, int(one["wordline"]), int(one["page"]), int(one["level"]))


def _command(dataset: xr.Dataset, sample: int) -> str:
    """One sense of the same cell, as far from the read level, over uniform data."""
    circuit = load_circuit(dataset.attrs["circuit"])
    settings = json.loads(dataset.attrs["circuit_settings"])
    defaults = {name: field.default for name, field in circuit.Params.model_fields.items()}
    params = _params(dataset, sample)
    margin = float(dataset["excess"][sample]) + float(dataset["pass_location"])
    chosen = {
        **{k: v for k, v in settings.items() if v != defaults[k] and k not in ("coding", "retry")},
        "read": "margin",
        "stored": params.stored,
        "position": params.position,
        "margin": round(margin, 4),
    }
    words = [f"--set {name}={value}" for name, value in chosen.items()]
    return " ".join(["nandcosim simulate", circuit.name, *words])


def _condition(config: dict[str, Any]) -> str:
    """What the thresholds were drawn from."""
    if config["rber_source"] != "aged":
        return f"sigma {config['sigma']:g}, shift {config['shift']:g}"
    days = config["retention"] / 86400
    return (
        f"{days:g} days at {config['storage_temperature']:g} degC after {config['cycles']:g} cycles"
    )
