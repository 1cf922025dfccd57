"""The listing of the circuits keeps its columns."""

from __future__ import annotations

from nandcosim.report.listing import circuit_listing, describe_circuit
from nandcosim.sweep.registry import load_circuit


def test_meanings_start_in_one_column_whatever_the_values_are() -> None:
    described = describe_circuit(load_circuit("dts_sense"))
    assert max(len(str(p["default"])) for p in described["parameters"]) > 12
    text = circuit_listing([described])
    lines = text.split("  parameters\n")[1].split("  knobs")[0].splitlines()
    values, sources = lines[::2], lines[1::2]
    places = {
        line.index(p["meaning"]) for line, p in zip(values, described["parameters"], strict=True)
    }
    places |= {
        line.index(f"({p['source']})")
        for line, p in zip(sources, described["parameters"], strict=True)
    }
    assert len(places) == 1
