"""The codes of a weight segment: sizes, check, correction, errors alone, closed forms."""

from __future__ import annotations

import pickle
import sys
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nvllm import ecc
from nandcosim.systems.nvllm.ecc import CLEAN, CORRECTED, DETECTED, Outcomes, flip, make_code
from nandcosim.systems.nvllm.ecc_study import main, order
from nandcosim.systems.nvllm.hardware import EngineFields
from nandcosim.systems.nvllm.rber import flipped_bits

bchlib = pytest.importorskip("bchlib")

CODES = [
    make_code("bch"),
    make_code("hamming"),
    make_code("none"),
    make_code("bch", 4, 2),
    make_code("bch", 64, 16),
]


def segments(code: ecc.Code, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (count, code.segment_bytes), dtype=np.uint8)
    return data, code.encode(data)


@pytest.mark.parametrize(
    ("name", "size", "t", "m", "parity", "n"),
    [
        ("bch", 32, 4, 9, 36, 292),
        ("hamming", 32, 4, 9, 9, 265),
        ("none", 32, 4, 0, 0, 256),
        ("bch", 64, 8, 10, 80, 592),
        ("bch", 512, 16, 13, 208, 4304),
    ],
)
def test_smallest_field_that_holds_the_segment(name, size, t, m, parity, n) -> None:
    code = make_code(name, size, t)
    assert (code.m, code.parity_bits, code.n) == (m, parity, n)
    assert code.data_bits == 8 * size


def test_parity_bits_are_the_codecs() -> None:
    for size in (1, 2, 4, 16, 32, 200, 1000):
        for t in (1, 2, 3, 4, 7, 16):
            code = make_code("bch", size, t)
            codec = bchlib.BCH(code.t, m=code.m)
            assert codec.ecc_bits == code.parity_bits
            assert codec.ecc_bytes == code.parity_bytes


@pytest.mark.parametrize("code", CODES, ids=str)
def test_parity_is_the_codecs(code) -> None:
    data, parity = segments(code, 50)
    assert parity.shape == (50, code.parity_bytes)
    if code.t:
        codec = bchlib.BCH(code.t, m=code.m)
        assert [codec.encode(row.tobytes()) for row in data] == [row.tobytes() for row in parity]
    assert code.check(data, parity).all()


def test_encoding_goes_through_several_blocks(monkeypatch) -> None:
    code = make_code("bch")
    data, parity = segments(code, 50)
    monkeypatch.setattr(ecc, "_BLOCK", 7)
    assert (code.encode(data) == parity).all()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CODES[:2] + CODES[3:]), st.data())
def test_up_to_t_errors_are_corrected_and_up_to_2t_are_seen(code, draw) -> None:
    data, parity = segments(code, 1, draw.draw(st.integers(0, 1000)))
    errors = draw.draw(st.sets(st.integers(0, code.n - 1), min_size=1, max_size=2 * code.t))
    wrong, wrong_parity = data.copy(), parity.copy()
    flip(code, wrong, wrong_parity, np.array(sorted(errors)))
    assert not code.check(wrong, wrong_parity)[0]
    found = code.correct(wrong, wrong_parity)
    if len(errors) <= code.t:
        assert found.verdict[0] == CORRECTED
        assert (found.data == data).all()
        assert (found.parity == parity).all()
    elif found.verdict[0] == DETECTED:  # left as it was read
        assert (found.data == wrong).all()
    else:  # another codeword
        assert code.check(found.data, found.parity)[0]
        assert (found.data != data).any()


def test_what_was_read_is_not_changed() -> None:
    code = make_code("bch")
    data, parity = segments(code, 3)
    data[1, 0] ^= 1
    before = data.copy()
    found = code.correct(data, parity)
    assert (data == before).all()
    assert found.verdict.tolist() == [CLEAN, CORRECTED, CLEAN]


def test_what_fills_the_last_parity_byte_is_not_looked_at() -> None:
    code = make_code("bch")
    data, parity = segments(code, 4)
    parity[:, -1] |= 0x0F  # 36 bits in 5 bytes
    assert code.check(data, parity).all()
    data[:, 0] ^= 1
    assert (code.correct(data, parity).verdict == CORRECTED).all()


@pytest.mark.parametrize(
    ("code", "rber"),
    [
        (make_code("bch"), 2e-2),
        (make_code("bch", 4, 2), 5e-2),
        (make_code("hamming"), 5e-3),
        (make_code("none"), 1e-3),
    ],
    ids=str,
)
def test_errors_alone_give_the_counts_of_real_data(monkeypatch, code, rber) -> None:
    count, seed = 3000, 5
    monkeypatch.setattr(ecc, "_BLOCK", 500)
    data, parity = segments(code, count, seed=9)
    wrong, wrong_parity = data.copy(), parity.copy()
    flips = flipped_bits(count * code.n, rber, np.random.default_rng(seed))
    flip(code, wrong, wrong_parity, flips)
    expected = ecc.classify(code.correct(wrong, wrong_parity), data)
    # Right data with wrong parity: no code to see it.
    if code.name != "none":
        assert expected.miscorrected > 0
    assert ecc.simulate_errors(code, rber, count, seed) == expected
    assert expected.segments == count


def test_batches_of_segments_add_up(monkeypatch) -> None:
    code = make_code("hamming")
    monkeypatch.setattr(ecc, "_BATCH", 1000)
    found = ecc.simulate_errors(code, 1e-3, 2500, 1)
    assert found.segments == 2500
    assert found == ecc.simulate_errors(code, 1e-3, 2500, 1)
    assert ecc.simulate_errors(code, 0.0, 10, 1) == Outcomes(10, 0, 0, 0, 0)


def test_classification_needs_the_truth() -> None:
    truth = np.zeros((5, 1), np.uint8)
    data = np.array([[0], [0], [1], [1], [1]], np.uint8)
    verdict = np.array([CLEAN, CORRECTED, DETECTED, CORRECTED, CLEAN], np.int8)
    found = ecc.classify(ecc.Corrected(data, truth, verdict), truth)
    assert found == Outcomes(1, 1, 1, 1, 1)
    assert found.uncorrectable == 3
    assert (found + found).segments == 10


@pytest.mark.parametrize("p", [Fraction(1, 10**9), Fraction(1, 10**4), Fraction(3, 100)])
@pytest.mark.parametrize("t", [0, 1, 4])
def test_closed_form_is_the_binomial_tail(p, t) -> None:
    n = 292
    exact = sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(t + 1, t + 40))
    assert float(ecc.uncorrectable_rate(float(p), n, t)) == pytest.approx(float(exact), rel=1e-9)


def test_closed_forms_broadcast() -> None:
    rber = xr.DataArray([0.0, 1e-4, 0.5], dims="rber")
    t = xr.DataArray([0, 4, 300], dims="t")
    found = ecc.uncorrectable_rate(rber, 292, t)
    assert found.sizes == {"t": 3, "rber": 3}
    assert (found.isel(rber=0) == 0).all()
    assert (found.isel(t=2) == 0).all()
    faulty = ecc.segment_error_rate(rber, 292)
    assert faulty.values == pytest.approx(1 - (1 - rber.values) ** 292)


def test_sizes_over_the_axes_that_matter() -> None:
    config = EngineFields(code=("bch", "none"), correctable=(2, 4), engine_clock=(1e8, 2e8))
    sizes = ecc.code_sizes(config)
    assert sizes.sizes == {"code": 2, "correctable": 2}
    assert sizes["n"].sel(code="bch").values.tolist() == [274, 292]
    assert (sizes["parity_bits"].sel(code="none") == 0).all()
    assert int(ecc.code_sizes(EngineFields())["n"]) == 292


def test_a_code_survives_pickling() -> None:
    code = make_code("bch")
    code.encode(np.zeros((1, 32), np.uint8))
    assert pickle.loads(pickle.dumps(code)) == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bhc", 32, 4), "did you mean 'bch'"),
        (("bch", 0, 4), "segment_bytes = 0"),
        (("bch", 32, 0), "correctable = 0"),
        (("bch", 4096, 4), "32767 bits"),
    ],
)
def test_impossible_codes_are_refused(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        make_code(*arguments)


def test_segments_of_another_size_are_refused() -> None:
    code = make_code("bch")
    with pytest.raises(InputError, match=r"\(segments, 32\)"):
        code.encode(np.zeros((2, 16), np.uint8))
    with pytest.raises(InputError, match="parity"):
        code.check(np.zeros((2, 32), np.uint8), np.zeros((2, 4), np.uint8))


def test_missing_codec_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "bchlib", None)
    code = make_code("bch", 24, 3)
    ecc._codec.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"nandcosim\[ecc\]"):
            code.encode(np.zeros((1, 24), np.uint8))
        assert make_code("none").check(np.zeros((1, 32), np.uint8), np.zeros((1, 0), np.uint8))[0]
    finally:
        ecc._codec.cache_clear()


def test_the_study_prints_a_line_a_code_and_rate(capsys) -> None:
    assert main(["codes", "--segments", "2000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 * 4
    assert lines[4].startswith("bch      292  5e-03  0.76861")
    assert main(["codes", "--segments", "0"]) == 2
    assert "segments: found 0" in capsys.readouterr().err


def test_the_study_finds_bf16_sums_that_depend_on_arrival() -> None:
    rows = [line.split() for line in order(columns=50, length=1024)][1:]
    differ = [float(row[2]) for row in rows]
    assert differ[0] < differ[-1]
    assert differ[-1] > 0.1
