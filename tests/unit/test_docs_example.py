"""The example circuit of ``docs/own.md`` works as the page says."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path

import numpy as np
import pytest

from nandcosim.spice.engine import BACKENDS, Engine
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import circuit_names, load_circuit

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    return load_circuit("rc:RcDischarge")


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.parametrize("error", [0.0, 0.2])
def test_half_time_is_rc_ln_2(example, backend, error) -> None:
    """The closed form; the trapezoidal rule at tau / 100 is off by 1e-5 of tau."""
    params = example.Params(r=2e3, c=3e-12)
    outcome = Engine(backend).sample(example, params, {"dr": np.array([error])})
    assert outcome.status is Status.OK, outcome.reason
    expected = 2e3 * (1 + error) * 3e-12 * math.log(2)
    assert outcome.responses["t_half"] == pytest.approx(expected, rel=1e-4)


def test_entry_point_makes_it_a_circuit_by_name(example, tmp_path: Path, monkeypatch) -> None:
    """What ``[project.entry-points."nandcosim.circuits"]`` of a user's package installs."""
    installed = tmp_path / "mycircuits-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mycircuits\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[nandcosim.circuits]\nrc = rc:RcDischarge\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "rc" in circuit_names()
    assert type(load_circuit("rc")) is importlib.import_module("rc").RcDischarge


def test_example_sweep_is_valid(example, monkeypatch) -> None:
    from nandcosim.sweep.parse import load_spec

    spec = load_spec(DOCS / "examples" / "rc.toml")
    assert spec.circuit == "rc:RcDischarge"


def test_lookups_of_the_tables_page_work_on_the_shipped_tables() -> None:
    page = (DOCS / "tables.md").read_text()
    code = re.search(r"## In Python\n\n```python\n(.*?)```", page, re.DOTALL)
    assert code
    lines = [line for line in code.group(1).splitlines() if line]
    assert sum(".lookup(" in line for line in lines) == 3
    names: dict[str, object] = {}
    for line in lines:
        exec(line, names)  # the page's own text


@pytest.mark.parametrize(
    ("circuit", "names"),
    [("dts_sense", ()), ("nand_string", ("v_bl",)), ("sense_amp", ()), ("wordline", ())],
)
def test_parameter_tables_of_the_pages_are_current(circuit, names, monkeypatch) -> None:
    """What ``nandcosim circuits NAME --json | python docs/img/parameters.py`` prints."""
    from nandcosim.report.listing import describe_circuit

    monkeypatch.syspath_prepend(str(DOCS / "img"))
    expected = importlib.import_module("parameters").table(
        describe_circuit(load_circuit(circuit)), names
    )
    assert expected in (DOCS / "circuits" / f"{circuit}.md").read_text()
