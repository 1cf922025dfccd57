"""The array multiplies integers exactly, and errs as its currents and converters do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic.array import ReadoutFields, multiply, noisy_linear, row_statistics
from nandcosim.systems.nasic.array_errors import (
    COMPONENTS,
    conversion,
    error_statistics,
    leaking,
    leaks,
)
from nandcosim.systems.nasic.currents import StringCurrents, ideal, load
from nandcosim.systems.nasic.digits import InputCode, WeightCode
from nandcosim.tables import load_tables
from nandcosim.tables.table import Tables

IDEAL = ideal()


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load_tables()


POINTS = st.builds(
    ReadoutFields,
    technique=st.sampled_from(["base", "t1", "t1t2", "t1t2t3"]),
    states=st.integers(2, 8),
    weight_bits=st.integers(2, 8),
    input_bits=st.integers(1, 8),
    input_levels=st.integers(2, 4),
    input_rows=st.integers(1, 20),
    interleave=st.integers(1, 8),
    offset_rule=st.sampled_from(["measured", "nominal"]),
    adc_range=st.just("full"),
    adc_bits=st.just(16),
)


@settings(max_examples=30, deadline=None)
@given(POINTS, st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_exact_without_errors(point: ReadoutFields, depth: int, experts: int, seed: int) -> None:
    """Any technique, bits, states, input dimension and interleaving: y = M (x W) to the bit."""
    rng = np.random.default_rng(seed)
    limit, inputs = WeightCode.of(point).limit, InputCode.of(point)
    weights = rng.integers(-limit, limit + 1, (experts, depth, 3))
    x = rng.integers(inputs.low, inputs.high + 1, (4, depth))
    selected = rng.integers(0, experts, 4)
    exact = np.einsum("sd,sdc->sc", x, weights[selected])
    assert (multiply(x, weights, point, IDEAL, selected=selected) == exact).all()


@pytest.mark.parametrize("technique", ["base", "t1", "t1t2", "t1t2t3"])
@pytest.mark.parametrize("rule", ["measured", "nominal"])
def test_moments_are_exact_without_errors(technique: str, rule: str) -> None:
    config = ReadoutFields(technique=technique, offset_rule=rule, adc_range="full", adc_bits=16)
    rng = np.random.default_rng(6)
    weights, x = rng.integers(-7, 8, (300, 5)), rng.integers(-128, 128, (4, 300))
    found = multiply(x, weights, config, IDEAL, mode="moments")
    assert np.allclose(found, x @ weights, rtol=1e-5, atol=0.05)


def _leaky(leak: float) -> StringCurrents:
    values = vars(IDEAL) | {"leak": IDEAL.mean * leak}
    return StringCurrents(**values)


@pytest.mark.parametrize("searched", [0, 1, 2])
def test_mismatched_experts_leak_with_the_inputs_of_their_own_blocks(searched: int) -> None:
    """Against loops over blocks: set j holds of expert e the row group of region j - e."""
    rng = np.random.default_rng(5)
    experts, rows, turns, columns, share = 3, 2, 2, 4, 1 / 64
    config = ReadoutFields(
        interleave=experts, input_rows=rows, adc_range="full", adc_bits=16, leakage_rule="worst",
        input_bits=2, weight_bits=4, states=5, offset_rule="nominal",
    )  # fmt: skip
    weights = rng.integers(-7, 8, (experts, experts * rows * turns, columns))
    x = rng.integers(-2, 2, (1, experts * rows * turns))
    level = x[0] + 2  # one cycle of four levels
    expected = np.zeros(columns)
    for turn in range(turns):
        for region in range(experts):
            group = slice((turn * experts + region) * rows, (turn * experts + region + 1) * rows)
            sums = np.zeros((2, columns))
            for block_set in range(experts):
                expert = (block_set - region) % experts
                fed = (block_set - searched) % experts  # row group that this block set gets
                inputs = level[(turn * experts + fed) * rows :][:rows]
                stored = weights[expert, group]
                for half, pairs in enumerate((8 + stored, 8 - stored)):
                    sums[half] += (1 if expert == searched else share) * (inputs @ pairs)
            converted = np.rint(sums)
            expected += (converted[0] - converted[1]) / 2
    expected -= 2 * weights[searched].sum(axis=0)
    found = multiply(x, weights, config, _leaky(share), selected=np.array([searched]))
    assert np.allclose(found[0], expected)


def test_base_does_not_leak() -> None:
    config = ReadoutFields(technique="base", adc_range="full", leakage_rule="worst")
    weights, x = np.full((2, 8, 1), 7), np.full((1, 8), 100)
    assert multiply(x, weights, config, _leaky(0.3)).item() == 8 * 7 * 100


@pytest.mark.parametrize("bits", [2, 3])
def test_leaking_experts_are_the_neighbours_in_one_cam_cell(bits: int) -> None:
    experts = 4**bits
    found = leaks(experts, bits, "neighbours")
    for searched in range(experts):
        digits = divmod(searched, 2**bits)
        expected = [
            divmod(e, 2**bits) for e in range(experts)
            if abs(e // 2**bits - digits[0]) + abs(e % 2**bits - digits[1]) == 1
        ]  # fmt: skip
        got = [divmod(int(e), 2**bits) for e in np.flatnonzero(found[:, searched])]
        assert got == expected
    assert (leaks(experts, bits, "worst").sum(axis=0) == experts - 1).all()


def test_leaking_counts_neighbours_over_axes() -> None:
    config = ReadoutFields(technique=("base", "t1"), interleave=(1, 4, 16), cam_bits=2)
    assert leaking(config).sel(technique="t1").values.tolist() == [0.0, 1.5, 3.0]
    assert not leaking(config).sel(technique="base").any()


def test_same_seed_same_cells(tables: Tables) -> None:
    """Errors belong to cells: a sample's result does not depend on the others."""
    config = ReadoutFields(input_rows=8, interleave=2)
    currents = load(tables, config)
    rng = np.random.default_rng(0)
    x, weights = rng.integers(-128, 128, (6, 30)), rng.integers(-7, 8, (30, 4))
    whole = multiply(x, weights, config, currents, seed=1)
    assert (multiply(x[2:4], weights, config, currents, seed=1) == whole[2:4]).all()
    assert (multiply(x, weights, config, currents, seed=2) != whole).any()


def test_coarse_converters_err_by_half_a_step() -> None:
    config = ReadoutFields(adc_bits=6, adc_range="full", input_bits=2, input_rows=16, states=5)
    step = conversion(config)["step"].item()
    assert step == 16 * 16 * 3 / 63
    rng = np.random.default_rng(1)
    x, weights = rng.integers(-2, 2, (50, 16)), rng.integers(-7, 8, (16, 20))
    error = multiply(x, weights, config, IDEAL) - x @ weights
    assert 0.3 * step < abs(error).max() <= step / 2  # two halves of half a step, over two


def test_converter_noise_is_drawn_anew() -> None:
    config = ReadoutFields(adc_noise=1.0, adc_range="full", adc_bits=12)
    x, weights = np.zeros((400, 16), dtype=int), np.zeros((16, 2), dtype=int)
    y = multiply(x, weights, config, IDEAL)
    cycles = np.array([64, 16, 4, 1])
    # weights of 4 bits lie in two units of radix 1, of two halves each
    expected = np.sqrt((cycles**2).sum() * 2 * 2 * (1 + 1 / 12) / 4)
    assert y.std() == pytest.approx(expected, rel=0.1)


# ---------------------------------------------------------------- closed form


def test_statistics_over_axes_are_those_of_points(tables: Tables) -> None:
    config = ReadoutFields(
        technique=("t1t2t3", "base", "t1t2"), states=(4, 2), sigma=(0.05, 0.15),
        adc_bits=(6, 10), weight_bits=(4, 8), input_levels=(4, 3), adc_range=("full", "clip"),
    )  # fmt: skip
    whole = error_statistics(config, load(tables, config))
    for _, point in list(config.points())[::7]:
        one = error_statistics(point, load(tables, point))
        at = whole.sel({axis: getattr(point, axis) for axis in config.axes})
        for name in ("partial_sd", "output_error", "output_total", "adc_step", "half_lsb_rows"):
            assert np.allclose(at[name], one[name]), (name, point)


def test_components_make_the_total(tables: Tables) -> None:
    config = ReadoutFields(sigma=(0.05, 0.15))
    found = error_statistics(config, load(tables, config))
    assert tuple(found["component"].values) == COMPONENTS
    power = (found["output_error"] ** 2).sum("component")
    assert np.allclose(power, found["output_total"] ** 2)


def test_spread_of_an_output_does_not_depend_on_the_input_dimension(tables: Tables) -> None:
    """The same cells err, whether they are added in one cycle or in many."""
    config = ReadoutFields(input_rows=(32, 128, 512))
    spread = error_statistics(config, load(tables, config))["output_error"].sel(component="spread")
    assert np.allclose(spread, spread[0])


def test_half_an_lsb_is_the_textbook_number() -> None:
    """Units of one fixed deviation: sd sqrt(N) = 1/2."""
    deviation = 0.1
    units = vars(IDEAL) | {"unit_sd": xr.full_like(IDEAL.unit_sd, deviation)}
    rows = error_statistics(ReadoutFields(), StringCurrents(**units))["half_lsb_rows"]
    assert rows.item() == pytest.approx(0.25 / deviation**2)


def test_nothing_errs_when_all_is_ideal() -> None:
    config = ReadoutFields(adc_range="full", adc_bits=14)
    assert error_statistics(config, IDEAL)["output_total"].item() == 0


# ---------------------------------------------------------------- of a model


def test_noisy_linear_is_a_quantised_product_when_all_is_ideal() -> None:
    config = ReadoutFields(weight_bits=8, adc_range="full", adc_bits=16)
    rng = np.random.default_rng(2)
    weights, x = rng.normal(size=(50, 7)), rng.normal(size=(2, 3, 50))
    scale = abs(weights).max(axis=0) / 127
    step = abs(x).max(axis=-1, keepdims=True) / 127
    expected = (np.rint(x / step) @ np.rint(weights / scale)) * step * scale
    found = noisy_linear(weights, config, IDEAL)(x)
    assert found.dtype == np.float32
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_noisy_linear_takes_zeros(tables: Tables) -> None:
    config = ReadoutFields()
    linear = noisy_linear(np.zeros((20, 3)), config, load(tables, config))
    assert np.isfinite(linear(np.zeros((2, 20)))).all()


def test_matrices_may_share_their_statistics(tables: Tables) -> None:
    """The same numbers as when each matrix works them out."""
    config = ReadoutFields(sigma=0.15)
    currents = load(tables, config)
    shared = row_statistics(config, currents.at(config))
    rng = np.random.default_rng(3)
    for depth in (200, 300, 200):
        weights, x = rng.normal(size=(depth, 4)), rng.normal(size=(5, depth))
        alone = noisy_linear(weights, config, currents, 7)(x)
        together = noisy_linear(weights, config, currents, 7, shared)(x)
        assert (alone == together).all()


def test_noisy_linear_errs_alike_for_one_token(tables: Tables) -> None:
    """What spread does is in the cells: it stays from call to call."""
    config = ReadoutFields(technique="base", adc_bits=12, adc_range="full", sigma=0.4)
    rng = np.random.default_rng(3)
    weights, x = rng.normal(size=(256, 50)), rng.normal(size=(40, 256))
    linear = noisy_linear(weights, config, load(tables, config), seed=4)
    first, second = linear(x), linear(x)
    static = np.corrcoef((first - x @ weights).ravel(), (second - x @ weights).ravel())[0, 1]
    assert static > 0.6


# ---------------------------------------------------------------- bad input

ONES = np.ones((3, 4), dtype=int)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"config": ReadoutFields(sigma=(0.1, 0.2))}, "axes sigma"),
        ({"x": np.ones((2, 5), dtype=int)}, r"shape \(2, 5\)"),
        ({"x": np.full((2, 3), 128)}, "inputs: found 128, allowed: -128 to 127"),
        ({"weights": ONES * 8}, "weights: found 8, allowed: -7 to 7"),
        ({"selected": np.array([0, 1])}, "selected"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], text: str) -> None:
    values: dict[str, Any] = {
        "x": np.ones((2, 3), dtype=int), "weights": ONES, "config": ReadoutFields(),
        "currents": IDEAL, "selected": None,
    } | changed  # fmt: skip
    with pytest.raises(InputError, match=text):
        multiply(**values)
    if "axes" in text:
        with pytest.raises(InputError, match=text):
            noisy_linear(ONES, values["config"], IDEAL)
