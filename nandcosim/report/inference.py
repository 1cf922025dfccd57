"""Figures and tables of inference on NVLLM: speed, latency, energy, and where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from nandcosim.report.axes import Axes, along
from nandcosim.report.listing import quantity
from nandcosim.report.style import COLOURS, figure
from nandcosim.systems.nvllm.config import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "AXES",
    "draw_context",
    "draw_energy",
    "draw_stages",
    "draw_throughput",
    "inference_rows",
    "latency_table",
    "part_table",
    "speed_table",
]

_NAMES = {
    "nvllm": "NVLLM",
    "gpu_dram": "GPU-DRAM",
    "gpu_ssd": "GPU-SSD",
    "gpu_hybrid": "GPU-Hybrid",
    "cambricon_llm": "Cambricon-LLM",
    "aif": "AiF",
    "aif_minus": "AiF–",
}

AXES = Axes(Config, ("system", "stage", "unit", "path", "phase", "module"))

#: Colours of the rivals, none of them a blue as NVLLM's.
_RIVALS = [*COLOURS[1:5], COLOURS[6], "#999999"]

#: Bars of NVLLM's configurations at most; more do not fit.
_MOST = 24


def inference_rows(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Plain data of every system and configuration, None where not modelled.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `nandcosim.systems.nvllm.evaluate` returns it.
    """
    rows = []
    needed = ("tokens_per_second", "end_to_end", "energy", "fits")
    for settings, point in AXES.points(dataset, needed):
        for system in point["system"].values.tolist():
            one = point.sel(system=system)
            rows.append(
                {
                    "system": system,
                    **settings,
                    **{name: _plain(one[name]) for name in _PLAIN},
                    "energy": _plain(one["energy"].sum("path", skipna=False)),
                    "fits": bool(point["fits"]) if system == "nvllm" else None,
                }
            )
    return rows


_PLAIN = ("tokens_per_second", "time_to_first_token", "end_to_end", "prefill_share")


def speed_table(dataset: xr.Dataset) -> list[dict[str, str]]:
    """A row a configuration: tokens a second of NVLLM, of its rivals, and NVLLM's over theirs."""
    lines = []
    for settings, point in AXES.points(dataset, ("tokens_per_second", "energy", "fits")):
        speeds = point["tokens_per_second"]
        own = float(speeds.sel(system="nvllm"))
        rivals = {
            _NAMES[
                s
            ]: f"{float(speeds.sel(system=s)):.3g} ({own / float(speeds.sel(system=s)):.3g}x)"
            for s in speeds["system"].values.tolist()
            if s != "nvllm"
        }
        moved = float(point["energy"].sel(system="nvllm").sum("path"))
        lines.append(
            {
                **{name: str(value) for name, value in settings.items()},
                "fits": "yes" if bool(point["fits"]) else "no",
                "NVLLM, tokens/s": f"{own:.4g}",
                **rivals,
                "data moved a token": quantity(moved, "J"),
            }
        )
    return lines


def latency_table(dataset: xr.Dataset) -> list[dict[str, str]]:
    """A row a system and configuration: latency of prompt and output, and prefill's share."""
    lines = []
    for settings, point in AXES.points(dataset, ("end_to_end",)):
        own = float(point["end_to_end"].sel(system="nvllm"))
        for system in point["system"].values.tolist():
            one = point.sel(system=system)
            latency = float(one["end_to_end"])
            if not np.isfinite(latency):
                continue
            lines.append(
                {
                    **{name: str(value) for name, value in settings.items()},
                    "system": _NAMES[system],
                    "first token": quantity(float(one["time_to_first_token"]), "s"),
                    "end to end": quantity(latency, "s"),
                    "over NVLLM's": f"{latency / own:.3g}x",
                    "prefill": f"{100 * float(one['prefill_share']):.3g} %",
                }
            )
    return lines


def part_table(dataset: xr.Dataset) -> list[dict[str, str]]:
    """NVLLM's time of a token by stage, what its units do, and what the errors cost."""
    lines = []
    for settings, point in AXES.points(dataset, ("token_time", "utilisation")):
        time = point["token_time"]
        total = float(time.sum())
        lines.append(
            {
                **{name: str(value) for name, value in settings.items()},
                "token": quantity(total, "s"),
                **{s: quantity(float(time.sel(stage=s)), "s") for s in time["stage"].values},
                "NAND busy": f"{100 * float(point['busy'].sel(unit='nand')) / total:.3g} %",
                "NPU busy": f"{100 * float(point['busy'].sel(unit='npu')) / total:.3g} %",
                "Q, K, V, O in flash": f"{100 * float(point['flash_share']):.3g} %",
                "engines multiply": f"{100 * float(point['utilisation']):.4g} %",
                "segments with errors": f"{100 * float(point['segment_error_rate']):.3g} %",
            }
        )
    return lines


def draw_throughput(dataset: xr.Dataset) -> Figure:
    """Draw tokens a second of every system, a group of bars a model (the paper's Fig. 6)."""
    cut = AXES.cut(dataset, ("model", "clusters"))
    speeds = cut["tokens_per_second"]
    groups = list(along(speeds, "model"))
    bars = [
        (f"NVLLM-{n}C", values.sel(system="nvllm"))
        for n, values in along(speeds, "clusters", Config.model_fields["clusters"].default)
    ]
    rest = speeds.isel(clusters=0) if "clusters" in speeds.dims else speeds
    rivals = [str(s) for s in speeds["system"].values if s != "nvllm"]
    bars += [(_NAMES[s], rest.sel(system=s)) for s in rivals]
    fig, (axes,) = figure(width=9.0, height=4.2)
    width = 0.85 / len(bars)
    for number, (label, values) in enumerate(bars):
        heights = [float(each) for _, each in along(values, "model")]
        places = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
        colour = _shade(number, len(bars) - len(rivals))
        axes.bar(places, heights, width, label=label, color=colour)
    axes.set_yscale("log")
    axes.set_ylabel("tokens a second")
    axes.set_xticks(np.arange(len(groups)), [_model_name(label, dataset) for label, _ in groups])
    axes.grid(visible=False, axis="x")
    fig.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return fig


def draw_context(dataset: xr.Dataset) -> Figure:
    """Draw the time of a token against the context, scheduled and not (Fig. 8(a))."""
    cut = AXES.cut(dataset, ("model", "context"))
    models = list(along(cut["token_time"].sum("stage"), "model"))[: len(COLOURS)]
    plain = dict(along(cut["token_time_unscheduled"].sum("stage"), "model"))
    fig, (axes,) = figure()
    for colour, (label, values) in zip(COLOURS, models, strict=False):
        name = _model_name(label, dataset)
        contexts = values["context"].values
        axes.plot(contexts, 1e3 * plain[label], color=colour, ls="--", label=f"{name}, NPU alone")
        axes.plot(contexts, 1e3 * values, color=colour, marker="o", ms=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(cut["context"].values, [f"{n}" for n in cut["context"].values])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("context (tokens)")
    axes.set_ylabel("time of a token (ms)")
    axes.legend(frameon=False, fontsize=8)
    return fig


def draw_stages(dataset: xr.Dataset) -> Figure:
    """Draw where the time of a token goes, and of prefill and decode; totals at the right."""
    cut = AXES.cut(dataset, ("model", "clusters", "context"))
    rows = list(AXES.points(cut, ("token_time",)))[:_MOST]
    fig, panels = figure(1, 2, width=9.5, height=1.3 + 0.36 * len(rows))
    stages = dataset["stage"].values.tolist()
    times = [point["token_time"].values for _, point in rows]
    _stack(panels[0], np.array(times), stages, 0)
    panels[0].set_xlabel("share of the time of a token")
    phases = [point["whole_time"].sum("stage").values for _, point in rows]
    _stack(panels[1], np.array(phases), dataset["phase"].values.tolist(), len(stages))
    panels[1].set_xlabel("share of the latency, end to end")
    labels = [", ".join(f"{_short(n)}{v}" for n, v in settings.items()) for settings, _ in rows]
    panels[0].set_yticks(np.arange(len(rows)), [each or "NVLLM" for each in labels])
    panels[1].set_yticks(np.arange(len(rows)), [])
    fig.legend(loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    return fig


def draw_energy(dataset: xr.Dataset) -> Figure:
    """Draw the data movement energy of a token by path, beside Cambricon-LLM's (Fig. 8(b))."""
    cut = AXES.cut(dataset, ("model",))
    models = list(along(cut["energy"], "model"))
    fig, (axes,) = figure(width=8.0)
    systems = ("nvllm", "cambricon_llm")
    for shift, system in zip((-0.2, 0.2), systems, strict=True):
        base = np.zeros(len(models))
        for number, path in enumerate(cut["path"].values.tolist()):
            part = np.array([float(e.sel(system=system, path=path)) for _, e in models])
            axes.bar(
                np.arange(len(models)) + shift, 1e3 * part, 0.36, bottom=1e3 * base,
                color=COLOURS[number], hatch="" if system == "nvllm" else "//",
                edgecolor="white", linewidth=0.5, label=f"{_NAMES[system]}, {path}",
            )  # fmt: skip
            base += part
    axes.set_ylabel("data movement of a token (mJ)")
    axes.set_xticks(np.arange(len(models)), [_model_name(label, dataset) for label, _ in models])
    axes.grid(visible=False, axis="x")
    fig.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return fig


def _stack(axes: Any, parts: np.ndarray, labels: list[str], first_colour: int) -> None:
    """Horizontal bars of shares, each total at its end."""
    totals = parts.sum(axis=1)
    left = np.zeros(len(parts))
    for number, label in enumerate(labels):
        share = parts[:, number] / totals
        axes.barh(
            np.arange(len(parts)), share, left=left, height=0.7, label=label,
            color=COLOURS[(first_colour + number) % len(COLOURS)], edgecolor="white",
            linewidth=0.5,
        )  # fmt: skip
        left += share
    for row, total in enumerate(totals):
        axes.text(1.02, row, quantity(float(total), "s"), va="center", fontsize=8)
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _shade(number: int, own: int) -> Any:
    """NVLLM's configurations in shades of one colour, rivals in others."""
    from matplotlib.colors import to_rgba

    if number < own:
        return to_rgba(COLOURS[0], 1.0 - 0.6 * (own - 1 - number) / max(own, 1))
    return _RIVALS[(number - own) % len(_RIVALS)]


def _model_name(label: str, dataset: xr.Dataset) -> str:
    """The label on the axis, or the one model of the evaluation."""
    import json

    return str(label or json.loads(dataset.attrs["config"])["model"])


def _short(axis: str) -> str:
    return "" if axis in ("model", "system") else f"{axis} "


def _plain(value: xr.DataArray) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
