"""A circuit of another package, registered by its entry point and installed with pip."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nandcosim.sweep import open_store
from nandcosim.tables import open_table

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "rc.py"

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mycircuits"
version = "1.0"

[project.entry-points."nandcosim.circuits"]
my_rc = "mycircuits.rc:RcDischarge"
"""

SPEC = """\
circuit = "my_rc"
samples = 8
seed = 1

[axes]
c = ["1 pF", "2 pF"]

[[random]]
target = "dr"
distribution = "normal"
mean = 0.0
std = 0.05
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, below ``site``, and the commands run."""
    pytest.importorskip("hatchling", reason="hatchling is not installed (extra test)")
    folder = tmp_path_factory.mktemp("own")
    package = folder / "project" / "mycircuits"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").touch()
    source = EXAMPLE.read_text()
    assert 'name = "rc"' in source
    (package / "rc.py").write_text(source.replace('name = "rc"', 'name = "my_rc"'))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", folder / "site", package.parent],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.rmtree(package.parent)  # nothing but the installed files is left
    (folder / "rc.toml").write_text(SPEC)
    return folder


def nandcosim(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "nandcosim", *arguments],
        capture_output=True, text=True, cwd=folder, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(folder / "site")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed_with_ours(folder: Path) -> None:
    listed = json.loads(nandcosim(folder, "circuits", "--json"))
    names = {circuit["name"] for circuit in listed}
    assert {"dts_sense", "my_rc"} <= names
    assert "resistance" in nandcosim(folder, "circuits", "my_rc")


def test_its_deck_runs_alone(folder: Path) -> None:
    (folder / "deck.cir").write_text(nandcosim(folder, "netlist", "my_rc", "--set", "r=2kohm"))
    done = subprocess.run(
        ["ngspice", "-b", "-r", "deck.raw", "deck.cir"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "deck.raw").stat().st_size > 0


@pytest.mark.parametrize("backend", ["shared", "process"])
def test_it_is_simulated(folder: Path, backend: str) -> None:
    shown = nandcosim(
        folder, "simulate", "my_rc", "--set", "r=2kohm", "--backend", backend, "--json"
    )
    half = json.loads(shown)["responses"]["t_half"]
    assert half == pytest.approx(2e3 * 1e-12 * math.log(2), rel=1e-3)


@pytest.mark.long
def test_it_is_swept_by_worker_processes_and_fitted(folder: Path) -> None:
    nandcosim(folder, "sweep", "rc.toml", "--out", "rc.zarr", "--workers", "2")
    nandcosim(folder, "fit", "rc.zarr", "--out", "rc.nc")
    store = open_store(folder / "rc.zarr")
    assert (store["status"] == 0).all()
    half = np.array([1e-12, 2e-12]) * 1e3 * math.log(2)
    error = 0.05 / math.sqrt(8)
    measured = store["t_half"].mean("sample").values
    assert measured == pytest.approx(half, rel=4 * error)
    table = open_table(folder / "rc.nc")
    assert table.dataset["t_half"].values == pytest.approx(measured)
