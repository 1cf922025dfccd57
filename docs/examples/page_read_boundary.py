"""Where a read decides, against data, place, temperature and the sense before.

``python docs/examples/page_read_boundary.py`` prints the tables of docs/circuits/page_read.md;
it takes a few minutes.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from circuits.page_read import PageRead
from nandcosim.spice.engine import Engine

CIRCUIT = PageRead()
ENGINE = Engine()
STROBE = CIRCUIT.Params().t_sense

#: Read levels between which it is looked for, in level spacings above the stored level's own.
SPAN = (-2.0, 8.0)

#: Strings with data of their own.
STRINGS = 20


def lateness(time: str, data: np.ndarray | None = None, **settings: float | str) -> float:
    """Logarithm of a crossing time over that of the strobe; log 4 if it is later than that."""
    params = CIRCUIT.Params(t_sense=4 * STROBE, **settings)
    knobs = {} if data is None else {"data": data}
    found = ENGINE.sample(CIRCUIT, params, knobs, wanted=frozenset({"bit", time}))
    crossing = found.responses[time]
    return float(np.log(4.0 if np.isnan(crossing) else crossing / STROBE))


def boundary(data: np.ndarray | None = None, **settings: float | str) -> float:
    """Margin in level spacings at which the bitline trips exactly at the strobe."""

    def late(margin: float) -> float:
        return lateness("t_cross", data, read="margin", margin=margin, **settings)

    return float(brentq(late, *SPAN, xtol=2e-4))


def boundary_after(read: str) -> float:
    """The same of level 2 at read level 3, alone or after read level 1 has blocked."""

    what: dict[str, float | str] = {"page": 0} if read == "page" else {"read_level": 3}

    def late(offset: float) -> float:
        return lateness("t_3", read=read, stored=2, offset=offset, **what)

    return float(brentq(late, -0.7, -0.3, xtol=2e-4)) + 0.5


def line(name: str, values: list[str]) -> None:
    print("| " + " | ".join([name, *values]) + " |")


def main() -> None:
    cells = CIRCUIT.Params().cells
    rng = np.random.default_rng(1)
    line("bits", ["spread", "erased", "programmed", "random: mean", "random: sd"])
    for bits in (1, 2, 3, 4):
        fixed = [boundary(bits=bits, pattern=name) for name in ("spread", "erased", "programmed")]
        drawn = [boundary(16 * rng.random(cells), bits=bits) for _ in range(STRINGS)]
        found = [*fixed, float(np.mean(drawn)), float(np.std(drawn, ddof=1))]
        line(str(bits), [f"{value:+.4f}" for value in found])
    print()
    places = (0.0, 0.02, 0.25, 0.5, 0.75, 1.0)
    line("position", [f"{place:g}" for place in places])
    for pattern in ("spread", "erased"):
        found = [boundary(position=place, pattern=pattern) for place in places]
        line(pattern, [f"{value:+.4f}" for value in found])
    print()
    temperatures = (-20.0, 0.0, 27.0, 55.0, 85.0)
    line("temperature in °C", [f"{each:g}" for each in temperatures])
    line("QLC", [f"{boundary(temperature=each):+.4f}" for each in temperatures])
    print()
    line("first sense", [f"{boundary_after('level'):+.4f}"])
    line("after one that blocked", [f"{boundary_after('page'):+.4f}"])


if __name__ == "__main__":
    main()
