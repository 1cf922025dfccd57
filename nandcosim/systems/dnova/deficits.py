"""String deficits of the three stages (section 3.2, Fig. 7).

The paper argues for a 4-bit latch a bitline from the deficits that strings reach.
A deficit here is one string's count of failed groups in one sense: a vector has
strings(D) of the original and as many of the complement, and each counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.noise import SensingNoise
from nandcosim.systems.dnova.planes import PlaneLists, Rule
from nandcosim.systems.dnova.score import Accumulator

__all__ = ["StringDeficits", "deficit_counts", "deficit_quantiles"]


@dataclass(frozen=True, eq=False)
class StringDeficits:
    """How often strings reached each deficit, by stage.

    Attributes
    ----------
    scored : int64 array (3, largest deficit + 1)
        Of every vector scored in the stage: all centroids; all vectors of the probed
        lists; the K2 candidates.
    best : int64 array (3, largest deficit + 1)
        Of those that the stage keeps: the probed lists' centroids; the K2 candidates as
        stage 2 scored them; the K1 results as stage 3 scored them.
    """

    scored: NDArray[np.int64]
    best: NDArray[np.int64]


def deficit_counts(
    index: IvfIndex,
    queries: ArrayLike,
    *,
    m: tuple[int, int, int] = (1, 1, 1),
    alpha: int = 2,
    accumulator: Accumulator | None = None,
    nprobe: int = 64,
    k2: int = 1000,
    k1: int = 100,
    noise: SensingNoise | None = None,
    seed: int = 0,
    threads: int = 1,
) -> StringDeficits:
    """Count the string deficits of a DTS search; arguments of `IvfIndex.search`.

    Read noise is static. The search ranks with `accumulator`, whose latch also
    saturates what is counted.
    """
    accumulator = accumulator or Accumulator()
    found = index.search(
        queries,
        m=m,
        alpha=alpha,
        nprobe=nprobe,
        k2=k2,
        k1=k1,
        accumulator=accumulator,
        noise=noise,
        seed=seed,
        threads=threads,
    )
    codes = index.encode(queries)
    rules = [Rule(index.dim, size, alpha, "dts", accumulator) for size in m]
    longest = max(rule.worst_string for rule in rules) + 1
    counts = np.zeros((3, 2, longest), dtype=np.int64)
    everything = np.zeros((len(codes), 1), dtype=np.int64)
    stages = (
        ([index.sensed_centroids(noise, rules[0], seed)], everything, None, found.lists),
        (index.sensed_vectors(noise, rules[1], seed), found.lists, None, found.candidates),
        (
            index.sensed_vectors(noise, rules[2], seed),
            found.lists,
            found.candidates,
            found.ids,
        ),
    )
    for stage, (stores, lists, scored, best) in enumerate(stages):
        ids = [np.arange(index.nlist)] if stage == 0 else [s.ids for s in index.segments]
        if stores:
            _count(stores, ids, rules[stage], codes, lists, scored, best, counts[stage])
    return StringDeficits(scored=counts[:, 0], best=counts[:, 1])


def deficit_quantiles(
    index: IvfIndex,
    queries: ArrayLike,
    m: tuple[int, int, int] = (1, 1, 1),
    alpha: int = 2,
    accumulator: Accumulator | None = None,
    nprobe: int = 64,
    k2: int = 1000,
    quantiles: ArrayLike = (0.5, 0.9, 0.99, 1.0),
    noise: SensingNoise | None = None,
    seed: int = 0,
    *,
    k1: int = 100,
    which: str = "best",
) -> NDArray[np.int64]:
    """Quantiles of the string deficits of each stage (Fig. 7), shape (3, len(quantiles)).

    Parameters
    ----------
    index : IvfIndex
    queries : float array (nq, D)
    m, alpha, accumulator, nprobe, k2, noise, seed, k1
        As in `IvfIndex.search`.
    quantiles : float array
        Each 0 .. 1; the smallest deficit that at least this share does not exceed.
    which : str
        ``best`` or ``scored``, see `StringDeficits`.

    Raises
    ------
    InputError
        If a quantile or `which` is not allowed, or nothing was scored.
    """
    shares = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if shares.min() < 0 or shares.max() > 1:
        raise InputError(
            f"deficit quantiles reach {shares.min():g} .. {shares.max():g}, allowed: 0 .. 1"
        )
    if which not in ("best", "scored"):
        raise InputError(f"string deficits: which = {which!r}, allowed: best, scored")
    found = deficit_counts(
        index,
        queries,
        m=m,
        alpha=alpha,
        accumulator=accumulator,
        nprobe=nprobe,
        k2=k2,
        k1=k1,
        noise=noise,
        seed=seed,
    )
    counts = found.best if which == "best" else found.scored
    if not counts.sum(axis=1).all():
        raise InputError("string deficits: a stage scored no vector")
    return np.stack([_quantiles_of(row, shares) for row in counts])


def _quantiles_of(counts: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    below = np.cumsum(counts)
    needed = np.maximum(1, np.ceil(shares * below[-1] - 1e-9))
    return np.asarray(np.searchsorted(below, needed), dtype=np.int64)


def _count(
    stores: list[PlaneLists],
    ids: list[NDArray[np.int64]],
    rule: Rule,
    codes: NDArray[np.int64],
    lists: NDArray[np.int64],
    scored: NDArray[np.int64] | None,
    best: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Add one stage's string deficits to `counts`, (2, largest deficit + 1)."""
    from nandcosim.systems.dnova import plane_kernels as kernels

    plans = rule.plans(codes, stores[0])
    turns = rule.turns(stores[0].complemented is None)
    for store, names in zip(stores, ids, strict=True):
        addresses = store.addresses("dts")
        for i, chosen in enumerate(lists):
            starts = store.offsets[chosen]
            sizes = store.offsets[chosen + 1] - starts
            members = np.concatenate(
                [names[start : start + n] for start, n in zip(starts, sizes, strict=True)]
            )
            wanted = np.ones(members.size, bool) if scored is None else np.isin(members, scored[i])
            kernels.string_histograms(
                addresses,
                starts,
                sizes,
                wanted,
                wanted & np.isin(members, best[i]),
                plans[i],
                *turns,
                rule.compiled,
                counts,
            )
