"""Time, energy and area of experts in the array, in closed form over any axes of configuration.

`cycles` says how many cycles a token takes and what they activate; here is what that costs. A cycle
is Fig. 7(d)'s: wordlines rise and the first pulse settles, then m - 2 further pulses, each
converted by converters that serve several bitlines in turn::

    cycle  first + c + (m - 2) (further + c)            c = bitlines_per_adc adc_time / 2
    token  layers  sum over matrices of  passes ceil(G / I) X cycle

with first = t1 + t2 and further = t2 of the paper. A pair of bitlines is converted as one
difference. Options: wordlines held while the X input digits change, conversions hidden behind
the next pulse, one conversion of the pulses' sum.

Energy is the lines' C V^2, the current of the strings that conduct, conversions, and adding their
results. Waiting (leakage, pumps, regulators) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from nandcosim.encodings import STRINGS
from nandcosim.systems.arrays import described, maximum, stacked, where
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.nand import Positive
from nandcosim.systems.nasic.cycles import (
    CycleFields,
    at_ratio,
    counts,
    input_dimension,
    selects_experts,
    used_states,
)
from nandcosim.systems.nasic.digits import levels
from nandcosim.systems.nasic.mapping import place, unit
from nandcosim.tables.table import DATA_FOLDER, CalibrationTable, open_table

__all__ = [
    "COMPONENTS",
    "CostFields",
    "area",
    "at_ratio",
    "cost",
    "cycle_time",
    "energy",
    "input_dimension",
    "pulse_times",
]

#: Parts that the energy of a token is the sum of.
COMPONENTS = ("precharge", "cam", "read", "bitline", "adc", "digital")

NotNegative = Annotated[float, Field(ge=0.0)]
Timing = Literal["table", "wordline", "given"]
_Tables = Mapping[str, CalibrationTable]

#: The point of the table `wordline` that costs are taken from and scaled; nominal lines.
_LINE: dict[str, Any] = {"m": 1, "layers": 128, "roughness": 0.0}


class _TimeFields(SystemConfig):
    timing: Timing | tuple[Timing, ...] = setting(
        "table", unit="", meaning="time of pulses: as simulated, with a wordline of 6 us; the same "
        "scaled to the wordline of `bitlines`; or t1 and t2",
        origin="measured: tables cim_pulse and wordline",
    )  # fmt: skip
    tau_read: Positive | tuple[Positive, ...] = setting(
        6e-6, unit="s", meaning="time constant of the selected wordline; the others have 6 us",
        origin="derived: a wordline like the others (table cim_pulse, 0.6 to 6 us)",
    )  # fmt: skip
    t1: Positive | tuple[Positive, ...] = setting(
        33e-6, unit="s", meaning="fixed delay before the first pulse, with timing=given",
        origin="derived: first pulse of table cim_pulse, 37 us, less t2",
    )  # fmt: skip
    t2: NotNegative | tuple[NotNegative, ...] = setting(
        3.3e-6, unit="s", meaning="delay of a pulse, with timing=given",
        origin="assumed: not stated; a tenth of t1 (Fig. 7(d): a small fraction)",
    )  # fmt: skip
    between_inputs: Literal["rise", "hold"] | tuple[Literal["rise", "hold"], ...] = setting(
        "rise", unit="", meaning="wordlines between the digits of an input: they rise anew, or are "
        "held while select or source lines change",
        origin="stated: Fig. 7(d) for a cycle with its precharge; hold is assumed possible",
    )  # fmt: skip
    select_time: NotNegative | tuple[NotNegative, ...] = setting(
        0.5e-6, unit="s", meaning="settling of select lines, source line and bitline",
        origin="derived: to 1 % of the 0.1 us that cim_pulse gives bitlines and source line",
    )  # fmt: skip
    conversion: Literal["pulse", "cycle"] | tuple[Literal["pulse", "cycle"], ...] = setting(
        "pulse", unit="", meaning="conversions: of every pulse, or of the sum of a cycle's pulses",
        origin="stated: Fig. 8(c), several read pulses and sensing phases a cycle",
    )  # fmt: skip
    adc_overlap: Literal["none", "pulse"] | tuple[Literal["none", "pulse"], ...] = setting(
        "none", unit="", meaning="conversions: before the next pulse, or behind it from a sample",
        origin="assumed: not stated; a sample takes a hold capacitor a bitline",
    )  # fmt: skip
    pair_conversion: Literal["difference", "each"] | tuple[Literal["difference", "each"], ...] = (
        setting(
            "difference", unit="", meaning="the two bitlines of a weight: converted as one "
            "difference, or each",
            origin="assumed: not stated",
        )
    )  # fmt: skip


class _EnergyFields(SystemConfig):
    precharged: Literal["active", "plane"] | tuple[Literal["active", "plane"], ...] = setting(
        "active", unit="", meaning="wordlines that rise in a cycle: of blocks with inputs, or of "
        "all blocks of the plane",
        origin="assumed: not stated; decides whether T1 saves any of it",
    )  # fmt: skip
    pass_voltage: Positive | tuple[Positive, ...] = setting(
        6.0, unit="V", meaning="unselected wordlines; the selected ones in proportion",
        origin="sourced: some 6 V in a real array; table wordline is for 1.2 V",
    )  # fmt: skip
    bitline_voltage: Positive | tuple[Positive, ...] = setting(
        0.06, unit="V", meaning="bitlines above the source line; the strings' current stays",
        origin="derived: operating point of table cim_pulse",
    )  # fmt: skip
    digital_energy: NotNegative | tuple[NotNegative, ...] = setting(
        0.1e-12, unit="J", meaning="shifting and adding the result of a conversion",
        origin="sourced: a 32-bit addition, 45 nm (Horowitz, ISSCC 2014)",
    )  # fmt: skip
    string_area: Positive | tuple[Positive, ...] = setting(
        4.8e-8, unit="mm^2", meaning="area of a string, its share of slits and periphery included",
        origin="derived: 128 cells of 3 bits at 8 Gb/mm^2, which is assumed",
    )  # fmt: skip


class CostFields(_TimeFields, _EnergyFields, CycleFields):
    """How a cycle proceeds and what lines, converters and strings cost."""


# ---------------------------------------------------------------- all of it


def cost(
    config: CostFields,
    shapes: xr.Dataset,
    placed: xr.Dataset | None = None,
    tables: _Tables | None = None,
    measured: xr.DataArray | None = None,
) -> xr.Dataset:
    """Cost of the experts of one token in all layers.

    Parameters
    ----------
    config : CostFields
    shapes : xarray.Dataset
        From `moe.moe_shapes`, one model or along ``model``.
    placed : xarray.Dataset, optional
        From `mapping.place`, of ``at_ratio(config, shapes)`` and `input_dimension`, if it is
        at hand.
    tables : Mapping of str to CalibrationTable, optional
        By default those that ship.
    measured : DataArray, optional
        As `input_dimension`.

    Returns
    -------
    xarray.Dataset
        Over the axes and ``model`` where `shapes` has it. ``input_dimension``;
        ``interleaved`` and ``cycles`` (of a layer, ``matrix``); ``cycle_time`` and
        ``token_time`` (s); ``throughput`` (operations/s: two a weight of an active expert);
        ``operations_per_cycle`` and ``array_throughput``, in the paper's counting: two a
        binary cell of an active expert, read pulse and input bit, on all bitlines;
        ``utilisation``; ``energy`` (J; ``component``); ``energy_efficiency`` (operations/J);
        ``area`` (mm^2).

    Raises
    ------
    InputError
        As `input_dimension`, and for a value that the tables do not hold.
    """
    shapes = at_ratio(config, shapes)
    rows = input_dimension(config, measured)
    if placed is None:
        placed = place(config, shapes, rows)
    count = counts(config, shapes, placed)
    cycle = cycle_time(config, count["serial_inputs"], tables)
    cycles = count["row_cycles"] * count["serial_inputs"]
    layers = shapes["moe_layers"]
    token_time = layers * cycles.sum("matrix") * cycle
    spent = layers * energy(config, count, placed["cam_cells"], tables)
    operations = 2 * shapes["active_weights"]
    per_cycle = _operations_per_cycle(config, shapes, rows)
    room = rows * config.array("bitlines") * placed["planes_at_work"].sum("matrix")
    found = xr.Dataset(
        {
            "input_dimension": rows,
            "interleaved": placed["interleaved"],
            "cycles": cycles,
            "cycle_time": cycle,
            "token_time": token_time,
            "throughput": operations / token_time,
            "operations_per_cycle": per_cycle,
            "array_throughput": per_cycle / cycle,
            "utilisation": count["useful_pairs"].sum("matrix")
            / (count["row_cycles"].sum("matrix") * room),
            "energy": spent,
            "energy_efficiency": operations / spent.sum("component"),
            "area": area(config, placed),
        }
    )
    return described(found, _COST)


def _operations_per_cycle(
    config: CostFields, shapes: xr.Dataset, rows: xr.DataArray
) -> xr.DataArray:
    """In the paper's counting, where every cell, pulse and input bit counts (Fig. 8(d))."""
    bits = np.log2(levels(config))
    pulses = unit(config)["parallel"] * (used_states(config) - 1)
    useful = where(selects_experts(config), 1.0, shapes["top_k"] / shapes["experts"])
    bitlines = config.array("bitlines") * config.array("planes")
    return 2 * bitlines * rows * pulses * bits * useful


# ---------------------------------------------------------------- time


def pulse_times(config: CostFields, tables: _Tables | None = None) -> xr.Dataset:
    """When currents have settled.

    Returns
    -------
    xarray.Dataset
        ``first``: from rest to the first pulse; ``further``: each one after it (s).
        ``stretch``: length of all pulses over that of the table.

    Raises
    ------
    InputError
        For states, a time constant or a width that the tables do not hold.
    """
    states, timing = used_states(config), config.array("timing")
    pulse = _table(tables, "cim_pulse")
    # Two states have one pulse: what stands for a further one is not used.
    at: dict[str, Any] = {"tau_read": config.array("tau_read"), "x": xr.DataArray(3)}
    first = _plain(pulse.lookup("t1", states=states, **at))
    further = _plain(pulse.lookup("t2", states=maximum(states, 3).astype(int), **at))
    more = states - 2
    measured = first + more * further
    if (timing == "wordline").any():
        scale = where(timing == "wordline", _line_scale(config, tables), 1.0)
        shortest = where(timing == "wordline", config.array("select_time"), 0.0)
        first, further = maximum(first * scale, shortest), maximum(further * scale, shortest)
    t1, t2, given = config.array("t1"), config.array("t2"), timing == "given"
    first, further = where(given, t1 + t2, first), where(given, t2, further)
    found = {"first": first, "further": further, "stretch": (first + more * further) / measured}
    return xr.Dataset(found)


def cycle_time(
    config: CostFields, serial_inputs: xr.DataArray, tables: _Tables | None = None
) -> xr.DataArray:
    """Time of one cycle, the mean over the input digits of a row group (s).

    Parameters
    ----------
    config : CostFields
    serial_inputs : DataArray
        Input digits of a row group, from `counts`.
    tables : Mapping of str to CalibrationTable, optional
        By default those that ship.

    Raises
    ------
    InputError
        As `pulse_times`.
    """
    times = pulse_times(config, tables)
    first, further = times["first"], times["further"]
    pulses = used_states(config) - 1
    select, convert = config.array("select_time"), _conversion_time(config)
    of_pulses = config.array("conversion") == "pulse"
    hidden = config.array("adc_overlap") == "pulse"

    def step(settling: xr.DataArray) -> xr.DataArray:
        return where(hidden, maximum(settling, convert), settling + convert)

    every_pulse = step(first) + (pulses - 1) * step(further)
    rising = where(of_pulses, every_pulse, step(first + (pulses - 1) * further))
    # A held pulse takes all digits in turn, but a sum of pulses takes all pulses of each digit.
    again = where(pulses == 1, select, pulses * further)
    next_digit = where(of_pulses, pulses * step(select), step(again))
    held = (rising + (serial_inputs - 1) * next_digit) / serial_inputs
    return where(config.array("between_inputs") == "hold", held, rising)


def _conversion_time(config: CostFields) -> xr.DataArray:
    """Until a converter has served its bitlines once."""
    return _conversions(config) * config.array("bitlines_per_adc") * config.array("adc_time")


def _conversions(config: CostFields) -> xr.DataArray:
    """Conversions a bitline sensed once."""
    as_one = (config.array("pair_conversion") == "difference") & (unit(config)["lines"] == 2)
    return where(as_one, 0.5, 1.0)


def _line_scale(config: CostFields, tables: _Tables | None) -> xr.DataArray:
    """Time constant of a wordline across `bitlines` over that which cim_pulse was given."""
    lines = _table(tables, "wordline")
    settled = lines.lookup("t_pass_far", line="wordline", width=_width(config), **_LINE)
    tau = settled / np.log(1 / _parameter(lines, "settle"))
    return _plain(tau / _parameter(_table(tables, "cim_pulse"), "tau_pass"))


# ---------------------------------------------------------------- energy and area


def energy(
    config: CostFields,
    count: xr.Dataset,
    cam_cells: xr.DataArray,
    tables: _Tables | None = None,
) -> xr.DataArray:
    """Energy of a token in one layer (J) along ``component``.

    Parameters
    ----------
    config : CostFields
    count : xarray.Dataset
        From `counts`.
    cam_cells : DataArray
        Of a string, by ``matrix``; from `mapping.place`.
    tables : Mapping of str to CalibrationTable, optional
        By default those that ship.

    Raises
    ------
    InputError
        As `pulse_times`.
    """
    digits, pulses = count["serial_inputs"], used_states(config) - 1
    held = config.array("between_inputs") == "hold"
    rises = count["activations"] * where(held, 1, digits)
    all_blocks = count["starts"] * config.array("blocks") * where(held, 1, digits)
    lines = where(config.array("precharged") == "plane", all_blocks, rises)
    line = _line_energies(config, tables)
    sensed = count["columns"] * digits
    of_pulses = config.array("conversion") == "pulse"
    conversions = _conversions(config) * sensed * where(of_pulses, pulses, 1)
    converter = config.array("adc_energy") * 2.0 ** (config.array("adc_bits") - 8)
    units = count["pairs"] / 2 * digits * unit(config)["parallel"] / STRINGS
    spent = {
        "precharge": lines * (config.array("cells") - 1 - cam_cells) * line["pass"],
        "cam": lines * cam_cells * line["pass"],
        "read": rises * pulses * line["read"],
        "bitline": sensed * line["bitline"] + units * line["conducting"],
        "adc": conversions * converter,
        "digital": conversions * config.array("digital_energy"),
    }
    whole = stacked({name: part.sum("matrix") for name, part in spent.items()}, "component")
    return whole.assign_attrs(units="J", long_name="energy of a token in a layer")


def area(config: CostFields, placed: xr.Dataset) -> xr.DataArray:
    """Area of the strings that all layers take, and of the converters of their planes (mm^2).

    Parameters
    ----------
    config : CostFields
    placed : xarray.Dataset
        From `mapping.place`.
    """
    strings = placed["cells_taken"] / config.array("cells")
    planes = maximum(placed["planes_needed"], config.array("planes"))
    bitlines = planes * config.array("bitlines") * _conversions(config)
    converters = bitlines / config.array("bitlines_per_adc")
    return strings * config.array("string_area") + converters * config.array("adc_area")


def _line_energies(config: CostFields, tables: _Tables | None) -> xr.Dataset:
    """Energy of one line (J): unselected and selected wordline, bitline; of a unit's strings.

    Wordlines grow with the strings under them and with the square of the voltage, the bitline
    with its blocks. A unit's currents are those at the largest input, halved: the mean over
    inputs. They flow as long as the pulses last.
    """
    lines, pulse = _table(tables, "wordline"), _table(tables, "cim_pulse")
    drivers = {"line": "wordline", "width": _width(config), **_LINE}
    by_voltage = (config.array("pass_voltage") / _parameter(lines, "v_pass")) ** 2
    wordline = by_voltage * config.array("strings") / _parameter(lines, "strings")
    others = _LINE["layers"] - _LINE["m"]
    blocks = _parameter(lines, "plane_wordlines") / _LINE["layers"]
    volts = config.array("bitline_voltage")
    bitline = (volts / _parameter(lines, "v_pre")) ** 2 * config.array("blocks") / blocks
    one = lines.lookup("e_drive", line="bitline", width=_width(config), **_LINE)
    currents = pulse.lookup(
        "e_bl", states=used_states(config), tau_read=config.array("tau_read"), x=xr.DataArray(3)
    )
    stretch = pulse_times(config, tables)["stretch"] * volts / _parameter(pulse, "v_bl")
    return xr.Dataset(
        {
            "pass": wordline * _plain(lines.lookup("e_pass", **drivers)) / others,
            "read": wordline * _plain(lines.lookup("e_drive", **drivers)) / _LINE["m"],
            "bitline": bitline * _plain(one),
            "conducting": stretch * _plain(currents) / 2,
        }
    )


# ---------------------------------------------------------------- tables


@cache
def _shipped(name: str) -> CalibrationTable:
    return open_table(DATA_FOLDER / f"{name}.nc")


def _table(tables: _Tables | None, name: str) -> CalibrationTable:
    return _shipped(name) if tables is None else tables[name]


def _parameter(table: CalibrationTable, name: str) -> float:
    """What the circuit was simulated with."""
    return float(json.loads(table.dataset.attrs["circuit_parameters"])[name])


def _width(config: CostFields) -> xr.DataArray:
    return config.array("bitlines").astype(float)


def _plain(found: xr.DataArray) -> xr.DataArray:
    """Without the labels of single coordinates, which would conflict with axes."""
    return found.drop_attrs().drop_vars([c for c in found.coords if c not in found.dims])


_COST = {
    "input_dimension": ("1", "inputs added on a bitline at once"),
    "interleaved": ("1", "experts interleaved on the same bitlines"),
    "cycles": ("1", "cycles of a layer, one after the other"),
    "cycle_time": ("s", "time of a cycle"),
    "token_time": ("s", "time of a token in the experts of all layers"),
    "throughput": ("1/s", "operations of active experts, two a weight"),
    "operations_per_cycle": ("1", "two a binary cell of an active expert, pulse and input bit"),
    "array_throughput": ("1/s", "the same a second, all bitlines busy"),
    "utilisation": ("1", "share of all bitlines and rows of a cycle that active experts use"),
    "energy": ("J", "energy of a token in the experts of all layers"),
    "energy_efficiency": ("1/J", "operations of active experts over energy"),
    "area": ("mm^2", "area of strings and converters"),
}
