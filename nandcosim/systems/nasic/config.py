"""What a NASiC evaluation may be asked to vary."""

from __future__ import annotations

from nandcosim.systems.config import setting
from nandcosim.systems.nand import Positive
from nandcosim.systems.nasic.array_errors import ReadoutFields
from nandcosim.systems.nasic.cost import CostFields

__all__ = ["Config"]


class Config(ReadoutFields, CostFields):
    """Fields of `nandcosim.systems.nasic.evaluate`; a list or tuple makes an axis."""

    model: str | tuple[str, ...] = setting(
        "olmoe", unit="", meaning="model: a name, or the path of a Hugging Face config.json",
        origin="assumed: the paper names none",
    )  # fmt: skip
    loss_limit: Positive | tuple[Positive, ...] = setting(
        0.01, unit="1", meaning="cosine loss of an FFN's output allowed, with input_rule=measured",
        origin="assumed: not stated",
    )  # fmt: skip
