"""Every circuit's shipped deck: what its builder emits, and a run of ngspice alone."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata

import pytest

from nandcosim.spice.circuit import DcSweep
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import Engine
from nandcosim.spice.netlists import data_folder
from nandcosim.spice.status import Status
from nandcosim.sweep.registry import GROUP, load_circuit

#: Circuits of this distribution; a user's own may be registered beside them.
SHIPPED = sorted(metadata.distribution("nandcosim").entry_points.select(group=GROUP).names)
DECKS = data_folder("netlists") / "decks"


def test_every_circuit_has_its_deck() -> None:
    assert sorted(path.stem for path in DECKS.glob("*.cir")) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_deck_is_what_the_builder_emits(name) -> None:
    circuit = load_circuit(name)
    params = circuit.Params()
    text = build_deck(circuit, params).text(circuit.measures(params))
    assert (DECKS / f"{name}.cir").read_text() == text


@pytest.mark.parametrize("name", SHIPPED)
def test_deck_measures_in_batch_mode_what_the_engine_finds(name, tmp_path) -> None:
    """Every measure succeeds; one that has a response's name has its value."""
    circuit = load_circuit(name)
    params = circuit.Params()
    done = subprocess.run(
        ["ngspice", "-b", DECKS / f"{name}.cir"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not re.findall(r"(?im)^.*(?:\berror|fail).*$", printed)
    measured = {
        measure: float(value)
        for measure, value in re.findall(r"^(\w+)\s+=\s+(\S+)", done.stdout, re.MULTILINE)
    }
    assert measured
    assert measured.keys() == {line.split()[2] for line in circuit.measures(params)}

    outcome = Engine(time_limit=60.0).sample(circuit, params)
    assert outcome.status is Status.OK, outcome.reason
    responses = {key: outcome.responses[key] for key in measured.keys() & outcome.responses.keys()}
    assert {key: measured[key] for key in responses} == pytest.approx(responses, rel=1e-3)
    analysis = circuit.analysis(params)
    if isinstance(analysis, DcSweep):
        assert f"No. of Data Rows : {analysis.points}\n" in done.stdout
