"""Text for people: circuits, responses, the state of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nandcosim.spice.circuit import Circuit
from nandcosim.spice.engine import Outcome

__all__ = [
    "circuit_listing",
    "describe_circuit",
    "quantity",
    "response_lines",
    "status_lines",
]

_PREFIXES = {
    -18: "a", -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T",
}  # fmt: skip
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
    lines += [f"  {count} x {reason}" for reason, count in found["reasons"].items()]
    return "\n".join(lines)
