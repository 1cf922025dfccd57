"""NVLLM's baselines: golden numbers, plain references, calibrations, axes, and wrong inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import gpu, ssd_like
from nandcosim.systems.nvllm.baseline_study import (
    aif_efficiency,
    cambricon_efficiency,
    energy_needed,
    implied_decode_speedup,
    implied_rate,
    main,
    needed_operations,
    nvllm_latency,
    nvllm_time,
    overhead_fit,
)
from nandcosim.systems.nvllm.baselines import (
    NOT_MODELLED,
    PATHS,
    SYSTEMS,
    BaselineFields,
    baselines,
)
from nandcosim.systems.nvllm.models import shapes

#: A decoder small enough to follow by hand: 3000 weights, 20 values of KV cache a token.
TINY = xr.Dataset(
    {
        "ffn_weights": 1800.0, "attention_weights": 900.0, "head_weights": 300.0,
        "kv_values": 20.0, "layers": 2.0, "heads": 5.0, "head_dim": 1.0,
    }
)  # fmt: skip


def fields(**values: Any) -> BaselineFields:
    return BaselineFields(**values)


def seconds(found: xr.Dataset) -> dict[str, float]:
    return {str(name): float(value) for name, value in found.items()}


def geometric_mean(values: xr.DataArray, dim: str | None = None) -> xr.DataArray:
    logarithms: xr.DataArray = xr.apply_ufunc(np.log, values)
    mean: xr.DataArray = xr.apply_ufunc(np.exp, logarithms.mean(dim))
    return mean


# ---------------------------------------------------------------- GPU


def test_a_token_takes_one_stream_of_all_weights() -> None:
    config = fields(pcie_bandwidth=30.0, ssd_bandwidth=10.0, ssd_staging="overlapped")
    time = seconds(gpu.decode_time(config, TINY, 8.0))
    assert time == pytest.approx({"gpu_dram": 100.0, "gpu_ssd": 300.0, "gpu_hybrid": 240.0})


def test_pieces_and_ways_of_the_weights() -> None:
    rates = {"pcie_bandwidth": 30.0, "ssd_bandwidth": 10.0}
    staged = seconds(gpu.stream_time(fields(**rates), TINY))
    assert staged["gpu_ssd"] == pytest.approx(300.0 + 100.0)
    assert staged["gpu_hybrid"] == pytest.approx(2100 / 10 + 2100 / 30 + 900 / 30)
    beside = fields(**rates, ssd_staging="overlapped", hybrid_pieces="overlapped")
    assert seconds(gpu.stream_time(beside, TINY))["gpu_hybrid"] == pytest.approx(210.0)
    delayed = seconds(gpu.stream_time(fields(**rates, ssd_layer_overhead=7.0), TINY))
    assert delayed["gpu_ssd"] == pytest.approx(400.0 + 2 * 7.0)
    assert delayed["gpu_dram"] == pytest.approx(staged["gpu_dram"])


@pytest.mark.parametrize("n", [16, 1024])
def test_prefill_is_one_pass_of_the_output_and_one(n: int) -> None:
    """5.88 % at 16/16 and 0.098 % at 1024/1024 (N4)."""
    found = baselines(fields(), shapes("opt-6.7b"), 64.0, float(n), float(n))
    share = found["prefill_share"].sel(system=list(gpu.GPU_SYSTEMS))
    np.testing.assert_allclose(share, 1 / (1 + n), rtol=1e-9)
    assert {16: 5.88, 1024: 0.098}[n] == pytest.approx(100 / (1 + n), rel=5e-3)


def test_prefill_of_a_slow_gpu_is_its_operations() -> None:
    config = fields(gpu_ops=100.0, gpu_efficiency=0.5)
    pairs = 2 * 5 * 4 * (1 + 2 + 3 + 4)
    time = seconds(gpu.prefill_time(config, TINY, 4.0))
    assert time["gpu_dram"] == pytest.approx((2 * 3000 * 4 + pairs) / 50.0)


@settings(max_examples=40, deadline=None)
@given(
    link=st.floats(1.0, 1e4),
    memory=st.floats(1.0, 1e5),
    prompt=st.integers(1, 40),
    output=st.integers(1, 60),
    overlap=st.sampled_from(["overlapped", "serial"]),
)
def test_generation_is_the_sum_of_its_tokens(
    link: float, memory: float, prompt: int, output: int, overlap: str
) -> None:
    """Whether streaming or the GPU is slower, or first one and then the other."""
    config = fields(
        pcie_bandwidth=link, ssd_bandwidth=link / 3, hbm_bandwidth=memory, gpu_ops=1e6,
        gpu_overlap=overlap,
    )  # fmt: skip
    whole = gpu.generation_time(config, TINY, float(prompt), float(output))
    context = xr.DataArray(np.arange(prompt + 1.0, prompt + output + 1.0), dims="token")
    one_by_one = gpu.decode_time(config, TINY, context).sum("token")
    assert seconds(whole) == pytest.approx(seconds(one_by_one), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(ssd=st.floats(1e9, 2e10), pcie=st.floats(2e10, 6e10))
def test_hybrid_lies_between(ssd: float, pcie: float) -> None:
    time = seconds(gpu.decode_time(fields(ssd_bandwidth=ssd, pcie_bandwidth=pcie), TINY, 64.0))
    assert time["gpu_dram"] <= time["gpu_hybrid"] <= time["gpu_ssd"]


def test_opt_30b_fits_the_gpu_that_streams_it() -> None:
    own = gpu.resident(fields(), shapes(("opt-30b", "llama2-70b", "llama-65b")), 64.0)
    assert own["fits"].values.tolist() == [True, True, True]
    wide = gpu.resident(fields(gpu_weight_bytes=2.0), shapes(("opt-30b", "llama2-70b")), 64.0)
    assert wide["fits"].values.tolist() == [True, False]
    read = 29.955e9 / 2039e9
    assert float(own["time"].sel(model="opt-30b")) == pytest.approx(read, rel=0.02)


def test_gpu_energy_by_hand() -> None:
    config = fields(ssd_energy=1.0, pcie_energy=10.0, host_dram_energy=100.0, hbm_energy=1000.0)
    energy = gpu.energy_per_token(config, TINY, 9.0)
    on_gpu = 8 * (2 * 3000 + 20 * 10) * 1000.0
    expected = {
        "gpu_dram": [0.0, 8 * 3000 * 10.0, 8 * 3000 * 100.0 + on_gpu],
        "gpu_ssd": [8 * 3000.0, 8 * 6000 * 10.0, 8 * 6000 * 100.0 + on_gpu],
        "gpu_hybrid": [8 * 2100.0, 8 * 5100 * 10.0, 8 * 5100 * 100.0 + on_gpu],
    }
    for system, by_path in expected.items():
        np.testing.assert_allclose(energy[system].sel(path=list(PATHS)), by_path)


# ---------------------------------------------------------------- SSD-like


def cambricon_by_hand(weights: float, channels: int, cores: int) -> float:
    """Tokens a second without attention, in plain Python."""
    height = (cores * 16384) ** 0.5
    tile = 30e-6 + height / 1e9  # a channel's part of the width is the height
    in_flash = channels * cores * 16384 / tile
    sliced = channels * 1e9 * (1 - 2 * height / (30e-6 * 1e9))
    return float((in_flash + sliced) / weights)


def test_tile_and_rates_of_the_small_one() -> None:
    rates = seconds(ssd_like.cambricon_rates(fields()))
    assert (rates["tile_height"], rates["tile_width"]) == (256.0, 2048.0)
    assert rates["in_flash"] == pytest.approx(17.3e9, rel=5e-3)
    assert rates["sliced"] == pytest.approx(7.86e9, rel=1e-3)
    assert rates["crossing"] == pytest.approx(0.31, abs=5e-3)
    assert rates["vectors"] == 512 / 65536


@pytest.mark.parametrize(
    ("size", "channels", "cores", "golden"),
    [("s", 8, 4, 3.81), ("m", 16, 8, 12.8), ("l", 32, 16, 46.3)],
)
def test_llama2_7b_uncalibrated(size: str, channels: int, cores: int, golden: float) -> None:
    shape = shapes("llama2-7b")
    weights = float(shape["ffn_weights"] + shape["attention_weights"] + shape["head_weights"])
    time = ssd_like.decode_time(fields(cambricon_size=size), shape, 0.0)["cambricon_llm"]
    assert 1 / float(time) == pytest.approx(cambricon_by_hand(weights, channels, cores))
    assert 1 / float(time) == pytest.approx(golden, rel=2e-3)


def test_attention_reads_the_cache_and_multiplies() -> None:
    config = fields(cambricon_dram_bandwidth=40.0, cambricon_npu_ops=10.0)
    time = ssd_like.decode_time(config, TINY, xr.DataArray([0.0, 6.0], dims="context"))
    assert float(time["cambricon_llm"].diff("context").squeeze()) == pytest.approx(
        6 * 20 / 40.0 + 6 * 4 * 2 * 5 / 10.0
    )


def test_channel_that_vectors_fill_carries_no_slices() -> None:
    rates = ssd_like.cambricon_rates(fields(cambricon_channel_bandwidth=1e7))
    assert float(rates["sliced"]) == 0.0


def test_aif_reads_102_gb_a_second() -> None:
    config = fields(aif_efficiency=1.0)
    time = ssd_like.decode_time(config, TINY, 64.0)["aif"]
    assert 3000 / float(time) == pytest.approx(102.4e9)


def test_cambricon_energy_by_hand() -> None:
    config = fields(cambricon_array_energy=1.0, cambricon_channel_energy=1.0, dram_energy=1.0)
    energy = ssd_like.cambricon_energy(config, TINY, 9.0)
    share = float(ssd_like.cambricon_rates(config)["crossing"])
    crossing = 3000 * (share + (1 - share) / 128)
    np.testing.assert_allclose(energy.sel(path=list(PATHS)), [8 * 3000, 8 * crossing, 8 * 20 * 10])


# ---------------------------------------------------------------- calibrations, and what they say


def test_defaults_are_what_the_study_computes() -> None:
    config = fields()
    mean = geometric_mean(implied_rate("gpu_dram"))
    assert config.calibrated_dram_rate == pytest.approx(float(mean), rel=2e-3)
    rate, layer = overhead_fit(per_layer=True)
    assert config.calibrated_ssd_rate == pytest.approx(rate, rel=0.01)
    assert config.calibrated_layer_overhead == pytest.approx(layer, rel=0.02)
    assert config.aif_efficiency == pytest.approx(aif_efficiency("aif"), rel=1e-3)
    assert config.aif_minus_efficiency == pytest.approx(aif_efficiency("aif_minus"), rel=1e-3)
    times = [
        ssd_like.decode_time(fields(cambricon_size=("s", "m", "l"), cambricon_rate=rate), TINY, 0.0)
        for rate in ("closed_form", "calibrated")
    ]
    shipped = times[0]["cambricon_llm"] / times[1]["cambricon_llm"]
    np.testing.assert_allclose(shipped, geometric_mean(cambricon_efficiency(), "model"), rtol=1e-3)


def test_streamed_weights_have_one_byte() -> None:
    """Two would need more than the 31.5 GB/s that PCIe 4.0 x16 has."""
    assert (
        float(implied_rate("gpu_dram").max()) < 31.5e9 < 2 * float(implied_rate("gpu_dram").min())
    )


def test_constant_rates_have_one_speedup() -> None:
    shape = shapes(("opt-1.3b", "opt-6.7b", "opt-30b"))
    speedup = gpu.decode_time(fields(), shape, 64.0)["gpu_ssd"] / nvllm_time(shape, 8)
    assert float(speedup.max() / speedup.min()) < 1.02


def test_time_a_layer_meets_what_it_was_not_set_to() -> None:
    """Set to 37.9 and 22.4; 16.7 of the hybrid and at most 28.2 end to end follow (N1, N3)."""
    config, shape = fields(gpu_rates="calibrated"), shapes(("opt-1.3b", "opt-30b"))
    speedup = gpu.decode_time(config, shape, 64.0) / nvllm_time(shape, 8)
    np.testing.assert_allclose(speedup["gpu_ssd"], [37.9, 22.4], rtol=0.02)
    assert float(speedup["gpu_hybrid"].min()) == pytest.approx(16.7, rel=0.02)
    pairs = xr.DataArray([16.0, 1024.0], dims="pair")
    whole = gpu.prefill_time(config, shape, pairs) + gpu.generation_time(
        config, shape, pairs, pairs
    )
    ratio = whole / nvllm_latency(shape, 16, pairs)
    assert float(ratio["gpu_ssd"].max()) == pytest.approx(28.2, rel=0.07)
    assert float(ratio["gpu_dram"].max()) == pytest.approx(2.7, rel=0.11)


def test_stated_speedup_and_shares_exceed_the_stated_decode_speedup() -> None:
    """28.2 end to end with these shares of prefill is 47 to 51 in decode, not 37.9."""
    low, high = implied_decode_speedup()
    assert low == pytest.approx(28.2 * 0.931 / 0.559)
    assert 37.9 < low < high


def test_needed_operations_give_the_share_of_prefill() -> None:
    config = fields(
        gpu_rates="calibrated", gpu_overlap="serial", gpu_efficiency=1.0,
        gpu_ops=needed_operations(),
    )  # fmt: skip
    found = baselines(config, shapes("opt-6.7b"), 64.0, 1024.0, 1024.0)
    assert float(found["prefill_share"].sel(system="gpu_dram")) == pytest.approx(0.0015, rel=0.01)


def test_energies_that_would_give_the_ratio() -> None:
    found = energy_needed()
    assert found["ratio"] == pytest.approx(1.7, rel=0.03)
    shape, goal = shapes("llama2-7b"), 5.63 * found["nvllm"]
    for name, value in (("channel", found["channel"]), ("array", found["array"])):
        config = fields(**{f"cambricon_{name}_energy": value})
        energy = ssd_like.cambricon_energy(config, shape, 64.0)
        assert float(energy.sum()) == pytest.approx(goal)


# ---------------------------------------------------------------- side by side


def test_systems_paths_and_what_is_not_modelled() -> None:
    found = baselines(fields(), shapes(("opt-1.3b", "opt-30b")), 64.0, 16.0, 16.0)
    assert found["system"].values.tolist() == list(SYSTEMS)
    assert found["path"].values.tolist() == list(PATHS)
    assert bool(found["tokens_per_second"].notnull().all())
    modelled = found["end_to_end"].notnull().all("model")
    assert modelled["system"].values[modelled].tolist() == list(gpu.GPU_SYSTEMS)
    assert found["end_to_end"].attrs["not_modelled"] == NOT_MODELLED["prefill"]
    energy = found["energy_per_token"]
    assert bool(energy.sel(system=["aif", "aif_minus"]).isnull().all())
    assert bool(energy.drop_sel(system=["aif", "aif_minus"]).notnull().all())
    assert all("units" in variable.attrs for variable in found.data_vars.values())


def test_axes_are_its_points() -> None:
    config = fields(
        cambricon_size=("s", "l"), gpu_rates=("sourced", "calibrated"), kv_bytes=(1.0, 2.0)
    )
    context = xr.DataArray([64.0, 900.0], dims="context")
    shape = shapes(("opt-1.3b", "llama2-70b"))
    whole = baselines(config, shape, context, 16.0, xr.DataArray([4.0, 8.0], dims="output"))
    for _, point in config.points():
        chosen = {name: getattr(point, name) for name in config.axes}
        for i, output in enumerate((4.0, 8.0)):
            one = baselines(point, shape, context, 16.0, output)
            for name, variable in whole.data_vars.items():
                here = {axis: value for axis, value in chosen.items() if axis in variable.dims}
                same = variable.sel(here, drop=True)
                same = same.isel(output=i) if "output" in same.dims else same
                np.testing.assert_allclose(same.transpose(*one[name].dims), one[name], rtol=1e-12)


def test_one_model_has_no_dimension() -> None:
    found = baselines(fields(), shapes("opt-6.7b"), 64.0, 16.0, 16.0)
    assert found["tokens_per_second"].dims == ("system",)


def test_unknown_size_is_named() -> None:
    with pytest.raises(InputError, match="run: cambricon_size: found 'xl', expected 's', 'm' or"):
        BaselineFields.checked({"cambricon_size": "xl"}, "run")


@pytest.mark.parametrize("table", ["systems", "gpu", "prefill", "cambricon", "energy"])
def test_study_prints(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([table]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2
