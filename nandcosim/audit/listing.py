"""An audit as text, as rows, and its worst reads as decks, whichever system it is of."""

from __future__ import annotations

from typing import Any, Protocol

import xarray as xr

from nandcosim.audit import dnova_listing, nasic_listing, nvllm_listing
from nandcosim.errors import InputError

__all__ = ["audit_lines", "audit_rows", "offender_deck", "offenders"]


class _Listing(Protocol):
    def rows(self, dataset: xr.Dataset) -> list[dict[str, Any]]: ...
    def lines(self, dataset: xr.Dataset) -> str: ...
    def offenders(
        self, dataset: xr.Dataset, count: int = ..., comparison: str = ...
    ) -> list[dict[str, Any]]: ...
    def offender_deck(self, dataset: xr.Dataset, sample: int, comparison: str = ...) -> str: ...


_LISTINGS: dict[str, _Listing] = {
    "dnova": dnova_listing,
    "nvllm": nvllm_listing,
    "nasic": nasic_listing,
}


def audit_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The comparison over all reads and in parts of the run.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `audit_dnova`, `audit_nvllm` or `audit_nasic`.

    Returns
    -------
    list of dict
        ``comparison`` (``ideal``, ``noisy``), ``part``, ``share`` of the run's reads,
        ``examined``, ``failed``, ``circuit_conducts`` and ``circuit_blocks`` (the two
        directions, counts), ``rate`` of disagreement with its 95 % interval ``low``,
        ``high``, None in parts that the sample is not stratified by. Of NASiC: ``part``,
        ``share``, ``examined``, ``failed``, and ``bias``, ``residual``, ``spread``, ``tail``
        (see `unit_rates.Part`), ``wrong_model``, ``wrong_circuit``, ``wrong_more`` (see
        `unit_rates.Wrong`), ``gain``, ``leakage``; limits are ``<name>_low``, ``<name>_high``.
    """
    return _listing(dataset).rows(dataset)


def audit_lines(dataset: xr.Dataset) -> str:
    """The audit as text for a terminal."""
    return _listing(dataset).lines(dataset)


def offenders(
    dataset: xr.Dataset, count: int = 10, comparison: str = "ideal"
) -> list[dict[str, Any]]:
    """The reads in which circuit and model disagree, farthest from the decision first.

    Of NASiC the matched products with the largest residuals.

    Returns
    -------
    list of dict
        ``sample``, what was read, how far from the decision, both decisions, and
        ``simulate``: a command with a read like it, over uniform data, so that its bit may
        be another; the deck of the read itself is `offender_deck`'s.
    """
    return _listing(dataset).offenders(dataset, count, comparison)


def offender_deck(dataset: xr.Dataset, sample: int, comparison: str = "ideal") -> str:
    """A complete deck of one read's simulation, for ``ngspice -b``.

    Its cells, wordlines and amplifier are those of the read; the ``.meas`` lines are the
    output buffer's voltage at each strobe.

    Raises
    ------
    InputError
        If there is no such sample.
    """
    if not 0 <= sample < dataset.sizes["sample"]:
        raise InputError(f"audit: sample = {sample}, allowed: 0 .. {dataset.sizes['sample'] - 1}")
    return _listing(dataset).offender_deck(dataset, sample, comparison)


def _listing(dataset: xr.Dataset) -> _Listing:
    name = dataset.attrs.get("audit")
    if name not in _LISTINGS:
        raise InputError(f"audit: dataset of {name!r}, allowed: {', '.join(_LISTINGS)}")
    return _LISTINGS[name]
