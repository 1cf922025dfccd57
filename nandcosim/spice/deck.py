"""A complete ngspice deck: netlist, options, what to save, the analysis."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nandcosim.spice.circuit import Analysis, Circuit
from nandcosim.spice.netlists import call_subcircuits

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from PySpice.Spice.Netlist import Circuit as Netlist

__all__ = ["Deck", "build_deck", "netlist_text"]

#: Options that fix accuracy and results; they are part of the deck, so that
#: ``ngspice -b`` on it solves the same equations in the same way.
OPTIONS: dict[str, str] = {
    "num_threads": "1",
    "noacct": "",
    # Junction gmin would leak more than a blocked string conducts (1 pS x 256 junctions).
    "gmin": "1e-15",
    # Leaves a transistor's linearisation as it was while its voltages hardly move: a quarter
    # to a third less work, crossing times within 7e-4 (tested against it switched off).
    "bypass": "1",
}


@dataclass(frozen=True)
class Deck:
    """Text of a deck and the analysis that is asked of it.

    Attributes
    ----------
    netlist : str
        Title and elements, models and subcircuits inlined; no ``.end``.
    analysis : Transient or DcSweep
    saved : tuple of str
        Vectors to keep, e.g. ``("v(bl)", "i(vdd)")``.
    options : dict of str
        ``.options``; a value may be empty.
    temperature : float
        In degC.
    """

    netlist: str
    analysis: Analysis
    saved: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=lambda: dict(OPTIONS))
    temperature: float = 27.0

    def text(self, measures: tuple[str, ...] = ()) -> str:
        """Render the deck; `measures` are ``.meas`` lines for batch use.

        Measures stay out of the engine's own decks: one whose trigger never
        comes fails the whole run although the waveform is fine.
        """
        options = " ".join(f"{k}={v}" if v else k for k, v in self.options.items())
        lines = [
            self.netlist.rstrip("\n"),
            f".options {options}",
            f".temp {self.temperature!r}",
            f".save {' '.join(self.saved)}",
            self.analysis.line,
            *measures,
            ".end",
            "",
        ]
        return "\n".join(lines)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text and of the early stop, which is no part of it."""
        whole = f"{self.text()}\n{self.analysis.stop_when}"
        return hashlib.sha256(whole.encode()).hexdigest()


def build_deck(
    circuit: Circuit,
    params: Any,
    knobs: Mapping[str, np.ndarray] | None = None,
    wanted: frozenset[str] | None = None,
) -> Deck:
    """Render `circuit` at `params` with `knobs` placed in it.

    Parameters
    ----------
    circuit : Circuit
    params : Params
    knobs : Mapping of str to ndarray, optional
        Values in each knob's unit; a missing knob is zero.
    wanted : frozenset of str, optional
        Responses asked for; they decide how early the run may stop.
    """
    return Deck(
        netlist=netlist_text(circuit.build(params, knobs)),
        analysis=circuit.analysis(params, wanted),
        saved=circuit.saved(params),
        temperature=float(getattr(params, "temperature", 27.0)),
    )


def netlist_text(netlist: Netlist) -> str:
    """Text of a netlist, title first, as a `Deck` takes it."""
    return call_subcircuits(_plain(str(netlist)))


def _plain(text: str) -> str:
    """Drop PySpice's ``.title`` keyword and trailing ``.end``, keep the title line."""
    text = re.sub(r"^\.title\s+", "", text, count=1)
    return re.sub(r"\n\.end\s*$", "\n", text)
