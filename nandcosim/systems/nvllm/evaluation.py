"""NVLLM as a whole, over any axes of its configuration: speed, latency, energy, and rivals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from nandcosim import __version__
from nandcosim.systems.arrays import described, maximum
from nandcosim.systems.nvllm import energy
from nandcosim.systems.nvllm.baselines import NOT_MODELLED, baselines
from nandcosim.systems.nvllm.config import Config
from nandcosim.systems.nvllm.ecc import code_sizes, segment_error_rate, uncorrectable_rate
from nandcosim.systems.nvllm.engine import EngineConfig, sweep
from nandcosim.systems.nvllm.engine_bounds import utilisation
from nandcosim.systems.nvllm.inference import decode, generate, rates
from nandcosim.systems.nvllm.models import shapes
from nandcosim.systems.nvllm.placement import place
from nandcosim.systems.nvllm.rber import bit_energy, raw_bit_error_rate, read_time
from nandcosim.systems.nvllm.silicon import silicon

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["evaluate"]


def evaluate(
    config: Config | None = None, tables: Mapping[str, CalibrationTable] | None = None
) -> xr.Dataset:
    """Inference of every model in every configuration; closed forms, all axes at once.

    Parameters
    ----------
    config : Config, optional
        Fields given as tuples are axes of the result; a variable has those it depends on.
    tables : Mapping of str to CalibrationTable, optional
        ``page_read`` for ``rber_source`` ``table`` and ``aged``, ``page_read_cost`` for
        ``page_time="table"``, that and ``wordline`` for ``array_energy="table"``.

    Returns
    -------
    xarray.Dataset
        By ``system``, NVLLM and its rivals, NaN where not modelled:

        - ``tokens_per_second`` (1/s): decode at `context`;
        - ``time_to_first_token``, ``end_to_end`` (s), ``prefill_share``: `prompt` tokens in,
          `output` tokens out;
        - ``energy`` (J) of a decoded token by ``path``: data movement.

        Of NVLLM alone:

        - ``token_time`` (s) of a decoded token by ``stage``, ``busy`` (s) by ``unit``,
          ``flash_share`` of the projections, and ``token_time_unscheduled`` by ``stage``,
          with all of them on the NPU;
        - ``whole_time`` (s) by ``phase`` and ``stage``;
        - ``logic_energy`` (J) of a decoded token by ``unit``, while it works;
        - ``raw_bit_error_rate``, ``segment_error_rate``, ``uncorrectable_rate``;
          ``utilisation`` of the engines, and with `engine_segments` also
          ``utilisation_simulated``; ``page_read_time`` (s), ``energy_per_bit`` (J),
          ``array_bandwidth`` (B/s), ``operations`` (1/s);
        - ``flash``, ``dram``, ``flash_capacity``, ``dram_capacity`` (B) and ``fits``, at the
          largest of `context` and `prompt` + `output`;
        - ``area`` (mm^2), ``power`` (W) by ``unit`` and ``module``; ``parameters``.

    Raises
    ------
    InputError
        If a model is unknown, a table is needed and missing, or asked for beyond its range.
    MissingExtraError
        With `engine_segments`, if Numba is not installed.
    """
    config = config or Config()
    given = tables if tables is not None else {}
    model = shapes(config.model)
    context, prompt, output = (config.array(name) for name in ("context", "prompt", "output"))
    found = _reading(config, given)
    used, parity = found["utilisation"], found["parity_bits"]
    token = decode(config, model, context, used)
    every = generate(config, model, prompt, output, used)
    moved = energy.decode_bytes(config, model, context, token["flash_share"], parity)
    own = xr.Dataset(
        {
            "tokens_per_second": 1 / token["time"].sum("stage"),
            "time_to_first_token": every["time_to_first_token"],
            "end_to_end": every["latency"],
            "prefill_share": every["prefill_share"],
            "energy": energy.movement_energy(moved, config, found["energy_per_bit"]),
        }
    )
    rivals = baselines(config, model, context, prompt, output)
    circuits = silicon(config)
    speeds = rates(config, used)
    if config.engine_segments:
        found["utilisation_simulated"] = _simulated(config, found)
    parts = {
        "parameters": model["parameters"],
        "token_time": token["time"],
        "token_time_unscheduled": decode(_unscheduled(config), model, context, used)["time"],
        "busy": token["busy"],
        "flash_share": token["flash_share"],
        "whole_time": every["time"],
        "logic_energy": energy.logic_energy(circuits["power"].sum("module"), token["busy"]),
        "operations": speeds["operations"],
        "array_bandwidth": _array_bandwidth(config, found["page_read_time"]),
    }
    result = xr.merge(
        [
            _side_by_side(own, rivals),
            xr.Dataset(parts),
            found.drop_vars("parity_bits"),
            _placed(config, model, parity),
            circuits,
        ],
        compat="override",
        join="exact",
        combine_attrs="drop",
    )
    result = described(result.transpose(*config.axes, ..., missing_dims="ignore"), _TEXTS)
    result.attrs = {
        "system": "nvllm",
        "config": config.model_dump_json(),
        "nandcosim": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "not_modelled": json.dumps(NOT_MODELLED),
        "tables": json.dumps({name: given[name].digest for name in _asked(config)}),
    }
    return result


def _asked(config: Config) -> list[str]:
    """Tables that the configuration takes figures from."""
    fields = {
        "page_read": ("rber_source",),
        "page_read_cost": ("page_time", "array_energy"),
        "wordline": ("array_energy",),
    }
    stated = {"given", "stated"}
    return [
        table
        for table, names in fields.items()
        if any(set(np.atleast_1d(getattr(config, name))) - stated for name in names)
    ]


def _reading(config: Config, tables: Mapping[str, CalibrationTable]) -> xr.Dataset:
    """What a page read costs, its errors, and what those leave of the engines' rate."""
    sizes = code_sizes(config)
    rate = raw_bit_error_rate(config, tables)
    time = read_time(config, tables)
    return xr.Dataset(
        {
            "page_read_time": time,
            "energy_per_bit": bit_energy(config, tables),
            "raw_bit_error_rate": rate,
            "parity_bits": sizes["parity_bits"],
            "segment_error_rate": segment_error_rate(rate, sizes["n"]),
            "uncorrectable_rate": uncorrectable_rate(rate, sizes["n"], sizes["t"]),
            "utilisation": utilisation(config, rate, read_time=time),
        }
    )


def _simulated(config: Config, reading: xr.Dataset) -> xr.DataArray:
    """Utilisation cycle by cycle, at every point of the axes that the engines depend on."""
    fields = config.model_dump(include=set(EngineConfig.model_fields))
    runs = sweep(
        EngineConfig(**fields),
        config.engine_segments,
        rber=reading["raw_bit_error_rate"],
        read_time=reading["page_read_time"],
    )
    return runs["utilisation"]


def _array_bandwidth(config: Config, read_time: xr.DataArray) -> xr.DataArray:
    planes = config.array("clusters") * config.array("planes_per_cluster")
    bandwidth: xr.DataArray = planes * config.array("page_bytes") / read_time
    return bandwidth


def _unscheduled(config: Config) -> Config:
    return config.model_copy(update={"kv_schedule": "off"})


def _side_by_side(own: xr.Dataset, rivals: xr.Dataset) -> xr.Dataset:
    """NVLLM before its rivals along ``system``."""
    theirs = rivals.rename(energy_per_token="energy")
    joined = {}
    for name in own.data_vars:
        ours = own[name].expand_dims(system=["nvllm"])
        both = xr.broadcast(ours, theirs[name], exclude=["system"])
        whole = xr.concat(both, dim="system", coords="minimal", compat="override")
        last = [dim for dim in ("system", "path") if dim in whole.dims]
        joined[name] = whole.transpose(..., *last)
    return xr.Dataset(joined)


def _placed(config: Config, model: xr.Dataset, parity_bits: xr.DataArray) -> xr.Dataset:
    longest = maximum(config.array("context"), config.array("prompt") + config.array("output"))
    placed = place(config, model, context=longest, parity_bits=parity_bits)
    kept = placed[["flash", "dram", "flash_capacity", "dram_capacity"]]
    fits = (kept["flash"] <= kept["flash_capacity"]) & (kept["dram"] <= kept["dram_capacity"])
    return kept.assign(fits=fits)


_TEXTS = {
    "tokens_per_second": ("1/s", "tokens decoded a second, at the context"),
    "time_to_first_token": ("s", "prefill of the prompt"),
    "end_to_end": ("s", "prefill of the prompt and decode of the output"),
    "prefill_share": ("1", "share of prefill in the end-to-end latency"),
    "energy": ("J", "data movement of a decoded token"),
    "parameters": ("1", "parameters of the model"),
    "token_time": ("s", "time of a decoded token"),
    "token_time_unscheduled": ("s", "time of a decoded token, projections on the NPU"),
    "busy": ("s", "time in which a unit works for a decoded token"),
    "flash_share": ("1", "share of Q, K, V, O computed in flash"),
    "whole_time": ("s", "time of prompt and output"),
    "logic_energy": ("J", "logic, a decoded token, while it works"),
    "operations": ("1/s", "peak operations of flash and NPU"),
    "array_bandwidth": ("B/s", "pages read from all planes"),
    "page_read_time": ("s", "read of a page"),
    "energy_per_bit": ("J", "array, a bit read"),
    "raw_bit_error_rate": ("1", "raw bit error rate"),
    "segment_error_rate": ("1", "segments with any bit error"),
    "uncorrectable_rate": ("1", "segments with more errors than the code corrects"),
    "utilisation": ("1", "share of cycles in which an engine multiplies"),
    "utilisation_simulated": ("1", "the same, by the engines cycle by cycle"),
    "flash": ("B", "weights and parity in flash"),
    "dram": ("B", "attention weights and KV cache in DRAM"),
    "flash_capacity": ("B", "flash capacity"),
    "dram_capacity": ("B", "DRAM capacity"),
    "fits": ("1", "weights and KV cache fit flash and DRAM"),
    "area": ("mm^2", "area"),
    "power": ("W", "power while busy"),
}
