"""The paper's figures, and closed forms against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.config import setting
from nandcosim.systems.dnova.device import DeviceFields, check_fits, describe_device, index_bits
from nandcosim.systems.dnova.device_study import main


class Fields(DeviceFields):
    """With the one field that belongs to the search."""

    latch_bits: int | tuple[int, ...] = setting(
        4, unit="1", meaning="deficit latch of a bitline", origin="stated: section 3.2"
    )


NQ = {"dimension": 384, "n": 2_680_000, "nlist": 1024, "nprobe": 64, "k2": 1000}
BILLION = {"dimension": 768, "n": 10**9, "nlist": 8192, "nprobe": 256, "k2": 1000}


def test_figures_of_the_paper() -> None:
    n = xr.DataArray([2_680_000, 5_230_000], dims="corpus", coords={"corpus": ["NQ", "HotpotQA"]})
    nlist = xr.DataArray([1024, 2048], dims="corpus", coords={"corpus": ["NQ", "HotpotQA"]})
    device = describe_device(Fields(), 384, n, nlist, 64, 1000)
    assert device["capacity"] / 1e12 == pytest.approx(3.30, abs=0.005)  # Table 2
    assert device["plane_capacity"] == 2**32
    assert device["page_bytes"] == 2 * 1024
    assert device["latch_bytes"] == 8 * 1024
    assert device["vector_subblocks"].values.tolist() == [164, 320]
    assert device["group_planes"] == 6  # section 3.3
    assert device["accumulators"] == 64  # section 6.7
    assert device["area_share"] == 0.023 / 1.476
    assert device["area_share"] > 0.015  # the paper: below 1.5 %
    assert (device["stage1_kept_bytes"].sel(corpus="NQ") < 512).all()  # section 3.3
    assert device["overhead_complement"] == 2  # as much as INT8 codes


def test_widths_of_metadata_are_counted() -> None:
    device = describe_device(Fields(), **NQ)
    fields = {"plane": 12, "block": 256, "ssl": 16, "die": 8, "channel": 8}
    for name, count in fields.items():
        assert device["address_bits"].sel(field=name) == len(bin(count - 1)) - 2
    assert device["centroid_entry_bits"] == 10 + 6 + 22
    # Not whole bits field by field, but all together: the paper's 37 is what that rounds down to.
    together = math.log2(1024) + 6 + math.log2(math.prod(fields.values()))
    assert math.floor(together) == 37
    assert device["eadr_bits"] == 22 + 14


@pytest.mark.parametrize(("dimension", "worst", "bits"), [(384, 90, 7), (768, 180, 8)])
def test_the_merged_deficit_needs_more_than_six_bits(dimension, worst, bits) -> None:
    device = describe_device(Fields(), **{**NQ, "dimension": dimension})
    assert device["worst_deficit"] == worst
    assert device["merge_bits_needed"] == bits
    assert not device["distance_holds"]
    assert describe_device(Fields(distance_bits=bits), **{**NQ, "dimension": dimension})[
        "distance_holds"
    ]


def test_numbering_needs_as_many_bits_as_the_last_number_has() -> None:
    counts = np.concatenate(
        [np.arange(1, 5000), 2 ** np.arange(13, 50), 2 ** np.arange(13, 50) + 1]
    )
    expected = [(int(c) - 1).bit_length() for c in counts]
    assert index_bits(xr.DataArray(counts, dims="c")).values.tolist() == expected


def test_a_billion_vectors_fit_once_but_not_eight_times() -> None:
    serial = describe_device(Fields(), **BILLION)
    assert serial["copies"] == 8
    assert not serial["fits"]
    with pytest.raises(InputError, match="8 x 61037 sub-blocks, allowed: 262144") as error:
        check_fits(Fields(), 768, 10**9, 8192)
    assert "\n" not in str(error.value)
    check_fits(Fields(schedule="device"), 768, 10**9, 8192)
    # Section 3.3: a few megabytes, if the bus throttles and selection runs along.
    assert 1e6 < serial["sram_peak"] < 8e6
    assert serial["sram_holds"]
    assert serial["stage2_unselected_bytes"] > 8e6
    assert serial["unthrottled_bytes"] > 8e6


def test_the_largest_index_that_fits_fits_and_one_more_does_not() -> None:
    config = Fields(blocks=2, bitlines=64, schedule=("serial", "channel", "device"))
    most = describe_device(config, 384, 1000, 100, 4, 10)["vectors_max"]
    assert describe_device(config, 384, most, 100, 4, 10)["fits"].all()
    assert not describe_device(config, 384, most + 1, 100, 4, 10)["fits"].any()
    check_fits(config, 384, most, 100)
    one_more = xr.DataArray([0, 0, 1], dims="schedule", coords={"schedule": list(config.schedule)})
    with pytest.raises(InputError, match=r"schedule = device\) needs 1 x"):
        check_fits(config, 384, most + one_more, 100)


def test_every_point_of_the_axes_equals_its_own_description() -> None:
    config = Fields(
        bitlines=(4096, 16_384), latch_bits=(3, 4), distance_bits=(6, 8),
        schedule=("serial", "device"), wordlines=(64, 128),
    )  # fmt: skip
    whole = describe_device(config, **NQ)
    assert {"bitlines", "latch_bits", "schedule"} <= set(whole.dims)
    for _, point in config.points():
        alone = describe_device(point, **NQ)
        chosen = {axis: getattr(point, axis) for axis in config.axes}
        for name, array in whole.items():
            mine = array.sel({k: v for k, v in chosen.items() if k in array.dims}, drop=True)
            xr.testing.assert_allclose(mine, alone[name], rtol=0, atol=0)
    for array in whole.values():
        assert array.attrs["units"] in {"1", "B"}
        assert array.attrs["long_name"]


def test_overhead_is_cells_taken_over_cells_of_the_codes() -> None:
    """A 300-D vector has 3 strings of 128; 16 planes hold two groups of six."""
    config = Fields(planes=16, bitlines=1000)
    device = describe_device(config, 300, 2500, 10, 2, 10)
    taken = 3 * 1000 * 16 / 2 * 128  # sub-blocks * bitlines * planes a group of the die * cells
    assert device["overhead"].item() == pytest.approx(taken / (2500 * 300), rel=1e-12)


def test_a_vector_that_no_die_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="1024 dimensions"):
        describe_device(Fields(), 1024, 1000, 10, 2, 10)


@pytest.mark.parametrize("name", NQ)
@pytest.mark.parametrize("count", [0, -1])
def test_counts_below_one_are_refused(name, count) -> None:
    with pytest.raises(InputError, match=f"{name} = {count}, allowed: 1 or more"):
        describe_device(Fields(), **{**NQ, name: count})
    if name in ("dimension", "n", "nlist"):
        index = {k: v for k, v in NQ.items() if k in ("dimension", "n", "nlist")}
        with pytest.raises(InputError, match=f"{name} = {count}, allowed: 1 or more"):
            check_fits(Fields(), **{**index, name: count})


def test_one_point_of_an_axis_below_one_is_refused() -> None:
    nprobe = xr.DataArray([64, 0], dims="nprobe", coords={"nprobe": [64, 0]})
    with pytest.raises(InputError, match="nprobe = 0, allowed: 1 or more"):
        describe_device(Fields(), **{**NQ, "nprobe": nprobe})


def test_the_command_prints_every_quantity(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--vectors", "5230000", "--nlist", "2048", "--nprobe", "128"]) == 0
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(printed) == set(describe_device(Fields(), **NQ).data_vars)
    assert printed["vector_subblocks"].startswith("320 ")
    assert main(["--vectors", "1000000000", "--dimension", "768", "--nlist", "8192"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--set", "plains=3"]) == 2
    capsys.readouterr()
    assert main(["--vectors", "-1"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
