"""The papers' circuit-level figures beside those of the shipped tables, as Markdown.

    python docs/examples/circuit_claims.py
"""

from __future__ import annotations

import xarray as xr

from nandcosim import load_tables
from nandcosim.threshold import bit_error_rate

TABLES = load_tables()


def percent(value: xr.DataArray, low: xr.DataArray, high: xr.DataArray) -> str:
    """A fraction with its interval, in per cent."""
    return f"{100 * float(value):.1f} ({100 * float(low):.1f} to {100 * float(high):.1f})"


def rows(*lines: tuple[str, ...]) -> None:
    """Print a table; the first line is its head."""
    for i, line in enumerate(lines):
        print(f"| {' | '.join(line)} |")
        if i == 0:
            print("|" + " --- |" * len(line))
    print()


def discharge() -> None:
    """D-NOVA section 6.7: with m = 8 the sensing latency differs by 5.6 % only."""
    table = TABLES["dts_discharge"].dataset
    print("**Discharge time relative to m = 1** (D-NOVA section 6.7: +5.6 % at m = 8)\n")
    sizes = [m for m in table.m.values if m != 1]
    lines = []
    for companion in table.companion_margin.values:
        here = table.sel(companion_margin=companion)
        cells = [
            f"{100 * float(here.discharge_penalty.sel(m=m)):+.1f} ± "
            f"{196 * float(here.discharge_penalty_se.sel(m=m)):.1f} %"
            for m in sizes
        ]
        lines.append((f"{companion:g}", *cells))
    rows(("companions' margin", *(f"m = {m}" for m in sizes)), *lines)


def accuracy() -> None:
    """D-NOVA Fig. 14(a): below 10 % for alpha = 1, restored for alpha >= 2."""
    table = TABLES["dts_accuracy"].dataset
    print("**One check right, in per cent** (95 % interval; r = q, 1,000 samples a point)\n")
    lines = [
        (f"{sigma:g}", *(
            percent(*(table[name].sel(sigma=sigma, margin=margin)
                      for name in ("pass_probability", "pass_low", "pass_high")))
            for margin in table.margin.values))
        for sigma in table.sigma.values
    ]
    heads = (f"α = {margin + 0.5:g}" for margin in table.margin.values)
    rows(("σ (level spacings)", *heads), *lines)


def strings() -> None:
    """The same, all 128 checks of a string right."""
    table = TABLES["dts_strings"].dataset
    print("**All 128 checks of a string right, in per cent** (D-NOVA Fig. 14(a))\n")
    lines = [
        (f"{sigma:g}", *(
            percent(*(table[f"string_pass_{name}"].sel(sigma=sigma, margin=margin)
                      for name in ("probability", "low", "high")))
            for margin in table.margin.values))
        for sigma in table.sigma.values
    ]
    heads = (f"α = {margin + 0.5:g}" for margin in table.margin.values)
    rows(("σ (level spacings)", *heads), *lines)


def cam() -> None:
    """NASiC Fig. 4(d): only an equal query opens the string."""
    table = TABLES["cam_string"].dataset.sel(sigma=0.0)
    print("**CAM: match against the worst mismatch** (NASiC Fig. 4(d): conducts only if equal)\n")
    lines = []
    for layers in table["layers"].values:
        match, worst = (float(table[name].sel(layers=layers)) for name in ("i_match", "i_worst"))
        lines.append((str(layers), f"{match * 1e9:.3g} nA", f"{worst * 1e9:.2g} nA",
                      f"{match / worst:.3g}"))
    rows(("bits of the layers", "match", "worst mismatch", "ratio"), *lines)


def cim() -> None:
    """NASiC Fig. 6(f), 7(f): distinct and linear current steps."""
    table = TABLES["cim_string"].dataset.isel(query=0).sel(sigma=0.0)
    print("**CIM: products of the dual block** (NASiC Fig. 6(f), 7(f): \"high linearity\")\n")
    lines = []
    for m in table["states"].values:
        each = table.sel(states=m)
        levels = int(each["product"].isel(x=-1).notnull().sum())
        lines.append((str(m), str(levels), f"{4 * (m - 1) + 1}", f"{float(each['lsb']) * 1e9:.3g} nA",
                      f"{float(each['inl_largest']):.2f}", f"{float(each['dnl_largest']):.2f}"))
    rows(("states", "weights, ours", "paper's", "LSB", "INL (LSB)", "DNL (LSB)"), *lines)


def errors() -> None:
    """D-NOVA section 6.4: sigma of about 0.2 corresponds to an RBER of about 1e-2."""
    decision = TABLES["page_read"].dataset.sel(bits=4)
    place = {"location": decision["pass_location"], "spread": decision["pass_spread"]}
    print("**Raw bit error rate of QLC pages** (D-NOVA section 6.4: about 1e-2 at σ = 0.2)\n")
    lines = []
    for sigma in (0.1, 0.15, 0.2, 0.25, 0.3, 0.35):
        rate = bit_error_rate(4, 0.0, sigma, coding="balanced", **place)
        shifted = bit_error_rate(4, -0.155, sigma, coding="balanced", **place)
        lines.append((f"{sigma:g}", f"{float(rate.mean()):.2e}", f"{float(shifted.mean()):.2e}"))
    rows(("σ (level spacings)", "no shift", "top level lost 0.155"), *lines)


if __name__ == "__main__":
    discharge()
    accuracy()
    strings()
    cam()
    cim()
    errors()
