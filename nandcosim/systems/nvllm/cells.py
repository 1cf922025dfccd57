"""Weights as flash cells: the level that each bit belongs to, and what a page read finds.

The pages of a wordline share its cells: bit i of each page is in cell i, and the bits of
all its pages make the cell's level by the Gray code (`nandcosim.page_coding`). In level
spacings, a cell of level r has the threshold

    r + shift(r) + sigma(r) z,

and conducts at read level L if that lies below L - 1/2 + retry offset - location - spread y,
with z and y standard normal, and location and spread of the table `page_read`. What y stands
for, the sense amplifier's mismatch and the other cells' data, is the same for all the senses
of a page, so it is drawn once a read. A page's bit flips once for each of its read levels
that blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.page_coding import Coding, level_bits, read_levels, retry_offsets
from nandcosim.systems.nvllm.hardware import ErrorFields
from nandcosim.systems.nvllm.rber import stored_levels
from nandcosim.tables.table import CalibrationTable

__all__ = [
    "CellRead",
    "Levels",
    "PageSenses",
    "WeightCells",
    "cell_levels",
    "cell_thresholds",
    "randomised",
    "read_cells",
]

#: Levels of cells, shape (...).
Levels = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

TABLE = "page_read"

#: Streams of random numbers of one seed.
_THRESHOLDS, _READ_NOISE, _KEYSTREAM, _PADDING = range(0xCE11, 0xCE15)


@dataclass(frozen=True, eq=False)
class CellRead:
    """What a page read found, each array of the cells' shape.

    Attributes
    ----------
    bits : int8 array
        As read.
    margins : float array
        Nearest read level of the page less the cell's threshold, in level spacings; the
        cell conducts there if it exceeds the location and spread of the decision.
    errors : bool array
        Bits that are not what was stored.
    """

    bits: NDArray[np.int8]
    margins: Floats
    errors: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PageSenses:
    """The senses of one page of a cell.

    Attributes
    ----------
    bits : int
        Bits a cell.
    page : int
    coding : {"balanced", "reflected"}
    levels : int array (senses,)
        Read levels, increasing.
    places : float array (senses,)
        Threshold below which a cell conducts in an ideal sense, in level spacings.
    location, spread : float
        Of a sense's decision, in level spacings.
    """

    bits: int
    page: int
    coding: Coding
    levels: NDArray[np.int64]
    places: Floats
    location: float
    spread: float

    @classmethod
    def of(cls, page: int, config: ErrorFields, tables: Mapping[str, CalibrationTable]) -> Self:
        """Page 0, 1, ... (lower, middle, ...) as the configuration reads it.

        Raises
        ------
        InputError
            If a field is an axis, the cell has no such page, or the table is missing.
        """
        bits, coding = int(_value(config, "cell_bits")), _value(config, "coding")
        levels = read_levels(bits, page, coding)
        table = _table(tables)
        offsets = retry_offsets(bits, _value(config, "retry"), _retry_step(table))
        location, spread = (
            float(table.lookup(name, bits=bits)) for name in ("pass_location", "pass_spread")
        )
        places = levels - 0.5 + offsets[levels - 1]
        return cls(bits, page, coding, levels, places, location, spread)

    def stored(self, levels: ArrayLike) -> NDArray[np.int8]:
        """The bit that a cell of each level holds."""
        return np.asarray(level_bits(self.bits, self.coding)[np.asarray(levels), self.page])

    def margins(self, thresholds: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
        """Signed distance to the nearest read level, and which of the page's that is."""
        distance = self.places - np.asarray(thresholds, dtype=float)[..., np.newaxis]
        nearest = np.abs(distance).argmin(axis=-1)
        margin = np.take_along_axis(distance, nearest[..., np.newaxis], axis=-1)[..., 0]
        return margin, nearest

    def sensed(self, thresholds: ArrayLike) -> NDArray[np.int8]:
        """The bit read from cells of these thresholds, the read's own noise included."""
        blocked = np.searchsorted(self.places - self.location, thresholds, side="right")
        return np.asarray((1 + blocked) % 2, dtype=np.int8)


@dataclass(frozen=True, eq=False)
class WeightCells:
    """Bytes written page after page into blocks, and the levels that their cells have.

    Page k of the run is page k mod bits of wordline k div bits, the wordlines being filled
    from the bitline's side, block after block. Bit i of byte j is on bitline 8 j + i. What
    the last block has left is random, as a chip fills it up.

    Attributes
    ----------
    pages : uint8 array (blocks, wordlines, bits, page_bytes)
    size : int
        Bytes of the weights; the rest is filling.
    coding : {"balanced", "reflected"}
    """

    pages: Bytes
    size: int
    coding: Coding

    @classmethod
    def of(
        cls,
        weights: ArrayLike,
        bits: int,
        coding: Coding = "balanced",
        *,
        page_bytes: int = 16_384,
        wordlines: int = 128,
        seed: int = 0,
        randomise: bool = True,
    ) -> Self:
        """Lay out weights of one byte each.

        Parameters
        ----------
        weights : array_like of uint8 or int8, or bytes
        bits : int
            Bits a cell.
        coding : {"balanced", "reflected"}
        page_bytes, wordlines : int
        seed : int
            Of the filling and of the chip's randomiser.
        randomise : bool
            Whether the chip stores the bytes XORed with a pseudo-random sequence.

        Raises
        ------
        InputError
            If there are none, or they are no bytes.
        """
        data = _as_bytes(weights)
        block = wordlines * bits * page_bytes
        filling = np.random.default_rng([seed, _PADDING]).bytes(-data.size % block)
        whole = np.concatenate([data, np.frombuffer(filling, np.uint8)])
        if randomise:
            whole = randomised(whole, seed)
        return cls(whole.reshape(-1, wordlines, bits, page_bytes), data.size, coding)

    @property
    def bits(self) -> int:
        """Bits a cell."""
        return int(self.pages.shape[2])

    @property
    def wordlines(self) -> int:
        """Cells of a string."""
        return int(self.pages.shape[1])

    def place(self, number: ArrayLike) -> tuple[Levels, Levels, Levels, Levels]:
        """Block, wordline, page and bitline of bits of the weights, counted from 0."""
        byte, bit = np.divmod(np.asarray(number, dtype=np.int64), 8)
        page, column = np.divmod(byte, self.pages.shape[3])
        line, page = np.divmod(page, self.bits)
        block, wordline = np.divmod(line, self.wordlines)
        return block, wordline, page, 8 * column + bit

    def levels(self, block: ArrayLike, wordline: ArrayLike, bitline: ArrayLike) -> Levels:
        """Levels of cells, broadcast."""
        column, bit = np.divmod(np.asarray(bitline), 8)
        index = np.broadcast_arrays(block, wordline, column)
        held = self.pages[index[0], index[1], :, index[2]]  # (..., bits)
        return _levels((held >> np.asarray(bit)[..., np.newaxis]) & 1, self.bits, self.coding)

    def strings(self, block: ArrayLike, bitline: ArrayLike) -> Levels:
        """Levels of all cells of n strings, shape (n, wordlines), the bitline's side first."""
        every = np.arange(self.wordlines)
        return self.levels(
            np.asarray(block)[:, np.newaxis], every, np.asarray(bitline)[:, np.newaxis]
        )


def cell_levels(pages: ArrayLike, coding: Coding = "balanced") -> Levels:
    """Levels of the cells of a wordline.

    Parameters
    ----------
    pages : array_like of uint8, shape (bits, bytes)
        Its pages, page 0 first; the lowest bit of a byte comes first.
    coding : {"balanced", "reflected"}

    Returns
    -------
    int64 array (8 * bytes,)
    """
    held = np.unpackbits(np.asarray(pages, dtype=np.uint8), axis=-1, bitorder="little")
    return _levels(held.T, held.shape[0], coding)


def cell_thresholds(levels: ArrayLike, config: ErrorFields, rng: np.random.Generator) -> Floats:
    """Thresholds of cells of these levels, drawn from their distributions, in level spacings.

    The distributions are those of `nandcosim.systems.nvllm.rber.stored_levels`.
    """
    level = np.asarray(levels)
    for name in ErrorFields.model_fields:
        _value(config, name)  # refuses an axis
    shift, sigma = (each.values for each in stored_levels(config, int(_value(config, "cell_bits"))))
    return np.asarray(level + shift[level] + sigma[level] * rng.standard_normal(level.shape))


def read_cells(
    levels: ArrayLike,
    page: int,
    config: ErrorFields,
    tables: Mapping[str, CalibrationTable],
    seed: int = 0,
) -> CellRead:
    """Read one page of cells.

    Parameters
    ----------
    levels : array_like of int, any shape
        As stored, 0 the erased one.
    page : int
        0 lower, then middle, upper, top.
    config : ErrorFields
        ``cell_bits``, ``coding``, ``sigma``, ``shift`` and ``retry``, none of them an axis.
    tables : Mapping of str to CalibrationTable
        With ``page_read``.
    seed : int
        Of the thresholds and of the read noise, which are independent of each other: the
        thresholds are the same in reads of other pages.

    Returns
    -------
    CellRead

    Raises
    ------
    InputError
        If a field is an axis, a level or page is none of the cell, or the table is missing.
    """
    senses = PageSenses.of(page, config, tables)
    stored = np.asarray(levels)
    if stored.size and not (stored.min() >= 0 and stored.max() < 2**senses.bits):
        raise InputError(
            f"levels: found {stored.min()} to {stored.max()}, allowed with {senses.bits} bits a "
            f"cell: 0 to {2**senses.bits - 1}"
        )
    threshold = cell_thresholds(stored, config, np.random.default_rng([seed, _THRESHOLDS]))
    noise = np.random.default_rng([seed, page, _READ_NOISE]).standard_normal(stored.shape)
    margins, _ = senses.margins(threshold)
    bits = senses.sensed(threshold + senses.spread * noise)
    return CellRead(bits, margins, bits != senses.stored(stored))


def randomised(data: Bytes, seed: int) -> Bytes:
    """The bytes XORed with a pseudo-random sequence; twice gives them back.

    Flash controllers do this so that the levels of a string are alike often, whatever is
    stored.
    """
    sequence = np.random.default_rng([seed, _KEYSTREAM]).integers(
        0, 256, data.shape, dtype=np.uint8
    )
    return np.bitwise_xor(data, sequence)


def _levels(held: NDArray[np.uint8], bits: int, coding: Coding) -> Levels:
    """Levels of cells whose pages hold these bits, (..., bits) -> (...)."""
    power = 1 << np.arange(bits)
    level_of = np.empty(2**bits, dtype=np.int64)
    level_of[level_bits(bits, coding) @ power] = np.arange(2**bits)
    return np.asarray(level_of[held @ power])


def _as_bytes(weights: Any) -> Bytes:
    if isinstance(weights, (bytes, bytearray, memoryview)):
        weights = np.frombuffer(weights, np.uint8)
    data = np.asarray(weights)
    if data.dtype not in (np.uint8, np.int8) or not data.size:
        raise InputError(
            f"weights: found {data.size} of type {data.dtype}, allowed: one or more of uint8 or "
            "int8"
        )
    return np.ascontiguousarray(data).view(np.uint8).ravel()


def _value(config: ErrorFields, name: str) -> Any:
    value = getattr(config, name)
    if isinstance(value, tuple):
        listed = ", ".join(map(str, value))
        raise InputError(f"cells: {name} = {listed}, allowed: one value (cells, not a study)")
    return value


def _table(tables: Mapping[str, CalibrationTable]) -> CalibrationTable:
    if TABLE not in tables:
        known = ", ".join(tables) or "none"
        raise InputError(f"cells: need the table {TABLE!r}; loaded: {known}")
    return tables[TABLE]


def _retry_step(table: CalibrationTable) -> float:
    """Level spacings a retry at the top level, as in the sweep behind the table."""
    settings = json.loads(table.dataset.attrs["spec"]).get("parameters", {})
    recorded = json.loads(table.dataset.attrs["circuit_parameters"])
    return float({**recorded, **settings}["retry_step"])
