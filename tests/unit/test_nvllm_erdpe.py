"""The error-resilient dot product: Algorithm 1, and whole matrices at once."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.ecc import CORRECTED, DETECTED, flip, make_code
from nandcosim.systems.nvllm.erdpe import bf16_to_float, dot, dot_matrix, float_to_bf16

pytest.importorskip("bchlib")

CODE = make_code("bch")
SEGMENTS = 6
SMALLEST = 2.0**-24  # unit roundoff of FP32


def operands(number: str, seed: int, columns: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (columns, bytes), their parity, and activations."""
    rng = np.random.default_rng(seed)
    length = SEGMENTS * CODE.segment_bytes
    if number == "int8":
        weights = rng.integers(0, 256, (columns, length), dtype=np.uint8)
        activations = rng.integers(-128, 128, length, dtype=np.int8)
    else:
        values = rng.normal(size=(columns, length // 2)) * 2.0 ** rng.integers(-9, 9, length // 2)
        weights = float_to_bf16(values.astype(np.float32)).view(np.uint8)
        activations = float_to_bf16(rng.normal(size=length // 2).astype(np.float32))
    return weights, CODE.encode(weights.reshape(-1, CODE.segment_bytes)), activations


def with_errors(
    weights: np.ndarray, parity: np.ndarray, errors: dict[int, set[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Copies with the bits of each segment flipped."""
    data, check = weights.reshape(-1, CODE.segment_bytes).copy(), parity.copy()
    bits = [segment * CODE.n + bit for segment, those in errors.items() for bit in those]
    flip(CODE, data, check, np.array(bits, dtype=np.int64))
    return data.reshape(weights.shape), check


def plain_int8(weights: np.ndarray, activations: np.ndarray) -> int:
    signed = [w - 256 if w > 127 else w for w in weights.tolist()]
    return sum(w * a for w, a in zip(signed, activations.tolist(), strict=True))


correctable = st.dictionaries(
    st.integers(0, SEGMENTS - 1), st.sets(st.integers(0, CODE.n - 1), min_size=1, max_size=CODE.t)
)


@settings(deadline=None)
@given(correctable, st.sampled_from(["arrival", "column"]), st.integers(0, 1000))
def test_int8_is_exact_up_to_t_errors_a_segment(errors, order, seed) -> None:
    weights, parity, activations = operands("int8", seed)
    raw, check = with_errors(weights[0], parity, errors)
    found = dot(raw, check, activations, CODE, order=order)
    assert found.value == plain_int8(weights[0], activations)
    assert found.scoreboard == tuple(32 * segment for segment in sorted(errors))
    assert (found.weights == weights[0]).all()  # line 14
    assert (found.verdicts == CORRECTED).sum() == len(errors)


@settings(deadline=None)
@given(correctable, st.integers(0, 1000))
def test_bf16_in_the_columns_order_is_that_of_weights_without_errors(errors, seed) -> None:
    weights, parity, activations = operands("bf16", seed)
    clean = dot(weights[0], parity, activations, CODE, number="bf16")
    raw, check = with_errors(weights[0], parity, errors)
    found = dot(raw, check, activations, CODE, number="bf16", order="column")
    assert struct.pack("f", found.value) == struct.pack("f", clean.value)


@settings(deadline=None)
@given(correctable, st.integers(0, 1000))
def test_bf16_as_segments_arrive_is_within_rounding(errors, seed) -> None:
    """Both orders add the same K segment sums; each is within (K - 1) u / (1 - (K - 1) u) times
    the sum of their sizes (Higham, Accuracy and Stability, section 4.2)."""
    weights, parity, activations = operands("bf16", seed)
    clean = dot(weights[0], parity, activations, CODE, number="bf16").value
    raw, check = with_errors(weights[0], parity, errors)
    found = dot(raw, check, activations, CODE, number="bf16").value
    sizes = 0.0
    for i in range(SEGMENTS):
        part = slice(16 * i, 16 * i + 16)
        size = dot(
            weights[0, 32 * i : 32 * i + 32], parity[i : i + 1], activations[part], CODE,
            number="bf16",
        ).value  # fmt: skip
        sizes += abs(size)
    k = (SEGMENTS - 1) * SMALLEST
    assert abs(found - clean) <= 2 * k / (1 - k) * sizes


def test_as_segments_arrive_bf16_can_differ() -> None:
    """Algorithm 1 alone does not give the sum without errors: section 3.3's commit does."""
    weights, parity, activations = operands("bf16", 1)
    clean = dot(weights[0], parity, activations, CODE, number="bf16").value
    values = set()
    for segment in range(SEGMENTS):
        raw, check = with_errors(weights[0], parity, {segment: {7}})
        values.add(dot(raw, check, activations, CODE, number="bf16").value)
    assert values - {clean}


def test_bf16_is_near_the_exact_sum() -> None:
    weights, parity, activations = operands("bf16", 4)
    w, a = bf16_to_float(weights.view("<u2"))[0], bf16_to_float(activations)
    exact = np.dot(w.astype(np.float64), a.astype(np.float64))
    sizes = np.dot(np.abs(w.astype(np.float64)), np.abs(a.astype(np.float64)))
    found = dot(weights[0], parity, activations, CODE, number="bf16").value
    assert abs(found - exact) <= (SEGMENTS + 4) * SMALLEST * sizes  # a tree of 16: four roundings


def beyond(seed: int) -> set[int]:
    """Five errors that the code knows to be too many."""
    rng = np.random.default_rng(seed)
    while True:
        bits = set(rng.choice(256, 5, replace=False).tolist())
        data, parity = np.zeros((1, 32), np.uint8), np.zeros((1, 5), np.uint8)
        flip(CODE, data, parity, np.array(sorted(bits)))
        if CODE.correct(data, parity).verdict[0] == DETECTED:
            return bits


def test_an_uncorrectable_segment_is_kept_or_dropped() -> None:
    weights, parity, activations = operands("int8", 2)
    raw, check = with_errors(weights[0], parity, {1: beyond(0), 3: {0}})
    kept, dropped = (
        dot(raw, check, activations, CODE, uncorrectable=choice) for choice in ("keep", "drop")
    )
    assert kept.verdicts.tolist() == [0, DETECTED, 0, CORRECTED, 0, 0]
    assert kept.scoreboard == (32, 96)
    right = weights[0].copy()
    right[32:64] = raw[32:64]
    assert kept.value == plain_int8(right, activations)
    right[32:64] = 0
    assert dropped.value == plain_int8(right, activations)
    assert (kept.weights[32:64] == raw[32:64]).all()


@pytest.mark.parametrize("number", ["int8", "bf16"])
@pytest.mark.parametrize("order", ["arrival", "column"])
@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_a_matrix_is_its_columns_one_by_one(monkeypatch, number, order, choice) -> None:
    monkeypatch.setattr("nandcosim.systems.nvllm.erdpe._BLOCK", 5)
    columns = 12
    weights, parity, activations = operands(number, 3, columns)
    errors = {segment: {segment, 100} for segment in range(0, columns * SEGMENTS, 3)}
    errors |= {segment: beyond(segment) for segment in range(1, columns * SEGMENTS, 7)}
    raw, check = with_errors(weights, parity, errors)
    options = {"number": number, "order": order, "uncorrectable": choice}
    whole = dot_matrix(raw, check, activations, CODE, **options)
    assert {0, CORRECTED, DETECTED} == set(whole.verdicts.ravel().tolist())
    for i in range(columns):
        rows = slice(SEGMENTS * i, SEGMENTS * (i + 1))
        one = dot(raw[i], check[rows], activations, CODE, **options)
        # Wrong exponent bits may make it NaN.
        assert np.array_equal(whole.values[i], one.value, equal_nan=True)
        assert (whole.verdicts[i] == one.verdicts).all()
        assert (whole.weights[i] == one.weights).all()


def test_without_a_code_raw_weights_are_multiplied() -> None:
    code = make_code("none")
    weights, _, activations = operands("int8", 5, 2)
    none = np.zeros((2 * SEGMENTS, 0), np.uint8)
    found = dot_matrix(weights, none, activations, code)
    assert found.values.tolist() == [plain_int8(row, activations) for row in weights]
    assert not found.verdicts.any()


def test_bfloat16_is_the_upper_half_of_a_float32() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.5, np.inf, 3.0e38, 1e-40], np.float32)
    words = float_to_bf16(values)
    assert words[:5].tolist() == [0x0000, 0x8000, 0x3F80, 0xBFC0, 0x7F80]
    assert np.isnan(bf16_to_float(float_to_bf16(np.array([np.nan], np.float32)))).all()
    every = np.arange(65536, dtype=np.uint16)
    finite = every[np.isfinite(bf16_to_float(every))]
    assert (float_to_bf16(bf16_to_float(finite)) == finite).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=2.0**-120))
def test_bfloat16_is_rounded_to_nearest_even(value) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    lower, rest = bits >> 16, bits & 0xFFFF
    up = rest > 0x8000 or (rest == 0x8000 and lower % 2 == 1)
    assert int(float_to_bf16(np.array([value], np.float32))[0]) == lower + up


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": "fp8"}, "number: found 'fp8'"),
        ({"order": "random"}, "order: found 'random'"),
        ({"uncorrectable": "retry"}, "uncorrectable: found 'retry'"),
        ({"weights": np.zeros(40, np.uint8)}, "found 40 bytes in segments of 32"),
        ({"activations": np.zeros(64, np.int8)}, r"int8 of shape \(64,\), allowed: int8 of shape"),
        ({"activations": np.zeros(32, np.float32)}, "float32"),
        ({"parity": np.zeros((2, 5), np.uint8)}, r"parity: found shape \(2, 5\)"),
        (
            {
                "weights": np.zeros(131072, np.uint8),
                "activations": np.zeros(131072, np.int8),
                "parity": np.zeros((4096, 5), np.uint8),
            },
            "up to 131071",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message) -> None:
    arguments = {
        "weights": np.zeros(32, np.uint8),
        "parity": np.zeros((1, 5), np.uint8),
        "activations": np.zeros(32, np.int8),
        "code": CODE,
    }
    with pytest.raises(InputError, match=message):
        dot(**(arguments | change))
