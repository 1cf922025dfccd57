"""NVLLM: LLM inference from flash by error-resilient dot products beside the planes."""

from __future__ import annotations

from nandcosim.systems.nvllm.config import Config
from nandcosim.systems.nvllm.evaluation import evaluate
from nandcosim.systems.nvllm.models import ModelShape, load_model, model_names

__all__ = ["Config", "ModelShape", "evaluate", "load_model", "model_names"]
