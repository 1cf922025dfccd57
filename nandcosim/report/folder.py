"""The report of a folder: whatever results lie in it, on one page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

from nandcosim.errors import InputError
from nandcosim.report.dnova import dnova_sections
from nandcosim.report.nasic import nasic_sections
from nandcosim.report.nvllm import nvllm_sections
from nandcosim.report.page import Picture, Section, as_svg, write_page
from nandcosim.report.quality import quality_sections
from nandcosim.report.samples import draw_samples
from nandcosim.tables import CalibrationTable, open_table
from nandcosim.tables.plotting import draw

__all__ = ["report"]

TITLES = {
    "dnova": "From an ngspice string to the recall of a retrieval accelerator",
    "nasic": "From a string's current to experts in the array",
    "nvllm-quality": "Bit errors of flash in a language model",
    "nvllm": "From an ngspice page read to the tokens of a language model in flash",
}


def report(folder: Path) -> Path:
    """Write ``report.html`` into `folder` from the netCDF files that lie in it.

    Parameters
    ----------
    folder : Path
        Holds any of, itself or in folders below it: waveforms of samples, calibration
        tables, evaluations.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If there is no such folder, or nothing in it is a result of this package.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = _collect(folder)
    sections = [
        section for kind, make in _SECTIONS.items() if found[kind] for section in make(found[kind])
    ]
    if not sections:
        raise InputError(f"{folder}: no waveforms, table or evaluation (*.nc) of nandcosim in it")
    chapters = ", ".join(_in_a_sentence(section.title) for section in sections)
    systems = {dataset.attrs["system"] for _, dataset in found["evaluations"]}
    title = TITLES[systems.pop()] if len(systems) == 1 else "From ngspice to systems"
    return write_page(folder / "report.html", title, f"On this page: {chapters}.", sections)


def _in_a_sentence(title: str) -> str:
    """A heading without its capital, unless that is a name's."""
    named = title[1:2] == "-" or title[1:2].isupper()
    return title if named else title[:1].lower() + title[1:]


def _collect(folder: Path) -> dict[str, list[tuple[str, xr.Dataset]]]:
    found: dict[str, list[tuple[str, xr.Dataset]]] = {kind: [] for kind in _SECTIONS}
    for path in sorted(folder.rglob("*.nc")):
        try:
            dataset = xr.load_dataset(path, engine="h5netcdf")
        except Exception as error:  # noqa: BLE001 - HDF5 raises many kinds for a damaged file
            raise InputError(f"{path}: no readable netCDF: {error}") from None
        kind = next((kind for kind, mark in _MARKS.items() if mark in dataset.attrs), None)
        if kind == "tables":  # as plain as when it was fitted, so that its digest is the same
            dataset = open_table(path).dataset
        if kind is not None:
            found[kind].append((str(path.relative_to(folder)), dataset))
    return found


def _samples(found: list[tuple[str, xr.Dataset]]) -> list[Section]:
    datasets = [dataset for _, dataset in found]
    settings = [{"sample": d.attrs["label"], **json.loads(d.attrs["settings"])} for d in datasets]
    picture = Picture(
        as_svg(draw_samples(datasets), "samples"),
        "v(bl) is the bitline, v(out) the output buffer; one line style a sense operation, "
        "simulated by ngspice.",
    )
    text = (
        "The bitline is precharged, then the string is selected. It discharges the bitline below "
        "the trip point before the strobe only if every active cell conducts; the output buffer "
        "then reads 1, a pass."
    )
    return [Section("Waveforms of the string", text, [picture], rows=settings)]


def _tables(found: list[tuple[str, xr.Dataset]]) -> list[Section]:
    sections = []
    for name, dataset in found:
        table = CalibrationTable(dataset)
        picture = Picture(
            as_svg(draw(table), name),
            "Points are measured over the samples of the sweep, bars are 95 % intervals. The "
            "curves of the pass probability are the fitted model; other lines join points.",
        )
        counts = {"successful": int(dataset["n"].sum()), "failed": int(dataset["failed"].sum())}
        facts = {
            "file": name,
            "samples": f"{counts['successful']} successful, {counts['failed']} failed",
            "samples a point": f"{int(dataset['n'].min())} to {int(dataset['n'].max())}",
            "digest of the sweep": dataset.attrs.get("store_digest", "-"),
            "digest of the table": table.digest,
            "fitted by": dataset.attrs.get("fitted_by", "-"),
            "fitted at": dataset.attrs.get("created", "-"),
            **_origin(dataset),
        }
        text = (
            "The margin is how far, in level spacings, the wordline of the critical cell lies "
            "above the decision boundary of its stored level: q + alpha - r - 1/2. The other "
            "active cells match the query; sigma is the spread of every stored threshold, in "
            "level spacings too. Times are means over the reads that pass and cross."
        )
        sections.append(Section(f"Calibration table of {table.circuit}", text, [picture], facts))
    return sections


def _evaluations(found: list[tuple[str, xr.Dataset]]) -> list[Section]:
    return [
        section
        for name, dataset in found
        for section in _EVALUATIONS[dataset.attrs["system"]](name, dataset)
    ]


def _origin(dataset: xr.Dataset) -> dict[str, str]:
    """The simulator and the conditions behind a table, as its attributes record them."""
    versions, parameters = (_decoded(dataset, name) for name in ("versions", "circuit_parameters"))
    facts = {}
    if versions:
        used = sorted({f"ngspice {each.get('ngspice', '?')}" for each in versions})
        facts["simulated by"] = ", ".join(used)
    if parameters:
        shown = ("card", "cells", "bits", "window", "vdd", "c_bl", "t_sense", "temperature")
        pairs = [f"{name} = {parameters[name]}" for name in shown if name in parameters]
        facts["circuit (SI units, degC)"] = "; ".join(pairs)
    return facts


def _decoded(dataset: xr.Dataset, name: str) -> Any:
    value = dataset.attrs.get(name)
    return json.loads(value) if isinstance(value, str) else value


_EVALUATIONS: dict[str, Callable[[str, xr.Dataset], list[Section]]] = {
    "dnova": dnova_sections,
    "nasic": nasic_sections,
    "nvllm": nvllm_sections,
    "nvllm-quality": quality_sections,
}

#: Section kinds in the order of the page, and the attribute that marks a file of that kind.
_SECTIONS: dict[str, Callable[[list[tuple[str, xr.Dataset]]], list[Section]]] = {
    "samples": _samples,
    "tables": _tables,
    "evaluations": _evaluations,
}
_MARKS: dict[str, Any] = {
    "samples": "nandcosim_sample",
    "tables": "nandcosim_table",
    "evaluations": "system",
}
