"""Models, placement and area: the numbers of docs/systems/nasic_mapping.md.

::

    python -m nandcosim.systems.nasic.mapping_study models schemes cam range

prints the parts named, all of them by default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import get_args

from nandcosim.studies import one_line_errors, parse_parts, print_parts
from nandcosim.systems.nasic.mapping import MappingFields, Signed, place, unit
from nandcosim.systems.nasic.moe import load_moe, moe_names, moe_shapes

__all__ = ["cam_part", "models_part", "range_part", "schemes_part"]

_INTERLEAVES = (2, 4, 8, 16, 32)
_STATES = (2, 3, 4, 5, 8)
_SIGNED = get_args(Signed)


def models_part() -> Iterator[str]:
    """Every published model."""
    yield "model  parameters  routed (G)  active (G)  expert (M)  experts  top-k  1/r  shared"
    for model in map(load_moe, moe_names()):
        yield (
            f"{model.name:<17} {model.parameters:>15,} {model.routed_weights / 1e9:>7.2f}"
            f" {model.active_weights / 1e9:>6.2f} {model.expert_weights / 1e6:>7.2f}"
            f" {model.experts:>4} {model.top_k:>3} {1 / model.ratio:>6.2f} {model.shared_ffn:>5}"
        )


def schemes_part() -> Iterator[str]:
    """Utilisation, area efficiency and planes of every model, by scheme and technique."""
    yield "model  interleave in/out  utilisation: base  t1  without CAM  area: t1  t1..t3  planes"
    shapes = moe_shapes(moe_names())
    placed = place(MappingFields(technique=("base", "t1", "t1t2t3")), shapes)
    apart = place(MappingFields(technique="t1", scheme="interleaved"), shapes)
    for name in moe_names():
        row, alone = placed.sel(model=name), apart.sel(model=name)
        met = "/".join(f"{i:.0f}" for i in row["interleaved"].sel(technique="t1").values)
        used, area = row["storage_utilisation"], row["area_efficiency"]
        planes = " ".join(f"{count:.0f}" for count in row["planes_needed"].values)
        yield (
            f"{name:<17} {met:<6} {used.sel(technique='base').item():.3f}"
            f" {used.sel(technique='t1').item():.3f}"
            f" {alone['storage_utilisation'].item():.3f}"
            f" {area.sel(technique='t1').item():.3f} {area.sel(technique='t1t2t3').item():.3f}"
            f"  {planes}"
        )

    uneven, fitting = "deepseek-moe-16b", 11  # 64 experts and two slices of a shared one
    config = MappingFields(technique="t1", interleave=fitting)
    row = place(config, moe_shapes(uneven))
    cycles = "/".join(f"{count:.0f}" for count in row["row_cycles"].values)
    yield (
        f"{uneven}, interleave {fitting}: utilisation {row['storage_utilisation'].item():.3f}, "
        f"row cycles in/out {cycles}"
    )


def cam_part() -> Iterator[str]:
    """Share of a string that CAM cells take, by what they tell apart (Fig. 10(a))."""
    yield "told apart  bits: 1  2  3, in strings of 64, 96, 128 cells each"
    config = MappingFields(
        technique="t1", cells=(64, 96, 128), cam_bits=(1, 2, 3), interleave=_INTERLEAVES
    )
    rows = 64  # so that the blocks of a plane have room for the largest
    placed = place(config, moe_shapes("deepseek-v3"), rows)
    share = placed["cam_cells"].max("matrix") / config.array("cells")
    for interleave in _INTERLEAVES:
        row = share.sel(interleave=interleave).transpose("cam_bits", "cells").values
        yield f"{interleave:>3}  " + "   ".join(" ".join(f"{x:.3f}" for x in r) for r in row)
    whole = MappingFields(technique="t1", identified=("interleaved", "ratio", "experts"))
    yield "CAM cells of a string to tell apart experts of a bitline, 1/r, all of a layer"
    cells = place(whole, moe_shapes(moe_names()))["cam_cells"].max("matrix")
    for name in moe_names():
        yield f"{name:<17} " + " ".join(f"{x:>3.0f}" for x in cells.sel(model=name).values)


def range_part() -> Iterator[str]:
    """Area efficiency over Base's, by how Base stores signed weights (Fig. 10(c))."""
    techniques = ("t1", "t1t2", "t1t2t3")
    config = MappingFields(technique=techniques, states=_STATES, signed=_SIGNED)
    found = place(config, moe_shapes("olmoe"))["range_efficiency"]
    yield "signed  T1  T1+T2  T1..T3 with m = " + "  ".join(map(str, _STATES[1:]))
    for signed in _SIGNED:
        row = found.sel(signed=signed)
        values = [row.sel(technique=t).isel(states=0).item() for t in techniques[:2]]
        values += row.sel(technique="t1t2t3").isel(states=slice(1, None)).values.tolist()
        yield f"{signed:<16} " + " ".join(f"{x:.3f}" for x in values)
    yield "the same in whole digits: cells of a weight of 2, 3, 4, 8 bits"
    bits = (2, 3, 4, 8)
    for signed in _SIGNED:
        base = MappingFields(technique="base", signed=signed, weight_bits=bits)
        yield f"{signed:<16} " + _cells_of_a_weight(base)
    for states in _STATES:
        yield f"T2, m = {states}        " + _cells_of_a_weight(
            MappingFields(states=states, weight_bits=bits)
        )


def _cells_of_a_weight(config: MappingFields) -> str:
    digit = unit(config)
    cells = digit["digits"] * digit["lines"] * digit["parallel"]
    return " ".join(f"{x:>4.0f}" for x in cells.values)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts named, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m nandcosim.systems.nasic.mapping_study", description=main.__doc__
    )
    makers = {
        "models": models_part, "schemes": schemes_part, "cam": cam_part, "range": range_part,
    }  # fmt: skip
    print_parts(makers, parse_parts(parser, makers, arguments).parts)


if __name__ == "__main__":
    sys.exit(main())
