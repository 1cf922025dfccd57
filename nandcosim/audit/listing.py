"""An audit as text, as rows, and its worst reads as decks."""

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
    noise_means,
)
from nandcosim.audit.strata import Estimate
from nandcosim.audit.strings import string_params
from nandcosim.errors import InputError
from nandcosim.spice.deck import build_deck
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit
from nandcosim.tables.intervals import wilson

__all__ = ["audit_lines", "audit_rows", "offender_deck", "offenders"]

_OFFENDERS_SHOWN = 5

_ALIKE = (
    "  (alike: the same group over uniform data, a similar read whose bit may differ; "
    "the read itself: nandcosim.audit.offender_deck)"
)

#: Of the second worst cell's margin, in level spacings; without errors that is 0.5, 1.5, ...
_COMPANION_EDGES = (-np.inf, 0.25, 0.75, 1.25, 2.25, np.inf)


def audit_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The comparison over all reads, by stage and by bin of the excess margin.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_dnova`.

    Returns
    -------
    list of dict
        ``comparison`` (``ideal``, ``noisy``), ``part``, ``share`` of the search's reads,
        ``examined``, ``failed``, ``circuit_conducts`` and ``circuit_blocks`` (the two
        directions, counts), ``rate`` of disagreement with its 95 % interval ``low``,
        ``high``. The part ``as they occur`` is the plain sample, with Wilson's interval;
        the parts ``next cell`` (by the margin of the second worst cell) have none.
    """
    rows = []
    for comparison in dataset["comparison"].values.tolist():
        rows.append(_row(comparison, "all", disagreement(dataset, comparison)))
        rows.append(_uniform_row(dataset, comparison))
        for stage in dataset["stage_of"].values.tolist():
            found = disagreement(dataset, comparison, bin_cells(dataset, stage=stage))
            rows.append(_row(comparison, f"stage {stage}", found))
        edges = zip(dataset["bin_low"].values, dataset["bin_high"].values, strict=True)
        for number, (low, high) in enumerate(edges):
            found = disagreement(dataset, comparison, bin_cells(dataset, number=number))
            rows.append(_row(comparison, f"excess {_span(low, high)}", found))
        parts = by_companion(dataset, comparison, _COMPANION_EDGES)
        for (low, high), found in zip(pairwise(_COMPANION_EDGES), parts, strict=True):
            rows.append(_row(comparison, f"next cell {_span(low, high)}", found))
    return rows


def audit_lines(dataset: xr.Dataset) -> str:
    """The audit as text for a terminal."""
    config = json.loads(dataset.attrs["config"])
    reads = int(dataset["reads"].sum())
    searched = (
        f"{dataset.sizes['sample']} of {reads:.3g} reads of {dataset.attrs['queries']} queries "
        f"replayed in ngspice: dts {config['dts']}, alpha {config['alpha']}, "
        f"sigma {config['sigma']:g}, nprobe {config['nprobe']}, {dataset.attrs['corpus']}"
    )
    lines = [
        searched,
        _failures(dataset),
        "",
        f"{'amplifier':<12}{'trip margin':>24}{'read noise':>24}   (level spacings)",
        f"{'':<12}{'table':>12}{'ngspice':>12}{'table':>12}{'ngspice':>12}",
    ]
    lines += [
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
        lines += ["", f"{title}: disagreement", _HEADER]
        lines += [_line(row) for row in audit_rows(dataset) if row["comparison"] == comparison]
    means = noise_means(dataset)
    lines += [
        "",
        "independent amplifier noise in both, over the search's reads (95 %)",
        f"  circuit against model       {_percent(means['expected'])}",
        f"  model against itself        {_percent(means['floor'])}",
        f"  circuit conducts more often {_percent(means['bias'])}",
    ]
    lines += ["", *_alternative_lines(dataset)]
    worst = offenders(dataset, _OFFENDERS_SHOWN)
    if worst:
        lines += ["", "farthest from the decision, ideal amplifier:"]
        lines += [_ALIKE, *(_offender_line(each) for each in worst)]
    return "\n".join(lines)


def offenders(
    dataset: xr.Dataset, count: int = 10, comparison: str = "ideal"
) -> list[dict[str, Any]]:
    """The reads in which circuit and model disagree, largest excess margin first.

    Returns
    -------
    list of dict
        ``sample``, what was read, the model's margins, both decisions, and ``simulate``: a
        command with a group like it. It takes the worst and the second worst cell's margin
        over uniform data, so its bit may be another; the deck of the read itself is
        `offender_deck`'s.
    """
    here = dataset.sel(comparison=comparison)
    ok = here["status"].values == Status.OK
    differ = ok & (here["model"].values != here["circuit"].values)
    rows = np.flatnonzero(differ)
    order = np.argsort(-np.abs(dataset["excess"].values[rows]), kind="stable")
    names = ("stage", "query", "vector", "sense", "string", "first", "size")
    found = []
    for row in rows[order][:count].tolist():
        one = here.isel(sample=row)
        values: dict[str, Any] = {name: int(one[name]) for name in names}
        values |= {name: float(one[name]) for name in ("margin", "companion", "excess", "score")}
        values |= {"model": int(one["model"]), "circuit": int(one["circuit"])}
        found.append({"sample": row, **values, "simulate": _command(dataset, values)})
    return found


def offender_deck(dataset: xr.Dataset, sample: int, comparison: str = "ideal") -> str:
    """A complete deck of one read's simulation, for ``ngspice -b``.

    Its cells, wordlines and amplifier are those of the read; the ``.meas`` line
    ``bit`` is the output buffer's voltage at the strobe.

    Raises
    ------
    InputError
        If there is no such sample.
    """
    if not 0 <= sample < dataset.sizes["sample"]:
        raise InputError(f"audit: sample = {sample}, allowed: 0 .. {dataset.sizes['sample'] - 1}")
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


def _row(comparison: str, part: str, found: Disagreement) -> dict[str, Any]:
    return {
        "comparison": comparison,
        "part": part,
        "share": found.share,
        "examined": found.examined,
        "failed": found.failed,
        "circuit_conducts": found.conducts,
        "circuit_blocks": found.blocks,
        "rate": _finite(found.rate.value),
        "low": _finite(found.rate.low),
        "high": _finite(found.rate.high),
    }


def _uniform_row(dataset: xr.Dataset, comparison: str) -> dict[str, Any]:
    here = dataset.sel(comparison=comparison).isel(sample=np.flatnonzero(dataset["uniform"].values))
    ok = here["status"].values == Status.OK
    model, circuit = here["model"].values[ok] > 0.5, here["circuit"].values[ok] > 0.5
    conducts, blocks = int((circuit & ~model).sum()), int((~circuit & model).sum())
    n = int(ok.sum())
    low, high = wilson(conducts + blocks, n, int((~ok).sum()))
    rate = Estimate((conducts + blocks) / n if n else float("nan"), float(low), float(high))
    found = Disagreement(1.0, n, int((~ok).sum()), conducts, blocks, rate)
    return _row(comparison, "as they occur", found)


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
        lines.append(f"    disagreement {_percent(found.rate)}, {directions}")
    return lines


def _failures(dataset: xr.Dataset) -> str:
    codes, counts = np.unique(dataset["status"].values, return_counts=True)
    parts = [f"{count} {Status(code).label}" for code, count in zip(codes, counts, strict=True)]
    return f"simulations: {', '.join(parts)}"


_HEADER = (
    f"  {'reads':<22}{'share':>9}{'examined':>10}{'conducts':>10}{'blocks':>8}{'failed':>8}"
    "   rate (95 %)"
)


def _line(row: dict[str, Any]) -> str:
    nan = float("nan")
    rate = Estimate(*(nan if row[name] is None else row[name] for name in ("rate", "low", "high")))
    return (
        f"  {row['part']:<22}{100 * row['share']:>7.2f} %{row['examined']:>10}"
        f"{row['circuit_conducts']:>10}{row['circuit_blocks']:>8}{row['failed']:>8}"
        f"   {_percent(rate)}"
    )


def _percent(found: Estimate) -> str:
    value = "-" if np.isnan(found.value) else f"{100 * found.value:.2f} %"
    if np.isnan(found.low):
        return value
    return f"{value} ({100 * found.low:.2f} to {100 * found.high:.2f})"


def _span(low: float, high: float) -> str:
    if np.isinf(low):
        return f"<= {high:g}"
    return f"> {low:g}" if np.isinf(high) else f"{low:g} .. {high:g}"


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


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
