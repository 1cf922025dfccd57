"""Bits that a run reads from its pages, and what the table-driven model says of each.

A run reads every bit of its weights, so a bit of the weights stands for one read. Its cell
has the threshold that the model draws, and is sensed at the read levels of its page; the
nearest of them decides (`nandcosim.systems.nvllm.cells`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from nandcosim.systems.nvllm.cells import PageSenses, WeightCells, cell_thresholds
from nandcosim.systems.nvllm.hardware import ErrorFields

__all__ = ["EDGES", "FIRST", "LATER", "BitReads", "draw_reads", "edges", "is_near"]

#: The nearest read level is the page's first one, or comes after one that blocked.
FIRST, LATER = 1, 2

#: Bins of the clearance that are sampled apart (upper edge included), in level spacings of
#: four bits a cell.
EDGES = (-0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
_EDGES_BITS = 4

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BitReads:
    """Some reads of a run, each array of shape (n,); distances in level spacings.

    Attributes
    ----------
    block, wordline, page, bitline : int64 array
        Where the bit is; wordlines are counted from the bitline's side.
    level : int64 array
        Of the cell.
    stored : int8 array
        The bit.
    threshold : float array
        Of the cell.
    read_level : int64 array
        Read level of the page that is nearest to the threshold.
    turn : int64 array
        `FIRST` or `LATER` of the page's senses.
    excess : float array
        Read level less threshold and location: what decides but for the read noise.
    clearance : float array
        The same towards the cell's own side: negative where the model errs.
    score : float array
        Read noise over its standard deviation, as the model draws it.
    chance : float array
        Probability that the cell conducts, over the read noise.
    ideal, noisy : bool array
        Whether it conducts without read noise, and with that drawn.
    ideal_bit, noisy_bit : int8 array
        The page's bit then.
    """

    block: Ints
    wordline: Ints
    page: Ints
    bitline: Ints
    level: Ints
    stored: NDArray[np.int8]
    threshold: Floats
    read_level: Ints
    turn: Ints
    excess: Floats
    clearance: Floats
    score: Floats
    chance: Floats
    ideal: NDArray[np.bool_]
    noisy: NDArray[np.bool_]
    ideal_bit: NDArray[np.int8]
    noisy_bit: NDArray[np.int8]

    def __len__(self) -> int:
        return int(self.level.size)

    def take(self, rows: Ints | NDArray[np.bool_]) -> BitReads:
        """Some of them."""
        return BitReads(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def draw_reads(
    cells: WeightCells,
    senses: Sequence[PageSenses],
    config: ErrorFields,
    count: int,
    rng: np.random.Generator,
) -> BitReads:
    """Reads of a run as they occur.

    Parameters
    ----------
    cells : WeightCells
    senses : sequence of PageSenses
        Of each page of the cell.
    config : ErrorFields
        Without axes.
    count : int
    rng : Generator
    """
    block, wordline, page, bitline = cells.place(rng.integers(0, 8 * cells.size, count))
    level = cells.levels(block, wordline, bitline)
    threshold = cell_thresholds(level, config, rng)
    score = rng.standard_normal(count)
    with_noise = threshold + senses[0].spread * score
    stored, ideal_bit, noisy_bit = (np.empty(count, dtype=np.int8) for _ in range(3))
    margin, nearest, read_level = np.empty(count), np.empty(count, int), np.empty(count, int)
    for number, each in enumerate(senses):
        rows = page == number
        margin[rows], nearest[rows] = each.margins(threshold[rows])
        read_level[rows] = each.levels[nearest[rows]]
        stored[rows] = each.stored(level[rows])
        ideal_bit[rows] = each.sensed(threshold[rows])
        noisy_bit[rows] = each.sensed(with_noise[rows])
    excess = margin - senses[0].location
    spread = senses[0].spread
    return BitReads(
        block=block,
        wordline=wordline,
        page=page,
        bitline=bitline,
        level=level,
        stored=stored,
        threshold=threshold,
        read_level=read_level,
        turn=np.where(nearest == 0, FIRST, LATER),
        excess=excess,
        clearance=np.where(level < read_level, excess, -excess),
        score=score,
        chance=ndtr(excess / spread),
        ideal=excess > 0,
        noisy=excess > spread * score,
        ideal_bit=ideal_bit,
        noisy_bit=noisy_bit,
    )


def edges(bits: int) -> Floats:
    """Edges of the bins in level spacings of a cell of so many bits.

    In volts at the gate they are the same for every cell, since what moves a decision is a
    voltage: the sense amplifier's mismatch, the other cells' resistance.
    """
    return np.array(EDGES) * 2.0 ** (bits - _EDGES_BITS)


def is_near(bins: Ints) -> NDArray[np.bool_]:
    """Whether a bin is near the decision: all but the two outermost on either side."""
    return np.asarray((bins >= 2) & (bins <= len(EDGES) - 2))
