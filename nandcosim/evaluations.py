"""A system evaluated into a folder, with a bar: what the command line and the demo share."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from nandcosim.progress import counted_progress
from nandcosim.systems import dnova, nasic, nvllm
from nandcosim.tables import load_tables

__all__ = ["experts", "inference", "retrieval"]


def retrieval(config: dnova.Config, corpus: str, out: Path, tables: Path | None = None) -> Path:
    """Evaluate D-NOVA, write ``dnova.nc`` into `out` (made if missing)."""
    workload = dnova.load_corpus(corpus)
    loaded = load_tables(tables)
    out.mkdir(parents=True, exist_ok=True)  # before minutes of work
    with counted_progress("D-NOVA", "configurations") as show:
        result = dnova.evaluate(config, loaded, workload, progress=show)
    return _written(result, out / "dnova.nc")


def inference(config: nvllm.Config, out: Path, tables: Path | None = None) -> Path:
    """Evaluate NVLLM, write ``nvllm.nc`` into `out` (made if missing)."""
    return _written(nvllm.evaluate(config, load_tables(tables)), out / "nvllm.nc")


def experts(config: nasic.Config, out: Path, tables: Path | None = None) -> Path:
    """Evaluate NASiC, write ``nasic.nc`` into `out` (made if missing)."""
    return _written(nasic.evaluate(config, load_tables(tables)), out / "nasic.nc")


def _written(result: xr.Dataset, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    result.to_netcdf(path, engine="h5netcdf")
    return path
