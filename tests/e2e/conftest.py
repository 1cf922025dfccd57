"""The command line as a user calls it: a process of its own, in a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

#: Three grid points of two samples on a string that has a shipped level map.
SPEC = """\
circuit = "dts_sense"
samples = 2
seed = 5
responses = ["bit", "t_cross", "e_sense"]

[parameters]
cells = 32

[axes]
margin = [-1.5, 1.0, 1.5]
m = [1]

[[random]]
target = "threshold"
distribution = "normal"
mean = 0.0
std = 0.2
"""


def run_command(
    *arguments: str | Path, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m nandcosim`` and check its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "nandcosim", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def command() -> Command:
    """Runs a command; ``code=`` is the exit code to expect."""
    return run_command


@dataclass(frozen=True)
class Swept:
    """A finished sweep and its table."""

    spec: Path
    store: Path
    table: Path
    output: str


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """One small sweep and its fit, shared by every test; nobody writes into its folder."""
    folder = tmp_path_factory.mktemp("swept")
    spec, store, table = folder / "tiny.toml", folder / "tiny.zarr", folder / "dts_sense.nc"
    spec.write_text(SPEC)
    done = run_command("sweep", spec, "--out", store, "--workers", "1")
    run_command("fit", store, "--out", table)
    return Swept(spec, store, table, done.stdout + done.stderr)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own vectors: 240 documents, 12 queries beside them, one judgement a query."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(7)
    documents = rng.normal(size=(240, 16)).astype(np.float32)
    relevant = rng.choice(240, size=12, replace=False)
    queries = documents[relevant] + 0.3 * rng.normal(size=(12, 16)).astype(np.float32)
    np.save(folder / "docs.npy", documents)
    np.save(folder / "docs-queries.npy", queries.astype(np.float32))
    lines = [f"{query}\t{document}\t1\n" for query, document in enumerate(relevant)]
    (folder / "docs-qrels.tsv").write_text("".join(lines))
    return folder / "docs.npy"


#: Few lists and short results, so that 240 documents are a corpus.
SMALL = ("nlist=4", "nprobe=1,4", "k2=60", "k1=25")


@dataclass(frozen=True)
class Evaluated:
    """The folder of an evaluation and what the command printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="session")
def evaluated(corpus: Path, swept: Swept, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """An evaluation of D-NOVA with alpha as an axis; needs the extra ``retrieval``."""
    for package in ("faiss", "numba"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra retrieval)")
    folder = tmp_path_factory.mktemp("evaluated")
    settings = [word for each in (*SMALL, "alpha=1,2") for word in ("--set", each)]
    done = run_command(
        "eval", "dnova", *settings, "--corpus", corpus, "--tables", swept.table.parent,
        "--out", folder, "--json",
    )  # fmt: skip
    return Evaluated(folder, done.stdout)
