"""NVLLM from the command line: design spaces, models of the user's own, claims, wrong use."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.e2e.conftest import Command

SETTINGS = {
    "model": "llama2-7b,opt-30b",
    "clusters": "8,12,16",
    "context": "64,1024,8192",
}

#: A grouped-query decoder with a gated FFN and a tied head, as a checkpoint describes it.
CHECKPOINT = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": True,
}


def words(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def opened(folder: Path) -> xr.Dataset:
    return xr.load_dataset(folder / "nvllm.nc", engine="h5netcdf")


@pytest.fixture(scope="module")
def evaluated(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvllm")
    command("eval", "nvllm", *words(SETTINGS), "--out", folder)
    return folder


def test_the_result_is_labelled(evaluated: Path) -> None:
    result = opened(evaluated)
    assert list(result.model.values) == ["llama2-7b", "opt-30b"]
    assert list(result.clusters.values) == [8, 12, 16]
    assert list(result.context.values) == [64, 1024, 8192]
    for name, variable in result.data_vars.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"] is not None, name
    own = result.tokens_per_second.sel(system="nvllm")
    assert np.isfinite(own).all()
    assert (own.diff("clusters") > 0).all()
    assert (result.token_time_unscheduled.sum("stage").diff("context") > 0).all()


def test_parts_sum_to_the_total(evaluated: Path) -> None:
    result = opened(evaluated)
    rate = 1 / result.token_time.sum("stage")
    xr.testing.assert_allclose(rate, result.tokens_per_second.sel(system="nvllm", drop=True))


def test_what_does_not_fit_is_marked(evaluated: Path) -> None:
    fits = opened(evaluated).fits.sel(clusters=16)
    assert fits.sel(model="llama2-7b").all()
    assert fits.sel(model="opt-30b").values.tolist() == [True, True, False]


def test_a_file_says_the_same(evaluated: Path, command: Command, tmp_path: Path) -> None:
    lines = ['model = ["llama2-7b", "opt-30b"]', "clusters = [8, 12, 16]"]
    (tmp_path / "space.toml").write_text("\n".join([*lines, "context = [64, 1024, 8192]"]))
    command("eval", "nvllm", "--config", tmp_path / "space.toml", "--out", tmp_path / "out")
    xr.testing.assert_equal(opened(evaluated), opened(tmp_path / "out"))


def test_the_page_tells_the_same(evaluated: Path) -> None:
    page = html.unescape((evaluated / "report.html").read_text())
    for heading in ("Throughput of NVLLM", "Where a token's time goes", "Every parameter"):
        assert f"<h2>{heading}</h2>" in page
    result = opened(evaluated)
    rate = float(result.tokens_per_second.sel(system="nvllm", clusters=16, context=64)[0])
    assert f"{rate:.4g}" in page


def test_a_model_of_ones_own(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CHECKPOINT))
    done = command("eval", "nvllm", "--set", f"model={config}", "--out", tmp_path / "out", "--json")
    rows = json.loads(done.stdout)
    assert {row["system"] for row in rows} >= {"nvllm", "gpu_ssd", "cambricon_llm"}
    result = opened(tmp_path / "out")
    assert (
        int(result.parameters)
        == 3 * (2 * 256**2 + 2 * 256 * 64 + 3 * 256 * 640 + 2 * 256) + 1000 * 256 + 256
    )


def test_claims_as_data(command: Command) -> None:
    rows = json.loads(command("claims", "nvllm", "--json").stdout)["nvllm"]
    by_id = {row["id"]: row for row in rows}
    assert by_id["N6.3"]["low"] == pytest.approx(307.2)
    assert by_id["N6.3"]["high"] == pytest.approx(486.4)
    assert by_id["N7.1"]["verdict"] == "reproduced"
    assert by_id["N4.1"]["verdict"] == "inconsistent"


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("eval", "nvllm", "--set", "model=llama2-8b", "--out", "n"), "did you mean 'llama3-8b'?"),
        (("eval", "nvllm", "--set", "model=none/config.json", "--out", "n"), "none/config.json"),
        (("eval", "nvllm", "--set", "clusters=0", "--out", "n"), "clusters: found 0"),
        (("eval", "nvllm", "--set", "cluster=8", "--out", "n"), "did you mean 'clusters'?"),
        (("eval", "nvllm", "--set", "rber=0.7", "--out", "n"), "rber: found 0.7"),
        (("eval", "nvllm", "--corpus", "wordnet", "--out", "n"), "only dnova takes it"),
        (("audit", "nvllm", "--samples", "5", "--set", "sigma=0.1,0.2"), "sigma"),
        (("claims", "nvllm", "--only", "N99"), "found 'N99', allowed: N1.1, "),
    ],
)
def test_wrong_use_is_one_line(
    arguments: tuple[str, ...], fragment: str, command: Command, tmp_path: Path
) -> None:
    done = command(*arguments, cwd=tmp_path, code=2)
    message = done.stderr.strip().splitlines()
    assert len(message) == 1, done.stderr
    assert fragment in message[0]
    assert not (tmp_path / "n").exists()
