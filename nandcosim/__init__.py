"""Circuit-to-system co-simulation of 3D-NAND accelerators."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("nandcosim")
