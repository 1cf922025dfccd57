"""CAM cells in the string: truth table, boundaries and error rates against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from circuits.cam_string import CamString
from circuits.cim_string import CimString
from circuits.gated_string import search_voltages
from nandcosim.encodings import mask
from nandcosim.spice.engine import BACKENDS, Engine
from nandcosim.spice.status import Status

CAM = CamString()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(time_limit=60.0)


def sample(engine: Engine, knobs=None, **settings):
    outcome = engine.sample(CAM, CAM.Params(**settings), knobs)
    assert outcome.status is Status.OK, outcome.reason
    return outcome.responses


def currents(responses) -> np.ndarray:
    found = np.array([responses[f"i_q{query}"] for query in range(16)])
    return found[np.isfinite(found)]


@pytest.mark.parametrize(
    ("layers", "widths"), [("1", (1,)), ("2", (2,)), ("3", (3,)), ("1+2", (1, 2)), ("1+1", (1, 1))]
)
def test_mask_table_is_xnor(engine, layers, widths) -> None:
    """Fig. 4(d): of all pairs of entry and query, the equal ones alone conduct."""
    codes = 2 ** sum(widths)
    found = []
    for entry in range(codes):
        responses = sample(engine, layers=layers, entry=entry)
        found.append([int(responses["mask"]) >> query & 1 for query in range(codes)])
        assert responses["missed"] == responses["false_matches"] == 0
        assert currents(responses).size == codes
    queries = np.arange(codes)
    np.testing.assert_array_equal(found, mask(queries[:, np.newaxis], queries, widths))


@pytest.mark.parametrize("layers", ["2", "3"])
def test_current_depends_on_the_distance_alone(engine, layers) -> None:
    """Search level less stored level is what a transistor sees; both transistors swap roles."""
    one = currents(sample(engine, layers=layers, entry=1))
    other = currents(sample(engine, layers=layers, entry=2))
    np.testing.assert_allclose(other[1:], one[:-1], rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("layers", ["2", "3"])
def test_worst_mismatch_is_the_neighbour(engine, layers) -> None:
    found = currents(sample(engine, layers=layers, entry=1))
    neighbours = found[[0, 2]]
    assert found[1] > neighbours.max() > 10 * np.delete(found, [0, 1, 2]).max()
    assert neighbours[0] == pytest.approx(neighbours[1], rel=0.01)


def test_fewer_bits_have_more_on_off(engine) -> None:
    ratios = [sample(engine, layers=layers)["on_off"] for layers in ("3", "2", "1")]
    assert ratios[0] > 10
    assert ratios[1] > 10 * ratios[0]
    assert ratios[2] > 10 * ratios[1]


def test_reference_is_the_current_at_the_boundary(engine) -> None:
    """i_ref: a 2-bit cell in a match, one transistor half a level off, at its boundary."""
    at_boundary = [sample(engine, {"cam": error})["i_match"] for error in ([0.5, 0], [0, 0.5])]
    assert np.mean(at_boundary) == pytest.approx(CAM.Params().i_ref, rel=0.02)


@pytest.mark.parametrize("layers", ["1", "2", "3"])
def test_boundary_lies_half_a_level_from_a_match(engine, layers) -> None:
    i_ref = CAM.Params().i_ref

    def excess(error: float) -> float:
        return sample(engine, {"cam": [error, 0.0]}, layers=layers)["i_match"] - i_ref

    assert brentq(excess, 0.2, 0.8, xtol=1e-3) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("layers", ["1", "2", "3"])
def test_errors_are_those_of_margins_of_half_a_level(engine, layers) -> None:
    """Query q at entry e leaves 1/2 + (q - e) and 1/2 - (q - e) levels less the errors.

    Hence a match is missed with the probability 1 - Phi(1 / (2 sigma))**2. The decision is
    compared sample by sample, where both margins are 24 mV clear of the boundary: two
    transistors close to it in series need up to that much more than one alone.
    """
    clear = 0.025 * 2 ** int(layers)
    codes = 2 ** int(layers)
    rng = np.random.default_rng(5)
    compared = wrong = 0
    for _ in range(40):
        errors = 0.4 * rng.standard_normal(2)
        found = int(sample(engine, {"cam": errors}, layers=layers, entry=1)["mask"])
        for query in range(codes):
            margins = 0.5 + np.array([query - 1, 1 - query]) - errors
            if np.abs(margins).min() < clear:
                continue
            compared += 1
            wrong += (found >> query & 1) != (margins > 0).all()
    assert compared > 60
    assert wrong == 0


def test_searching_is_the_same_with_a_fixed_query(engine) -> None:
    """The counting driver of this deck against the plain sources of `cim_string`."""
    params = CAM.Params(layers="1+2", entry=5)
    counted = currents(sample(engine, layers="1+2", entry=5))
    fixed = CimString()
    for query in (1, 5):
        settings = {"layers": "1+2", "entry": 5, "query": query, "step": 7, "states": 4}
        found = engine.sample(fixed, fixed.Params(**settings)).responses["i_x3"]
        # one cell is read far above its state here, and passes there
        assert found == pytest.approx(counted[query], rel=0.02)
    assert search_voltages(params, 5).shape == (4,)


def test_altered_sample_equals_rebuilt_deck() -> None:
    params = CAM.Params(layers="1+2")
    rng = np.random.default_rng(3)
    knobs = {"cam": 0.2 * rng.standard_normal(4), "cim": 0.012 * rng.standard_normal(124)}
    one, other = (Engine(name).sample(CAM, params, knobs).responses for name in BACKENDS)
    np.testing.assert_allclose(currents(one), currents(other), rtol=1e-4, atol=1e-12)
    assert one["mask"] == other["mask"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entry": 4}, "none of the 4 identifiers"),
        ({"layers": "3+2"}, "more than 16 identifiers"),
        ({"layers": "1,2"}, "joined by"),
        ({"cells": 2}, "CAM transistors"),
    ],
)
def test_impossible_parameters_are_named(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        CAM.Params(**settings)
