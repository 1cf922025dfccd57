"""``[precision]`` and ``[rare]``: what a sweep may ask for instead of a number of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.sweep import load_circuit, parse_spec
from nandcosim.sweep.goals import Condition
from nandcosim.sweep.rehearsal import rehearse
from nandcosim.sweep.spec import SweepSpec

PRECISION = {"response": "bit", "half_width": 0.02}
RARE = {"failure": "bit < 0.5", "guide": "t_cross > 6 us"}


def spec_with(**changes: Any) -> SweepSpec:
    document: dict[str, Any] = {
        "circuit": "dts_sense",
        "samples": 400,
        "seed": 1,
        "responses": ["bit", "t_cross"],
        "axes": {"margin": [0.0, 0.25, 0.5, 1.0, 1.5], "corner": ["tt"]},
        "random": [{"target": "threshold", "distribution": "normal", "mean": 0.0, "std": 0.2}],
    }
    return parse_spec({**document, **changes}, where="s.toml")


def test_ordinary_sweep_keeps_its_digest() -> None:
    """A sweep from before there were goals is the same sweep."""
    spec = spec_with()
    assert not spec.planned
    assert "precision" not in spec.to_dict()
    assert "rare" not in spec.to_dict()


@pytest.mark.parametrize("goal", [{"precision": PRECISION}, {"rare": RARE}])
def test_goal_survives_the_canonical_text(goal: dict[str, Any]) -> None:
    spec = spec_with(**goal)
    assert spec.planned
    assert SweepSpec.model_validate_json(spec.canonical_json()) == spec
    assert spec.digest != spec_with().digest


def test_quantities_are_in_the_unit_of_the_response() -> None:
    rare = spec_with(rare=RARE).rare
    assert rare is not None
    assert rare.guide == Condition(response="t_cross", relation=">", value=6e-6)
    timed = spec_with(precision={"response": "t_cross", "half_width": "5 ns"}).precision
    assert timed is not None
    assert timed.half_width == pytest.approx(5e-9)


def test_guide_is_the_failure_itself_by_default() -> None:
    rare = spec_with(rare={"failure": "v_strobe > 0.4"}, responses=["v_strobe"]).rare
    assert rare is not None
    assert rare.guide == rare.failure


def test_condition_and_its_distance() -> None:
    values = np.array([1.0, 3.0, np.nan])
    below = Condition(response="bit", relation="<", value=2.0)
    np.testing.assert_array_equal(below.holds(values), [True, False, False])
    np.testing.assert_array_equal(below.distance(values), [-1.0, 1.0, np.nan])
    above = Condition(response="bit", relation=">", value=2.0)
    np.testing.assert_array_equal(above.holds(values), [False, True, False])
    np.testing.assert_array_equal(above.distance(values), [1.0, -1.0, np.nan])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": {"response": "bits", "half_width": 0.1}}, "response: found 'bits'"),
        ({"precision": {"half_width": 0.1}}, "precision.response: is missing, allowed"),
        ({"precision": {"response": "bit"}}, "precision: give half_width or relative"),
        ({"precision": {**PRECISION, "relative": 0.1}}, "give half_width or relative, one"),
        ({"precision": {**PRECISION, "half_width": 0}}, "precision.half_width: found 0"),
        ({"precision": {**PRECISION, "half_width": "5 V"}}, "precision.half_width: found '5 V'"),
        ({"precision": {**PRECISION, "start": 5}}, "precision.start: found 5"),
        ({"precision": {**PRECISION, "refine": ["m"]}}, "precision.refine: found 'm'.*margin"),
        ({"precision": {**PRECISION, "refine": ["corner"]}}, "found 'corner', allowed: axes of"),
        ({"precision": {**PRECISION, "refine": ["margin"], "first": 9}}, "first: found 9, allowed"),
        ({"precision": {**PRECISION, "widht": 1}}, "precision.widht: unknown"),
        ({"precision": 0.1}, "precision: found 0.1"),
        ({"precision": PRECISION, "rare": RARE}, "precision: is given and rare too"),
        ({"precision": PRECISION, "sampler": "sobol"}, "sampler: found 'sobol', allowed with"),
        ({"rare": {}}, "rare.failure: is missing"),
        ({"rare": {"failure": "bit"}}, "rare.failure: found 'bit', expected one such as"),
        ({"rare": {"failure": "bit == 1"}}, "rare.failure: found 'bit == 1'"),
        ({"rare": {"failure": "v_bl < 1"}}, "rare.failure: found 'v_bl'"),
        ({"rare": {**RARE, "guide": "t_cross > 5 V"}}, "rare.guide: found '5 V'"),
        ({"rare": {"failure": "t_cross > 6 us"}}, "t_cross does not exist in every run, .* bit"),
        ({"rare": {"failure": "bit <= 0.5"}}, "rare.failure: found 'bit <= 0.5', expected one"),
        ({"rare": {**RARE, "precision": True}}, "rare.precision: found True"),
        ({"precision": {**PRECISION, "start": 401}}, "start: found 401, allowed: 20 to 400"),
        ({"precision": {**PRECISION, "first": 3}}, "precision.first: is for axes to refine"),
        ({"precision": {**PRECISION, "refine": ["margin"] * 2}}, "an axis is given twice"),
        ({"precision": {**PRECISION, "half_width": float("nan")}}, "half_width: found nan"),
        ({"rare": {**RARE, "method": "magic"}}, "rare.method: found 'magic'"),
        ({"rare": {**RARE, "precision": 2}}, "rare.precision: found 2"),
        ({"rare": RARE, "engine": "fast"}, "engine: found 'fast', allowed with rare"),
        ({"rare": RARE, "random": []}, "random: is missing"),
    ],
)  # fmt: skip
def test_mistakes_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        spec_with(**changes)
    assert str(caught.value).startswith("s.toml: ")
    assert "\n" not in str(caught.value)


def test_too_few_samples_to_search_are_refused_before_the_sweep() -> None:
    spec = spec_with(rare=RARE, samples=200)
    with pytest.raises(InputError, match=r"samples = 200: rare event: found 100 .* allowed with"):
        rehearse(spec, load_circuit(spec.circuit))
