"""D-NOVA from the command line: one design space from settings and from a file, claims, audit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from nandcosim.systems.dnova import load_adapter
from tests.e2e.conftest import Command

pytest.importorskip("faiss", reason="faiss is not installed (extra retrieval)")
pytest.importorskip("numba", reason="numba is not installed (extra retrieval)")

SETTINGS = {
    "dts": "111,242,484",
    "alpha": "1,2,3",
    "queries": "30",
    "nprobe": "8",
    "bitlines": "122",
}


def words(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def evaluated(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dnova")
    command("eval", "dnova", *words(SETTINGS), "--out", folder)
    return folder


def opened(folder: Path) -> xr.Dataset:
    return xr.load_dataset(folder / "dnova.nc", engine="h5netcdf")


def test_the_result_is_labelled(evaluated: Path) -> None:
    result = opened(evaluated)
    assert list(result.dts.values) == ["111", "242", "484"]
    assert list(result.alpha.values) == [1, 2, 3]
    for name, variable in result.data_vars.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"] is not None, name
    own = result.latency.sel(system="dnova").sum(["stage", "component"])
    assert (own.sel(dts="111") > own.sel(dts="484")).all()
    inside = (result.recall_low <= result.recall) & (result.recall <= result.recall_high)
    assert inside.all()


def test_a_file_says_the_same(evaluated: Path, command: Command, tmp_path: Path) -> None:
    lines = ['dts = ["111", "242", "484"]', "alpha = [1, 2, 3]", "queries = 30", "nprobe = 8"]
    (tmp_path / "space.toml").write_text("\n".join([*lines, "bitlines = 122"]))
    command("eval", "dnova", "--config", tmp_path / "space.toml", "--out", tmp_path / "out")
    xr.testing.assert_equal(opened(evaluated), opened(tmp_path / "out"))


def test_the_page_tells_what_it_costs(evaluated: Path) -> None:
    page = (evaluated / "report.html").read_text()
    for heading in ("Recall of D-NOVA", "Latency, energy, throughput", "D-NOVA by stage",
                    "Deficits of a string", "Every parameter"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in page
    result = opened(evaluated)
    qps = float(result.qps.sel(system="dnova", dts="484", alpha=2))
    assert f"{qps:.4g}" in page
    assert "calibrated: to D1" in page


def test_claims_as_data(command: Command) -> None:
    rows = json.loads(command("claims", "dnova", "--json").stdout)["dnova"]
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows) > 40
    assert by_id["D12"]["verdict"] == "inconsistent"
    assert by_id["D12"]["low"] == pytest.approx(140 / 30 * 2)
    assert not [row["id"] for row in rows if row["verdict"] == "not_modelled"]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("claims", "nova"), "found 'nova', allowed papers: dnova"),
        (("claims", "dnova", "--only", "D99"), "found 'D99', allowed: D1, "),
        (("claims", "--only", "D1"), "--only names claims of one paper"),
        (("claims", "dnova", "--out", "x.json"), "--measure"),
        (("audit", "dnova", "--samples", "0"), "0"),
        (("audit", "dnova", "--samples", "5", "--set", "alpha=1,2"), "alpha"),
        (("adapt", "wordnet", "--out", "a.nc", "--set", "epoch=1"), "did you mean 'epochs'?"),
        (("eval", "dnova", "--set", "planes=1", "--out", "d"), "planes = 1 a die"),
        (("eval", "dnova", "--set", "adapter=none,nowhere.nc", "--out", "d"), "nowhere.nc"),
        (("eval", "dnova", "--set", "schedule=fast", "--out", "d"), "schedule: found 'fast'"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: tuple[str, ...], fragment: str, command: Command, tmp_path: Path
) -> None:
    done = command(*arguments, cwd=tmp_path, code=2)
    message = done.stderr.strip().splitlines()
    assert len(message) == 1, done.stderr
    assert fragment in message[0]


@pytest.mark.long
def test_audit_replays_in_ngspice(command: Command, tmp_path: Path) -> None:
    done = command(
        "audit", "dnova", "--samples", "30", "--set", "queries=20", "--workers", "1",
        "--out", tmp_path, "--json",
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert rows
    found = xr.load_dataset(tmp_path / "audit_dnova.nc", engine="h5netcdf")
    assert found.sizes["sample"] == 30
    assert set(np.unique(found.circuit)) <= {0, 1}


def test_adapt_writes_an_adapter(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("autograd", reason="autograd is not installed (extra adapter)")
    out = tmp_path / "a.nc"
    settings = words({"epochs": "0", "nlist": "16", "nprobe": "2", "hidden": "8"})
    done = command("adapt", "wordnet", "--out", out, *settings)
    assert f"wrote {out}" in done.stdout
    assert load_adapter(out).hidden == 8
