"""Algorithm 2 of NVLLM, its run over a growing cache, and the closed form of that run."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import get_args

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.schedule import (
    Course,
    Increment,
    ScheduleFields,
    balanced_share,
    course,
    kv_schedule,
    run_schedule,
)

INCREMENTS = get_args(Increment)
bitmaps = arrays(np.uint8, st.integers(0, 60), elements=st.integers(0, 1))
sizes = st.tuples(st.integers(1, 40), st.integers(0, 400)).map(lambda s: (s[0], s[0] + s[1]))
cycles = st.one_of(st.integers(1, 50), st.floats(0.5, 50.0))


def algorithm_2(delta: float, column_cycles: float, u: int, p: int, bitmap: list[int]) -> list[int]:
    """Line by line."""
    threshold = floor(Fraction(p, u)) * Fraction(column_cycles)
    if delta <= threshold:
        return bitmap
    k = ceil(Fraction(delta) / threshold)
    updated, count, i = list(bitmap), 0, len(bitmap) - 1
    while count < k and i >= 0:
        if bitmap[i] == 1:
            updated[i] = 0
            count += 1
        i -= 1
    return updated


@settings(deadline=None)
@given(st.integers(-100, 5000), st.integers(1, 50), sizes, bitmaps)
def test_algorithm_line_by_line(
    delta: int, column: int, sizes: tuple[int, int], bitmap: np.ndarray
) -> None:
    given_bits = bitmap.copy()
    found = kv_schedule(delta, column, *sizes, bitmap)
    assert found.tolist() == algorithm_2(delta, column, *sizes, bitmap.tolist())
    np.testing.assert_array_equal(bitmap, given_bits)  # what was given stays as it was
    assert found.shape == bitmap.shape
    assert found.dtype == bitmap.dtype


@settings(deadline=None)
@given(st.floats(0, 5e4), cycles, sizes, bitmaps)
def test_algorithm_clears_from_the_top(
    delta: float, column: float, sizes: tuple[int, int], bitmap: np.ndarray
) -> None:
    found = kv_schedule(delta, column, *sizes, bitmap)
    threshold = sizes[1] // sizes[0] * column
    cleared = np.flatnonzero(bitmap != found)
    assert (found <= bitmap).all()
    if delta <= threshold:
        assert cleared.size == 0
        return
    ones = int(bitmap.sum())
    assert cleared.size in {min(ceil(delta / threshold) + off, ones) for off in (-1, 0, 1)}
    if cleared.size:
        assert not found[cleared[0] :].any()
        # from C_th on, one bit more never gives back what k bits have made up for
        assert cleared.size == ones or cleared.size * threshold >= delta * (1 - 1e-12)


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64])
def test_types_of_bits(kind: type) -> None:
    found = kv_schedule(10, 1, 4, 8, np.ones(9, dtype=kind))
    assert found.dtype == kind
    assert found.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"column_bytes": 9}, "column of 9 B, allowed: 1 to 8 B"),
        ({"column_bytes": 0}, "column of 0 B"),
        ({"npu_cycles_per_column": 0}, "NPU cycles of a column = 0"),
        ({"npu_cycles_per_column": -1.0}, "NPU cycles of a column = -1.0"),
        ({"delta_cycles": float("nan")}, "increment = nan"),
        ({"bitmap": np.full(3, 2)}, "allowed: one dimension of bits"),
        ({"bitmap": np.ones((2, 2), dtype=np.uint8)}, "bitmap of 2 dimensions"),
        ({"bitmap": np.ones(3)}, "type float64"),
    ],
)
def test_refused(change: dict[str, object], message: str) -> None:
    arguments = {
        "delta_cycles": 5,
        "npu_cycles_per_column": 1,
        "column_bytes": 4,
        "page_buffer_bytes": 8,
        "bitmap": np.ones(3, dtype=np.uint8),
    }
    with pytest.raises(InputError, match=message):
        kv_schedule(**{**arguments, **change})  # type: ignore[arg-type]


def closed(
    growth: int, column: int, sizes: tuple[int, int], bits: int, increment: Increment
) -> Course:
    held = sizes[1] // sizes[0]
    return course(
        ScheduleFields(kv_increment=increment),
        growth=xr.DataArray(growth),
        npu_cycles_per_column=xr.DataArray(column),
        column_bytes=xr.DataArray(sizes[0]),
        page_buffer_bytes=xr.DataArray(sizes[1]),
        columns=xr.DataArray(bits * held),
        layers=xr.DataArray(3),
    )


runs = given(
    st.integers(1, 600),
    st.integers(1, 50),
    sizes,
    st.integers(1, 80),
    st.sampled_from(INCREMENTS),
    st.integers(1, 120),
)


@settings(deadline=None, max_examples=60)
@runs
def test_closed_form_is_the_run(
    growth: int,
    column: int,
    sizes: tuple[int, int],
    bits: int,
    increment: Increment,
    passes: int,
) -> None:
    run = run_schedule(passes, growth, column, *sizes, bits, increment)
    found = closed(growth, column, sizes, bits, increment).cleared(
        xr.DataArray(np.arange(passes), dims="pass")
    )
    np.testing.assert_array_equal(run, found)


@settings(deadline=None, max_examples=30)
@runs
def test_totals_are_sums_over_passes(
    growth: int,
    column: int,
    sizes: tuple[int, int],
    bits: int,
    increment: Increment,
    passes: int,
) -> None:
    share = run_schedule(passes, growth, column, *sizes, bits, increment) / bits
    for npu, flash in ((3.0, 1.0), (1.0, 3.0), (2.0, 2.0)):
        time, shares = closed(growth, column, sizes, bits, increment).totals(
            passes, xr.DataArray(npu), xr.DataArray(flash)
        )
        assert shares.item() == pytest.approx(share.sum(), rel=1e-12, abs=1e-12)
        slower = np.maximum((1 - share) * npu, share * flash).sum()
        assert time.item() == pytest.approx(slower, rel=1e-12)


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 1))
def test_balance_is_best(npu: float, flash: float, other: float) -> None:
    share = balanced_share(xr.DataArray(npu), xr.DataArray(flash)).item()
    best = max((1 - share) * npu, share * flash)
    assert best <= max((1 - other) * npu, other * flash) * (1 + 1e-9)


# OPT-6.7B: 2 h layers multiply-accumulates a token of context on 128 a cycle, columns of
# 4,096 B of which a cluster's 64 KiB hold 16.
GROWTH, COLUMN, PAGES = 2 * 4096 * 32 // 128, 4096 // 128, (4096, 65_536)
BITS = 4 * 4096 * 32 // 16


def test_opt_6_7b_each_token_of_the_whole_model() -> None:
    """2,048 cycles a token are four times C_th = 512: four bits a token, nothing too much."""
    cleared = run_schedule(100, GROWTH, COLUMN, *PAGES, BITS, "token")
    np.testing.assert_array_equal(cleared, 4 * np.arange(100))
    assert (cleared * 16 * COLUMN == GROWTH * np.arange(100)).all()


def test_opt_6_7b_change_of_latency_makes_up_for_half() -> None:
    cleared = run_schedule(101, GROWTH, COLUMN, *PAGES, BITS, "latency")
    assert cleared[-1] * 16 * COLUMN == GROWTH * 100 / 2


def test_opt_6_7b_each_token_of_one_layer_never_fires() -> None:
    assert run_schedule(2000, GROWTH // 32, COLUMN, *PAGES, BITS // 32, "token")[-1] == 0


def test_opt_6_7b_collected_in_one_layer_overshoots() -> None:
    """It fires with nine tokens, 576 cycles, and then clears two bits, 1,024 cycles."""
    cleared = run_schedule(901, GROWTH // 32, COLUMN, *PAGES, BITS // 32, "accumulated")
    assert cleared[9] == 2
    assert cleared[900] * 512 / (900 * GROWTH // 32) == pytest.approx(16 / 9)


def test_scope_and_increment_broadcast() -> None:
    config = ScheduleFields(kv_increment=INCREMENTS, kv_scope=("model", "layer"))
    hidden = xr.DataArray([2048, 4096], dims="model")
    found = course(
        config,
        growth=hidden / 2,
        npu_cycles_per_column=hidden / 128,
        column_bytes=hidden,
        page_buffer_bytes=xr.DataArray(65_536),
        columns=4 * hidden * 32,
        layers=xr.DataArray([24, 32], dims="model"),
    ).share(xr.DataArray([0, 1, 500, 100_000], dims="pass"))
    assert set(found.dims) == {"kv_increment", "kv_scope", "model", "pass"}
    assert (found.isel({"pass": 0}) == 0).all()
    assert (found.sel(kv_scope="layer", kv_increment="accumulated").isel({"pass": 3}) == 1).all()
    assert (found.sel(kv_scope="layer", kv_increment="token") == 0).all()


def test_column_wider_than_the_page_buffer() -> None:
    with pytest.raises(InputError, match=r"= 64 B, allowed: 65 B or more"):
        closed(1, 1, (65, 64), 1, "token")
