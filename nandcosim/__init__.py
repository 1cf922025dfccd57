"""Circuit-to-system co-simulation of 3D-NAND accelerators.

The names below are what scripts use; each loads its module when it is first touched.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

__version__ = version("nandcosim")

_EXPORTS = {
    "CalibrationTable": "nandcosim.tables",
    "dnova": "nandcosim.systems.dnova",
    "fit": "nandcosim.tables",
    "load_tables": "nandcosim.tables",
    "nasic": "nandcosim.systems.nasic",
    "nvllm": "nandcosim.systems.nvllm",
    "open_store": "nandcosim.sweep",
    "open_table": "nandcosim.tables",
    "run_sweep": "nandcosim.sweep",
}

__all__ = [
    "CalibrationTable",
    "__version__",
    "dnova",
    "fit",
    "load_tables",
    "nasic",
    "nvllm",
    "open_store",
    "open_table",
    "run_sweep",
]


#: Exported as modules.
_SYSTEMS = ("dnova", "nasic", "nvllm")


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'nandcosim' has no attribute {name!r}")
    module = importlib.import_module(_EXPORTS[name])
    return module if name in _SYSTEMS else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
