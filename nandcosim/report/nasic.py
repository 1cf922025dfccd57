"""The sections of a NASiC evaluation on the page."""

from __future__ import annotations

import json

import xarray as xr

from nandcosim.errors import InputError
from nandcosim.report.configuration import MOST_ROWS, changed, first_rows, parameters, span
from nandcosim.report.experts import (
    AXES,
    at_usual,
    design_table,
    draw_energy,
    draw_errors,
    draw_front,
    draw_gains,
    expert_table,
    model_of,
)
from nandcosim.report.page import Picture, Section, as_svg
from nandcosim.systems.nasic import Config, front

__all__ = ["ERROR_LIMIT", "nasic_sections"]

#: Largest error of an output, over its standard deviation, of a design on the front: assumed,
#: as no paper says what a model's experts bear.
ERROR_LIMIT = 0.15


def nasic_sections(name: str, dataset: xr.Dataset) -> list[Section]:
    """Sections of one result of `nandcosim.systems.nasic.evaluate`; `name` is its file's."""
    return [
        _speed(name, dataset),
        _energy(name, dataset),
        _errors(name, dataset),
        *_best(name, dataset),
        parameters(dataset, Config),
    ]


def _speed(name: str, dataset: xr.Dataset) -> Section:
    rows = expert_table(dataset)
    text = (
        f"One token through the routed and shared experts of all layers of {model_of(dataset)}. "
        "Base computes all experts on the page, N inputs at a time, in binary cells, bit by bit. "
        "T1 interleaves experts and selects one by CAM cells in the string; T2 takes four strings "
        "and levels of the source line at once; T3 cells of more states. 'Operations × Base' "
        "counts every cell, pulse and input bit, as the paper does; time counts whole digits of "
        "weights and inputs. 'Interleaved' are experts that really share a bitline; 'array used' "
        "is the share of string operations that routed experts need. What does not fit runs on as "
        f"many planes as it needs, Base too.{first_rows(rows)}"
    )
    picture = Picture(
        as_svg(draw_gains(dataset), f"{name}gains"),
        f"Speed and energy against Base{AXES.cut_at(dataset, ('technique', 'sigma'))}.",
    )
    facts = {
        "file": name,
        "settings": changed(dataset, Config()),
        "tables, by digest": _tables(dataset),
        "cycle": span(dataset["cycle_time"], "s"),
        "planes needed": f"{span(dataset['planes_needed'], '1')} of {_planes(dataset)}",
        "made by": f"nandcosim {dataset.attrs['nandcosim']}, {dataset.attrs['made']}",
    }
    return Section("Experts of NASiC", text, [picture], facts, rows[:MOST_ROWS])


def _energy(name: str, dataset: xr.Dataset) -> Section:
    picture = Picture(
        as_svg(draw_energy(dataset), f"{name}energy"),
        f"Energy of a token's experts by component{AXES.cut_at(dataset, ('technique', 'model'))}.",
    )
    text = (
        "precharge: unselected wordlines; cam: the CAM cells' share; read: selected wordlines; "
        "bitline: current of conducting strings; adc: conversions; digital: adding their results."
    )
    return Section("Where the energy goes", text, [picture])


def _errors(name: str, dataset: xr.Dataset) -> Section:
    picture = Picture(
        as_svg(draw_errors(dataset), f"{name}errors"),
        f"Error of an output by cause{AXES.cut_at(dataset, ('technique', 'sigma'))}.",
    )
    text = (
        "spread: strings' currents differ; leakage: experts not searched for, and cells that are "
        "off; inl: levels of input and weight are not quite even; adc: rounding and clipping."
    )
    return Section("Errors of an output", text, [picture])


def _best(name: str, dataset: xr.Dataset) -> list[Section]:
    """The Pareto front, where there are designs to choose from."""
    one = dataset.isel(model=0, drop=True) if "model" in dataset.dims else dataset
    one = at_usual(one, ("sigma", "ratio"))  # conditions, not choices
    try:
        designs = front(one, ERROR_LIMIT)
    except InputError:  # none is accurate enough, which the table of errors shows
        return []
    if designs.sizes["design"] < 4:
        return []
    picture = Picture(
        as_svg(draw_front(designs), f"{name}front"),
        f"Designs whose outputs err by {100 * ERROR_LIMIT:g} % (assumed) or less, and that fit.",
    )
    rows = design_table(designs)
    text = (
        f"{designs.sizes['design']} designs are accurate enough; {len(rows)} of them are not "
        f"beaten in time, energy and area at once.{first_rows(rows)}"
    )
    return [Section("The best designs", text, [picture], rows=rows[:MOST_ROWS])]


def _planes(dataset: xr.Dataset) -> str:
    planes = json.loads(dataset.attrs["config"])["planes"]
    return ", ".join(map(str, planes)) if isinstance(planes, list) else str(planes)


def _tables(dataset: xr.Dataset) -> str:
    digests = json.loads(dataset.attrs["tables"])
    used = ("cim_string", "cim_string_8", "cim_pulse", "cam_string", "wordline")
    return ", ".join(f"{name} {digests[name][:16]}" for name in used if name in digests)
