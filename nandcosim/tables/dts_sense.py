"""The table of `dts_sense`: what multi-wordline sensing decides, how fast, for what energy.

All margins are in level spacings above the nominal decision boundary.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.intervals import wilson
from nandcosim.spice.status import Status
from nandcosim.tables.generic import add_mean, fit_responses
from nandcosim.tables.probit import FitKind, deviance_residuals, fit_probit
from nandcosim.tables.samples import Samples

__all__ = ["fit_dts_sense"]

#: Fields of a fit that are stored for every combination of the axes but the margin.
FIT_FIELDS = {
    "location": ("pass_location", "level", "margin at which half of the reads pass"),
    "location_se": ("pass_location_se", "level", "standard error of pass_location"),
    "location_low": ("pass_location_low", "level", "lower limit of pass_location"),
    "location_high": ("pass_location_high", "level", "upper limit of pass_location"),
    "spread": ("pass_spread", "level", "standard deviation of the decision margin"),
    "spread_se": ("pass_spread_se", "level", "standard error of pass_spread"),
    "spread_low": ("pass_spread_low", "level", "lower limit of pass_spread"),
    "spread_high": ("pass_spread_high", "level", "upper limit of pass_spread"),
    "correlation": ("pass_correlation", "1", "correlation of the errors of location and spread"),
    "chi_square": ("fit_chi_square", "1", "Pearson's chi-square of the fit, rare counts pooled"),
    "dof": ("fit_dof", "1", "degrees of freedom of fit_chi_square"),
    "p_value": ("fit_p_value", "1", "probability of a larger chi-square if the model holds"),
}

#: Why a fitted quantity can be absent.
NO_FIT = "the outcomes do not determine it, see fit_kind"
NO_ERROR = "no standard error, see fit_kind and the limits"
NO_TEST = "no degrees of freedom, or the margins share their random numbers"


def fit_dts_sense(samples: Samples) -> xr.Dataset:
    """Fit the sensing table.

    Returns
    -------
    xarray.Dataset
        Over all the axes: ``pass_probability`` with ``pass_low`` and ``pass_high``,
        ``pass_fitted``, ``pass_residual``, ``pass_deviance_residual``, ``n_passed``,
        ``n_crossed``, ``n_never_crossed``, ``discharge_time``, ``sense_energy`` and the
        summaries of the other responses. Over all but the position, if the strings are the
        same at every position: ``string_pass_probability`` with ``string_pass_low`` and
        ``string_pass_high``. Over all but the margin: ``pass_location``,
        ``pass_spread`` and the quality of that fit. Without the axis of the cells'
        threshold spread: ``trip_margin`` and ``read_sigma``. Relative to m = 1:
        ``discharge_penalty``. What the sweep does not allow is absent, and the attribute
        ``not_fitted`` says why.
    """
    others = [n for n in samples.response_names if n not in ("bit", "t_cross", "e_sense")]
    table = fit_responses(samples, others)
    absent: dict[str, str] = {}
    if "bit" in samples.response_names:
        passed = _passed(samples)
        _add_proportions(table, samples, passed)
        _add_strings(table, samples, passed, absent)
        if "margin" in samples.axes and samples.store.sizes["margin"] > 1:
            _add_decision(table, samples, passed)
            _add_read_noise(table, samples, absent)
        else:
            absent["pass_location"] = absent["trip_margin"] = "margin is no axis of the sweep"
    else:
        absent["pass_probability"] = "bit is no response of the sweep"
    if "bit" in samples.response_names and "t_cross" in samples.response_names:
        _add_discharge(table, samples, passed, absent)
    else:
        absent["discharge_time"] = "bit and t_cross are not both responses of the sweep"
    if "e_sense" in samples.response_names:
        energy = samples.response("e_sense")
        add_mean(
            table,
            samples,
            "sense_energy",
            energy,
            samples.ok & np.isfinite(energy),
            units="J",
            long_name=samples.describe("e_sense")["long_name"],
        )
    else:
        absent["sense_energy"] = "e_sense is no response of the sweep"
    table.attrs["not_fitted"] = json.dumps(absent, sort_keys=True)
    return table


def _passed(samples: Samples) -> np.ndarray:
    """Which samples succeeded and sensed a pass, bool, shape (axes..., samples)."""
    bit = samples.response("bit")
    strange = int((~np.isin(bit[samples.ok], (0.0, 1.0))).sum())
    if strange:
        raise InputError(
            f"bit: {strange} samples are marked ok and hold neither 0 nor 1; the sweep's store "
            "has lost data, run the sweep into a new one"
        )
    return np.asarray(samples.ok & (bit == 1.0))


# ---------------------------------------------------------------- decisions


def _add_proportions(table: xr.Dataset, samples: Samples, passed: np.ndarray) -> None:
    axes, passes, n = samples.axes, passed.sum(axis=-1), samples.n
    # Samples not run are no failures: they say nothing about the outcome.
    low, high = wilson(passes, n, samples.failed)
    probability = np.where(n > 0, passes / np.maximum(n, 1), np.nan)
    table["pass_probability"] = (
        axes,
        probability,
        {
            "units": "1",
            "long_name": "observed fraction of reads that pass",
            "valid_min": 0.0,
            "valid_max": 1.0,
            "low": "pass_low",
            "high": "pass_high",
            "perturb": "proportion",
            "undefined": "no sample succeeded",
        },
    )
    wilson_limit = "95 % Wilson limit of pass_probability, failed samples taken as"
    table["pass_low"] = (axes, low, {"units": "1", "long_name": f"lower {wilson_limit} no pass"})
    table["pass_high"] = (axes, high, {"units": "1", "long_name": f"upper {wilson_limit} pass"})
    table["n_passed"] = (axes, passes, {"units": "1", "long_name": "samples that passed"})


def _add_strings(
    table: xr.Dataset, samples: Samples, passed: np.ndarray, absent: dict[str, str]
) -> None:
    """How often a string passes at every position: all its checks, one after the other."""
    if "position" not in samples.axes:
        return
    if not samples.paired:
        absent["string_pass_probability"] = (
            "without common_random_numbers every position has strings of its own"
        )
        return
    at = samples.axes.index("position")
    axes = tuple(axis for axis in samples.axes if axis != "position")
    # A string that was not run at every position has no say: which ones were may depend on
    # their results.
    run = (samples.status != Status.NOT_RUN).all(axis=at)
    passes = passed.all(axis=at)
    # one check that is known to fail decides, whatever became of the others
    fails = run & (samples.ok & ~passed).any(axis=at)
    unknown = run & ~passes & ~fails
    k, n = passes.sum(axis=-1), (passes | fails).sum(axis=-1)
    low, high = wilson(k, n, unknown.sum(axis=-1))
    about = {"units": "1", "undefined": "no string is known to pass or to fail"}
    limit = "95 % Wilson limit of string_pass_probability"
    table["string_pass_probability"] = (
        axes,
        np.where(n > 0, k / np.maximum(n, 1), np.nan),
        about
        | {
            "long_name": "observed fraction of strings that pass at every position",
            "valid_min": 0.0,
            "valid_max": 1.0,
            "low": "string_pass_low",
            "high": "string_pass_high",
            "perturb": "proportion",
            "count": "n_strings",
        },
    )
    table["n_strings"] = (axes, n, {"units": "1", "long_name": "strings whose outcome is known"})
    table["string_pass_low"] = (axes, low, {"units": "1", "long_name": f"lower {limit}"})
    table["string_pass_high"] = (axes, high, {"units": "1", "long_name": f"upper {limit}"})


def _add_decision(table: xr.Dataset, samples: Samples, passed: np.ndarray) -> None:
    """Fit Phi((margin - location) / spread) at every combination of the other axes."""
    at = samples.axes.index("margin")
    margin = np.asarray(table["margin"].values, float)
    passes, n = np.moveaxis(passed.sum(axis=-1), at, -1), np.moveaxis(samples.n, at, -1)
    outcomes = np.where(samples.ok, passed, -1).astype(np.int8) if samples.paired else None
    if outcomes is not None:
        outcomes = np.moveaxis(outcomes, at, -2)
    shape = passes.shape[:-1]
    fits = np.empty(shape, dtype=object)  # of ProbitFit
    for index in np.ndindex(shape):
        clusters = None if outcomes is None else outcomes[index]
        fits[index] = fit_probit(margin, passes[index], n[index], clusters)
    _store_fits(table, samples, fits)

    fitted = np.moveaxis(_gather(fits, "fitted", (margin.size,)), -1, at)
    axes, observed = samples.axes, table["pass_probability"].values
    deviance = deviance_residuals(passed.sum(axis=-1), samples.n, fitted)
    for name, values, meaning in (
        ("pass_fitted", fitted, "modelled fraction of reads that pass"),
        ("pass_residual", observed - fitted, "observed minus modelled fraction"),
        ("pass_deviance_residual", deviance, "standardised residual, about N(0, 1) if it fits"),
    ):
        table[name] = (axes, values, {"units": "1", "long_name": meaning, "undefined": NO_FIT})
    table["pass_fitted"].attrs.update(
        valid_min=0.0,
        valid_max=1.0,
        perturb="pass_model",
        axis="margin",
        location="pass_location",
        spread="pass_spread",
    )


def _store_fits(table: xr.Dataset, samples: Samples, fits: np.ndarray) -> None:
    axes = tuple(axis for axis in samples.axes if axis != "margin")
    kinds = _gather(fits, "kind").astype(np.int64)
    table["fit_kind"] = (
        axes,
        kinds,
        {
            "units": "1",
            "long_name": "what the outcomes along the margin allowed",
            "flag_values": ", ".join(str(int(kind)) for kind in FitKind),
            "flag_meanings": " ".join(kind.name.lower() for kind in FitKind),
        },
    )
    for field, (name, unit, meaning) in FIT_FIELDS.items():
        values = _gather(fits, field)
        why = NO_TEST if name.startswith("fit_") else NO_ERROR if "_se" in name else NO_FIT
        table[name] = (
            axes,
            values.astype(np.int64) if field == "dof" else values,
            {"units": unit, "long_name": meaning, "undefined": why},
        )
    table["pass_location"].attrs.update(_uncertainty("pass_location", "decision"))
    table["pass_spread"].attrs.update(_uncertainty("pass_spread", "decision"), valid_min=0.0)
    for name, partner in (("pass_location", "pass_spread"), ("pass_spread", "pass_location")):
        table[name].attrs["partner"] = partner


def _gather(fits: np.ndarray, field: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """One field of every fit as an array."""
    out = np.empty((*fits.shape, *shape))
    for index in np.ndindex(fits.shape):
        out[index] = getattr(fits[index], field)
    return out


def _uncertainty(name: str, perturb: str) -> dict[str, str]:
    return {
        "standard_error": f"{name}_se",
        "low": f"{name}_low",
        "high": f"{name}_high",
        "perturb": perturb,
    }


# ---------------------------------------------------------------- the sense amplifier alone


def _add_read_noise(table: xr.Dataset, samples: Samples, absent: dict[str, str]) -> None:
    """Trip margin and read noise: the decision when the cells' thresholds do not vary."""
    axes, fixed = _threshold_spread(samples)
    nearest = {axis: float(np.abs(table[axis]).min()) for axis in axes}
    quiet = not fixed and not any(nearest.values())
    for name, source, meaning in (
        ("trip_margin", "pass_location", "margin at which half of the reads pass, cells exact"),
        ("read_sigma", "pass_spread", "decision noise of one read, cells exact"),
    ):
        if name == "read_sigma" and not quiet:
            absent[name] = (
                "the cells' thresholds vary at every point: "
                + (
                    ", ".join(f"the smallest {axis} is {v:g} level" for axis, v in nearest.items())
                    or "the sweep gives them a fixed spread"
                )
                + "; sweep a spread of 0 as well"
            )
            continue
        # a decision beyond the margins that were swept is an extrapolation of the model
        place = table["pass_location"].sel(nearest)
        swept = (place >= table["margin"].min()) & (place <= table["margin"].max())
        for suffix in ("", "_se", "_low", "_high"):
            variable = table[source + suffix].sel(nearest).where(swept)
            table[name + suffix] = variable.drop_vars(axes).assign_attrs(
                table[source + suffix].attrs,
                long_name=meaning if not suffix else f"{suffix[1:]} of {name}",
            )
        table[name].attrs.update(
            _uncertainty(name, "same_draw"), source=source, at=json.dumps(nearest, sort_keys=True)
        )
        table[name].attrs["undefined"] = "half of the reads pass at none of the margins swept"
        table[f"{name}_se"].attrs["long_name"] = f"standard error of {name}"
        del table[name].attrs["partner"]


def _threshold_spread(samples: Samples) -> tuple[list[str], bool]:
    """Axes that set the spread of the cells' thresholds, and whether some spread is fixed."""
    axes: list[str] = []
    fixed = False
    for entry in samples.spec.get("random", []):
        if entry.get("target") != "threshold":
            continue
        spread: Any = entry.get("std", entry.get("scale"))
        if isinstance(spread, str) and spread in samples.axes:
            axes.append(spread)
        else:
            fixed |= spread != 0
    return list(dict.fromkeys(axes)), fixed


# ---------------------------------------------------------------- time


def _add_discharge(
    table: xr.Dataset, samples: Samples, passed: np.ndarray, absent: dict[str, str]
) -> None:
    crossing = samples.response("t_cross")
    crossed = samples.ok & np.isfinite(crossing)
    add_mean(
        table,
        samples,
        "discharge_time",
        crossing,
        crossed & passed,
        units="s",
        long_name="bitline discharge to the trip point, mean of the reads that pass",
    )
    table["discharge_time"].attrs.update(
        valid_min=0.0, undefined="no sample passed and crossed the trip point"
    )
    for name, counted, meaning in (
        ("n_crossed", crossed, "samples whose bitline crossed the trip point"),
        ("n_never_crossed", samples.ok & ~crossed, "successful samples that never crossed it"),
    ):
        table[name] = (samples.axes, counted.sum(axis=-1), {"units": "1", "long_name": meaning})
    if "m" not in samples.axes or 1 not in table["m"].values:
        absent["discharge_penalty"] = "m = 1 is not on an axis m of the sweep"
        return
    _add_penalty(table, samples.axes)


def _add_penalty(table: xr.Dataset, axes: tuple[str, ...]) -> None:
    """Discharge time over that of m = 1 at the same point, minus 1."""
    at = axes.index("m")
    one = [int(np.flatnonzero(table["m"].values == 1)[0])]
    time, error = table["discharge_time"].values, table["discharge_time_se"].values
    ratio = time / np.take(time, one, axis=at)
    relative = error / time
    # The two means are taken as independent, which with common random numbers errs on
    # the safe side; m = 1 is compared with itself.
    ratio_error = ratio * np.hypot(relative, np.take(relative, one, axis=at))
    itself = np.moveaxis(
        np.broadcast_to(table["m"].values == 1, np.moveaxis(ratio, at, -1).shape), -1, at
    )
    ratio_error = np.where(itself & np.isfinite(ratio), 0.0, ratio_error)
    undefined = "no sample passed and crossed the trip point here or at m = 1"
    table["discharge_penalty"] = (
        axes,
        ratio - 1,
        {
            "units": "1",
            "long_name": "discharge time relative to m = 1, minus 1",
            "standard_error": "discharge_penalty_se",
            "perturb": "ratio",
            "source": "discharge_time",
            "axis": "m",
            "reference": 1,
            "undefined": undefined,
        },
    )
    table["discharge_penalty_se"] = (
        axes,
        ratio_error,
        {
            "units": "1",
            "long_name": "standard error of discharge_penalty",
            "undefined": undefined,
        },
    )
