"""Gains over Base: speed, energy, area, and the area-energy-delay product in both readings.

The paper's reductions of the product, 3.5 to 8.3 times, are no product of its other gains: 4 times
the throughput at 3.9 times the energy efficiency are 15.6 before any area. They are its energy
gains times its area efficiencies (3.9 x 0.90, 5.1 x 1.63). So there are two readings::

    aedp         base (area energy delay) / area energy delay
    aedp_paper   energy gain x area efficiency, no delay in it
"""

from __future__ import annotations

import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.arrays import described

__all__ = ["ARRAY", "gains", "shares"]

#: Components of the energy that the paper's breakdown calls the array (Fig. 9(a)).
ARRAY = ("precharge", "cam", "read", "bitline")


def gains(found: xr.Dataset, placed: xr.Dataset | None = None) -> xr.Dataset:
    """How many times better than Base, along ``technique``.

    Parameters
    ----------
    found : xarray.Dataset
        From `cost.cost`, with ``technique`` an axis that has ``base``.
    placed : xarray.Dataset, optional
        From `mapping.place`: its ``area_efficiency``, bits of weights a cell over Base's.
        Without, and without ``area`` in `found`, what needs it is left out.

    Returns
    -------
    xarray.Dataset
        ``speed`` of a token; ``array_speed`` in the paper's counting of operations;
        ``energy``; with an area ``area`` (Base's over it) and ``aedp``; with `placed`
        ``area_efficiency`` and ``aedp_paper``.

    Raises
    ------
    InputError
        If there is no Base to compare with.
    """
    base = _base(found)
    energy = found["energy"].sum("component")
    whole = {
        "speed": base["token_time"] / found["token_time"],
        "array_speed": found["array_throughput"] / base["array_throughput"],
        "energy": base["energy"].sum("component") / energy,
    }
    if "area" in found:
        whole["area"] = base["area"] / found["area"]
        whole["aedp"] = whole["area"] * whole["energy"] * whole["speed"]
    if placed is not None:
        stored = placed["area_efficiency"]
        whole["area_efficiency"] = stored
        whole["aedp_paper"] = whole["energy"] * stored
    return described(xr.Dataset(whole), _GAINS)


def shares(energy: xr.DataArray) -> xr.Dataset:
    """Shares of the ``array``, the converters (``adc``) and the rest (``digital``) in an energy.

    Parameters
    ----------
    energy : DataArray (..., component)
        From `cost.cost`.
    """
    whole = energy.sum("component")
    parts = {"array": list(ARRAY), "adc": ["adc"], "digital": ["digital"]}
    found = {n: energy.sel(component=parts[n]).sum("component") / whole for n in parts}
    texts = {name: ("1", f"share of {name} in the energy") for name in parts}
    return described(xr.Dataset(found), texts)


def _base(found: xr.Dataset) -> xr.Dataset:
    techniques = found["technique"].values.tolist() if "technique" in found.dims else []
    if "base" not in techniques:
        texts = ", ".join(techniques) or "no axis"
        raise InputError(f"gains: technique: found {texts}, allowed: an axis that has base")
    return found.sel(technique="base", drop=True)


_GAINS = {
    "speed": ("1", "time of a token in Base over it"),
    "array_speed": ("1", "operations a second over Base's, all bitlines busy"),
    "energy": ("1", "energy of a token in Base over it"),
    "area": ("1", "area of Base over it"),
    "aedp": ("1", "area x energy x delay of Base over it"),
    "area_efficiency": ("1", "bits of weights a cell over Base's"),
    "aedp_paper": ("1", "energy gain times area efficiency"),
}
