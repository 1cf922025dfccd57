"""A worker that is not what the sweep was planned for says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nandcosim.spice.installation import OSDI_VARIABLE, executable_version
from nandcosim.spice.netlists import find_netlist
from nandcosim.sweep import identity, load_circuit, parse_spec
from nandcosim.sweep.identity import difference, expected_identity
from nandcosim.sweep.spec import SweepSpec


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A user's own copy of a shipped model library."""
    path = tmp_path / "models" / "own.lib"
    path.parent.mkdir()
    path.write_bytes(find_netlist("planar16lp", "models", ".lib").read_bytes())
    return path


def spec_of(library: Path, **changes: Any) -> SweepSpec:
    document = {"circuit": "sense_amp", "samples": 1, "seed": 1}
    return parse_spec({**document, "parameters": {"library": str(library)}, **changes})


@pytest.fixture
def plan(library: Path) -> Iterator[tuple[dict[str, str], str]]:
    """What is expected, and the text of the sweep."""
    identity._of_sweep.cache_clear()
    spec = spec_of(library)
    yield expected_identity(spec, load_circuit(spec.circuit)), spec.canonical_json()
