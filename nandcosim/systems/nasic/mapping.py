"""Where the weights of a layer's experts lie in the array (NASiC, Fig. 4 and 5).

A block takes one input at a time and a bitline adds its strings' currents, so an input
dimension of N is N blocks: a *block group*. An expert is two matrices with inputs of their
own: ``in`` (gate and up, side by side) and ``out`` (down). Their rows are cut into row
groups of N or less, their columns lie along the page, and the digits of a weight on adjacent
bitlines.

- ``conventional``: experts side by side along the page, a row group at a time.
- ``nasic``: the page has I segments, and I experts and I block groups form a Latin square:
  block group j holds row group j of all I experts, expert i of them in segment
  (i + j) mod I. So all of a block's bitlines want the same input, the strings of I different
  experts meet on every bitline, and the one searched for has I row groups on disjoint
  bitlines: I N rows in one cycle.
- ``interleaved``, without CAM cells (Fig. 5(b)): of the square only one expert may be there.

The square is derived: it is what one input a block and one expert a bitline leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.encodings import STRINGS, parse_layers
from nandcosim.errors import InputError
from nandcosim.systems.arrays import ceil, described, floor, maximum, minimum, stacked, where
from nandcosim.systems.config import setting
from nandcosim.systems.nasic.digits import UnitFields, largest_digit, weight_digits
from nandcosim.systems.nasic.moe import MoeShape

__all__ = ["MATRICES", "ROWS", "MappingFields", "enumerate_tiles", "place", "unit"]

#: Rows of a cycle unless told otherwise: the input dimension of Fig. 9.
ROWS = 128

#: Those of an expert that take the same input: gate and up, then down.
MATRICES = ("in", "out")

Ints = NDArray[np.int_]

Scheme = Literal["technique", "conventional", "interleaved", "nasic"]
Signed = Literal["ternary", "binary", "twos_complement", "unary"]
Packing = Literal["contiguous", "whole"]
Identified = Literal["interleaved", "ratio", "experts"]


class MappingFields(UnitFields):
    """How weights become cells, and experts identifiers."""

    scheme: Scheme | tuple[Scheme, ...] = setting(
        "technique", unit="", meaning="placement; technique: conventional for Base, else nasic",
        origin="stated: Fig. 4(a), 4(b), 5(b)",
    )  # fmt: skip
    signed: Signed | tuple[Signed, ...] = setting(
        "ternary", unit="", meaning="signed weights of binary cells, without T2",
        origin="assumed: not stated; pairs of cells as -1, 0, 1",
    )  # fmt: skip
    packing: Packing | tuple[Packing, ...] = setting(
        "contiguous", unit="", meaning="whether columns of an expert may be cut at a page's end",
        origin="assumed: not stated",
    )  # fmt: skip
    identified: Identified | tuple[Identified, ...] = setting(
        "interleaved", unit="",
        meaning="what CAM cells could tell apart: experts of a bitline, 1/r, or all of a layer",
        origin="derived: a bitline has no others",
    )  # fmt: skip
    cam_layers: str | tuple[str, ...] = setting(
        "", unit="", meaning="bits of each CAM cell of a string, as in 1+2; empty: by cam_bits",
        origin="stated: Fig. 5(d)",
    )  # fmt: skip


def unit(config: MappingFields) -> xr.Dataset:
    """What stores a weight: digits of so many levels, on so many bitlines and strings.

    Without T2, cells are binary and a digit lies on one string, by `signed`: ``ternary``, a
    pair of bitlines for -1, 0, 1; ``binary``, a pair for -1, 1; ``twos_complement``, a bitline
    a bit; ``unary``, pairs of equal worth that are counted. With T2 a digit is four strings
    of a block on a pair of bitlines, the dual blocks: 4 (m - 1) + 1 levels.

    Returns
    -------
    xarray.Dataset
        Over the configuration's axes: ``levels`` of a digit, ``digits`` of a weight;
        ``lines``, bitlines of a digit, and ``parallel``, its strings in a block;
        ``binary_cells``, those that hold the range of a digit without T2 (fractions count).

    Notes
    -----
    NASiC, Fig. 6(c), 7(c), 7(i).
    """
    signed, bits = config.array("signed"), config.array("weight_bits")
    multibit = config.array("technique").isin(["t1t2", "t1t2t3"])
    of_bits = ~multibit & signed.isin(["binary", "twos_complement"])
    levels = where(of_bits, 2, 2 * largest_digit(config) + 1)
    by_place = where(of_bits, bits, weight_digits(config))
    counted = ~multibit & (signed == "unary")
    cells_a_bit = where(signed == "ternary", 2 / np.log2(3), where(signed == "binary", 2, 1))
    found = xr.Dataset(
        {
            "levels": levels,
            "digits": where(counted, 2.0 ** (bits - 1), by_place),
            "lines": where(multibit | (signed != "twos_complement"), 2, 1),
            "parallel": where(multibit, STRINGS, 1),
            "binary_cells": where(signed == "unary", levels - 1, cells_a_bit * np.log2(levels)),
        }
    )
    return described(found, {name: ("1", meaning) for name, meaning in _UNIT.items()})


def place(config: MappingFields, shapes: xr.Dataset, rows: int | xr.DataArray = ROWS) -> xr.Dataset:
    """Cells that the experts of a layer take, and whether all layers fit, in closed form.

    A shared expert is cut into slices as wide as a routed one. Each gets an identifier of its
    own and is searched for with every token. An identifier that always matches would add
    its current to another expert's on the same bitline.

    Parameters
    ----------
    config : MappingFields
    shapes : xarray.Dataset
        Of `moe.moe_shapes`.
    rows : int or DataArray
        Input dimension N: rows that a bitline may add, at most.

    Returns
    -------
    xarray.Dataset
        Over the axes of all arguments. By ``matrix``: ``interleaved``, experts that really
        share a bitline, no more than there are, than there are row groups, and than
        blocks allow; ``rows``, of a block group, as equal as can be; ``row_cycles``,
        cycles until all rows are taken; ``pages``, page-wide tiles of all experts in one of
        these cycles; ``cam_cells`` of a string.
        Of a layer: ``cells_needed``, with weights; ``cells_empty``, in the same
        tiles without weights; ``cells_cam``, the tiles' share of the CAM cells above them;
        ``storage_utilisation``, the first over all three; ``area_efficiency``, weights a
        cell over those of Base; ``range_efficiency``, the same with every digit counted as
        what its levels could hold, and without edges.
        Of all layers: ``cells_taken``, all three kinds; ``planes_needed``; ``fits``;
        ``planes_at_work``, by matrix, those that hold it and work on it at once.

    Raises
    ------
    InputError
        If CAM cells cannot tell the experts apart or leave no cell for weights, a page is
        too narrow for a weight, T2 has other strings than four, or `rows` is below 1.

    Notes
    -----
    NASiC, Fig. 5, 10(a), 10(c).
    """
    layout, cells = _layout(config, shapes, rows), _cells(config, shapes, rows)
    base = config.model_copy(update={"technique": "base", "scheme": "technique"})
    of_base = _cells(base, shapes, rows)
    digit = unit(config)
    ranged = digit["binary_cells"] / (digit["lines"] * digit["parallel"])
    gated = layout["cam_cells"].max("matrix") / config.array("cells")
    all_cells = cells["needed"] + cells["empty"] + cells["cam"]
    all_of_base = of_base["needed"] + of_base["empty"]
    found = layout[["interleaved", "rows", "row_cycles", "pages", "cam_cells"]].assign(
        cells_needed=cells["needed"],
        cells_empty=cells["empty"],
        cells_cam=cells["cam"],
        storage_utilisation=cells["needed"] / all_cells,
        area_efficiency=all_of_base / all_cells,
        range_efficiency=ranged * (1 - gated),
        cells_taken=all_cells * shapes["moe_layers"],
    )
    capacity = _capacity(config, shapes, layout)
    needed = capacity["planes_needed"].sum("matrix")
    found = found.assign(
        planes_at_work=capacity["planes_at_work"],
        planes_needed=needed,
        fits=needed <= config.array("planes"),
    )
    return described(found, {name: ("1", meaning) for name, meaning in _MEANINGS.items()})


def enumerate_tiles(
    config: MappingFields, shape: MoeShape, rows: int = ROWS, layer: int = 0
) -> xr.Dataset:
    """Every tile of one layer of one configuration, with its place.

    A tile is what an expert has of one matrix, row group and page. Page-wide tiles are
    dealt to the planes of the matrix in turn, so that all of them work on a layer; in a
    plane they fill a unit of block groups, string by string and wordline by wordline, before
    the next one. Planes of ``out`` follow those of ``in``.

    Parameters
    ----------
    config : MappingFields
        Without axes.
    shape : MoeShape
    rows : int
        As of `place`.
    layer : int
        Of those with experts, counted from 0.

    Returns
    -------
    xarray.Dataset
        Integers along ``tile``. What: ``matrix`` (0 or 1, of `MATRICES`), ``expert`` (slices
        of shared experts follow the routed ones), ``first_row``, ``rows``,
        ``first_column``, ``columns``. Where: ``plane``, ``first_block`` (a row each from there
        on), ``first_bitline``, ``bitlines``, ``wordline`` (0 is the uppermost, CAM cells come
        first), ``first_string``, ``strings``. ``identifier``, in the CAM cells.

    Raises
    ------
    InputError
        As `place`, or if the configuration has axes or `layer` is not one of the model.
    """
    if config.axes:
        raise InputError(f"nasic: {', '.join(config.axes)}: an axis, allowed: one value")
    if not 0 <= layer < shape.moe_layers:
        raise InputError(f"nasic: layer: found {layer}, allowed: 0 to {shape.moe_layers - 1}")
    shapes = xr.Dataset({size: float(getattr(shape, size)) for size in _READ})
    layout = _layout(config, shapes, rows)
    layout = layout.merge(_capacity(config, shapes, layout))
    before, parts = 0, []
    for number, matrix in enumerate(MATRICES):
        part = {
            str(name): int(values) for name, values in layout.sel(matrix=matrix).data_vars.items()
        }
        tiles = _tiles(part, layer, whole=config.packing == "whole")
        tiles["plane"] += before
        parts.append(tiles.assign(matrix=xr.full_like(tiles["expert"], number)))
        before += part["planes_at_work"]
    return xr.concat(parts, dim="tile")


_UNIT = {
    "levels": "values of a digit",
    "digits": "digits of a weight",
    "lines": "bitlines of a digit",
    "parallel": "strings of a block that hold a digit together",
    "binary_cells": "cells that hold the range of a digit without T2",
}
_MEANINGS = {
    "interleaved": "experts that share a bitline",
    "rows": "rows of a block group",
    "row_cycles": "cycles until all rows are taken, of one page and input digit",
    "pages": "page-wide tiles of all experts in one of the row cycles",
    "cam_cells": "CAM cells of a string",
    "cells_needed": "cells with weights, of a layer",
    "cells_empty": "cells without weights in the same tiles, of a layer",
    "cells_cam": "share of the CAM cells above, of a layer",
    "storage_utilisation": "cells with weights over all cells taken",
    "area_efficiency": "weights a cell over those of Base",
    "range_efficiency": "what digits could hold, a cell, over that of Base, without edges",
    "cells_taken": "cells taken, of all layers",
    "planes_at_work": "planes that hold matrices of a kind, and work on one at once",
    "planes_needed": "planes that all layers need",
    "fits": "all layers fit",
}
_READ = ("hidden", "expert_ffn", "ffn_matrices", "experts", "top_k", "shared_ffn", "moe_layers")


def _layout(config: MappingFields, shapes: xr.Dataset, rows: int | xr.DataArray) -> xr.Dataset:
    """Counts that cells and places follow from, by matrix."""
    digit = unit(config)
    found = _interleaved(config, shapes, rows)
    found = found.assign(
        lines=digit["lines"] * digit["digits"],
        parallel=digit["parallel"],
        segment=floor(config.array("bitlines") / found["interleaved"]),
    )
    columns = floor(found["segment"] / found["lines"])
    if (columns < 1).any():
        raise InputError(
            f"nasic: bitlines: found {config.bitlines}, allowed: enough for a weight of "
            f"{int(found['lines'].max())} bitlines in {int(found['interleaved'].max())} segments"
        )
    groups = ceil(found["experts"] / found["together"])
    pages = _pages(config, found["width"], columns, groups)
    return found.assign(page_columns=columns, pages=pages)


def _interleaved(config: MappingFields, shapes: xr.Dataset, rows: int | xr.DataArray) -> xr.Dataset:
    """Rows and columns of the matrices, and how many experts share bitlines."""
    rows = xr.DataArray(rows)
    if (rows < 1).any():
        raise InputError(f"nasic: rows: found {rows.min().item()}, allowed: 1 or more")
    hidden, inside = shapes["hidden"], shapes["expert_ffn"]
    height = stacked({"in": hidden, "out": inside}, "matrix")
    width = stacked({"in": (shapes["ffn_matrices"] - 1) * inside, "out": hidden}, "matrix")
    experts = shapes["experts"] + ceil(shapes["shared_ffn"] / inside)
    conventional, gated = _schemes(config)

    most = minimum(minimum(rows, height), config.array("blocks"))
    groups, room = ceil(height / most), floor(config.array("blocks") / most)
    wanted = where(conventional, 1, config.array("interleave"))
    interleave = minimum(minimum(wanted, experts), minimum(groups, room))
    row_cycles = ceil(groups / interleave)
    identifiers = _identifiers(config, shapes, experts, interleave)
    return xr.Dataset(
        {
            "height": height,
            "width": width,
            "experts": experts,
            "interleaved": interleave,
            "together": where(gated, interleave, 1),
            "rows": ceil(height / (row_cycles * interleave)),
            "row_cycles": row_cycles,
            "cam_cells": where(gated, _cam_cells(config, where(gated, identifiers, 1)), 0),
        }
    )


def _schemes(config: MappingFields) -> tuple[xr.DataArray, xr.DataArray]:
    """Whether experts lie side by side, and whether CAM cells gate them."""
    scheme, base = config.array("scheme"), config.array("technique") == "base"
    automatic = scheme == "technique"
    conventional = (scheme == "conventional") | (automatic & base)
    return conventional, (scheme == "nasic") | (automatic & ~base)


def _identifiers(
    config: MappingFields, shapes: xr.Dataset, experts: xr.DataArray, interleave: xr.DataArray
) -> xr.DataArray:
    """How many experts the CAM cells tell apart."""
    kind = config.array("identified")
    routed = ceil(shapes["experts"] / shapes["top_k"])
    wanted = where(kind == "ratio", routed, where(kind == "experts", experts, 1))
    return maximum(wanted, interleave)


def _cam_cells(config: MappingFields, identifiers: xr.DataArray) -> xr.DataArray:
    """Transistors of a string's CAM cells, two each (Fig. 4(d), 5(d))."""
    texts = config.array("cam_layers")
    layers = [_parsed(str(text)) for text in texts.values.ravel()]
    lengths, bits = (
        texts.copy(data=np.array(values, dtype=float).reshape(texts.shape))
        for values in ([len(each) for each in layers], [sum(each) for each in layers])
    )
    by_bits = ceil(xr.DataArray(np.log2(identifiers)) / config.array("cam_bits"))
    short = (lengths > 0) & (2.0**bits < identifiers)
    if short.any():
        raise InputError(
            f"nasic: cam_layers: found {config.cam_layers!r}, allowed: bits for "
            f"{int(identifiers.max())} identifiers"
        )
    cells = 2 * where(lengths > 0, lengths, by_bits)
    if (cells >= config.array("cells")).any():
        raise InputError(
            f"nasic: cells: found {config.cells}, allowed: more than the {int(cells.max())} of "
            "the CAM"
        )
    return cells


def _parsed(text: str) -> tuple[int, ...]:
    try:
        return parse_layers(text) if text else ()
    except ValueError as error:
        raise InputError(f"nasic: cam_layers: {error}") from None


def _pages(
    config: MappingFields, width: xr.DataArray, columns: xr.DataArray, groups: xr.DataArray
) -> xr.DataArray:
    """Pages that groups of experts take side by side, each `width` columns of a segment."""
    uncut = where(
        width <= columns,
        ceil(groups / maximum(floor(columns / width), 1)),
        groups * ceil(width / columns),
    )
    return where(config.array("packing") == "whole", uncut, ceil(groups * width / columns))


def _cells(config: MappingFields, shapes: xr.Dataset, rows: int | xr.DataArray) -> xr.Dataset:
    """Cells of a layer: with weights, without in the same tiles, and their share of the CAM's."""
    layout = _layout(config, shapes, rows)
    tiles = layout["pages"] * layout["row_cycles"]
    strings = layout["interleaved"] * layout["rows"] * config.array("bitlines") * layout["parallel"]
    taken = tiles * strings
    weights = layout["experts"] * layout["height"] * layout["width"]
    needed = weights * layout["lines"] * layout["parallel"]
    above = taken * layout["cam_cells"] / (config.array("cells") - layout["cam_cells"])
    return xr.Dataset({"needed": needed, "empty": taken - needed, "cam": above}).sum("matrix")


def _capacity(config: MappingFields, shapes: xr.Dataset, layout: xr.Dataset) -> xr.Dataset:
    """Planes that all layers take, by matrix; those not needed are shared out in proportion.

    A string has one identifier for all its cells, so that matrices that are not interleaved
    alike cannot share strings: each kind has planes of its own.
    """
    a_wordline = floor(config.array("strings") / layout["parallel"])
    slots = (config.array("cells") - layout["cam_cells"]) * a_wordline
    unit_blocks = layout["interleaved"] * layout["rows"]
    tiles = layout["pages"] * layout["row_cycles"] * shapes["moe_layers"]
    needed = ceil(tiles / (slots * floor(config.array("blocks") / unit_blocks)))
    shared = floor(config.array("planes") * needed / needed.sum("matrix"))
    return xr.Dataset(
        {
            "unit_blocks": unit_blocks,
            "a_wordline": a_wordline,
            "slots": slots,
            "planes_needed": needed,
            "planes_at_work": maximum(needed, shared),
        }
    )


# ---------------------------------------------------------------- tile by tile


def _tiles(part: Mapping[str, int], layer: int, *, whole: bool) -> xr.Dataset:
    """Tiles of one matrix, with planes counted from its first."""
    group, page, offset, first, columns = _pieces(part, whole=whole)
    sizes = (group.size, part["together"], part["row_cycles"], part["interleaved"])
    piece, member, cycle, row_group = (axis.ravel() for axis in np.indices(sizes))
    expert = group[piece] * part["together"] + member
    first_row = (cycle * part["interleaved"] + row_group) * part["rows"]
    tile = (layer * part["row_cycles"] + cycle) * part["pages"] + page[piece]
    slot, plane = np.divmod(tile, part["planes_at_work"])
    number, level = np.divmod(slot, part["slots"])
    segment = (member + row_group) % part["interleaved"]
    found = {
        "expert": expert,
        "first_row": first_row,
        "rows": np.minimum(part["rows"], part["height"] - first_row),
        "first_column": first[piece],
        "columns": columns[piece],
        "plane": plane,
        "first_block": number * part["unit_blocks"] + row_group * part["rows"],
        "first_bitline": segment * part["segment"] + offset[piece] * part["lines"],
        "bitlines": columns[piece] * part["lines"],
        "wordline": part["cam_cells"] + level // part["a_wordline"],
        "first_string": level % part["a_wordline"] * part["parallel"],
        "strings": np.full_like(tile, part["parallel"]),
        "identifier": member,
    }
    there = (expert < part["experts"]) & (found["rows"] > 0)
    return xr.Dataset({name: ("tile", values[there]) for name, values in found.items()})


def _pieces(part: Mapping[str, int], *, whole: bool) -> tuple[Ints, ...]:
    """Columns of the groups of experts, cut at the ends of pages.

    Returns
    -------
    ndarrays
        Of each piece its group, page, offset in the page, first column, and columns.
    """
    width, page = part["width"], part["page_columns"]
    group = np.arange(-(-part["experts"] // part["together"]))
    start = group * width
    if whole:
        on_a_page = max(page // width, 1)
        start = group // on_a_page * -(-width // page) * page + group % on_a_page * width
    pages = (start + width - 1) // page - start // page + 1
    group, start = np.repeat(group, pages), np.repeat(start, pages)
    nth = np.arange(group.size) - np.repeat(np.cumsum(pages) - pages, pages)
    number = start // page + nth
    begin = np.maximum(start, number * page)
    columns = np.minimum(start + width, (number + 1) * page) - begin
    return group, number, begin - number * page, begin - start, columns
