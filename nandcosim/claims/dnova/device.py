"""D-NOVA's claims on the device and its arithmetic (D12, D14.4, D14.5, D15.2, D15.3)."""

from __future__ import annotations

import xarray as xr

from nandcosim.claims.claim import Finding
from nandcosim.systems.dnova import Config
from nandcosim.systems.dnova.cost import qlc_ratio
from nandcosim.systems.dnova.device import describe_device

__all__ = ["arithmetic", "organisation"]

#: Fig. 7(b): scores of a string of 128 groups, second stage.
_SCORES = (105, 120)


def arithmetic() -> dict[str, Finding]:
    """Sensing cycles (section 3.2) and the deficits that the scores of Fig. 7(b) imply."""
    config = Config()
    m = xr.DataArray([1, 2, 4, 8], dims="m", coords={"m": [1, 2, 4, 8]})
    ratio = qlc_ratio(m, config)
    cycles, times = (
        ", ".join(f"{float(value):.3g} at m = {int(value.m)}" for value in ratio[name])
        for name in ("cycles", "time")
    )
    best = float(ratio["time"].sel(m=4))
    groups = config.wordlines
    assert isinstance(groups, int)
    implied = sorted(groups - score for score in _SCORES)
    return {
        "D12": Finding(
            best,
            best,
            "Reproduced as a ratio of times at m = 4, (140 us / 30 us) m / 2.",
            contradiction=f"As cycles the stated formulas give (15 / 2) m: {cycles}; in time it "
            f"is {times}.",
        ),
        "D14.4": Finding(
            implied[0],
            implied[1],
            f"{groups} groups less {_SCORES[0]} to {_SCORES[1]}.",
            contradiction=f"Scores of Fig. 7(b) imply deficits of {implied[0]} to {implied[1]}, "
            "Fig. 7(c) has 5 to 13.",
        ),
    }


def organisation() -> dict[str, Finding]:
    """Widths, memory and area (sections 3.3 and 6.7)."""
    small = describe_device(Config(), 384, 2_680_000, 1024, 64, 1000)
    large = describe_device(Config(), 768, 2_680_000, 1024, 64, 1000)
    bits = [int(one["merge_bits_needed"]) for one in (small, large)]
    worst = [int(one["worst_deficit"]) for one in (small, large)]
    area = 100 * float(small["area_share"])
    kept = float(small["stage1_kept_bytes"])
    entry = int(small["centroid_entry_bits"])
    return {
        "D14.5": Finding(
            min(bits),
            max(bits),
            f"Merged deficits reach {worst[0]} and {worst[1]}.",
            contradiction=f"6 strings x 15 = {worst[0]} and 12 x 15 = {worst[1]} do not fit "
            "6 bits (63); they must saturate or be wider.",
        ),
        "D15.2": Finding(
            area,
            area,
            f"{int(small['accumulators'])} accumulators a plane.",
            contradiction=f"0.023 / 1.476 = {area:.2f} %, not below 1.5 %.",
        ),
        "D15.3": Finding(
            kept,
            kept,
            f"64 entries of {entry} bits, computed from the geometry (the paper: about 37).",
        ),
    }
