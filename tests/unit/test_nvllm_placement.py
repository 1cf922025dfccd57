"""Placement against plain arithmetic, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm import pages
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.models import load_model, model_names, shapes
from nandcosim.systems.nvllm.placement import (
    PARTS,
    POLICIES,
    check_fits,
    copy_cost,
    place,
    usable_share,
)

GIB = 2**30


def along(name: str, values: list[Any]) -> xr.DataArray:
    return xr.DataArray(values, dims=name, coords={name: values})


def in_dram(name: str, policy: str, context: int, kv_bytes: float) -> float:
    model = load_model(name)
    kept = {
        "ffn_in_flash": model.attention_weights,
        "head_in_dram": model.attention_weights + model.head_weights,
        "all_in_flash": 0,
        "all_in_dram": model.parameters - model.other_weights,
    }[policy]
    return kept + model.other_weights + model.kv_values * kv_bytes * context


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(model_names()),
    policy=st.sampled_from(sorted(POLICIES)),
    context=st.integers(0, 10_000),
    kv_bytes=st.sampled_from([1.0, 2.0]),
)
def test_bytes_in_dram(name: str, policy: str, context: int, kv_bytes: float) -> None:
    config = HardwareFields(kv_bytes=kv_bytes)
    placed = place(config, shapes(name), policy, context)
    assert placed["dram"].item() == in_dram(name, policy, context, kv_bytes)
    assert placed["weights"].sum().item() == placed["flash"].item() == load_model(name).parameters


@settings(max_examples=40, deadline=None)
@given(
    page_bytes=st.integers(64, 20_000),
    segment_bytes=st.integers(1, 40),
    parity_bits=st.integers(0, 100),
)
def test_segments_in_a_page(page_bytes: int, segment_bytes: int, parity_bits: int) -> None:
    config = HardwareFields(
        page_bytes=page_bytes, segment_bytes=segment_bytes, parity_place=("page", "spare")
    )
    found = usable_share(config, parity_bits)
    taken, used = 0, 0
    while taken + 8 * segment_bytes + parity_bits <= 8 * page_bytes:
        taken += 8 * segment_bytes + parity_bits
        used += segment_bytes
    assert found.sel(parity_place="page").item() == pytest.approx(used / page_bytes)
    in_spare = page_bytes // segment_bytes * segment_bytes
    assert found.sel(parity_place="spare").item() * page_bytes == pytest.approx(in_spare)


@pytest.mark.parametrize("parity_place", ["page", "spare"])
@pytest.mark.parametrize("code", ["bch", "hamming", "none"])
def test_share_is_that_of_the_page_layout(parity_place: str, code: str) -> None:
    config = HardwareFields.checked({"parity_place": parity_place, "code": code}, "test")
    share = usable_share(config, code_sizes(config)["parity_bits"])
    assert share.item() == pages.layout(config).data_share


def test_default_code_takes_an_eighth_of_the_flash() -> None:
    share = usable_share(HardwareFields(), 36).item()
    assert share == 448 * 32 / 16_384 == 0.875  # 448 segments of 292 bits, 256 bits left over


def test_capacities_are_the_papers() -> None:
    placed = place(HardwareFields(clusters=8), shapes("opt-30b"))
    assert placed["flash_capacity"].item() == 128 * GIB
    assert placed["dram_capacity"].item() == 12 * GIB


def test_every_axis_equals_its_points() -> None:
    config = HardwareFields(clusters=(8, 16), kv_bytes=(1.0, 2.0), parity_place=("page", "spare"))
    names = ("opt-1.3b", "llama3-8b")
    policies, contexts = along("policy", list(POLICIES)), along("context", [64, 2048])
    whole = place(config, shapes(names), policies, contexts, parity_bits=along("parity", [9, 36]))
    assert whole["copied"].sizes["part"] == len(PARTS)
    for _, point in config.points():
        labels = {axis: getattr(point, axis) for axis in config.axes}
        for policy in POLICIES:
            single = place(point, shapes("llama3-8b"), policy, 2048, parity_bits=36)
            chosen = {**labels, "model": "llama3-8b", "policy": policy, "context": 2048}
            for name, values in whole.data_vars.items():
                at = {k: v for k, v in {**chosen, "parity": 36}.items() if k in values.dims}
                assert (values.sel(at).values == single[name].values).all()


def test_opt_30b_fits_with_either_cache() -> None:
    config = HardwareFields(clusters=8, kv_bytes=(1.0, 2.0))
    placed = place(config, shapes("opt-30b"), context=2048, parity_bits=36)
    check_fits(placed)
    assert (placed["dram"] / GIB).values == pytest.approx([10.518, 11.830], abs=1e-3)


def test_what_does_not_fit_is_named() -> None:
    placed = place(
        HardwareFields(clusters=(8, 16)),
        shapes(("opt-13b", "opt-66b")),
        context=along("context", [9]),
    )
    with pytest.raises(InputError) as error:
        check_fits(placed)
    assert str(error.value) == (
        "nvllm: model = opt-66b, context = 9: dram needed 20.28 GiB, allowed: 12 GiB or less"
    )


def test_flash_too_small() -> None:
    config = HardwareFields(clusters=(1, 2), plane_capacity=4e9)
    with pytest.raises(
        InputError, match=r"clusters = 1: flash needed 31\.9 GiB, allowed: 14\.9 GiB"
    ):
        check_fits(place(config, shapes("opt-30b"), parity_bits=36))


def test_model_without_a_name() -> None:
    placed = place(HardwareFields(), shapes("opt-66b").drop_vars("model"))
    with pytest.raises(InputError, match="nvllm: the model: dram needed"):
        check_fits(placed)


def test_refusals() -> None:
    with pytest.raises(InputError, match="policy: found 'ffn'; allowed: ffn_in_flash, "):
        place(HardwareFields(), shapes("opt-30b"), "ffn")
    with pytest.raises(InputError, match="page_bytes = 16, allowed: enough for a segment of 32 B"):
        place(HardwareFields(page_bytes=16), shapes("opt-30b"))


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({"link_bandwidth": 5e9}, 5e9),
        ({"link_bandwidth": 1e12, "dram_bandwidth": 50e9, "dram_efficiency": 0.5}, 25e9),
        # 64 planes with a page of 14,336 B of weights each read time
        ({"link_bandwidth": 1e13, "dram_bandwidth": 1e13}, 64 * 14_336 / 5e-6),
    ],
)
def test_copy_runs_at_the_slowest_rate(changes: dict[str, float], rate: float) -> None:
    config = HardwareFields(link_energy=1e-12, dram_energy=2e-12, **changes)
    placed = place(config, shapes("opt-1.3b"), parity_bits=36)
    cost = copy_cost(config, placed, xr.Dataset({"read_time": 5e-6, "bit_energy": 7e-12}))
    model = load_model("opt-1.3b")
    copied = model.attention_weights + model.other_weights
    assert cost["time"].item() == pytest.approx(copied / rate)
    assert cost["energy"].item() == pytest.approx(8 * copied * (7e-12 / 0.875 + 1e-12 + 2e-12))
