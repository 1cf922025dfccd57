"""A system evaluated into a folder, with a bar: what the command line and the demo share."""

from __future__ import annotations

from pathlib import Path

from nandcosim.progress import counted_progress
from nandcosim.systems import dnova, nvllm
from nandcosim.tables import load_tables

__all__ = ["inference", "retrieval"]


def retrieval(config: dnova.Config, corpus: str, out: Path, tables: Path | None = None) -> Path:
    """Evaluate D-NOVA, write ``dnova.nc`` into `out` (made if missing)."""
    workload = dnova.load_corpus(corpus)
    loaded = load_tables(tables)
    out.mkdir(parents=True, exist_ok=True)
    with counted_progress("D-NOVA", "configurations") as show:
        result = dnova.evaluate(config, loaded, workload, progress=show)
    path = out / "dnova.nc"
    result.to_netcdf(path, engine="h5netcdf")
    return path


def inference(config: nvllm.Config, out: Path, tables: Path | None = None) -> Path:
    """Evaluate NVLLM, write ``nvllm.nc`` into `out` (made if missing)."""
    result = nvllm.evaluate(config, load_tables(tables))
    out.mkdir(parents=True, exist_ok=True)
    path = out / "nvllm.nc"
    result.to_netcdf(path, engine="h5netcdf")
    return path
