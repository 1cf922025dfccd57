"""NASiC's claims on area, encodings and the input dimension (S1.2, S4, S7)."""

from __future__ import annotations

from nandcosim.claims.claim import Finding
from nandcosim.claims.nasic.configurations import evaluated
from nandcosim.claims.spans import extent, span
from nandcosim.encodings import weights
from nandcosim.systems.nasic.admissible import largest_rows, load_losses
from nandcosim.systems.nasic.mapping import MappingFields, place, unit
from nandcosim.systems.nasic.moe import moe_shapes

__all__ = ["area", "encodings", "inputs"]


def inputs() -> dict[str, Finding]:
    """Inputs that may be added, as measured on a language model's experts, binary cells."""
    losses = load_losses()["cosine_loss"].sel(technique="base", adc_bits=8)
    at = {limit: largest_rows(losses, limit)["rows"] for limit in (0.01, 0.03)}
    rows = {limit: float(found.sel(sigma=0.15)) for limit, found in at.items()}
    least = int(losses["input_rows"].min())
    return {
        "S1.2": Finding(
            rows[0.01],
            rows[0.03],
            f"0: less than the {least} scanned. A loss of 3 % admits {rows[0.03]:.2g} inputs, and "
            f"1 % admits {float(at[0.01].sel(sigma=0.05)):.0f} at sigma 0.05, where 128 (0.15 / "
            "sigma)^2 gives 1152. N matters only while rounding restores sums; beyond that an "
            "output has the same spread in one cycle or many.",
        )
    }


def area() -> dict[str, Finding]:
    """What CAM cells, thermometer weights and states make of the cells."""
    lengths = (64, 96, 128, 256)
    cam = place(
        MappingFields(
            technique="t1", cam_bits=3, interleave=32, cells=lengths, identified="interleaved"
        ),
        moe_shapes("deepseek-v3"),
    )
    cells = float(cam["cam_cells"].max())
    lost = cam["cam_cells"].max("matrix") / MappingFields(cells=lengths).array("cells")
    found = evaluated(technique=("t1", "t1t2"))["area_efficiency"]
    lowered = float(found.sel(technique="t1t2") / found.sel(technique="t1"))
    schemes = MappingFields(
        technique="t1t2t3",
        states=(3, 4, 8),
        signed=("ternary", "binary", "twos_complement", "unary"),
    )
    digit = unit(schemes)
    restored = digit["binary_cells"] / (digit["lines"] * digit["parallel"])
    return {
        "S4.1": Finding(
            *extent(lost),
            f"5 bits in 3-bit cells of two transistors: {cells:g} cells, {span(lost)} of strings "
            f"of {lengths[-1]} to {lengths[0]} cells. Below 0.05 beyond {cells / 0.05:g} cells.",
        ),
        "S4.2": Finding(
            lowered,
            lowered,
            "Eight cells hold 2.3 bits as a unit, and four digits of -1, 0, 1 as pairs.",
        ),
        "S4.3": Finding(
            *extent(restored),
            "; ".join(f"{s.item()!s} {span(restored.sel(signed=s))}" for s in restored["signed"])
            + ".",
        ),
    }


def encodings() -> dict[str, Finding]:
    """Weights of units of m-state cells."""
    largest = float(weights(3).max())
    levels = ", ".join(f"{len(weights(m))} at m = {m}" for m in (2, 3, 4, 8))
    return {"S7.1": Finding(largest, largest, f"Levels: {levels}.")}
