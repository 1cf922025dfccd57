"""Small sensing sweeps with a known truth, laid out as the sweep layer's stores are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from nandcosim.spice.status import Status

MARGINS = tuple(np.linspace(-1.0, 1.5, 11))
SIZES = (1, 2, 4)
SIGMAS = (0.0, 0.2)

#: Truth: spread of the sense amplifier, in level spacings.
READ_SIGMA = 0.25


def trip(m: Any) -> Any:
    """Truth: margin at which half of the reads pass, in level spacings."""
    return 0.1 + 0.06 * np.log2(m)


def discharge_time(m: Any) -> Any:
    """Truth: discharge time of a passing read, in s."""
    return 4e-6 * (1 + 0.01 * (m - 1))


def sensing_store(
    *,
    samples: int = 300,
    margins: Sequence[float] = MARGINS,
    sizes: Sequence[int] = SIZES,
    sigmas: Sequence[float] = SIGMAS,
    read_sigma: float = READ_SIGMA,
    corners: Sequence[str] | None = None,
    common_random_numbers: bool = False,
    seed: int = 1,
) -> xr.Dataset:
    """A store of `dts_sense`; a read passes where margin - errors > trip(m).

    A passing read crosses after a time of `discharge_time`, give or take 2 %, and the
    sensing energy is 0.3 pJ, give or take 1 %.
    """
    rng = np.random.default_rng(seed)
    axes: dict[str, Any] = {"margin": np.array(margins, float), "m": np.array(sizes)}
    axes["sigma"] = np.array(sigmas, float)
    if corners is not None:
        axes = {"corner": np.array(corners), **axes}
    dims = (*axes, "sample")
    shape = (*(len(values) for values in axes.values()), samples)

    def along(name: str) -> np.ndarray:
        return axes[name].reshape([-1 if dim == name else 1 for dim in dims])

    drawn = (*(1 for _ in axes), samples) if common_random_numbers else shape
    cell, amplifier, jitter, energy = (rng.standard_normal(drawn) for _ in range(4))
    excess = along("margin") - trip(along("m")) - along("sigma") * cell - read_sigma * amplifier
    bit = np.broadcast_to(excess > 0, shape).astype(float)
    crossing = np.where(bit == 1, discharge_time(along("m")) * (1 + 0.02 * jitter), np.nan)
    spec = {
        "circuit": "dts_sense",
        "samples": samples,
        "seed": seed,
        "sampler": "monte-carlo",
        "common_random_numbers": common_random_numbers,
        "random": [
            {"target": "threshold", "distribution": "normal", "mean": 0.0, "std": "sigma"},
            {"target": "sa_n", "distribution": "normal", "mean": 0.0, "std": 0.01},
        ],
    }
    units = {"margin": "level", "m": "1", "sigma": "level"}
    return xr.Dataset(
        {
            "status": (dims, np.zeros(shape, dtype=np.int8)),
            "bit": (dims, bit, {"units": "1", "long_name": "output buffer at the strobe"}),
            "t_cross": (dims, crossing, {"units": "s", "long_name": "discharge"}),
            "e_sense": (
                dims,
                np.broadcast_to(3e-13 * (1 + 0.01 * energy), shape).copy(),
                {"units": "J", "long_name": "energy from the supply"},
            ),
        },
        coords={
            name: (name, values, {"units": units[name]} if name in units else {})
            for name, values in axes.items()
        },
        attrs={"spec": json.dumps(spec), "seed": seed},
    )


def with_status(store: xr.Dataset, status: Status, where: dict[str, Any]) -> xr.Dataset:
    """A copy in which the samples at the positions `where` have another status and no values."""
    changed = store.copy(deep=True)
    changed["status"][where] = int(status)
    for name in ("bit", "t_cross", "e_sense"):
        changed[name][where] = np.nan
    return changed


def with_spec(store: xr.Dataset, **changes: Any) -> xr.Dataset:
    """A copy whose spec has other entries."""
    spec = json.loads(store.attrs["spec"]) | changes
    return store.assign_attrs(spec=json.dumps(spec))
