"""Threshold distributions of programmed levels: placement, wear, retention, temperature.

For every level: how far its mean has moved, and its standard deviation, both in level
spacings. In volts, with the level spacing s = window / 2**bits, level r and the share
q = r / (2**bits - 1) of the top level's charge::

    loss   = q loss_rate log10(1 + t / t_early) (1 + wear_loss (N / 1000)**loss_exponent)
    t      = retention time at 30 degC: that at T times exp(E_a / k (1 / 303.15 K - 1 / T))
    shift  = -loss - tempco (1 - compensation) (T_read - T_program)
    var    = (step**2 + 6 electron step + electron**2) / 12                    placement
           + noise**2
           + (coupling late s)**2 (4**bits - 1) / 12                           neighbour
           + wear_noise**2 (N / 1000)**(2 wear_exponent)                       cycling
           + electron loss + (loss_spread loss)**2                             retention
           + (tempco_spread (T_read - T_program))**2                           temperature

Placement is the overshoot of a pulse train past the verify level: the excess life of a
renewal process, of variance E[X^3] / 3 E[X] - (E[X^2] / 2 E[X])^2 (D. R. Cox, Renewal
Theory, 1962, section 5.2), here of pulses X with a Poisson-distributed number of electrons
and the mean step. The level's place is the mean of it. The erased
level is not placed by pulses: it lies ``erased_gap`` lower and has ``erased_sigma``.
"""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.constants import Boltzmann, elementary_charge, zero_Celsius
from scipy.special import ndtr

from nandcosim.errors import InputError
from nandcosim.page_coding import Coding, level_bits, page_names, retry_offsets
from nandcosim.wording import first_mistake, unknown_key

__all__ = [
    "NOMINAL",
    "REFERENCE_TEMPERATURE",
    "ThresholdParams",
    "arrhenius",
    "bit_error_rate",
    "level_distributions",
]

#: Temperature in degC that retention times are referred to (JESD218: a client drive's shelf).
REFERENCE_TEMPERATURE = 30.0

#: The condition that the calibrated parameters belong to: 1,000 cycles and three months at
#: 40 degC, the unpowered storage that JESD218 asks of an enterprise drive at its end of life.
NOMINAL = {"cycles": 1000.0, "retention": 90 * 86400.0, "storage_temperature": 40.0}

Values = xr.DataArray | ArrayLike


def _constant(default: float, *, unit: str, ge: float, le: float, meaning: str, source: str) -> Any:
    extra: dict[str, Any] = {"unit": unit, "source": source}
    return Field(default, ge=ge, le=le, description=meaning, json_schema_extra=extra)


class ThresholdParams(BaseModel):
    """Constants of the model, in volts of a real 3D NAND cell."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    window: float = _constant(
        8.5,
        unit="V",
        ge=0.5,
        le=20.0,
        meaning="span of all levels; spacing is window / 2**bits",
        source="stated: D-NOVA Table 1 (QLC within an 8.5 V window)",
    )
    step: float = _constant(
        0.3,
        unit="level",
        ge=0.01,
        le=2.0,
        meaning="increment of the last programming pass, in level spacings",
        source="assumed: 0.16 V for QLC, 0.32 V for TLC",
    )
    step_limit: float = _constant(
        0.5,
        unit="V",
        ge=0.01,
        le=5.0,
        meaning="largest increment, whatever the level spacing",
        source="assumed: it decides for one and two bits a cell",
    )
    electron: float = _constant(
        4e-3,
        unit="V",
        ge=0.0,
        le=0.1,
        meaning="threshold shift of one stored electron",
        source="assumed: 40 aF from gate to storage layer; the role it has in placement is "
        "that of C. Monzio Compagnoni et al., IEEE TED 55, 2695 (2008)",
    )
    noise: float = _constant(
        56e-3,
        unit="V",
        ge=0.0,
        le=1.0,
        meaning="telegraph noise, verify noise and variation between layers, together",
        source="calibrated: mean sigma of the programmed QLC levels 0.200 at the nominal "
        "condition (D-NOVA section 6.4)",
    )
    coupling: float = _constant(
        0.02,
        unit="1",
        ge=0.0,
        le=0.5,
        meaning="threshold shift over the shift of the neighbour on the next wordline",
        source="assumed: cells around a pillar couple far less than planar ones",
    )
    late: float = _constant(
        0.25,
        unit="1",
        ge=0.0,
        le=1.0,
        meaning="share of the neighbour's rise that comes after this cell's last pass",
        source="assumed: two-pass programming",
    )
    wear_noise: float = _constant(
        70e-3,
        unit="V",
        ge=0.0,
        le=1.0,
        meaning="broadening by 1,000 program/erase cycles",
        source="assumed",
    )
    wear_exponent: float = _constant(
        0.5,
        unit="1",
        ge=0.0,
        le=2.0,
        meaning="power of the cycles in the broadening",
        source="assumed: a power law as in Luo et al., IEEE JSAC 34(9), 2016",
    )
    loss_rate: float = _constant(
        22e-3,
        unit="V",
        ge=0.0,
        le=1.0,
        meaning="loss of the top level, fresh, per decade of time",
        source="calibrated: QLC bit error rate 1e-2 without retry at the nominal condition "
        "(D-NOVA section 6.4)",
    )
    early: float = _constant(
        3600.0,
        unit="s",
        ge=1e-3,
        le=1e6,
        meaning="time after which loss is logarithmic, at 30 degC",
        source="assumed: loss is quick within several hours, Luo et al., POMACS 2(3), 37 (2018)",
    )
    wear_loss: float = _constant(
        0.5,
        unit="1",
        ge=0.0,
        le=20.0,
        meaning="increase of the loss by 1,000 cycles, relative to a fresh cell",
        source="assumed",
    )
    loss_exponent: float = _constant(
        0.5,
        unit="1",
        ge=0.0,
        le=2.0,
        meaning="power of the cycles in the loss",
        source="assumed: a power law as that of the broadening",
    )
    loss_spread: float = _constant(
        0.25,
        unit="1",
        ge=0.0,
        le=2.0,
        meaning="standard deviation of the loss between cells, relative to its mean",
        source="assumed",
    )
    activation: float = _constant(
        1.1,
        unit="eV",
        ge=0.1,
        le=2.0,
        meaning="activation energy of charge loss",
        source="sourced: JESD218 equates a year at 30 degC with 500 h at 52 degC and 96 h at "
        "66 degC, which is 1.1 eV; docs/threshold.md says where that is disputed",
    )
    tempco: float = _constant(
        2.5e-3,
        unit="V/K",
        ge=0.0,
        le=0.02,
        meaning="fall of the threshold with reading temperature",
        source="assumed: a few mV/K; D. Wu et al. (doi 10.1109/jeds.2020.3035648) find 2 to 3 mV/K "
        "between directions of cross-temperature reading",
    )
    compensation: float = _constant(
        0.9,
        unit="1",
        ge=0.0,
        le=1.0,
        meaning="share of the temperature coefficient that the chip's read levels follow",
        source="assumed",
    )
    tempco_spread: float = _constant(
        0.2e-3,
        unit="V/K",
        ge=0.0,
        le=0.01,
        meaning="standard deviation of the temperature coefficient between cells",
        source="assumed; that there is one: D. Resnati et al., IEEE TED 65, 3199 (2018)",
    )
    erased_gap: float = _constant(
        1.0,
        unit="V",
        ge=0.0,
        le=5.0,
        meaning="how far the erased level lies below its place in a uniform ladder",
        source="assumed: three times its standard deviation",
    )
    erased_sigma: float = _constant(
        0.35,
        unit="V",
        ge=0.0,
        le=2.0,
        meaning="standard deviation of the erased level, fresh",
        source="assumed: erase has no fine step",
    )

    @classmethod
    def of(cls, **values: float) -> Self:
        """Build from some values, the others at their defaults.

        Raises
        ------
        InputError
            One line naming the parameter, what was found and what is allowed.
        """
        for name in values:
            if name not in cls.model_fields:
                raise InputError(f"threshold: {name}: {unknown_key(name, cls.model_fields)}")
        try:
            return cls(**values)
        except ValidationError as error:
            name, found, message = first_mistake(error)
            raise InputError(f"threshold: {name}: found {found!r}, {message}") from None


def arrhenius(temperature: Values, activation: float) -> Any:
    """How many times faster than at 30 degC a process runs at `temperature` (degC).

    ``exp(E_a / k (1 / T_ref - 1 / T))`` with `activation` in eV.
    """
    inverse = 1 / (REFERENCE_TEMPERATURE + zero_Celsius) - 1 / (temperature + zero_Celsius)
    return np.exp(activation * elementary_charge / Boltzmann * inverse)


def level_distributions(
    bits: Values = 4,
    *,
    retention: Values = 0.0,
    cycles: Values = 0.0,
    storage_temperature: Values = REFERENCE_TEMPERATURE,
    program_temperature: Values = REFERENCE_TEMPERATURE,
    read_temperature: Values = REFERENCE_TEMPERATURE,
    params: ThresholdParams | None = None,
) -> xr.Dataset:
    """Mean shift and standard deviation of every level.

    Parameters
    ----------
    bits : array_like of int
        Bits a cell, 1 to 4.
    retention : array_like
        Time since programming in s.
    cycles : array_like
        Program/erase cycles.
    storage_temperature, program_temperature, read_temperature : array_like
        In degC.
    params : ThresholdParams, optional

    Returns
    -------
    xarray.Dataset
        ``mean_shift`` and ``sigma`` in level spacings, over ``level`` and the dims of the
        arguments; a plain one-dimensional argument becomes a dim of its own name. NaN for
        levels that a cell of so few bits does not have.

    Raises
    ------
    InputError
        For an argument that is no number, or outside its range.
    """
    c = params or ThresholdParams()
    b = _argument("bits", bits, 1, 4)
    time = _argument("retention", retention, 0.0, 1e12)
    n = _argument("cycles", cycles, 0.0, 1e7)
    stored, programmed, read = (
        _argument(name, value, -200.0, 300.0)
        for name, value in (
            ("storage_temperature", storage_temperature),
            ("program_temperature", program_temperature),
            ("read_temperature", read_temperature),
        )
    )
    count = 2**b
    level = _index("level", 0, int(count.max()))
    spacing, wear = c.window / count, n / 1000
    effective = time * arrhenius(stored, c.activation)
    worn = 1 + c.wear_loss * wear**c.loss_exponent
    loss = level / (count - 1) * c.loss_rate * np.log10(1 + effective / c.early) * worn
    warming = read - programmed

    erased = level == 0
    variance = (
        _placement(c, spacing, count).where(~erased, c.erased_sigma**2)
        + (c.wear_noise * wear**c.wear_exponent) ** 2
        + c.electron * loss
        + (c.loss_spread * loss) ** 2
        + (c.tempco_spread * warming) ** 2
    )
    residual = c.tempco * (1 - c.compensation)
    shift = (-loss).where(~erased, -c.erased_gap) - residual * warming
    there = level < count
    return xr.Dataset(
        {
            "mean_shift": (shift / spacing)
            .where(there)
            .assign_attrs(units="level", long_name="mean of the level less its place"),
            "sigma": (variance**0.5 / spacing)
            .where(there)
            .assign_attrs(units="level", long_name="standard deviation of the level"),
        }
    )


def bit_error_rate(
    bits: int,
    shift: Values,
    sigma: Values,
    *,
    coding: Coding = "balanced",
    offset: Values = 0.0,
    retry: Values = 0,
    retry_step: float = 0.1,
    location: Values = 0.0,
    spread: Values = 0.0,
) -> xr.DataArray:
    """Raw bit error rate of every page, all levels equally frequent.

    A cell of level r conducts at read level L if its threshold is below
    ``L - 1/2 + offset - location``; the page bit read is that of the interval between
    read levels that the threshold lies in. Errors across several levels count. What
    `spread` stands for is the same for all the senses of a read (a sense amplifier's
    mismatch, the other cells' data), so it adds to the threshold's variance.

    Parameters
    ----------
    bits : int
    shift, sigma : float or DataArray
        Of the levels, in level spacings, as `level_distributions` gives them; without the
        dim ``level`` alike for all levels.
    coding : Coding
    offset : float or DataArray
        Added to every read level, in level spacings; may have the dim ``read_level``.
    retry : int or DataArray
        Number of the retry; see `nandcosim.page_coding.retry_offsets`.
    retry_step : float
        Level spacings that each retry lowers the read level at the top level.
    location, spread : float or DataArray
        Of the sensing itself in level spacings: ``pass_location`` and ``pass_spread`` of
        the table `page_read`.

    Returns
    -------
    xarray.DataArray
        Over ``page`` (names) and the dims of the arguments.

    Raises
    ------
    InputError
        For a negative sigma, a retry that is no whole number, or levels of another cell.
    """
    names = page_names(bits)
    code = level_bits(bits, coding)
    count = 2**bits
    _check_levels("shift", shift, count)
    _check_levels("sigma", sigma, count)
    _refuse("sigma", sigma, np.less(sigma, 0), "0 and more")
    _refuse("retry", retry, (np.less(retry, 0)) | (np.mod(retry, 1) != 0), "0, 1, 2, ...")
    read_level = _index("read_level", 1, count)
    level = _index("level", 0, count)
    again = xr.apply_ufunc(
        lambda number: retry_offsets(bits, number, retry_step),
        xr.DataArray(retry),
        output_core_dims=[["read_level"]],
    ).assign_coords(read_level=read_level)
    edge = read_level - 0.5 + offset + again - location
    # The probability of having crossed a read level, seen from the cell's own place, so that
    # small ones stay exact; a page's bit is wrong after an odd number of its read levels.
    sign = 1 - 2 * (read_level > level)
    towards = sign * (edge - level - shift) / np.hypot(sigma, spread)
    crossed = xr.apply_ufunc(ndtr, towards)
    wrong = (code[:, np.newaxis, :] != code[np.newaxis, :, :]).astype(int)
    turns = xr.DataArray(
        np.diff(wrong, axis=1),
        dims=("level", "read_level", "page"),
        coords={"level": level, "read_level": read_level, "page": np.array(names)},
    )
    turns = -sign * turns
    rate = (crossed * turns).sum(("level", "read_level"), skipna=False) / count
    # of its own: those of the arguments would name their errors and limits, not the rate's
    rate.attrs = {"units": "1", "long_name": "raw bit error rate"}
    return cast(xr.DataArray, rate.rename("bit_error_rate"))


def _placement(c: ThresholdParams, spacing: xr.DataArray, count: xr.DataArray) -> xr.DataArray:
    """Variance of a programmed level in V^2, fresh: pulses, noise and the neighbour's rise."""
    step = (c.step * spacing).clip(max=c.step_limit)
    pulses = (step**2 + 6 * c.electron * step + c.electron**2) / 12
    neighbour = (c.coupling * c.late * spacing) ** 2 * (count**2 - 1) / 12
    return pulses + c.noise**2 + neighbour


def _index(name: str, first: int, stop: int) -> xr.DataArray:
    """An integer axis as a DataArray of itself."""
    values = np.arange(first, stop)
    return xr.DataArray(values, dims=name, coords={name: values})


_EXPECTED = {
    "bits": "an integer, bits a cell",
    "retention": "a number in s",
    "cycles": "a number of cycles",
    "storage_temperature": "a number in degC",
    "program_temperature": "a number in degC",
    "read_temperature": "a number in degC",
}


def _check_levels(name: str, value: Values, count: int) -> None:
    size = value.sizes.get("level", count) if isinstance(value, xr.DataArray) else count
    if size != count:
        raise InputError(f"{name}: found {size} levels, expected the {count} of the cell")


def _refuse(name: str, value: Values, wrong: Any, allowed: str) -> None:
    if np.any(wrong):
        found = np.asarray(value)[np.asarray(wrong)].flat[0]
        raise InputError(f"{name}: found {found}, allowed: {allowed}")


def _argument(name: str, value: Values, low: float, high: float) -> xr.DataArray:
    """A condition as a DataArray, checked against its range."""
    if not isinstance(value, xr.DataArray):
        plain = np.asarray(value)
        if plain.ndim > 1:
            raise InputError(f"{name}: found {plain.ndim} dimensions, expected a DataArray")
        value = xr.DataArray(plain, dims=[name][: plain.ndim])
        if plain.ndim:
            value = value.assign_coords({name: plain})
    if value.dtype.kind not in "iuf":
        raise InputError(f"{name}: found {value.values.flat[0]!s}, expected {_EXPECTED[name]}")
    outside = ~((value >= low) & (value <= high))
    if bool(outside.any()):
        found = value.values[outside.values].flat[0]
        raise InputError(f"{name}: found {found}, allowed: {low:g} to {high:g}")
    if name == "bits" and value.dtype.kind not in "iu":
        raise InputError(f"bits: found {value.values.flat[0]}, allowed: 1, 2, 3, 4")
    return value
