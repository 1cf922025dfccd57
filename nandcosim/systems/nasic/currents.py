"""Currents of the units that carry a weight digit, from the circuit's tables.

The tables `cim_string` and `cim_string_8` hold a string's current, and the product of a unit of
eight strings with the spread from unit to unit: strings err independently, the pulses of one
string together, as its CAM cell makes most of the error. Where the query is not the entry they
hold what a mismatched unit leaks.

A system's sigma is that of the current. Two rules make the tables' spread of it:

- ``scaled``: mean currents at the tables' nominal threshold spread (their first above 0), all
  deviations in proportion to sigma. A current's spread is linear in the threshold's within 4 %
  over all tables, so any sigma can be asked for.
- ``threshold``: the threshold spread at which a conducting string's current at the largest
  input has that sigma, and everything at that spread. Refuses what lies beyond the tables, which
  for four states is 0.19 and for eight 0.106.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.encodings import STRINGS, weights
from nandcosim.errors import InputError
from nandcosim.systems.arrays import where
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nasic.digits import (
    UnitFields,
    WeightCode,
    largest_digit,
    levels,
    over,
    weight_code,
)
from nandcosim.tables.cim_string import signed_reads

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["CurrentFields", "StringCurrents", "current_spreads", "ideal", "load", "table_of"]

SpreadRule = Literal["scaled", "threshold"]

#: Weights and levels that any unit of this package has.
_LARGEST, _LEVELS = 14, 4

#: Fields that decide which cells there are; the others broadcast.
_STRUCTURE = ("technique", "states", "strings", "input_levels", "cam_bits")


class CurrentFields(UnitFields):
    """How the circuit's tables are used."""

    spread_rule: SpreadRule | tuple[SpreadRule, ...] = setting(
        "scaled", unit="", meaning="currents in proportion to sigma, or at the threshold spread "
        "that makes it",
        origin="measured: tables cim_string, cim_string_8; proportional within 4 %",
    )  # fmt: skip


@dataclass(frozen=True)
class StringCurrents:
    """Currents of units over the input ``level`` and a configuration's axes.

    Half a unit is what one bitline sees of it: ``pairs`` of string and pulse that conduct. All
    but `lsb` is in units of `lsb`, so that a half ideally has the current pairs x level, and a
    unit (its halves' difference over `digits.WeightCode.gain`) digit x level.

    Attributes
    ----------
    mean, sd : DataArray (..., pairs, level)
        Of a half whose identifier is searched for, and its standard deviation from half to half.
    leak, leak_sd : DataArray (..., pairs, level)
        Of a half whose identifier is a neighbour of the one searched for.
    inl, unit_sd, unit_leak : DataArray (..., weight, level)
        Of a unit: its mean less weight x level; its standard deviation; root mean square of
        what it leaks.
    lsb : DataArray
        Current of a string (A): that of the line through 0 that fits the units best.
    """

    mean: xr.DataArray
    sd: xr.DataArray
    leak: xr.DataArray
    leak_sd: xr.DataArray
    inl: xr.DataArray
    unit_sd: xr.DataArray
    unit_leak: xr.DataArray
    lsb: xr.DataArray

    def at(self, point: SystemConfig) -> StringCurrents:
        """Those of one point of the axes.

        Raises
        ------
        InputError
            If they were loaded for others.
        """
        return StringCurrents(*(_selected(each, point) for each in vars(self).values()))


def ideal() -> StringCurrents:
    """Exact products, neither spread nor leakage, for any configuration."""
    pairs = np.arange(2 * _LARGEST + 1)
    weight = np.arange(-_LARGEST, _LARGEST + 1)
    level = np.arange(_LEVELS)
    product = np.outer(pairs, level).astype(float)
    mean = xr.DataArray(product, coords={"pairs": pairs, "level": level})
    half = xr.zeros_like(mean)
    unit = xr.DataArray(np.zeros_like(product), coords={"weight": weight, "level": level})
    return StringCurrents(mean, half, half, half, unit, unit, unit, xr.DataArray(1.0))


def load(tables: Mapping[str, CalibrationTable], config: CurrentFields) -> StringCurrents:
    """Currents of the units of `config`, over its axes.

    Binary cells of Base and T1 conduct or not, at the largest source-line voltage. With T2 and
    T3 half a unit is four strings in all pulses (Fig. 6(e), 7(e)).

    Parameters
    ----------
    tables : Mapping of str to CalibrationTable
        `cim_string`; `cim_string_8` for eight states; `cam_string` for CAM cells of other bits
        than `cim_string` has, by which the leakage is scaled.
    config : CurrentFields

    Raises
    ------
    InputError
        If a table is missing, a number of states is not tabulated, or sigma is beyond the
        tables where ``spread_rule`` is ``threshold``.
    """
    found = over(config, _STRUCTURE, lambda point: _of_unit(tables, point))
    return StringCurrents(*(found[each.name] for each in fields(StringCurrents)))


def _selected(values: xr.DataArray, point: SystemConfig) -> xr.DataArray:
    axes = [str(dim) for dim in values.dims if dim not in ("pairs", "weight", "level")]
    at = {axis: getattr(point, axis, None) for axis in axes}
    for axis, value in at.items():
        if value not in values[axis].values.tolist():
            known = ", ".join(str(each) for each in values[axis].values)
            raise InputError(f"currents: {axis} = {value}, allowed: {known}, as they were loaded")
    return values.sel(at)


def _of_unit(tables: Mapping[str, CalibrationTable], config: CurrentFields) -> xr.Dataset:
    """All of `StringCurrents` for one kind of unit."""
    code = weight_code(int(largest_digit(config)), 1, 2)  # of one unit, whatever the weight
    table = table_of(tables, code.states)
    threshold, factor = _threshold(table, config)
    mean, sd = _half(table, code, config, 1, threshold)
    leak, leak_sd = _half(table, code, config, 0, threshold)
    weight = np.arange(-code.largest, code.largest + 1)
    first, second = (
        xr.DataArray(pairs, coords={"weight": weight}) for pairs in code.halves(weight)
    )

    def unit(half: xr.DataArray) -> xr.DataArray:
        return (half.sel(pairs=first) - half.sel(pairs=second)) / code.gain

    def unit_sd(half: xr.DataArray) -> xr.DataArray:
        return (half.sel(pairs=first) ** 2 + half.sel(pairs=second) ** 2) ** 0.5 / code.gain

    product = unit(mean)
    ideally = product["weight"] * product["level"]
    lsb = (product * ideally).sum(("weight", "level")) / (ideally**2).sum()
    sd = sd * factor / lsb
    more = _more_leakage(tables, table, config) / lsb
    leak, leak_sd = leak * more, leak_sd * factor * more
    found = xr.Dataset(
        {
            "mean": mean / lsb,
            "sd": sd,
            "leak": leak,
            "leak_sd": leak_sd,
            "inl": product / lsb - ideally,
            "unit_sd": unit_sd(sd),
            "unit_leak": (unit(leak) ** 2 + unit_sd(leak_sd) ** 2) ** 0.5,
            "lsb": lsb,
        }
    )
    return found.reset_coords(drop=True).drop_attrs()


def table_of(tables: Mapping[str, CalibrationTable], states: int) -> CalibrationTable:
    """The table of cells of so many states, without an axis of them.

    Raises
    ------
    InputError
        If there is none.
    """
    table = tables["cim_string"]
    if states in table.dataset["states"]:
        return table.at(states=states)
    if f"cim_string_{states}" in tables:
        return tables[f"cim_string_{states}"]
    known = ", ".join(str(each) for each in table.dataset["states"].values)
    raise InputError(
        f"nasic: states = {states}, allowed: {known} as in table cim_string, "
        f"or with a table cim_string_{states}"
    )


def current_spreads(table: CalibrationTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Threshold spreads of a table (V), and a conducting string's sigma there.

    Parameters
    ----------
    table : CalibrationTable
        Of `table_of`.
    """
    known = table.dataset["sigma"].values
    at: dict[str, Any] = {
        "query": 1, "step": 1, "x": int(table.dataset["x"].max()), "sigma": known,
    }  # fmt: skip
    spread = table.lookup("current_sd", **at) / table.lookup("current", **at)
    return known, spread.values


def _threshold(table: CalibrationTable, config: CurrentFields) -> tuple[xr.DataArray, xr.DataArray]:
    """Threshold spread to look up (V), and what to multiply deviations with there."""
    known, spread = current_spreads(table)
    sigma = config.array("sigma").drop_attrs()
    by_threshold = config.array("spread_rule") == "threshold"
    if ((sigma > spread[-1]) & by_threshold).any():
        raise InputError(
            f"nasic: sigma = {float(sigma.max())}, allowed: up to {spread[-1]:.3f}, the largest in "
            "the table of these cells, or spread_rule=scaled"
        )
    wanted = xr.apply_ufunc(np.interp, sigma, kwargs={"xp": spread, "fp": known})
    return (
        where(by_threshold, wanted, known[1]),
        where(by_threshold, 1.0, sigma / spread[1]),
    )


def _half(
    table: CalibrationTable,
    code: WeightCode,
    config: CurrentFields,
    query: int,
    threshold: xr.DataArray,
) -> tuple[xr.DataArray, xr.DataArray]:
    """Current of half a unit over its conducting pairs, and its spread (A).

    A string errs alike in all of its pulses: its deviations add up, and their squares do over
    strings. The covariance of pulses in `product_sd` gives up to 5 % less (tested).
    """
    reads = _reads(table, code)
    x = _source_line_levels(table, int(levels(config)))

    def current(name: str) -> xr.DataArray:
        return table.lookup(name, query=query, step=reads["step"], sigma=threshold, x=x)

    mean = xr.dot(reads, current("current"), dim="step").sum("string")
    of_strings = xr.dot(reads, current("current_sd"), dim="step")
    return mean, (of_strings**2).sum("string") ** 0.5


def _reads(table: CalibrationTable, code: WeightCode) -> xr.DataArray:
    """How often a half reads each of its strings at each step: (pairs, string, step)."""
    steps = table.dataset["step"].values
    if code.gain == 1:
        counts = np.stack([(steps == 0)[None, :], (steps == 1)[None, :]]).astype(float)
    else:
        of_units = [signed_reads(int(w), code.states, steps) for w in weights(code.states)]
        if any(found is None for found in of_units):
            raise InputError(f"table {table.circuit}: a step of {code.states} states is missing")
        counts = np.stack([found[:STRINGS] for found in of_units if found is not None])
    return xr.DataArray(
        counts,
        dims=("pairs", "string", "step"),
        coords={"pairs": np.arange(len(counts)), "step": steps},
    )


def _source_line_levels(table: CalibrationTable, count: int) -> xr.DataArray:
    """Tabulated inputs that the levels are; two levels are none and the largest."""
    inputs = table.dataset["x"].values
    chosen = inputs[[0, -1]] if count == 2 else inputs[:count]
    return xr.DataArray(chosen, coords={"level": np.arange(count)})


def _more_leakage(
    tables: Mapping[str, CalibrationTable], table: CalibrationTable, config: CurrentFields
) -> float:
    """Leakage of CAM cells of so many bits over that of the table's own."""
    own = json.loads(table.dataset.attrs["circuit_parameters"])["layers"]
    asked = str(config.cam_bits)
    if asked == own:
        return 1.0
    cam = tables["cam_string"]

    def ratio(layers: str) -> float:
        worst, match = (cam.lookup(f"i_{n}", layers=layers, sigma=0.0) for n in ("worst", "match"))
        return float(worst / match)

    return ratio(asked) / ratio(own)
