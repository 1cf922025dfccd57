"""Audit of D-NOVA: reads of an actual search against the same reads in ngspice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nandcosim.audit.amplifier import Amplifier, TripTask, mismatch_of, trip_margins
from nandcosim.audit.comparison import estimates
from nandcosim.audit.decisions import STAGES, Decisions, Judgement, Reads
from nandcosim.audit.session import (
    check_arguments,
    describe,
    one_point,
    provenance,
    replay_in_order,
    shown,
)
from nandcosim.audit.strata import allocate
from nandcosim.audit.strings import Bit, Replay, ReplayTask, replay_all, threshold_knob
from nandcosim.audit.workers import run_tasks
from nandcosim.errors import InputError
from nandcosim.progress import ProgressCallback
from nandcosim.spice.engine import BackendName
from nandcosim.sweep.registry import load_circuit
from nandcosim.systems.dnova.adapter import load_adapter
from nandcosim.systems.dnova.config import Config, group_sizes
from nandcosim.systems.dnova.corpus import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.score import Accumulator
from nandcosim.tables.table import CalibrationTable

__all__ = ["EDGES", "audit_dnova"]

#: Bins of the excess margin (level spacings, upper edge included) that are sampled apart.
EDGES = (-1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0)

CIRCUIT = "dts_sense"

#: Reads of the first sample, which only the model judges.
FIRST_SAMPLE = 400_000

#: Share of the samples that are drawn as reads occur.
UNIFORM_SHARE = 0.5

_AUDIT_STREAM = 0xA0D17


def audit_dnova(
    config: Config,
    corpus: Corpus,
    tables: Mapping[str, CalibrationTable],
    samples: int = 1000,
    seed: int = 0,
    *,
    backend: BackendName = "shared",
    workers: int | None = None,
    time_limit: float = 60.0,
    progress: bool | ProgressCallback | None = None,
) -> xr.Dataset:
    """Search with the table's noise, replay some of the reads in ngspice, compare.

    Half of the samples are reads as they occur. The others are shared equally among the
    stages and the bins of the excess margin within one level of the decision, where the
    two can disagree. Every read is simulated twice: with an ideal amplifier, for which
    the model has no read noise either, and with one whose mismatch stands for the read
    noise that the search drew (`nandcosim.audit.amplifier`).

    Parameters
    ----------
    config : Config
        Without axes, but for fields whose default is one: of those the last value counts.
        The noise is the table's whatever ``noise`` says.
    corpus : Corpus
        At most ``config.queries`` of its queries are searched.
    tables : Mapping of str to CalibrationTable
        With ``dts_sense``, made by ``nandcosim fit``.
    samples : int
        Reads to replay.
    seed : int
        Of the choice of reads and of the mismatch that the read noise leaves open.
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
        By ``sample``: what was read (``stage``, ``query``, ``vector``, ``sense``,
        ``string``, ``first``, ``size``), the model's margins (``margin``, ``companion``,
        ``excess``), the decisions (``model``, ``circuit`` over ``comparison``: ``ideal``,
        ``noisy``; 1 conducts), ``status``, and the knobs (``threshold``, ``mismatch``)
        that make each simulation again. ``drawn`` over ``stage_of`` and ``bin`` counts the first
        sample. ``rate``, ``rate_low``, ``rate_high`` over ``comparison`` is how often the
        two disagree in the search; ``audit_rows`` breaks it down.

    Raises
    ------
    InputError
        If the configuration has axes, an argument is not allowed or the table is missing.
    MissingExtraError
        If FAISS or Numba is not installed.
    SimulationError
        If the trip margin of the nominal group cannot be measured.
    """
    check_arguments(samples, backend, workers)
    run = _Audit(one_point(config, "a search", noise="table"), corpus, tables)
    rng = np.random.default_rng(np.random.SeedSequence([seed, _AUDIT_STREAM]))
    first = run.reads.draw(max(FIRST_SAMPLE, 4 * samples), rng)
    bins = np.digitize(run.reads.excess(first), EDGES, right=True)
    chosen, uniform = _choose(first.stage, bins, samples, rng)
    decisions = first.take(chosen)
    judgement = run.reads.judge(decisions)

    task = {"backend": backend, "time_limit": time_limit}
    amplifiers = run.amplifiers(np.unique(judgement.size).tolist(), workers, task)
    replays = run.replays(decisions, judgement, amplifiers, rng)
    with shown(progress) as show:
        bits = _simulate(replays, run.settings, workers, task, show)

    dataset = _dataset(decisions, judgement, replays, bits)
    dataset["uniform"] = ("sample", uniform)
    drawn = np.zeros((len(STAGES), len(EDGES) + 1), dtype=np.int64)
    np.add.at(drawn, (first.stage - 1, bins), 1)
    dataset = dataset.assign_coords(stage_of=list(STAGES))
    dataset["drawn"] = (("stage_of", "bin"), drawn)
    dataset["bin_of"] = ("sample", bins[chosen])
    dataset["reads"] = ("stage_of", run.reads.reads.sum(axis=0))
    _add_amplifiers(dataset, amplifiers, run.noise)
    _describe(dataset)
    dataset.attrs = run.attributes(samples, seed, backend)
    return dataset.assign(estimates(dataset))


class _Audit:
    """The search that is audited."""

    def __init__(
        self, config: Config, corpus: Corpus, tables: Mapping[str, CalibrationTable]
    ) -> None:
        if CIRCUIT not in tables:
            known = ", ".join(tables) or "none"
            raise InputError(f"audit: needs the table {CIRCUIT!r}; loaded: {known}")
        self.config = config
        self.corpus = corpus.select_queries(np.arange(min(config.queries, corpus.nq)))
        self.table = tables[CIRCUIT]
        self.circuit = load_circuit(CIRCUIT)
        self.mismatch = mismatch_of(self.table, self.circuit)
        recorded = json.loads(self.table.dataset.attrs.get("circuit_parameters", "{}"))
        self.settings = {k: v for k, v in recorded.items() if v is not None}
        self.m = group_sizes(str(config.dts))
        # As in an evaluation: every chip but the first draws the table's uncertainty too.
        chip = int(config.chip)  # type: ignore[arg-type]  # a point has no axes left
        table = self.table if chip == 0 else self.table.perturbed(np.random.default_rng(chip))
        self.noise = SensingNoise.from_table(table, config.sigma, sizes=self.m)  # type: ignore[arg-type]
        self.reads = self._searched(chip)

    def _searched(self, chip: int) -> Reads:
        point = self.config
        accumulator = Accumulator(
            cells=point.wordlines,  # type: ignore[arg-type]
            latch_bits=point.latch_bits,  # type: ignore[arg-type]
            merge_bits=point.merge_bits or None,  # type: ignore[arg-type]
        )
        index = IvfIndex.build(
            np.asarray(self.corpus.vectors),
            point.nlist,  # type: ignore[arg-type]
            point.seed,
            value_range=point.value_range,  # type: ignore[arg-type]
        )
        queries = np.asarray(self.corpus.queries)
        if point.adapter != "none":
            queries = load_adapter(str(point.adapter))(queries)
        rule: dict[str, Any] = {
            "m": self.m,
            "alpha": point.alpha,
            "metric": point.metric,
            "read_noise": point.read_noise,
        }
        result = index.search(
            queries,
            nprobe=point.nprobe,  # type: ignore[arg-type]
            k2=point.k2,  # type: ignore[arg-type]
            k1=point.k1,
            accumulator=accumulator,
            noise=self.noise,
            seed=chip,
            threads=point.threads,
            **rule,
        )
        held = self.settings.get("cells", accumulator.cells)
        if held != accumulator.cells:
            raise InputError(
                f"audit: table {CIRCUIT} has strings of {held} cells, "
                f"allowed: {accumulator.cells} (the search's)"
            )
        return Reads(index, queries, result, self.noise, cells=accumulator.cells, seed=chip, **rule)

    def amplifiers(
        self, sizes: list[int], workers: int | None, task: dict[str, Any]
    ) -> dict[int, Amplifier]:
        """The amplifier as seen through groups of each size."""
        # the group's place and companions are those of the table
        tasks = [TripTask(CIRCUIT, self.settings, m, self.mismatch, **task) for m in sizes]
        found = dict(run_tasks(trip_margins, tasks, workers))
        return {m: Amplifier.measured(tasks[i], found[i]) for i, m in enumerate(sizes)}

    def replays(
        self,
        decisions: Decisions,
        judgement: Judgement,
        amplifiers: dict[int, Amplifier],
        rng: np.random.Generator,
    ) -> list[Replay]:
        """Each read as knobs of the circuit."""
        mismatch = np.zeros((len(decisions), len(self.mismatch)))
        for size, amplifier in amplifiers.items():
            rows = np.flatnonzero(judgement.size == size)
            mismatch[rows] = amplifier.mismatch(judgement.score[rows], rng)
        if not any(spread for _, spread in self.noise.spreads):
            mismatch[:] = 0.0  # the model's amplifier is ideal
        return [
            Replay(
                int(judgement.first[i]),
                int(judgement.size[i]),
                threshold_knob(*self.reads.string(decisions, i)),
                dict(zip(self.mismatch, mismatch[i].tolist(), strict=True)),
            )
            for i in range(len(decisions))
        ]

    def attributes(self, samples: int, seed: int, backend: str) -> dict[str, Any]:
        """Provenance, in types that netCDF holds."""
        return {
            **provenance("dnova", self.config, self.table, self.settings),
            "samples": samples,
            "seed": seed,
            "backend": backend,
            "corpus": self.corpus.name,
            "documents": self.corpus.n,
            "queries": self.corpus.nq,
        }


def _choose(
    stage: NDArray[np.int64], bins: NDArray[np.int64], samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of the first sample to examine, and which of them were taken as they occur."""
    uniform = round(samples * UNIFORM_SHARE)
    near = (bins > 0) & (bins < len(EDGES))
    stratum = np.where(near, (stage - 1) * (len(EDGES) + 1) + bins, -1)
    stratum[:uniform] = -1  # the first rows of an independent sample are one themselves
    present = np.unique(stratum[stratum >= 0])
    rows = [np.flatnonzero(stratum == h) for h in present]
    counts = allocate([each.size for each in rows], samples - uniform)
    picked = [
        rng.choice(each, size=count, replace=False)
        for each, count in zip(rows, counts, strict=True)
    ]
    chosen = np.concatenate([np.arange(uniform), *picked])
    # without any read near the decision, more of them as they occur
    spare = samples - chosen.size
    chosen = np.concatenate([chosen, np.flatnonzero(stratum == -1)[uniform : uniform + spare]])
    taken = np.arange(chosen.size) < uniform
    return chosen.astype(np.int64), taken


def _simulate(
    replays: list[Replay],
    settings: dict[str, Any],
    workers: int | None,
    task: dict[str, Any],
    progress: ProgressCallback,
) -> list[tuple[Bit, ...]]:
    """Both bits of every read, in order."""
    return replay_in_order(
        replay_all,
        replays,
        lambda read: (read.size, read.first),
        lambda part: ReplayTask(CIRCUIT, settings, part, **task),
        workers,
        progress,
    )


def _dataset(
    decisions: Decisions,
    judgement: Judgement,
    replays: list[Replay],
    bits: list[tuple[Bit, ...]],
) -> xr.Dataset:
    knobs = list(replays[0].mismatch)
    by_sample = {
        **vars(decisions),
        **{k: v for k, v in vars(judgement).items() if k not in ("ideal", "conducts")},
    }
    pair = ("sample", "comparison")
    return xr.Dataset(
        {
            **{name: ("sample", values) for name, values in by_sample.items()},
            "model": (pair, np.stack([judgement.ideal, judgement.conducts], axis=1) * 1.0),
            "circuit": (pair, np.array([[bit.value for bit in each] for each in bits])),
            "status": (pair, np.array([[int(bit.status) for bit in each] for each in bits])),
            "reason": (pair, np.array([[bit.reason for bit in each] for each in bits], dtype=str)),
            "threshold": (("sample", "cell"), np.stack([each.threshold for each in replays])),
            "mismatch": (
                ("sample", "knob"),
                np.array([[each.mismatch[name] for name in knobs] for each in replays]),
            ),
        },
        coords={
            "comparison": ["ideal", "noisy"],
            "knob": np.array(knobs, dtype=str),
            "bin_low": ("bin", np.array([-np.inf, *EDGES])),
            "bin_high": ("bin", np.array([*EDGES, np.inf])),
        },
    )


def _add_amplifiers(
    dataset: xr.Dataset, amplifiers: dict[int, Amplifier], noise: SensingNoise
) -> None:
    sizes = list(amplifiers)
    of_table = dict(noise.spreads)
    trips = dict(noise.trips)
    nan = float("nan")
    dataset.coords["m"] = sizes
    for name, values in {
        "trip_measured": [amplifiers[m].trip for m in sizes],
        "trip_table": [trips.get(m, nan) for m in sizes],
        "read_sigma_measured": [amplifiers[m].spread for m in sizes],
        "read_sigma_table": [of_table.get(m, nan) for m in sizes],
    }.items():
        dataset[name] = ("m", values)


def _describe(dataset: xr.Dataset) -> None:
    """Units and meaning of the variables."""
    told = {
        "stage": ("1", "stage of the search"),
        "query": ("1", "row of the query"),
        "vector": ("1", "centroid in stage 1, else row of the corpus"),
        "sense": ("1", "which of the metric's senses; for dts 0 original, 1 complement"),
        "group": ("1", "group within the sense"),
        "string": ("1", "string of the vector"),
        "first": ("1", "first active cell, counted from the bitline"),
        "size": ("1", "active cells"),
        "margin": ("level", "margin of the worst active cell"),
        "companion": ("level", "margin of the second worst active cell"),
        "excess": ("level", "margin less the table's trip margin"),
        "score": ("1", "read noise over its standard deviation, as the search drew it"),
        "chance": ("1", "probability that the group conducts, by the model"),
        "model": ("1", "what the model decided: 1 conducts"),
        "circuit": ("1", "what ngspice decided: 1 conducts; NaN: failed"),
        "status": ("1", "status of the simulation"),
        "reason": ("1", "why it failed"),
        "threshold": ("level", "knob threshold: stored level; of active cells minus the margin"),
        "mismatch": ("V", "mismatch of the sense amplifier in the noisy comparison"),
        "uniform": ("1", "drawn as reads occur"),
        "drawn": ("1", "reads of the first sample"),
        "bin_of": ("1", "bin of the excess margin"),
        "reads": ("1", "reads of the whole search"),
        "trip_measured": ("level", "trip margin of the nominal group, measured here"),
        "trip_table": ("level", "trip margin of the table"),
        "read_sigma_measured": ("level", "read noise, from the amplifier's measured slopes"),
        "read_sigma_table": ("level", "read noise of the table"),
    }
    describe(dataset, told)
