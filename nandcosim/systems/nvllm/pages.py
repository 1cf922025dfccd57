"""Weights as codewords on pages: where a segment lies, and what a read of it returns.

Weight bytes are cut into segments, each with its parity, and laid one after the other on
pages. Successive pages go to the planes of a cluster, which return theirs at once, then to
the next cluster (NVLLM sections 3.1 and 3.4: contiguous across plane clusters), then to the
next page address of all planes. Page addresses take the pages of a cell in turn (lower,
middle, upper, top), as the wordlines of a block are programmed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.page_coding import page_names
from nandcosim.systems.nvllm.ecc import Code, flip, make_code
from nandcosim.systems.nvllm.hardware import HardwareFields, Spare
from nandcosim.systems.nvllm.rber import flipped_bits

__all__ = ["PageLayout", "Place", "RawSegments", "StoredPages", "layout", "read", "store"]

Bytes = NDArray[np.uint8]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where segments lie; every array has the shape of the segment numbers asked for.

    Attributes
    ----------
    cluster, plane : ndarray of int
        The plane counts within its cluster.
    address : ndarray of int
        Number of the page in its plane.
    page_type : ndarray of int
        Page of a cell: 0 lower, ...
    first_bit : ndarray of int
        Where the segment starts in its page.
    """

    cluster: Whole
    plane: Whole
    address: Whole
    page_type: Whole
    first_bit: Whole


@dataclass(frozen=True)
class PageLayout:
    """How segments are dealt to pages.

    Attributes
    ----------
    code : Code
        Of one segment.
    page_bytes : int
        Of the main area.
    parity_place : {"page", "spare"}
        Parity follows its segment in the page, or lies in the page's spare area.
    clusters, planes_per_cluster : int
    page_types : tuple of str
        Pages of a cell, lower first.
    """

    code: Code
    page_bytes: int
    parity_place: Spare
    clusters: int
    planes_per_cluster: int
    page_types: tuple[str, ...]

    @property
    def segment_bits(self) -> int:
        """Bits of the main area that a segment takes."""
        return self.code.n if self.parity_place == "page" else self.code.data_bits

    @property
    def segments_per_page(self) -> int:
        """Whole segments on a page; none is split between two."""
        return 8 * self.page_bytes // self.segment_bits

    @property
    def spare_bits(self) -> int:
        """Bits of a page's spare area that parity takes."""
        in_page = self.parity_place == "page"
        return 0 if in_page else self.segments_per_page * self.code.parity_bits

    @property
    def data_share(self) -> float:
        """Share of the main area that is weights."""
        return self.segments_per_page * self.code.segment_bytes / self.page_bytes

    def place(self, segment: ArrayLike) -> Place:
        """Where segments lie.

        Parameters
        ----------
        segment : array_like of int
            Numbers of segments, in the order of the weights.
        """
        number = np.asarray(segment, np.int64)
        page, slot = np.divmod(number, self.segments_per_page)
        row, plane = np.divmod(page, self.planes_per_cluster)
        address, cluster = np.divmod(row, self.clusters)
        return Place(
            cluster, plane, address, address % len(self.page_types), slot * self.segment_bits
        )

    def of_type(self, page_type: int, segments: int) -> Whole:
        """Numbers of the first `segments` segments that lie on pages of a type, increasing."""
        stripe = self.segments_per_page * self.planes_per_cluster * self.clusters
        first = np.arange(page_type * stripe, segments, len(self.page_types) * stripe)
        numbers = (first[:, np.newaxis] + np.arange(stripe)).ravel()
        return numbers[numbers < segments]


@dataclass(frozen=True)
class StoredPages:
    """Weights as they are programmed.

    Attributes
    ----------
    layout : PageLayout
    data : ndarray of uint8, shape (segments, segment_bytes)
        The last segment is filled with zeros.
    parity : ndarray of uint8, shape (segments, parity_bytes)
    size : int
        Bytes of weights.
    """

    layout: PageLayout
    data: Bytes
    parity: Bytes
    size: int

    @property
    def pages(self) -> int:
        """Pages that are programmed."""
        return -(-len(self.data) // self.layout.segments_per_page)


@dataclass(frozen=True)
class RawSegments:
    """Codewords as a read returns them, bit errors included.

    Attributes
    ----------
    data : ndarray of uint8, shape (segments, segment_bytes)
    parity : ndarray of uint8, shape (segments, parity_bytes)
    size : int
        Bytes of weights.
    flips : int
        Bits that were read wrong.
    """

    data: Bytes
    parity: Bytes
    size: int
    flips: int

    @property
    def weights(self) -> Bytes:
        """The weight bytes as read, shape (size,)."""
        return self.data.ravel()[: self.size]


def layout(config: HardwareFields) -> PageLayout:
    """The layout of one configuration without axes.

    Raises
    ------
    InputError
        If a field that matters here is an axis, no code fits, or a page has no room for
        a segment.
    """
    needed = (
        "code", "segment_bytes", "correctable", "page_bytes", "parity_place", "clusters",
        "planes_per_cluster", "cell_bits",
    )  # fmt: skip
    values: dict[str, Any] = {name: getattr(config, name) for name in needed}
    for name, value in values.items():
        if isinstance(value, tuple):
            raise InputError(f"page layout: {name}: found {len(value)} values, allowed: one")
    dealt = PageLayout(
        make_code(values["code"], values["segment_bytes"], values["correctable"]),
        values["page_bytes"],
        values["parity_place"],
        values["clusters"],
        values["planes_per_cluster"],
        page_names(values["cell_bits"]),
    )
    if dealt.segments_per_page < 1:
        raise InputError(
            f"page layout: page_bytes = {dealt.page_bytes}, allowed: "
            f"{-(-dealt.segment_bits // 8)} or more, one segment"
        )
    return dealt


def store(weights: NDArray[np.uint8] | NDArray[np.int8], layout: PageLayout) -> StoredPages:
    """Cut weight bytes into segments and add their parity.

    Parameters
    ----------
    weights : ndarray of one-byte integers, any shape
        Of wider weights, their bytes: ``array.view(numpy.uint8)``.
    layout : PageLayout

    Raises
    ------
    InputError
        If the weights are no bytes.
    MissingExtraError
        If ``bchlib`` is not installed and the layout has a code.
    """
    if weights.dtype.kind not in "iu" or weights.dtype.itemsize != 1:
        raise InputError(f"weights: found {weights.dtype}, allowed: bytes (uint8, int8)")
    flat = np.ascontiguousarray(weights).ravel().view(np.uint8)
    size = layout.code.segment_bytes
    data = np.pad(flat, (0, -len(flat) % size)).reshape(-1, size)
    return StoredPages(layout, data, layout.code.encode(data), len(flat))


def read(stored: StoredPages, rates: xr.DataArray | float, seed: int) -> RawSegments:
    """Read all pages once, every bit wrong with the probability of its page's type.

    Parameters
    ----------
    stored : StoredPages
    rates : DataArray over ``page``, or float
        Raw bit error rates, as `rber.page_error_rates` has them; a float for all pages.
    seed : int
        The same seed gives the same errors.

    Returns
    -------
    RawSegments

    Raises
    ------
    InputError
        If a page of the cell has no rate, or the rates have axes beside ``page``.
    """
    rng = np.random.default_rng(seed)
    data, parity = stored.data.copy(), stored.parity.copy()
    code, count = stored.layout.code, 0
    for number, rate in enumerate(_rates(rates, stored.layout.page_types)):
        segments = stored.layout.of_type(number, len(data))
        among, bit = np.divmod(flipped_bits(len(segments) * code.n, rate, rng), code.n)
        flip(code, data, parity, segments[among] * code.n + bit)
        count += len(bit)
    return RawSegments(data, parity, stored.size, count)


def _rates(rates: xr.DataArray | float, page_types: tuple[str, ...]) -> list[float]:
    if not isinstance(rates, xr.DataArray):
        return [float(rates)] * len(page_types)
    if rates.dims != ("page",):
        found: tuple[Hashable, ...] = rates.dims
        raise InputError(f"page error rates: found dims {found}, allowed: ('page',)")
    by_name = dict(zip(rates["page"].values.tolist(), rates.values.tolist(), strict=True))
    missing = [name for name in page_types if not by_name.get(name, np.nan) >= 0]
    if missing:
        raise InputError(
            f"page error rates: found none for {', '.join(missing)}, allowed: one for each of "
            f"{', '.join(page_types)}"
        )
    return [by_name[name] for name in page_types]
