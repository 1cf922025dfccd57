"""Gray-coded pages: which bit of a level belongs to which page, and where a page is read.

A cell with b bits has 2**b threshold levels, 0 the erased one, and 2**b - 1 read levels:
read level L lies between the levels L - 1 and L. A cell conducts at L if its level is
below L. At every read level exactly one page's bit flips (Gray's property), so a page is
read by sensing at its own read levels only.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.wording import unknown_value

__all__ = [
    "CODINGS",
    "Coding",
    "coding_name",
    "data_bits",
    "level_bits",
    "page_names",
    "page_of_read_level",
    "read_levels",
    "retry_offsets",
]

#: ``reflected``: the binary-reflected Gray code, pages of 1, 2, 4 and 8 senses.
#: ``balanced``: pages of nearly the same number of senses, 2-3-2 and 4-4-3-4.
Coding = Literal["reflected", "balanced"]

CODINGS: tuple[Coding, ...] = get_args(Coding)

#: Pages in the order in which they are numbered, for 1 to 4 bits a cell.
_PAGES = {
    1: ("lower",),
    2: ("lower", "upper"),
    3: ("lower", "middle", "upper"),
    4: ("lower", "middle", "upper", "top"),
}

#: Page whose bit flips at each read level. With one or two bits there is no other Gray code
#: but for the names of the pages. 2-3-2 is the usual one of TLC. Of the Gray codes with
#: 4-4-3-4 senses this one spreads the read levels of each page most evenly (smallest sum
#: of squared distances, then the first in lexical order): vendors do not publish theirs.
_BALANCED = {
    1: (0,),
    2: (1, 0, 1),
    3: (0, 1, 2, 1, 0, 1, 2),
    4: (0, 1, 0, 2, 3, 2, 1, 0, 1, 2, 3, 1, 3, 0, 3),
}


def page_of_read_level(bits: int, coding: Coding = "balanced") -> NDArray[np.int64]:
    """Number of the page whose bit flips at each read level, shape (2**bits - 1,).

    Raises
    ------
    InputError
        For bits other than 1 to 4, or an unknown coding.
    """
    if bits not in _PAGES:
        raise InputError(f"bits: found {bits!r}, allowed: 1, 2, 3, 4")
    if coding not in CODINGS:
        raise InputError(f"coding: {unknown_value(coding, CODINGS)}")
    if coding == "balanced":
        return np.array(_BALANCED[bits])
    levels = np.arange(1, 2**bits)
    trailing_zeros = np.log2(levels & -levels).astype(np.int64)
    return bits - 1 - trailing_zeros


def page_names(bits: int) -> tuple[str, ...]:
    """Names of the pages, page 0 first."""
    if bits not in _PAGES:
        raise InputError(f"bits: found {bits!r}, allowed: 1, 2, 3, 4")
    return _PAGES[bits]


def coding_name(bits: int, coding: Coding = "balanced") -> str:
    """Senses of each page as they are commonly written: ``1-2-4-8``."""
    counts = np.bincount(page_of_read_level(bits, coding), minlength=bits)
    return "-".join(map(str, counts))


def read_levels(bits: int, page: int, coding: Coding = "balanced") -> NDArray[np.int64]:
    """Read levels of a page, increasing.

    Raises
    ------
    InputError
        For a page that the cell does not have.
    """
    flips = page_of_read_level(bits, coding)
    if not 0 <= page < bits:
        raise InputError(f"page: found {page}, allowed with {bits} bits a cell: 0 to {bits - 1}")
    return np.flatnonzero(flips == page) + 1


def level_bits(bits: int, coding: Coding = "balanced") -> NDArray[np.int8]:
    """Bit of every page at every level, shape (2**bits, bits); the erased level is all ones."""
    flipped = page_of_read_level(bits, coding)[:, np.newaxis] == np.arange(bits)
    flips = np.concatenate([np.zeros((1, bits), int), np.cumsum(flipped, axis=0)])
    return ((flips + 1) % 2).astype(np.int8)


def data_bits(conducts: ArrayLike, bits: int, coding: Coding = "balanced") -> NDArray[np.int8]:
    """Page bits from what was sensed: a page flips once for each read level that blocks.

    Parameters
    ----------
    conducts : array_like of 0 and 1, shape (..., 2**bits - 1)
        Sensed at the read levels 1, 2, ...; read errors may make it non-monotonic.
    bits : int
    coding : Coding

    Returns
    -------
    ndarray of int8, shape (..., bits)
    """
    member = page_of_read_level(bits, coding)[:, np.newaxis] == np.arange(bits)
    blocked = 1 - np.asarray(conducts, dtype=np.int64)
    return np.asarray((1 + blocked @ member) % 2, dtype=np.int8)


def retry_offsets(bits: int, retry: ArrayLike, step: float) -> NDArray[np.float64]:
    """The retry table: offset of every read level in level spacings.

    Lost charge is proportional to stored charge, so each retry lowers the read levels in
    proportion to their place: the top level's own place by `step`, the erased level's by 0.

    Parameters
    ----------
    bits : int
    retry : array_like of int
        Number of the retry; 0 is the default read.
    step : float
        Level spacings a retry at the top level.

    Returns
    -------
    ndarray, shape (..., 2**bits - 1)
    """
    place = (np.arange(1, 2**bits) - 0.5) / (2**bits - 1)
    return np.asarray(-step * np.asarray(retry, float)[..., np.newaxis] * place)
