"""What a D-NOVA device holds and what its controller must remember, in closed form.

Capacity, plane groups and sub-blocks (section 3.3, Table 2), widths of metadata entries,
controller SRAM, cluster directory, and the accumulators' area (section 6.7). Everything
broadcasts over the axes of a configuration, and over arguments given as DataArrays.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from nandcosim.errors import InputError
from nandcosim.systems.config import setting
from nandcosim.systems.dnova.hardware import HardwareFields, groups_a_die, strings
from nandcosim.systems.nand import Count, Positive

__all__ = ["DeviceFields", "check_fits", "describe_device", "index_bits"]

_DistanceBits = Annotated[int, Field(ge=1, le=32)]


class DeviceFields(HardwareFields):
    """Fields that capacity, metadata and area depend on beside `HardwareFields`."""

    distance_bits: _DistanceBits | tuple[_DistanceBits, ...] = setting(
        6, unit="1", meaning="DIST field of a metadata entry", origin="stated: section 3.3"
    )
    sram_bytes: Count | tuple[Count, ...] = setting(
        8_000_000, unit="B", meaning="SRAM of the controller", origin="stated: Table 2, about 8 MB"
    )
    accumulator_area: Positive | tuple[Positive, ...] = setting(
        0.023, unit="mm^2", meaning="accumulators of a plane with their multiplexers",
        origin="stated: section 6.7",
    )  # fmt: skip
    plane_area: Positive | tuple[Positive, ...] = setting(
        1.476, unit="mm^2", meaning="a plane", origin="stated: section 6.7"
    )


def index_bits(count: int | xr.DataArray) -> xr.DataArray:
    """Bits that number `count` things: ceil(log2(count)), exact."""
    last = xr.DataArray(count) - 1.0
    return last.copy(data=np.frexp(last.values)[1].astype(np.int64))


def check_fits(
    config: DeviceFields, dimension: int, n: int | xr.DataArray, nlist: int | xr.DataArray
) -> None:
    """Refuse an index that the device cannot hold with the copies its schedule needs.

    Raises
    ------
    InputError
        If an argument is below 1; one line naming the first configuration that does not
        fit, what it needs and what there is; or as `nandcosim.systems.dnova.hardware.groups_a_die`.
    """
    _check_counts(dimension=dimension, n=n, nlist=nlist)
    layout = _layout(config, dimension, xr.DataArray(n), xr.DataArray(nlist))
    fits = layout["fits"]
    misfits = np.argwhere(~fits.values)
    if not len(misfits):
        return
    first = layout.isel(dict(zip(fits.dims, misfits[0], strict=True)))
    where = ", ".join(f"{dim} = {first[dim].item()}" for dim in fits.dims)
    raise InputError(
        f"dnova: index of {int(first['vectors'])} vectors of {dimension} dimensions"
        f"{f' ({where})' if where else ''} needs {int(first['copies'])} x "
        f"{int(first['vector_subblocks'] + first['centroid_subblocks'])} sub-blocks, "
        f"allowed: {int(first['subblocks'])}, the device's"
    )


def describe_device(
    config: DeviceFields,
    dimension: int,
    n: int | xr.DataArray,
    nlist: int | xr.DataArray,
    nprobe: int | xr.DataArray,
    k2: int | xr.DataArray,
) -> xr.Dataset:
    """Capacity, storage overhead, metadata, SRAM and area of a device with an index on it.

    Parameters
    ----------
    config : DeviceFields
        Must also have the field ``latch_bits``. Its axes are dimensions of the result.
    dimension : int
        Components D of a vector.
    n, nlist, nprobe, k2 : int or DataArray
        Vectors, inverted lists, lists probed and candidates of stage 2.

    Returns
    -------
    xarray.Dataset
        Every variable has ``units`` and ``long_name``. Extra dimensions: ``field`` (of an
        address), ``stage`` and ``part`` (of ``sram``). Units: bytes (B), mm^2, or 1.

        ``sram`` is that of all queries at work, one a copy, in the same stage. A channel's
        bus carries one plane group at a time: ``deficits`` are the latches of these groups,
        ``entries`` the metadata of their vectors, ``kept`` what the selection keeps.
        ``unthrottled_bytes`` is what deficits and entries of stage 2 become when the
        controller takes all plane groups at once.

    Raises
    ------
    InputError
        If an argument is below 1; or as `nandcosim.systems.dnova.hardware.groups_a_die`.
    """
    _check_counts(dimension=dimension, n=n, nlist=nlist, nprobe=nprobe, k2=k2)
    vectors, lists, probed, candidates = (xr.DataArray(v) for v in (n, nlist, nprobe, k2))
    layout = _layout(config, dimension, vectors, lists)
    overhead = _overhead(config, dimension, layout)
    widths = _widths(config, layout, lists)
    memory = _memory(config, layout, widths, lists, probed, candidates)
    found = xr.Dataset({**layout, **overhead, **widths, **memory, **_area(config)})
    for name, (unit, meaning) in _MEANING.items():
        found[name].attrs = {"units": unit, "long_name": meaning}
    found.attrs = {"dimension": dimension}
    return found


def _check_counts(**counts: int | xr.DataArray) -> None:
    for name, count in counts.items():
        least = xr.DataArray(count).min().item()
        if least < 1:
            raise InputError(f"dnova: {name} = {least}, allowed: 1 or more")


def _layout(
    config: DeviceFields, dimension: int, n: xr.DataArray, nlist: xr.DataArray
) -> xr.Dataset:
    dies = config.array("channels") * config.array("dies")
    bitlines = config.array("bitlines")
    plane_capacity = (
        config.array("blocks")
        * config.array("wordlines")
        * bitlines
        * config.array("select_lines")
        * config.array("cell_bits")
        // 8
    )
    groups = dies * groups_a_die(dimension, config)
    of_group = config.array("blocks") * config.array("select_lines")
    # Serial and channel schedules serve a query by one channel, which needs the whole index.
    on_channel = config.array("schedule") != "device"
    copies = config.array("channels").where(on_channel, 1)
    needed = _ceil(n, bitlines) + _ceil(nlist, bitlines)
    return xr.Dataset(
        {
            "vectors": n,
            "capacity": dies * config.array("planes") * plane_capacity,
            "plane_capacity": plane_capacity,
            "page_bytes": bitlines // 8,
            "latch_bytes": bitlines * config.array("latch_bits") // 8,
            "group_planes": 2 * strings(dimension, config),
            "plane_groups": groups,
            "group_subblocks": of_group,
            "subblocks": groups * of_group,
            "vector_subblocks": _ceil(n, bitlines),
            "centroid_subblocks": _ceil(nlist, bitlines),
            "copies": copies,
            "vectors_max": (groups * of_group // copies - _ceil(nlist, bitlines)) * bitlines,
            "fits": copies * needed <= groups * of_group,
        }
    )


def _overhead(config: DeviceFields, dimension: int, layout: xr.Dataset) -> dict[str, xr.DataArray]:
    """Cells of the planes taken by one copy of the vectors, over the cells of their codes."""
    wordlines, bitlines = config.array("wordlines"), config.array("bitlines")
    padding = strings(dimension, config) * wordlines / dimension
    idle = config.array("planes") / (groups_a_die(dimension, config) * layout["group_planes"])
    rounding = layout["vector_subblocks"] * bitlines / layout["vectors"]
    return {
        "code_bytes": layout["vectors"] * dimension * config.array("cell_bits") / 8,
        "overhead_complement": xr.DataArray(2.0),
        "overhead_padding": padding,
        "overhead_planes": idle,
        "overhead_rounding": rounding,
        "overhead": 2.0 * padding * idle * rounding,
    }


def _widths(
    config: DeviceFields, layout: xr.Dataset, nlist: xr.DataArray
) -> dict[str, xr.DataArray]:
    """Bits of the metadata of section 3.3, field by field."""
    address = xr.concat(
        [
            index_bits(config.array(name))
            for name in ("planes", "blocks", "select_lines", "dies", "channels")
        ],
        xr.Variable("field", ["plane", "block", "ssl", "die", "channel"]),
    )
    cid, eid = index_bits(nlist), index_bits(layout["vectors"])
    cadr = address.sum("field")
    eadr = cadr + index_bits(config.array("bitlines"))
    distance = config.array("distance_bits")
    worst = layout["group_planes"] * (2 ** config.array("latch_bits") - 1)
    segment = index_bits(_ceil(config.array("bitlines"), config.array("accumulator_group")))
    return {
        "address_bits": address,
        "cid_bits": cid,
        "cadr_bits": cadr,
        "centroid_entry_bits": cid + distance + cadr,
        "eid_bits": eid,
        "eadr_bits": eadr,
        "embedding_entry_bits": eid + distance + eadr,
        "candidate_entry_bits": eid + eadr,
        "worst_deficit": worst,
        "merge_bits_needed": index_bits(worst + 1),
        "distance_holds": worst < 2**distance,
        "directory_entry_bits": cid + cadr + segment,
    }


def _memory(
    config: DeviceFields,
    layout: xr.Dataset,
    widths: dict[str, xr.DataArray],
    nlist: xr.DataArray,
    nprobe: xr.DataArray,
    k2: xr.DataArray,
) -> dict[str, xr.DataArray]:
    """Bytes in the controller."""
    sending = config.array("channels")
    queries = layout["copies"]
    latches = layout["group_planes"] * config.array("latch_bits")
    centroid, embedding = widths["centroid_entry_bits"], widths["embedding_entry_bits"]
    full = sending * config.array("bitlines")
    of_group = config.array("bitlines") * (latches + embedding)
    few = (queries * k2).clip(max=full)
    stages = [
        (queries * nlist * latches, queries * nlist * centroid, queries * nprobe * centroid),
        (full * latches, full * embedding, queries * k2 * embedding),
        (few * latches, few * embedding, queries * k2 * widths["candidate_entry_bits"]),
    ]
    bits = xr.concat(
        [
            xr.concat(stage, xr.Variable("part", ["deficits", "entries", "kept"]))
            for stage in stages
        ],
        xr.Variable("stage", [1, 2, 3]),
    )
    # By either packing rule a list has at most one piece more than it fills sub-blocks.
    pieces = nlist + layout["vector_subblocks"]
    directory = pieces * widths["directory_entry_bits"] / 8
    peak = bits.sum("part").max("stage") / 8 + directory
    return {
        "groups_sending": sending,
        "sram": bits / 8,
        "directory_bytes": directory,
        "sram_peak": peak,
        "sram_holds": peak <= config.array("sram_bytes"),
        "unthrottled_bytes": layout["plane_groups"] * of_group / 8,
        "stage1_kept_bytes": nprobe * centroid / 8,
        "stage2_unselected_bytes": layout["vectors"] * nprobe / nlist * embedding / 8,
    }


def _area(config: DeviceFields) -> dict[str, xr.DataArray]:
    return {
        "accumulators": _ceil(config.array("bitlines"), config.array("accumulator_group")),
        "area_share": config.array("accumulator_area") / config.array("plane_area"),
    }


def _ceil(amount: xr.DataArray, size: xr.DataArray) -> xr.DataArray:
    return -(-amount // size)


_MEANING = {
    "vectors": ("1", "vectors of the index"),
    "capacity": ("B", "cells of the device, all bits"),
    "plane_capacity": ("B", "cells of a plane, all bits"),
    "page_bytes": ("B", "one bit of every bitline"),
    "latch_bytes": ("B", "deficit latches of a plane"),
    "group_planes": ("1", "planes that sense a vector together: a plane group"),
    "plane_groups": ("1", "plane groups of the device"),
    "group_subblocks": ("1", "logical sub-blocks of a plane group"),
    "subblocks": ("1", "logical sub-blocks of the device"),
    "vector_subblocks": ("1", "least sub-blocks that hold the vectors once"),
    "centroid_subblocks": ("1", "sub-blocks that hold the centroids once"),
    "copies": ("1", "copies of the index that the schedule needs"),
    "vectors_max": ("1", "vectors that fit, in that many copies"),
    "fits": ("1", "whether the index fits, in that many copies"),
    "code_bytes": ("B", "codes of the vectors alone"),
    "overhead_complement": ("1", "cells taken over cells of the codes: complement"),
    "overhead_padding": ("1", "the same: cells of the last string left over"),
    "overhead_planes": ("1", "the same: planes of a die that make up no group"),
    "overhead_rounding": ("1", "the same: bitlines of the last sub-block left over"),
    "overhead": ("1", "the same: product of all four"),
    "address_bits": ("1", "bits of a sub-block's address, by field"),
    "cid_bits": ("1", "bits of a centroid identifier CID"),
    "cadr_bits": ("1", "bits of a sub-block's address CADR"),
    "centroid_entry_bits": ("1", "bits of {CID, DIST, CADR}"),
    "eid_bits": ("1", "bits of an embedding identifier EID"),
    "eadr_bits": ("1", "bits of an embedding's address EADR: CADR and bitline"),
    "embedding_entry_bits": ("1", "bits of {EID, DIST, EADR}"),
    "candidate_entry_bits": ("1", "bits of {EID, EADR}"),
    "worst_deficit": ("1", "largest merged deficit: all latches of a vector full"),
    "merge_bits_needed": ("1", "bits that hold the largest merged deficit"),
    "distance_holds": ("1", "whether DIST holds the largest merged deficit"),
    "directory_entry_bits": ("1", "bits of a directory entry: CID, CADR, bitline segment"),
    "groups_sending": ("1", "plane groups that send deficits at the same time: one a channel"),
    "sram": ("B", "controller memory of all queries at work, by stage and part"),
    "directory_bytes": ("B", "cluster directory: an entry a piece of a list in a sub-block"),
    "sram_peak": ("B", "directory and the stage that takes most"),
    "sram_holds": ("1", "whether the controller's SRAM holds that"),
    "unthrottled_bytes": ("B", "deficits and entries of stage 2 from all plane groups at once"),
    "stage1_kept_bytes": ("B", "entries of one query's probed lists"),
    "stage2_unselected_bytes": ("B", "one query's entries if stage 2 selected at its end only"),
    "accumulators": ("1", "accumulators of a plane"),
    "area_share": ("1", "accumulators' share of the plane's area"),
}
