"""A mixture of experts of the user's: weights, inputs and routing from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nasic.experts import Experts, Ids, RoutingSample
from nandcosim.systems.nvllm.transformer import Floats

__all__ = ["load_sample"]


def load_sample(path: Path, trace_path: Path | None = None, seed: int = 0) -> RoutingSample:
    """Experts, inputs and routing of the user's mixture of experts.

    Parameters
    ----------
    path : Path
        ``.npz`` or ``.safetensors`` with ``gate`` and ``up`` (layers, experts, width, hidden),
        ``down`` (layers, experts, hidden, width), if they are there ``inputs`` (layers, tokens,
        hidden) and ``trace`` (tokens, layers, k). Without inputs, normal ones are drawn.
    trace_path : Path, optional
        ``.npy`` with the trace.
    seed : int
        Of drawn inputs.

    Raises
    ------
    InputError
        If a file cannot be read, or an array is missing, of another shape or out of range.
    MissingExtraError
        If ``safetensors`` is needed and not installed.
    """
    arrays = dict(_arrays(path))
    if trace_path is not None:
        arrays["trace"] = _read(trace_path, np.load)
    missing = [name for name in ("gate", "up", "down", "trace") if name not in arrays]
    if missing:
        raise InputError(f"{path}: found no array {missing[0]}, expected gate, up, down, trace")
    gate, up, down = (_numbers(path, name, arrays[name]) for name in ("gate", "up", "down"))
    if gate.ndim != 4:
        raise InputError(
            f"{path}: gate: found shape {gate.shape}, expected (layers, experts, width, hidden)"
        )
    layers, experts, width, hidden = gate.shape
    _check_shape(path, "up", up, gate.shape)
    _check_shape(path, "down", down, (layers, experts, hidden, width))
    ids = _checked_trace(trace_path or path, arrays["trace"], layers, experts)
    shape = (layers, len(ids), hidden)
    if "inputs" in arrays:
        inputs = _numbers(path, "inputs", arrays["inputs"])
        _check_shape(path, "inputs", inputs, shape)
    else:
        inputs = np.random.default_rng(seed).standard_normal(shape, np.float32)
    made = tuple(Experts(*matrices) for matrices in zip(gate, up, down, strict=True))
    return RoutingSample(path.stem, made, inputs, ids)


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    if path.suffix == ".npz":
        return cast("Mapping[str, NDArray[Any]]", _read(path, lambda p: dict(np.load(p))))
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: found {path.suffix!r}, allowed: .npz, .safetensors")
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise MissingExtraError(f"reading {path.name}", "safetensors", "encode") from None
    try:
        return cast("Mapping[str, NDArray[Any]]", _read(path, load_file))
    except SafetensorError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _read(path: Path, load: Callable[[Path], Any]) -> Any:
    try:
        return load(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _numbers(path: Path, name: str, values: NDArray[Any]) -> Floats:
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise InputError(f"{path}: {name}: found {values.dtype} or not finite, expected numbers")
    return values.astype(np.float32)


def _check_shape(path: Path, name: str, values: Floats, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise InputError(f"{path}: {name}: found shape {values.shape}, expected {shape}")


def _checked_trace(path: Path, ids: NDArray[Any], layers: int, experts: int) -> Ids:
    if ids.ndim != 3 or ids.shape[1] != layers or 0 in ids.shape or ids.dtype.kind not in "iu":
        raise InputError(
            f"{path}: trace: found {ids.dtype} {ids.shape}, expected integers (tokens, {layers}, k)"
        )
    if ids.min() < 0 or ids.max() >= experts:
        found = f"{ids.min()} to {ids.max()}"
        raise InputError(f"{path}: trace: found experts {found}, allowed: 0 to {experts - 1}")
    ordered = np.sort(ids, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise InputError(f"{path}: trace: found an expert twice for a token, allowed: once")
    return ids.astype(np.int64)
