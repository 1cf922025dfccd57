"""The codes of a segment against galois, an independent implementation over finite fields."""

from __future__ import annotations

import numpy as np
import pytest

from nandcosim.systems.nvllm.ecc import CORRECTED, DETECTED, Code, flip, make_code

pytest.importorskip("bchlib")
galois = pytest.importorskip("galois")

pytestmark = pytest.mark.long  # galois compiles its decoder


def reference(code: Code) -> object:
    """The same code, not shortened: GF(2^9) over x^9 + x^4 + 1, as the kernel has it."""
    field = galois.GF(2**9, irreducible_poly="x^9 + x^4 + 1")
    return galois.BCH(511, d=2 * code.t + 1, extension_field=field)


def bits(data: np.ndarray, parity: np.ndarray, code: Code) -> np.ndarray:
    """Codewords (k, n), the data first."""
    tail = np.unpackbits(parity, axis=1)[:, : code.parity_bits]
    return np.concatenate([np.unpackbits(data, axis=1), tail], axis=1)


def decoded(peer: object, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corrected full-length codewords, and errors corrected, -1 if they are too many."""
    found, errors = peer.decode(galois.GF2(words), output="codeword", errors=True)
    return np.asarray(found), np.asarray(errors)


@pytest.fixture(scope="module", params=["bch", "hamming"])
def code(request) -> Code:
    return make_code(request.param)


@pytest.fixture(scope="module")
def peer(code):
    return reference(code)


def test_size_and_parity(code, peer) -> None:
    assert peer.k == 511 - code.parity_bits == {"bch": 475, "hamming": 502}[code.name]
    data = np.random.default_rng(1).integers(0, 256, (50, 32), dtype=np.uint8)
    # Shortened: the message's first bits are zero, and not stored.
    message = np.pad(np.unpackbits(data, axis=1), ((0, 0), (peer.k - code.data_bits, 0)))
    parity = np.asarray(peer.encode(galois.GF2(message), output="parity"))
    assert (np.packbits(parity, axis=1) == code.encode(data)).all()


def test_verdicts_and_words(code, peer) -> None:
    """Random data with 0 to 7 errors, 25 words each."""
    rng = np.random.default_rng(2)
    count = np.repeat(np.arange(8), 25)
    data = rng.integers(0, 256, (len(count), 32), dtype=np.uint8)
    parity = code.encode(data)
    for i, errors in enumerate(count):
        flip(code, data, parity, i * code.n + rng.choice(code.n, errors, replace=False))
    compare(code, peer, data, parity)


def test_errors_found_in_the_shortened_part_are_uncorrectable(code, peer) -> None:
    """Words that lie within t errors of a codeword of full length that is not ours.

    Such a word is a codeword with one of its errors among the bits that are not stored, and
    that bit set to zero, which it is by definition.
    """
    rng = np.random.default_rng(3)
    outside = 511 - code.n
    data, parity = [], []
    for _ in range(40):
        message = np.zeros((1, peer.k), np.uint8)
        message[0, outside:] = rng.integers(0, 2, code.data_bits)
        message[0, rng.integers(outside)] = 1
        word = np.asarray(peer.encode(galois.GF2(message)))[0]
        errors = rng.choice(code.n, code.t - 1, replace=False)
        word[outside + errors] ^= 1
        data.append(np.packbits(word[outside : outside + code.data_bits]))
        parity.append(np.packbits(word[outside + code.data_bits :]))
    verdicts = compare(code, peer, np.array(data), np.array(parity))
    assert (verdicts == DETECTED).all()


def compare(code: Code, peer: object, data: np.ndarray, parity: np.ndarray) -> np.ndarray:
    """Verdicts and corrected words, bit for bit."""
    ours = code.correct(data, parity)
    outside = 511 - code.n
    words, errors = decoded(peer, np.pad(bits(data, parity, code), ((0, 0), (outside, 0))))
    inside = ~words[:, :outside].any(axis=1)
    corrected = (errors > 0) & inside
    assert (ours.verdict == CORRECTED).tolist() == corrected.tolist()
    assert (ours.verdict == DETECTED).tolist() == ((errors < 0) | ~inside).tolist()
    assert (code.check(data, parity) == (errors == 0)).all()
    good = corrected | (errors == 0)
    assert (bits(ours.data, ours.parity, code)[good] == words[good, outside:]).all()
    return ours.verdict
