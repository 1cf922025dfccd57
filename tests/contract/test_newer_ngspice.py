"""The whole contract suite again, on a libngspice of the line that names its solver on stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_contract_suite_on_a_newer_libngspice() -> None:
    libraries = sorted(Path(sys.prefix, "newer-ngspice").glob("*.libs/libngspice*.so*"))
    if not libraries:
        pytest.skip("no newer libngspice here: PyPI's sedes 0.1.0 has none for this machine")
    environment = {
        **os.environ,
        "NGSPICE_LIBRARY_PATH": str(libraries[0]),
        "LD_LIBRARY_PATH": str(libraries[0].parent),  # its own libgomp
    }
    version = subprocess.run(
        [sys.executable, "-c",
         "from nandcosim.spice.shared import SharedBackend; print(SharedBackend.version())"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert int(version.split(".")[0]) >= 42
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "tests/contract/test_backends.py", "-k", "shared or Shared"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
