"""Audit of NASiC: products of single units, by the tables' currents and by ngspice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.audit.session import (
    check_arguments,
    describe,
    one_point,
    provenance,
    replay_in_order,
    shown,
)
from nandcosim.audit.strata import allocate, draw_rows, largest_first
from nandcosim.audit.unit_products import (
    BINS,
    MATCH,
    UnitProducts,
    bins_of,
    cam_layers,
    draw_products,
    integer_weights,
    random_weights,
)
from nandcosim.audit.unit_replays import (
    UNIT,
    Gate,
    UnitReplay,
    UnitReplayTask,
    UnitResult,
    measured_gate,
    replay_units,
    unit_settings,
)
from nandcosim.encodings import STRINGS
from nandcosim.errors import InputError
from nandcosim.progress import ProgressCallback
from nandcosim.spice.engine import BackendName
from nandcosim.systems.config import SystemConfig
from nandcosim.systems.nasic.currents import CurrentFields, current_spreads, load, table_of
from nandcosim.systems.nasic.digits import WeightCode, levels
from nandcosim.systems.nasic.hardware import HardwareFields
from nandcosim.tables.table import CalibrationTable

__all__ = ["audit_nasic", "choose"]

#: Products of the first sample, which only the model judges.
FIRST_SAMPLE = 200_000

#: Share of the samples that match; as they occur it would be one of all interleaved experts.
_MATCHED = 2 / 3

_AUDIT_STREAM = 0xA0D15


def audit_nasic(
    config: HardwareFields | CurrentFields,
    tables: Mapping[str, CalibrationTable],
    samples: int = 300,
    seed: int = 0,
    *,
    weights: ArrayLike | None = None,
    backend: BackendName = "shared",
    workers: int | None = None,
    time_limit: float = 60.0,
    progress: bool | ProgressCallback | None = None,
) -> xr.Dataset:
    """Draw products of a run, replay some of them in ngspice, compare.

    A product is one digit of a weight times one level of an input, in a unit whose CAM layers
    store one of the interleaved experts while any of them is searched for (NASiC, Fig. 4 to
    7). All eight strings of the unit are simulated, each cell with a threshold error of its
    own, of the spread at which the table's strings have the configured ``sigma`` of their
    current. Products at input 0 are not sampled: every simulation has them besides.

    Parameters
    ----------
    config : HardwareFields or CurrentFields
        Without axes; ``technique`` with T2, whose units the circuit is. CAM cells are those
        of its ``cam_layers``, if it has such a field and it is not empty, else as many of
        ``cam_bits`` as ``interleave`` experts need.
    tables : Mapping of str to CalibrationTable
        With ``cim_string`` (``cim_string_8`` for eight states), made by ``nandcosim fit``,
        and what `currents.load` needs.
    samples : int
        Products to replay.
    seed : int
        Of the choice of products, threshold errors, and of weights that are not given.
    weights : array_like (..., inputs, outputs), optional
        Integers of ``weight_bits``, or floats, which are scaled for every output; by
        default normal ones.
    backend : {"shared", "process"}
    workers : int, optional
        Processes; default: one a core. 1 simulates in this process. A script that has
        more must guard its start with ``if __name__ == "__main__":``.
    time_limit : float
        Seconds a simulation may take.
    progress : bool or callable, optional
        True: a bar on a terminal, plain lines elsewhere; or a function of a `Progress`.

    Returns
    -------
    xarray.Dataset
        By ``sample``: the product (``weight``, ``level``, ``entry``, ``query``, ``group``),
        the integer that is meant (``ideal``), the model's ``mean``, ``sd`` and ``chance`` of
        a wrong integer, ``circuit`` in the same unit of one product (LSB), ``at_zero`` (at
        input 0), ``status``, and the knob ``threshold`` that makes the simulation again.
        ``drawn`` over ``group_of`` and ``bin`` counts the first sample, ``drawn_wrong`` the
        model's wrong integers in it. `audit_rows` has what follows.

    Raises
    ------
    InputError
        If the configuration has axes or units of another kind, ``sigma`` is beyond the
        table, an argument is not allowed or a table is missing.
    """
    check_arguments(samples, backend, workers)
    point = one_point(config, "a run")
    experts: Any = point.interleave
    cam_bits: Any = point.cam_bits
    layers = cam_layers(experts, cam_bits, getattr(point, "cam_layers", ""))
    run = _Audit(_fields(point), tables)
    run.set_gate(measured_gate(run.settings, layers, backend, time_limit))
    rng = np.random.default_rng(np.random.SeedSequence([seed, _AUDIT_STREAM]))
    bits: Any = run.config.weight_bits
    if weights is None:
        stored = random_weights(bits, FIRST_SAMPLE, rng)
    else:
        stored = integer_weights(weights, bits)
    count = max(FIRST_SAMPLE, 4 * samples)
    drawn = draw_products(stored, run.config, run.currents, layers, count, rng)
    first = drawn.take(np.flatnonzero(drawn.level > 0))
    bins = bins_of(first.weight, first.level, run.largest)
    chosen = choose(first.group * len(BINS) + bins, first.group == MATCH, samples, rng)
    products = first.take(chosen)

    replays = run.replays(products, rng)
    with shown(progress) as show:
        results = replay_in_order(
            replay_units,
            replays,
            lambda product: (product.weight, product.entry, product.query),
            lambda part: UnitReplayTask(run.settings, part, backend, time_limit),
            workers,
            show,
        )

    dataset = _with_first_sample(run.dataset(products, replays, results), first, bins)
    dataset["bin_of"] = ("sample", bins[chosen])
    describe(dataset, _TOLD)
    dataset.attrs = {
        **provenance("nasic", run.config, run.table, run.settings),
        "circuit": UNIT,
        "samples": samples,
        "seed": seed,
        "backend": backend,
        "weights": "normal" if weights is None else f"given, {stored.size}",
        "threshold_sigma": run.threshold,
        "gain": run.gate.gain,
        "lsb": run.lsb,
        "driven": len(first.level) / count,
    }
    return dataset


def choose(
    stratum: NDArray[np.int64],
    match: NDArray[np.bool_],
    samples: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Rows of the first sample to replay: two thirds that match, over strata as their roots.

    Parameters
    ----------
    stratum : int array (n,)
        Of each product.
    match : bool array (n,)
        The same within a stratum.
    samples : int
    rng : Generator
    """
    present, start, size = largest_first(stratum)
    counts = allocate(np.where(match[start], size, 0), round(samples * _MATCHED))
    counts += allocate(np.where(match[start], 0, size), samples - int(counts.sum()))
    counts += allocate(size - counts, samples - int(counts.sum()))
    return draw_rows(stratum, present, counts, rng)


class _Audit:
    """The run that is audited."""

    def __init__(self, config: CurrentFields, tables: Mapping[str, CalibrationTable]) -> None:
        technique = config.technique
        if technique not in ("t1t2", "t1t2t3"):
            raise InputError(
                f"audit: technique = {technique}, allowed: t1t2, t1t2t3, whose units have eight "
                "strings as the circuit"
            )
        self.config = config
        self.code = WeightCode.of(config)
        self.table = _table_of(tables, self.code.states)
        self.currents = load(tables, config)
        self.threshold = _threshold_sigma(table_of(tables, self.code.states), config)
        self.settings = unit_settings(self.table, self.code.states)
        count = int(levels(config))
        #: Input of the circuit at each level of the source line; two are none and the largest.
        self.inputs = np.array([0, 3]) if count == 2 else np.arange(count)
        #: Largest product there is.
        self.largest = self.code.largest * (count - 1)

    def set_gate(self, gate: Gate) -> None:
        """Give the strings these CAM layers, and what suits them."""
        self.gate = gate
        self.settings |= {"layers": gate.layers, **gate.drops}
        #: A product of 1, which is `gain` string currents (A).
        self.lsb = float(self.currents.lsb) * self.code.gain * gate.gain

    def replays(self, products: UnitProducts, rng: np.random.Generator) -> list[UnitReplay]:
        """Each product as parameters and knobs of the circuit."""
        cells = 2 * STRINGS * int(self.settings["cells"])
        errors = self.threshold * rng.standard_normal((products.weight.size, cells))
        codes = zip(products.weight, products.entry, products.query, errors, strict=True)
        return [UnitReplay(int(w), int(e), int(q), error) for w, e, q, error in codes]

    def dataset(
        self,
        products: UnitProducts,
        replays: list[UnitReplay],
        results: list[tuple[UnitResult, ...]],
    ) -> xr.Dataset:
        """Products beside what the circuit found, in LSB."""
        found = np.array([one.currents for (one,) in results]) / self.lsb
        by_sample = {
            **vars(products),
            "ideal": products.ideal,
            "chance": products.wrong,
            "circuit": found[np.arange(len(found)), self.inputs[products.level]],
            "at_zero": found[:, 0],
            "status": np.array([int(one.status) for (one,) in results]),
            "reason": np.array([one.reason for (one,) in results], dtype=str),
        }
        dataset = xr.Dataset({name: ("sample", values) for name, values in by_sample.items()})
        errors = np.stack([each.threshold for each in replays])
        dataset["threshold"] = (("sample", "cell"), errors)
        return dataset


def _fields(point: SystemConfig) -> CurrentFields:
    """What the audit needs of a configuration."""
    names = CurrentFields.model_fields
    return CurrentFields(**{name: value for name, value in dict(point).items() if name in names})


def _table_of(tables: Mapping[str, CalibrationTable], states: int) -> CalibrationTable:
    """The table of strings with cells of so many states, with its axis of them if it has one."""
    name = "cim_string"
    if name in tables and states not in tables[name].dataset["states"]:
        name = f"cim_string_{states}"
    if name not in tables:
        raise InputError(f"audit: needs the table {name!r}; loaded: {', '.join(tables) or 'none'}")
    return tables[name]


def _threshold_sigma(table: CalibrationTable, config: CurrentFields) -> float:
    """Threshold spread (V) at which a conducting string's current has the configured sigma."""
    thresholds, known = current_spreads(table)
    wanted: Any = config.sigma
    if wanted > known[-1]:
        raise InputError(
            f"audit: sigma = {wanted:g}, allowed: up to {known[-1]:.3f}, which the table of "
            "these cells reaches"
        )
    return float(np.interp(wanted, known, thresholds))


def _with_first_sample(
    dataset: xr.Dataset, first: UnitProducts, bins: NDArray[np.int64]
) -> xr.Dataset:
    """Add how often the first sample fell into each stratum, and its wrong integers."""
    groups, group = np.unique(first.group, return_inverse=True)
    for name, each in {
        "drawn": np.ones(len(bins), dtype=np.int64),
        "drawn_wrong": first.wrong,
    }.items():
        counts = np.zeros((groups.size, len(BINS)), dtype=each.dtype)
        np.add.at(counts, (group, bins), each)
        dataset[name] = (("group_of", "bin"), counts)
    return dataset.assign_coords(
        group_of=groups,
        bin=np.array(BINS),
        as_they_occur=("bin", np.zeros(len(BINS), dtype=bool)),
    )


_TOLD = {
    "weight": ("1", "digit that the unit stores"),
    "level": ("1", "level of the source line"),
    "entry": ("1", "expert stored in the CAM layers"),
    "query": ("1", "expert searched for"),
    "group": ("1", "0: the same, 1: one code apart in one CAM cell, 2: farther"),
    "ideal": ("1", "integer that is meant: weight times level in a match, else 0"),
    "mean": ("1", "the model's mean of the product, in LSB"),
    "sd": ("1", "its standard deviation"),
    "chance": ("1", "probability of rounding to another integer, by the model"),
    "circuit": ("1", "the product in ngspice, in LSB; NaN: failed"),
    "at_zero": ("1", "the same at input 0"),
    "status": ("1", "status of the simulation"),
    "reason": ("1", "why it failed"),
    "threshold": ("V", "knob threshold: error of every cell's threshold"),
    "drawn": ("1", "products of the first sample"),
    "drawn_wrong": ("1", "of them, wrong integers by the model"),
    "bin_of": ("1", "bin of the size of weight times level"),
}
