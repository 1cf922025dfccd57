"""What a sweep may ask for instead of a number of samples: a precision, a rare event.

Numbers are in the unit of the response, as everywhere in a `SweepSpec`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, Strict, StrictInt, StrictStr, model_validator

__all__ = ["Condition", "Precision", "RareEvent", "plan_in_words"]

#: A finite number; True is none.
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]

_RELATIONS = {"<": operator.lt, ">": operator.gt}


class Condition(BaseModel):
    """A response on one side of a value, ``bit < 0.5``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: StrictStr
    relation: Literal["<", ">"]
    value: Number

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Whether it holds, bool; not where the value is NaN."""
        return np.asarray(_RELATIONS[self.relation](values, self.value))

    def distance(self, values: np.ndarray) -> np.ndarray:
        """How far the values are from making it hold, in units of the response; NaN stays."""
        sign = 1.0 if self.relation == "<" else -1.0
        return np.asarray(sign * (values - self.value))

    def __str__(self) -> str:
        return f"{self.response} {self.relation} {self.value:g}"


class Precision(BaseModel):
    """A sweep that stops at each point when the mean of a response is known well enough.

    Attributes
    ----------
    response : str
    half_width : float or None
        Of the 95 % interval of the mean, in the unit of the response.
    relative : float or None
        The same as a share of the mean.
    start : int
        Samples that every point begins with.
    refine : tuple of str
        Axes whose values are taken up where the table interpolates worst.
    first : int
        Values of each refined axis to begin with.
    tolerance : float or None
        Largest accepted error of interpolation along a refined axis; default: `half_width`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: StrictStr
    half_width: Number | None = Field(default=None, gt=0)
    relative: Number | None = Field(default=None, gt=0, le=1)
    start: StrictInt = Field(default=50, ge=20)
    refine: tuple[StrictStr, ...] = ()
    first: StrictInt = Field(default=5, ge=3)
    tolerance: Number | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if (self.half_width is None) == (self.relative is None):
            raise ValueError("give half_width or relative, one of the two")
        if self.refine and self.tolerance is None and self.half_width is None:
            raise ValueError("refine with relative needs a tolerance")
        return self


class RareEvent(BaseModel):
    """A sweep that estimates the probability of a rare event at each point.

    Attributes
    ----------
    failure : Condition
        The event.
    guide : Condition
        A continuous response that says how near a run came to it; default: `failure`.
    method : str
        ``importance`` sampling around the most probable failure points, or ``subset``
        simulation.
    precision : float
        Relative standard error of the probability at which a point is finished.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure: Condition
    guide: Condition
    method: Literal["importance", "subset"] = "importance"
    precision: Number = Field(default=0.1, gt=0, le=1)


def plan_in_words(plan: Mapping[str, Any]) -> str:
    """What a planned sweep has come to, from the report that its store holds."""
    if not plan.get("complete"):
        runs = f", {plan['runs']} samples so far" if "runs" in plan else ""
        return f"not complete yet{runs}"
    words = f"complete, {plan['runs']} samples"
    if plan.get("uniform_runs"):
        words += f" ({plan['uniform_runs']} without a plan)"
    if plan.get("imprecise"):
        words += f"; {len(plan['imprecise'])} of {plan['active']} points lack the precision"
    if plan.get("unresolved"):
        words += f"; {', '.join(plan['unresolved'])} would need values between those given"
    if "converged" in plan and plan["converged"] < plan["points"]:
        missed = plan["points"] - plan["converged"]
        words += f"; {missed} of {plan['points']} points lack the precision: see the table's notes"
    return words
