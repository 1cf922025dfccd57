"""The table of `cim_string`: a string's current, and the products of a unit of eight strings.

A string's current depends on pulse and state by their difference only, the ``step``. A unit
with the weight W reads string k at the steps j - s_k in the pulses j; block B counts
negatively. Strings are independent, pulses of one string are not::

    product      = sum over k, j of +-current(j - s_k)
    product_sd^2 = sum over k of v_k' C v_k,   v_k: signed pulses of string k by step
    product_se^2 = (sum v_k)' C (sum v_k) / n,  since all strings share one mean

C is the covariance of a string's currents at two steps, which only a sweep with common
random numbers knows: there a sample is the same string at every step. ``lsb`` is the
product at the largest weight and input over weight times input.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.encodings import complement, string_states, weights
from nandcosim.intervals import mean_and_error
from nandcosim.tables.samples import Samples

__all__ = ["fit_cim_string", "signed_reads"]

Floats = NDArray[np.float64]

NO_WEIGHT = "no weight of these cells, or a step that it needs is not in the sweep"
MISMATCH = "the query is not the entry, so there is no product"


def signed_reads(weight: int, states: int, steps: NDArray[np.int_]) -> Floats | None:
    """How often a unit reads each of its strings at each step; block B counts negatively.

    Returns
    -------
    ndarray, shape (8, steps), or None
        None if a step that is needed is missing.
    """
    block_a = string_states(weight, states)
    stored = np.concatenate([block_a, complement(block_a, states)])
    sign = np.repeat([1.0, -1.0], block_a.size)
    needed = np.arange(1, states) - stored[:, np.newaxis]  # string, pulse
    if not np.isin(needed, steps).all():
        return None
    counts = (needed[..., np.newaxis] == steps).sum(axis=1)
    return np.asarray(sign[:, np.newaxis] * counts)


def fit_cim_string(samples: Samples) -> xr.Dataset:
    """Fit the table of a CIM string.

    Returns
    -------
    xarray.Dataset
        Over the axes and ``x``: ``current`` with ``_se``, ``_sd``, ``_n`` and
        ``current_spread``, its standard deviation over its mean. Over the axes but ``step``,
        and ``weight`` and ``x``: ``product`` with ``_se`` and ``_sd``, ``inl`` and ``dnl``
        (along the weight) in units of ``lsb``, whose largest are ``inl_largest`` and
        ``dnl_largest``. What the sweep does not allow is absent, and the attribute
        ``not_fitted`` says why.
    """
    inputs = np.array(sorted(int(n[3:]) for n in samples.response_names if n.startswith("i_x")))
    values = np.stack([samples.response(f"i_x{x}") for x in inputs], axis=-2)
    used = samples.ok[..., np.newaxis, :] & np.isfinite(values)
    table = xr.Dataset(coords={axis: samples.store[axis] for axis in samples.axes})
    table.coords["x"] = ("x", inputs, _exact("input on the source line"))
    _add_currents(table, samples, values, used)
    absent = _reason(samples)
    if absent:
        names = ("product", "lsb", "inl", "dnl")
        table.attrs["not_fitted"] = json.dumps(dict.fromkeys(names, absent), sort_keys=True)
        return table
    _add_products(table, samples, values, used)
    _add_linearity(table, samples)
    return table


def _exact(meaning: str) -> dict[str, str]:
    return {"units": "1", "long_name": meaning, "interpolation": "exact"}


def _reason(samples: Samples) -> str:
    """Why there are no products; empty if there are."""
    if "step" not in samples.axes:
        return "step is no axis of the sweep"
    if not samples.paired:
        return "without common random numbers the pulses of one string are not known together"
    return ""


def _add_currents(table: xr.Dataset, samples: Samples, values: Floats, used: Any) -> None:
    dims = (*samples.axes, "x")
    mean, error, deviation = mean_and_error(values, used)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(table["x"].values == 0, np.nan, deviation / mean)
    few = "fewer than two samples have a value"
    for name, quantity, units, meaning, undefined in (
        ("current", mean, "A", "string current", "no successful sample has a value"),
        ("current_se", error, "A", "standard error of current", few),
        ("current_sd", deviation, "A", "standard deviation of the samples of current", few),
        ("current_spread", spread, "1", "current_sd over current", f"x = 0, or {few}"),
    ):
        attributes = {"units": units, "long_name": meaning, "undefined": undefined}
        table[name] = (dims, quantity, attributes)
    table["current"].attrs.update(standard_error="current_se", perturb="normal")
    counted = {"units": "1", "long_name": "samples in the mean current"}
    table["current_n"] = (dims, used.sum(axis=-1), counted)


def _add_products(table: xr.Dataset, samples: Samples, values: Floats, used: Any) -> None:
    """Means and spreads of the products, state number by state number."""
    steps = table["step"].values
    outer = tuple(axis for axis in samples.axes if axis != "step")
    # (outer..., x, step, sample); a string counts only where all of its pulses are known
    ordered = np.moveaxis(values, samples.axes.index("step"), -2)
    complete = np.moveaxis(used, samples.axes.index("step"), -2).all(axis=-2, keepdims=True)
    n = complete.sum(axis=-1)[..., 0]
    string = np.where(complete, ordered, 0.0)
    mean = string.sum(axis=-1) / np.maximum(n, 1)[..., np.newaxis]
    centred = np.where(complete, string - mean[..., np.newaxis], 0.0)
    covariance = centred @ np.swapaxes(centred, -1, -2)
    covariance /= np.maximum(n - 1, 1)[..., np.newaxis, np.newaxis]

    counts = _state_counts(samples)
    codes = weights(max(counts))
    table.coords["weight"] = ("weight", codes, _exact("weight of the unit"))
    shape = (*n.shape[:-1], codes.size, n.shape[-1])
    found = {name: np.full(shape, np.nan) for name in ("product", "product_se", "product_sd")}
    for where, states in _by_states(outer, counts):
        for place, weight in enumerate(codes):
            reads = signed_reads(int(weight), states, steps) if weight in weights(states) else None
            if reads is None:
                continue
            total = reads.sum(axis=0)
            at = (*where, Ellipsis, place, slice(None))
            known = n[where] > 1
            variance = np.einsum("kd,...de,ke->...", reads, covariance[where], reads)
            shared = np.einsum("d,...de,e->...", total, covariance[where], total)
            error = np.sqrt(shared / np.maximum(n[where], 1))
            found["product"][at] = np.where(n[where] > 0, mean[where] @ total, np.nan)
            found["product_sd"][at] = np.where(known, np.sqrt(variance), np.nan)
            found["product_se"][at] = np.where(known, error, np.nan)
    dims = (*outer, "weight", "x")
    for name, meaning in (
        ("product", "current of block A less block B over all pulses"),
        ("product_se", "standard error of product"),
        ("product_sd", "standard deviation of product from unit to unit"),
    ):
        attributes = {"units": "A", "long_name": meaning, "undefined": NO_WEIGHT}
        table[name] = (dims, found[name], attributes)
    table["product"].attrs.update(standard_error="product_se", perturb="normal")


def _by_states(
    outer: tuple[str, ...], counts: list[int]
) -> list[tuple[tuple[slice | int, ...], int]]:
    """Index of the outer axes for every number of states."""
    if "states" not in outer:
        return [((), counts[0])]
    before = (slice(None),) * outer.index("states")
    return [((*before, i), states) for i, states in enumerate(counts)]


def _state_counts(samples: Samples) -> list[int]:
    if "states" in samples.axes:
        return [int(states) for states in samples.store["states"].values]
    return [int(_parameter(samples, "states"))]


def _parameter(samples: Samples, name: str) -> Any:
    """A circuit parameter that is no axis: the sweep's own, or the circuit's default."""
    given = samples.spec.get("parameters", {})
    if name in given:
        return given[name]
    recorded = samples.store.attrs["circuit_parameters"]
    return (json.loads(recorded) if isinstance(recorded, str) else recorded)[name]


def _add_linearity(table: xr.Dataset, samples: Samples) -> None:
    """Deviation of the products from weight times input, in units of the step that fits."""
    entry = int(_parameter(samples, "entry"))
    query = table["query"] if "query" in table.dims else int(_parameter(samples, "query"))
    product = table["product"].where(query == entry)
    weight, x = table["weight"], table["x"]
    ideal = weight * x
    # the largest weight that the cells of this number of states have
    place = product.isel(x=-1).notnull() * weight
    largest = place.max("weight")
    full = product.isel(x=-1).where(weight == largest).sum("weight", min_count=1)
    lsb = full / (largest * x[-1])
    inl = product / lsb - ideal
    dnl = product.diff("weight", label="upper") / (lsb * x).where(x > 0) - 1
    dnl = dnl.reindex_like(product)
    for name, quantity, units, meaning, undefined in (
        ("lsb", lsb, "A", "product at the largest weight and input over weight times input", ""),
        ("inl", inl, "1", "product over lsb, less weight times input", f"{NO_WEIGHT}; "),
        ("dnl", dnl, "1", "step from the weight below over lsb and x, less 1", f"{NO_WEIGHT}; "),
        ("inl_largest", abs(inl).max(("weight", "x")), "1", "largest magnitude of inl", ""),
        ("dnl_largest", abs(dnl).max(("weight", "x")), "1", "largest magnitude of dnl", ""),
    ):
        attributes = {"units": units, "long_name": meaning, "undefined": undefined + MISMATCH}
        dims = [dim for dim in table["product"].dims if dim in quantity.dims]
        table[name] = (dims, quantity.transpose(*dims).values, attributes)
