"""Bytes that inference on NVLLM moves, and what they and the logic cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.systems.nvllm.energy import (
    PATHS,
    decode_bytes,
    logic_energy,
    movement_energy,
    prefill_bytes,
)
from nandcosim.systems.nvllm.inference import InferenceFields, decode, generate
from nandcosim.systems.nvllm.models import shapes

MODELS = ("opt-1.3b", "opt-6.7b", "opt-30b", "llama3-8b")


def config(**fields: Any) -> InferenceFields:
    return InferenceFields(**fields)


def test_opt_6_7b_by_hand() -> None:
    """Two FFN matrices, 32 layers, h = 4,096; 36 parity bits of 256; one eighth in flash."""
    found = decode_bytes(config(), shapes("opt-6.7b"), 64, 0.125, 36)
    ffn, attention, head = 2 * 4096 * 16_384 * 32, 4 * 4096**2 * 32, 50_272 * 4096
    assert tuple(found["path"].values) == PATHS
    nand, io, dram = found.values
    assert nand == (ffn + head + attention / 8) * 292 / 256
    assert io == 32 * (4 * 4096 + 4 * 4096 / 8) + 4096 + 2 * 50_272
    assert dram == attention * 7 / 8 + 65 * 2 * 32 * 4096
    cost = movement_energy(found, config(), 2e-12)
    np.testing.assert_allclose(cost, 8 * found.values * [2e-12, 6e-12, 5e-12])
    assert cost.attrs["units"] == "J"


def test_io_is_negligible() -> None:
    """Section 4.5; below a tenth of a percent whatever the schedule has put into the flash."""
    c = config(kv_schedule=("off", "balanced"))
    share = decode(c, shapes(MODELS), 64, 0.95)["flash_share"]
    cost = movement_energy(decode_bytes(c, shapes(MODELS), 64, share, 36), c, 2.25e-12)
    assert (cost.sel(path="io") / cost.sum("path") < 1e-3).all()


@pytest.mark.parametrize("schedule", ["off", "algorithm", "balanced"])
def test_mean_context_and_share_give_the_whole_output(schedule: str) -> None:
    c, models, n, m = config(kv_schedule=schedule), shapes(MODELS), 30, 200
    steps = xr.DataArray(np.arange(n + 1, n + m + 1), dims="token")
    share = decode(c, models, steps, 0.9, start=n)["flash_share"]
    each = decode_bytes(c, models, steps, share, 36).sum("token")
    mean = generate(c, models, n, m, 0.9)["flash_share"].sel(phase="decode", drop=True)
    found = m * decode_bytes(c, models, n + (m + 1) / 2, mean, 36)
    for path in ("io", "dram"):
        xr.testing.assert_allclose(found.sel(path=path), each.sel(path=path))
    in_flash = decode_bytes(c, models, 0, share, 36).sel(path="nand")  # none of the context
    total = in_flash.broadcast_like(steps).sum("token")
    xr.testing.assert_allclose(found.sel(path="nand"), total.transpose("model"))


def test_prompt_is_the_sum_of_its_tokens() -> None:
    c = config(kv_schedule="off", prefill_split="none", head_in_prefill="all")
    steps = xr.DataArray(np.arange(1, 21), dims="token")
    each = decode_bytes(c, shapes(MODELS), steps, 0.0, 36)
    found = prefill_bytes(c, shapes(MODELS), 20, 0.0, 36)
    xr.testing.assert_allclose(found, each.sum("token"))


def test_reuse_saves_weights_and_nothing_else() -> None:
    """41 tokens, four at a time: eleven readings."""
    c, model = config(prefill_reuse=(1, 4)), shapes("opt-6.7b")
    found = prefill_bytes(c, model, 41, 0.5, 36)
    once, four = found.sel(prefill_reuse=1), found.sel(prefill_reuse=4)
    head = float(model["head_weights"]) * 292 / 256
    assert ((four - head) / (once - head)).sel(path="nand").item() == pytest.approx(11 / 41)
    assert four.sel(path="io") == once.sel(path="io")
    saved = 30 * float(model["attention_weights"]) / 2
    assert (once - four).sel(path="dram").item() == pytest.approx(saved)


def test_parity_is_read_too() -> None:
    c = config(segment_bytes=(32, 64))
    found = decode_bytes(c, shapes("opt-1.3b"), 64, 0.0, xr.DataArray([0, 36], dims="parity"))
    ratio = (found.isel(parity=1) / found.isel(parity=0)).sel(path="nand")
    np.testing.assert_allclose(ratio, [292 / 256, 548 / 512])


def test_logic_gated_or_not() -> None:
    power = xr.DataArray([0.9, 0.24], coords={"unit": ["nand", "npu"]})
    found = decode(config(), shapes("llama2-7b"), 64, 0.9)
    gated = logic_energy(power, found["busy"]).sum("unit")
    always = logic_energy(power, found["time"].sum("stage")).sum("unit")
    assert always.item() == pytest.approx(1.14 * found["time"].sum().item())
    assert gated < always
