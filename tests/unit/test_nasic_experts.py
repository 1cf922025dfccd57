"""NASiC: experts from a dense FFN, routing, and files of the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic.expert_files import load_sample
from nandcosim.systems.nasic.experts import (
    MoeModel,
    cluster,
    contributions,
    fit_router,
    split_ffn,
    strongest,
    trace,
)
from nandcosim.systems.nvllm.transformer import (
    HEAD,
    Architecture,
    Floats,
    Transformer,
    dense,
    layer_matrix,
    matrix_shapes,
    norm_names,
)

SMALL = Architecture(
    layers=2, hidden=8, ffn=12, heads=2, kv_heads=1, head_dim=4, vocab=20, rope_base=1e4,
    epsilon=1e-5,
)  # fmt: skip
WINDOWS = np.arange(14).reshape(2, 7)


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def dense_model() -> tuple[Transformer, dict[str, Floats]]:
    shapes = matrix_shapes(SMALL)
    weights = {
        name: normal(*shape, seed=i) / np.float32(3)
        for i, (name, shape) in enumerate(shapes.items())
    }
    norms = {name: np.ones(SMALL.hidden, np.float32) for name in norm_names(SMALL)}
    matrices = {name: dense(values) for name, values in weights.items()}
    return Transformer(SMALL, weights[HEAD], norms, matrices), weights


def moe_model(top_k: int, count: int = 4) -> MoeModel:
    rest, weights = dense_model()
    names = ("ffn_gate", "ffn_up", "ffn_down")
    layers = tuple(
        split_ffn(*(weights[layer_matrix(i, name)] for name in names), count=count)
        for i in range(SMALL.layers)
    )
    # by the first places of the input: any rule will do
    routers = (lambda x: x[:, :count],) * SMALL.layers
    return MoeModel("small", rest, layers, routers, top_k)


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 99))
def test_clusters_are_a_partition_in_equal_parts(count: int, size: int, seed: int) -> None:
    members = cluster(normal(count * size, 5, seed=seed), count, seed)
    assert members.shape == (count, size)
    assert sorted(members.ravel()) == list(range(count * size))
    assert (np.diff(members, axis=1) > 0).all()


def test_rows_of_one_direction_go_together() -> None:
    directions = np.eye(6, dtype=np.float32)[[0, 3, 5]]
    of_row = np.array([0, 1, 2, 2, 1, 0, 0, 2, 1, 1, 0, 2])
    lengths = np.linspace(0.1, 40, 12, dtype=np.float32)[:, None]
    rows = directions[of_row] * lengths + normal(12, 6) * np.float32(1e-3) * lengths
    # k-means ends in a local optimum: of a few seeds, one finds this
    found = [
        {frozenset(of_row[group]) for group in cluster(rows, 3, seed)} == {
            frozenset({0}), frozenset({1}), frozenset({2})
        }
        for seed in range(6)
    ]  # fmt: skip
    assert any(found)


def test_clusters_do_not_change_from_run_to_run() -> None:
    rows = normal(24, 5)
    assert np.array_equal(cluster(rows, 4, 3), cluster(rows, 4, 3))
    assert not np.array_equal(cluster(rows, 4, 3), cluster(rows, 4, 4))


def test_neurons_that_experts_do_not_share_out_evenly_are_refused() -> None:
    with pytest.raises(InputError, match="experts: found 5, allowed: a divisor of 12 neurons"):
        cluster(normal(12, 3), 5)


def test_all_experts_together_are_the_dense_ffn() -> None:
    gate, up, down, x = normal(12, 8), normal(12, 8, seed=1), normal(8, 12, seed=2), normal(9, 8)
    experts = split_ffn(gate, up, down, 4)
    assert (experts.count, experts.width, experts.hidden) == (4, 3, 8)
    g = (x @ gate.T).astype(float)
    expected = (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T
    everywhere = np.tile(np.arange(4), (9, 1))
    assert np.allclose(experts.linears().outputs(x, everywhere), expected, atol=1e-4)


def test_a_token_gets_its_own_experts_only() -> None:
    experts = split_ffn(normal(12, 8), normal(12, 8, seed=1), normal(8, 12, seed=2), 4)
    x, ids = normal(5, 8), np.array([[0, 1], [2, 3], [3, 0], [1, 2], [0, 2]])
    each = np.zeros((5, 8))
    for token, chosen in enumerate(ids):
        for e in chosen:
            g = (experts.gate[e] @ x[token]).astype(float)
            h = g / (1 + np.exp(-g)) * (experts.up[e] @ x[token])
            each[token] += experts.down[e] @ h
    assert np.allclose(experts.linears().outputs(x, ids), each, atol=1e-4)


def test_the_oracle_measures_the_length_of_outputs() -> None:
    experts = split_ffn(normal(12, 8), normal(12, 8, seed=1), normal(8, 12, seed=2), 4)
    h = experts.linears().activations(normal(5, 8))
    outputs = np.einsum("ehw,tew->teh", experts.down, h)
    assert np.allclose(contributions(experts, h), np.linalg.norm(outputs, axis=-1), rtol=1e-3)


def test_strongest_first_and_the_lower_id_on_a_tie() -> None:
    scores = np.array([[0.1, 3.0, 2.0, 3.0], [4.0, 0.0, 0.0, 1.0]], np.float32)
    assert strongest(scores, 3).tolist() == [[1, 3, 2], [0, 3, 1]]


def test_a_learnt_router_finds_what_depends_on_the_input() -> None:
    # each expert sees two places of its own, so that the input tells which matters
    gate = np.zeros((4, 1, 8), np.float32)
    for e in range(4):
        gate[e, 0, 2 * e] = 1
    experts = split_ffn(gate[:, 0], gate[:, 0], normal(8, 4, seed=3), 4)
    x = np.exp(normal(400, 8))
    exact = contributions(experts, experts.linears().activations(x))
    agreed = strongest(fit_router(experts, x[:300])(x[300:]), 1) == strongest(exact[300:], 1)
    assert agreed.mean() > 0.6  # chance: 0.25


def test_the_model_with_all_experts_is_the_dense_model() -> None:
    rest, _ = dense_model()
    assert np.allclose(moe_model(4).transformer().states(WINDOWS), rest.states(WINDOWS), atol=1e-4)
    assert not np.allclose(moe_model(2).transformer().states(WINDOWS), rest.states(WINDOWS), 1e-2)


def test_a_sample_has_what_the_layers_were_given() -> None:
    model = moe_model(2)
    sample = model.sample(WINDOWS)
    assert sample.inputs.shape == (2, 14, 8)
    assert sample.trace.shape == (14, 2, 2)
    assert np.array_equal(trace(model, WINDOWS), sample.trace)
    for layer, x in enumerate(sample.inputs):
        assert np.array_equal(sample.trace[:, layer], strongest(x[:, :4], 2))


def test_a_part_of_a_sample_keeps_layers_and_tokens_together() -> None:
    sample = moe_model(2).sample(WINDOWS)
    part = sample.part(1, 7)
    assert np.array_equal(part.inputs[0], sample.inputs[0, ::2])
    assert np.array_equal(part.trace[:, 0], sample.trace[::2, 0])
    with pytest.raises(InputError, match=r"experts: found \(3, 7, 4\), allowed: 1 to \(2, 14, 4\)"):
        sample.part(3, 7)


def test_a_part_of_the_experts_is_used_by_every_token() -> None:
    sample = moe_model(2).sample(WINDOWS)
    part = sample.part(2, 14, experts=3)
    assert [experts.count for experts in part.layers] == [3, 3]
    assert np.array_equal(part.layers[1].down, sample.layers[1].down[:3])
    assert (part.trace == [0, 1, 2]).all()
    with pytest.raises(InputError, match=r"found \(1, 1, 5\)"):
        sample.part(1, 1, experts=5)


def test_more_experts_a_token_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="top_k: found 5, allowed: 1 to 4, the experts"):
        moe_model(5)


# ---------------------------------------------------------------- files


def arrays() -> dict[str, np.ndarray]:
    return {
        "gate": normal(2, 4, 3, 8),
        "up": normal(2, 4, 3, 8),
        "down": normal(2, 4, 8, 3),
        "inputs": normal(2, 5, 8),
        "trace": np.array([[[0, 1], [2, 3]]] * 5),
    }


def test_a_sample_of_the_users(tmp_path: Path) -> None:
    given = arrays()
    np.savez(tmp_path / "own.npz", **given)
    sample = load_sample(tmp_path / "own.npz")
    assert np.array_equal(sample.inputs, given["inputs"])
    assert np.array_equal(sample.trace, given["trace"])
    assert np.array_equal(sample.layers[1].down, given["down"][1])


def test_safetensors_with_a_trace_beside_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    given = arrays()
    np.save(tmp_path / "trace.npy", given.pop("trace"))
    del given["inputs"]
    safetensors.save_file(given, tmp_path / "own.safetensors")
    sample = load_sample(tmp_path / "own.safetensors", tmp_path / "trace.npy", seed=5)
    assert np.array_equal(sample.layers[0].gate, given["gate"][0])
    assert np.array_equal(sample.inputs, normal(2, 5, 8, seed=5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("up", normal(2, 4, 3, 7), r"up: found shape \(2, 4, 3, 7\), expected \(2, 4, 3, 8\)"),
        ("down", normal(2, 4, 3, 8), r"down: found shape .* expected \(2, 4, 8, 3\)"),
        ("gate", normal(4, 3, 8), "gate: found shape .* expected .layers, experts, width, hidden"),
        ("gate", np.full((2, 4, 3, 8), np.nan), "gate: found float64 or not finite"),
        ("inputs", normal(2, 4, 8), r"inputs: found shape .* expected \(2, 5, 8\)"),
        ("trace", np.zeros((5, 3, 2), int), r"trace: found int64 \(5, 3, 2\), expected integers"),
        ("trace", np.full((5, 2, 1), 4), "trace: found experts 4 to 4, allowed: 0 to 3"),
        ("trace", np.zeros((5, 2, 2), int), "trace: found an expert twice"),
        ("trace", None, "found no array trace"),
    ],
)
def test_wrong_files_are_refused(
    tmp_path: Path, name: str, value: np.ndarray | None, message: str
) -> None:
    given = {**arrays(), name: value}
    np.savez(tmp_path / "own.npz", **{n: v for n, v in given.items() if v is not None})
    with pytest.raises(InputError, match=message):
        load_sample(tmp_path / "own.npz")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.npz: cannot be read: No such file"):
        load_sample(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(InputError, match=r"text\.npz: cannot be read"):
        load_sample(tmp_path / "text.npz")
    with pytest.raises(InputError, match=r"found '.pt', allowed: .npz, .safetensors"):
        load_sample(tmp_path / "model.pt")
