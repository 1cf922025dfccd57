"""NASiC: experts selected by CAM cells and multiplied in the same NAND strings."""

from __future__ import annotations

from nandcosim.systems.nasic.config import Config
from nandcosim.systems.nasic.evaluation import evaluate
from nandcosim.systems.nasic.moe import MoeShape, load_moe, moe_names
from nandcosim.systems.nasic.pareto import front

__all__ = ["Config", "MoeShape", "evaluate", "front", "load_moe", "moe_names"]
