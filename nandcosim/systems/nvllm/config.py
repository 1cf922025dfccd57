"""What an NVLLM evaluation may be asked to vary."""

from __future__ import annotations

from nandcosim.systems.config import setting
from nandcosim.systems.nand import Whole
from nandcosim.systems.nvllm.baselines import BaselineFields
from nandcosim.systems.nvllm.engine import PipelineFields
from nandcosim.systems.nvllm.inference import InferenceFields
from nandcosim.systems.nvllm.silicon import SiliconFields

__all__ = ["Config"]


class Config(InferenceFields, PipelineFields, SiliconFields, BaselineFields):
    """Fields of `nandcosim.systems.nvllm.evaluate`; a list or tuple makes an axis."""

    model: str | tuple[str, ...] = setting(
        "llama2-7b", unit="", meaning="model: a name, or the path of a Hugging Face config.json",
        origin="stated: section 4.3, Fig. 6(b)",
    )  # fmt: skip
    engine_segments: Whole = setting(
        0, unit="1", meaning="segments of a cluster put through the engines cycle by cycle too",
        origin="assumed: none, the closed form alone",
    )  # fmt: skip
