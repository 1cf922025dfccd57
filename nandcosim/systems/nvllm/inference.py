"""Time of inference on NVLLM in closed form, over any axes of configuration and models.

A token passes, layer by layer, through *projection* (Q, K, V, O), *attention* over the KV cache
and *ffn*, and at the end through *head*; *io* moves activations between NPU and flash. One follows
the other, since each needs the last one's result; only the projections may be shared, flash
and NPU working at once. Weights have one byte (INT8)::

    flash       lanes segment_bytes engine_clock utilisation  bytes/s in each cluster
    projection  (NPU) attention_weights / least of npu_engines segment_bytes npu_clock
                and dram_bandwidth dram_efficiency
    attention   a token of context: 2 heads head_dim layers multiply-accumulates, or its
                kv_values kv_bytes from the DRAM, whichever takes longer; and the softmax
    io          link_bytes / link_bandwidth

`utilisation` is the share of cycles in which a lane in flash multiplies (`engine_bounds`).
A token that has c tokens before it attends to c + 1 values: itself too. A *prompt* of n tokens is
n such passes, at contexts 1 .. n, and an *output* of m tokens m passes at n + 1 .. n + m.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems.arrays import Number, ceil, described, maximum, stacked, where
from nandcosim.systems.config import setting
from nandcosim.systems.nand import Count, Positive, Whole
from nandcosim.systems.nvllm.engine import PipelineFields
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.schedule import Course, ScheduleFields, balanced_share, course

__all__ = [
    "STAGES",
    "UNITS",
    "InferenceFields",
    "decode",
    "generate",
    "link_bytes",
    "logit_bytes",
    "prefill",
    "rates",
    "weight_reads",
]

#: Parts that the time of a token is the sum of.
STAGES = ("projection", "attention", "ffn", "head", "io")

#: What computes: the engines in the flash, and the NPU.
UNITS = ("nand", "npu")


class InferenceFields(PipelineFields, HardwareFields, ScheduleFields):
    """Workload, and how it is spread over flash and NPU."""

    context: Whole | tuple[Whole, ...] = setting(
        64, unit="1", meaning="tokens attended to by the token decoded",
        origin="stated: section 4.3",
    )  # fmt: skip
    prompt: Count | tuple[Count, ...] = setting(
        64, unit="1", meaning="tokens of the prompt", origin="stated: section 4.4, 16 to 1024"
    )
    output: Count | tuple[Count, ...] = setting(
        64, unit="1", meaning="tokens generated", origin="stated: section 4.4, 16 to 1024"
    )
    prefill_split: Literal["none", "balanced"] | tuple[Literal["none", "balanced"], ...] = setting(
        "balanced", unit="", meaning="Q, K, V, O of the prompt: on the NPU alone, or shared with "
        "the flash so that both end together",
        origin="stated: section 3.5, by effective compute capabilities",
    )  # fmt: skip
    prefill_reuse: Count | tuple[Count, ...] = setting(
        1, unit="1", meaning="prompt tokens that one read of a weight serves",
        origin="assumed: not stated; the 16 KiB activation buffer of section 4.2 has room for "
        "more vectors than one only where they are short",
    )  # fmt: skip
    head_in_prefill: Literal["last", "all"] | tuple[Literal["last", "all"], ...] = setting(
        "last", unit="", meaning="prompt tokens whose logits are computed",
        origin="assumed: not stated; only the last one's are used",
    )  # fmt: skip
    activation_bytes: Positive | tuple[Positive, ...] = setting(
        1.0, unit="B", meaning="an activation on the link", origin="assumed: INT8 as the weights"
    )
    logit_bytes: Positive | tuple[Positive, ...] = setting(
        2.0, unit="B", meaning="a logit on the link", origin="assumed: BF16"
    )


# ---------------------------------------------------------------- rates


def rates(config: InferenceFields, utilisation: Number = 1.0) -> xr.Dataset:
    """What the hardware does a second.

    Returns
    -------
    xarray.Dataset
        ``operations`` (1/s): peak of all engines, two a multiply-accumulate (section 4.3).
        In B/s: ``array``, pages read at `read_time` in all planes; ``flash``, weights that
        the engines in the flash multiply; ``npu``, weights that the NPU multiplies;
        ``dram``, sequential reads.
    """
    segment = config.array("segment_bytes")
    lanes = config.array("clusters") * config.array("lanes")
    flash = lanes * segment * config.array("engine_clock")
    npu = config.array("npu_engines") * segment * config.array("npu_clock")
    planes = config.array("clusters") * config.array("planes_per_cluster")
    found = xr.Dataset(
        {
            "operations": 2 * (flash + npu),
            "array": planes * config.array("page_bytes") / config.array("read_time"),
            "flash": flash * utilisation,
            "npu": npu,
            "dram": config.array("dram_bandwidth") * config.array("dram_efficiency"),
        }
    )
    return described(
        found,
        {
            "operations": ("1/s", "peak operations"),
            "array": ("B/s", "pages read from all planes"),
            "flash": ("B/s", "weights multiplied in flash"),
            "npu": ("B/s", "weights multiplied by the NPU at most"),
            "dram": ("B/s", "sequential reads of the DRAM"),
        },
    )


@dataclass(frozen=True)
class _Work:
    """Times (s) that a token's stages are made of."""

    flash_projection: xr.DataArray  # all of Q, K, V, O in flash
    npu_multiply: xr.DataArray  # all of them on the NPU
    dram_weights: xr.DataArray  # reading their weights
    attention: xr.DataArray  # a token of context
    ffn: xr.DataArray
    head: xr.DataArray

    @property
    def npu_projection(self) -> xr.DataArray:
        return maximum(self.npu_multiply, self.dram_weights)


def _work(config: InferenceFields, shapes: xr.Dataset, utilisation: Number) -> _Work:
    used = np.asarray(utilisation)
    if not ((used > 0) & (used <= 1)).all():
        raise InputError(
            f"nvllm: utilisation from {used.min():g} to {used.max():g}, allowed: above 0, up to 1"
        )
    rate = rates(config, utilisation)
    projections = shapes["attention_weights"]
    scores = shapes["heads"] * shapes["layers"]
    multiply = 2 * scores * shapes["head_dim"] / rate["npu"]
    read = shapes["kv_values"] * config.array("kv_bytes") / rate["dram"]
    softmax = scores * config.array("softmax_cycles") / config.array("npu_clock")
    return _Work(
        flash_projection=projections / rate["flash"],
        npu_multiply=projections / rate["npu"],
        dram_weights=projections / rate["dram"],
        attention=maximum(multiply, read) + softmax,
        ffn=shapes["ffn_weights"] / rate["flash"],
        head=shapes["head_weights"] / rate["flash"],
    )


def link_bytes(
    config: InferenceFields, shapes: xr.Dataset, share: Number, split: xr.DataArray
) -> xr.DataArray:
    """Bytes between NPU and flash for the layers of a token, without its logits.

    In each layer the input of the FFN goes to the flash and its output comes back. Where the
    projections are shared, so go the inputs of Q, K, V and of O, and the flash's share of
    their results comes back.

    Parameters
    ----------
    config : InferenceFields
    shapes : xarray.Dataset
    share : DataArray or float
        Share of the projections that the flash computes.
    split : bool DataArray
        Whether projections may be shared.
    """
    hidden, layers = shapes["hidden"], shapes["layers"]
    results = share * shapes["attention_weights"] / hidden
    values = 2 * layers * hidden + where(split, 2 * layers * hidden, 0) + results
    return values * config.array("activation_bytes")


# ---------------------------------------------------------------- decode


def decode(
    config: InferenceFields,
    shapes: xr.Dataset,
    context: Number,
    utilisation: Number,
    *,
    start: Number = 0,
) -> xr.Dataset:
    """Time of one generated token.

    Parameters
    ----------
    config : InferenceFields
        Its own `context` is not read.
    shapes : xarray.Dataset
        From `models.shapes`.
    context : DataArray or float
        Tokens attended to, the token itself among them.
    utilisation : DataArray or float
        Share of cycles in which a lane in the flash multiplies, above 0 up to 1.
    start : DataArray or float
        Context when decoding began, with all projections on the NPU: length of the prompt.

    Returns
    -------
    xarray.Dataset
        ``time`` (stage; s), sums to the time of the token. ``busy`` (unit; s), where ``npu``
        waits for its DRAM too. ``flash_share``, the share of the projections done in flash.

    Raises
    ------
    InputError
        If the utilisation is out of range, or as `schedule.course`.
    """
    work = _work(config, shapes, utilisation)
    policy = config.array("kv_schedule")
    share = balanced_share(work.npu_projection, work.flash_projection)
    share = where(policy == "balanced", share, 0.0)
    if _any(policy == "algorithm"):
        passes = maximum(context - start - 1, 0)
        emptied = _course(config, shapes, work).share(passes)
        share = where(policy == "algorithm", emptied, share)
    on_npu, in_flash = (1 - share) * work.npu_projection, share * work.flash_projection
    attention = context * work.attention
    sent = link_bytes(config, shapes, share, policy != "off") + logit_bytes(config, shapes)
    time = {
        "projection": maximum(on_npu, in_flash),
        "attention": attention,
        "ffn": work.ffn,
        "head": work.head,
        "io": sent / config.array("link_bandwidth"),
    }
    busy = {"nand": in_flash + work.ffn + work.head, "npu": on_npu + attention}
    return _result(time, busy, share)


def prefill(
    config: InferenceFields, shapes: xr.Dataset, prompt: Number, utilisation: Number
) -> xr.Dataset:
    """Time of a whole prompt, until the logits of its last token are there.

    Each token costs the same dot products, one segment an engine and cycle, so several tokens
    at once are not faster; `prefill_reuse` saves reads only.

    Parameters
    ----------
    config, shapes, utilisation : see `decode`
        `prompt` of `config` is not read.
    prompt : DataArray or float
        Tokens, n; their attention is that to n (n + 1) / 2 tokens of context.

    Returns
    -------
    xarray.Dataset
        As of `decode`, for the prompt.

    Raises
    ------
    InputError
        If the utilisation is out of range.
    """
    work = _work(config, shapes, utilisation)
    split = config.array("prefill_split") == "balanced"
    npu = maximum(prompt * work.npu_multiply, weight_reads(config, prompt) * work.dram_weights)
    flash = prompt * work.flash_projection
    share = where(split, balanced_share(npu, flash), 0.0)
    attention = prompt * (prompt + 1) / 2 * work.attention
    heads = where(config.array("head_in_prefill") == "all", prompt, 1)
    sent = prompt * link_bytes(config, shapes, share, split) + heads * logit_bytes(config, shapes)
    time = {
        "projection": (1 - share) * npu,  # the flash takes as long, or has no share
        "attention": attention,
        "ffn": prompt * work.ffn,
        "head": heads * work.head,
        "io": sent / config.array("link_bandwidth"),
    }
    nand = share * flash + time["ffn"] + time["head"]
    return _result(time, {"nand": nand, "npu": (1 - share) * npu + attention}, share)


def weight_reads(config: InferenceFields, prompt: Number) -> xr.DataArray:
    """Times that each weight is read for a prompt, ceil(n / `prefill_reuse`)."""
    return ceil(prompt / config.array("prefill_reuse"))


def generate(
    config: InferenceFields,
    shapes: xr.Dataset,
    prompt: Number,
    output: Number,
    utilisation: Number,
) -> xr.Dataset:
    """Time of a prompt and all tokens generated after it; exact sums of `decode`.

    Parameters
    ----------
    config, shapes, utilisation : see `decode`
    prompt, output : DataArray or float
        Tokens, n and m.

    Returns
    -------
    xarray.Dataset
        ``time`` (phase, stage; s) and ``busy`` (phase, unit; s), over the phases ``prefill``
        and ``decode``; ``flash_share`` (phase), the mean. ``latency`` (s), end to end;
        ``time_to_first_token`` (s), the prefill; ``prefill_share`` of the latency;
        ``tokens_per_second``, of the decode phase.

    Raises
    ------
    InputError
        As `decode`.
    """
    first = prefill(config, shapes, prompt, utilisation)
    then = _decode_all(config, shapes, prompt, output, utilisation)
    phases = xr.Dataset(
        {name: _by_phase(first[name], then[name]) for name in ("time", "busy", "flash_share")}
    )
    spent = phases["time"].sum("stage")
    in_prefill = spent.sel(phase="prefill", drop=True)
    in_decode = spent.sel(phase="decode", drop=True)
    latency = in_prefill + in_decode
    found = phases.assign(
        latency=latency,
        time_to_first_token=in_prefill,
        prefill_share=in_prefill / latency,
        tokens_per_second=output / in_decode,
    )
    return described(found, _TEXTS)


def _decode_all(
    config: InferenceFields,
    shapes: xr.Dataset,
    prompt: Number,
    output: Number,
    utilisation: Number,
) -> xr.Dataset:
    """Sums of `decode` over contexts prompt + 1 .. prompt + output, and its mean share."""
    work = _work(config, shapes, utilisation)
    npu, flash = work.npu_projection, work.flash_projection
    policy = config.array("kv_schedule")
    balanced = output * balanced_share(npu, flash)
    shares = where(policy == "balanced", balanced, 0.0)
    projection = where(policy == "balanced", balanced * flash, output * npu)
    if _any(policy == "algorithm"):
        spent, emptied = _course(config, shapes, work).totals(output, npu, flash)
        shares = where(policy == "algorithm", emptied, shares)
        projection = where(policy == "algorithm", spent, projection)
    attention = (prompt * output + output * (output + 1) / 2) * work.attention
    sent = link_bytes(config, shapes, shares / output, policy != "off") + logit_bytes(
        config, shapes
    )
    time = {
        "projection": projection,
        "attention": attention,
        "ffn": output * work.ffn,
        "head": output * work.head,
        "io": output * sent / config.array("link_bandwidth"),
    }
    nand = shares * flash + time["ffn"] + time["head"]
    return _result(
        time, {"nand": nand, "npu": (output - shares) * npu + attention}, shares / output
    )


# ---------------------------------------------------------------- helpers

_TEXTS = {
    "time": ("s", "time by stage"),
    "busy": ("s", "time in which a unit works"),
    "flash_share": ("1", "share of Q, K, V, O computed in flash"),
    "latency": ("s", "end to end"),
    "time_to_first_token": ("s", "prefill"),
    "prefill_share": ("1", "prefill over end to end"),
    "tokens_per_second": ("1/s", "tokens generated a second of decode"),
}


def _course(config: InferenceFields, shapes: xr.Dataset, work: _Work) -> Course:
    """Algorithm 2 with a column of `hidden` bytes."""
    hidden = shapes["hidden"]
    columns = shapes["attention_weights"] / hidden
    clock = config.array("npu_clock")
    return course(
        config,
        growth=work.attention * clock,
        npu_cycles_per_column=work.npu_projection / columns * clock,
        column_bytes=hidden,
        page_buffer_bytes=config.array("planes_per_cluster") * config.array("page_bytes"),
        columns=columns,
        layers=shapes["layers"],
    )


def logit_bytes(config: InferenceFields, shapes: xr.Dataset) -> xr.DataArray:
    """Bytes of a token's logits and of the head's input."""
    hidden = shapes["hidden"] * config.array("activation_bytes")
    return hidden + shapes["vocab"] * config.array("logit_bytes")


def _result(
    time: Mapping[str, xr.DataArray], busy: Mapping[str, xr.DataArray], share: xr.DataArray
) -> xr.Dataset:
    found = xr.Dataset(
        {"time": stacked(time, "stage"), "busy": stacked(busy, "unit"), "flash_share": share}
    )
    return described(found, _TEXTS)


def _by_phase(prefill: xr.DataArray, decode: xr.DataArray) -> xr.DataArray:
    both = stacked({"prefill": prefill, "decode": decode}, "phase")
    return both.transpose(..., "phase", *(d for d in ("stage", "unit") if d in both.dims))


def _any(condition: xr.DataArray) -> bool:
    return bool(condition.any())
