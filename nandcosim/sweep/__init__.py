"""Sweeps: a TOML spec, samples, Dask, one Zarr store.

Names are imported when they are first used: a worker, and even more the process of an
isolated sample, starts several times faster without the client's half of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nandcosim.sweep.execute import run_sweep
    from nandcosim.sweep.parse import load_spec, parse_spec
    from nandcosim.sweep.registry import circuit_names, load_circuit
    from nandcosim.sweep.sampling import draw
    from nandcosim.sweep.spec import RandomVariable, SweepSpec
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

_MODULES = {
    "execute": ("run_sweep",),
    "parse": ("load_spec", "parse_spec"),
    "registry": ("circuit_names", "load_circuit"),
    "sampling": ("draw",),
    "spec": ("RandomVariable", "SweepSpec"),
    "store": ("SweepStore", "open_store", "status", "store_digest"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
