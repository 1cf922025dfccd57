"""The audit's estimates over many samples of a known population."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

pytest.importorskip("faiss")
pytest.importorskip("numba")

from nandcosim.audit.amplifier import Amplifier
from nandcosim.audit.comparison import bin_cells, disagreement, noise_means
from nandcosim.audit.dnova import EDGES, _choose
from nandcosim.audit.strata import allocate, stratified_rate

#: Share of each stratum and its rate; like an audit: most reads are far and agree.
SHARES = np.array([0.6, 0.25, 0.1, 0.05])
RATES = np.array([0.0, 0.01, 0.04, 0.3])
REPEATS = 2000


def estimate(rng: np.random.Generator, first: int, samples: int):
    drawn = rng.multinomial(first, SHARES)
    uniform = rng.multinomial(samples // 2, SHARES)
    extra = np.concatenate([[0], allocate(drawn[1:], samples - samples // 2)])
    examined = uniform + extra
    return stratified_rate(drawn, rng.binomial(examined, RATES), examined)


@pytest.mark.parametrize(
    ("first", "samples"), [(20_000, 1000), (20_000, 200), (20_000, 40), (2000, 1000)]
)
def test_it_is_unbiased_and_its_interval_holds(first, samples) -> None:
    rng = np.random.default_rng(11)
    truth = float(SHARES @ RATES)
    found = [estimate(rng, first, samples) for _ in range(REPEATS)]
    values = np.array([each.value for each in found])
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(REPEATS)
    held = np.mean([each.low <= truth <= each.high for each in found])
    # 95 % within its own sampling error, or more where a stratum shows no event
    assert held > 0.95 - 4 * np.sqrt(0.05 * 0.95 / REPEATS)


# ---------------------------------------------------------------- a whole audit

#: Deviation of the model's read noise, of the circuit's decision, and how far that is off.
NOISE, SPREAD, OFF = 0.05, 0.2, -0.1
FIRST = 4000
AUDITS = 1000


@cache
def population() -> dict[str, np.ndarray]:
    """Reads of three stages: excess margin, the model's chance and the circuit's."""
    rng = np.random.default_rng(21)
    size = 50_000
    stage = rng.choice([1, 2, 3], size, p=[0.05, 0.7, 0.25])
    excess = rng.normal(0.6, 0.9, size)
    return {
        "stage": stage,
        "bin_of": np.digitize(excess, EDGES, right=True),
        "chance": ndtr(excess / NOISE),
        "circuit": ndtr((excess - OFF) / SPREAD),
    }


def truth() -> dict[str, float]:
    reads = population()
    chance, circuit, model = reads["chance"], reads["circuit"], reads["chance"] > 0.5
    differ = np.where(model, 1 - circuit, circuit)
    return {
        "expected": float((chance * (1 - circuit) + (1 - chance) * circuit).mean()),
        "floor": float((2 * chance * (1 - chance)).mean()),
        "bias": float((circuit - chance).mean()),
        "all": float(differ.mean()),
        **{f"stage {h}": float(differ[reads["stage"] == h].mean()) for h in (1, 2, 3)},
    }


def audited(rng: np.random.Generator, samples: int) -> xr.Dataset:
    """The audit's own choice of reads; the circuit's bit and the model's are drawn."""
    first = rng.integers(0, population()["stage"].size, FIRST)
    reads = {name: values[first] for name, values in population().items()}
    drawn = np.zeros((3, len(EDGES) + 1), dtype=int)
    np.add.at(drawn, (reads["stage"] - 1, reads["bin_of"]), 1)
    chosen, _ = _choose(reads["stage"], reads["bin_of"], samples, rng)
    one = {name: values[chosen] for name, values in reads.items()}
    bit = (rng.random(samples) < one["circuit"]) * 1.0
    pair = ("sample", "comparison")
    return xr.Dataset(
        {
            **{name: ("sample", one[name]) for name in ("stage", "bin_of", "chance")},
            "circuit": (pair, bit[:, np.newaxis]),
            "model": (pair, (one["chance"] > 0.5)[:, np.newaxis] * 1.0),
            "status": (pair, np.zeros((samples, 1), dtype=int)),
            "drawn": (("stage_of", "bin"), drawn),
        },
        coords={"comparison": ["noisy"], "stage_of": [1, 2, 3]},
    )


def printed(dataset: xr.Dataset) -> dict:
    """The estimates that an audit prints with an interval over more than one stratum."""
    parts = {f"stage {h}": bin_cells(dataset, stage=h) for h in (1, 2, 3)}
    rates = {name: disagreement(dataset, "noisy", part).rate for name, part in parts.items()}
    return {**noise_means(dataset), "all": disagreement(dataset, "noisy").rate, **rates}


@pytest.mark.parametrize("samples", [40, 400])
def test_every_interval_of_an_audit_holds(samples) -> None:
    """Few samples are what a spread within strata takes for certainty."""
    rng = np.random.default_rng(22)
    found = [printed(audited(rng, samples)) for _ in range(AUDITS)]
    for name, value in truth().items():
        held = np.mean([each[name].low <= value <= each[name].high for each in found])
        assert held > 0.95 - 4 * np.sqrt(0.05 * 0.95 / AUDITS), (name, held)
        if name in ("expected", "floor", "bias", "all") and samples == 400:
            values = np.array([each[name].value for each in found])
            assert abs(values.mean() - value) < 4 * values.std() / np.sqrt(AUDITS), name


def test_mismatch_given_the_noise_is_distributed_as_the_sweeps() -> None:
    """Over normal scores the conditional draws have the covariance of free ones."""
    rng = np.random.default_rng(12)
    deviations = np.array([0.0335, 0.0106, 0.004])
    amplifier = Amplifier(4, 0.1, ("a", "b", "c"), deviations, np.array([-0.9, -1.0, 0.5]))
    count = 200_000
    drawn = amplifier.mismatch(rng.standard_normal(count), rng) / deviations
    covariance = np.cov(drawn.T)
    assert np.abs(drawn.mean(axis=0)).max() < 4 / np.sqrt(count)
    assert np.abs(covariance - np.eye(3)).max() < 4 * np.sqrt(2 / count)
