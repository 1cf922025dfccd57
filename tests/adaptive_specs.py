"""Specs that the tests of adaptive sampling share; no circuit stands behind them."""

from __future__ import annotations

from typing import Any

from nandcosim.sweep.goals import Precision
from nandcosim.sweep.spec import SweepSpec


def sweep(
    axes: dict[str, tuple[float | str, ...]] | None = None, samples: int = 2000, **asked: Any
) -> SweepSpec:
    axes = {"x": (0.0, 1.0)} if axes is None else axes
    return SweepSpec(
        circuit="any",
        samples=samples,
        seed=1,
        sampler="monte-carlo",
        common_random_numbers=False,
        responses=("y",),
        parameters={},
        axes=axes,
        units=dict.fromkeys(axes, "1"),
        random=(),
        precision=Precision(response="y", **asked),
    )
