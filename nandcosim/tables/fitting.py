"""From a sweep's store to a calibration table."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import xarray as xr

import nandcosim
from nandcosim.errors import InputError
from nandcosim.spice.status import Status
from nandcosim.tables.cam_string import fit_cam_string
from nandcosim.tables.cim_string import fit_cim_string
from nandcosim.tables.dts_sense import fit_dts_sense
from nandcosim.tables.engines import engine_audit
from nandcosim.tables.generic import fit_responses
from nandcosim.tables.page_read import fit_page_read
from nandcosim.tables.rare_event import fit_rare_event
from nandcosim.tables.samples import Samples, open_samples
from nandcosim.tables.sense_amp import fit_sense_amp
from nandcosim.tables.table import FORMAT, CalibrationTable

__all__ = ["FITS", "MAX_FAILED", "fit"]

log = logging.getLogger(__name__)

#: What a circuit's table holds. Other circuits get the summary of `fit_responses`.
FITS: dict[str, Callable[[Samples], xr.Dataset]] = {
    "cam_string": fit_cam_string,
    "cim_string": fit_cim_string,
    "dts_sense": fit_dts_sense,
    "page_read": fit_page_read,
    "sense_amp": fit_sense_amp,
}

#: Largest fraction of failed samples that a fit accepts unless asked otherwise.
MAX_FAILED = 0.05

#: Numeric axes that count something: never interpolated, even where given as floats.
EXACT_AXES = ("m", "critical", "cells", "bits", "stored")


def fit(
    source: str | os.PathLike[str] | xr.Dataset,
    *,
    allow_partial: bool = False,
    max_failed: float = MAX_FAILED,
) -> CalibrationTable:
    """Fit a calibration table to a sweep.

    Parameters
    ----------
    source : path, SweepStore or xarray.Dataset
        A finished sweep, or a dataset of the same layout.
    allow_partial : bool
        Fit although samples have not been run, or a plan is not complete.
    max_failed : float
        Largest fraction of failed samples, over the whole sweep, that is accepted.

    Returns
    -------
    CalibrationTable
        With the variables that `FITS` names for the circuit; always ``n`` and ``failed``,
        the successful and the failed samples of every grid point, and for every response
        ``first_<response>``, its value in sample 0: to make again and compare. Of a sweep
        that asked for a precision also ``wanted``, the samples asked for at every point,
        and the attribute ``plan``; of one that asked for a rare event what
        `nandcosim.tables.rare_event.fit_rare_event` finds.

    Raises
    ------
    InputError
        If `source` is no sweep, something is left to run, or too many samples failed.
    """
    where = "dataset" if isinstance(source, xr.Dataset) else os.fspath(source)
    samples = open_samples(source, EXACT_AXES)
    _check_complete(samples, where, allow_partial, max_failed)
    fitted = _fitted(samples, source)
    for name, counts, meaning in (
        ("n", samples.n, "successful samples"),
        ("failed", samples.failed, "failed samples, for whatever reason"),
        ("not_run", samples.not_run, "samples that were not run"),
    ):
        if name != "not_run" or counts.any():
            fitted[name] = (samples.axes, counts, {"units": "1", "long_name": meaning})
    if samples.planned:
        about = {"units": "1", "long_name": "samples that the plan asked for"}
        fitted["wanted"] = (samples.axes, samples.wanted, about)
    for name in samples.response_names:
        fitted[f"first_{name}"] = _first(samples, name)
    for axis in samples.axes:
        fitted[axis].attrs.update(_plain(samples.store[axis].attrs))
    fitted.attrs.update(_provenance(samples))
    return CalibrationTable(fitted)


def _fitted(samples: Samples, source: str | os.PathLike[str] | xr.Dataset) -> xr.Dataset:
    if "rare" not in samples.spec:
        return FITS.get(samples.circuit, fit_responses)(samples)
    if isinstance(source, xr.Dataset):
        raise InputError("dataset: holds a sweep of a rare event, expected the path of its store")
    return fit_rare_event(samples, source)


def _first(samples: Samples, name: str) -> xr.Variable:
    """A response in sample 0 of every grid point."""
    about = samples.describe(name)
    about["long_name"] = f"sample 0: {about['long_name']}"
    about["undefined"] = "sample 0 failed, or has no such value"
    values = samples.response(name)[..., 0]
    return xr.Variable(samples.axes, np.where(samples.ok[..., 0], values, np.nan), about)


def _check_complete(samples: Samples, where: str, allow_partial: bool, max_failed: float) -> None:
    total, not_run = int(samples.wanted.sum()), int(samples.not_run.sum())
    failed, n = int(samples.failed.sum()), int(samples.n.sum())
    if not_run and not allow_partial:
        raise InputError(
            f"{where}: {not_run} of {total} samples have not been run; run the sweep again to "
            "continue it, or fit with allow_partial=True (--allow-partial)"
        )
    if samples.planned and not samples.plan.get("complete") and not allow_partial:
        raise InputError(
            f"{where}: the plan is not complete after {total} samples; run the sweep again to "
            "continue it, or fit with allow_partial=True (--allow-partial)"
        )
    if n == 0:
        raise InputError(f"{where}: no sample succeeded ({_counts(samples)}), nothing to fit")
    if failed > max_failed * (failed + n):
        raise InputError(
            f"{where}: {failed} of {failed + n} samples failed ({_counts(samples)}), "
            f"allowed: a fraction of {max_failed:g}"
        )
    if failed:
        log.warning("%s: %d of %d samples failed (%s)", where, failed, total, _counts(samples))


def _counts(samples: Samples) -> str:
    return ", ".join(f"{label} {count}" for label, count in samples.status_counts().items())


def _provenance(samples: Samples) -> dict[str, Any]:
    """Where the table comes from; nested values as JSON, which every format can hold."""
    attributes = samples.store.attrs
    runs = attributes.get("runs", [])
    runs = json.loads(runs) if isinstance(runs, str) else runs
    versions = [run["versions"] for run in runs if "versions" in run]
    distinct = [each for i, each in enumerate(versions) if each not in versions[:i]]
    nested = {
        "netlists": attributes.get("netlists", {}),
        "circuit_parameters": attributes.get("circuit_parameters", {}),
        "versions": distinct,
        "status_counts": samples.status_counts(),
    }
    audit = engine_audit(_run_samples(samples))
    if audit:
        nested["fast_engine"] = audit
    if samples.planned:
        nested["plan"] = samples.plan
    return {
        "nandcosim_table": FORMAT,
        "circuit": samples.circuit,
        "spec": json.dumps(samples.spec, sort_keys=True),
        "seed": str(samples.spec.get("seed", attributes.get("seed", ""))),
        "sampler": str(samples.spec.get("sampler", "")),
        "common_random_numbers": int(samples.paired),
        "store_digest": samples.digest,
        **{
            name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for name, value in nested.items()
        },
        "fitted_by": f"nandcosim {nandcosim.__version__}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _run_samples(samples: Samples) -> xr.Dataset:
    """The store, its samples that were not run marked as made by no engine."""
    if "engine" not in samples.store:
        return samples.store
    engine = samples.store["engine"]
    made = np.where(samples.status == Status.NOT_RUN, -1, engine.values)
    return samples.store.assign(engine=engine.copy(data=made))


def _plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Attributes that every table format can hold."""
    return {
        str(name): value.item() if isinstance(value, np.generic) else value
        for name, value in attributes.items()
        if isinstance(value, (str, int, float, np.generic))
    }
