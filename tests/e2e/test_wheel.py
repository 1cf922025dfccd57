"""The built wheel, installed with its core dependencies into an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.e2e.conftest import SPEC

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DATA = "nandcosim/systems/dnova/data"

#: Of the extras, import names that the core must do without.
EXTRAS = ("faiss", "numba", "onnxruntime", "pyarrow", "tokenizers")


def check_output(
    *command: str | Path, cwd: Path, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a program without the surroundings of this checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in hidden},
        timeout=1200,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("build", "hatchling"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra test)")
    folder = tmp_path_factory.mktemp("wheel")
    check_output(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT,
        cwd=folder,
    )  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment that holds the wheel and what it requires, no extra."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    check_output(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    programs = folder / "bin"
    check_output(
        programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        wheel, cwd=folder,
    )  # fmt: skip
    return programs


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "tiny.toml").write_text(SPEC)
    return folder


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        for kind in ("netlists", "sweeps"):
            shipped = [path for path in (ROOT / kind).rglob("*") if path.is_file()]
            assert shipped
            for path in shipped:
                name = f"nandcosim/_data/{path.relative_to(ROOT).as_posix()}"
                assert file.read(name) == path.read_bytes()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        headers = message_from_bytes(file.read(metadata))
    assert {
        "nandcosim/py.typed",
        "nandcosim/report/page.html.j2",
        "circuits/dts_sense.py",
        f"{DATA}/wordnet.npz",
        f"{DATA}/wordnet.toml",
        f"{DATA}/WORDNET-LICENSE.txt",
        f"{DATA}/GCIDE-NOTICE.txt",
        f"{DATA}/MINILM-NOTICE.txt",
    } <= names
    tables = {f"nandcosim/tables/data/{p.name}" for p in ROOT.glob("nandcosim/tables/data/*.nc")}
    assert tables <= names
    licences = {n.partition(".dist-info/licenses/")[2] for n in names} - {""}
    assert {"LICENSE", f"{DATA}/WORDNET-LICENSE.txt"} <= licences
    assert headers["License-Expression"] == "GPL-3.0-or-later"
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"nandcosim", "circuits"}
    assert not [n for n in names if "__pycache__" in n or "tests/" in n]


def test_environment_has_the_core_only(installed: Path, elsewhere: Path) -> None:
    script = (
        "import importlib.util as u, json, nandcosim; "
        f"print(json.dumps([[n for n in {EXTRAS!r} if u.find_spec(n)], nandcosim.__file__]))"
    )
    extras, where = json.loads(
        check_output(installed / "python", "-c", script, cwd=elsewhere).stdout
    )
    assert extras == []
    assert Path(where).is_relative_to(installed.parent)
    check_output(installed / "python", "-m", "pip", "check", cwd=elsewhere)


def test_doctor_and_circuits(installed: Path, elsewhere: Path) -> None:
    doctor = check_output(installed / "nandcosim", "doctor", "--json", cwd=elsewhere)
    checks = {check["name"]: check for check in json.loads(doctor.stdout)}
    assert not checks["extra retrieval: faiss"]["ok"]
    assert "nandcosim[retrieval]" in checks["extra retrieval: faiss"]["detail"]
    for kind in ("netlists", "sweeps"):
        assert str(installed.parent) in checks[f"data: {kind}"]["detail"]
    shown = check_output(installed / "nandcosim", "circuits", cwd=elsewhere).stdout
    assert "dts_sense: " in shown
    assert "nand_string: " in shown


def test_sweep_to_table_then_the_extra_is_named(installed: Path, elsewhere: Path) -> None:
    nandcosim = installed / "nandcosim"
    check_output(nandcosim, "sweep", "tiny.toml", "--out", "s.zarr", cwd=elsewhere)
    check_output(nandcosim, "fit", "s.zarr", "--out", "tables/dts_sense.nc", cwd=elsewhere)
    table = check_output(nandcosim, "table", "tables/dts_sense.nc", "--json", cwd=elsewhere)
    samples = json.loads(table.stdout)["samples"]
    assert (samples["n"], samples["failed"]) == (6, 0)
    page = check_output(nandcosim, "report", "tables", cwd=elsewhere)
    assert page.stdout == "wrote tables/report.html\n"
    refused = check_output(
        nandcosim, "eval", "dnova", "--tables", "tables", "--out", "out", cwd=elsewhere, code=2
    )
    (line,) = refused.stderr.splitlines()
    assert line.startswith("nandcosim: ")
    assert line.endswith("pip install 'nandcosim[retrieval]'")
