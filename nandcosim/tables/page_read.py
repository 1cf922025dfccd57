"""The table of `page_read`: where a read decides, and what that makes of a page's bits.

Three kinds of sweep are fitted, and a table has what its sweep allows:

- `margin` as an axis: place and spread of the decision (as for `dts_sense`), and the raw
  bit error rates that follow from them and from the threshold distributions;
- `stored` and, on every read level, the sensed bit: bit errors as they were counted;
- `stored` and `page`: time and energy of reading a page of uniform data.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.intervals import wilson
from nandcosim.page_coding import CODINGS, data_bits, level_bits, page_names, read_levels
from nandcosim.spice.status import Status
from nandcosim.tables.dts_sense import fit_dts_sense
from nandcosim.tables.generic import fit_responses
from nandcosim.tables.samples import Samples
from nandcosim.threshold import bit_error_rate

__all__ = ["RETRIES", "SHIFTS", "SIGMAS", "fit_page_read"]

#: Grid of the modelled bit error rates: standard deviation of all levels, mean shift of
#: the top level (the others in proportion), both in level spacings, and number of the retry.
SIGMAS = tuple(float(each) for each in np.arange(8, 33) / 80)
SHIFTS = tuple(float(each) for each in np.arange(-4, 2) / 10)
RETRIES = tuple(range(5))

#: Every page that a cell of one to four bits has.
PAGES = page_names(4)

NO_PAGE = "a cell of so few bits has no such page"
NO_DECISION = "the outcomes do not determine the decision, see fit_kind"


def fit_page_read(samples: Samples) -> xr.Dataset:
    """Fit a table of page reads.

    Returns
    -------
    xarray.Dataset
        With the axis `margin`: all that `fit_dts_sense` finds, and ``bit_error_rate`` with
        ``bit_error_low`` and ``bit_error_high`` over the other axes, ``coding``, ``page``,
        ``sigma``, ``shift`` and ``retry``. With the axis `stored` and all the responses
        ``bit_1``, ...: ``observed_error_rate`` with ``observed_low`` and ``observed_high``,
        ``bit_errors`` and ``bits_read``. With the axes `stored` and `page`, ``e_sense`` and
        ``t_read``: ``page_energy``, ``page_time`` and ``senses``. Always the summaries of the other
        responses.
    """
    if "margin" in samples.axes and "bit" in samples.response_names:
        table = fit_dts_sense(samples)
        if "pass_location" in table:
            _add_modelled_errors(table, samples)
        return table
    table = fit_responses(samples)
    if "stored" not in samples.axes or "bits" in samples.axes:
        return table
    responses, all_levels = set(samples.response_names), range(1, 2 ** _setting(samples, "bits"))
    if {f"bit_{n}" for n in all_levels} <= responses:
        _add_observed_errors(table, samples)
    if "page" in samples.axes and {"e_sense", "t_read"} <= responses:
        _add_page_cost(table, samples)
    return table


def _setting(samples: Samples, name: str) -> Any:
    """Value of a circuit parameter that is no axis of the sweep."""
    given = samples.spec.get("parameters", {})
    if name in given:
        return given[name]
    defaults = samples.store.attrs["circuit_parameters"]
    return (json.loads(defaults) if isinstance(defaults, str) else defaults)[name]


# ---------------------------------------------------------------- modelled


def _add_modelled_errors(table: xr.Dataset, samples: Samples) -> None:
    """Bit error rates over the grid, with limits from those of the decision."""
    place = [table[f"pass_location{end}"] for end in ("_low", "_high")]
    width = [table[f"pass_spread{end}"] for end in ("_low", "_high")]
    corners = [
        _error_rates(location, spread, samples)
        for location, spread in itertools.product(place, width)
    ]
    best = _error_rates(table["pass_location"], table["pass_spread"], samples)
    around = xr.concat([best, *corners], "corner")
    about = {"units": "1", "undefined": _why_undefined(best), "valid_min": 0.0, "valid_max": 1.0}
    limit = "limit of bit_error_rate from the 95 % limits of pass_location and pass_spread"
    for name, rate, meaning in (
        ("bit_error_rate", best, "modelled raw bit error rate, all levels equally frequent"),
        ("bit_error_low", around.min("corner"), f"lower {limit}"),
        ("bit_error_high", around.max("corner"), f"upper {limit}"),
    ):
        table[name] = rate.where(best.notnull())
        table[name].attrs = about | {"long_name": meaning}
    table["bit_error_rate"].attrs |= {"low": "bit_error_low", "high": "bit_error_high"}
    for axis, unit, interpolation, meaning in (
        ("coding", "", "exact", "Gray code"),
        ("page", "", "exact", "page"),
        ("sigma", "level", "linear", "standard deviation of every level"),
        ("shift", "level", "linear", "mean shift of the top level, others in proportion"),
        ("retry", "1", "exact", "number of the read retry, 0 the default read"),
    ):
        table[axis].attrs.update(units=unit, long_name=meaning, interpolation=interpolation)


def _why_undefined(rate: xr.DataArray) -> str:
    """What of the two reasons applies: every cell has the first page, and few have the last."""
    unknown = rate.isnull()
    fitted = ~unknown.sel(page=PAGES[0])
    reasons = {
        NO_DECISION: not bool(fitted.all()),
        NO_PAGE: bool((unknown.sel(page=PAGES[-1]) & fitted).any()),
    }
    return "; or ".join(reason for reason, applies in reasons.items() if applies)


def _error_rates(location: xr.DataArray, spread: xr.DataArray, samples: Samples) -> xr.DataArray:
    step = _setting(samples, "retry_step")
    if "bits" not in location.dims:
        return _cell_error_rates(location, spread, _setting(samples, "bits"), step)
    each = [
        _cell_error_rates(location.sel(bits=bits), spread.sel(bits=bits), int(bits), step)
        for bits in location["bits"].values
    ]
    return xr.concat(each, "bits").transpose(*location.dims, ...)


def _cell_error_rates(
    location: xr.DataArray, spread: xr.DataArray, bits: int, step: float
) -> xr.DataArray:
    """Over the dims of the decision, coding, page, sigma, shift and retry."""
    top = xr.DataArray(list(SHIFTS), dims="shift", coords={"shift": list(SHIFTS)})
    charge = xr.DataArray(np.arange(2**bits) / (2**bits - 1), dims="level")
    charge = charge.assign_coords(level=np.arange(2**bits))
    rates = [
        bit_error_rate(
            bits,
            top * charge,
            xr.DataArray(list(SIGMAS), dims="sigma", coords={"sigma": list(SIGMAS)}),
            coding=coding,
            retry=xr.DataArray(list(RETRIES), dims="retry", coords={"retry": list(RETRIES)}),
            retry_step=step,
            location=location,
            spread=spread,
        )
        for coding in CODINGS
    ]
    joined = xr.concat(rates, xr.DataArray(list(CODINGS), dims="coding", name="coding"))
    ordered = joined.reindex(page=list(PAGES))
    return ordered.transpose(*location.dims, "coding", "page", "sigma", "shift", "retry")


# ---------------------------------------------------------------- observed


def _add_observed_errors(table: xr.Dataset, samples: Samples) -> None:
    """Count the wrong bits of every page, over all stored levels together."""
    bits = _setting(samples, "bits")
    dims = (*samples.axes, "sample")
    # Levels have equal shares: a sample counts if it was run at all of them.
    run = xr.DataArray(samples.status != Status.NOT_RUN, dims=dims).all("stored")
    ok = xr.DataArray(samples.ok, dims=dims) & run
    names = [f"bit_{n}" for n in range(1, 2**bits)]
    senses = np.stack([samples.response(name) for name in names], axis=-1)
    senses = np.where(samples.ok[..., np.newaxis], senses, 1.0)
    stored = samples.store["stored"].values
    counts = []
    for coding in CODINGS:
        sensed = xr.DataArray(data_bits(senses, bits, coding), dims=(*dims, "page"))
        right = xr.DataArray(level_bits(bits, coding)[stored], dims=("stored", "page"))
        counts.append(((sensed != right) & ok).sum(("stored", "sample")))
    errors = xr.concat(counts, "coding").transpose(..., "coding", "page")
    read = ok.sum(("stored", "sample"))
    failed = (run & ~ok).broadcast_like(ok).sum(("stored", "sample"))
    lower, upper = wilson(errors, read.broadcast_like(errors), failed.broadcast_like(errors))
    limit = "95 % Wilson limit of observed_error_rate, failed samples taken as"
    about = {"units": "1", "undefined": "no sample succeeded"}
    for name, values, meaning in (
        ("observed_error_rate", (errors / read).values, "observed fraction of wrong bits"),
        ("observed_low", lower, f"lower {limit} right"),
        ("observed_high", upper, f"upper {limit} wrong"),
        ("bit_errors", errors.values, "wrong bits, all stored levels together"),
    ):
        table[name] = (errors.dims, values, about | {"long_name": meaning})
    table["bits_read"] = (
        read.dims,
        read.values,
        {"units": "1", "long_name": "bits that were read of each page"},
    )
    table["observed_error_rate"].attrs |= {"low": "observed_low", "high": "observed_high"}
    for axis, labels in (("coding", CODINGS), ("page", page_names(bits))):
        table.coords[axis] = (axis, list(labels), {"units": "", "interpolation": "exact"})


# ---------------------------------------------------------------- cost


def _add_page_cost(table: xr.Dataset, samples: Samples) -> None:
    """Senses, time and energy of each page, the mean over the stored levels."""
    bits = _setting(samples, "bits")
    senses = xr.DataArray(
        [[read_levels(bits, page, each).size for page in range(bits)] for each in CODINGS],
        coords={"coding": list(CODINGS), "page": range(bits)},
    )
    coding = table["coding"] if "coding" in table.dims else _setting(samples, "coding")
    senses = senses.sel(coding=coding, page=table["page"]).drop_vars("coding", errors="ignore")
    energy = table["e_sense"].mean("stored", skipna=False) * senses
    strata = (table["e_sense_se"] ** 2).sum("stored", skipna=False)
    error = strata**0.5 / table.sizes["stored"] * senses
    for name, quantity, unit, meaning in (
        ("senses", senses, "1", "senses of the page"),
        ("page_time", table["t_read"].mean("stored"), "s", "time of the whole read"),
        ("page_energy", energy, "J", "energy from the supply of a bitline, whole read"),
        ("page_energy_se", error, "J", "standard error of page_energy"),
    ):
        dims = [axis for axis in samples.axes if axis in quantity.dims]
        values = quantity.transpose(*dims).values
        table[name] = (dims, values, {"units": unit, "long_name": meaning})
    table["page_energy"].attrs |= {
        "standard_error": "page_energy_se",
        "perturb": "normal",
        "undefined": "some stored level has no successful sample",
    }
