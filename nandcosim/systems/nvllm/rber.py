"""Raw bit errors of a page read, and what a read takes, from the circuit's tables or stated."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.intervals import normal_quantile
from nandcosim.page_coding import CODINGS, Coding, page_names, read_levels
from nandcosim.systems.nvllm.hardware import ErrorFields, HardwareFields
from nandcosim.threshold import bit_error_rate, level_distributions

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = [
    "Limit", "bit_energy", "flipped_bits", "page_cost", "page_error_rates", "raw_bit_error_rate",
    "read_time", "stored_levels",
]  # fmt: skip

#: The value, or one end of its 95 % interval.
Limit = Literal["low", "value", "high"]

_Tables = Mapping[str, "CalibrationTable"]


# ---------------------------------------------------------------- rates


def page_error_rates(
    config: ErrorFields, tables: _Tables | None = None, limit: Limit = "value"
) -> xr.DataArray:
    """Raw bit error rate of every page of a cell.

    With ``rber_source`` ``table`` or ``aged`` it follows from where the circuit decides (table
    `page_read`: place and spread of one sense's decision) and from where the thresholds
    are: levels of spread `sigma`, the top one moved by `shift` and the others in proportion;
    or as `threshold.level_distributions` has them after `retention` and `cycles`.
    The table's own grid of rates only says how far they are known: interpolated in sigma,
    it reads up to 58 % too high.

    Parameters
    ----------
    config : ErrorFields
    tables : Mapping of str to CalibrationTable, optional
        Needed unless ``rber_source`` is ``given``.
    limit : {"low", "value", "high"}
        End of the interval that follows from the decision's 95 % limits.

    Returns
    -------
    xarray.DataArray
        Over ``page`` (names, lower first) and the configuration's axes; NaN for pages that a
        cell of so few bits does not have.

    Raises
    ------
    InputError
        If the table is missing, or does not reach as far as a field.
    """
    bits = config.array("cell_bits")
    names = page_names(int(bits.max()))
    number = xr.DataArray(np.arange(len(names)), coords={"page": list(names)})
    source = config.array("rber_source")
    rate = config.array("rber").where(number < bits)
    for name, levels in (("table", _given_levels), ("aged", _aged_levels)):
        if (source == name).any():
            table = _table(tables, "page_read", f"rber_source = {name}")
            if name == "table":
                _check_range(config, table)
            found = _modelled(config, table, limit, levels)
            rate = found if (source == name).all() else rate.where(source != name, found)
    rate.attrs = {"units": "1", "long_name": "raw bit error rate"}
    return rate.transpose(..., "page").rename("raw_bit_error_rate")


def raw_bit_error_rate(
    config: ErrorFields, tables: _Tables | None = None, limit: Limit = "value"
) -> xr.DataArray:
    """Raw bit error rate, the mean over the pages of a cell.

    Parameters
    ----------
    config, tables, limit
        As for `page_error_rates`.

    Returns
    -------
    xarray.DataArray
        Over the axes of the configuration.

    Raises
    ------
    InputError
        As `page_error_rates`.
    """
    return page_error_rates(config, tables, limit).mean("page", keep_attrs=True)


_Levels = Callable[[ErrorFields, int], tuple[xr.DataArray, xr.DataArray]]


def _modelled(
    config: ErrorFields, table: CalibrationTable, limit: Limit, levels: _Levels
) -> xr.DataArray:
    """Over the axes of the configuration and ``page``."""
    step = json.loads(table.dataset.attrs["circuit_parameters"])["retry_step"]
    names = page_names(int(config.array("cell_bits").max()))

    def of_cell(count: int, coding: Coding) -> xr.DataArray:
        place, width = _decision(table, count, limit)
        shift, sigma = levels(config, count)
        rate = bit_error_rate(
            count,
            shift,
            sigma,
            coding=coding,
            retry=config.array("retry"),
            retry_step=step,
            location=place,
            spread=width,
        )
        rate = {"low": rate.min, "high": rate.max, "value": rate.mean}[limit]("corner")
        return rate.reindex(page=list(names))

    return _chosen(config, of_cell)


def stored_levels(config: ErrorFields, bits: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Shift and standard deviation of every level in level spacings, by `rber_source`.

    Parameters
    ----------
    config : ErrorFields
        ``aged``: as `threshold.level_distributions` has them after `retention` and
        `cycles`; else `sigma` for all levels, the top one moved by `shift` and the others
        in proportion. `rber_source` is no axis.
    bits : int
        Of a cell.

    Returns
    -------
    tuple of DataArray
        Over ``level`` and the axes of the configuration.
    """
    return (_aged_levels if config.rber_source == "aged" else _given_levels)(config, bits)


def _given_levels(config: ErrorFields, bits: int) -> tuple[xr.DataArray, xr.DataArray]:
    level = xr.DataArray(np.arange(2**bits), dims="level")
    place = level.assign_coords(level=level) / (2**bits - 1)
    return config.array("shift") * place, config.array("sigma") * xr.ones_like(place)


def _aged_levels(config: ErrorFields, bits: int) -> tuple[xr.DataArray, xr.DataArray]:
    found = level_distributions(
        bits,
        retention=config.array("retention"),
        cycles=config.array("cycles"),
        storage_temperature=config.array("storage_temperature"),
    )
    return found["mean_shift"], found["sigma"]


def _check_range(config: ErrorFields, table: CalibrationTable) -> None:
    """Refuse what the table does not know of `sigma`, `shift` and the others."""
    fields: dict[str, Any] = {
        name: config.array(name) for name in ("coding", "sigma", "shift", "retry")
    }
    table.lookup("bit_error_rate", bits=config.array("cell_bits"), page="lower", **fields)


def _decision(
    table: CalibrationTable, bits: int, limit: Limit
) -> tuple[xr.DataArray, xr.DataArray]:
    """Place and spread of a sense's decision, over ``corner``: fitted, and all limits."""
    at = table.dataset.sel(bits=bits)
    ends = [("", "")]
    if limit != "value":
        ends += [(a, b) for a in ("_low", "_high") for b in ("_low", "_high")]
    place = [float(at[f"pass_location{end}"]) for end, _ in ends]
    width = [float(at[f"pass_spread{end}"]) for _, end in ends]
    return xr.DataArray(place, dims="corner"), xr.DataArray(width, dims="corner")


# ---------------------------------------------------------------- time and energy


def read_time(config: HardwareFields, tables: _Tables | None = None) -> xr.DataArray:
    """Time of reading a page, the mean over the pages of a cell.

    With ``page_time=table`` it is settle + q sense for a page of q senses. Both constants
    come from the rows of table `page_read_cost` (QLC), and hold for cells of fewer bits.

    Parameters
    ----------
    config : HardwareFields
    tables : Mapping of str to CalibrationTable, optional
        Needed with ``page_time=table``.

    Returns
    -------
    xarray.DataArray
        In s, over the axes of the configuration.

    Raises
    ------
    InputError
        If the table is missing.
    """
    source, time = config.array("page_time"), config.array("read_time")
    if (source == "table").any():
        rows = _table(tables, "page_read_cost", "page_time = table")
        found, _ = _page_mean(config, rows, "page_time", ("read", "senses"))
        time = _either(source, time, found)
    return time.assign_attrs(units="s").rename("read_time")


def bit_energy(
    config: HardwareFields, tables: _Tables | None = None, limit: Limit = "value"
) -> xr.DataArray:
    """Array energy of a bit read, the mean over the pages of a cell.

    With ``array_energy=table``, for a page of q senses and c precharges of its bitline::

        bit_energy = c charge + q per_sense + wordlines / width

    A sense that blocks leaves the bitline charged. So c is 1 + sum of L / 2^bits over all read
    levels L of the page but the last: the share of levels that conduct there. `charge` and
    `per_sense` are those that fit the rows of table `page_read_cost` (QLC) best. `wordlines`
    is what all wordlines of a block take at this page width (table `wordline`).

    Parameters
    ----------
    config : HardwareFields
    tables : Mapping of str to CalibrationTable, optional
        Needed with ``array_energy=table``.
    limit : {"low", "value", "high"}
        End of the interval that follows from the standard errors of the rows.

    Returns
    -------
    xarray.DataArray
        In J a bit, over the axes of the configuration.

    Raises
    ------
    InputError
        If a table is missing, or the page is wider than the table knows.
    """
    source, energy = config.array("array_energy"), config.array("bit_energy")
    if (source == "table").any():
        rows = _table(tables, "page_read_cost", "array_energy = table")
        bitline, error = _page_mean(config, rows, "page_energy", ("charges", "senses"))
        width = 8 * config.array("page_bytes")
        lines = _wordline_energy(_table(tables, "wordline", "array_energy = table"), width) / width
        sign = {"low": -1, "value": 0, "high": 1}[limit]
        energy = _either(source, energy, bitline + lines + sign * normal_quantile() * error)
    return energy.assign_attrs(units="J").rename("bit_energy")


def page_cost(config: HardwareFields, tables: _Tables | None = None) -> xr.Dataset:
    """`read_time` and `bit_energy` together, with the latter's limits.

    Returns
    -------
    xarray.Dataset
        ``read_time`` (s a page), ``bit_energy``, ``bit_energy_low`` and ``bit_energy_high``
        (J a bit).

    Raises
    ------
    InputError
        As the two, and where a stated value and its source are both axes: a Dataset has no
        variable of two dims with the name of one.
    """
    for field, source in (("read_time", "page_time"), ("bit_energy", "array_energy")):
        if {field, source} <= config.axes.keys():
            raise InputError(f"nvllm: found {field} and {source} as axes, allowed: one of them")
    limits: tuple[Limit, ...] = ("low", "high")
    return xr.Dataset(
        {
            "read_time": read_time(config, tables),
            "bit_energy": bit_energy(config, tables),
            **{f"bit_energy_{end}": bit_energy(config, tables, end) for end in limits},
        }
    )


def _page_mean(
    config: HardwareFields, table: CalibrationTable, quantity: str, terms: tuple[str, ...]
) -> tuple[xr.DataArray, xr.DataArray]:
    """Mean of a quantity over the pages of a cell by least squares in `terms`, and its error."""
    dataset = table.dataset
    bits = int(json.loads(dataset.attrs["circuit_parameters"])["bits"])
    rows = [(c, int(p)) for c in dataset["coding"].values.tolist() for p in dataset["page"].values]
    known = np.array([_terms(bits, page, coding, terms) for coding, page in rows])
    values = dataset[quantity].transpose("coding", "page").values.ravel()
    inverse = np.linalg.pinv(known)

    def of_cell(count: int, coding: Coding) -> xr.DataArray:
        mean = np.mean([_terms(count, page, coding, terms) for page in range(count)], axis=0)
        return xr.DataArray(mean @ inverse, dims="row")

    weight = _chosen(config, of_cell)
    error = dataset.get(f"{quantity}_se", xr.zeros_like(dataset[quantity]))
    variance = error.transpose("coding", "page").values.ravel() ** 2
    return (
        (weight * xr.DataArray(values, dims="row")).sum("row"),
        (weight**2 * xr.DataArray(variance, dims="row")).sum("row") ** 0.5,
    )


def _terms(bits: int, page: int, coding: Coding, names: tuple[str, ...]) -> list[float]:
    levels = read_levels(bits, page, coding)
    charges = 1.0 + float(levels[:-1].sum()) / 2**bits
    known = {"read": 1.0, "senses": float(levels.size), "charges": charges}
    return [known[name] for name in names]


def _wordline_energy(table: CalibrationTable, width: xr.DataArray) -> xr.DataArray:
    """Of all wordlines of a block, one of them selected; layers as the circuit has them."""
    layers = int(json.loads(table.dataset.attrs["circuit_parameters"])["layers"])
    return table.lookup(
        "e_page", line="wordline", m=1, layers=layers, roughness=0.0, width=width.rename("width")
    ).drop_vars(["line", "m", "layers", "roughness", "width"], errors="ignore")


# ---------------------------------------------------------------- where errors fall


def flipped_bits(bits: int, rate: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of independent errors among `bits` bits, increasing.

    Drawn as geometric gaps, so that effort goes with the number of errors.

    Parameters
    ----------
    bits : int
    rate : float
        Probability that a bit is wrong.
    rng : numpy.random.Generator

    Raises
    ------
    InputError
        For a rate outside 0 to 1.
    """
    if not 0 <= rate <= 1:
        raise InputError(f"raw bit error rate: found {rate!r}, allowed: 0 to 1")
    found = [np.empty(0, np.int64)]
    last = -1 if rate > 0 else bits
    while last < bits:
        expected = (bits - last) * rate
        gaps = rng.geometric(rate, size=int(expected + 4 * expected**0.5) + 16)
        found.append(last + np.cumsum(np.minimum(gaps, bits + 1)))
        last = int(found[-1][-1])
    places = np.concatenate(found)
    return places[places < bits]


# ---------------------------------------------------------------- helpers


def _table(tables: _Tables | None, name: str, asked: str) -> CalibrationTable:
    if not tables or name not in tables:
        found = ", ".join(tables or {}) or "no tables"
        raise InputError(f"nvllm: {asked} needs the table {name!r}, found {found}")
    return tables[name]


def _either(source: xr.DataArray, stated: xr.DataArray, found: xr.DataArray) -> xr.DataArray:
    return found if (source == "table").all() else stated.where(source == "stated", found)


def _chosen(config: ErrorFields, of_cell: Callable[[int, Coding], xr.DataArray]) -> xr.DataArray:
    """Of every cell and code asked for, in the configuration's axes."""
    cells = np.unique(config.array("cell_bits").values).tolist()
    codings = [each for each in CODINGS if each in config.array("coding").values]
    stacked = xr.concat(
        [
            xr.concat([of_cell(count, coding) for coding in codings], _index("coding", codings))
            for count in cells
        ],
        _index("cell_bits", cells),
    )
    chosen = stacked.sel(cell_bits=config.array("cell_bits"), coding=config.array("coding"))
    scalars = [name for name in ("cell_bits", "coding") if name not in config.axes]
    return chosen.drop_vars(scalars)


def _index(name: str, values: list[Any]) -> xr.DataArray:
    return xr.DataArray(values, dims=name, coords={name: values}, name=name)
