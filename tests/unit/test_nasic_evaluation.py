"""NASiC as a whole: axes, sums, gains, and the page."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.report.experts import expert_rows
from nandcosim.report.nasic import nasic_sections
from nandcosim.systems.nasic import Config, evaluate
from nandcosim.tables import load_tables

#: Fields whose default leaves no room for its double, or that mean something together.
VALUES: dict[str, tuple[Any, ...]] = {
    "model": ("olmoe", "qwen3-30b-a3b"),
    "states": (3, 4),
    "cam_bits": (2, 3),
    "sigma": (0.1, 0.15),
    "strings": (4,),
    "input_levels": (2, 4),
    "tau_read": (2e-6, 6e-6),
    "cells": (64, 128),
    "cam_layers": ("", "2+2"),
    "ratio": (0.0, 0.125),
    "input_rule": ("paper", "given"),
    "loss_limit": (0.01,),
}


def two_values(name: str) -> tuple[Any, ...]:
    """Two allowed values of a field, one where there is no other."""
    field = Config.model_fields[name]
    if name in VALUES:
        return VALUES[name]
    if isinstance(field.default, str):
        choices = (a for a in get_args(field.annotation) if get_origin(a) is not tuple)
        return next(get_args(choice) for choice in choices if get_origin(choice) is not None)[:2]
    return (field.default, 2 * field.default or 1)


@pytest.fixture(scope="module")
def tables() -> Any:
    return load_tables()


@pytest.fixture(scope="module")
def found(tables: Any) -> xr.Dataset:
    return evaluate(
        Config(technique=("base", "t1", "t1t2", "t1t2t3"), sigma=(0.05, 0.1, 0.15)), tables
    )


AXES = list(Config.model_fields)


@pytest.mark.parametrize("names", [AXES[n : n + 6] for n in range(0, len(AXES), 6)])
def test_every_field_may_be_an_axis(names: list[str], tables: Any) -> None:
    """And a point of the whole is what that point alone gives."""
    axes = {name: two_values(name) for name in names}
    whole = evaluate(Config(**axes), tables)
    last = {name: values[-1] for name, values in axes.items()}
    alone = evaluate(Config(**last), tables)
    for name in ("token_time", "token_energy", "area", "output_total", "gain_speed"):
        cut = {axis: last[axis] for axis in last if axis in whole[name].dims}
        expected = alone[name].squeeze(drop=True).reset_coords(drop=True)
        here = whole[name].sel(cut, drop=True).squeeze(drop=True).reset_coords(drop=True)
        assert np.allclose(here, expected, rtol=1e-9), name


def test_parts_sum_to_the_whole(found: xr.Dataset) -> None:
    assert np.allclose(found["energy"].sum("component"), found["token_energy"])
    squares = (found["output_error"] ** 2).sum("error")
    assert np.allclose(squares**0.5, found["output_total"])


def test_gains_are_over_base(found: xr.Dataset, tables: Any) -> None:
    base = found.sel(technique="base")
    for name in ("gain_speed", "gain_energy", "gain_array_speed"):
        assert (base[name] == 1).all()
    alone = evaluate(Config(technique="t1t2", sigma=0.1), tables)
    beside = found.sel(technique="t1t2", sigma=0.1)
    assert float(alone["gain_speed"]) == pytest.approx(float(beside["gain_speed"]))


def test_more_spread_is_never_better(found: xr.Dataset) -> None:
    assert (found["input_dimension"].diff("sigma") <= 0).all()
    assert (found["output_total"].diff("sigma") > 0).all()
    assert (found["token_time"].sel(technique="base").diff("sigma") > 0).all()


def test_without_tables_those_that_ship_are_used(found: xr.Dataset) -> None:
    alone = evaluate(Config(technique="t1", sigma=0.1))
    assert float(alone["token_time"]) == float(found["token_time"].sel(technique="t1", sigma=0.1))


def test_wrong_models_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'olmoe'"):
        evaluate(Config(model="olmo"))


def test_rows_and_sections(found: xr.Dataset) -> None:
    rows = expert_rows(found)
    assert {row["technique"] for row in rows} == {"base", "t1", "t1t2", "t1t2t3"}
    sections = nasic_sections("nasic.nc", found)
    assert sections[0].title == "Experts of NASiC"
    assert len(sections[0].rows) == len(rows) == 12
    assert {row["parameter"] for row in sections[-1].rows} == set(Config.model_fields)


def test_a_netcdf_comes_back_whole(found: xr.Dataset, tmp_path: Any) -> None:
    found.to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    xr.testing.assert_equal(found, xr.load_dataset(tmp_path / "c.nc", engine="h5netcdf"))
    for name, variable in found.data_vars.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"] is not None, name


def test_the_measured_input_dimension(tables: Any) -> None:
    """Of Base and T1, which add the same; with T2 no number of inputs is accurate enough."""
    config = Config(input_rule="measured", technique=("base", "t1"), sigma=(0.05, 0.1))
    rows = evaluate(config, tables)["input_dimension"]
    assert (rows.sel(technique="base") == rows.sel(technique="t1")).all()
    assert (rows.diff("sigma") < 0).all()
    with pytest.raises(InputError, match="is not reached between 4 and 576 inputs"):
        evaluate(Config(input_rule="measured", technique="t1t2", sigma=0.1), tables)


def test_errors_may_be_left_out(found: xr.Dataset, tables: Any) -> None:
    config = Config(technique=("base", "t1", "t1t2", "t1t2t3"), sigma=(0.05, 0.1, 0.15))
    quick = evaluate(config, tables, errors=False)
    assert not {"output_error", "output_total"} & set(quick.data_vars)
    xr.testing.assert_equal(quick["token_time"], found["token_time"])
