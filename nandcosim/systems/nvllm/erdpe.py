"""The error-resilient dot product as a function: Algorithm 1 of NVLLM, and whole matrices.

Weights are bytes as a read returns them, with the parity of every segment. A segment whose
check is clean is multiplied at once; a faulty one is entered in the scoreboard, corrected and
multiplied afterwards. Two numerical formats (section 3.2): INT8 x INT8 summed in 32-bit integers,
where order does not matter, and BF16 x BF16 summed in FP32, where it does.

FP32 arithmetic here: a segment's products (exact in FP32) go through an adder tree of neighbours,
then the segment's sum is added to the accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.ecc import CLEAN, DETECTED, Code
from nandcosim.wording import unknown_value

__all__ = [
    "Accumulation", "Dot", "MatrixDot", "Number", "Uncorrectable", "bf16_to_float", "dot",
    "dot_matrix", "float_to_bf16",
]  # fmt: skip

#: Weights and activations: bytes as int8, or pairs of bytes (little-endian) as bfloat16.
Number = Literal["int8", "bf16"]
#: A segment that is known to be uncorrectable is multiplied as it was read, or left out.
Uncorrectable = Literal["keep", "drop"]
#: ``arrival``: clean segments, then those of the scoreboard (Algorithm 1). ``column``: committed
#: in the order of the column (section 3.3).
Accumulation = Literal["arrival", "column"]

#: Accumulators at zero.
_ZERO: dict[Number, Any] = {"int8": np.int32(0), "bf16": np.float32(0)}
#: Products of two int8, 2^14 at most in size, that a 32-bit accumulator takes for certain.
_MOST_INT8 = (2**31 - 1) // 2**14
#: Columns multiplied at once, which bounds memory.
_BLOCK = 256

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Dot:
    """Result of one column.

    Attributes
    ----------
    value : int or float
        The paper's s.
    scoreboard : tuple of int
        Weight index at which each faulty segment starts, the paper's B.
    verdicts : ndarray of int8, shape (segments,)
        See `ecc.Code.correct`.
    weights : ndarray of uint8, shape (bytes,)
        The weight vector after line 14 wrote the corrections back.
    """

    value: int | float
    scoreboard: tuple[int, ...]
    verdicts: NDArray[np.int8]
    weights: Bytes


@dataclass(frozen=True)
class MatrixDot:
    """Results of all columns of a matrix.

    Attributes
    ----------
    values : ndarray of int32 or float32, shape (columns,)
    verdicts : ndarray of int8, shape (columns, segments)
    weights : ndarray of uint8, shape (columns, bytes)
        After correction.
    """

    values: NDArray[Any]
    verdicts: NDArray[np.int8]
    weights: Bytes


def dot(
    weights: Bytes,
    parity: Bytes,
    activations: NDArray[Any],
    code: Code,
    *,
    number: Number = "int8",
    order: Accumulation = "arrival",
    uncorrectable: Uncorrectable = "keep",
) -> Dot:
    """Algorithm 1 (NVLLM section 3.2) for one weight vector, segment by segment.

    Parameters
    ----------
    weights : ndarray of uint8, shape (bytes,)
        As read; a whole number of segments.
    parity : ndarray of uint8, shape (segments, parity_bytes)
    activations : ndarray of int8, or of uint16 that hold bfloat16, shape (h,)
    code : Code
        L(n, d).
    number : {"int8", "bf16"}
    order : {"arrival", "column"}
    uncorrectable : {"keep", "drop"}

    Returns
    -------
    Dot

    Raises
    ------
    InputError
        For an unknown option, or arrays that do not fit each other.
    """
    step = _require(weights, parity, activations, code, number, order, uncorrectable)
    w = weights.reshape(-1, code.segment_bytes).copy()
    a = activations.reshape(-1, step)
    verdicts = np.zeros(len(w), np.int8)
    commits, board = [], []
    for i in range(len(w)):
        v = w[i : i + 1], parity[i : i + 1]
        if code.check(*v)[0]:  # line 9
            commits.append(i)  # line 10
        else:
            board.append(i)  # line 12
            corrected = code.correct(*v)  # line 13
            verdicts[i] = corrected.verdict[0]
            w[i] = corrected.data[0]  # line 14
    commits += board  # lines 18 to 23
    if order == "column":
        commits.sort()
    s = _ZERO[number]
    sums = _partial_sums(w[np.newaxis], a, number)[0]
    with np.errstate(all="ignore"):
        for i in commits:
            if verdicts[i] != DETECTED or uncorrectable == "keep":
                s = s + sums[i]
    return Dot(s.item(), tuple(i * step for i in board), verdicts, w.ravel())


def dot_matrix(
    weights: Bytes,
    parity: Bytes,
    activations: NDArray[Any],
    code: Code,
    *,
    number: Number = "int8",
    order: Accumulation = "arrival",
    uncorrectable: Uncorrectable = "keep",
) -> MatrixDot:
    """`dot` of every column of a matrix with the same activations, all at once.

    Parameters
    ----------
    weights : ndarray of uint8, shape (columns, bytes)
        As read; each row holds one weight column.
    parity : ndarray of uint8, shape (columns * segments, parity_bytes)
        Column by column, as `pages.read` returns it.
    activations, code, number, order, uncorrectable
        As for `dot`.

    Returns
    -------
    MatrixDot
        Bit by bit what `dot` gives column by column.

    Raises
    ------
    InputError
        As `dot`.
    """
    step = _require(weights, parity, activations, code, number, order, uncorrectable)
    corrected = code.correct(weights.reshape(-1, code.segment_bytes), parity)
    w = corrected.data.reshape(len(weights), -1, code.segment_bytes)
    verdicts = corrected.verdict.reshape(w.shape[:2])
    sums = np.empty(w.shape[:2], _ZERO[number].dtype)
    a = activations.reshape(-1, step)
    for first in range(0, len(w), _BLOCK):
        block = slice(first, first + _BLOCK)
        sums[block] = _partial_sums(w[block], a, number)
    if uncorrectable == "drop":
        sums[verdicts == DETECTED] = 0
    if order == "arrival":
        sums = np.take_along_axis(sums, np.argsort(verdicts != CLEAN, axis=1, kind="stable"), 1)
    values = np.full(len(w), _ZERO[number])
    with np.errstate(all="ignore"):
        for segment in sums.T:
            values += segment
    return MatrixDot(values, verdicts, corrected.data.reshape(weights.shape))


def float_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to bfloat16, to nearest and ties to even; a NaN stays one.

    Parameters
    ----------
    values : ndarray of float32

    Returns
    -------
    ndarray of uint16, the upper half of a float32's bits
    """
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + (bits >> 16 & 1))
    quiet = (bits | 0x400000) >> 16  # rounding could carry a NaN over to zero
    return np.where(np.isnan(values), quiet, rounded >> 16).astype(np.uint16)


def bf16_to_float(words: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Values of bfloat16 numbers, exactly.

    Parameters
    ----------
    words : ndarray of uint16

    Returns
    -------
    ndarray of float32
    """
    return (np.asarray(words, np.uint16).astype(np.uint32) << 16).view(np.float32)


# ---------------------------------------------------------------- helpers


def _partial_sums(w: Bytes, a: NDArray[Any], number: Number) -> NDArray[Any]:
    """Sum of every segment: weights (columns, segments, bytes), activations (segments, values)."""
    if number == "int8":
        sums: NDArray[np.int32] = np.einsum("csd,sd->cs", w.view(np.int8), a, dtype=np.int32)
        return sums
    # A wrong exponent bit may make an infinity, which is then the result.
    with np.errstate(all="ignore"):
        products = bf16_to_float(w.view("<u2")) * bf16_to_float(a)
        return _tree_sum(products)


def _tree_sum(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum over the last axis, neighbours first."""
    while values.shape[-1] > 1:
        odd = values.shape[-1] % 2
        pairs = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, odd)])
        values = pairs[..., ::2] + pairs[..., 1::2]
    return values[..., 0]


def _require(
    weights: Bytes,
    parity: Bytes,
    activations: NDArray[Any],
    code: Code,
    number: Number,
    order: Accumulation,
    uncorrectable: Uncorrectable,
) -> int:
    """Refuse what does not fit; the number of weights of a segment."""
    for name, found, allowed in (
        ("number", number, get_args(Number)),
        ("order", order, get_args(Accumulation)),
        ("uncorrectable", uncorrectable, get_args(Uncorrectable)),
    ):
        if found not in allowed:
            raise InputError(f"dot product: {name}: {unknown_value(found, allowed)}")
    width = 1 if number == "int8" else 2
    length = weights.shape[-1]
    if length % code.segment_bytes or code.segment_bytes % width:
        raise InputError(
            f"dot product: weights: found {length} bytes in segments of {code.segment_bytes}, "
            f"allowed: whole segments of whole {number} numbers"
        )
    wanted = np.dtype(np.int8 if number == "int8" else np.uint16)
    if activations.dtype != wanted or activations.shape != (length // width,):
        raise InputError(
            f"dot product: activations: found {activations.dtype} of shape {activations.shape}, "
            f"allowed: {wanted} of shape ({length // width},)"
        )
    if number == "int8" and length > _MOST_INT8:
        raise InputError(
            f"dot product: weights: found {length} a column, allowed with a 32-bit accumulator: "
            f"up to {_MOST_INT8}"
        )
    if parity.shape != (weights.size // code.segment_bytes, code.parity_bytes):
        raise InputError(
            f"dot product: parity: found shape {parity.shape}, allowed: "
            f"({weights.size // code.segment_bytes}, {code.parity_bytes})"
        )
    return code.segment_bytes // width
