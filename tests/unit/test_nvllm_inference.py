"""Time of decode, prefill and whole generations on NVLLM."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import inference
from nandcosim.systems.nvllm.inference import InferenceFields, decode, generate, prefill, rates
from nandcosim.systems.nvllm.inference_study import main
from nandcosim.systems.nvllm.models import load_model, shapes

#: Utilisation 1, DRAM and link never binding, nothing shared: the paper's arithmetic.
PLAIN = {
    "kv_schedule": "off",
    "prefill_split": "none",
    "dram_bandwidth": 1e18,
    "link_bandwidth": 1e18,
}
PAIRS = xr.DataArray([16, 64, 256, 1024], dims="tokens")


def config(**fields: Any) -> InferenceFields:
    return InferenceFields(**fields)


# ---------------------------------------------------------------- the paper's numbers


def test_operations_and_bandwidth_of_the_arrays() -> None:
    found = rates(config(clusters=(8, 12, 16)))
    assert found["operations"].values.tolist() == [307.2e9, 396.8e9, 486.4e9]
    np.testing.assert_allclose(found["array"], [102.4e9, 153.6e9, 204.8e9], rtol=1e-15)


def test_lanes_multiply_what_an_engine_does() -> None:
    found = rates(config(lanes=(1, 4)), 0.9)
    np.testing.assert_allclose(found["flash"], [16 * 11.2e9 * 0.9, 64 * 11.2e9 * 0.9])


@pytest.mark.parametrize(
    ("model", "milliseconds"),
    [
        ("opt-1.3b", (16.4, 13.0, 11.4)),
        ("opt-6.7b", (83.8, 67.0, 58.7)),
        ("opt-13b", (162.0, 129.9, 113.8)),
        ("opt-30b", (378.4, 303.6, 266.3)),
        ("llama2-7b", (83.3, 66.7, 58.4)),
        ("llama2-13b", (162.2, 130.0, 113.8)),
    ],
)
def test_decode_without_context(model: str, milliseconds: tuple[float, float, float]) -> None:
    """Independent arithmetic: (F + LM) / (clusters 11.2 GB/s) + A / 64 GB/s."""
    found = decode(config(clusters=(8, 12, 16), **PLAIN), shapes(model), 0, 1.0)
    np.testing.assert_allclose(found["time"].sum("stage") * 1e3, milliseconds, rtol=5e-3)


def test_llama2_7b_tokens_per_second() -> None:
    """17.0 at a context of 64; the paper's ratios give 16.7 to 17.0 (section 4.3)."""
    time = decode(config(**PLAIN), shapes("llama2-7b"), 64, 1.0)["time"]
    assert 1 / time.sum("stage").item() == pytest.approx(17.035, abs=1e-3)
    # 4 h L c operations on 128 GOPS
    assert time.sel(stage="attention").item() == pytest.approx(4 * 4096 * 32 * 64 / 128e9)


def test_end_to_end() -> None:
    """Section 4.4 has 1.9, 7.5, 30.3 and 124.3 s and does not name the model."""
    found = generate(config(**PLAIN), shapes("opt-6.7b"), PAIRS, PAIRS, 1.0)
    np.testing.assert_allclose(found["latency"], [1.862, 7.471, 30.284, 127.577], rtol=3e-4)
    np.testing.assert_allclose(found["latency"], [1.9, 7.5, 30.3, 124.3], rtol=0.03)
    split = generate(
        config(**{**PLAIN, "prefill_split": "balanced"}), shapes("opt-6.7b"), PAIRS, PAIRS, 1.0
    )
    np.testing.assert_allclose(split["latency"], [1.467, 5.889, 23.955, 102.26], rtol=2e-4)


def test_share_of_prefill() -> None:
    """Section 4.4 has 44.1 to 45.0 %, less with more clusters."""
    plain = {**PLAIN, "clusters": (8, 12, 16)}
    none = generate(config(**plain), shapes("opt-6.7b"), PAIRS, PAIRS, 1.0)["prefill_share"]
    assert 0.47 < none.min() < none.max() < 0.50
    split = config(**{**plain, "prefill_split": "balanced"})
    shared = generate(split, shapes("opt-6.7b"), PAIRS, PAIRS, 1.0)["prefill_share"]
    limits = {8: (0.41, 0.43), 12: (0.375, 0.39), 16: (0.345, 0.36)}
    for clusters, (low, high) in limits.items():
        at = shared.sel(clusters=clusters)
        assert low < at.min() < at.max() < high, clusters


# ---------------------------------------------------------------- plain arithmetic


def token(
    point: InferenceFields, model: str, context: int, used: float, share: float
) -> list[float]:
    """Stages of a generated token, in plain Python."""
    m = load_model(model)
    width = point.segment_bytes
    flash = point.clusters * width * point.engine_clock * used
    npu = point.npu_engines * width * point.npu_clock
    dram = point.dram_bandwidth * point.dram_efficiency
    weights = 2 * m.layers * m.hidden * m.head_dim * (m.heads + m.kv_heads)
    on_npu = (1 - share) * max(weights / npu, weights / dram)
    multiplies = 2 * m.heads * m.head_dim * m.layers * context
    read = 2 * m.layers * m.kv_heads * m.head_dim * context * point.kv_bytes
    softmax = m.heads * m.layers * context * point.softmax_cycles / point.npu_clock
    crossing = 2 * m.layers * m.hidden
    if point.kv_schedule != "off":
        crossing += 2 * m.layers * m.hidden + share * weights / m.hidden
    sent = (crossing + m.hidden) * point.activation_bytes + m.vocab * point.logit_bytes
    return [
        max(on_npu, share * weights / flash),
        max(multiplies / npu, read / dram) + softmax,
        m.layers * m.ffn_matrices * m.hidden * m.ffn / flash,
        m.vocab * m.hidden / flash,
        sent / point.link_bandwidth,
    ]


AXES = {
    "clusters": (8, 16),
    "dram_bandwidth": (20e9, 68.3e9),
    "kv_bytes": (1.0, 2.0),
    "softmax_cycles": (0.0, 3.0),
    "kv_schedule": ("off", "algorithm", "balanced"),
    "activation_bytes": (1.0, 2.0),
}


def test_decode_against_plain_arithmetic() -> None:
    """Every point of six axes, and a model whose heads share keys."""
    models = ("opt-2.7b", "llama3-8b")
    whole = config(**AXES)
    used = xr.DataArray([0.9, 0.8], coords={"clusters": [8, 16]})
    found = decode(whole, shapes(models), 300, used, start=100)
    assert found["time"].dims[-1] == "stage"
    assert set(found["time"].dims) == {*AXES, "model", "stage"}
    names = list(AXES)
    for (_, point), model in product(whole.points(), models):
        where = {n: getattr(point, n) for n in names} | {"model": model}
        at = found.sel(where)
        expected = token(
            point, model, 300, {8: 0.9, 16: 0.8}[point.clusters], at["flash_share"].item()
        )
        np.testing.assert_allclose(at["time"], expected, rtol=1e-12)


def test_busy_is_what_a_unit_computes() -> None:
    found = decode(config(kv_schedule="balanced"), shapes("opt-13b"), 500, 0.9)
    time, busy = found["time"], found["busy"]
    halves = time.sel(stage="projection").item()
    assert busy.sel(unit="nand").item() == pytest.approx(
        halves + time.sel(stage=["ffn", "head"]).sum().item()
    )
    assert busy.sel(unit="npu").item() == pytest.approx(halves + time.sel(stage="attention").item())
    assert found["flash_share"].item() == pytest.approx(
        16 * 11.2 * 0.9 / (64 + 16 * 11.2 * 0.9)
    )  # by rates: 64 GB/s of the NPU, 16 * 11.2 * 0.9 of the flash


def test_share_in_flash_grows_with_the_text_and_hides_attention() -> None:
    """OPT-6.7B: C_th = 512 cycles, attention grows by 2,048 a token, so by four bits."""
    context = xr.DataArray([101, 102, 1125], dims="context")
    found = decode(
        config(**{**PLAIN, "kv_schedule": "algorithm"}), shapes("opt-6.7b"), context, 1.0, start=100
    )
    np.testing.assert_allclose(found["flash_share"], np.array([0, 4, 4096]) / 32_768)
    npu = found["busy"].sel(unit="npu")
    np.testing.assert_allclose(npu, npu[0], rtol=1e-12)


def test_a_rounding_error_is_no_cycle() -> None:
    """2,048 cycles are four times 512 at any clock of the NPU, whatever their seconds round to."""
    clocks = tuple(float(c) for c in np.linspace(1e8, 1.5e9, 997))
    c = config(**{**PLAIN, "kv_schedule": "algorithm"}, npu_clock=clocks)
    found = decode(c, shapes("opt-6.7b"), 2, 1.0)["flash_share"]
    np.testing.assert_array_equal(found, 4 / 32_768)


def test_flash_is_the_slower_one_in_the_end() -> None:
    """From ctx = 0.737 * 8,192 on; with all bits clear at 8,192 the flash takes 12 ms, not 8.8."""
    c = config(**{**PLAIN, "kv_schedule": "algorithm"})
    context = xr.DataArray(np.arange(0, 10_000, 50) + 1, dims="context")
    found = decode(c, shapes("opt-6.7b"), context, 1.0)["time"].sel(stage="projection")
    assert context[int(np.argmin(found.values))].item() == pytest.approx(
        8192 * 179.2 / 243.2, abs=50
    )
    assert found[-1].item() == pytest.approx(shapes("opt-6.7b")["attention_weights"] / 179.2e9)


# ---------------------------------------------------------------- sums


@pytest.mark.parametrize("increment", ["token", "latency", "accumulated"])
@pytest.mark.parametrize("scope", ["model", "layer"])
def test_generation_is_the_sum_of_its_tokens(increment: str, scope: str) -> None:
    """Small planes hold few columns, so that all bits are soon clear: 300 tokens see it all."""
    c = config(
        kv_schedule=("off", "algorithm", "balanced"), kv_increment=increment, kv_scope=scope,
        clusters=(2, 16), npu_engines=2, softmax_cycles=2.0, kv_bytes=40.0,
    )  # fmt: skip
    models = shapes(("smollm2-135m", "llama3-8b"))
    n, m = 7, 300
    steps = xr.DataArray(np.arange(n + 1, n + m + 1), dims="token")
    tokens = decode(c, models, steps, 0.8, start=n)
    found = generate(c, models, n, m, 0.8).sel(phase="decode")
    for name in ("time", "busy"):
        summed = tokens[name].broadcast_like(steps).sum("token")
        xr.testing.assert_allclose(
            summed.transpose(*found[name].dims).drop_attrs(),
            found[name].drop_vars("phase").drop_attrs(),
        )
    shares = tokens["flash_share"].mean("token")
    xr.testing.assert_allclose(
        shares, found["flash_share"].drop_vars("phase").transpose(*shares.dims).drop_attrs()
    )


def test_prompt_is_the_sum_of_its_tokens() -> None:
    """With its logits computed for all of them a prompt is decoding from the first token."""
    c = config(**{**PLAIN, "head_in_prefill": "all"}, kv_bytes=3.0)
    models = shapes(("opt-1.3b", "llama3-8b"))
    steps = xr.DataArray(np.arange(1, 51), dims="token")
    expected = decode(c, models, steps, 0.9)["time"].sum("token")
    found = prefill(c, models, 50, 0.9)["time"]
    # what does not depend on the context has no token to sum over
    constant = decode(c, models, 0, 0.9)["time"] * 50
    xr.testing.assert_allclose(found.sel(stage="ffn"), constant.sel(stage="ffn"))
    xr.testing.assert_allclose(found.drop_attrs(), expected.drop_attrs())


def test_generation_ends_where_it_says() -> None:
    found = generate(config(), shapes(("opt-1.3b", "opt-30b")), 32, PAIRS, 0.97)
    spent = found["time"].sum("stage")
    xr.testing.assert_allclose(spent.sum("phase").drop_attrs(), found["latency"].drop_attrs())
    first = spent.sel(phase="prefill").drop_vars("phase").drop_attrs()
    xr.testing.assert_allclose(first, found["time_to_first_token"].drop_attrs())
    rate = PAIRS / spent.sel(phase="decode").drop_vars("phase")
    xr.testing.assert_allclose(rate, found["tokens_per_second"].drop_attrs())
    assert found["latency"].attrs["units"] == "s"


def test_reuse_of_weights_helps_where_dram_binds() -> None:
    """100 tokens, DRAM of 10 GB/s: 100, 25 and 1 readings; then the NPU's 64 GB/s."""
    c = config(
        prefill_split="none", prefill_reuse=(1, 4, 1000), dram_bandwidth=10e9, dram_efficiency=1.0
    )
    model = shapes("opt-6.7b")
    found = prefill(c, model, 100, 1.0)["time"].sel(stage="projection")
    weights = float(model["attention_weights"])
    np.testing.assert_allclose(
        found, [100 * weights / 10e9, 25 * weights / 10e9, 100 * weights / 64e9]
    )


def test_head_of_the_last_prompt_token_or_of_all() -> None:
    c = config(head_in_prefill=("last", "all"))
    found = prefill(c, shapes("opt-6.7b"), 40, 0.9)["time"].sel(stage="head")
    np.testing.assert_allclose(found[1] / found[0], 40)


@pytest.mark.parametrize("used", [0.0, -0.1, 1.01, float("nan")])
def test_utilisation_out_of_range(used: float) -> None:
    for time in (decode, prefill):
        with pytest.raises(
            InputError, match=r"utilisation from .* to .*, allowed: above 0, up to 1"
        ):
            time(config(), shapes("opt-1.3b"), 64, xr.DataArray([0.9, used]))


def test_stages_and_units_are_named() -> None:
    found = decode(config(), shapes("opt-1.3b"), 64, 0.9)
    assert tuple(found["stage"].values) == inference.STAGES
    assert tuple(found["unit"].values) == inference.UNITS
    assert all(found[name].attrs["units"] for name in found)


def test_study_prints_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "token", "--utilisation", "1"]) == 0
    found = capsys.readouterr().out
    assert "opt-6.7b     2048   512     4  100 %     9   2  178 %     6036   8192" in found
    assert "83.59   67.00   58.70 (17.03)" in found
    with pytest.raises(SystemExit):
        main(["tokens"])
    assert "found tokens, allowed: token, latency" in capsys.readouterr().err
