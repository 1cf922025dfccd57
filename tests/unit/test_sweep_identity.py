"""A worker that is not what the sweep was planned for says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import circuits
from nandcosim.spice.installation import OSDI_VARIABLE, executable_version
from nandcosim.spice.netlists import find_netlist
from nandcosim.sweep import load_circuit, parse_spec
from nandcosim.sweep.identity import _code_digest, difference, expected_identity
from nandcosim.sweep.spec import SweepSpec


@pytest.fixture
def netlist(tmp_path: Path) -> Path:
    """A user's own copy of a shipped netlist."""
    path = tmp_path / "cells" / "sense_path.cir"
    path.parent.mkdir()
    shutil.copyfile(find_netlist("sense_path", "cells", ".cir"), path)
    return path


@pytest.fixture
def spec(netlist: Path) -> SweepSpec:
    parameters = {"sense_path": str(netlist)}
    return parse_spec({"circuit": "dts_sense", "samples": 1, "seed": 1, "parameters": parameters})


@pytest.fixture
def plan(spec: SweepSpec) -> dict[str, str]:
    return expected_identity(spec, load_circuit(spec.circuit))


def test_the_planning_machine_itself_does_not_differ(plan: dict[str, str], spec: SweepSpec) -> None:
    text = spec.canonical_json()
    assert difference(plan, text, "process") == ""
    assert difference({**plan, "ngspice": executable_version()}, text, "process") == ""
    assert difference({}, text, "process") == ""  # nothing was planned


def test_other_ngspice_and_package(plan: dict[str, str], spec: SweepSpec) -> None:
    text, here = spec.canonical_json(), executable_version()
    changed = {**plan, "ngspice": "1"}
    assert difference(changed, text, "process") == f"ngspice is {here} here and 1 in the plan"
    changed = {**plan, "numpy": "1.0"}
    assert difference(changed, text, "process").endswith(" here and 1.0 in the plan")


def test_changed_netlist(plan: dict[str, str], spec: SweepSpec, netlist: Path) -> None:
    """It is looked at again for every task, not only for the first."""
    text = spec.canonical_json()
    assert difference(plan, text, "process") == ""
    netlist.write_text(f"{netlist.read_text()}* changed\n")
    found = difference(plan, text, "process")
    assert found.startswith("netlist cells/sense_path.cir differs from the plan's (SHA-256 ")
    netlist.unlink()
    found = difference(plan, text, "process")
    assert found == f"{netlist}: cannot be read: No such file or directory"


def test_changed_code(plan: dict[str, str], spec: SweepSpec, tmp_path: Path) -> None:
    copy = tmp_path / "circuits"
    shutil.copytree(Path(circuits.__file__).parent, copy)
    assert _code_digest([copy]) == plan["code of circuits"]
    (copy / "dts_sense.py").write_text("# empty\n")
    changed = {**plan, "code of circuits": _code_digest([copy])}
    assert changed != plan
    found = difference(changed, spec.canonical_json(), "process")
    assert found.startswith("code of circuits differs from the plan's (SHA-256 ")


def test_model_that_only_one_side_loads(
    plan: dict[str, str], spec: SweepSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "own.osdi"
    model.write_bytes(b"of the compiler")
    monkeypatch.setenv(OSDI_VARIABLE, str(model))
    text = spec.canonical_json()
    found = difference(plan, text, "process")
    assert found == "OSDI model own.osdi is used here and not in the plan"
    with_model = expected_identity(spec, load_circuit(spec.circuit))
    assert difference(with_model, text, "process") == ""
    monkeypatch.delenv(OSDI_VARIABLE)
    found = difference(with_model, text, "process")
    assert found == "OSDI model own.osdi is missing here, the plan has it"


def test_circuit_that_is_not_there(plan: dict[str, str], spec: SweepSpec) -> None:
    text = spec.canonical_json().replace('"dts_sense"', '"elsewhere:Circuit"')
    assert "elsewhere:Circuit cannot be imported" in difference(plan, text, "process")
