"""An audited page read is the circuit that it says it is, by its own formulas and ngspice."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache

import numpy as np
import pytest
import xarray as xr

from circuits.levels import shift_of
from circuits.page_read import PageRead, shifts, stored_levels
from nandcosim.audit import audit_lines, audit_nvllm, audit_rows, offender_deck, offenders
from nandcosim.audit.page_reads import PageReplay, circuit_settings, knobs_of, page_params
from nandcosim.errors import InputError
from nandcosim.page_coding import data_bits
from nandcosim.spice.engine import full_knobs
from nandcosim.spice.installation import executable
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.tables import load_tables

READ = PageRead()
tables = cache(load_tables)


@pytest.mark.parametrize("bits", [1, 3, 4])
@pytest.mark.parametrize("wordline", [0, 67, 127])
def test_every_cell_has_its_level_and_its_error(bits, wordline) -> None:
    rng = np.random.default_rng(wordline)
    data = rng.integers(0, 2**bits, 128)
    error = 0.2 * rng.standard_normal(128)
    settings = circuit_settings(tables()["page_read"], bits=bits, coding="balanced", retry=0)
    params = page_params(READ, settings, wordline, bits - 1, int(data[wordline]))
    read = PageReplay(wordline, bits - 1, int(data[wordline]), 1, data * 1.0, error, {"sa_n": 0.01})
    knobs = full_knobs(READ, params, knobs_of(read, mismatch=True))
    assert params.selected == wordline
    np.testing.assert_array_equal(stored_levels(params, knobs["data"]), data)
    np.testing.assert_allclose(shifts(params, knobs), shift_of(params, data + error), atol=1e-12)
    assert knobs["sa_n"] == [0.01]
    assert "sa_n" not in knobs_of(read, mismatch=False)


# ---------------------------------------------------------------- an audit

#: The thresholds' spread leaves few reads near the decision, all of which are taken.
CONFIG = HardwareFields(cell_bits=3, sigma=0.25, page_bytes=64)


@pytest.fixture(scope="module")
def audit() -> xr.Dataset:
    return audit_nvllm(CONFIG, tables(), 24, seed=1, weights=b"NVLLM" * 5000, workers=1)


@pytest.mark.long
def test_far_from_the_decision_circuit_and_model_read_the_same_bits(audit) -> None:
    assert (audit["status"] == 0).all()
    far = np.abs(audit["clearance"].values) > 0.3
    assert far.sum() > 2
    for name in ("", "_bit"):
        here = audit[f"model{name}"].values[far] == audit[f"circuit{name}"].values[far]
        assert here.all()
    right = audit["clearance"].values[far] > 0
    bits = audit["circuit_bit"].sel(comparison="ideal").values[far]
    np.testing.assert_array_equal(bits == audit["stored"].values[far], right)


@pytest.mark.long
def test_an_audit_survives_its_file(audit, tmp_path) -> None:
    audit.to_netcdf(tmp_path / "audit.nc", engine="h5netcdf")
    back = xr.load_dataset(tmp_path / "audit.nc", engine="h5netcdf")
    assert audit_lines(back) == audit_lines(audit)
    assert audit_rows(back) == audit_rows(audit)
    assert (back.attrs["weights"], back.attrs["weight_bytes"]) == ("given", 25_000)
    assert json.loads(back.attrs["tables"]) == {"page_read": tables()["page_read"].digest}
    json.dumps([audit_rows(back), offenders(back)], allow_nan=False)


@pytest.mark.long
def test_its_decks_say_the_same_in_ngspice_alone(audit, tmp_path) -> None:
    near = np.argsort(np.abs(audit["clearance"].values))[:2]
    for sample, comparison in zip(map(int, near), ("ideal", "noisy"), strict=True):
        path = tmp_path / f"{sample}.cir"
        path.write_text(offender_deck(audit, sample, comparison))
        done = subprocess.run(
            [executable().path, "-b", path], capture_output=True, text=True, check=True
        )
        volts = {
            int(n): float(v) for n, v in re.findall(r"(?m)^bit_(\d+)\s+=\s+(\S+)", done.stdout)
        }
        one = audit.isel(sample=sample).sel(comparison=comparison)
        assert float(volts[int(one["read_level"])] > 0.4) == float(one["circuit"])
        conducts = np.ones(7)
        for level, volt in volts.items():
            conducts[level - 1] = volt > 0.4
        assert data_bits(conducts, 3)[int(one["page"])] == int(one["circuit_bit"])


@pytest.mark.long
def test_a_sample_that_is_not_there_is_refused(audit) -> None:
    with pytest.raises(InputError, match=r"sample = 24, allowed: 0 \.\. 23"):
        offender_deck(audit, 24)


@pytest.mark.long
def test_the_sample_does_not_depend_on_the_processes(audit) -> None:
    again = audit_nvllm(CONFIG, tables(), 24, seed=1, weights=b"NVLLM" * 5000, workers=2)
    xr.testing.assert_identical(again.drop_attrs(), audit.drop_attrs())
