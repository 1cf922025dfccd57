"""The Pareto front against its definition, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nasic.pareto import OBJECTIVES, front, non_dominated

POINTS = st.lists(
    st.tuples(*(st.integers(0, 4) for _ in range(3))), min_size=1, max_size=30
)  # few values, so that ties are common


@given(POINTS)
def test_by_definition(points: list[tuple[int, int, int]]) -> None:
    expected = [
        not any(
            all(a <= b for a, b in zip(other, point, strict=True))
            and any(a < b for a, b in zip(other, point, strict=True))
            for other in points
        )
        for point in points
    ]
    assert non_dominated(points).tolist() == expected


def test_what_is_unknown_is_never_best() -> None:
    assert non_dominated([[np.nan, 0.0], [1.0, 1.0], [2.0, 0.5]]).tolist() == [False, True, True]


def evaluated() -> xr.Dataset:
    """Four designs on two axes; the last one is the fastest and errs most."""
    dims = ("states", "cam_bits")
    return xr.Dataset(
        {
            "token_time": (dims, [[4.0, 3.0], [2.0, 1.0]]),
            "token_energy": (dims, [[1.0, 2.0], [3.0, 1.0]]),
            "area": (dims, [[1.0, 1.0], [1.0, 1.0]]),
            "output_total": (dims, [[0.1, 0.1], [0.1, 0.3]]),
            "fits": (dims, [[True, True], [True, True]]),
        },
        coords={"states": [2, 4], "cam_bits": [1, 2]},
    )


def test_the_limit_decides_what_is_compared() -> None:
    strict, loose = front(evaluated(), 0.2), front(evaluated(), 0.5)
    assert strict.sizes["design"] == 3
    assert strict["best"].all()
    best = loose.isel(design=np.flatnonzero(loose["best"]))
    assert best["token_time"].values.tolist() == [1.0]
    assert (best["states"].item(), best["cam_bits"].item()) == (4, 2)


def test_what_does_not_fit_is_left_out() -> None:
    found = evaluated()
    found["fits"] = found["states"] < 4
    assert front(found, 1.0)["states"].values.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("change", "limit", "objectives", "message"),
    [
        ({}, 0.05, OBJECTIVES, "no design that fits has an error of 0.05"),
        ({"states": "model"}, 1.0, OBJECTIVES, "model: found an axis"),
        ({}, 1.0, {"tokentime": ""}, "did you mean 'token_time'"),
    ],
)
def test_wrong_use(change, limit, objectives, message) -> None:
    with pytest.raises(InputError, match=message):
        front(evaluated().rename(change), limit, objectives)


def test_an_evaluation_without_errors_has_no_front() -> None:
    with pytest.raises(InputError, match="found no output_total"):
        front(evaluated().drop_vars("output_total"), 1.0)
