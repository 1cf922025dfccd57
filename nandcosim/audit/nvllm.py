"""Audit of NVLLM: bits of a model's weights, read by the table's rule and by ngspice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.audit.amplifier import mismatch_of
from nandcosim.audit.bit_reads import EDGES, BitReads, draw_reads, edges, is_near
from nandcosim.audit.comparison import estimates
from nandcosim.audit.page_reads import (
    PageReplay,
    PageReplayTask,
    PageResult,
    circuit_settings,
    replay_pages,
)
from nandcosim.audit.session import (
    check_arguments,
    describe,
    one_point,
    provenance,
    replay_in_order,
    shown,
)
from nandcosim.audit.strata import allocate, draw_rows, largest_first
from nandcosim.errors import InputError
from nandcosim.progress import ProgressCallback
from nandcosim.spice.engine import BackendName
from nandcosim.sweep.registry import load_circuit
from nandcosim.systems.nvllm.cells import PageSenses, WeightCells, cell_thresholds
from nandcosim.systems.nvllm.ecc import code_sizes
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.tables.table import CalibrationTable

__all__ = ["audit_nvllm", "choose"]

CIRCUIT = "page_read"

#: Knobs of the circuit that are the run's, not the sense amplifier's.
_CELLS = ("threshold", "data", "score")

#: Reads of the first sample, which only the model judges.
FIRST_SAMPLE = 1_000_000

#: Share of the samples that all strata share; the rest is for those near the decision.
_WHOLE_SHARE = 0.5

_AUDIT_STREAM = 0xA0D18


def audit_nvllm(
    config: HardwareFields,
    tables: Mapping[str, CalibrationTable],
    samples: int = 1000,
    seed: int = 0,
    *,
    weights: ArrayLike | bytes | None = None,
    randomise: bool = True,
    backend: BackendName = "shared",
    workers: int | None = None,
    time_limit: float = 60.0,
    progress: bool | ProgressCallback | None = None,
) -> xr.Dataset:
    """Read weights from cells by the table's rule, replay some of the bits in ngspice, compare.

    The string of each replayed bit has the levels that the weights give its cells, each with
    a threshold error of its own; wordline, page, code and retry are those of the bit. Every
    bit is simulated twice: with an ideal amplifier, for which the model has no read noise
    either, and with a mismatch drawn as in the sweep behind the table, independently of the
    model's read noise.

    Parameters
    ----------
    config : HardwareFields
        Without axes, but for fields whose default is one: of those the last value counts.
        Thresholds and read noise are the table's way whatever ``rber_source`` says.
    tables : Mapping of str to CalibrationTable
        With ``page_read``, made by ``nandcosim fit``.
    samples : int
        Bits to replay.
    seed : int
        Of the choice of bits, of thresholds, mismatch, randomiser, and of weights that are
        not given.
    weights : array_like of uint8 or int8, or bytes, optional
        One byte each; by default one block of uniformly random bytes.
    randomise : bool
        Whether the chip stores the bytes XORed with a pseudo-random sequence, as chips do.
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
        By ``sample``: where the bit is (``block``, ``wordline``, ``page``, ``bitline``), its
        cell (``level``, ``excess``, ``clearance``), whether the cell conducts at the read
        level nearest to its threshold (``model``, ``circuit`` over ``comparison``: ``ideal``,
        ``noisy``), the page's bit (``stored``, ``model_bit``, ``circuit_bit``), ``status``,
        and the knobs (``data``, ``threshold``, ``mismatch``) that make each simulation again.
        ``drawn`` over ``turn_of`` and ``bin`` counts the first sample, ``drawn_wrong`` the
        model's bit errors in it. ``rate``, ``rate_low``, ``rate_high`` over ``comparison`` is how
        often the two disagree in the run; ``audit_rows`` breaks it down.

    Raises
    ------
    InputError
        If the configuration has axes, an argument is not allowed or the table is missing.
    """
    check_arguments(samples, backend, workers)
    run = _Audit(one_point(config, "a run"), tables, weights, randomise, seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, _AUDIT_STREAM]))
    first = draw_reads(run.cells, run.senses, run.config, max(FIRST_SAMPLE, 4 * samples), rng)
    bins = np.digitize(first.clearance, run.edges, right=True)
    chosen = choose(first.turn * (len(EDGES) + 1) + bins, bins, samples, rng)
    reads = first.take(chosen)

    replays = run.replays(reads, rng)
    task = {"backend": backend, "time_limit": time_limit}
    with shown(progress) as show:
        results = replay_in_order(
            replay_pages,
            replays,
            lambda read: (read.page, read.wordline, read.level),
            lambda part: PageReplayTask(CIRCUIT, run.settings, part, **task),  # type: ignore[arg-type]
            workers,
            show,
        )

    dataset = _with_first_sample(_dataset(reads, replays, results), first, bins, run.edges)
    dataset["bin_of"] = ("sample", bins[chosen])
    run.add_table(dataset)
    describe(dataset, _TOLD)
    dataset.attrs = run.attributes(samples, seed, backend)
    return dataset.assign(estimates(dataset))


def choose(
    stratum: NDArray[np.int64],
    bins: NDArray[np.int64],
    samples: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Rows of the first sample to replay: half over all strata, half over those near the decision.

    Parameters
    ----------
    stratum : int array (n,)
        Of each read.
    bins : int array (n,)
        Of its clearance.
    samples : int
    rng : Generator
    """
    present, start, size = largest_first(stratum)
    whole = allocate(size, round(samples * _WHOLE_SHARE))
    counts = whole + allocate(
        np.where(is_near(bins[start]), size - whole, 0), samples - int(whole.sum())
    )
    counts += allocate(size - counts, samples - int(counts.sum()))
    return draw_rows(stratum, present, counts, rng)


class _Audit:
    """The run that is audited."""

    def __init__(
        self,
        config: HardwareFields,
        tables: Mapping[str, CalibrationTable],
        weights: ArrayLike | bytes | None,
        randomise: bool,
        seed: int,
    ) -> None:
        if CIRCUIT not in tables:
            known = ", ".join(tables) or "none"
            raise InputError(f"audit: needs the table {CIRCUIT!r}; loaded: {known}")
        self.config, self.table = config, tables[CIRCUIT]
        self.circuit = load_circuit(CIRCUIT)
        self.mismatch = mismatch_of(self.table, self.circuit, _CELLS)
        bits: Any = config.cell_bits
        self.senses = [PageSenses.of(page, config, tables) for page in range(bits)]
        self.settings = circuit_settings(
            self.table, bits=bits, coding=config.coding, retry=config.retry
        )
        self.edges = edges(bits)
        wordlines, page_bytes = int(self.settings["cells"]), int(config.page_bytes)  # type: ignore[arg-type]
        self.given = weights is not None
        if weights is None:
            weights = np.random.default_rng([seed, 0]).bytes(wordlines * bits * page_bytes)
        self.randomised = randomise
        self.cells = WeightCells.of(
            weights,
            bits,
            self.senses[0].coding,
            page_bytes=page_bytes,
            wordlines=wordlines,
            seed=seed,
            randomise=randomise,
        )

    def replays(self, reads: BitReads, rng: np.random.Generator) -> list[PageReplay]:
        """Each read as parameters and knobs of the circuit."""
        levels = self.cells.strings(reads.block, reads.bitline)
        errors = cell_thresholds(levels, self.config, rng) - levels
        errors[np.arange(len(reads)), reads.wordline] = reads.threshold - reads.level
        drawn = rng.standard_normal((len(reads), len(self.mismatch)))
        mismatch = drawn * np.array(list(self.mismatch.values()))
        return [
            PageReplay(
                int(reads.wordline[i]),
                int(reads.page[i]),
                int(reads.level[i]),
                int(reads.read_level[i]),
                levels[i].astype(float),
                errors[i],
                dict(zip(self.mismatch, mismatch[i].tolist(), strict=True)),
            )
            for i in range(len(reads))
        ]

    def add_table(self, dataset: xr.Dataset) -> None:
        """The decision of one sense, by the table."""
        here = self.table.dataset.sel(bits=self.config.cell_bits)
        for name in ("pass_location", "pass_spread"):
            for end in ("", "_low", "_high"):
                attrs = {"units": "level", "long_name": f"{name}{end} of the table"}
                dataset[f"{name}{end}"] = ((), float(here[f"{name}{end}"]), attrs)

    def attributes(self, samples: int, seed: int, backend: str) -> dict[str, Any]:
        """Provenance, in types that netCDF holds."""
        return {
            **provenance("nvllm", self.config, self.table, self.settings),
            "samples": samples,
            "seed": seed,
            "backend": backend,
            "weights": "given" if self.given else "uniformly random bytes",
            "weight_bytes": self.cells.size,
            "randomised": int(self.randomised),
            "segment_bits": int(code_sizes(self.config)["n"]),
        }


def _with_first_sample(
    dataset: xr.Dataset, first: BitReads, bins: NDArray[np.int64], edges: NDArray[np.float64]
) -> xr.Dataset:
    """Add how often the first sample fell into each stratum, and its wrong bits."""
    turns, turn = np.unique(first.turn, return_inverse=True)
    wrong = first.noisy_bit != first.stored
    for name, rows in {"drawn": np.ones(wrong.shape, dtype=bool), "drawn_wrong": wrong}.items():
        counts = np.zeros((turns.size, len(EDGES) + 1), dtype=np.int64)
        np.add.at(counts, (turn[rows], bins[rows]), 1)
        dataset[name] = (("turn_of", "bin"), counts)
    return dataset.assign_coords(
        turn_of=turns,
        bin_low=("bin", np.array([-np.inf, *edges])),
        bin_high=("bin", np.array([*edges, np.inf])),
        as_they_occur=("bin", np.zeros(len(EDGES) + 1, dtype=bool)),
    )


def _dataset(
    reads: BitReads, replays: list[PageReplay], results: list[tuple[PageResult, ...]]
) -> xr.Dataset:
    pair = ("sample", "comparison")
    apart = {"threshold", "ideal", "noisy", "ideal_bit", "noisy_bit"}  # the knob has the threshold
    by_sample = {k: ("sample", v) for k, v in vars(reads).items() if k not in apart}
    simulated = {
        name: (pair, np.array([[getattr(one, field) for one in each] for each in results]))
        for name, field in {
            "circuit": "conducts", "circuit_bit": "bit", "status": "status"
        }.items()
    }  # fmt: skip
    reasons = np.array([[one.reason for one in each] for each in results], dtype=str)
    knobs = list(replays[0].mismatch)
    return xr.Dataset(
        {
            **by_sample,
            "model": (pair, np.stack([reads.ideal, reads.noisy], axis=1) * 1.0),
            "model_bit": (pair, np.stack([reads.ideal_bit, reads.noisy_bit], axis=1) * 1.0),
            **simulated,
            "reason": (pair, reasons),
            "data": (("sample", "cell"), np.stack([each.data for each in replays])),
            "threshold": (("sample", "cell"), np.stack([each.threshold for each in replays])),
            "mismatch": (
                ("sample", "knob"),
                np.array([[each.mismatch[name] for name in knobs] for each in replays]),
            ),
        },
        coords={"comparison": ["ideal", "noisy"], "knob": np.array(knobs, dtype=str)},
    )


_TOLD = {
    "block": ("1", "block of the run"),
    "wordline": ("1", "wordline, counted from the bitline's side"),
    "page": ("1", "page of the wordline, 0 lower"),
    "bitline": ("1", "bitline"),
    "level": ("1", "level of the cell"),
    "stored": ("1", "stored bit, as randomised"),
    "read_level": ("1", "read level of the page nearest to the cell's threshold"),
    "turn": ("1", "1: the page's first sense, 2: after one that blocked"),
    "excess": ("level", "read level less threshold and the table's location"),
    "clearance": ("level", "excess towards the cell's own side; negative: the model errs"),
    "score": ("1", "read noise over its standard deviation, as the model drew it"),
    "chance": ("1", "probability that the cell conducts, by the model"),
    "model": ("1", "whether the cell conducts at that read level, by the model"),
    "circuit": ("1", "the same in ngspice; NaN: failed"),
    "model_bit": ("1", "the page's bit as the model reads it"),
    "circuit_bit": ("1", "the same in ngspice; NaN: failed"),
    "status": ("1", "status of the simulation"),
    "reason": ("1", "why it failed"),
    "data": ("level", "level of every cell of the string"),
    "threshold": ("level", "knob threshold: error of every cell's threshold"),
    "mismatch": ("V", "mismatch of the sense amplifier in the noisy comparison"),
    "drawn": ("1", "reads of the first sample"),
    "drawn_wrong": ("1", "of them, bits that the model reads wrong"),
    "bin_of": ("1", "bin of the clearance"),
}
