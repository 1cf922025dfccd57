"""Trip margin of a nominal group against what the sweep behind the table held fixed.

    python docs/examples/audit_causes.py

One critical cell, m - 1 companions at one margin, an ideal sense amplifier; in level spacings.
"""

from __future__ import annotations

from nandcosim.audit.amplifier import TripTask, trip_margins

SIZES = (1, 2, 4, 8)


def show(label: str, **settings: float | str) -> None:
    found = [trip_margins(TripTask("dts_sense", settings, m, {}))[0] for m in SIZES]
    print(f"{label:<40}" + "".join(f"{each:+9.3f}" for each in found))


if __name__ == "__main__":
    print(f"{'':<40}" + "".join(f"{f'm = {m}':>9}" for m in SIZES))
    for pattern in ("spread", "erased"):
        for companion in (1.5, 2.5, 4.5):
            show(
                f"unselected {pattern}, companions at {companion}",
                pattern=pattern,
                companion_margin=companion,
            )
    for position in (0.0, 0.1, 0.9, 1.0):
        show(f"spread, 1.5, position {position}", position=position)
