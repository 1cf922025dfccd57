"""Text to embedding vectors with a sentence encoder, on onnxruntime, without PyTorch.

Weights and vocabulary are installed apart (`nandcosim.systems.dnova.corpus.models`). The
graph is built once and kept in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError, MissingExtraError
from nandcosim.progress import Progress, ProgressCallback, show_progress
from nandcosim.systems.dnova.corpus.cache import cache_folder
from nandcosim.systems.dnova.corpus.models import EncoderModel, EncoderName, find_model
from nandcosim.systems.dnova.corpus.packed import sha256
from nandcosim.systems.dnova.corpus.passages import Passages, read_passages

__all__ = [
    "Precision",
    "encode",
    "encode_corpus",
    "weights_sha256",
]

Precision = Literal["fp32", "int8"]

#: Texts sorted by length together, and the unit in which an interrupted run continues.
#: Fixed: with it, batches and so the last bits do not depend on where a run was cut.
_BLOCK = 1024


def encode(
    texts: Sequence[str],
    batch_size: int = 32,
    progress: bool = False,
    *,
    precision: Precision = "fp32",
    threads: int | None = None,
    encoder: EncoderName = "minilm",
    model: Path | None = None,
) -> NDArray[np.float32]:
    """Embed texts.

    Parameters
    ----------
    texts : sequence of str, length n
        Only the first tokens of a text count: 256 of all-MiniLM-L6-v2, 384 of
        all-mpnet-base-v2.
    batch_size : int
        Texts a pass.
    progress : bool
        Show progress on standard error.
    precision : {"fp32", "int8"}
        ``"int8"`` rounds the weights and is about twice as fast.
    threads : int, optional
        Threads, each of which encodes whole batches; default: one a processor.
    encoder : {"minilm", "mpnet"}
        all-MiniLM-L6-v2 (384 components) or all-mpnet-base-v2 (768).
    model : Path, optional
        Folder with ``model.safetensors`` and ``tokenizer.json`` of the encoder; default:
        the installed weights.

    Returns
    -------
    ndarray, shape (n, D), float32
        Rows of length 1.

    Raises
    ------
    MissingExtraError
        If a package of the extra ``encode`` is missing.
    InputError
        If the encoder is unknown, its weights are missing, or `texts` is not a sequence
        of strings.
    """
    _check_texts(texts)
    if batch_size < 1:
        raise InputError(f"batch_size: found {batch_size}, expected at least 1")
    found, folder = find_model(encoder, model)
    out = np.empty((len(texts), found.dimension), np.float32)
    if not len(texts):
        return out
    embed = _encoder(found, folder, precision, threads or 0)
    with _counting(len(texts), 0, progress) as count:
        for start in range(0, len(texts), _BLOCK):
            block = texts[start : start + _BLOCK]
            out[start : start + len(block)] = _encode_block(embed, block, batch_size, count)
    return out


def encode_corpus(
    texts_path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    precision: Precision = "fp32",
    threads: int | None = None,
    progress: bool = True,
    encoder: EncoderName = "minilm",
    model: Path | None = None,
) -> Path:
    """Embed a file of passages into ``out`` (.npy) and the ids beside it (.ids.txt).

    An interrupted run continues where it stopped when called again with the same
    texts and settings, and ends with the same bits. `out` appears only when complete.

    Parameters
    ----------
    texts_path : path
        ``.txt`` (one passage a line), ``.jsonl`` (BEIR: ``_id``, ``title``, ``text``)
        or ``.csv`` (columns ``text`` and optionally ``id``, ``title``).
    out : path
        Ends in ``.npy``; float32 (n, D) of unit rows, in the order of the file.
    batch_size, precision, threads, progress, encoder, model
        As in `encode`.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    InputError, MissingExtraError
        As `encode` and `read_passages`; or if another process writes the same file.
    """
    source, target = Path(texts_path), Path(out)
    if target.suffix != ".npy":
        raise InputError(f"{target}: vectors are written as .npy, found {target.suffix!r}")
    passages = read_passages(source)
    found, folder = find_model(encoder, model)
    target.parent.mkdir(parents=True, exist_ok=True)
    embed = _encoder(found, folder, precision, threads or 0)
    key = _work_key(passages, found, folder, precision, batch_size)
    partial = target.with_name(f"{target.name}.{key}.part")
    total = len(passages.texts)
    with partial.open("a+b") as file:
        _lock(file, target)
        done = _resume(file, total, found.dimension)
        with _counting(total, done, progress) as count:
            for start in range(done, total, _BLOCK):
                block = passages.texts[start : start + _BLOCK]
                file.write(_encode_block(embed, block, batch_size, count).tobytes())
                file.flush()
        os.fsync(file.fileno())
        _write_ids(target, passages.ids)
        os.replace(partial, target)
    return target


def weights_sha256(model: Path | None = None, encoder: EncoderName = "minilm") -> str:
    """SHA-256 of an encoder's weights, for a corpus's provenance."""
    return _weights_digest(find_model(encoder, model)[1])


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InputError("texts: found one string, expected a sequence of strings")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts: entry {row} is a {type(text).__name__}, expected a string")


# -- the encoder ---------------------------------------------------------------------------

#: Batches of texts in, a matrix (texts, D) for each out, in order.
_Embed = Callable[[Sequence[Sequence[str]]], Iterator[NDArray[np.float32]]]
_Count = Callable[[int], None]


def _encode_block(
    embed: _Embed, texts: Sequence[str], batch_size: int, count: _Count
) -> NDArray[np.float32]:
    # texts of like length share a batch, so little is spent on padding
    order = np.argsort([len(text) for text in texts], kind="stable")
    batches = [
        [texts[row] for row in order[start : start + batch_size]]
        for start in range(0, len(texts), batch_size)
    ]
    parts = []
    for part in embed(batches):
        parts.append(part)
        count(len(part))
    sorted_rows = np.concatenate(parts)
    out = np.empty_like(sorted_rows)
    out[order] = sorted_rows
    return out


@cache
def _encoder(model: EncoderModel, folder: Path, precision: Precision, threads: int) -> _Embed:
    if precision not in ("fp32", "int8"):
        raise InputError(f"precision: found {precision!r}, allowed: 'fp32', 'int8'")
    try:
        import onnxruntime
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("encoding text", error.name or "onnxruntime", "encode") from None
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(model.max_tokens)
    tokenizer.enable_padding()
    options = onnxruntime.SessionOptions()
    # a thread encodes whole batches: threads that share one batch wait for each other, and
    # for long where other programs use the processor too
    options.intra_op_num_threads = 1
    graph = _cached_graph(model, folder, precision)
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def embed_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = tokenizer.encode_batch(list(texts))
        (embedding,) = session.run(
            ["embedding"],
            {
                "input_ids": np.array([token.ids for token in tokens], np.int64),
                "attention_mask": np.array([token.attention_mask for token in tokens], np.int64),
            },
        )
        return cast("NDArray[np.float32]", embedding)

    def embed(batches: Sequence[Sequence[str]]) -> Iterator[NDArray[np.float32]]:
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            yield from pool.map(embed_batch, batches)

    return embed


@cache
def _weights_digest(folder: Path) -> str:
    return sha256(folder / "model.safetensors")


def _cached_graph(model: EncoderModel, folder: Path, precision: Precision) -> Path:
    """The encoder's graph, built on first use; a half-written one is never seen."""
    digest = _weights_digest(folder)[:12]
    name = f"{model.name}-v{model.graph_version}-{digest}-{precision}.onnx"
    path = cache_folder() / name
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{os.getpid()}-{name}")
    try:
        if precision == "fp32":
            _build_from_weights(model, folder, partial)
        else:
            _quantise_weights(_cached_graph(model, folder, "fp32"), partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _build_from_weights(model: EncoderModel, folder: Path, path: Path) -> None:
    try:
        import onnx  # noqa: F401  the graph is built with it
        from safetensors.numpy import load_file
    except ImportError as error:
        raise MissingExtraError("encoding text", error.name or "onnx", "encode") from None
    try:
        model.build_graph(load_file(folder / "model.safetensors"), path)
    except KeyError as error:
        raise InputError(
            f"{folder}: the weights lack the tensor {error}, so they are not {model.title}"
        ) from None


def _quantise_weights(source: Path, path: Path) -> None:
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise MissingExtraError("int8 encoding", error.name or "onnx", "encode") from None
    root = logging.getLogger()
    root.addFilter(_not_about_preprocessing)
    try:
        quantize_dynamic(source, path, per_channel=True, weight_type=QuantType.QInt8)
    finally:
        root.removeFilter(_not_about_preprocessing)


def _not_about_preprocessing(record: logging.LogRecord) -> bool:
    """False for onnxruntime's advice to fuse layers first: this graph has none to fuse."""
    return "pre-processing before quantization" not in record.getMessage()


# -- files ---------------------------------------------------------------------------------


def _work_key(
    passages: Passages, model: EncoderModel, folder: Path, precision: str, batch_size: int
) -> str:
    """Names everything the vectors depend on, so that only the same work is continued."""
    digest = hashlib.sha256()
    settings = (
        f"{model.graph_version} {_weights_digest(folder)} {precision} {batch_size} "
        f"{model.max_tokens}"
    )
    for part in (settings, *passages.texts):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:12]


def _npy_header(rows: int, dimension: int) -> bytes:
    import io

    header = io.BytesIO()
    layout = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
        "fortran_order": False,
        "shape": (rows, dimension),
    }
    np.lib.format.write_array_header_1_0(header, layout)
    return header.getvalue()


def _resume(file: BinaryIO, rows: int, dimension: int) -> int:
    """Rows already there in whole blocks; the file is cut there and ready to append."""
    header = _npy_header(rows, dimension)
    size = file.seek(0, os.SEEK_END)
    if size < len(header):
        file.truncate(0)
        file.write(header)
        return 0
    row_bytes = dimension * np.dtype(np.float32).itemsize
    done = min((size - len(header)) // row_bytes, rows)
    done = rows if done == rows else done - done % _BLOCK
    file.truncate(len(header) + done * row_bytes)
    return done


def _lock(file: BinaryIO, target: Path) -> None:
    import fcntl  # absent on Windows, where everything else here works

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"{target}: another process is writing this file") from None


def _write_ids(target: Path, ids: Sequence[str]) -> None:
    path = target.with_suffix(".ids.txt")
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text("".join(f"{identifier}\n" for identifier in ids), encoding="utf-8")
    os.replace(partial, path)


@contextlib.contextmanager
def _counting(total: int, before: int, progress: bool) -> Iterator[_Count]:
    """Yield a function that adds to the number of passages done."""
    begun, done = time.monotonic(), before

    def silent(_: Progress) -> None:
        return

    shown = show_progress("encoding", "passages") if progress else contextlib.nullcontext(silent)
    with shown as show:
        report: ProgressCallback = show

        def count(new: int) -> None:
            nonlocal done
            done += new
            report(Progress(done, total, elapsed=time.monotonic() - begun, before=before))

        yield count
