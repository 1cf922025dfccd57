"""Error-correcting codes of a weight segment: sizes, check, correction, and closed forms.

A segment of d bytes and its parity form the code L(n, d) of NVLLM's Algorithm 1. Both
codes here are binary BCH codes over GF(2^m), shortened to the segment: ``bch`` corrects t
bits, ``hamming`` is the same with t = 1. Checking and correcting are separate functions,
as the paper's section 3.2 has them: a check is the XOR of table rows for every byte, vectorised;
a correction is the Linux kernel's decoder, run on faulty segments only.

Bits count from the most significant of the first byte. Parity is left-aligned in its
bytes; what fills its last byte is neither stored nor looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import betainc

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nvllm.hardware import CodeName, EngineFields
from nandcosim.systems.nvllm.rber import flipped_bits
from nandcosim.wording import unknown_value

__all__ = [
    "CLEAN", "CORRECTED", "DETECTED", "Code", "Corrected", "Outcomes", "classify", "code_sizes",
    "flip", "make_code", "segment_error_rate", "simulate_errors", "uncorrectable_rate",
]  # fmt: skip

#: Verdicts on a segment: syndrome zero; corrected; faulty beyond correction.
CLEAN, CORRECTED, DETECTED = 0, 1, 2

#: Fields GF(2^m) that the codec knows.
_DEGREES = range(5, 16)
#: Segments handled at once: what a lookup works on stays in the cache.
_BLOCK = 1 << 14
#: Segments drawn at once by `simulate_errors`, which bounds its memory.
_BATCH = 1 << 22

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Corrected:
    """What a corrector returns.

    Attributes
    ----------
    data : ndarray of uint8, shape (k, segment_bytes)
    parity : ndarray of uint8, shape (k, parity_bytes)
        As read where the verdict is DETECTED.
    verdict : ndarray of int8, shape (k,)
        CLEAN, CORRECTED or DETECTED.
    """

    data: Bytes
    parity: Bytes
    verdict: NDArray[np.int8]


@dataclass(frozen=True)
class Outcomes:
    """Counts of segments by what became of them.

    Attributes
    ----------
    clean, corrected : int
        Right, without and after a correction.
    detected : int
        Known to be uncorrectable.
    miscorrected, undetected : int
        Wrong and not known to be: changed to another codeword, or read as one.
    """

    clean: int
    corrected: int
    detected: int
    miscorrected: int
    undetected: int

    @property
    def segments(self) -> int:
        """All of them."""
        return self.clean + self.corrected + self.uncorrectable

    @property
    def uncorrectable(self) -> int:
        """Those whose data are not what was stored, known or not."""
        return self.detected + self.miscorrected + self.undetected

    def __add__(self, other: Outcomes) -> Outcomes:
        mine, theirs = vars(self), vars(other)
        return Outcomes(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class Code:
    """A shortened code of one segment; see `make_code`.

    Attributes
    ----------
    name : str
    segment_bytes : int
        Data of a codeword, the paper's d.
    t : int
        Bits that are corrected.
    m : int
        Degree of the field GF(2^m); 0 without a code.
    """

    name: CodeName
    segment_bytes: int
    t: int
    m: int

    @property
    def data_bits(self) -> int:
        """Data bits of a codeword."""
        return 8 * self.segment_bytes

    @property
    def parity_bits(self) -> int:
        """Parity bits of a codeword."""
        return _parity_bits(self.m, self.t)

    @property
    def parity_bytes(self) -> int:
        """Bytes that hold the parity bits."""
        return -(-self.parity_bits // 8)

    @property
    def n(self) -> int:
        """Bits of a codeword, the paper's n."""
        return self.data_bits + self.parity_bits

    def encode(self, data: Bytes) -> Bytes:
        """Parity of every segment.

        Parameters
        ----------
        data : ndarray of uint8, shape (k, segment_bytes)

        Returns
        -------
        ndarray of uint8, shape (k, parity_bytes)

        Raises
        ------
        InputError
            If the segments have another size, or bytes of another type.
        """
        self._require("data", data, self.segment_bytes)
        table = _parity_table(self)
        parity = np.zeros((len(data), len(table)), np.uint64)
        for start in range(0, len(data), _BLOCK):
            columns = np.ascontiguousarray(data[start : start + _BLOCK].T)
            block = parity[start : start + _BLOCK]
            for word, of_place in enumerate(table):
                for of_byte, column in zip(of_place, columns, strict=True):
                    block[:, word] ^= of_byte[column]
        return parity.view(np.uint8)[:, : self.parity_bytes]

    def check(self, data: Bytes, parity: Bytes) -> NDArray[np.bool_]:
        """Whether every segment is a codeword, that is, its syndrome is zero.

        Parameters
        ----------
        data, parity : ndarray of uint8, shapes (k, segment_bytes) and (k, parity_bytes)

        Returns
        -------
        ndarray of bool, shape (k,)

        Raises
        ------
        InputError
            As `encode`.
        """
        self._require("parity", parity, self.parity_bytes)
        difference = (self.encode(data) ^ parity) & self._stored
        return np.asarray(~difference.any(axis=1))

    def correct(self, data: Bytes, parity: Bytes) -> Corrected:
        """Correct every segment that is no codeword, as far as t bits go.

        Returns
        -------
        Corrected
            Copies; segments beyond correction are as they were read.

        Raises
        ------
        InputError
            As `encode`.
        MissingExtraError
            If ``bchlib`` is not installed and a segment is faulty.
        """
        faulty = np.flatnonzero(~self.check(data, parity))
        fixed = Corrected(np.array(data), parity & self._stored, np.zeros(len(data), np.int8))
        # bchlib never lets go of what it is given, so it gets the same two buffers every time
        word, check = bytearray(self.segment_bytes), bytearray(self.parity_bytes)
        for i in faulty:
            codec = _codec(self.t, self.m)  # made once; not at all where nothing is faulty
            word[:], check[:] = fixed.data[i].tobytes(), fixed.parity[i].tobytes()
            if codec.decode(data=word, recv_ecc=check) < 0:
                fixed.verdict[i] = DETECTED
                continue
            codec.correct(word, check)
            fixed.verdict[i] = CORRECTED
            fixed.data[i] = np.frombuffer(word, np.uint8)
            fixed.parity[i] = np.frombuffer(check, np.uint8)
        return fixed

    @property
    def _stored(self) -> Bytes:
        """Mask of the parity bits in their bytes."""
        return np.packbits(np.arange(8 * self.parity_bytes) < self.parity_bits)

    def _require(self, what: str, found: Bytes, size: int) -> None:
        if found.ndim != 2 or found.shape[1] != size or found.dtype != np.uint8:
            raise InputError(
                f"code {self.name}: {what}: found {found.dtype} of shape {found.shape}, "
                f"allowed: uint8 of shape (segments, {size})"
            )


# ---------------------------------------------------------------- which code


def make_code(name: CodeName, segment_bytes: int = 32, correctable: int = 4) -> Code:
    """The shortest code of a segment.

    Parameters
    ----------
    name : {"bch", "hamming", "none"}
    segment_bytes : int
    correctable : int
        Bits that ``bch`` corrects (t); ``hamming`` corrects one.

    Returns
    -------
    Code
        Over the smallest GF(2^m) with 2^m - 1 bits or more for data and parity: 36 parity
        bits for t = 4 and 32 B (m = 9).

    Raises
    ------
    InputError
        For an unknown name, or if no field up to GF(2^15) holds such a code.
    """
    if name not in get_args(CodeName):
        raise InputError(f"code: {unknown_value(name, get_args(CodeName))}")
    if segment_bytes < 1 or (name == "bch" and correctable < 1):
        raise InputError(
            f"code {name}: found segment_bytes = {segment_bytes}, correctable = {correctable}, "
            "allowed: 1 and more"
        )
    if name == "none":
        return Code(name, segment_bytes, t=0, m=0)
    t = correctable if name == "bch" else 1
    for m in _DEGREES:
        # The codec wants m t parity bits: where cosets are shorter, the next field.
        parity = _parity_bits(m, t)
        if parity == m * t and 8 * segment_bytes + parity <= 2**m - 1:
            return Code(name, segment_bytes, t, m)
    raise InputError(
        f"code {name}: segment_bytes = {segment_bytes} with correctable = {t}: "
        f"allowed: {2 ** _DEGREES[-1] - 1} bits of data and parity at most"
    )


def code_sizes(config: EngineFields) -> xr.Dataset:
    """Sizes of the configured codes, over the axes among code, segment_bytes and correctable.

    Returns
    -------
    xarray.Dataset
        ``data_bits``, ``parity_bits``, their sum ``n``, and ``t``.

    Raises
    ------
    InputError
        As `make_code`.
    """
    fields = ("code", "segment_bytes", "correctable")
    axes = {name: list(values) for name, values in config.axes.items() if name in fields}
    sizes = {
        name: xr.DataArray(
            np.zeros([len(values) for values in axes.values()], int), coords=axes, dims=list(axes)
        )
        for name in ("data_bits", "parity_bits", "n", "t")
    }
    for index, point in config.points(fields):
        code = make_code(*(getattr(point, field) for field in fields))
        for name, array in sizes.items():
            array[index] = getattr(code, name)
    return xr.Dataset(sizes)


@cache
def _parity_bits(m: int, t: int) -> int:
    """Degree of the generator: its roots are alpha^1 to alpha^2t and their conjugates."""
    order = 2**m - 1
    return len({i * 2**j % order for i in range(1, 2 * t, 2) for j in range(m)})


@cache
def _codec(t: int, m: int) -> Any:
    try:
        from bchlib import BCH
    except ImportError:
        raise MissingExtraError("error correction", "bchlib", "ecc") from None
    return BCH(t, m=m)


@cache
def _parity_table(code: Code) -> NDArray[np.uint64]:
    """Parity that each byte value adds at each place, shape (words, segment_bytes, 256)."""
    words = -(-code.parity_bytes // 8)
    if not words:
        return np.zeros((0, code.segment_bytes, 256), np.uint64)
    codec = _codec(code.t, code.m)
    unit = np.packbits(np.eye(code.data_bits, dtype=np.uint8), axis=1)
    parity = np.zeros((code.data_bits, 8 * words), np.uint8)
    for row, data in zip(parity, unit, strict=True):
        row[: code.parity_bytes] = np.frombuffer(codec.encode(data.tobytes()), np.uint8)
    of_bit = parity.view(np.uint64).reshape(code.segment_bytes, 8, words)
    table = np.zeros((words, code.segment_bytes, 256), np.uint64)
    for bit in range(8):
        has = (np.arange(256) >> (7 - bit) & 1).astype(bool)
        table[:, :, has] ^= of_bit[:, bit].T[:, :, np.newaxis]
    return table


# ---------------------------------------------------------------- what becomes of errors


def classify(corrected: Corrected, truth: Bytes) -> Outcomes:
    """Count what became of the segments, given the data that were stored.

    Parameters
    ----------
    corrected : Corrected
    truth : ndarray of uint8, shape (k, segment_bytes)
    """
    right = (corrected.data == truth).all(axis=1)
    clean, done = corrected.verdict == CLEAN, corrected.verdict == CORRECTED
    counts = (clean & right, done & right, corrected.verdict == DETECTED, done & ~right)
    return Outcomes(*(int(each.sum()) for each in (*counts, clean & ~right)))


def flip(code: Code, data: Bytes, parity: Bytes, flips: NDArray[np.int64]) -> None:
    """Flip bits of codewords in place.

    Parameters
    ----------
    code : Code
    data, parity : ndarray of uint8, shapes (k, segment_bytes) and (k, parity_bytes)
    flips : ndarray of int
        Numbers of the bits, code.n a segment: its data, then its parity.
    """
    segment, bit = np.divmod(flips, code.n)
    in_data = bit < code.data_bits
    for target, where, place in (
        (data, segment[in_data], bit[in_data]),
        (parity, segment[~in_data], bit[~in_data] - code.data_bits),
    ):
        np.bitwise_xor.at(target, (where, place >> 3), (0x80 >> (place & 7)).astype(np.uint8))


def simulate_errors(code: Code, rber: float, segments: int, seed: int) -> Outcomes:
    """Read `segments` codewords with independent bit errors, and correct them.

    A verdict depends on the error pattern alone, since the code is linear: codewords of
    zeros do for all data. Up to t errors are corrected by the code's distance, so that only
    patterns with more are decoded, and effort goes with the number of errors.

    Parameters
    ----------
    code : Code
    rber : float
        Raw bit error rate.
    segments : int
    seed : int

    Returns
    -------
    Outcomes

    Raises
    ------
    MissingExtraError
        If ``bchlib`` is not installed.
    """
    rng = np.random.default_rng(seed)
    total = Outcomes(0, 0, 0, 0, 0)
    for start in range(0, segments, _BATCH):
        count = min(_BATCH, segments - start)
        total += _outcomes(code, flipped_bits(count * code.n, rber, rng), count)
    return total


def _outcomes(code: Code, flips: NDArray[np.int64], segments: int) -> Outcomes:
    """What becomes of `segments` codewords of zeros with these bits flipped, increasing."""
    faulty, errors = np.unique(flips // code.n, return_counts=True)
    many = errors > code.t
    total = Outcomes(segments - len(faulty), int((~many).sum()), 0, 0, 0)
    row = np.repeat(np.arange(many.sum()), errors[many])
    place = row * code.n + flips[np.repeat(many, errors)] % code.n
    for first in range(0, int(many.sum()), _BLOCK):
        rows = min(_BLOCK, int(many.sum()) - first)
        data = np.zeros((rows, code.segment_bytes), np.uint8)
        parity = np.zeros((rows, code.parity_bytes), np.uint8)
        start, stop = np.searchsorted(row, (first, first + rows))
        flip(code, data, parity, place[start:stop] - first * code.n)
        total += classify(code.correct(data, parity), np.zeros_like(data))
    return total


# ---------------------------------------------------------------- closed forms


def segment_error_rate(rber: xr.DataArray | float, n: xr.DataArray | int) -> xr.DataArray:
    """Probability that a segment has a bit error, 1 - (1 - rber)^n.

    Parameters
    ----------
    rber : DataArray or float
        Raw bit error rate, of independent errors.
    n : DataArray or int
        Bits of a codeword.
    """
    return uncorrectable_rate(rber, n, 0)


def uncorrectable_rate(
    rber: xr.DataArray | float, n: xr.DataArray | int, t: xr.DataArray | int
) -> xr.DataArray:
    """Probability that a segment has more than t bit errors.

    The tail of the binomial distribution as the regularised incomplete beta function,
    I_rber(t + 1, n - t), which stays exact however small it is.

    Parameters
    ----------
    rber : DataArray or float
    n, t : DataArray or int
        Bits of a codeword, and those that are corrected.

    Returns
    -------
    xarray.DataArray
        Over the dims of the arguments; 0 where t >= n.
    """
    size, more, rate = xr.DataArray(n), xr.DataArray(t), xr.DataArray(rber)
    inside = more < size
    tail: xr.DataArray = xr.apply_ufunc(betainc, more + 1.0, (size - more).where(inside, 1), rate)
    return tail.where(inside, 0.0)
