"""The tables of cam_string and cim_string from stores whose truth is known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from nandcosim.encodings import complement, string_states, weights
from nandcosim.spice.status import Status
from nandcosim.tables import fit
from nandcosim.tables.cim_string import signed_reads
from nandcosim.tables.plot_cam_string import draw_cam_string
from nandcosim.tables.plot_cim_string import draw_cim_string

STEPS = np.arange(-2, 4)
SAMPLES = 400


def store(
    circuit: str, axes: dict[str, np.ndarray], responses: dict[str, np.ndarray], **spec: Any
) -> xr.Dataset:
    dims = (*axes, "sample")
    shape = next(iter(responses.values())).shape
    data = xr.Dataset(
        {
            "status": (dims, np.zeros(shape, dtype=np.int8)),
            **{name: (dims, values, {"units": "A"}) for name, values in responses.items()},
        },
        coords={name: (name, values, {"units": "1"}) for name, values in axes.items()},
    )
    defaults = {"states": 4, "entry": 1, "query": 1}
    data.attrs = {
        "spec": json.dumps({"circuit": circuit, "seed": 1, "sampler": "monte-carlo", **spec}),
        "circuit_parameters": json.dumps(defaults),
    }
    return data


def cim_store(*, paired: bool = True, seed: int = 2) -> xr.Dataset:
    """Strings of 1 A times the input from step 1, a common and a step's own error each."""
    rng = np.random.default_rng(seed)
    axes = {"states": np.array([2, 3, 4]), "step": STEPS, "query": np.array([1, 2])}
    axes["sigma"] = np.array([0.0, 0.1])
    common, own = rng.standard_normal(SAMPLES), rng.standard_normal((STEPS.size, SAMPLES))
    error = axes["sigma"][:, np.newaxis, np.newaxis] * (common + 0.5 * own)  # sigma, step, sample
    gain = np.where(STEPS > 0, 1.0, 0.01)[:, np.newaxis] * (1 + error)
    gain = np.moveaxis(gain, 0, 1)[:, np.newaxis] * np.array([1.0, 0.001]).reshape(1, 2, 1, 1)
    gain = np.broadcast_to(gain, (3, *gain.shape))
    responses = {f"i_x{x}": gain * x for x in range(4)}
    return store("cim_string", axes, responses, common_random_numbers=paired)


@pytest.fixture(scope="module")
def cim() -> xr.Dataset:
    return fit(cim_store()).dataset


@pytest.mark.parametrize("states", [2, 3, 4])
def test_product_is_weight_times_input(cim, states) -> None:
    """A pair more conducts 1 and leaves 0.01: 0.99 a pair, twice that a unit of weight."""
    quiet = cim.sel(states=states, query=1, sigma=0.0)
    product = quiet["product"].dropna("weight")
    np.testing.assert_array_equal(product["weight"], weights(states))
    ideal = 2 * 0.99 * product["weight"] * product["x"]
    np.testing.assert_allclose(product.values, ideal.values, rtol=1e-12, atol=1e-12)
    assert float(quiet["lsb"]) == pytest.approx(1.98)
    assert float(quiet["inl_largest"]) == pytest.approx(0.0, abs=1e-12)
    assert float(quiet["dnl_largest"]) == pytest.approx(0.0, abs=1e-12)


def test_spread_of_a_product_is_that_of_units_of_eight_strings(cim) -> None:
    """Against a million units put together from strings of the same distribution."""
    states, weight, x = 4, 3, 2
    rng = np.random.default_rng(9)
    block_a = string_states(weight, states)
    total = np.zeros(1_000_000)
    for index, state in enumerate([*block_a, *complement(block_a, states)]):
        common = rng.standard_normal(total.size)
        sign = 1 if index < 4 else -1
        for pulse in range(1, states):
            gain = 1.0 if pulse > state else 0.01
            error = 0.1 * (common + 0.5 * rng.standard_normal(total.size))
            total += sign * gain * x * (1 + error)
    found = cim.sel(states=states, weight=weight, x=x, query=1, sigma=0.1)
    assert float(found["product_sd"]) == pytest.approx(total.std(), rel=0.08)  # 400 strings
    assert float(found["product"]) == pytest.approx(
        total.mean(), abs=4 * float(found["product_se"])
    )


def test_error_of_a_product_shrinks_with_the_samples_and_vanishes_at_weight_0(cim) -> None:
    """Both blocks share the mean string, so that at weight 0 nothing is left to know."""
    noisy = cim.sel(states=4, query=1, sigma=0.1, x=3)
    assert float(noisy["product_se"].sel(weight=0)) == pytest.approx(0.0, abs=1e-9)
    assert 0 < noisy["product_se"].sel(weight=6) < noisy["product_sd"].sel(weight=6)


def test_a_mismatch_has_no_linearity(cim) -> None:
    assert cim["inl"].sel(query=2).isnull().all()
    assert cim["lsb"].sel(query=2).isnull().all()
    assert cim["product"].sel(query=2, states=2).notnull().sum() == 5 * 4 * 2


def test_inl_and_dnl_of_a_bent_transfer() -> None:
    """Step 2 conducts 10 % more than step 1: only cells of four states notice it evenly."""
    data = cim_store()
    for x in range(4):
        data[f"i_x{x}"] = data[f"i_x{x}"] * xr.where(data["step"] == 2, 1.1, 1.0)
    table = fit(data).dataset.sel(sigma=0.0, query=1)
    by_hand = []
    current = {int(s): (1.1 if s == 2 else 1.0) if s > 0 else 0.01 for s in STEPS}
    for weight in weights(4):
        block_a = string_states(int(weight), 4)
        pairs = [(a, b) for a, b in zip(block_a, complement(block_a, 4), strict=True)]
        by_hand.append(sum(current[j - a] - current[j - b] for a, b in pairs for j in (1, 2, 3)))
    lsb = by_hand[-1] / 6
    four = table.sel(states=4, x=1)
    np.testing.assert_allclose(four["inl"], np.array(by_hand) / lsb - weights(4), atol=1e-12)
    np.testing.assert_allclose(four["dnl"][1:], np.diff(by_hand) / lsb - 1, atol=1e-12)
    assert float(table["inl_largest"].sel(states=4)) > 0.01
    assert float(table["inl_largest"].sel(states=3)) == pytest.approx(0.0, abs=1e-12)


def test_products_need_strings_known_at_all_steps_together() -> None:
    table = fit(cim_store(paired=False)).dataset
    assert "product" not in table
    assert "common random numbers" in json.loads(table.attrs["not_fitted"])["product"]


def test_a_string_that_failed_at_one_step_is_in_no_product() -> None:
    data = cim_store()
    data["status"][0, 0, 0, 1, 7] = Status.NO_CONVERGENCE
    for x in range(4):
        data[f"i_x{x}"][0, 0, 0, 1, 7] = np.nan
    table = fit(data).dataset.sel(query=1, sigma=0.1, states=2, x=3)
    assert int(table["current_n"].sel(step=-2)) == SAMPLES - 1
    assert int(table["current_n"].sel(step=1)) == SAMPLES
    assert table["product"].sel(weight=2).notnull()


def test_missing_step_leaves_its_weights_undefined() -> None:
    assert signed_reads(6, 4, np.array([0, 1, 2])) is None
    reads = signed_reads(1, 2, np.array([0, 1]))
    assert reads.tolist() == [[0, 1], [0, 1], [0, 1], [1, 0], [-1, 0], [-1, 0], [-1, 0], [0, -1]]


def cam_store() -> xr.Dataset:
    """Layers of 2 and 4 identifiers; entry 1 is missed in every tenth sample."""
    axes = {"layers": np.array(["1", "2"]), "sigma": np.array([0.0, 0.2])}
    shape = (2, 2, 50)
    missed = np.zeros(shape)
    missed[:, 1, ::10] = 1.0
    false = np.zeros(shape)
    false[1, 1, :3] = 1.0
    responses = {
        "i_match": np.full(shape, 2.0),
        "mask": np.where(missed > 0, 0.0, 2.0) + 4.0 * false,
        "missed": missed,
        "false_matches": false,
    }
    for query in range(6):
        current = np.full(shape, 2.0 if query == 1 else 0.1)
        current[0 if query >= 2 else slice(0, 0)] = np.nan
        responses[f"i_q{query}"] = np.full(shape, np.nan) if query >= 4 else current
    return store("cam_string", axes, responses)


def test_cam_table_counts_what_is_sensed() -> None:
    table = fit(cam_store()).dataset
    assert table["query"].values.tolist() == [0, 1, 2, 3]
    two = table.sel(layers="2", sigma=0.2)
    np.testing.assert_allclose(two["match_probability"], [0.0, 0.9, 0.06, 0.0])
    assert two["miss_probability"] == pytest.approx(0.1)
    assert two["false_match_probability"] == pytest.approx(0.06)
    assert two["miss_low"] < 0.1 < two["miss_high"]
    one = table.sel(layers="1", sigma=0.0)
    assert one["match_probability"].notnull().values.tolist() == [True, True, False, False]
    np.testing.assert_allclose(one["current"][:2], [0.1, 2.0])


def test_tables_can_be_redrawn_looked_up_and_drawn() -> None:
    rng = np.random.default_rng(0)
    cam, cim = fit(cam_store()), fit(cim_store())
    drawn = cam.perturbed(rng).dataset["match_probability"]
    assert ((drawn >= 0) & (drawn <= 1) | drawn.isnull()).all()
    again = cim.perturbed(rng).lookup("product", states=4, query=1, sigma=0.1, weight=6, x=3)
    ours = cim.lookup("product", states=4, query=1, sigma=0.1, weight=6, x=3)
    assert abs(float(again - ours)) < 6 * float(
        cim.lookup("product_se", states=4, query=1, sigma=0.1, weight=6, x=3)
    )
    assert len(draw_cam_string(cam.dataset).axes) == 3
    assert len(draw_cim_string(cim.dataset).axes) == 8
