"""The query-side adapter of section 4.2: one residual hidden layer, NumPy only.

A query q (unit length, D components) becomes

    q' = normalise(q + f(q W1 + b1) W2 + b2),    D -> hidden -> D.

The paper gives the layer sizes by their sum (0.4 M parameters at D = 384, which is
384 -> 512 -> 384 with biases: 394,112) and draws no more. The residual path is our
choice: with W2 = 0 and b2 = 0 the adapter is the identity, so training starts from
the encoder and early stopping can return to it. Passages are never adapted.

Training is in `nandcosim.systems.dnova.adapter_training`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nandcosim.errors import InputError
from nandcosim.systems.dnova.ivf import normalised

__all__ = ["ACTIVATIONS", "SHIPPED_ADAPTERS", "Adapter", "load_adapter"]

#: Adapters that ship with the package, by the name of the corpus they were trained on.
SHIPPED_ADAPTERS = ("wordnet",)

#: f, by name. `xp` is the array module, so that a differentiating one may be passed.
ACTIVATIONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"tanh": lambda xp, x: xp.tanh(x), "relu": lambda xp, x: xp.maximum(x, 0)}
)

_DATA = Path(__file__).resolve().parent / "data"
_FORMAT = "nandcosim D-NOVA adapter"
_VERSION = 1
_DIMS = {
    "w1": ("component", "unit"),
    "b1": ("unit",),
    "w2": ("unit", "component"),
    "b2": ("component",),
}
_MEANING = {
    "w1": "weights into the hidden layer",
    "b1": "biases of the hidden layer",
    "w2": "weights out of the hidden layer",
    "b2": "biases of the output",
}


@dataclass(frozen=True, eq=False)
class Adapter:
    """Maps queries to queries.

    Attributes
    ----------
    w1 : float32 array (D, hidden)
    b1 : float32 array (hidden,)
    w2 : float32 array (hidden, D)
    b2 : float32 array (D,)
    activation : str
        A key of `ACTIVATIONS`.
    provenance : mapping
        What made it: plain values, lists and mappings, written to the file as JSON.

    Raises
    ------
    InputError
        If shapes disagree, a weight is not finite, or the activation is unknown.
    """

    w1: NDArray[np.float32]
    b1: NDArray[np.float32]
    w2: NDArray[np.float32]
    b2: NDArray[np.float32]
    activation: str = "tanh"
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise InputError(
                f"adapter: activation {self.activation!r}, allowed: {', '.join(ACTIVATIONS)}"
            )
        for name in _DIMS:
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), np.float32))
        sizes: dict[str, int] = {}
        for name, dims in _DIMS.items():
            weights: NDArray[np.float32] = getattr(self, name)
            if weights.ndim != len(dims) or not weights.size:
                raise InputError(f"adapter: {name} has shape {weights.shape}, allowed: {dims}")
            for dim, size in zip(dims, weights.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise InputError(
                        f"adapter: {name} has shape {weights.shape}, but {dim} is {sizes[dim]}"
                    )
            if not np.isfinite(weights).all():
                raise InputError(f"adapter: {name} holds a value that is not finite")

    @classmethod
    def untrained(
        cls, dimension: int, hidden: int = 512, *, activation: str = "tanh", seed: int = 0
    ) -> Adapter:
        """Where training starts: random W1 of variance 1 / D, all else zero, so the identity."""
        if dimension < 1 or hidden < 1:
            raise InputError(f"adapter: {dimension} -> {hidden}, allowed: sizes of 1 or more")
        draw = np.random.default_rng(seed)
        return cls(
            w1=(draw.standard_normal((dimension, hidden)) / np.sqrt(dimension)).astype(np.float32),
            b1=np.zeros(hidden, np.float32),
            w2=np.zeros((hidden, dimension), np.float32),
            b2=np.zeros(dimension, np.float32),
            activation=activation,
        )

    @property
    def dimension(self) -> int:
        """Components of a query, D."""
        return int(self.w1.shape[0])

    @property
    def hidden(self) -> int:
        """Width of the hidden layer."""
        return int(self.w1.shape[1])

    @property
    def parameters(self) -> int:
        """Weights and biases: 2 D hidden + hidden + D."""
        return self.w1.size + self.b1.size + self.w2.size + self.b2.size

    def __call__(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Adapted queries, unit length, float32 of shape (nq, D).

        Parameters
        ----------
        queries : float array (nq, D)
            As the encoder gives them; scaled to unit length first.

        Raises
        ------
        InputError
            If they are not (nq, D), or a row is zero or not finite.
        """
        rows = normalised(queries)
        if rows.shape[1] != self.dimension:
            raise InputError(
                f"adapter: queries have {rows.shape[1]} components, it takes {self.dimension}"
            )
        hidden = ACTIVATIONS[self.activation](np, rows @ self.w1 + self.b1)
        return normalised(rows + hidden @ self.w2 + self.b2)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one netCDF file, through a temporary one beside it."""
        target = Path(path)
        dataset = xr.Dataset(
            {
                name: (dims, getattr(self, name), {"units": "1", "long_name": _MEANING[name]})
                for name, dims in _DIMS.items()
            },
            attrs={
                "format": _FORMAT,
                "version": _VERSION,
                "activation": self.activation,
                "topology": "q' = normalise(q + f(q w1 + b1) w2 + b2)",
                "provenance": json.dumps(dict(self.provenance), sort_keys=True),
            },
        )
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            dataset.to_netcdf(part, engine="h5netcdf")
            os.replace(part, target)
        except OSError as error:
            raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None
        finally:
            part.unlink(missing_ok=True)


def load_adapter(name_or_path: str | os.PathLike[str]) -> Adapter:
    """Load a shipped adapter by name, or a file that `Adapter.save` wrote.

    Raises
    ------
    InputError
        One line: if there is no such file, or it is damaged, of another kind, or of
        another version.
    """
    if name_or_path in SHIPPED_ADAPTERS:
        return load_adapter(_DATA / f"adapter_{name_or_path}.nc")
    path = Path(name_or_path)
    if not path.is_file():
        raise InputError(
            f"{path}: no such file, and no shipped adapter (shipped: {', '.join(SHIPPED_ADAPTERS)})"
        )
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: not a readable netCDF file: {reason}") from None
    if dataset.attrs.get("format") != _FORMAT:
        found = dataset.attrs.get("format")
        raise InputError(f"{path}: no adapter: format is {found!r}, allowed: {_FORMAT!r}")
    if dataset.attrs.get("version") != _VERSION:
        found = dataset.attrs.get("version")
        raise InputError(f"{path}: adapter file of version {found}, allowed: {_VERSION}")
    missing = [name for name in _DIMS if name not in dataset]
    if missing:
        raise InputError(f"{path}: adapter lacks {', '.join(missing)}")
    try:
        return Adapter(
            **{name: dataset[name].values for name in _DIMS},
            activation=str(dataset.attrs.get("activation")),
            provenance=json.loads(str(dataset.attrs.get("provenance"))),
        )
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: adapter's provenance is no JSON: {error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
