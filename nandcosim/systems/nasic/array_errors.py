"""What spread, leakage, nonlinearity and conversion do to a sum of products, in closed form.

For weights and inputs whose values are all alike frequent. A *partial sum* is what one cycle
adds of one digit over N rows; an *output* is made of all its partial sums. A unit's error is
static: the same in every cycle, so that over the cycles of an input it adds up in amplitude,
over rows and digits in power::

    per row of an output:  sum over digits of radix^2 E[(sum over cycles of factor a(w, level))^2]

with a the spread, the nonlinearity or the leakage of a unit. Converters err anew each time.
Where a converter's step is one string's current its rounding also takes small errors away.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field
from scipy.special import ndtr

from nandcosim.encodings import layer_codes
from nandcosim.systems.arrays import Number, described, floor, maximum, minimum, stacked, where
from nandcosim.systems.config import setting
from nandcosim.systems.nand import Count, Positive
from nandcosim.systems.nasic.currents import CurrentFields, StringCurrents
from nandcosim.systems.nasic.digits import InputCode, UnitFields, WeightCode, over
from nandcosim.systems.nasic.hardware import ConverterFields

__all__ = ["COMPONENTS", "ReadoutFields", "conversion", "error_statistics", "leaking", "leaks"]

AdcRange = Literal["full", "clip"]
OffsetRule = Literal["measured", "nominal"]
LeakageRule = Literal["neighbours", "worst"]
NotNegative = Annotated[float, Field(ge=0.0)]

COMPONENTS = ("spread", "leakage", "inl", "adc")

_UNIT = ("weight", "level")

#: Fields on which digits of weights and inputs depend.
_CODES = ("technique", "states", "strings", "weight_bits", "input_bits", "input_levels")


class ReadoutFields(CurrentFields, ConverterFields):
    """How sums are converted, and what leaks into them; all that the array needs."""

    input_rows: Count | tuple[Count, ...] = setting(
        128, unit="1", meaning="inputs whose products are added on a bitline at once (N)",
        origin="stated: section on energy, at sigma = 0.15",
    )  # fmt: skip
    adc_range: AdcRange | tuple[AdcRange, ...] = setting(
        "clip", unit="", meaning="range of a converter: all that a sum can be; or up to "
        "adc_clip standard deviations from the mean, clipped beyond",
        origin="assumed: not stated; of all 4-state sums 8 bits see steps of 18 string currents",
    )  # fmt: skip
    adc_clip: Positive | tuple[Positive, ...] = setting(
        4.0, unit="1", meaning="where a clipped range ends, in standard deviations of a sum",
        origin="assumed: 6e-5 of Gaussian sums are beyond",
    )  # fmt: skip
    adc_noise: NotNegative | tuple[NotNegative, ...] = setting(
        0.0, unit="1", meaning="noise of a conversion, in its steps",
        origin="assumed: none; 7.5 effective of 8 bits are 0.29",
    )  # fmt: skip
    offset_rule: OffsetRule | tuple[OffsetRule, ...] = setting(
        "measured", unit="", meaning="what is taken off for the inputs' offset: the column's own "
        "response to input 0, read once; or the nominal sum of its weights",
        origin="assumed: not stated; the paper's signed source line has some offset",
    )  # fmt: skip
    leakage_rule: LeakageRule | tuple[LeakageRule, ...] = setting(
        "neighbours", unit="", meaning="mismatched experts that leak: those that differ by 1 in "
        "one CAM cell; or all",
        origin="measured: table cam_string, others leak a hundredth of that and less",
    )  # fmt: skip


# ---------------------------------------------------------------- leakage


def leaks(interleave: int, cam_bits: int, rule: str) -> np.ndarray:
    """Which of the experts on a bitline leak when one is searched: bool (experts, searched)."""
    own = np.eye(interleave, dtype=bool)
    if rule == "worst":
        return ~own
    layers = max(1, -(-(interleave - 1).bit_length() // cam_bits))
    codes = layer_codes(np.arange(interleave), [cam_bits] * layers)
    distance = abs(codes[:, np.newaxis] - codes).sum(axis=-1)
    return np.asarray(distance == 1)


def leaking(config: ReadoutFields, interleave: xr.DataArray | None = None) -> xr.DataArray:
    """Experts on a bitline that leak while one is searched for, the mean over identifiers.

    `interleave`: experts on a bitline, those of `config` by default; none but one in Base.
    """
    if interleave is None:
        interleave = config.array("interleave")

    def mean(experts: int, bits: int, rule: str) -> float:
        return float(leaks(int(experts), int(bits), rule).sum(axis=0).mean())

    found = xr.apply_ufunc(
        mean, interleave, config.array("cam_bits"), config.array("leakage_rule"), vectorize=True
    )
    return where(config.array("technique") == "base", 0.0, found)


# ---------------------------------------------------------------- conversion


def conversion(config: ReadoutFields, rows: xr.DataArray | None = None) -> xr.Dataset:
    """Step of the converters and their lowest code, in currents of a string.

    A step is no smaller than one string's current. Half a unit's sum has 0 to N times pairs of
    string and pulse times the largest level. A clipped range lies around the mean of the cycle,
    which in thermometers does not depend on the weights; that of binary cells starts at 0.

    Returns
    -------
    xarray.Dataset
        ``step``, and ``low`` (cycle), a whole number.
    """
    return _conversion(config, _codes(config), _rows(config, rows))


def _conversion(config: ReadoutFields, codes: xr.Dataset, rows: xr.DataArray) -> xr.Dataset:
    pairs, level = codes["pairs"], codes["level"]
    n1, n2 = (xr.dot(codes["pair_share"], pairs**k, dim="pairs") for k in (1, 2))
    x1, x2 = (xr.dot(codes["level_share"], level**k, dim="level") for k in (1, 2))
    mean = rows * n1 * x1
    reach = config.array("adc_clip") * (rows * (n2 * x2 - (n1 * x1) ** 2)) ** 0.5
    full = rows * codes["most_pairs"] * codes["most_level"]
    binary = codes["gain"] == 1
    span = where(binary, mean + reach, 2 * reach).max(("digit", "cycle"))
    span = where(config.array("adc_range") == "clip", minimum(span, full), full)
    count = 2 ** config.array("adc_bits") - 1
    step = maximum(span / count, 1.0)
    spare = where(binary, 0.0, maximum(full - count * step, 0.0))
    centred = maximum(_average(codes, mean) - count * step / 2, 0.0)
    return xr.Dataset({"step": step, "low": floor(minimum(centred, spare) + 0.5)})


def _rows(config: ReadoutFields, rows: xr.DataArray | None) -> xr.DataArray:
    return config.array("input_rows").drop_attrs() if rows is None else rows


# ---------------------------------------------------------------- statistics


def error_statistics(
    config: ReadoutFields,
    currents: StringCurrents,
    rows: xr.DataArray | None = None,
    interleave: xr.DataArray | None = None,
) -> xr.Dataset:
    """Errors of a partial sum and of an output.

    Parameters
    ----------
    config : ReadoutFields
    currents : StringCurrents
        From `currents.load`, for the same axes, or `currents.ideal`.
    rows : DataArray, optional
        N, by default the configuration's ``input_rows``.
    interleave : DataArray, optional
        Experts on a bitline, by default the configuration's.

    Returns
    -------
    xarray.Dataset
        Over the axes; ``component``: spread, leakage, inl, adc.

        - ``partial_sd`` (component): deviation of a partial sum, in products of digit 1 and
          level 1 (LSB), root mean square over digits and cycles.
        - ``partial_signal``: standard deviation of the partial sum itself (LSB).
        - ``output_error`` (component): deviation of an output over the standard deviation of
          the ideal one; for any number of rows alike. ``output_total``: all together.
        - ``leakage_share``: share of leakage in the variance of an output's error.
        - ``adc_step``: in currents of a string.
        - ``half_lsb_rows``: N at which the spread of a partial sum is half an LSB.
        - ``kept`` (digit): share of the variance of currents that rounding leaves, 1 where the
          steps are coarser than a string's current.
        - ``row_noise``: deviation of an output of one row by leakage and conversion.
    """
    codes = _codes(config)
    rows = _rows(config, rows)
    step = _conversion(config, codes, rows)["step"]
    others = leaking(config, interleave)
    amplitude: dict[str, tuple[xr.DataArray, Number]] = {
        "spread": (currents.unit_sd, 1.0),
        "leakage": (currents.unit_leak, others),
        "inl": (currents.inl, 1.0),
    }
    kept, adc = _converted(config, codes, currents, others, step, rows)
    level = _pooled(codes["level_share"], "cycle")
    unit = {
        name: count * xr.dot(codes["weight_share"], level, a.fillna(0) ** 2, dim=_UNIT)
        for name, (a, count) in amplitude.items()
    }
    partial = {name: _average(codes, rows * kept * each) for name, each in unit.items()}
    partial["adc"] = _average(codes, adc)
    measured = config.array("offset_rule") == "measured"
    form = where(measured, codes["form_measured"], codes["form_nominal"])
    scale = codes["radix"] ** 2
    output = {
        name: xr.dot(scale, kept * count * _of_output(codes, a, form), dim="digit")
        for name, (a, count) in amplitude.items()
    }
    output["adc"] = xr.dot(scale, adc, dim="digit") * (codes["factor"] ** 2).sum("cycle") / rows
    relative = stacked(output, "component") / (codes["weight_power"] * codes["input_power"])
    total = relative.sum("component")
    spread = _average(codes, unit["spread"])
    signal = xr.dot(
        codes["weight_share"], level, (codes["weight"] * codes["level"]) ** 2, dim=_UNIT
    )
    found = xr.Dataset(
        {
            "partial_sd": stacked(partial, "component") ** 0.5,
            "partial_signal": (rows * _average(codes, signal)) ** 0.5,
            "output_error": relative**0.5,
            "output_total": total**0.5,
            "leakage_share": relative.sel(component="leakage", drop=True)
            / where(total > 0, total, 1),
            "adc_step": step,
            "half_lsb_rows": 0.25 / spread.where(spread > 0),
            "kept": kept,
            "row_noise": (output["leakage"] + output["adc"]) ** 0.5,
        }
    )
    return described(found.drop_attrs(), _TEXTS)


def _pooled(share: xr.DataArray, places: str) -> xr.DataArray:
    """How often a value comes, the mean over those places that there are."""
    value = [dim for dim in ("weight", "pairs", "level") if dim in share.dims]
    pooled: xr.DataArray = share.sum(places) / share.sum([places, *value])
    return pooled


def _average(codes: xr.Dataset, values: xr.DataArray) -> xr.DataArray:
    """Mean over the digits that there are."""
    there = codes["radix"] > 0
    mean: xr.DataArray = values.where(there, 0.0).sum("digit") / there.sum("digit")
    return mean


def _of_output(codes: xr.Dataset, values: xr.DataArray, form: xr.DataArray) -> xr.DataArray:
    """Mean square, by digit, of what one row adds to an output: errors alike in all cycles."""
    values = values.fillna(0)
    other = values.rename(level="other")
    found: xr.DataArray = xr.dot(
        codes["weight_share"], values, form, other, dim=("weight", "level", "other")
    )
    return found


def _converted(
    config: ReadoutFields,
    codes: xr.Dataset,
    currents: StringCurrents,
    others: xr.DataArray,
    step: xr.DataArray,
    rows: xr.DataArray,
) -> tuple[xr.DataArray, xr.DataArray]:
    """By digit: the share of the variance of a sum that is left, and what conversion adds to it.

    Steps of one string's current, on the currents of whole strings, round small errors away.
    That works on the sum of a half, whose variance differs with its data (three points of it
    are taken) and whose place between two codes with what all its rows are off.
    """
    noise = (config.array("adc_noise") * step) ** 2
    level = _pooled(codes["level_share"], "cycle")

    def mean(values: xr.DataArray) -> xr.DataArray:
        found: xr.DataArray = xr.dot(
            codes["pair_share"], level, values.fillna(0), dim=("pairs", "level")
        )
        return found

    off = currents.mean - currents.mean["pairs"] * currents.mean["level"]
    varies = currents.sd**2 + others * (currents.leak**2 + currents.leak_sd**2)
    variance = rows * (mean(varies) + mean(off**2) - mean(off) ** 2) + noise
    width = (rows * maximum(mean(varies**2) - mean(varies) ** 2, 0.0)) ** 0.5
    bias = rows * (mean(off) + others * mean(currents.leak))
    place = xr.DataArray([-(3**0.5), 0.0, 3**0.5], dims="place")
    share = xr.DataArray([1 / 6, 2 / 3, 1 / 6], dims="place")
    points = maximum(variance + place * width, 0.0) ** 0.5
    rounded = (share * _rounded(points, bias)).sum("place")
    exact = step == 1
    left = where(variance > 0, rounded / where(variance > 0, variance, 1.0), 1.0)
    kept = where(exact, minimum(left, 1.0), 1.0)
    added = where(exact, maximum(rounded - variance, 0.0) + noise * kept, noise + step**2 / 12)
    return kept, added * 2 / codes["gain"] ** 2


def _rounded(deviation: xr.DataArray, bias: xr.DataArray) -> xr.DataArray:
    """Variance of a Gaussian that is rounded to integers."""
    deviation, bias = xr.broadcast(deviation, bias - floor(bias + 0.5))
    code = xr.DataArray(np.arange(-8, 9), dims="code")
    scale = minimum(maximum(deviation, 1e-9), 1.5)
    upper = xr.apply_ufunc(ndtr, (code + 0.5 - bias) / scale)
    lower = xr.apply_ufunc(ndtr, (code - 0.5 - bias) / scale)
    first, second = (((upper - lower) * code**k).sum("code") for k in (1, 2))
    return where(deviation > 1.5, deviation**2 + 1 / 12, second - first**2)


# ---------------------------------------------------------------- digits over axes


def _codes(config: ReadoutFields) -> xr.Dataset:
    return over(config, _CODES, _of_point).fillna(0)


def _of_point(point: UnitFields) -> xr.Dataset:
    """Shares and factors of the digits and levels of one kind of weight and input."""
    weight, x = WeightCode.of(point), InputCode.of(point)
    digits = np.arange(-weight.largest, weight.largest + 1)
    share = weight.shares()
    pairs = weight.halves(digits)[0][:, np.newaxis] == np.arange(weight.pairs + 1)
    measured, nominal = _forms(x)
    return xr.Dataset(
        {
            "weight_share": (("digit", "weight"), share),
            "pair_share": (("digit", "pairs"), share @ pairs),
            "radix": ("digit", weight.factors.astype(float)),
            "level_share": (("cycle", "level"), x.shares()),
            "form_measured": (("level", "other"), measured),
            "form_nominal": (("level", "other"), nominal),
            "factor": ("cycle", x.factors.astype(float)),
            "gain": float(weight.gain),
            "most_pairs": float(weight.pairs),
            "most_level": float(x.levels - 1),
            "weight_power": weight.limit * (weight.limit + 1) / 3,
            "input_power": (2 * x.low**2 + 1) / 6,
        },
        coords={
            "weight": digits,
            "pairs": np.arange(weight.pairs + 1),
            "level": np.arange(x.levels),
            "other": np.arange(x.levels),
            "digit": np.arange(weight.factors.size),
            "cycle": np.arange(x.factors.size),
        },
    )


def _forms(code: InputCode) -> tuple[np.ndarray, np.ndarray]:
    """Quadratic forms of errors by level: mean square of their sum over the cycles of an input.

    Less the same of input 0, and as it is: (levels, levels).
    """
    x = np.append(np.arange(code.low, code.high + 1), 0)
    levels = code.split(x)
    weight = np.stack([code.factors @ (levels == level) for level in range(code.levels)], axis=-1)
    forms = (each.T @ each / (x.size - 1) for each in (weight[:-1] - weight[-1], weight[:-1]))
    measured, nominal = (np.asarray(form, dtype=float) for form in forms)
    return measured, nominal


_TEXTS = {
    "partial_sd": ("1", "deviation of a partial sum, in products of digit 1 and level 1"),
    "partial_signal": ("1", "standard deviation of a partial sum, in the same"),
    "output_error": ("1", "deviation of an output over its standard deviation"),
    "output_total": ("1", "the same of all components"),
    "leakage_share": ("1", "share of leakage in the variance of an output's error"),
    "adc_step": ("1", "step of a converter, in currents of a string"),
    "half_lsb_rows": ("1", "rows at which the spread of a partial sum is half an LSB"),
    "kept": ("1", "share of the variance of currents that rounding leaves"),
    "row_noise": ("1", "deviation of an output of one row by leakage and conversion"),
}
