"""The fits of page reads against a read whose boundary, noise and bits are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.page_coding import level_bits, read_levels
from nandcosim.spice.status import Status
from nandcosim.tables import fit
from nandcosim.threshold import bit_error_rate

LOCATION, SPREAD = 0.01, 0.04
MARGINS = [-0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1]
DEFAULTS = {"bits": 4, "coding": "balanced", "retry_step": 0.1}


def store(variables: dict[str, np.ndarray], axes: dict[str, Any], **spec: Any) -> xr.Dataset:
    dims = (*axes, "sample")
    shape = next(iter(variables.values())).shape
    spec = {"circuit": "page_read", "samples": shape[-1], "seed": 1, "random": []} | spec
    return xr.Dataset(
        {"status": (dims, np.zeros(shape, np.int8))}
        | {name: (dims, values, {"units": "1"}) for name, values in variables.items()},
        coords=axes,
        attrs={"spec": json.dumps(spec), "circuit_parameters": json.dumps(DEFAULTS)},
    )


def decisions(samples: int = 4000) -> xr.Dataset:
    """Single senses of cells of 2 and of 4 bits."""
    rng = np.random.default_rng(11)
    noise = SPREAD * rng.standard_normal((2, len(MARGINS), samples))
    bit = (np.array(MARGINS)[:, np.newaxis] - LOCATION + noise > 0).astype(float)
    return store({"bit": bit}, {"bits": [2, 4], "margin": MARGINS})


def reads(bits: int, sigmas: list[float], samples: int) -> xr.Dataset:
    """Every cell sensed at every read level, one amplifier for all senses of a cell."""
    rng = np.random.default_rng(12)
    levels = np.arange(2**bits)
    shape = (levels.size, len(sigmas), samples)
    threshold = levels[:, np.newaxis, np.newaxis] + np.array(sigmas)[
        :, np.newaxis
    ] * rng.standard_normal(shape)
    threshold = threshold + LOCATION + SPREAD * rng.standard_normal(shape)
    senses = {f"bit_{n}": (threshold < n - 0.5).astype(float) for n in range(1, levels.size)}
    return store(senses, {"stored": levels, "sigma": sigmas}, parameters={"bits": bits})


def test_modelled_rates_are_the_decision_s_with_the_levels() -> None:
    table = fit(decisions()).dataset
    assert table["pass_spread"].values == pytest.approx(SPREAD, rel=0.1)
    rate = table["bit_error_rate"]
    assert rate.dims == ("bits", "coding", "page", "sigma", "shift", "retry")
    for bits, page in [(2, "upper"), (4, "top")]:
        place = {"bits": bits, "coding": "balanced", "page": page, "sigma": 0.2, "retry": 2}
        charge = xr.DataArray(np.arange(2**bits) / (2**bits - 1), dims="level")
        expected = bit_error_rate(
            bits,
            -0.3 * charge,
            0.2,
            retry=2,
            location=float(table["pass_location"].sel(bits=bits)),
            spread=float(table["pass_spread"].sel(bits=bits)),
        ).sel(page=page)
        assert float(rate.sel(place).sel(shift=-0.3, method="nearest")) == pytest.approx(
            float(expected)
        )


def test_limits_hold_the_rate_and_the_truth() -> None:
    table = fit(decisions()).dataset.sel(bits=4, shift=0.0, retry=0, coding="balanced")
    rate, low, high = (table[f"bit_error_{end}"] for end in ("rate", "low", "high"))
    assert ((low <= rate) & (rate <= high)).all()
    truth = bit_error_rate(4, 0.0, 0.2, location=LOCATION, spread=SPREAD)
    at = {"sigma": 0.2}
    assert (low.sel(at) <= truth).all()
    assert (truth <= high.sel(at)).all()


def test_lookup_between_the_points_is_a_little_high() -> None:
    """The rate is convex in sigma: linear interpolation errs on the safe side."""
    table = fit(decisions())
    dataset = table.dataset
    place = {name: float(dataset[f"pass_{name}"].sel(bits=4)) for name in ("location", "spread")}
    at = {"bits": 4, "coding": "balanced", "page": "lower", "shift": 0.0, "retry": 0}
    for sigma, excess in [(0.10625, 0.6), (0.15625, 0.07), (0.20625, 0.012), (0.30625, 0.001)]:
        exact = float(bit_error_rate(4, 0.0, sigma, **place).sel(page="lower"))
        found = float(table.lookup("bit_error_rate", sigma=sigma, **at))
        assert exact < found < (1 + excess) * exact


def test_pages_that_a_cell_does_not_have_are_refused_with_the_reason() -> None:
    table = fit(decisions())
    at = {"bits": 2, "coding": "balanced", "sigma": 0.2, "shift": 0.0, "retry": 0}
    assert float(table.lookup("bit_error_rate", page="upper", **at)) > 0
    with pytest.raises(ValueError, match="a cell of so few bits has no such page"):
        table.lookup("bit_error_rate", page="top", **at)


def test_a_rate_has_its_own_attributes_only() -> None:
    table = fit(decisions(samples=400)).dataset
    assert table["bit_error_rate"].attrs == {
        "units": "1",
        "long_name": "modelled raw bit error rate, all levels equally frequent",
        "undefined": "a cell of so few bits has no such page",
        "valid_min": 0.0,
        "valid_max": 1.0,
        "low": "bit_error_low",
        "high": "bit_error_high",
    }
    assert not {"low", "perturb", "standard_error"} & set(table["bit_error_low"].attrs)
    assert bit_error_rate(
        4, 0.0, 0.2, location=table["pass_location"].sel(bits=4)
    ).attrs.keys() == {"units", "long_name"}


def test_an_undecided_margin_is_given_as_the_reason() -> None:
    data = decisions(samples=50)
    data["bit"][{"bits": 1}] = 1.0  # the four-bit cell conducts at every margin
    at = {"coding": "balanced", "sigma": 0.2, "shift": 0.0, "retry": 0}
    whole, four = fit(data), fit(data.sel(bits=[4]))
    with pytest.raises(ValueError, match=r"do not determine the decision.*; or a cell of so few"):
        whole.lookup("bit_error_rate", bits=4, page="top", **at)
    with pytest.raises(ValueError, match=r"do not determine the decision, see fit_kind$"):
        four.lookup("bit_error_rate", bits=4, page="top", **at)
    limits = whole.dataset[["bit_error_low", "bit_error_high"]].sel(bits=4)
    assert bool(limits.isnull().all().to_array().all())


@pytest.mark.parametrize("bits", [2, 3])
def test_counted_errors_agree_with_the_model(bits) -> None:
    """Within the 99.99 % of a binomial count: 2 sigmas, 2 codings, up to 3 pages."""
    table = fit(reads(bits, [0.2, 0.3], samples=3000)).dataset
    assert table["bits_read"].values.tolist() == [3000 * 2**bits] * 2
    for coding in ("reflected", "balanced"):
        for sigma in (0.2, 0.3):
            model = bit_error_rate(
                bits, 0.0, sigma, coding=coding, location=LOCATION, spread=SPREAD
            )
            seen = table["observed_error_rate"].sel(coding=coding, sigma=sigma)
            error = np.sqrt(model * (1 - model) / (3000 * 2**bits))
            assert (np.abs(seen - model) < 3.9 * error).all()
            low, high = (
                table[f"observed_{end}"].sel(coding=coding, sigma=sigma) for end in ("low", "high")
            )
            assert ((low < seen) & (seen < high)).all()


def test_counts_are_those_of_a_plain_loop() -> None:
    data = reads(2, [0.4], samples=50)
    found = fit(data).dataset["bit_errors"]
    for coding in ("reflected", "balanced"):
        code = level_bits(2, coding)
        for number, page in enumerate(("lower", "upper")):
            wrong = 0
            for level in range(4):
                for k in range(50):
                    bit = 1
                    for n in read_levels(2, number, coding):
                        if data[f"bit_{n}"].sel(stored=level).values[0, k] == 0:
                            bit = 1 - bit
                    wrong += bit != code[level, number]
            assert int(found.sel(coding=coding, page=page, sigma=0.4)) == wrong > 0


def test_failed_samples_widen_the_limits_and_are_not_counted() -> None:
    data = reads(2, [0.3], samples=100)
    whole = fit(data).dataset
    data["status"][{"stored": 0, "sample": slice(0, 10)}] = int(Status.CRASHED)
    for n in (1, 2, 3):
        data[f"bit_{n}"][{"stored": 0, "sample": slice(0, 10)}] = np.nan
    partial = fit(data).dataset
    assert partial["bits_read"].item() == 390
    width = [each["observed_high"] - each["observed_low"] for each in (whole, partial)]
    assert (width[1] > width[0]).all()


def test_cost_of_a_page_is_the_mean_over_its_data() -> None:
    axes = {"coding": ["reflected", "balanced"], "page": [0, 1, 2, 3], "stored": np.arange(16)}
    rng = np.random.default_rng(2)
    energy = 1e-13 * (1 + np.arange(16)[:, np.newaxis] / 16 + 0.1 * rng.random((2, 4, 16, 5)))
    time = np.broadcast_to(1e-5 * np.ones((2, 4, 16, 5)), energy.shape).copy()
    table = fit(store({"e_sense": energy, "t_read": time}, axes)).dataset
    assert table["senses"].sel(coding="reflected").values.tolist() == [1, 2, 4, 8]
    assert table["senses"].sel(coding="balanced").values.tolist() == [4, 4, 3, 4]
    senses = table["senses"].values
    expected = energy.mean(axis=(2, 3)) * senses
    assert table["page_energy"].values == pytest.approx(expected)
    # the levels are not sampled: only the scatter at each counts
    error = np.sqrt((energy.var(axis=3, ddof=1) / 5).sum(axis=2)) / 16 * senses
    assert table["page_energy_se"].values == pytest.approx(error)
    assert table["page_time"].values == pytest.approx(1e-5)
