"""Markdown tables of the pages cam_string and cim_string.

python docs/img/nasic_tables.py cells              CAM map of a 2-bit cell (Fig. 4(d))
python docs/img/nasic_tables.py mask 1+2           masks and currents of all pairs, simulated
python docs/img/nasic_tables.py weights 3          states of the strings, by weight (Fig. 7(b, c))
python docs/img/nasic_tables.py operating          what the operating point rests on, simulated
python docs/img/nasic_tables.py spread             whose thresholds spread the current, simulated
python docs/img/nasic_tables.py cam TABLE.nc       currents and errors of the table cam_string
python docs/img/nasic_tables.py cim TABLE.nc       products and spreads of the table cim_string
python docs/img/nasic_tables.py products TABLE.nc 3  products by weight and input (Fig. 7(f))
python docs/img/nasic_tables.py pulse TABLE.nc     times and energies of the table cim_pulse
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
from scipy.stats import norm

from circuits.cam_string import CamString
from circuits.cim_string import THRESHOLD, CimString
from circuits.gated_string import cam_shifts, search_voltages
from nandcosim.encodings import cam_cell, complement, conducts, string_states, weights
from nandcosim.spice.engine import Engine
from nandcosim.tables import open_table
from nandcosim.tables.cim_string import signed_reads

#: Source-line levels in V that `nandcosim calibrate cim_string --set layers=...` finds.
SOURCE_LINE = {
    "1": {"v_x1": 0.02591, "v_x2": 0.04461},
    "1+1": {"v_x1": 0.02591, "v_x2": 0.04461},
    "2": {},
    "1+2": {},
    "3": {"v_x1": 0.03361, "v_x2": 0.04908},
}


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    names = [str(each) for each in head]
    for row in (names, ["---"] * len(names), *rows):
        print(f"| {' | '.join(map(str, row))} |")
    print()


def cells(bits: str = "2") -> None:
    params = CamString.Params(layers=bits)
    rows = []
    for code in range(params.codes):
        stored = cam_shifts(params.model_copy(update={"entry": code}))
        volts = search_voltages(params, code)
        t1, t2 = cam_cell(code, params.widths[0])
        rows.append([f"{code:0{bits}b}", t1, t2, *(f"{v:.3f}" for v in (*stored, *volts))])
    head = ["code", "level of T1", "of T2", "shift of T1 (V)", "of T2", "V_S1 (V)", "V_S2"]
    table(head, rows)


def mask(layers: str = "2") -> None:
    circuit, engine = CamString(), Engine()
    codes = circuit.Params(layers=layers, entry=0).codes
    rows = []
    for entry in range(codes):
        found = engine.sample(circuit, circuit.Params(layers=layers, entry=entry)).responses
        sensed = [int(found["mask"]) >> query & 1 for query in range(codes)]
        amperes = [max(found[f"i_q{query}"], 0.0) for query in range(codes)]
        rows.append([entry, *(f"{m} ({i * 1e9:.2g})" for m, i in zip(sensed, amperes, strict=True))])
    table(["entry", *(f"query {query}" for query in range(codes))], rows)


def weight_table(states: str = "3") -> None:
    m = int(states)
    rows = []
    for weight in weights(m):
        block_a = string_states(int(weight), m)
        block_b = complement(block_a, m)
        pairs = [int(conducts(block, m).sum()) for block in (block_a, block_b)]
        shown = [" ".join(map(str, block)) for block in (block_a, block_b)]
        rows.append([f"{weight:+d}", *shown, *pairs, pairs[0] - pairs[1]])
    table(["weight", "states of A", "of B", "conducting pairs of A", "of B", "difference"], rows)


def cam(path: str) -> None:
    data = open_table(path).dataset
    quiet = data.sel(sigma=0.0)
    rows = []
    for layers in data["layers"].values:
        each = quiet.sel(layers=layers)
        match, worst, other = (float(each[n]) * 1e9 for n in ("i_match", "i_worst", "i_other"))
        row = [f"{match:.3g}", f"{worst:.2g}", f"{match / worst:.3g}", f"{other / match:.2g}"]
        rows.append([layers, *row])
    head = ["layers", "match (nA)", "worst mismatch (nA)", "ratio", "all mismatches over match"]
    table(head, rows)

    def rates(name: str, what: str) -> None:
        rows = []
        for layers in data["layers"].values:
            each = data.sel(layers=layers)
            limits = zip(
                *(each[f"{name}_{part}"].values for part in ("probability", "low", "high")),
                strict=True,
            )
            rows.append([layers, *(f"{p:.3f} ({a:.3f} to {b:.3f})" for p, a, b in limits)])
            bits = np.array([int(part) for part in str(layers).split("+")])
            margins = 0.5 / np.maximum(data["sigma"].values, 1e-9)
            on = norm.cdf(margins) ** 2  # both transistors of a matching cell
            if name == "miss":
                closed = 1 - on**bits.size
            else:  # a neighbour on either side of every cell's code, 1 bit has one
                through = norm.sf(margins) * norm.cdf(3 * margins) * on ** (bits.size - 1)
                closed = 1 - (1 - through) ** int(np.minimum(bits, 2).sum())
            rows.append(["closed form", *(f"{p:.3f}" for p in closed)])
        table([what, *(f"σ = {s:g}" for s in data["sigma"].values)], rows)

    rates("miss", "match not sensed")
    rates("false_match", "a mismatch sensed")


def cim(path: str) -> None:
    data = open_table(path).dataset
    if "states" not in data.coords:
        data = data.assign_coords(states=int(data["weight"].max()) // 2 + 1)
        data = data.expand_dims("states")
    match, mismatch = data.isel(query=0), data.isel(query=1)
    rows = []
    for i, states in enumerate(match["states"].values):
        quiet = match.isel(states=i).sel(sigma=0.0)
        gone = mismatch.isel(states=i).sel(sigma=0.0)
        on, off = (float(quiet["current"].sel(step=s, x=3)) * 1e9 for s in (1, 0))
        leak = float(gone["current"].sel(step=1, x=3)) * 1e9 / on
        levels = int(quiet["product"].isel(x=-1).notnull().sum())
        row = [f"{on:.3g}", f"{off:.2g}", f"{on / off:.3g}", f"{leak:.2g}"]
        row += [f"{float(quiet['lsb']) * 1e9:.4g}", f"{float(quiet['inl_largest']):.3f}"]
        row += [f"{float(abs(quiet['inl'].isel(x=-1)).max()):.3f}"]
        rows.append([states, levels, *row, f"{float(quiet['dnl_largest']):.3f}"])
    head = ["states", "weights", "on (nA)", "off (nA)", "ratio", "mismatch over match"]
    table([*head, "LSB (nA)", "INL (LSB)", "INL at x = 3", "DNL (LSB)"], rows)

    rows = []
    for i, states in enumerate(match["states"].values):
        for sigma in match["sigma"].values[1:]:
            each = match.isel(states=i).sel(sigma=sigma)
            spread = [f"{float(each['current_spread'].sel(step=1, x=x)) * 100:.1f}" for x in (1, 2, 3)]
            units = each["product_sd"].sel(x=3) / each["lsb"]
            ends = [float(units.sel(weight=0)), float(units.dropna("weight")[-1])]
            rows.append([states, f"{sigma * 1e3:g}", *spread, *(f"{v:.2f}" for v in ends)])
    head = ["states", "σ of V_TH (mV)", "σ(I)/I at x = 1 (%)", "x = 2", "x = 3"]
    table([*head, "σ of a product at x = 3, W = 0 (LSB)", "at the largest W"], rows)

    rows = []
    for i, states in enumerate(match["states"].values):
        spread = match["current_spread"].isel(states=i).sel(step=1, x=3)
        if float(spread[-1]) > 0.15:
            volts = np.interp(0.15, spread.values, spread["sigma"].values)
            rows.append([states, f"{volts * 1e3:.1f}", f"{volts / 0.06:.2f}"])
    table(["states", "σ of V_TH for σ(I)/I = 15 % at x = 3 (mV)", "in QLC spacings of 60 mV"], rows)


def products(path: str, states: str = "3") -> None:
    data = open_table(path).dataset.isel(query=0).sel(sigma=0.0, states=int(states))
    product = data["product"].dropna("weight")
    rows = [
        [int(x), *(f"{round(v * 1e9, 1) + 0.0:.1f}" for v in product.sel(x=x).values)]
        for x in product["x"]
    ]
    table(["x", *(f"W = {w:+d}" for w in product["weight"].values)], rows)


def operating(states: str = "4") -> None:
    m = int(states)
    circuit, engine = CimString(), Engine()
    steps = np.arange(2 - m, m)

    def currents(**settings: float) -> np.ndarray:
        """String current in nA, shape (steps, x)."""
        found = []
        for step in steps:
            params = circuit.Params(states=m, step=int(step), **settings)
            outcome = engine.sample(circuit, params)
            found.append([outcome.responses[f"i_x{x}"] * 1e9 for x in range(4)])
        return np.array(found)

    rows = []
    for settings in (
        *({"read_margin": margin} for margin in (0.5, 0.6, 0.7, 0.8)),
        {"cells": 32},
        {"v_pass": 1.5},
        {"search_margin": 0.7},
    ):
        current = currents(**settings)
        codes = weights(m)
        y = np.array([signed_reads(int(w), m, steps).sum(axis=0) @ current[:, 3] for w in codes])
        inl = np.abs(y / y[-1] * codes[-1] - codes).max() * 3
        on, off = current[steps == 1, 3].item(), current[steps == 0, 3].item()
        shown = " ".join(f"{name} = {value:g}" for name, value in settings.items())
        rows.append([shown, f"{on:.1f}", f"{off / on * 100:.2g}", f"{inl:.2f}"])
    table(["changed", "on at x = 3 (nA)", "off over on (%)", "INL at x = 3 (LSB)"], rows)

    rows = []
    for v_bl in (0.03, 0.06, 0.2):
        thirds = {"v_x1": v_bl / 3, "v_x2": 2 * v_bl / 3, "v_x3": v_bl}
        current = currents(v_bl=v_bl, **thirds)[steps == 1][0]
        rows.append([f"{v_bl * 1e3:g}", *(f"{i:.2f}" for i in current[1:])])
    table(["v_bl (mV)", "current at a third of it (nA)", "at two thirds", "at all of it"], rows)


def spread(samples: str = "300") -> None:
    """Whose thresholds, at 12 mV, make the current's spread; for several CAM cells."""
    circuit, engine = CimString(), Engine()
    rows = []
    for layers, levels in SOURCE_LINE.items():
        params = circuit.Params(layers=layers, **levels)
        shares = []
        for cells in (THRESHOLD.groups["cam"](params), np.arange(params.cells)):
            rng = np.random.default_rng(0)
            found = []
            for _ in range(int(samples)):
                errors = np.zeros(params.cells)
                errors[cells] = 0.012 * rng.standard_normal(cells.size)
                responses = engine.sample(circuit, params, {"threshold": errors}).responses
                found.append([responses[f"i_x{x}"] * 1e9 for x in (1, 3)])
            shares.append(np.std(found, axis=0) / np.mean(found, axis=0) * 100)
        on = np.mean(found, axis=0)[1]
        rows.append([layers, params.codes, f"{on:.1f}", *(f"{v:.1f}" for v in np.ravel(shares))])
    head = ["CAM layers", "identifiers", "on at x = 3 (nA)", "σ(I)/I from CAM alone, x = 1 (%)"]
    table([*head, "x = 3", "from all cells, x = 1", "x = 3"], rows)


def pulse(path: str) -> None:
    data = open_table(path).dataset
    rows = []
    for states in data["states"].values:
        for tau in data["tau_read"].values:
            each = data.sel(states=states, tau_read=tau, x=3)
            t1, t2, bitline, gates = (float(each[n]) for n in ("t1", "t2", "e_bl", "e_wl"))
            times = [f"{t1 * 1e6:.1f}", f"{t2 * 1e6:.1f}", f"{t2 / t1:.3f}"]
            times = ["" if text == "nan" else text for text in times]
            whole = t1 + (states - 2) * np.nan_to_num(t2)
            gained = [f"{(states - 1) * t1 / whole:.2f}"]
            energies = [f"{bitline * 1e15:.0f}", f"{gates * 1e15:.0f}"]
            rows.append([states, f"{tau * 1e6:g}", *times, *gained, *energies])
    head = ["states", "tau_read (µs)", "t1 (µs)", "t2 (µs)", "t2 / t1", "products a time, to 2 states"]
    table([*head, "e_bl (fJ)", "e_wl (fJ)"], rows)


if __name__ == "__main__":
    {"cells": cells, "mask": mask, "weights": weight_table, "cam": cam, "cim": cim,
     "products": products, "operating": operating, "spread": spread, "pulse": pulse}[sys.argv[1]](*sys.argv[2:])  # fmt: skip
