"""Tables of a transistor's current and charges, made by ngspice from the card in use.

For a solver that steps many strings at once. The device is a subcircuit ``drain gate
source body``; nothing is assumed about what is inside, except that its currents depend
on the voltages between its terminals only.

Axes: u = V_gate - V_source, b = V_source - V_body, v = V_drain - V_source. Held are

- ``ln(I / v)``, I into the drain: continuous through v = 0, and linear in u below threshold;
- the charges of the drain's and of the source's node.

Currents come from a DC sweep of the gate over all (b, v) at once; charges from a transient
that first puts the terminals to (b, v) and then ramps the gate so fast that conduction
moves little charge, which the DC currents take off again. With the implicit Euler
rule the charge moved in a step is the terminal's current times the step, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nandcosim.spice.circuit import DcSweep, SweptSource, Transient
from nandcosim.spice.deck import OPTIONS, Deck
from nandcosim.spice.measured import measured

if TYPE_CHECKING:
    from nandcosim.spice.engine import Backend
    from nandcosim.spice.result import Waveforms

__all__ = ["DeviceTables", "Grid", "device_tables"]

#: Conductance below which a device counts as off, in S; gmin is of this order.
FLOOR = 1e-16

#: Duration of the ramp that moves the charges, in s.
RAMP = 1e-12

#: Wall seconds for one deck; it takes a few.
TIME_LIMIT = 600.0


@dataclass(frozen=True)
class Grid:
    """Where devices are tabulated, in V.

    Attributes
    ----------
    gate : tuple of float
        Values of u, equally spaced.
    body : tuple of float
        Values of b, equally spaced.
    span : tuple of float
        Values of v, ascending multiples of `span_unit`, 0 not among them.
    span_unit : float
    """

    gate: tuple[float, ...]
    body: tuple[float, ...]
    span: tuple[float, ...]
    span_unit: float = 1e-3


@dataclass(frozen=True)
class DeviceTables:
    """Devices on one `Grid`, in the layout that a compiled solver reads.

    Attributes
    ----------
    values : ndarray, shape (devices, gate, body, span, 4)
        ln of I/v in S, charge of the drain, charge of the source in C, and padding.
    axes : ndarray, shape (9,)
        Low end, steps per V and last interval of u, of b, and of the bins of v.
    bins : ndarray, shape (bins, 3)
        For every `Grid.span_unit` of v its interval: number, low end, 1 / length.
    """

    values: np.ndarray
    axes: np.ndarray
    bins: np.ndarray


def device_tables(
    library: str,
    calls: Sequence[str],
    grid: Grid,
    temperature: float,
    backend: Backend,
    stamp: str = "",
) -> DeviceTables:
    """Tabulate devices, or recall the tables that the same card and cells gave before.

    Parameters
    ----------
    library : str
        Netlist text with models and subcircuits.
    calls : sequence of str
        One instance a device, the terminals in braces:
        ``"{drain} {gate} {source} {body} nand_cell"``.
    grid : Grid
    temperature : float
        In degC.
    backend : Backend
    stamp : str
        What else decides the result, as the digests of files that `library` includes.

    Raises
    ------
    NandcosimError
        If ngspice cannot compute them.
    """
    decks = [_Decks.of(library, call, grid, temperature) for call in calls]
    text = "\n".join([stamp, backend.version(), *(f"{d.dc.text()}{d.ramp.text()}" for d in decks)])
    found = measured(
        "devices",
        text,
        lambda: {"values": np.stack([_table(each, grid, backend) for each in decks])},
    )
    gate, body, span = (np.array(axis) for axis in (grid.gate, grid.body, grid.span))
    count = round((span[-1] - span[0]) / grid.span_unit)
    middle = span[0] + (np.arange(count) + 0.5) * grid.span_unit
    interval = np.searchsorted(span, middle) - 1
    bins = np.stack([interval, span[interval], 1.0 / (span[interval + 1] - span[interval])], axis=1)
    regular = [[x[0], 1.0 / (x[1] - x[0]), x.size - 2.0] for x in (gate, body)]
    axes = np.array([*regular[0], *regular[1], span[0], 1.0 / grid.span_unit, count - 1.0])
    return DeviceTables(found["values"], axes, bins)


@dataclass(frozen=True)
class _Decks:
    """The two decks that measure one device."""

    dc: Deck
    ramp: Deck

    @classmethod
    def of(cls, library: str, call: str, grid: Grid, temperature: float) -> _Decks:
        pairs = [(b, v) for b in grid.body for v in grid.span]
        low, high = grid.gate[0], grid.gate[-1]
        lines = [
            "device table",
            library.rstrip("\n"),
            # the gate is at its first value when the other terminals have reached theirs
            f"vg g 0 dc 0 pwl(0 0 {RAMP!r} {low!r} {2 * RAMP!r} {high!r})",
        ]
        for k, (b, v) in enumerate(pairs):
            lines += [
                f"vb{k} b{k} 0 dc {-b!r} pwl(0 0 {RAMP!r} {-b!r})",
                f"vd{k} d{k} 0 dc {v!r} pwl(0 0 {RAMP!r} {v!r})",
                f"vs{k} s{k} 0 0",
                f"x{k} " + call.format(drain=f"d{k}", gate="g", source=f"s{k}", body=f"b{k}"),
            ]
        netlist = "\n".join(lines)
        # a device that is evaluated once at each point has nothing to bypass
        options = {name: value for name, value in OPTIONS.items() if name != "bypass"}
        saved = (*_currents("vd", len(pairs)), *_currents("vs", len(pairs)))
        sweep = DcSweep(SweptSource("vg", low, high, len(grid.gate)))
        step = RAMP / len(grid.gate)
        euler = {**options, "method": "gear", "maxord": "1"}
        return cls(
            Deck(netlist, sweep, saved, options, temperature),
            Deck(netlist, Transient(2 * RAMP, step, step), ("v(g)", *saved), euler, temperature),
        )


def _table(decks: _Decks, grid: Grid, backend: Backend) -> np.ndarray:
    """Values of one device, shape (gate, body, span, 4)."""
    count = len(grid.body) * len(grid.span)
    dc = backend.run(decks.dc, None, TIME_LIMIT).require_ok().waveforms
    drain, source = (_into(dc, _currents(name, count)) for name in ("vd", "vs"))
    ramp = backend.run(decks.ramp, None, TIME_LIMIT).require_ok().waveforms
    charges = [
        _charge(ramp, _into(ramp, _currents(name, count)), conducted, np.array(grid.gate))
        for name, conducted in (("vd", drain), ("vs", source))
    ]
    conductance = drain / np.tile(grid.span, len(grid.body))[:, None]
    logarithm = np.log(np.maximum(conductance, FLOOR))
    values = np.stack([logarithm, *charges, np.zeros_like(logarithm)], axis=-1)
    shape = (len(grid.body), len(grid.span), len(grid.gate), 4)
    return np.ascontiguousarray(values.reshape(shape).transpose(2, 0, 1, 3))


def _currents(source: str, count: int) -> tuple[str, ...]:
    return tuple(f"i({source}{k})" for k in range(count))


def _into(waves: Waveforms, names: Sequence[str]) -> np.ndarray:
    """Currents out of the sources into the device, shape (len(names), points)."""
    return -np.array([waves[name] for name in names])


def _charge(
    ramp: Waveforms, current: np.ndarray, conducted: np.ndarray, gate: np.ndarray
) -> np.ndarray:
    """Charge of a terminal at the values of `gate`, less what was conducted on the way."""
    steps = np.diff(ramp.time, prepend=0.0)
    ramping = ramp.time >= RAMP
    reached = ramp["v(g)"][ramping]
    moving = current.copy()
    moving[:, ramping] -= np.array([np.interp(reached, gate, row) for row in conducted])
    charge = np.cumsum(moving * steps, axis=1)[:, ramping]
    return np.array([np.interp(gate, reached, row) for row in charge])
