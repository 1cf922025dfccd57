"""Shapes of mixtures of experts against transformers' own counts and published sizes."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic import moe
from nandcosim.systems.nasic.moe import MoeShape, load_moe, moe_names, moe_shapes
from nandcosim.systems.nasic.moe_families import FAMILIES

DATA = Path(__file__).parents[1] / "data"
COUNTED = json.loads((DATA / "nasic_parameter_counts.json").read_text())["models"]
MIXTRAL = COUNTED["mixtral"]["config"]
QWEN = COUNTED["qwen3_moe, dense layers"]["config"]
DEEPSEEK = COUNTED["deepseek_v3"]["config"]
TINY = MoeShape("tiny", hidden=8, expert_ffn=4, moe_layers=2, layers=3, experts=4, top_k=2)


def saved(folder: Path, config: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("name", COUNTED)
def test_weights_are_those_that_transformers_makes(name: str, tmp_path: Path) -> None:
    counted = dict(COUNTED[name])
    shape = load_moe(saved(tmp_path, counted.pop("config")))
    assert {kind: getattr(shape, kind) for kind in counted} == counted


def test_counts_are_of_the_published_table_and_of_all_families() -> None:
    table = tomllib.loads(Path(moe.__file__).with_name("data").joinpath("moe.toml").read_text())
    counted = {entry["config"]["model_type"] for entry in COUNTED.values()}
    assert counted | {"deepseek"} == set(FAMILIES)
    for name in moe_names():
        if table[name]["model_type"] != "deepseek":
            assert COUNTED[name]["config"] == table[name]


def test_published_sizes() -> None:
    billions = {
        "mixtral-8x7b": 45.1, "olmoe": 6.4, "qwen1.5-moe": 12.5, "deepseek-moe-16b": 14.9,
        "qwen3-30b-a3b": 29.0, "phi-3.5-moe": 40.3,
    }  # fmt: skip
    for name, routed in billions.items():
        assert round(load_moe(name).routed_weights / 1e9, 1) == routed
    # arXiv:2401.06066 and arXiv:2412.19437: 16.4 and 671 billion in all.
    assert round(load_moe("deepseek-moe-16b").parameters / 1e9, 1) == 16.4
    assert round(load_moe("deepseek-v3").parameters / 1e9) == 671
    assert load_moe("qwen1.5-moe").layers == 24
    assert load_moe("deepseek-v3").ratio == 1 / 32  # the sparsest of the paper's Fig. 10(a)


def test_counts_of_a_small_model_by_hand() -> None:
    shape = MoeShape(**{**asdict(TINY), "shared_ffn": 5, "dense_ffn": 7, "vocab": 10})
    assert shape.expert_weights == 3 * 8 * 4
    assert shape.routed_weights == 2 * 4 * 96
    assert shape.active_weights == 2 * (2 * 96 + 3 * 8 * 5)
    assert shape.ratio == 0.5
    assert shape.parameters == 768 + 240 + 2 * 4 * 8 + 3 * 8 * 7 + 2 * 10 * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 5}, "tiny: top_k: found 5, allowed: at most experts = 4"),
        ({"experts": 0}, "tiny: experts: found 0, allowed: 1 or more"),
        ({"ffn_matrices": 1}, "tiny: ffn_matrices: found 1, allowed: 2 or more"),
        ({"layers": 1}, "tiny: layers: found 1, allowed: at least moe_layers = 2"),
    ],
)
def test_shapes_that_make_no_sense(change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MoeShape(**{**asdict(TINY), **change})


def test_shapes_along_the_names_given(tmp_path: Path) -> None:
    names = ("olmoe", str(saved(tmp_path, DEEPSEEK)))
    found = moe_shapes(names)
    assert tuple(found["model"].values) == names
    for name in names:
        for size, values in found.sel(model=name).data_vars.items():
            assert values.dtype == float
            assert values.item() == getattr(load_moe(name), str(size))
    assert not moe_shapes("olmoe").dims


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_experts_under_either_key(key: str) -> None:
    config = {k: v for k, v in QWEN.items() if k != "num_experts"}
    assert moe._shape({**config, key: 6}, "x", "x").experts == 6


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**MIXTRAL, "model_type": "llama"}, "model_type: found 'llama', a dense model"),
        ({**MIXTRAL, "model_type": "mixtrel"}, "did you mean 'mixtral'"),
        ({**MIXTRAL, "model_type": []}, r"model_type: not given"),
        ({k: v for k, v in MIXTRAL.items() if k != "num_local_experts"},
         "num_local_experts: field required"),
        ({k: v for k, v in MIXTRAL.items() if k != "intermediate_size"},
         "intermediate_size: field required"),
        ({**MIXTRAL, "num_experts_per_tok": 7}, "num_experts_per_tok = 7, .* the 6 experts"),
        ({**MIXTRAL, "num_local_experts": 0}, "num_local_experts: found 0"),
        ({**QWEN, "num_experts": 0}, "num_experts: found 0"),
        ({**QWEN, "mlp_only_layers": list(range(5))}, "no layer of 5 has experts: a dense model"),
        ({**QWEN, "decoder_sparse_step": 6}, "no layer of 5 has experts"),
        ({**DEEPSEEK, "first_k_dense_replace": 5}, "no layer of 5 has experts"),
        ({**DEEPSEEK, "n_routed_experts": None}, "n_routed_experts: found None"),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_refused_in_one_line(
    config: Any, message: str, tmp_path: Path
) -> None:
    file = saved(tmp_path, config)
    with pytest.raises(InputError, match=message) as error:
        load_moe(file)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)


def test_no_such_model() -> None:
    with pytest.raises(InputError, match="model: found 'olmo', did you mean 'olmoe'"):
        load_moe("olmo")


anything = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 99), st.floats(), st.text(max_size=3), st.just([1])
)


@settings(max_examples=100, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    changes=st.dictionaries(
        st.sampled_from(sorted(MIXTRAL | QWEN | DEEPSEEK)), anything, max_size=3
    ),
)
def test_any_config_is_a_model_or_one_line(family: str, changes: dict[str, Any]) -> None:
    config = {
        "shared_expert_intermediate_size": 19, **MIXTRAL, **QWEN, **DEEPSEEK,
        "model_type": family, **changes,
    }  # fmt: skip
    message = ""
    try:
        shape = moe._shape(config, "x", "x")
    except InputError as error:
        message = str(error)
    else:
        assert shape.parameters > shape.routed_weights >= shape.expert_weights > 0
    assert "\n" not in message
