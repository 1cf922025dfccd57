"""The circuits with the shipped planar card and with a BSIM-CMG card, side by side.

    NGSPICE_LIBRARY_PATH=<libngspice with OSDI> NANDCOSIM_OSDI=bsimcmg.osdi \
        python docs/examples/two_cards.py

prints the table of the page on dts_sense: Markdown, one column a card.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from circuits.dts_sense import DtsSense
from circuits.nand_string import NandString
from nandcosim.spice.engine import Engine, Outcome
from nandcosim.spice.status import Status

CARDS = ("planar16lp", "finfet14")
#: Wordlines driven at once.
COUNTS = (1, 2, 4, 8)
SAMPLES = 20
SENSED = frozenset({"bit", "t_cross"})


def checked(outcome: Outcome) -> Outcome:
    if outcome.status is not Status.OK:
        raise SystemExit(f"{outcome.status.label}: {outcome.reason}")
    return outcome


class Card:
    """Everything that the table says of one card."""

    def __init__(self, name: str, levels: Path) -> None:
        self.engine = Engine()
        self.circuit, self.string = DtsSense(), NandString()
        nominal = self.circuit.Params(card=name, levels=str(levels))
        self.boundary = self.circuit.calibrate(nominal, self.engine, levels)["v_boundary"]
        self.settings = {"card": name, "levels": str(levels)}

    def current(self, margin: float) -> float:
        """Current of the string in A, one active cell at `margin`."""
        params = self.string.Params(**self.settings, margin=margin)
        return checked(self.engine.sample(self.string, params)).responses["i_string"]

    def slope(self) -> float:
        """Subthreshold slope of the active cell in mV a decade, one and two levels off."""
        decades = np.log10(self.current(-1.0) / self.current(-2.0))
        return 1e3 * self.string.Params().spacing / float(decades)

    def crossing(self, m: int) -> float:
        """Crossing time in s of m matching cells at margin 1.5."""
        params = self.circuit.Params(**self.settings, m=m)
        return checked(self.engine.sample(self.circuit, params, None, SENSED)).responses["t_cross"]

    def trip_margin(self, m: int) -> float:
        """Margin in levels at which the nominal bit changes, one critical cell of m."""
        params = self.circuit.Params(**self.settings, m=m, margin=0.0)
        threshold = np.zeros(params.cells)

        def excess(margin: float) -> float:
            threshold[params.active[0]] = -margin
            knobs = {"threshold": threshold}
            wanted = frozenset({"bit"})
            outcome = checked(self.engine.sample(self.circuit, params, knobs, wanted))
            return outcome.responses["bit"] - 0.5

        return float(brentq(excess, -1.0, 1.0, xtol=1e-3))

    def seconds(self) -> float:
        """CPU time in s of a sample, mean of random ones (sigma 0.2, m = 4)."""
        params = self.circuit.Params(**self.settings, m=4)
        rng = np.random.default_rng(1)
        used = []
        for _ in range(SAMPLES):
            knobs = {"threshold": 0.2 * rng.standard_normal(params.cells)}
            outcome = checked(self.engine.sample(self.circuit, params, knobs, SENSED))
            used.append(outcome.cpu_seconds)
        return float(np.mean(used))

    def column(self) -> dict[str, str]:
        """Name of a quantity -> its value with unit."""
        times = {m: self.crossing(m) for m in COUNTS}
        rows = {
            "level boundary `v_boundary`": f"{1e3 * self.boundary:.1f} mV",
            "subthreshold slope of a cell, 27 °C": f"{self.slope():.1f} mV/decade",
            "string current, margin 1.5, bitline at 0.4 V": f"{1e9 * self.current(1.5):.1f} nA",
            "the same, margin 6 (the other cells' limit)": f"{1e9 * self.current(6.0):.1f} nA",
        }
        rows |= {f"crossing time, m = {m}": f"{1e6 * time:.3f} µs" for m, time in times.items()}
        rows["discharge penalty, m = 8 against m = 1"] = f"{100 * (times[8] / times[1] - 1):.2f} %"
        rows |= {f"trip margin, m = {m}": f"{self.trip_margin(m):+.3f} levels" for m in (1, 8)}
        rows["CPU time a sample (bit and crossing time)"] = f"{self.seconds():.2f} s"
        return rows


def main() -> None:
    """Measure both cards and print the table."""
    columns = []
    for name in CARDS:
        print(f"measuring {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            columns.append(Card(name, Path(folder) / "levels.toml").column())
    print(f"| | {' | '.join(f'`{name}`' for name in CARDS)} |")
    print("| --- |" + " ---: |" * len(CARDS))
    for quantity in columns[0]:
        print(f"| {quantity} | {' | '.join(column[quantity] for column in columns)} |")


if __name__ == "__main__":
    main()
