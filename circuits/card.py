"""What every transistor-level circuit starts from: the model card, its corner and temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from PySpice.Spice.Netlist import Circuit as Netlist

from nandcosim.spice.circuit import Params, parameter
from nandcosim.spice.netlists import (
    find_netlist,
    find_subcircuit,
    netlist_files,
    read_netlist,
)

__all__ = ["CardParams", "card_files", "card_netlist"]

#: Process corners as parameters of the shipped card (assumed: +-25 mV, -+8 % mobility).
CORNERS: dict[str, dict[str, float]] = {
    "tt": {"dvthn": 0.0, "dvthp": 0.0, "mobn": 1.0, "mobp": 1.0},
    "ss": {"dvthn": 0.025, "dvthp": 0.025, "mobn": 0.92, "mobp": 0.92},
    "ff": {"dvthn": -0.025, "dvthp": -0.025, "mobn": 1.08, "mobp": 1.08},
    "sf": {"dvthn": 0.025, "dvthp": -0.025, "mobn": 0.92, "mobp": 1.08},
    "fs": {"dvthn": -0.025, "dvthp": 0.025, "mobn": 1.08, "mobp": 0.92},
}


class CardParams(Params):
    """The devices' parameters."""

    corner: Literal["tt", "ss", "ff", "sf", "fs"] = parameter(
        "tt",
        unit="",
        meaning="process corner, nMOS then pMOS: typical, slow, fast",
        source="assumed: 25 mV and 8 % mobility a corner",
    )
    temperature: float = parameter(
        27.0,
        unit="degC",
        ge=-55.0,
        le=150.0,
        meaning="temperature of all devices",
        source="assumed: the card's nominal",
    )
    card: str = parameter(
        "planar16lp",
        unit="",
        meaning="model card with cell, nper, pper: a shipped name or a path",
        source="sourced: PTM 16 nm LP, see the file",
    )
    section: str = parameter(
        "",
        unit="",
        meaning="section of a card that is a library (.lib NAME ... .endl); none if empty",
        source="assumed: the shipped cards have none",
    )


def card_netlist(title: str, params: CardParams, *subcircuits: str) -> Netlist:
    """Start a netlist: corner parameters, the card, and subcircuits by shipped name or path."""
    netlist = Netlist(title)
    for name, value in CORNERS[params.corner].items():
        netlist.parameter(name, repr(value))
    # Inlined, so that the deck is complete on its own and its digest covers the files.
    texts = [read_netlist(_card(params), params.section)]
    texts += [read_netlist(find_subcircuit(name)) for name in subcircuits]
    netlist.raw_spice = "\n".join(text.rstrip() for text in texts) + "\n"
    return netlist


def card_files(params: CardParams, *subcircuits: str) -> tuple[str, ...]:
    """Files that `card_netlist` inlines or includes."""
    paths = list(netlist_files(_card(params), params.section))
    paths += [file for name in subcircuits for file in netlist_files(find_subcircuit(name))]
    return tuple(map(str, paths))


def _card(params: CardParams) -> Path:
    return find_netlist(params.card, "models", ".lib")
