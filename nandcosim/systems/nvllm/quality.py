"""What bit errors of flash do to a language model: perplexity and accuracy.

Weights are laid out as codewords on pages, read once with bit errors, and used in three ways:

``none``     as they were read, checks ignored;
``detect``   segments that fail their check add nothing to a dot product;
``correct``  faulty segments are corrected; those beyond correction are kept as read, or dropped.

All three see the same errors, so that they differ by what the code does alone. Weights that
came out as they were stored give the stored model's score: nothing is run for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import xarray as xr
from scipy.stats import t as student

from nandcosim.errors import InputError
from nandcosim.intervals import CONFIDENCE
from nandcosim.systems.arrays import described
from nandcosim.systems.nvllm.ecc import CLEAN, DETECTED, Corrected, classify
from nandcosim.systems.nvllm.erdpe import Uncorrectable
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.pages import PageLayout, RawSegments, StoredPages, layout, read, store
from nandcosim.systems.nvllm.probes import Score
from nandcosim.systems.nvllm.rber import page_error_rates, raw_bit_error_rate
from nandcosim.systems.nvllm.stored_model import Bytes, StoredModel
from nandcosim.systems.nvllm.transformer import Transformer
from nandcosim.wording import unknown_value

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["MODES", "SCORES", "Mode", "quality", "summary", "weights_used"]

Mode = Literal["none", "detect", "correct"]
MODES: tuple[Mode, ...] = get_args(Mode)
#: Names of a `Score`'s values.
SCORES = tuple(field.name for field in fields(Score))

_OUTCOMES = ("clean", "corrected", "detected", "miscorrected", "undetected")
_TEXTS = {
    "rber_read": ("1", "raw bit error rate, mean over the pages of a cell"),
    "perplexity": ("1", "exp(mean negative log probability of a token)"),
    "accuracy": ("1", "share of tokens that the model held for the likeliest"),
    "answers": ("1", "share of definitions given their word, of four"),
    "wrong_weights": ("1", "weights in flash used with another value than stored"),
    "flipped_bits": ("1", "bits read wrong, parity included"),
    "segments": ("1", "segments by what became of them"),
    **{f"stored_{name}": ("1", f"{name} without bit errors") for name in SCORES},
}


def quality(
    config: HardwareFields,
    model: StoredModel,
    probe: Callable[[Transformer], Score],
    tables: Mapping[str, CalibrationTable] | None = None,
    *,
    modes: Sequence[Mode] = MODES,
    seeds: Sequence[int] = (0, 1, 2),
    uncorrectable: Uncorrectable = "keep",
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Read a model from flash and run it, at every point of a configuration.

    Parameters
    ----------
    config : HardwareFields
        Fields of errors, code and pages are used; any may be an axis.
    model : StoredModel
    probe : callable
        Scores a model: `Probe.score`.
    tables : Mapping, optional
        Needed where ``rber_source`` is ``table``.
    modes : sequence of {"none", "detect", "correct"}
    seeds : sequence of int
        One read of all weights each; the same at every point.
    uncorrectable : {"keep", "drop"}
        What ``correct`` does with a segment known to be beyond correction.
    progress : callable, optional
        Called with the reads done and those in all.

    Returns
    -------
    xarray.Dataset
        Over the configuration's axes, ``mode`` and ``seed``: ``perplexity``, ``accuracy``,
        ``answers`` (where there are questions) and ``wrong_weights``. Over the axes and
        ``seed``: ``flipped_bits``, and ``segments`` along ``outcome``. ``rber_read`` over the
        axes. ``stored_perplexity`` and so on: of the model without errors.

    Raises
    ------
    InputError
        If a mode is unknown, there is no seed, or a rate or code is none there can be.
    MissingExtraError
        If the codec is missing.
    """
    for mode in modes:
        if mode not in MODES:
            raise InputError(f"mode: {unknown_value(mode, MODES)}")
    if not modes or not seeds:
        raise InputError("quality: found no mode or no seed, allowed: one or more of each")
    if uncorrectable not in get_args(Uncorrectable):
        raise InputError(f"uncorrectable: {unknown_value(uncorrectable, get_args(Uncorrectable))}")
    # what is wrong with any point comes out before the first is run
    points = [(i, layout(point), page_error_rates(point, tables)) for i, point in config.points()]
    axes = {name: list(values) for name, values in config.axes.items()}
    result = _empty({**axes, "mode": list(modes), "seed": list(seeds)}, axes)
    result["rber_read"] = raw_bit_error_rate(config, tables)
    scores = _Scores(model, probe)
    pages: dict[PageLayout, StoredPages] = {}
    total, done = len(points) * len(seeds), 0
    for index, dealt, rates in points:
        if dealt not in pages:
            pages = {dealt: store(model.flash, dealt)}  # the last one only: it is large
        for s, seed in enumerate(seeds):
            _fill(result, (*index, s), pages[dealt], rates, scores, seed, modes, uncorrectable)
            done += 1
            if progress is not None:
                progress(done, total)
    for name in SCORES:
        result[f"stored_{name}"] = getattr(scores.stored, name)
    if np.isnan(scores.stored.answers):
        result = result.drop_vars(["answers", "stored_answers"])
    result.attrs = {
        "system": "nvllm-quality", "model": model.name, "activations": model.activations,
        "uncorrectable": uncorrectable,
    }  # fmt: skip
    return described(result, _TEXTS)


def weights_used(
    raw: RawSegments, corrected: Corrected, mode: Mode, uncorrectable: Uncorrectable = "keep"
) -> Bytes:
    """The weight bytes that are multiplied, given a read and what the corrector made of it.

    Parameters
    ----------
    raw : RawSegments
    corrected : Corrected
        Of all segments of `raw`.
    mode : {"none", "detect", "correct"}
    uncorrectable : {"keep", "drop"}

    Returns
    -------
    ndarray of uint8, shape (raw.size,)
        A dropped segment is all zeros.
    """
    data = corrected.data if mode == "correct" else raw.data
    if mode == "detect":
        data = np.where((corrected.verdict == CLEAN)[:, None], data, np.uint8(0))
    if mode == "correct" and uncorrectable == "drop":
        data = np.where((corrected.verdict != DETECTED)[:, None], data, np.uint8(0))
    return data.ravel()[: raw.size]


def summary(result: xr.Dataset) -> xr.Dataset:
    """Mean over the seeds, with a 95 % interval by Student's t.

    Of the perplexity's logarithm, which is what is averaged over tokens, and of accuracies as
    they are. The interval is that of other bit errors, on the same text.

    Parameters
    ----------
    result : xarray.Dataset
        Of `quality`.

    Returns
    -------
    xarray.Dataset
        Each score with ``<name>_low`` and ``<name>_high``, NaN for one seed; the means of
        ``flipped_bits``, ``wrong_weights`` and ``segments``.
    """
    n = result.sizes["seed"]
    means = {name: result[name].mean("seed") for name in ("flipped_bits", "wrong_weights")}
    means["segments"] = result["segments"].mean("seed")
    # one seed has no spread
    factor = student.ppf((1 + CONFIDENCE) / 2, n - 1) / np.sqrt(n) if n > 1 else np.nan
    for name in (name for name in SCORES if name in result):
        log = name == "perplexity"
        values = xr.DataArray(np.log(result[name])) if log else result[name]
        mean, half = values.mean("seed"), factor * values.std("seed", ddof=1 if n > 1 else 0)
        for suffix, limit in (("", mean), ("_low", mean - half), ("_high", mean + half)):
            means[name + suffix] = xr.DataArray(np.exp(limit)) if log else limit
    return xr.Dataset(means, attrs=result.attrs)


class _Scores:
    """Scores by what the weights are: the same weights are run once.

    Attributes
    ----------
    stored : Score
        Of the weights without errors.
    """

    def __init__(self, model: StoredModel, probe: Callable[[Transformer], Score]) -> None:
        self._model, self._probe = model, probe
        self._known: dict[bytes, Score] = {}
        self.stored = self(model.flash)

    def __call__(self, flash: Bytes) -> Score:
        key = blake2b(flash.data).digest()
        if key not in self._known:
            self._known[key] = self._probe(self._model.transformer(flash))
        return self._known[key]


def _empty(dims: dict[str, list[Any]], axes: dict[str, list[Any]]) -> xr.Dataset:
    shape = [len(values) for values in dims.values()]
    each = {name: (list(dims), np.full(shape, np.nan)) for name in SCORES}
    of_read = [*axes, "seed"]
    reads = [len(dims[name]) for name in of_read]
    counts = {
        "wrong_weights": (list(dims), np.zeros(shape, np.int64)),
        "flipped_bits": (of_read, np.zeros(reads, np.int64)),
        "segments": ([*of_read, "outcome"], np.zeros([*reads, len(_OUTCOMES)], np.int64)),
    }
    return xr.Dataset({**each, **counts}, coords={**dims, "outcome": list(_OUTCOMES)})


def _fill(
    result: xr.Dataset,
    place: tuple[int, ...],
    stored: StoredPages,
    rates: xr.DataArray,
    scores: _Scores,
    seed: int,
    modes: Sequence[Mode],
    uncorrectable: Uncorrectable,
) -> None:
    """One read: its counts, and the score of each mode."""
    raw = read(stored, rates, seed)
    corrected = stored.layout.code.correct(raw.data, raw.parity)
    outcomes = classify(corrected, stored.data)
    result["flipped_bits"].values[place] = raw.flips
    result["segments"].values[place] = [getattr(outcomes, name) for name in _OUTCOMES]
    *index, s = place
    for m, mode in enumerate(modes):
        used = weights_used(raw, corrected, mode, uncorrectable)
        truth = stored.data.ravel()[: stored.size]
        result["wrong_weights"].values[(*index, m, s)] = np.count_nonzero(used != truth)
        score = scores(used)
        for name in SCORES:
            result[name].values[(*index, m, s)] = getattr(score, name)
