"""Placement: no cell twice, every weight once, and closed forms equal what is laid out."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, get_args

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nandcosim import encodings
from nandcosim.errors import InputError
from nandcosim.systems.nasic import mapping, mapping_study
from nandcosim.systems.nasic.mapping import MATRICES, MappingFields, enumerate_tiles, place, unit
from nandcosim.systems.nasic.moe import MoeShape, moe_shapes

SIZES = ("hidden", "expert_ffn", "ffn_matrices", "moe_layers", "experts", "top_k", "shared_ffn")
OLMOE = moe_shapes("olmoe")


def dataset(shape: MoeShape) -> xr.Dataset:
    return xr.Dataset({size: float(getattr(shape, size)) for size in SIZES})


def matrices(shape: MoeShape) -> list[tuple[int, int]]:
    gates = (shape.ffn_matrices - 1) * shape.expert_ffn
    return [(shape.hidden, gates), (shape.expert_ffn, shape.hidden)]


@st.composite
def layers(draw: st.DrawFn) -> tuple[MappingFields, MoeShape, int]:
    """A configuration, a model and an input dimension, all small."""
    experts = draw(st.integers(2, 7))
    technique = draw(st.sampled_from(["base", "t1", "t1t2", "t1t2t3"]))
    shape = MoeShape(
        "drawn",
        hidden=draw(st.integers(3, 9)),
        expert_ffn=draw(st.integers(2, 7)),
        ffn_matrices=draw(st.integers(2, 3)),
        moe_layers=2,
        layers=2,
        experts=experts,
        top_k=draw(st.integers(1, experts)),
        shared_ffn=draw(st.integers(0, 8)),
    )
    config = MappingFields(
        technique=technique,
        scheme=draw(st.sampled_from(["nasic", *get_args(mapping.Scheme)])),
        signed=draw(st.sampled_from(get_args(mapping.Signed))),
        packing=draw(st.sampled_from(get_args(mapping.Packing))),
        identified=draw(st.sampled_from(get_args(mapping.Identified))),
        states=draw(st.integers(2, 4)),
        cam_bits=draw(st.integers(1, 3)),
        interleave=draw(st.integers(2, 5)),
        weight_bits=draw(st.integers(2, 4)),
        cells=draw(st.integers(9, 12)),
        strings=4 if "t2" in technique else draw(st.integers(1, 6)),
        bitlines=draw(st.integers(80, 200)),
        blocks=draw(st.integers(4, 12)),
        planes=draw(st.integers(1, 5)),
    )
    return config, shape, draw(st.integers(1, 4))


@settings(max_examples=30, deadline=None)
@given(layers())
def test_placement(drawn: tuple[MappingFields, MoeShape, int]) -> None:
    config, shape, most = drawn
    try:
        placed = place(config, dataset(shape), most)
    except InputError:
        assume(False)
    layout = [enumerate_tiles(config, shape, most, layer) for layer in range(2)]
    _every_weight_has_cells_of_its_own(config, shape, placed, layout)
    _closed_forms_count_the_tiles(config, placed, layout[0], most)


def _every_weight_has_cells_of_its_own(
    config: MappingFields, shape: MoeShape, placed: xr.Dataset, layout: list[xr.Dataset]
) -> None:
    digit = {name: int(value) for name, value in unit(config).data_vars.items()}
    lines = digit["digits"] * digit["lines"]
    used: set[tuple[int, ...]] = set()
    weights: dict[tuple[int, int, int], set[tuple[int, int]]] = defaultdict(set)
    wanted: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)  # inputs, of a block
    entries: dict[tuple[int, ...], set[int]] = defaultdict(set)  # identifiers, of a string
    cells = 0
    for layer, tiles in enumerate(layout):
        for row in zip(*(tiles[name].values.tolist() for name in tiles), strict=True):
            t = dict(zip(map(str, tiles), row, strict=True))
            assert t["bitlines"] == t["columns"] * lines
            assert t["strings"] == digit["parallel"]
            for r in range(t["rows"]):
                block = (t["plane"], t["first_block"] + r)
                wanted[*block, t["wordline"], t["first_string"]].add(
                    (layer, t["matrix"], t["first_row"] + r)
                )
                for b in range(t["first_bitline"], t["first_bitline"] + t["bitlines"]):
                    for s in range(t["first_string"], t["first_string"] + t["strings"]):
                        used.add((*block, t["wordline"], b, s))
                        entries[*block, b, s].add(t["identifier"])
                        cells += 1
                for c in range(t["first_column"], t["first_column"] + t["columns"]):
                    whose = (layer, t["matrix"], t["expert"])
                    assert (t["first_row"] + r, c) not in weights[whose]
                    weights[whose].add((t["first_row"] + r, c))
    assert len(used) == cells == 2 * placed["cells_needed"].item()

    experts = shape.experts + math.ceil(shape.shared_ffn / shape.expert_ffn)
    assert set(weights) == {(la, m, e) for la in (0, 1) for m in (0, 1) for e in range(experts)}
    for (_, m, _), found in weights.items():
        height, width = matrices(shape)[m]
        assert found == {(r, c) for r in range(height) for c in range(width)}

    assert all(len(inputs) == 1 for inputs in wanted.values())
    if (placed["cam_cells"] > 0).any():
        assert all(len(stored) == 1 for stored in entries.values())
    planes = int(placed["planes_at_work"].sum())
    limits = (planes, config.blocks, config.cells, config.bitlines, config.strings)
    assert all(0 <= x < limit for place_ in used for x, limit in zip(place_, limits, strict=True))
    for tiles in layout:
        assert (tiles["wordline"] >= placed["cam_cells"].isel(matrix=tiles["matrix"])).all()


def _closed_forms_count_the_tiles(
    config: MappingFields, placed: xr.Dataset, tiles: xr.Dataset, most: int
) -> None:
    taken = empty = cam = 0.0
    for m, name in enumerate(MATRICES):
        one = placed.sel(matrix=name)
        own = tiles.isel(tile=tiles["matrix"].values == m)
        unit_blocks = int(one["interleaved"] * one["rows"])
        keys = ("plane", "wordline", "first_string")
        number = own["first_block"].values // unit_blocks
        page_wide = set(zip(*(own[k].values for k in keys), number, strict=True))
        assert len(page_wide) == one["pages"] * one["row_cycles"]
        room = len(page_wide) * unit_blocks * config.bitlines * int(unit(config)["parallel"])
        weights = int((own["rows"] * own["bitlines"] * own["strings"]).sum())
        taken, empty = taken + weights, empty + room - weights
        above = int(one["cam_cells"])
        cam += room * above / (config.cells - above)
        assert own["rows"].max() <= min(most, config.blocks)
        # Of what lies on the same bitlines, a search finds one block group: `most` strings.
        found = (*(own[k].values for k in (*keys, "first_bitline", "identifier")), number)
        assert len(set(zip(*found, strict=True))) == own.sizes["tile"]
    assert placed["cells_needed"] == taken
    assert placed["cells_empty"] == empty
    assert placed["cells_cam"].item() == pytest.approx(cam)
    assert placed["storage_utilisation"].item() == pytest.approx(taken / (taken + empty + cam))


def test_axes_are_points_at_once() -> None:
    config = MappingFields(technique=("base", "t1", "t1t2t3"), interleave=(4, 16), planes=(2, 16))
    shapes = moe_shapes(("olmoe", "qwen1.5-moe"))
    rows = xr.DataArray([64, 128], dims="sigma", coords={"sigma": [0.2, 0.15]})
    placed = place(config, shapes, rows)
    for _, point in config.points():
        chosen = {n: getattr(point, n) for n in config.axes}
        whole = placed.sel(model="qwen1.5-moe", sigma=0.2, **chosen)
        alone = place(point, shapes.sel(model="qwen1.5-moe"), rows.sel(sigma=0.2))
        for name, values in alone.data_vars.items():
            np.testing.assert_array_equal(whole[name], values, str(name))


# ---------------------------------------------------------------- units


@pytest.mark.parametrize("states", range(2, 9))
def test_levels_of_a_unit_are_those_of_the_encoding(states: int) -> None:
    multibit = unit(MappingFields(technique="t1t2t3", states=states))
    assert multibit["levels"] == len(encodings.weights(states))
    assert multibit["lines"] * multibit["parallel"] == 8
    levels = 4 * (states - 1) + 1
    assert multibit["digits"] == math.ceil(math.log(16, levels) - 1e-9)


@pytest.mark.parametrize(
    ("signed", "cells"), [("ternary", 6), ("binary", 8), ("twos_complement", 4), ("unary", 16)]
)
def test_cells_of_four_bits(signed: Any, cells: int) -> None:
    for technique in ("base", "t1"):
        found = unit(MappingFields(technique=technique, signed=signed))
        assert found["digits"] * found["lines"] * found["parallel"] == cells
        # A digit without T2 holds its own range in its own cells.
        assert found["binary_cells"].item() == pytest.approx(found["lines"].item())
    assert unit(MappingFields(technique="t1t2", signed=signed))["digits"] == 2


# ---------------------------------------------------------------- the paper's figures


def test_interleaved_without_cam_wastes_all_but_one_expert() -> None:
    shapes = moe_shapes("qwen1.5-moe")  # 60 experts and a shared one of four slices
    config = MappingFields(
        technique="t1", scheme=("interleaved", "nasic"), interleave=(2, 4, 8), bitlines=3 * 2**12,
    )  # fmt: skip
    used = place(config, shapes)["storage_utilisation"]
    cam = place(config, shapes)["cam_cells"].max("matrix").sel(scheme="nasic")
    for interleave in (2, 4, 8):
        apart = used.sel(interleave=interleave)
        full = apart.sel(scheme="nasic").item() / (1 - cam.sel(interleave=interleave).item() / 128)
        assert full == pytest.approx(1.0, abs=0.01)
        assert apart.sel(scheme="interleaved").item() == pytest.approx(full / interleave, abs=0.01)


def test_area_lost_to_cam_cells() -> None:
    """2 ceil(log2(1/r) / b) / L at r = 1/32 (Fig. 10(a))."""
    config = MappingFields(
        technique="t1", cells=(64, 96, 128), cam_bits=(1, 2, 3), interleave=1, identified="ratio"
    )
    found = place(config, moe_shapes("deepseek-v3"))
    for cells in (64, 96, 128):
        for bits in (1, 2, 3):
            loss = 1 - found["area_efficiency"].sel(cells=cells, cam_bits=bits).item()
            assert loss == pytest.approx(2 * math.ceil(5 / bits) / cells)


def test_three_bits_need_81_cells_for_the_claimed_loss() -> None:
    config = MappingFields(technique="t1", cells=(80, 81), cam_bits=3, interleave=32)
    loss = 1 - place(config, moe_shapes("deepseek-v3"), 64)["range_efficiency"]
    assert (loss < 0.05).values.tolist() == [False, True]


def test_what_t2_costs_and_t3_brings_back() -> None:
    """By what a digit holds: T3 surpasses Base only if Base counts in pairs, or by 3-bit cells."""
    config = MappingFields(
        technique=("t1t2", "t1t2t3"), states=(3, 4, 8), signed=get_args(mapping.Signed),
        interleave=1,
    )  # fmt: skip
    found = place(config, OLMOE)["range_efficiency"]
    assert (found.sel(technique="t1t2") < 0.6).all()
    multibit = found.sel(technique="t1t2t3")
    assert (multibit > found.sel(technique="t1t2")).all()
    above = {
        str(s): (multibit.sel(signed=s) > 1).values.tolist() for s in multibit["signed"].values
    }
    assert above == {
        "ternary": [False, False, False],
        "binary": [False, False, True],
        "twos_complement": [False, False, False],
        "unary": [False, True, True],
    }


def test_experts_that_are_no_multiple_leave_cells_empty() -> None:
    shapes = OLMOE.assign(experts=float(65))
    placed = place(MappingFields(technique="t1t2"), shapes)
    # 5 groups of 16 for `in`, 9 of 8 for `out`, all as large as the pages are.
    full = place(MappingFields(technique="t1t2"), OLMOE)
    assert placed["cells_needed"] == 65 / 64 * full["cells_needed"]
    assert placed["pages"].values.tolist() == [40, 36]


@pytest.mark.parametrize("text", ["3", "1+2", "2+1+1"])
def test_cam_layers_by_name(text: str) -> None:
    config = MappingFields(technique="t1", interleave=8, cam_layers=text)
    assert (place(config, OLMOE)["cam_cells"] == 2 * len(text.split("+"))).all()


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cam_layers": "1+1"}, r"cam_layers: found '1\+1', allowed: bits for 16 identifiers"),
        ({"cam_layers": "1+9"}, r"cam_layers: layers = '1\+9'"),
        ({"cells": 4}, "cells: found 4, allowed: more than the 4 of the CAM"),
        ({"bitlines": 40}, "bitlines: found 40, allowed: .* of 4 bitlines in 16 segments"),
        ({"strings": 3}, "strings = 3, allowed"),
    ],
)
def test_what_does_not_fit_is_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        place(MappingFields(**settings), OLMOE)
    assert "\n" not in str(error.value)


def test_wrong_rows_layers_and_axes() -> None:
    shape = MoeShape("tiny", hidden=4, expert_ffn=4, moe_layers=1, layers=1, experts=2, top_k=1)
    with pytest.raises(InputError, match="rows: found 0"):
        place(MappingFields(), OLMOE, 0)
    with pytest.raises(InputError, match="layer: found 1, allowed: 0 to 0"):
        enumerate_tiles(MappingFields(), shape, layer=1)
    with pytest.raises(InputError, match="interleave: an axis"):
        enumerate_tiles(MappingFields(interleave=(1, 2)), shape)


def test_study_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert mapping_study.main([]) == 0
    printed = capsys.readouterr().out
    for shown in ("16/11  0.988 0.843", "0.156 0.104 0.078", "1.453", "46,702,792,704", "0.951"):
        assert shown in printed
