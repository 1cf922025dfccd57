"""NVLLM as a whole: axes, sums, the paper's golden figures, and what follows from the errors."""

from __future__ import annotations

import itertools
from typing import Any, get_args, get_origin

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.report.inference import inference_rows
from nandcosim.report.nvllm import nvllm_sections
from nandcosim.systems.nvllm import Config, evaluate
from nandcosim.tables import load_tables


@pytest.fixture(scope="module")
def tables() -> Any:
    return load_tables()


#: Fields whose default leaves too little room to vary by a factor.
VALUES: dict[str, tuple[Any, ...]] = {
    "model": ("opt-1.3b", "llama3-8b"),
    "page_buffers": (1, 2),
    "cell_bits": (1, 3),
    "sigma": (0.15, 0.25),
    "shift": (-0.2, 0.0),
    "storage_temperature": (25.0, 55.0),
    "dram_efficiency": (0.5, 0.96),
    "correctable": (2, 4),
    "aif_efficiency": (0.5, 0.845),
    "aif_minus_efficiency": (0.5, 0.632),
    "gpu_efficiency": (0.25, 0.5),
}


def two_values(name: str) -> tuple[Any, ...]:
    """Two allowed values of a field."""
    field = Config.model_fields[name]
    choices = next((a for a in _options(field.annotation) if get_origin(a) is not None), None)
    literal = get_args(choices) if choices is not None else ()
    if name in VALUES:
        return VALUES[name]
    if isinstance(field.default, str):
        return literal[:2]
    return (field.default, 2 * field.default or 1)


def _options(annotation: Any) -> tuple[Any, ...]:
    return tuple(a for a in get_args(annotation) if get_origin(a) is not tuple)


AXES = [name for name in Config.model_fields if name not in ("engine_segments",)]


@pytest.mark.parametrize("names", [AXES[n : n + 7] for n in range(0, len(AXES), 7)])
def test_every_field_may_be_an_axis(names: list[str], tables: Any) -> None:
    """And a point of the whole is what that point alone gives."""
    axes = {name: two_values(name) for name in names}
    whole = evaluate(Config(**axes), tables)
    last = {name: values[-1] for name, values in axes.items()}
    alone = evaluate(Config(**last), tables)
    for name in ("tokens_per_second", "end_to_end", "energy", "token_time", "utilisation", "dram"):
        cut = {axis: last[axis] for axis in last if axis in whole[name].dims}
        found = whole[name].sel(cut, drop=True)
        expected = alone[name].drop_vars([axis for axis in last if axis in alone[name].coords])
        xr.testing.assert_allclose(found, expected.transpose(*found.dims), rtol=1e-12)


def test_parts_sum_to_the_whole(tables: Any) -> None:
    found = evaluate(Config(clusters=(8, 16), context=(64, 4096)), tables)
    own = found.sel(system="nvllm")
    assert np.allclose(1 / found.token_time.sum("stage"), own.tokens_per_second)
    assert np.allclose(found.whole_time.sum(["phase", "stage"]), own.end_to_end)
    assert (found.busy <= found.token_time.sum("stage") * (1 + 1e-12)).all()


def test_golden_figures(tables: Any) -> None:
    """What the paper's own parameters give: operations, bandwidth, tokens a second."""
    found = evaluate(Config(clusters=(8, 12, 16), rber=0.0), tables)
    assert found.operations.values == pytest.approx([307.2e9, 396.8e9, 486.4e9])
    assert found.array_bandwidth.values == pytest.approx([102.4e9, 153.6e9, 204.8e9])
    speed = found.tokens_per_second.sel(system="nvllm", clusters=16)
    assert 16.6 < float(speed) < 17.2
    assert found.power.sum("module").sel(unit="npu").values == pytest.approx(0.240149)
    flash = found.power.sum("module").sel(unit="nand", clusters=8)
    assert float(flash) == pytest.approx(0.895677)


def test_more_errors_never_help(tables: Any) -> None:
    found = evaluate(Config(rber=(0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)), tables)
    speed = found.tokens_per_second.sel(system="nvllm")
    assert (speed.diff("rber") <= 0).all()
    assert float(speed.isel(rber=0)) > 2 * float(speed.isel(rber=-1))
    assert (found.uncorrectable_rate.diff("rber") > 0).all()


def test_rivals_do_not_depend_on_nvllm(tables: Any) -> None:
    found = evaluate(Config(clusters=(8, 16), rber=(1e-6, 1e-3)), tables)
    rivals = found.tokens_per_second.drop_sel(system="nvllm")
    assert (rivals.max(["clusters", "rber"]) == rivals.min(["clusters", "rber"])).all()


def test_engines_by_cycle_agree_with_the_closed_form(tables: Any) -> None:
    pytest.importorskip("numba", reason="numba is not installed (extra fast)")
    config = Config(rber=(1e-5, 1e-4, 1e-3), engine_segments=50_000, clusters=2)
    found = evaluate(config, tables)
    assert np.allclose(found.utilisation, found.utilisation_simulated, rtol=0.02)


def test_what_does_not_fit_is_marked(tables: Any) -> None:
    found = evaluate(Config(model=("opt-6.7b", "opt-66b"), clusters=8), tables)
    assert found.fits.values.tolist() == [True, False]
    assert np.isfinite(found.tokens_per_second.sel(system="nvllm")).all()


def test_no_tables_are_needed_for_stated_figures() -> None:
    found = evaluate(Config())
    assert np.isfinite(float(found.tokens_per_second.sel(system="nvllm")))
    with pytest.raises(InputError, match="page_time = table needs the table"):
        evaluate(Config(page_time="table"))


def test_rows_and_sections_have_every_point(tables: Any) -> None:
    found = evaluate(Config(clusters=(8, 16), rber=(1e-5, 1e-3)), tables)
    rows = inference_rows(found)
    points = {(row["clusters"], row["rber"]) for row in rows if row["system"] == "nvllm"}
    assert points == set(itertools.product((8, 16), (1e-5, 1e-3)))
    aif = next(row for row in rows if row["system"] == "aif")
    assert aif["end_to_end"] is None
    sections = nvllm_sections("nvllm.nc", found)
    assert sections[0].title == "Throughput of NVLLM"
    assert len(sections[0].rows) == 4
    assert {row["parameter"] for row in sections[-1].rows} == set(Config.model_fields)


def test_a_netcdf_comes_back_whole(tables: Any, tmp_path: Any) -> None:
    found = evaluate(Config(model=("opt-1.3b", "llama2-7b"), clusters=(8, 16)), tables)
    found.to_netcdf(tmp_path / "n.nc", engine="h5netcdf")
    xr.testing.assert_equal(found, xr.load_dataset(tmp_path / "n.nc", engine="h5netcdf"))
    for name, variable in found.data_vars.items():
        assert variable.attrs["long_name"], name
