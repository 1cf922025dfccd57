"""Energy of inference on NVLLM: bytes moved on each path, and the logic apart (section 4.5).

Data move on three paths: out of the arrays (*nand*), between flash and NPU (*io*), and between NPU
and DRAM (*dram*). Bytes are those of `decode` and `prefill` of the module `inference`; every byte
costs eight bits of its path::

    nand  (FFN, head and the flash's share of Q, K, V, O) (1 + parity bits / segment bits)
    io    activations of the layers, and logits
    dram  the NPU's share of Q, K, V, O, the KV cache read, and a token's K and V written

Weights stay nowhere: each token reads them again, but for `prefill_reuse`. The padding of pages
and columns is left out, and so is what the device draws while it idles.
"""

from __future__ import annotations

import xarray as xr

from nandcosim.systems.arrays import Number, stacked, where
from nandcosim.systems.nvllm.inference import InferenceFields, link_bytes, logit_bytes, weight_reads

__all__ = ["PATHS", "decode_bytes", "logic_energy", "movement_energy", "prefill_bytes"]

#: Ways that data move.
PATHS = ("nand", "io", "dram")


def decode_bytes(
    config: InferenceFields,
    shapes: xr.Dataset,
    context: Number,
    flash_share: Number,
    parity_bits: Number,
) -> xr.DataArray:
    """Bytes that a generated token moves.

    Linear in context and share: those of all tokens of an output are their number times the
    bytes at the mean context and the mean share, which `inference.generate` has.

    Parameters
    ----------
    config : InferenceFields
        Its own `context` is not read.
    shapes : xarray.Dataset
        From `models.shapes`.
    context : DataArray or float
        Tokens attended to.
    flash_share : DataArray or float
        Share of Q, K, V and O that the flash computes.
    parity_bits : DataArray or float
        Parity of a segment.

    Returns
    -------
    xarray.DataArray
        Over the axes and ``path`` (B).
    """
    attention = shapes["attention_weights"]
    in_flash = shapes["ffn_weights"] + shapes["head_weights"] + flash_share * attention
    cache = shapes["kv_values"] * config.array("kv_bytes")
    split = config.array("kv_schedule") != "off"
    return _by_path(
        nand=in_flash * _with_parity(config, parity_bits),
        io=link_bytes(config, shapes, flash_share, split) + logit_bytes(config, shapes),
        dram=(1 - flash_share) * attention + (context + 1) * cache,
    )


def prefill_bytes(
    config: InferenceFields,
    shapes: xr.Dataset,
    prompt: Number,
    flash_share: Number,
    parity_bits: Number,
) -> xr.DataArray:
    """Bytes that a whole prompt moves; parameters as `decode_bytes`.

    One read of a weight serves `prefill_reuse` tokens.
    """
    reads = weight_reads(config, prompt)
    attention = shapes["attention_weights"]
    every = config.array("head_in_prefill") == "all"
    head = shapes["head_weights"] * where(every, reads, 1)
    logits = where(every, prompt, 1)
    in_flash = reads * (shapes["ffn_weights"] + flash_share * attention) + head
    cache = shapes["kv_values"] * config.array("kv_bytes")
    split = config.array("prefill_split") != "none"
    layers = link_bytes(config, shapes, flash_share, split)
    return _by_path(
        nand=in_flash * _with_parity(config, parity_bits),
        io=prompt * layers + logits * logit_bytes(config, shapes),
        dram=reads * (1 - flash_share) * attention + (prompt * (prompt + 1) / 2 + prompt) * cache,
    )


def movement_energy(
    moved: xr.DataArray, config: InferenceFields, bit_energy: Number
) -> xr.DataArray:
    """Energy of moving data (J) along ``path``.

    Parameters
    ----------
    moved : DataArray (..., path)
        Bytes.
    config : InferenceFields
        `link_energy` and `dram_energy`.
    bit_energy : DataArray or float
        A bit read from the arrays (J), as of `rber.page_cost`.
    """
    cost = _by_path(
        nand=xr.DataArray(bit_energy),
        io=config.array("link_energy"),
        dram=config.array("dram_energy"),
    )
    found = 8 * moved * cost
    return found.assign_attrs(units="J", long_name="energy of moving data")


def logic_energy(power: xr.DataArray, time: Number) -> xr.DataArray:
    """Energy of the logic (J): power of each unit (W; unit) times a time (s).

    With ``busy`` of `inference.decode` a unit that waits draws nothing; with the time of the
    whole token it is never gated.
    """
    found: xr.DataArray = power * time
    return found.assign_attrs(units="J", long_name="energy of the logic")


def _with_parity(config: InferenceFields, parity_bits: Number) -> xr.DataArray:
    """Bytes read for a byte of weights."""
    return 1 + parity_bits / (8 * config.array("segment_bytes"))


def _by_path(nand: xr.DataArray, io: xr.DataArray, dram: xr.DataArray) -> xr.DataArray:
    found = stacked(dict(zip(PATHS, (nand, io, dram), strict=True)), "path")
    return found.assign_attrs(units="B", long_name="bytes moved")
