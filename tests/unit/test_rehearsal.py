"""What is refused before a store is made and anything is simulated."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuits_for_tests import RCDischarge

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.sweep import load_circuit, parse_spec, run_sweep
from nandcosim.sweep.rehearsal import rehearse
from nandcosim.sweep.spec import SweepSpec


def spec_of(circuit: str = "dts_sense", **changes: Any) -> SweepSpec:
    return parse_spec({"circuit": circuit, "samples": 2, "seed": 1, **changes})


def refuse(spec: SweepSpec, tmp_path: Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        run_sweep(spec, tmp_path / "s.zarr")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.glob("*.zarr*")) == []


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (
            {"margin": [-0.5, 0.5], "cells": [128, 77]},
            r"^axes\.cells = 77: planar16lp\.levels\.toml: no level map for bits=4, .*cells=77 ",
        ),
        ({"card": ["planar16lp", "nocard"]}, r"^axes\.card = 'nocard': 'nocard' is no file"),
        ({"card": ["nocard"], "m": [1, 2]}, r"^axes\.card = 'nocard', axes\.m = 1: 'nocard' is"),
    ],
)
def test_an_axis_value_without_a_deck_is_named(
    tmp_path: Path, axes: dict[str, list[Any]], words: str
) -> None:
    refuse(spec_of(axes=axes), tmp_path, words)


def test_a_cell_of_another_name_is_refused(tmp_path: Path) -> None:
    cell = tmp_path / "mycell.cir"
    cell.write_text(".subckt other d wl s b w=1 l=1 shift=0 cpar=0\n.ends\n")
    parameters = {"cell": str(cell), "v_boundary": 0.5}
    refuse(spec_of(parameters=parameters), tmp_path, r"^/.*/mycell\.cir: no \.subckt mycell; found")


def test_axes_are_tried_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of their lengths, not the product; an axis that no deck depends on not at all."""
    built: list[tuple[float, int]] = []

    def build(self: Any, params: Any, knobs: Mapping[str, np.ndarray] | None = None) -> None:
        built.append((params.precharge, params.stages))
        raise ZeroDivisionError  # an accident is left to the samples

    monkeypatch.setattr(RCDischarge, "build", build)
    normal = {"target": "excess", "distribution": "normal", "mean": 0.0, "std": "sigma"}
    axes = {"precharge": [1.0, 2.0, 3.0], "sigma": [0.1, 0.2], "stages": [2, 4]}
    spec = spec_of("circuits_for_tests:RCDischarge", axes=axes, random=[normal])
    rehearse(spec, load_circuit(spec.circuit))
    assert built == [(1.0, 2), (2.0, 2), (3.0, 2), (1.0, 4)]


def test_without_numba_the_fast_engine_makes_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    for module in ("circuits.fast_kernel", "circuits.fast_string"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtraError, match=r"numba.*nandcosim\[fast\]"):
        run_sweep(spec_of(engine="fast", responses=["bit"]), tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_the_fast_engine_is_tried_without_ngspice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = spec_of(engine="fast", responses=["bit"])
    rehearse(spec, load_circuit(spec.circuit))
    assert list(tmp_path.iterdir()) == []  # nothing measured, nothing kept
