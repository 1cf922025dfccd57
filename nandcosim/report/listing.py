"""Text for people: circuits, responses, the state of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nandcosim.progress import format_duration
from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import Outcome
from nandcosim.spice.status import Status
from nandcosim.sweep.goals import plan_in_words

if TYPE_CHECKING:
    import numpy as np

    from nandcosim.sweep.reproduce import Reproduced

__all__ = [
    "circuit_listing",
    "describe_circuit",
    "quantity",
    "reproduction_lines",
    "response_lines",
    "status_lines",
]

_PREFIXES = {
    -18: "a", -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T",
}  # fmt: skip

#: Kinds of failure that are listed.
MOST_FAILURES = 20
_PREFIXED = {"A", "B", "F", "Hz", "J", "V", "W", "m", "ohm", "s"}


def quantity(value: float | int | str | None, unit: str) -> str:
    """Format a value with an engineering prefix, ``6.881 µs``."""
    if value is None or isinstance(value, str):
        return str(value)
    if math.isnan(value):
        return "-"
    if unit not in _PREFIXED or value == 0:
        return f"{value:.6g} {unit}".removesuffix(" 1").rstrip()
    exponent = min(max(3 * math.floor(math.log10(abs(value)) / 3), -18), 12)
    return f"{value / 10.0**exponent:.4g} {_PREFIXES[exponent]}{unit}"


def describe_circuit(circuit: Circuit) -> dict[str, Any]:
    """Everything a user of `circuit` may set, vary and measure, as plain data."""
    parameters = []
    for name, field in circuit.Params.model_fields.items():
        limits = {type(item).__name__.lower(): item for item in field.metadata}
        parameters.append(
            {
                "name": name,
                "unit": circuit.Params.unit_of(name),
                "default": field.default,
                "low": getattr(limits.get("ge"), "ge", None),
                "high": getattr(limits.get("le"), "le", None),
                "meaning": field.description,
                "source": circuit.Params.source_of(name),
            }
        )
    return {
        "name": circuit.name,
        "summary": circuit.summary,
        "parameters": parameters,
        "knobs": [
            {"name": k.name, "unit": k.unit, "meaning": k.meaning, "groups": ["all", *k.groups]}
            for k in circuit.knobs
        ],
        "responses": [
            {"name": r.name, "unit": r.unit, "meaning": r.meaning, "optional": r.optional}
            for r in circuit.responses_declared
        ],
    }


def circuit_listing(described: Sequence[Mapping[str, Any]]) -> str:
    """Text of `describe_circuit`'s data."""
    blocks = []
    for circuit in described:
        lines = [f"{circuit['name']}: {circuit['summary']}", "  parameters"]
        shown = [(quantity(p["default"], p["unit"]), _limits(p)) for p in circuit["parameters"]]
        wide = max([12, *(len(default) for default, _ in shown)])
        for entry, (default, limits) in zip(circuit["parameters"], shown, strict=True):
            head = f"    {entry['name']:<17} {default:<{wide}} {limits:<19} "
            lines.append(head + entry["meaning"])
            lines.append(" " * len(head) + f"({entry['source']})")
        lines.append("  knobs (what a Monte Carlo sample draws)")
        lines += [
            f"    {k['name']:<17} {k['unit']:<12} {k['meaning']}; cells: {', '.join(k['groups'])}"
            for k in circuit["knobs"]
        ]
        lines.append("  responses")
        lines += [
            f"    {r['name']:<17} {r['unit']:<12} {r['meaning']}" for r in circuit["responses"]
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _limits(entry: Mapping[str, Any]) -> str:
    if entry["low"] is None or entry["high"] is None:
        return ""
    return f"[{entry['low']:g} .. {entry['high']:g}]"


def response_lines(circuit: Circuit, outcome: Outcome) -> str:
    """Status and responses of one sample."""
    lines = [f"status      {outcome.status.label}"]
    for response in circuit.responses_declared:
        value = quantity(outcome.responses[response.name], response.unit)
        lines.append(f"{response.name:<11} {value:<12} {response.meaning}")
    return "\n".join(lines)


def status_lines(found: Mapping[str, Any]) -> str:
    """Text of a sweep's status: how far it is, samples by status, failures by reason."""
    done, total = found["done"], found["total"]
    head = f"{found['path']}: {found['circuit']}, {done} of {total} samples done"
    lines = [f"{head} ({100 * found['fraction_done']:.3g} %), {found['failed']} failed"]
    lines += [f"  {name:<20} {count}" for name, count in found["counts"].items() if count]
    if "engines" in found:
        made = ", ".join(f"{name} {count}" for name, count in found["engines"].items() if count)
        lines.append(f"  engines: {made or 'none yet'}")
        lines.append(f"  blocks in which the fast engine disagreed: {found['disagreements']}")
    if "plan" in found:
        lines.append(f"  plan: {plan_in_words(found['plan'])}")
    if found["running"] or found["rate"] is not None:
        lines.append(f"  {_pace(found)}")
    if found["damaged"]:
        more = f" and {len(found['damaged']) - 1} more" if len(found["damaged"]) > 1 else ""
        lines.append(f"  damaged: {found['damaged'][0]}{more}; the sweep's command makes it again")
    lines += map(_failure_line, found["failures"][:MOST_FAILURES])
    if len(found["failures"]) > MOST_FAILURES:
        lines.append(f"  and {len(found['failures']) - MOST_FAILURES} other reasons: see --json")
    if found["failures"]:
        first = found["failures"][0]["samples"][0]
        lines.append(f"  to see one alone: nandcosim reproduce-sample {found['path']} {first}")
    return "\n".join(lines)


def _pace(found: Mapping[str, Any]) -> str:
    parts = ["running now"] if found["running"] else []
    if found["rate"] is not None:
        parts.append(f"{found['rate']:.3g}/s in the last run")
    if found["remaining"]:
        parts.append(f"{format_duration(found['remaining'])} left at that rate")
    return ", ".join(parts)


def _failure_line(failure: Mapping[str, Any]) -> str:
    named = ", ".join(map(str, failure["samples"]))
    more = ", ..." if failure["count"] > len(failure["samples"]) else ""
    count, status, reason = (failure[name] for name in ("count", "status", "reason"))
    return f"  {count} x {status}: {reason} (samples {named}{more})"


def reproduction_lines(made: Reproduced) -> str:
    """Text of a sample made again: what was drawn, what the store holds, what came out."""
    lines = [f"sample {made.sample} of {made.store}: {made.circuit.name}"]
    lines += [f"  {name:<17} {_plain(value)}" for name, value in made.coordinates.items()]
    for knob in made.circuit.knobs:
        if knob.name in made.knobs:
            lines.append(f"  {knob.name:<17} {_spread(made.knobs[knob.name], knob.unit)}")
    stored, found = made.stored, made.found
    lines.append(f"  {'':<17} {'in the store':<20} now")
    lines.append(f"  {'status':<17} {stored.status.label:<20} {_status_now(made)}")
    for response in made.circuit.responses_declared:
        if response.name in stored.responses:
            old, new = (
                quantity(each.responses.get(response.name, math.nan), response.unit)
                for each in (stored, found)
            )
            lines.append(f"  {response.name:<17} {old:<20} {new}")
    lines += [f"  stored reason: {stored.reason}"] if stored.reason else []
    lines += [f"  reason now: {found.reason}"] if found.reason else []
    lines.append(f"  {_verdict(made)}")
    if made.deck is not None:
        lines.append(f"  deck: {made.deck} (ngspice -b -r sample.raw {made.deck})")
    if made.waveforms_file is not None:
        lines.append(f"  waveforms: {made.waveforms_file}")
    return "\n".join(lines)


def _plain(value: bool | int | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(values: np.ndarray, unit: str) -> str:
    if values.size == 1:
        return quantity(float(values[0]), unit)
    low, high = quantity(float(values.min()), unit), quantity(float(values.max()), unit)
    return f"{values.size} values, {low} to {high}"


def _status_now(made: Reproduced) -> str:
    again = made.found.status is Status.CRASHED and made.stored.status is Status.CRASHED
    return f"{made.found.status.label} again" if again else made.found.status.label


def _verdict(made: Reproduced) -> str:
    if made.stored.status is Status.NOT_RUN:
        return "the sweep has not run it yet"
    if not made.same:
        return "differs from the store"
    if made.by_fast_engine:
        return "the store's values are the fast engine's, those now ngspice's"
    return "the same, bit for bit" if made.found.status is Status.OK else "the same"
