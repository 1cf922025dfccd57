"""A model as NVLLM keeps it: FFN and head as INT8 in flash, attention as INT8 in DRAM.

Scales and norms are few (2 B an output row, and one a hidden value): the controller keeps
them in DRAM, where there are no errors. So is the embedding, of which a token needs one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.int8 import Activations, Int8Matrix, quantise_rows
from nandcosim.systems.nvllm.smollm import Checkpoint
from nandcosim.systems.nvllm.transformer import (
    FFN_MATRICES,
    HEAD,
    Architecture,
    Floats,
    Transformer,
    matrix_shapes,
)
from nandcosim.wording import unknown_value

__all__ = ["PARTS", "Bytes", "Part", "StoredModel", "quantised"]

Bytes = NDArray[np.uint8]
#: What may be in flash.
Part = Literal["ffn", "head"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class StoredModel:
    """A quantised model.

    Attributes
    ----------
    name : str
    architecture : Architecture
    norms : Mapping
        Name -> float32 (hidden,).
    scales : Mapping
        Name of a matrix -> float32 (outputs,).
    dram : Mapping
        Name -> int8 (outputs, inputs), of the matrices in DRAM.
    flash_names : tuple of str
        Matrices in flash, in the order in which they lie there.
    flash : ndarray of uint8
        Those matrices, row by row, one after the other.
    embedding : ndarray of float32, (vocab, hidden)
        The head's rows.
    activations : {"int8", "float"}
    """

    name: str
    architecture: Architecture
    norms: Mapping[str, Floats]
    scales: Mapping[str, Floats]
    dram: Mapping[str, NDArray[np.int8]]
    flash_names: tuple[str, ...]
    flash: Bytes
    embedding: Floats
    activations: Activations = "int8"

    def transformer(self, flash: Bytes | None = None) -> Transformer:
        """The model with the weights in flash as they were read; default: as stored.

        Parameters
        ----------
        flash : ndarray of uint8, shape of `StoredModel.flash`
        """
        read = self._matrices(self.flash if flash is None else flash)
        matrices = {
            name: Int8Matrix(values, self.scales[name], self.activations)
            for name, values in {**self.dram, **read}.items()
        }
        return Transformer(self.architecture, self.embedding, self.norms, matrices)

    def _matrices(self, flash: Bytes) -> dict[str, NDArray[np.int8]]:
        """Views into the bytes."""
        shapes = [matrix_shapes(self.architecture)[name] for name in self.flash_names]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        parts = np.split(flash.view(np.int8), ends[:-1])
        each = zip(self.flash_names, parts, shapes, strict=True)
        return {name: part.reshape(shape) for name, part, shape in each}


def quantised(
    checkpoint: Checkpoint, parts: Sequence[Part] = PARTS, activations: Activations = "int8"
) -> StoredModel:
    """Quantise every matrix of a model to INT8, one scale an output row.

    Parameters
    ----------
    checkpoint : Checkpoint
    parts : sequence of {"ffn", "head"}
        What goes to flash; NVLLM has both there (section 3.5).
    activations : {"int8", "float"}
        What the weights are multiplied by.

    Raises
    ------
    InputError
        If nothing goes to flash, or something that is no part.
    """
    if not parts or not set(parts) <= set(PARTS):
        raise InputError(f"parts in flash: found {tuple(parts)}, allowed: {', '.join(PARTS)}")
    if activations not in get_args(Activations):
        raise InputError(f"activations: {unknown_value(activations, get_args(Activations))}")
    names = matrix_shapes(checkpoint.architecture)
    values, scales = {}, {}
    for name in names:
        values[name], scales[name] = quantise_rows(checkpoint.matrix(name))
    embedding = values[HEAD] * scales[HEAD][:, None]
    in_flash = tuple(name for name in names if _part(name) in parts)
    flash = np.concatenate([values.pop(name).ravel() for name in in_flash]).view(np.uint8)
    return StoredModel(
        name=checkpoint.name,
        architecture=checkpoint.architecture,
        norms=checkpoint.norms,
        scales=scales,
        dram=values,
        flash_names=in_flash,
        flash=flash,
        embedding=embedding,
        activations=activations,
    )


def _part(matrix: str) -> Part | None:
    if matrix == HEAD:
        return "head"
    return "ffn" if matrix.endswith(FFN_MATRICES) else None
