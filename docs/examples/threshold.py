"""Threshold distributions of a QLC page, at once, after a month and after a year.

``python docs/examples/threshold.py`` prints the tables of docs/threshold.md and draws
docs/img/threshold.png.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import norm

from nandcosim.threshold import NOMINAL, ThresholdParams, bit_error_rate, level_distributions

PICTURE = Path(__file__).parents[1] / "img" / "threshold.png"

DAY = 86400.0
TIMES = {"at once": 0.0, "1 month": 30 * DAY, "1 year": 365 * DAY}
WORN = {"cycles": NOMINAL["cycles"], "storage_temperature": NOMINAL["storage_temperature"]}

#: Condition -> what `level_distributions` is told.
ROWS = {
    "fresh block, at once": {},
    "1,000 cycles, at once": {"cycles": 1000.0},
    "1,000 cycles, 1 month at 40 °C": WORN | {"retention": TIMES["1 month"]},
    "1,000 cycles, 3 months at 40 °C (nominal)": NOMINAL,
    "1,000 cycles, 1 year at 40 °C": WORN | {"retention": TIMES["1 year"]},
    "3,000 cycles, 1 year at 55 °C": {
        "cycles": 3000.0,
        "retention": TIMES["1 year"],
        "storage_temperature": 55.0,
    },
    "fresh block, read 50 K warmer than programmed": {"read_temperature": 80.0},
}


def table() -> None:
    print("| condition | σ | top level's shift | error rate | after the best of 8 retries |")
    print("| --- | --- | --- | --- | --- |")
    for name, condition in ROWS.items():
        found = level_distributions(4, **condition)
        rates = [
            float(bit_error_rate(4, found["mean_shift"], found["sigma"], retry=retry).mean())
            for retry in range(9)
        ]
        sigma, shift = float(found["sigma"][1:].mean()), float(found["mean_shift"][-1])
        best = int(np.argmin(rates))
        print(
            f"| {name} | {sigma:.3f} | {shift:+.2f} | {rates[0]:.2g} | {rates[best]:.2g} ({best}) |"
        )


def constants() -> None:
    print("| constant | unit | default | allowed | meaning | origin |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, constant in ThresholdParams.model_json_schema()["properties"].items():
        allowed = f"{constant['minimum']:g} to {constant['maximum']:g}"
        meaning = constant["description"].replace("*", "\\*")
        print(
            f"| `{name}` | {constant['unit']} | {constant['default']:g} | {allowed} "
            f"| {meaning} | {constant['source']} |"
        )
    print()


def picture() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    x = np.linspace(-4.5, 16, 3000)
    for panel, (name, time) in zip(figure.subplots(3, 1, sharex=True), TIMES.items(), strict=True):
        found = level_distributions(4, retention=time, **WORN)
        rate = float(bit_error_rate(4, found["mean_shift"], found["sigma"]).mean())
        for level, (shift, sigma) in enumerate(
            zip(found["mean_shift"].values, found["sigma"].values, strict=True)
        ):
            density = norm.pdf(x, level + shift, sigma) / 16
            panel.fill_between(x, density, 1e-5, color="#0072B2", alpha=0.35, linewidth=0)
            panel.plot(x, density, color="#0072B2", linewidth=0.8)
        for read_level in range(1, 16):
            panel.axvline(read_level - 0.5, color="0.45", linewidth=0.7, linestyle=(0, (1, 3)))
        panel.set(yscale="log", ylim=(1e-4, 0.4), xlim=(-4.5, 16), ylabel="share of cells")
        panel.set_title(
            f"1,000 cycles, {name}: raw bit error rate {rate:.1e}", fontsize=10, loc="left"
        )
        panel.spines[["top", "right"]].set_visible(False)
    panel.set_xlabel("threshold [level spacings]; dotted: read levels")
    panel.set_xticks(range(16))
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    constants()
    table()
    picture()
