"""How many inputs may be added at once: the largest N whose loss stays within a limit.

`largest_rows` finds it in losses measured over N (`accuracy.cosine_loss`), `admissible` looks
it up in the measurement that comes with the package, at any current spread inside it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.intervals import CONFIDENCE
from nandcosim.systems.arrays import described

__all__ = ["SHIPPED", "admissible", "largest_rows", "load_losses"]

SHIPPED = Path(__file__).resolve().parent / "data" / "input_dimension.nc"

_RESAMPLES = 200
_TEXTS = {
    "rows": ("1", "largest input dimension within the limit; 0: none scanned, inf: all scanned"),
    "rows_low": ("1", "lower end of the interval of rows"),
    "rows_high": ("1", "upper end of the interval of rows"),
}


def largest_rows(losses: xr.DataArray, limit: float, seed: int = 0) -> xr.Dataset:
    """The largest number of inputs whose mean loss is within a limit.

    Parameters
    ----------
    losses : DataArray (..., input_rows, seed, token)
        Two input dimensions or more.
    limit : float
        Of the mean over seeds and tokens.
    seed : int
        Of the bootstrap.

    Returns
    -------
    xarray.Dataset
        ``rows``, interpolated in log-log, and the ends of its 95 % interval ``rows_low`` and
        ``rows_high``: percentiles over resampled tokens and seeds. 0 where no number scanned is
        within the limit, inf where the largest is.

    Raises
    ------
    InputError
        If the limit is not positive.
    """
    if not limit > 0:
        raise InputError(f"limit: found {limit}, allowed: more than 0")
    ordered = losses.sortby("input_rows").transpose(..., "input_rows", "seed", "token")
    rows, values = ordered["input_rows"].values.astype(float), ordered.values
    rng = np.random.default_rng(seed)
    seeds, tokens = values.shape[-2:]
    resampled = np.stack(
        [
            _crossing(
                rows,
                values[..., rng.integers(seeds, size=seeds), :][
                    ..., rng.integers(tokens, size=tokens)
                ].mean(axis=(-2, -1)),
                limit,
            )
            for _ in range(_RESAMPLES)
        ]
    )
    # order statistics: between two of them may lie an infinite step
    low, high = np.quantile(
        resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0, method="nearest"
    )
    frame = ordered.isel(input_rows=0, seed=0, token=0, drop=True)
    found = {"rows": _crossing(rows, values.mean(axis=(-2, -1)), limit)}
    found |= {"rows_low": low, "rows_high": high}
    result = xr.Dataset({name: frame.copy(data=value) for name, value in found.items()})
    return described(result, _TEXTS)


def _crossing(
    rows: NDArray[np.float64], loss: NDArray[np.float64], limit: float
) -> NDArray[np.float64]:
    """Where `loss` (..., rows) leaves the limit for good."""
    within = loss <= limit
    last = within.shape[-1] - 1 - np.argmax(within[..., ::-1], axis=-1)
    at = np.minimum(last, rows.size - 2)[..., None]
    smallest = np.finfo(float).tiny  # of a loss that is rounding of 0
    logs = np.log(np.maximum(loss, smallest))
    y0, y1 = (np.take_along_axis(logs, i, axis=-1)[..., 0] for i in (at, at + 1))
    x0, x1 = (np.log(rows[i[..., 0]]) for i in (at, at + 1))
    rise = np.where(y1 > y0, y1 - y0, 1.0)
    share = np.clip((np.log(limit) - y0) / rise, 0, 1)
    between = np.exp(x0 + (x1 - x0) * share)
    inside = np.where(within[..., -1], np.inf, between)
    return np.where(within.any(axis=-1), inside, 0.0)


def load_losses(path: Path = SHIPPED) -> xr.Dataset:
    """A measurement as `accuracy_study` writes it, ``cosine_loss`` over its axes.

    Raises
    ------
    InputError
        If the file cannot be read or is none.
    """
    try:
        losses = xr.load_dataset(path, engine="h5netcdf")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not {"sigma", "input_rows", "seed", "token"} <= set(losses.get("cosine_loss", losses).dims):
        raise InputError(f"{path}: found no cosine_loss over sigma and input_rows")
    return losses


def admissible(
    sigma: float | xr.DataArray, limit: float, losses: xr.Dataset | None = None, **at: float | str
) -> xr.DataArray:
    """Look the admissible input dimension up, at current spreads inside the measurement.

    The loss is interpolated in sigma squared, which is how errors add.

    Parameters
    ----------
    sigma : float or DataArray
        Standard deviation of a string's current over its mean.
    limit : float
        Cosine loss allowed, see `largest_rows`.
    losses : xarray.Dataset, optional
        Of `load_losses`; default: the one shipped.
    **at
        Values of the measurement's other axes, exactly: ``states=4, adc_bits=8``.

    Returns
    -------
    DataArray
        Whole numbers, rounded down, with the shape of `sigma`.

    Raises
    ------
    InputError
        If a value is outside of what was measured, or the answer is.
    """
    measured = (load_losses() if losses is None else losses)["cosine_loss"]
    for name, value in at.items():
        if name not in measured.dims or value not in measured[name].values:
            allowed = ", ".join(map(str, measured[name].values)) if name in measured.dims else "-"
            raise InputError(f"input dimension: {name}: found {value}, measured: {allowed}")
    asked = xr.DataArray(sigma)
    scanned = measured["sigma"].values
    if not bool(((asked >= scanned.min()) & (asked <= scanned.max())).all()):
        found = ", ".join(f"{s:g}" for s in np.ravel(asked))
        limits = f"{scanned.min():g} to {scanned.max():g}"
        raise InputError(f"input dimension: sigma: found {found}, measured: {limits}")
    chosen = measured.sel(at)
    squared = chosen.assign_coords(sigma=chosen["sigma"] ** 2).sortby("sigma")
    rows = largest_rows(squared.interp(sigma=asked**2), limit)["rows"].drop_vars("sigma")
    if not bool(((rows > 0) & np.isfinite(rows)).all()):
        numbers = measured["input_rows"].values
        raise InputError(
            f"input dimension: a cosine loss of {limit:g} is not reached between "
            f"{numbers.min()} and {numbers.max()} inputs, which is what was measured"
        )
    # a whole number is not to be one less by rounding
    return xr.DataArray(np.floor(rows * (1 + 1e-9))).astype(int)
