"""Sweeps: a TOML spec, samples, Dask, one Zarr store."""

from __future__ import annotations

from nandcosim.sweep.execute import run_sweep
from nandcosim.sweep.registry import circuit_names, load_circuit
from nandcosim.sweep.sampling import draw
from nandcosim.sweep.spec import RandomVariable, SweepSpec, load_spec, parse_spec
from nandcosim.sweep.store import SweepStore, open_store, status, store_digest

__all__ = [
    "RandomVariable",
    "SweepSpec",
    "SweepStore",
    "circuit_names",
    "draw",
    "load_circuit",
    "load_spec",
    "open_store",
    "parse_spec",
    "run_sweep",
    "status",
    "store_digest",
]
