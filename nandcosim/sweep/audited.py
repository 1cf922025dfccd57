"""Run a chunk with the engine that its sweep asks for.

With the fast engine the samples of a grid point form blocks. One sample of each block,
chosen by the seed, is run in ngspice too. If the two disagree there, or ngspice fails,
ngspice runs the whole block; a sample outside the range of the fast model goes to
ngspice alone. A store's chunk holds whole blocks, so all this is a function of the spec,
whatever the chunks and the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from nandcosim.spice.circuit import Circuit
from nandcosim.spice.fast import FastModel, FastSamples
from nandcosim.spice.status import Status
from nandcosim.sweep.chunk import ChunkResult, EngineUsed, Job
from nandcosim.sweep.sampling import draw
from nandcosim.sweep.simulation import SampleResult, collect, fast_model, parsed
from nandcosim.sweep.spec import SweepSpec

__all__ = ["Simulate", "audited_sample", "run_chunk"]

#: Sets the choice of audited samples apart from the samples' own random numbers.
_AUDIT_STREAM = 0xA0D17

Simulate = Callable[[Job], list[SampleResult]]


def run_chunk(job: Job, simulate: Simulate) -> ChunkResult:
    """Run the samples of a chunk.

    Parameters
    ----------
    job : Job
    simulate : callable
        Runs samples with ngspice, in the order of ``job.chunk.samples``.
    """
    spec, circuit = parsed(job.spec)
    whole = len(job.chunk.samples) == job.chunk.stop - job.chunk.start
    # Part of a chunk is what failed before, and only ngspice fails.
    if spec.engine == "ngspice" or not whole:
        return collect(spec, simulate(job))
    return _FastChunk(spec, circuit, job, simulate).run()


def audited_sample(spec: SweepSpec, point: int, block: int) -> int:
    """The sample of a block of a grid point that is run in both engines."""
    start = block * spec.block
    size = min(spec.block, spec.samples - start)
    sequence = np.random.SeedSequence(spec.seed, spawn_key=(_AUDIT_STREAM, point, block))
    return start + int(np.random.Generator(np.random.PCG64(sequence)).integers(size))


class _FastChunk:
    """One chunk with the fast engine."""

    def __init__(self, spec: SweepSpec, circuit: Circuit, job: Job, simulate: Simulate) -> None:
        self.spec = spec
        self.job = job
        self.simulate = simulate
        self.samples = job.chunk.samples
        drawn = [draw(spec, circuit, job.chunk.point, k) for k in self.samples]
        self.knobs = {
            knob.name: np.array([knobs[knob.name] for _, knobs in drawn]) for knob in circuit.knobs
        }
        self.model = fast_model(circuit, drawn[0][0], job)
        self.results: dict[int, SampleResult] = {}

    def run(self) -> ChunkResult:
        if self.model is None:  # no fast model at these parameters
            self._run_in_ngspice(self.samples)
            return self._collected(np.zeros(len(self.samples), dtype=np.int8), {})
        fast = self.model.sample_many(self.knobs)
        first = self.samples[0]
        blocks = range(first // self.spec.block, 1 + self.samples[-1] // self.spec.block)
        audited = {b: audited_sample(self.spec, self.job.chunk.point, b) for b in blocks}
        outside = [k for k in self.samples if not fast.valid[k - first]]
        self._run_in_ngspice(sorted({*audited.values(), *outside}))
        made = np.where(fast.valid, EngineUsed.FAST, EngineUsed.NGSPICE).astype(np.int8)
        for block, k in audited.items():
            if not fast.valid[k - first]:
                continue  # there is nothing to compare with
            made[k - first] = EngineUsed.BOTH
            if not self._agrees(self.model, fast, k):
                members = slice(
                    block * self.spec.block - first, (block + 1) * self.spec.block - first
                )
                made[members][made[members] == EngineUsed.FAST] = EngineUsed.FALLBACK
        self._run_in_ngspice([k for k in self.samples if made[k - first] == EngineUsed.FALLBACK])
        return self._collected(made, fast.responses)

    def _agrees(self, model: FastModel, fast: FastSamples, k: int) -> bool:
        index, full = k - self.samples[0], self.results[k]
        if full.status is not Status.OK:
            return False
        knobs = {name: values[index] for name, values in self.knobs.items()}
        ours = {name: float(fast.responses[name][index]) for name in self.spec.responses}
        return model.agrees(knobs, ours, full.responses)

    def _run_in_ngspice(self, samples: Iterable[int]) -> None:
        chosen = tuple(samples)
        if chosen:
            self.results.update(zip(chosen, self.simulate(self.job.only(chosen)), strict=True))

    def _collected(self, made: np.ndarray, fast: dict[str, np.ndarray]) -> ChunkResult:
        """Merge the engines' samples; see `ChunkResult`."""
        for index in np.flatnonzero(made == EngineUsed.FAST):
            values = {name: float(fast[name][index]) for name in self.spec.responses}
            self.results[self.samples[index]] = SampleResult(Status.OK, "", values)
        result = collect(self.spec, [self.results[k] for k in self.samples])
        deviations = {}
        for name in self.spec.responses:
            deviations[name] = np.full(len(self.samples), np.nan)
            for index in np.flatnonzero(made == EngineUsed.BOTH):
                if result.status[index] == Status.OK:
                    ours, theirs = fast[name][index], result.responses[name][index]
                    one = np.isnan(ours) != np.isnan(theirs)
                    deviations[name][index] = np.inf if one else ours - theirs
        return replace(result, engine=made, deviations=deviations)
