"""NASiC as a whole, over any axes of its configuration: speed, energy, area, errors, gains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import xarray as xr

from nandcosim import __version__
from nandcosim.systems.arrays import described
from nandcosim.systems.nasic import currents
from nandcosim.systems.nasic.admissible import admissible, load_losses
from nandcosim.systems.nasic.array_errors import error_statistics
from nandcosim.systems.nasic.config import Config
from nandcosim.systems.nasic.cost import at_ratio, cost, input_dimension
from nandcosim.systems.nasic.digits import over
from nandcosim.systems.nasic.efficiency import gains
from nandcosim.systems.nasic.mapping import place
from nandcosim.systems.nasic.moe import moe_shapes
from nandcosim.tables import load_tables

if TYPE_CHECKING:
    from nandcosim.tables.table import CalibrationTable

__all__ = ["evaluate"]


def evaluate(
    config: Config | None = None,
    tables: Mapping[str, CalibrationTable] | None = None,
    *,
    errors: bool = True,
) -> xr.Dataset:
    """The experts of every model in every configuration; closed forms, all axes at once.

    Parameters
    ----------
    config : Config, optional
        Fields given as tuples are axes of the result; a variable has those it depends on.
    tables : Mapping of str to CalibrationTable, optional
        ``cim_string``, ``cim_string_8`` and ``cam_string`` for errors, ``cim_pulse`` and
        ``wordline`` for time and energy; by default those that ship.
    errors : bool
        Also the errors of an output, which take most of the time: 10,000 points a second,
        where the rest takes a million in some seconds.

    Returns
    -------
    xarray.Dataset
        For one token through the experts of all layers: what `cost.cost` lists, with
        ``token_energy`` the sum of ``energy``; what `mapping.place` lists of cells; of
        `array_errors.error_statistics` ``output_error`` by ``error``, ``output_total`` and
        ``adc_step``; and the gains over Base of `efficiency.gains` as ``gain_...``.

    Raises
    ------
    InputError
        If a model is unknown, a table is missing, or a value lies beyond one.
    """
    config = config or Config()
    given = tables or load_tables()
    beside = _beside_base(config)
    shapes = at_ratio(beside, moe_shapes(config.model))
    measured = _measured(beside)
    rows = input_dimension(beside, measured)
    placed = place(beside, shapes, rows)
    found = cost(beside, shapes, placed, given, measured)
    better = gains(found, placed)
    parts = [
        found.assign(token_energy=found["energy"].sum("component")),
        placed[list(_PLACED)],
        better.rename({name: f"gain_{name}" for name in better.data_vars}),
    ]
    if errors:
        interleaved = placed["interleaved"].max("matrix")
        found = error_statistics(beside, currents.load(given, beside), rows, interleaved)
        of_output = found[["output_error", "output_total", "adc_step"]]
        parts.append(of_output.rename(component="error"))
    texts = {
        str(name): (values.attrs["units"], values.attrs["long_name"])
        for part in parts
        for name, values in part.data_vars.items()
        if "long_name" in values.attrs
    } | _TEXTS
    result = xr.merge(
        parts,
        compat="override",
        join="exact",
        combine_attrs="drop",
    )
    result = result.sel(technique=_asked(config))
    result = described(result.transpose(*config.axes, ..., missing_dims="ignore"), texts)
    result.attrs = {
        "system": "nasic",
        "config": config.model_dump_json(),
        "nandcosim": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "tables": json.dumps({name: given[name].digest for name in _TABLES}),
    }
    return result


_TABLES = ("cim_string", "cim_string_8", "cim_pulse", "wordline")

_PLACED = (
    "row_cycles", "cells_needed", "cells_empty", "cells_cam", "cam_cells", "storage_utilisation",
    "area_efficiency", "planes_needed", "fits",
)  # fmt: skip


def _beside_base(config: Config) -> Config:
    """The configuration with Base on the axis of techniques, for the gains."""
    asked = _asked(config)
    listed = asked if isinstance(asked, list) else [asked]
    whole = ("base", *(name for name in listed if name != "base"))
    return config.model_copy(update={"technique": whole})


def _asked(config: Config) -> str | list[str]:
    value = config.technique
    return list(value) if isinstance(value, tuple) else str(value)


def _measured(config: Config) -> xr.DataArray | None:
    """Input dimension by the accuracy that was measured on a model.

    T1 adds what Base does, on the same cells.
    """
    rules = config.input_rule if isinstance(config.input_rule, tuple) else (config.input_rule,)
    if "measured" not in rules:
        return None
    losses = load_losses()

    def at(point: Config) -> xr.Dataset:
        kind = "base" if point.technique == "t1" else point.technique
        rows = admissible(
            point.array("sigma"), float(point.array("loss_limit")), losses,
            technique=str(kind), adc_bits=float(point.array("adc_bits")),
        )  # fmt: skip
        return rows.to_dataset(name="rows")

    return over(config, ("technique", "adc_bits", "loss_limit"), at)["rows"]


_TEXTS = {
    "token_energy": ("J", "energy of a token's experts"),
    "output_error": ("1", "error of an output over its standard deviation, by cause"),
    "output_total": ("1", "error of an output over its standard deviation"),
}
