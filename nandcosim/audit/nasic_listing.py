"""An audit of NASiC as text, as rows, and its worst products as decks."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.audit.comparison import bin_cells
from nandcosim.audit.strata import Estimate
from nandcosim.audit.text import failures, percent
from nandcosim.audit.unit_products import BEYOND, MATCH, NEIGHBOUR
from nandcosim.audit.unit_rates import NORMAL_TAIL, TAIL, Part, gain, leakage, part, wrong
from nandcosim.audit.unit_replays import unit_params
from nandcosim.errors import InputError
from nandcosim.spice.deck import build_deck
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import load_circuit

__all__ = ["lines", "offender_deck", "offenders", "rows"]

_OFFENDERS_SHOWN = 5

_GROUPS = {MATCH: "match", NEIGHBOUR: "neighbour", BEYOND: "beyond"}

Flags = NDArray[np.bool_]

#: Name of each part, what it is like, and its strata if it is made of strata.
_Parts = list[tuple[str, Part, Flags | None]]


def rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Products over all, by match and mismatch, size of the product, and input.

    Of every part what `unit_rates.Part` says, and `unit_rates.Wrong` where the part is
    strata of the sample; of the matches ``gain``, of mismatches ``leakage`` over a match. The
    limits of an estimate are in ``<name>_low`` and ``<name>_high``.
    """
    return [_row(name, found, cells, dataset) for name, found, cells in _parts(dataset)]


def lines(dataset: xr.Dataset) -> str:
    """The audit as text for a terminal."""
    parts = _parts(dataset)
    text = [
        *_run_lines(dataset),
        "",
        *_residual_lines(parts),
        f"  matches, circuit over model: {_three(gain(dataset))}",
        "",
        *_wrong_lines(dataset, parts),
        "",
        *_leakage_lines(dataset),
    ]
    worst = offenders(dataset, _OFFENDERS_SHOWN)
    if worst:
        text += ["", "largest residuals (their decks: nandcosim.audit.offender_deck):"]
        text += [_offender_line(each) for each in worst]
    return "\n".join(text)


def _percent_of(share: float) -> str:
    """A share in percent."""
    return "-" if np.isnan(share) else f"{100 * share:.2f} %"


def offenders(
    dataset: xr.Dataset, count: int = 10, comparison: str = "ideal"
) -> list[dict[str, Any]]:
    """Products with the largest residuals among the matches, largest first."""
    _no_comparison(comparison)
    matched = (dataset["group"] == MATCH) & (dataset["status"] == Status.OK) & (dataset["sd"] > 0)
    at = np.flatnonzero(matched.values)
    residual = ((dataset["circuit"] - dataset["mean"]) / dataset["sd"]).values[at]
    whole = ("weight", "level", "entry", "query", "ideal")
    found = []
    for row in at[np.argsort(-np.abs(residual), kind="stable")][:count].tolist():
        one = dataset.isel(sample=row)
        values: dict[str, Any] = {name: int(one[name]) for name in whole}
        values |= {name: float(one[name]) for name in ("mean", "sd", "circuit")}
        found.append({"sample": row, **values, "simulate": _command(dataset, row)})
    return found


def offender_deck(dataset: xr.Dataset, sample: int, comparison: str = "ideal") -> str:
    """A complete deck; it prints both blocks' currents at every pulse, input after input."""
    _no_comparison(comparison)
    circuit = load_circuit(dataset.attrs["circuit"])
    params = _params(dataset, sample)
    knobs = {"threshold": dataset["threshold"].values[sample]}
    deck = build_deck(circuit, params, knobs)
    return deck.text((f".print dc {' '.join(circuit.saved(params))}",))


def _parts(dataset: xr.Dataset) -> _Parts:
    """All products, groups, and matches by size and by input."""
    group, bin_of = dataset["group"].values, dataset["bin_of"].values
    everything = np.ones(group.shape, dtype=bool)
    found: _Parts = [("all", part(dataset, everything), bin_cells(dataset))]
    for number in dataset["group_of"].values.tolist():
        name, inside = _GROUPS[number], group == number
        found.append((name, part(dataset, inside), bin_cells(dataset, group=number)))
        if number != MATCH:
            continue
        for i, size in enumerate(dataset["bin"].values.tolist()):
            cells = bin_cells(dataset, number=i, group=number)
            found.append((f"{name}, {size}", part(dataset, inside & (bin_of == i)), cells))
        level = dataset["level"].values
        found += [
            (f"{name}, x = {x}", part(dataset, inside & (level == x)), None)
            for x in np.unique(level[inside]).tolist()
        ]
    return found


def _row(name: str, found: Part, cells: Flags | None, dataset: xr.Dataset) -> dict[str, Any]:
    row: dict[str, Any] = {
        "part": name, "share": found.share, "examined": found.examined, "failed": found.failed
    }  # fmt: skip
    for quantity in ("bias", "residual", "spread", "tail"):
        row |= _named(quantity, getattr(found, quantity))
    if cells is not None:
        rates = wrong(dataset, cells)
        row |= {"wrong_model": _finite(rates.model)}
        row |= _named("wrong_circuit", rates.circuit) | _named("wrong_more", rates.more)
    if name == _GROUPS[MATCH]:
        row |= _named("gain", gain(dataset))
    elif name in _GROUPS.values():
        number = next(number for number, text in _GROUPS.items() if text == name)
        leaks = leakage(dataset, dataset["group"].values == number)
        row |= {"leakage_model": _finite(leaks.model.value)} | _named("leakage", leaks.circuit)
    return row


def _named(name: str, found: Estimate) -> dict[str, float | None]:
    ends = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
    return {ends[field]: _finite(value) for field, value in asdict(found).items()}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _run_lines(dataset: xr.Dataset) -> list[str]:
    told = dataset.attrs
    config, settings = json.loads(told["config"]), json.loads(told["circuit_settings"])
    run = (
        f"{dataset.sizes['sample']} products replayed in ngspice: {settings['states']}-state "
        f"cells, {config['interleave']} experts behind CAM cells of {settings['layers']} bits; "
        f"sigma {config['sigma']:g} ({config['spread_rule']}), thresholds "
        f"{1e3 * told['threshold_sigma']:.1f} mV; weights: {told['weights']}"
    )
    unit = (
        f"one product (LSB): {1e9 * told['lsb']:.2f} nA, {told['gain']:.3f} times that of the "
        "table's CAM cells"
    )
    at_zero = float(np.nanmax(np.abs(dataset["at_zero"].values), initial=0.0))
    driven = (
        f"{_percent_of(told['driven'])} of the products have an input above 0, to which all below "
        f"refers; at 0 at most {at_zero:.1g} LSB"
    )
    return [run, unit, failures(dataset), driven]


def _residual_lines(parts: _Parts) -> list[str]:
    header = (
        f"  {'products':<18}{'share':>9}{'n':>5}{'bias (LSB)':>28}{'residual: mean':>26}"
        f"{'spread':>22}   beyond {TAIL:g} (normal: {_percent_of(NORMAL_TAIL)})"
    )
    text = ["circuit less model, outwards, and over the model's standard deviation (95 %)", header]
    for name, found, _ in parts:
        text.append(
            f"  {name:<18}{_percent_of(found.share):>9}{found.examined:>5}{_three(found.bias):>28}"
            f"{_two(found.residual):>26}{_two(found.spread):>22}   {percent(found.tail)}"
        )
    return text


def _wrong_lines(dataset: xr.Dataset, parts: _Parts) -> list[str]:
    text = [f"{'wrong integer (95 %)':<20}{'model':>9}   {'ngspice':<28}ngspice less model"]
    for name, _, cells in parts:
        if cells is not None:
            found = wrong(dataset, cells)
            text.append(
                f"  {name:<18}{_percent_of(found.model):>9}   {percent(found.circuit):<28}"
                f"{percent(found.more)}"
            )
    return text


def _leakage_lines(dataset: xr.Dataset) -> list[str]:
    header = (
        f"{'leakage over a match (95 %)':<28}{'n':>5}{'model':>10}   {'ngspice':<30}"
        "root mean square (LSB): model, ngspice"
    )
    text = [header]
    group = dataset["group"].values
    for name, inside in {
        "neighbour": group == NEIGHBOUR, "beyond": group == BEYOND, "any mismatch": group != MATCH
    }.items():  # fmt: skip
        found = leakage(dataset, inside)
        if found.examined:
            shown = Estimate(*(100 * each for each in astuple(found.circuit)))
            text.append(
                f"  {name:<26}{found.examined:>5}{100 * found.model.value:>8.3f} %   "
                f"{_three(shown) + ' %':<30}{found.model_rms:.2g}, {found.circuit_rms:.2g}"
            )
    return text


def _three(found: Estimate) -> str:
    return _interval(found, ".3f")


def _two(found: Estimate) -> str:
    return _interval(found, ".2f")


def _interval(found: Estimate, digits: str) -> str:
    if np.isnan(found.value):
        return "-"
    if np.isnan(found.low):
        return f"{found.value:{digits}}"
    return f"{found.value:{digits}} ({found.low:{digits}} to {found.high:{digits}})"


def _offender_line(each: dict[str, Any]) -> str:
    return (
        f"  sample {each['sample']}: expert {each['entry']}, weight {each['weight']}, input "
        f"{each['level']}: model {each['mean']:.2f} +- {each['sd']:.2f}, circuit "
        f"{each['circuit']:.2f}\n    without threshold errors: {each['simulate']}"
    )


def _no_comparison(comparison: str) -> None:
    if comparison != "ideal":  # the default of other audits
        raise InputError(f"audit: comparison = {comparison!r}, allowed: 'ideal'; NASiC has one")


def _params(dataset: xr.Dataset, sample: int) -> Any:
    settings = json.loads(dataset.attrs["circuit_settings"])
    one = dataset.isel(sample=sample)
    return unit_params(settings, int(one["weight"]), int(one["entry"]), int(one["query"]))


def _command(dataset: xr.Dataset, sample: int) -> str:
    circuit = load_circuit(dataset.attrs["circuit"])
    defaults = {name: field.default for name, field in circuit.Params.model_fields.items()}
    params = _params(dataset, sample)
    words = [f"--set {name}={v}" for name, v in dict(params).items() if v != defaults[name]]
    return " ".join(["nandcosim simulate", circuit.name, *words])
