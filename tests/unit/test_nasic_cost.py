"""Cycles, time, energy and area of experts in the array, against closed forms and plain Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic.cost import (
    COMPONENTS,
    CostFields,
    area,
    at_ratio,
    cost,
    cycle_time,
    input_dimension,
    pulse_times,
)
from nandcosim.systems.nasic.cost_study import main, one_of
from nandcosim.systems.nasic.mapping import place
from nandcosim.systems.nasic.moe import load_moe, moe_shapes
from nandcosim.tables import Tables
from nandcosim.tables.table import DATA_FOLDER, CalibrationTable, open_table
from tests.benchmarks.bench_nasic_cost import token

ALL = ("base", "t1", "t1t2", "t1t2t3")
#: Pages that end where experts of 2048 x 1024 end, and planes and blocks enough for all of them.
ROOM: dict[str, Any] = {"bitlines": 24_576, "planes": 128, "blocks": 4096}


def config(**fields: Any) -> CostFields:
    return CostFields(**fields)


@cache
def table(name: str) -> CalibrationTable:
    return open_table(DATA_FOLDER / f"{name}.nc")


def of_pulse(name: str, states: int, tau_read: float = 6e-6) -> float:
    found = table("cim_pulse").lookup(name, states=[states], tau_read=[tau_read], x=[3])
    return found.item()


def of_wordline(name: str, width: int) -> float:
    at = {"m": [1], "layers": [128], "roughness": [0.0]}
    return table("wordline").lookup(name, line="wordline", width=[float(width)], **at).item()


# ---------------------------------------------------------------- input dimension


def test_rule_of_the_paper() -> None:
    """128 at a spread of 0.15, by its square; whole, within the plane, and never none."""
    c = config(sigma=(0.0, 0.0375, 0.075, 0.106, 0.15, 0.3, 5.0))
    assert input_dimension(c).values.tolist() == [2048, 2048, 512, 256, 128, 32, 1]


def test_given_and_measured_rows() -> None:
    c = config(input_rule=("paper", "measured", "given"), input_rows=40)
    assert input_dimension(c, xr.DataArray(77.9)).values.tolist() == [128, 77, 40]
    with pytest.raises(InputError, match="without a measured input dimension"):
        input_dimension(c)


def test_converter_bounds_rows() -> None:
    """8 bits tell 256 currents apart; with T2 a row has up to 4 strings times 3 levels."""
    c = config(technique=ALL, input_cap="adc", sigma=0.05)
    assert input_dimension(c).values.tolist() == [256, 256, 21, 21]


# ---------------------------------------------------------------- sparsity


def test_ratio_changes_the_experts_not_routed_to() -> None:
    c = config(ratio=(0.0, 1 / 4, 1 / 15, 1 / 32, 1.0))
    shapes = at_ratio(c, moe_shapes("olmoe"))
    assert shapes["experts"].values.tolist() == [64, 32, 120, 256, 8]
    assert shapes["routed_weights"].values[1] == moe_shapes("olmoe")["routed_weights"] / 2
    again = at_ratio(c, shapes)
    xr.testing.assert_equal(again, shapes)


def test_ratio_leaves_what_a_token_needs() -> None:
    c = config(technique="t1", search="serial", ratio=(1 / 4, 1 / 8), **ROOM)
    found = cost(c, moe_shapes("olmoe"))["token_time"].values
    assert found[0] == found[1]


# ---------------------------------------------------------------- cycles


@pytest.mark.parametrize(
    ("interleave", "times"), [(4, (1, 2, 4, 4, 4)), (8, (1, 2, 4, 8, 8)), (16, (1, 2, 4, 8, 16))]
)
def test_fewer_cycles_by_interleaving(interleave: int, times: tuple[int, ...]) -> None:
    """Fig. 8(b): T1 gains with sigma until the interleaved experts are used up."""
    sigma = (0.0375, 0.053, 0.075, 0.106, 0.15)
    c = config(technique=("base", "t1"), sigma=sigma, interleave=interleave, **ROOM)
    cycles = cost(c, one_of(64))["cycles"].sel(matrix="in")
    ratio = cycles.sel(technique="base") / cycles.sel(technique="t1")
    assert ratio.values.tolist() == list(times)


def test_experts_of_one_group_are_searched_in_turn() -> None:
    """8 of 64 routed to, 16 interleaved: four groups have two each; or all eight in turn."""
    c = config(technique="t1", search=("planes", "serial"), **ROOM)
    found = cost(c, moe_shapes("olmoe"))["cycles"].sel(matrix="in")
    assert (found / 8).values.tolist() == [2, 8]  # eight input bits


def test_always_on_experts_are_searched_too() -> None:
    shapes = one_of(64).assign(shared_ffn=3 * 1024.0)
    c = config(technique="t1", search="serial", **ROOM)
    ratio = cost(c, shapes)["cycles"] / cost(c, one_of(64))["cycles"]
    assert (ratio == 4).all()


@settings(max_examples=12, deadline=None)
@given(
    technique=st.sampled_from(ALL),
    states=st.sampled_from([2, 3, 4, 8]),
    sigma=st.floats(0.03, 0.4),
    interleave=st.integers(1, 20),
    planes=st.sampled_from([3, 16, 200]),
    weight_bits=st.integers(2, 8),
    input_bits=st.integers(1, 9),
    model=st.sampled_from(["olmoe", "mixtral-8x7b", "qwen3-30b-a3b"]),
)
def test_token_time_in_plain_python(model: str, **fields: Any) -> None:
    c = config(timing="given", **fields)
    shapes = moe_shapes(model)
    planes = place(c, shapes, input_dimension(c))["planes_at_work"].values
    found = cost(c, shapes)
    expected = token(c, load_moe(model), planes, 36.3e-6, 3.3e-6)
    assert found["token_time"].item() == pytest.approx(expected, rel=1e-9)
    assert 0 < found["utilisation"].item() <= 1 + 1e-12


def test_axes_are_points() -> None:
    """Every point of a space of axes is what that point alone gives."""
    axes = config(
        technique=("base", "t1t2t3"),
        states=(3, 4),
        interleave=(4, 16),
        ratio=(0.0, 0.25),
        between_inputs=("rise", "hold"),
    )
    models = ("olmoe", "qwen1.5-moe")
    whole = cost(axes, moe_shapes(models))
    rng = np.random.default_rng(1)
    points = list(axes.points())
    for i in rng.choice(len(points), 6, replace=False):
        point = points[i][1]
        one = cost(point, moe_shapes(models))
        for name, values in one.items():
            labels = {n: getattr(point, n) for n in axes.axes if n in whole[name].dims}
            # one value apiece, whatever else the axes do
            xr.testing.assert_allclose(
                whole[name].sel(labels, drop=True).transpose(*values.dims), values
            )


# ---------------------------------------------------------------- time of a cycle


def test_pulses_of_the_paper() -> None:
    """t1 + (m - 1) t2 and a conversion of each pulse: 8 bitlines, in pairs, 0.9 us each."""
    c = config(timing="given", t1=30e-6, t2=2e-6, states=(2, 3, 4, 8))
    expected = [30e-6 + (m - 1) * (2e-6 + 3.6e-6) for m in (2, 3, 4, 8)]
    np.testing.assert_allclose(cycle_time(c, xr.DataArray(4)), expected)


@pytest.mark.parametrize(
    ("fields", "microseconds"),
    [
        ({"conversion": "cycle"}, 30 + 3 * 2 + 3.6),
        ({"adc_overlap": "pulse"}, 32 + 2 * 3.6),
        ({"adc_overlap": "pulse", "adc_time": 0.1e-6}, 30 + 3 * 2),
        ({"adc_overlap": "pulse", "conversion": "cycle"}, 30 + 3 * 2),
        ({"pair_conversion": "each"}, 30 + 3 * 2 + 3 * 7.2),
        ({"between_inputs": "hold"}, (30 + 3 * (2 + 3.6) + 3 * 3 * (0.5 + 3.6)) / 4),
        (
            {"between_inputs": "hold", "conversion": "cycle"},
            (30 + 3 * 2 + 3.6 + 3 * (3 * 2 + 3.6)) / 4,
        ),
        (
            {"between_inputs": "hold", "technique": "t1"},
            (30 + 2 + 3.6 + 3 * (0.5 + 3.6)) / 4,
        ),
    ],
)
def test_options_of_a_cycle(fields: dict[str, Any], microseconds: float) -> None:
    c = config(timing="given", t1=30e-6, t2=2e-6, **fields)
    assert 1e6 * cycle_time(c, xr.DataArray(4)).item() == pytest.approx(microseconds)


@pytest.mark.parametrize("rho", [0.05, 0.1, 0.3])
def test_gain_of_states(rho: float) -> None:
    """Fig. 8(d): (m - 1) (1 + rho) / (1 + (m - 1) rho), whatever r is."""
    states = (2, 3, 4, 8)
    c = config(timing="given", t2=33e-6 * rho, adc_time=0.0, states=states, ratio=(1 / 4, 1 / 32))
    rate = cost(c, one_of(64))["array_throughput"]
    pulses = np.array(states) - 1
    expected = pulses * (1 + rho) / (1 + pulses * rho)
    for gain in (rate / rate.sel(states=2)).transpose("ratio", "states").values:
        np.testing.assert_allclose(gain, expected)


def test_times_of_the_tables() -> None:
    t1, t2 = (of_pulse(t, 4, 2e-6) for t in ("t1", "t2"))
    found = pulse_times(config(tau_read=2e-6))
    assert (found["first"].item(), found["further"].item()) == (t1, t2)
    settled = of_wordline("t_pass_far", 65_536)
    scale = settled / np.log(100) / 6e-6
    found = pulse_times(config(tau_read=2e-6, timing="wordline", bitlines=65_536))
    assert found["first"].item() == pytest.approx(t1 * scale)
    assert found["further"].item() == pytest.approx(t2 * scale)
    assert found["stretch"].item() == pytest.approx(scale)
    narrow = pulse_times(config(timing="wordline", bitlines=2048))
    assert narrow["first"].item() == 0.5e-6  # the bitline's own settling


def test_what_tables_do_not_hold() -> None:
    with pytest.raises(InputError, match="states"):
        cost(config(states=5), moe_shapes("olmoe"))
    with pytest.raises(InputError, match="cim_pulse"):
        cost(config(), moe_shapes("olmoe"), tables=Tables({}))


# ---------------------------------------------------------------- energy


@pytest.mark.parametrize(("technique", "pages"), [("base", 32), ("t1", 8)])
def test_energy_by_hand(technique: str, pages: int) -> None:
    """One of 64 experts, 16 (and 8) interleaved: two to a page of Base, a search takes 8 pages."""
    found = cost(config(technique=technique, **ROOM), one_of(64))["energy"]
    assert tuple(found["component"].values) == COMPONENTS
    e = {name: float(found.sel(component=name)) for name in COMPONENTS}
    pages_out = {"base": 32, "t1": 4}[technique]
    # 127 unselected wordlines at 6 V over 4 strings; the table's are at 1.2 V over 16
    line = of_wordline("e_pass", 24_576) / 127 * 25 / 4
    rises = 8 * (pages * 2048 + pages_out * 1024)
    assert e["precharge"] + e["cam"] == pytest.approx(rises * 127 * line)
    cam = {"base": 0.0, "t1": (pages * 2048 * 4 + pages_out * 1024 * 4) * 8}[technique]
    assert e["cam"] == pytest.approx(cam * line)
    experts = {"base": 64, "t1": 1}[technique]
    sensed = experts * 8 * 2048 * 6 * (16 + 8)  # input bits, columns, bitlines, row groups
    assert e["adc"] == pytest.approx(sensed / 2 * 1.1e-12)
    assert e["digital"] == pytest.approx(sensed / 2 * 0.1e-12)
    pairs = experts * 8 * 2048 * 6 * (2048 + 1024) / 2
    strings = pairs * of_pulse("e_bl", 2) / 2 / 4  # mean of inputs, one of four strings
    lines = sensed * 9.8299e-13 * (0.06 / 0.8) ** 2 * 4096 / 256
    assert e["bitline"] == pytest.approx(strings + lines, rel=1e-4)


def test_converter_energy_doubles_with_a_bit() -> None:
    found = cost(config(adc_bits=(7, 8, 10)), moe_shapes("olmoe"))["energy"]
    adc = found.sel(component="adc")
    np.testing.assert_allclose(adc / adc.sel(adc_bits=8), [0.5, 1, 4])
    assert (found.drop_sel(component="adc").std("adc_bits") == 0).all()


def test_precharge_of_t1() -> None:
    """Of all blocks: 1/r (S3). Of those with inputs: I N of them a cycle, so nothing is gained."""
    c = config(
        technique=("base", "t1"), precharged=("plane", "active"), ratio=0.25, interleave=4,
        bitlines=24_576,
    )  # fmt: skip
    e = cost(c, moe_shapes("olmoe"))["energy"].sel(component=["precharge", "cam"]).sum("component")
    gain = e.sel(technique="base") / e.sel(technique="t1")
    np.testing.assert_allclose(gain, [4, 1])


def test_held_wordlines_rise_once() -> None:
    e = cost(config(technique=ALL, between_inputs=("rise", "hold")), moe_shapes("olmoe"))["energy"]
    ratio = e.sel(between_inputs="rise") / e.sel(between_inputs="hold")
    for name, times in (("precharge", (8, 8, 4, 4)), ("adc", (1, 1, 1, 1))):
        np.testing.assert_allclose(ratio.sel(component=name), times)


def test_base_that_rests_what_is_not_routed_to() -> None:
    c = config(technique="base", redundancy=("all", "bitlines", "planes"), bitlines=24_576)
    found = cost(c, moe_shapes("olmoe"))
    e = found["energy"] / found["energy"].sel(redundancy="all")
    np.testing.assert_allclose(e.sel(component="precharge"), [1, 1, 8 / 32])  # 8 of 32 pages
    np.testing.assert_allclose(e.sel(component="adc"), [1, 8 / 64, 16 / 64])  # with a neighbour
    time = found["token_time"].values
    assert time[0] == time[1] > time[2]


# ---------------------------------------------------------------- area, whole results


def test_area_by_hand() -> None:
    placed = xr.Dataset({"cells_taken": 128e9, "planes_needed": 20.0})
    found = area(config(), placed)
    assert found.item() == pytest.approx(1e9 * 4.8e-8 + 20 * 16_384 / 2 / 8 * 1e-3)


def test_throughput_and_efficiency_are_of_active_weights() -> None:
    shapes = moe_shapes(("olmoe", "deepseek-moe-16b"))
    found = cost(config(), shapes)
    operations = 2 * shapes["active_weights"]
    xr.testing.assert_allclose(found["throughput"] * found["token_time"], operations)
    whole = found["energy"].sum("component")
    xr.testing.assert_allclose(found["energy_efficiency"] * whole, operations)
    assert found["energy"].attrs["units"] == "J"


def test_paper_counts_strings_pulses_and_input_bits() -> None:
    per_cycle = cost(config(technique=ALL), moe_shapes("olmoe"))["operations_per_cycle"].values
    np.testing.assert_allclose(per_cycle / per_cycle[0], [1, 8, 64, 192])


def test_study_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["t2"]) == 0
    found = capsys.readouterr().out
    assert "   128  the paper's operations           8.00/32.0   8.00/64.0" in found
