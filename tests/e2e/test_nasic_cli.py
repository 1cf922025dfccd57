"""NASiC from the command line: a design space, a model of one's own, claims, wrong use."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
import xarray as xr

from tests.e2e.conftest import Command

SETTINGS = (
    "model=olmoe,mixtral-8x7b", "sigma=0.05,0.1,0.15,0.2", "technique=base,t1,t1t2,t1t2t3"
)  # fmt: skip

#: A small mixture of experts, as a checkpoint describes it.
CHECKPOINT = {
    "model_type": "olmoe",
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
    "num_experts": 16,
    "num_experts_per_tok": 2,
}


def words(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="module")
def evaluated(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nasic")
    command("eval", "nasic", *words(*SETTINGS), "--out", folder)
    return folder


def test_the_result_is_labelled(evaluated: Path) -> None:
    result = xr.load_dataset(evaluated / "nasic.nc", engine="h5netcdf")
    assert list(result.model.values) == ["olmoe", "mixtral-8x7b"]
    assert list(result.technique.values) == ["base", "t1", "t1t2", "t1t2t3"]
    assert (result.gain_speed.sel(technique="t1") > 1).all()


def test_the_page_tells_the_same(evaluated: Path) -> None:
    page = html.unescape((evaluated / "report.html").read_text())
    for heading in ("Experts of NASiC", "Where the energy goes", "Errors of an output"):
        assert f"<h2>{heading}</h2>" in page


def test_a_model_of_ones_own(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CHECKPOINT))
    done = command(
        "eval", "nasic", *words(f"model={config}", "technique=base,t1"), "--out",
        tmp_path / "out", "--json",
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert [row["technique"] for row in rows] == ["base", "t1"]
    assert rows[1]["gain_speed"] > 1


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("eval", "nasic", "--set", "model=olmo", "--out", "c"), "did you mean 'olmoe'?"),
        (("eval", "nasic", "--set", "states=9", "--out", "c"), "states: found 9"),
        (("eval", "nasic", "--set", "technique=t3", "--out", "c"), "technique: found 't3'"),
        (("eval", "nasic", "--set", "interleaving=4", "--out", "c"), "did you mean 'interleave'?"),
        (("audit", "nasic", "--samples", "5", "--set", "states=2,3"), "states"),
        (("claims", "nasic", "--only", "S99"), "found 'S99', allowed: S1.1, "),
    ],
)
def test_wrong_use_is_one_line(
    arguments: tuple[str, ...], fragment: str, command: Command, tmp_path: Path
) -> None:
    done = command(*arguments, cwd=tmp_path, code=2)
    message = done.stderr.strip().splitlines()
    assert len(message) == 1, done.stderr
    assert fragment in message[0]
    assert not (tmp_path / "c").exists()
