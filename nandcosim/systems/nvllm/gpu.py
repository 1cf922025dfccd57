"""Out-of-core inference on a GPU: weights stream in from host DRAM, an SSD, or both.

The baselines of NVLLM section 4.1, run there with FlexGen on an A800. A layer's weights are
brought to the GPU, used, and dropped, so that a decoded token takes one pass over all weights,
and so does the whole prompt in prefill; the KV cache stays on the GPU. Closed forms, a Dataset
with one variable a system:

============== ======================= =======================
system         FFN and output head     attention projections
============== ======================= =======================
``gpu_dram``   host DRAM               host DRAM
``gpu_ssd``    SSD                     SSD
``gpu_hybrid`` SSD                     host DRAM
============== ======================= =======================
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from nandcosim.systems.config import setting
from nandcosim.systems.nand import Positive
from nandcosim.systems.nvllm.hardware import DramFields

__all__ = [
    "GPU_SYSTEMS",
    "GpuFields",
    "decode_time",
    "energy_per_token",
    "generation_time",
    "prefill_time",
    "resident",
    "stream_rates",
    "stream_time",
    "weight_bytes",
]

GPU_SYSTEMS = ("gpu_dram", "gpu_ssd", "gpu_hybrid")

Rates = Literal["sourced", "calibrated"]
Pieces = Literal["serial", "overlapped"]
_NotNegative = Annotated[float, Field(ge=0.0)]
_Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
_Value = xr.DataArray | float


class GpuFields(DramFields):
    """Fields of the GPU baselines; of `DramFields` they use `kv_bytes` alone."""

    gpu_rates: Rates | tuple[Rates, ...] = setting(
        "sourced", unit="", meaning="rates at which weights stream in: public figures of such "
        "links, or those that the paper's speedups imply",
        origin="assumed: the paper's own rates are not stated",
    )  # fmt: skip
    pcie_bandwidth: Positive | tuple[Positive, ...] = setting(
        24.8e9, unit="B/s", meaning="host DRAM to GPU, with gpu_rates=sourced",
        origin="sourced: nvbandwidth on A100 80GB, PCIe 4.0 x16 (NVIDIA forum 352186); its peak "
        "is 31.5 GB/s",
    )  # fmt: skip
    ssd_bandwidth: Positive | tuple[Positive, ...] = setting(
        6.8e9, unit="B/s", meaning="SSD to host DRAM, with gpu_rates=sourced",
        origin="sourced: sequential reads of a PCIe 4.0 x4 NVMe drive (Micron 7450 data sheet); "
        "section 4.3 has 8 GB/s as the link's limit",
    )  # fmt: skip
    ssd_staging: Pieces | tuple[Pieces, ...] = setting(
        "serial", unit="", meaning="a weight's way from SSD to host and from host to GPU, with "
        "gpu_rates=sourced: one after the other, or overlapped",
        origin="sourced: FlexGen's cost model adds the two",
    )  # fmt: skip
    ssd_layer_overhead: _NotNegative | tuple[_NotNegative, ...] = setting(
        0.0, unit="s", meaning="fixed time of a layer's weights from the SSD, with "
        "gpu_rates=sourced",
        origin="assumed: none",
    )  # fmt: skip
    calibrated_dram_rate: Positive | tuple[Positive, ...] = setting(
        21.1e9, unit="B/s", meaning="host DRAM to GPU, end to end, with gpu_rates=calibrated",
        origin="calibrated: to N3, 2.7 times the four latencies of NVLLM-16C (geometric mean)",
    )  # fmt: skip
    calibrated_ssd_rate: Positive | tuple[Positive, ...] = setting(
        3.78e9, unit="B/s", meaning="SSD to GPU, end to end, with gpu_rates=calibrated",
        origin="calibrated: to N1, 37.9 on OPT-1.3B and 22.4 on OPT-30B over 8 clusters",
    )  # fmt: skip
    calibrated_layer_overhead: _NotNegative | tuple[_NotNegative, ...] = setting(
        11.7e-3, unit="s", meaning="fixed time of a layer's weights from the SSD, with "
        "gpu_rates=calibrated",
        origin="calibrated: to N1, together with calibrated_ssd_rate",
    )  # fmt: skip
    hybrid_pieces: Pieces | tuple[Pieces, ...] = setting(
        "serial", unit="", meaning="gpu_hybrid: a layer's pieces from SSD and DRAM come one after "
        "the other, or overlapped",
        origin="assumed: not stated; FlexGen's cost model adds them",
    )  # fmt: skip
    gpu_overlap: Pieces | tuple[Pieces, ...] = setting(
        "overlapped", unit="", meaning="the GPU works while the next weights stream in, or after",
        origin="sourced: FlexGen's schedule loads the next layer while it computes this one",
    )  # fmt: skip
    gpu_weight_bytes: Positive | tuple[Positive, ...] = setting(
        1.0, unit="B", meaning="a weight", origin="stated: Table 1, 8 bit"
    )
    gpu_memory: Positive | tuple[Positive, ...] = setting(
        80e9, unit="B", meaning="memory of the GPU", origin="stated: Table 1, 80 GB"
    )
    hbm_bandwidth: Positive | tuple[Positive, ...] = setting(
        2039e9, unit="B/s", meaning="memory of the GPU, peak",
        origin="sourced: A100 80GB data sheet, whose memory the A800 has",
    )  # fmt: skip
    gpu_ops: Positive | tuple[Positive, ...] = setting(
        624e12, unit="1/s", meaning="INT8 operations a second, peak",
        origin="stated: section 4.3; FP16 has half of them",
    )  # fmt: skip
    gpu_efficiency: _Fraction | tuple[_Fraction, ...] = setting(
        0.5, unit="1", meaning="share of the peak that matrix products reach",
        origin="assumed: not stated",
    )  # fmt: skip
    ssd_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        2.25e-12, unit="J", meaning="array of the SSD, a bit read",
        origin="sourced: D-NOVA Table 1, 294.9 nJ a page, if the page is 16 KiB",
    )  # fmt: skip
    pcie_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        6e-12, unit="J", meaning="a PCIe link, a bit",
        origin="assumed: not stated; middle of 5 to 7 pJ, unverified",
    )  # fmt: skip
    host_dram_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        18e-12, unit="J", meaning="host DRAM, a bit read or written",
        origin="assumed: not stated; DDR4 15 to 20 pJ, unverified",
    )  # fmt: skip
    hbm_energy: _NotNegative | tuple[_NotNegative, ...] = setting(
        3.9e-12, unit="J", meaning="memory of the GPU, a bit read or written",
        origin="sourced: HBM2 of O'Connor et al., MICRO 2017",
    )  # fmt: skip


# ---------------------------------------------------------------- weights


def weight_bytes(config: GpuFields, shapes: xr.Dataset) -> xr.DataArray:
    """Bytes of the weights that a pass streams: FFN, attention projections and head."""
    flash, attention = _pieces(config, shapes)
    return flash + attention


def stream_rates(config: GpuFields) -> xr.Dataset:
    """How weights come to the GPU, all the way.

    Returns
    -------
    xarray.Dataset
        ``dram`` and ``ssd``, from where they come (B/s); ``ssd_layer``, the fixed time of a
        layer from the SSD (s).
    """
    pcie, ssd = config.array("pcie_bandwidth"), config.array("ssd_bandwidth")
    staged = (1 / (1 / ssd + 1 / pcie)).where(
        config.array("ssd_staging") == "serial", np.minimum(ssd, pcie)
    )
    found = xr.Dataset(
        {"dram": pcie, "ssd": staged, "ssd_layer": config.array("ssd_layer_overhead")}
    )
    implied = xr.Dataset(
        {
            "dram": config.array("calibrated_dram_rate"),
            "ssd": config.array("calibrated_ssd_rate"),
            "ssd_layer": config.array("calibrated_layer_overhead"),
        }
    )
    return found.where(config.array("gpu_rates") == "sourced", implied)


def stream_time(config: GpuFields, shapes: xr.Dataset) -> xr.Dataset:
    """Time to bring all weights to the GPU once (s)."""
    rates = stream_rates(config)
    flash, attention = _pieces(config, shapes)
    fixed = shapes["layers"] * rates["ssd_layer"]
    from_ssd, from_dram = flash / rates["ssd"] + fixed, attention / rates["dram"]
    return xr.Dataset(
        {
            "gpu_dram": (flash + attention) / rates["dram"],
            "gpu_ssd": (flash + attention) / rates["ssd"] + fixed,
            "gpu_hybrid": (from_ssd + from_dram).where(
                config.array("hybrid_pieces") == "serial", np.maximum(from_ssd, from_dram)
            ),
        }
    )


def _pieces(config: GpuFields, shapes: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Bytes of FFN and head, and of the attention projections."""
    size = config.array("gpu_weight_bytes")
    flash = size * (shapes["ffn_weights"] + shapes["head_weights"])
    return flash, size * shapes["attention_weights"]


# ---------------------------------------------------------------- time


def decode_time(config: GpuFields, shapes: xr.Dataset, context: _Value) -> xr.Dataset:
    """Time of one decoded token (s).

    The stream of all weights and, beside or after it (`gpu_overlap`), the GPU's own work:
    weights and KV cache out of its memory, then two operations a weight and four a
    component of every head and cached token, none of these overlapped.

    Parameters
    ----------
    config : GpuFields
    shapes : xarray.Dataset
        ``ffn_weights``, ``attention_weights``, ``head_weights``, ``kv_values``, ``layers``,
        ``heads``, ``head_dim``, along ``model`` or not.
    context : DataArray or float
        Tokens attended to.

    Returns
    -------
    xarray.Dataset
        One variable a system, over the axes of all three.
    """
    return _paced(config, shapes, _token_work(config, shapes, context))


def prefill_time(config: GpuFields, shapes: xr.Dataset, prompt: _Value) -> xr.Dataset:
    """Time of a prompt of so many tokens (s), at once: one stream of all weights.

    The GPU's work has the operations of every token, the i-th at context i.
    Other parameters and the result as `decode_time`.
    """
    pairs = prompt * (prompt + 1) / 2
    size = weight_bytes(config, shapes)
    work = size / config.array("hbm_bandwidth") + _operations_time(
        config, shapes, tokens=prompt, pairs=pairs
    )
    return _paced(config, shapes, work)


def generation_time(
    config: GpuFields, shapes: xr.Dataset, prompt: _Value, output: _Value
) -> xr.Dataset:
    """Time of `output` decoded tokens (s), at contexts prompt + 1 .. prompt + output.

    The exact sum of `decode_time`. Other parameters and the result as there.
    """
    stream = stream_time(config, shapes)
    first = _token_work(config, shapes, prompt + 1.0)
    growth = _token_work(config, shapes, prompt + 2.0) - first
    serial = output * (stream + first) + growth * _triangle(output)
    overlapped = xr.Dataset(
        {
            name: _sum_of_larger(waiting, first, growth, xr.DataArray(output))
            for name, waiting in stream.items()
        }
    )
    return serial.where(config.array("gpu_overlap") == "serial", overlapped)


def resident(config: GpuFields, shapes: xr.Dataset, context: _Value) -> xr.Dataset:
    """What the same GPU does with the weights in its own memory.

    Returns
    -------
    xarray.Dataset
        ``fits``: whether weights and KV cache do; ``time`` of a decoded token if so (s).
    """
    needed = weight_bytes(config, shapes) + _kv_bytes(config, shapes) * context
    found = xr.Dataset(
        {
            "fits": needed <= config.array("gpu_memory"),
            "time": _token_work(config, shapes, context),
        }
    )
    found["fits"].attrs = {"units": "1", "long_name": "weights and KV cache fit the GPU"}
    found["time"].attrs = {"units": "s", "long_name": "decoded token, weights on the GPU"}
    return found


def _paced(config: GpuFields, shapes: xr.Dataset, work: xr.DataArray) -> xr.Dataset:
    """A pass: the stream of weights and the GPU's work, overlapped or not."""
    stream = stream_time(config, shapes)
    serial = config.array("gpu_overlap") == "serial"
    return (stream + work).where(serial, np.maximum(stream, work))


def _token_work(config: GpuFields, shapes: xr.Dataset, context: _Value) -> xr.DataArray:
    """The GPU's own time for one token (s), linear in `context`."""
    read = weight_bytes(config, shapes) + _kv_bytes(config, shapes) * context
    return read / config.array("hbm_bandwidth") + _operations_time(
        config, shapes, tokens=1.0, pairs=context
    )


def _operations_time(
    config: GpuFields, shapes: xr.Dataset, *, tokens: _Value, pairs: _Value
) -> xr.DataArray:
    """Operations of so many tokens, and of so many pairs of a token and a cached one (s)."""
    weights = shapes["ffn_weights"] + shapes["attention_weights"] + shapes["head_weights"]
    of_pair = 4 * shapes["layers"] * shapes["heads"] * shapes["head_dim"]
    rate = config.array("gpu_ops") * config.array("gpu_efficiency")
    return (2 * weights * tokens + of_pair * pairs) / rate


def _kv_bytes(config: GpuFields, shapes: xr.Dataset) -> xr.DataArray:
    return shapes["kv_values"] * config.array("kv_bytes")


def _triangle(n: _Value) -> _Value:
    """0 + 1 + ... + (n - 1)."""
    return n * (n - 1) / 2


def _sum_of_larger(
    level: xr.DataArray, first: xr.DataArray, growth: xr.DataArray, n: xr.DataArray
) -> xr.DataArray:
    """Sum of max(level, first + k growth) over k = 0 .. n - 1, growth > 0."""
    steps = (level - first) / growth
    terms: xr.DataArray = xr.apply_ufunc(np.ceil, steps).clip(min=0.0)
    below = terms.where(terms < n, n)  # terms that are the level
    above = (n - below) * first + growth * (_triangle(n) - _triangle(below))
    return below * level + above


# ---------------------------------------------------------------- energy


def energy_per_token(config: GpuFields, shapes: xr.Dataset, context: _Value) -> xr.Dataset:
    """Energy of the data that a decoded token moves (J), along ``path``.

    ``nand``: array of the SSD. ``io``: PCIe to the GPU, and for the SSD's share to the host
    before. ``dram``: host DRAM (read; written too for the SSD's share) and the GPU's
    memory (weights written and read, KV cache read and a token of it written). Power of GPU,
    host and drive electronics is not in it.

    Parameters and systems as `decode_time`.
    """
    flash, attention = _pieces(config, shapes)
    cached = _kv_bytes(config, shapes) * (context + 1.0)
    none = xr.zeros_like(flash)
    from_ssd = {"gpu_dram": none, "gpu_ssd": flash + attention, "gpu_hybrid": flash}
    on_gpu = (2 * (flash + attention) + cached) * config.array("hbm_energy")
    found = {}
    for system, staged in from_ssd.items():
        paths = {
            "nand": staged * config.array("ssd_energy"),
            "io": (flash + attention + staged) * config.array("pcie_energy"),
            "dram": (flash + attention + staged) * config.array("host_dram_energy") + on_gpu,
        }
        found[system] = 8 * xr.Dataset(paths).to_dataarray("path")
    return xr.Dataset(found)
