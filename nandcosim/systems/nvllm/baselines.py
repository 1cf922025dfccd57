"""The baselines of NVLLM side by side: GPUs with offloaded weights, and SSD-like designs."""

from __future__ import annotations

import xarray as xr

from nandcosim.systems.nvllm import gpu, ssd_like
from nandcosim.systems.nvllm.gpu import GPU_SYSTEMS, GpuFields
from nandcosim.systems.nvllm.ssd_like import SSD_LIKE_SYSTEMS, SsdLikeFields

__all__ = ["NOT_MODELLED", "PATHS", "SYSTEMS", "BaselineFields", "baselines"]

SYSTEMS = (*GPU_SYSTEMS, *SSD_LIKE_SYSTEMS)

#: Ways of the data whose energy is counted, as NVLLM's own (section 4.5).
PATHS = ("nand", "io", "dram")

#: Why values are NaN.
NOT_MODELLED = {
    "prefill": "cambricon_llm, aif, aif_minus: not modelled, as NVLLM section 4.4 has no data on "
    "their prefill",
    "energy": "aif, aif_minus: not modelled, as NVLLM compares energy with Cambricon-LLM alone",
}

_Value = xr.DataArray | float


class BaselineFields(GpuFields, SsdLikeFields):
    """Fields of all baselines."""


def baselines(
    config: BaselineFields, shapes: xr.Dataset, context: _Value, prompt: _Value, output: _Value
) -> xr.Dataset:
    """Speed, latency and energy of every baseline.

    Parameters
    ----------
    config : BaselineFields
    shapes : xarray.Dataset
        ``ffn_weights``, ``attention_weights``, ``head_weights``, ``kv_values``, ``layers``,
        ``heads``, ``head_dim``, along ``model`` or not.
    context : DataArray or float
        Tokens attended to, for `tokens_per_second` and `energy_per_token`.
    prompt, output : DataArray or float
        Tokens of a whole inference.

    Returns
    -------
    xarray.Dataset
        Along ``system``, over the axes of all arguments, NaN where not modelled
        (attribute ``not_modelled``):

        - ``tokens_per_second`` (1/s): decode at `context`;
        - ``time_to_first_token`` (s): prefill of the prompt, whose last token yields it;
        - ``end_to_end`` (s): prefill and `output` decoded tokens, as the paper counts them:
          where streaming is all, the share of prefill is then 1 / (1 + output);
        - ``prefill_share`` (1);
        - ``energy_per_token`` (J) along ``path``: data movement of a decoded token.
    """
    speed = _along_system(
        1 / gpu.decode_time(config, shapes, context),
        1 / ssd_like.decode_time(config, shapes, context),
    )
    prefill = _along_system(gpu.prefill_time(config, shapes, prompt))
    whole = prefill + _along_system(gpu.generation_time(config, shapes, prompt, output))
    energy = _along_system(
        gpu.energy_per_token(config, shapes, context),
        xr.Dataset({"cambricon_llm": ssd_like.cambricon_energy(config, shapes, context)}),
    )
    found = xr.Dataset(
        {
            "tokens_per_second": speed,
            "time_to_first_token": prefill,
            "end_to_end": whole,
            "prefill_share": prefill / whole,
            "energy_per_token": energy.assign_coords(path=list(PATHS)).transpose(..., "path"),
        }
    )
    for name, (unit, meaning, reason) in _MEANING.items():
        found[name].attrs = {"units": unit, "long_name": meaning}
        if reason:
            found[name].attrs["not_modelled"] = NOT_MODELLED[reason]
    return found


def _along_system(*parts: xr.Dataset) -> xr.DataArray:
    """Variables named as systems along ``system``, last; NaN for systems without."""
    joined = xr.merge(parts, join="exact", compat="no_conflicts").to_dataarray("system")
    whole = joined.reindex(system=list(SYSTEMS)).assign_coords(system=list(SYSTEMS))
    return whole.transpose(..., "system").drop_attrs()


_MEANING = {
    "tokens_per_second": ("1/s", "decode speed", ""),
    "time_to_first_token": ("s", "prefill of the prompt", "prefill"),
    "end_to_end": ("s", "prefill and decode", "prefill"),
    "prefill_share": ("1", "share of prefill in the whole time", "prefill"),
    "energy_per_token": ("J", "data movement of a decoded token", "energy"),
}
