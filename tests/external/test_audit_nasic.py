"""An audited product is the circuit that it says it is, by its own formulas and ngspice."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache

import numpy as np
import pytest
import xarray as xr

from circuits.cim_unit import CimUnit
from circuits.gated_string import cam_shifts, shift_at
from nandcosim.audit import audit_lines, audit_nasic, audit_rows, offender_deck, offenders
from nandcosim.audit.unit_products import MATCH
from nandcosim.audit.unit_replays import measured_gate, unit_params, unit_settings
from nandcosim.encodings import complement, string_states
from nandcosim.errors import InputError
from nandcosim.spice.installation import executable
from nandcosim.systems.nasic.currents import CurrentFields
from nandcosim.tables import load_tables

UNIT = CimUnit()
tables = cache(load_tables)

CONFIG = CurrentFields(states=2, interleave=4)


@pytest.mark.parametrize(("states", "weight", "entry"), [(2, -1, 3), (4, 5, 0)])
def test_every_cell_has_its_state_and_its_error(states, weight, entry) -> None:
    settings = unit_settings(tables()["cim_string"], states)
    params = unit_params(settings, weight, entry, 1)
    error = 0.016 * np.random.default_rng(0).standard_normal((8, 128))
    elements = UNIT.elements(params, {"threshold": error.ravel()})
    shifts = np.array(list(elements.values())).reshape(8, 128) - error
    block_a = string_states(weight, states)
    stored = np.concatenate([block_a, complement(block_a, states)])
    np.testing.assert_allclose(shifts[:, params.selected], shift_at(params, stored, 0.96 / states))
    np.testing.assert_allclose(shifts[:, :2], np.tile(cam_shifts(params), (8, 1)))
    assert (params.entry, params.query, params.layers) == (entry, 1, "2")


@pytest.mark.long
def test_without_errors_the_circuit_is_the_table() -> None:
    """At sigma 0 what is left is the mean's shift by the table's threshold errors."""
    found = audit_nasic(CONFIG.model_copy(update={"sigma": 0.0}), tables(), 9, seed=1, workers=1)
    assert (found["status"] == 0).all()
    assert (found["threshold"] == 0).all()
    match = found["group"].values == MATCH
    assert match.sum() == 6
    circuit, model = found["circuit"].values, found["mean"].values
    np.testing.assert_allclose(circuit[match], model[match], rtol=0.02, atol=1e-6)
    assert (np.abs(circuit[~match]) < 0.02).all()
    assert (np.abs(found["at_zero"]) < 1e-4).all()
    assert audit_rows(found)[0]["residual"] is None
    assert "circuit over model" in audit_lines(found)


@pytest.mark.long
def test_another_cam_cell_is_calibrated() -> None:
    """Of a 1-bit cell the source line was calibrated for the sweep cim_string_cam1."""
    settings = unit_settings(tables()["cim_string"], 4)
    gate = measured_gate(settings, "1")
    assert gate.drops == pytest.approx({"v_x1": 0.02591, "v_x2": 0.04461}, abs=2e-5)
    # docs/circuits/cim_string.md, with threshold errors: 37.1 nA against 21.6 nA
    assert gate.gain == pytest.approx(37.1 / 21.6, rel=0.05)
    assert measured_gate(settings, "2").gain == 1.0


@pytest.fixture(scope="module")
def audit() -> xr.Dataset:
    weights = np.random.default_rng(2).standard_normal((64, 8))
    return audit_nasic(CONFIG, tables(), 12, seed=1, weights=weights, workers=1)


@pytest.mark.long
def test_products_are_about_those_of_the_model(audit) -> None:
    assert (audit["status"] == 0).all()
    match = audit["group"].values == MATCH
    z = ((audit["circuit"] - audit["mean"]) / audit["sd"]).values[match]
    assert (np.abs(z) < 5).all()
    assert (np.abs(audit["circuit"].values[~match]) < 0.1).all()


@pytest.mark.long
def test_an_audit_survives_its_file(audit, tmp_path) -> None:
    audit.to_netcdf(tmp_path / "audit.nc", engine="h5netcdf")
    back = xr.load_dataset(tmp_path / "audit.nc", engine="h5netcdf")
    assert audit_lines(back) == audit_lines(audit)
    assert audit_rows(back) == audit_rows(audit)
    assert back.attrs["weights"] == "given, 512"
    assert json.loads(back.attrs["tables"]) == {"cim_string": tables()["cim_string"].digest}
    json.dumps([audit_rows(back), offenders(back)], allow_nan=False)


@pytest.mark.long
def test_its_decks_say_the_same_in_ngspice_alone(audit, tmp_path) -> None:
    for sample in (int(offenders(audit, 1)[0]["sample"]), 11):
        path = tmp_path / f"{sample}.cir"
        path.write_text(offender_deck(audit, sample))
        done = subprocess.run(
            [executable().path, "-b", path], capture_output=True, text=True, check=True
        )
        # index, input, i(vbla), i(vblb): one pulse of binary cells
        rows = re.findall(r"(?m)^\d+\s+(\S+)\s+(\S+)\s+(\S+)\s*$", done.stdout)
        table = np.array(rows, dtype=float)
        assert table.shape == (4, 3)
        product = (table[:, 2] - table[:, 1]) / audit.attrs["lsb"]
        one = audit.isel(sample=sample)
        assert product[int(one["level"])] == pytest.approx(float(one["circuit"]), abs=1e-4)


@pytest.mark.long
def test_a_sample_that_is_not_there_is_refused(audit) -> None:
    with pytest.raises(InputError, match=r"sample = 12, allowed: 0 \.\. 11"):
        offender_deck(audit, 12)


@pytest.mark.long
def test_the_sample_does_not_depend_on_the_processes(audit) -> None:
    weights = np.random.default_rng(2).standard_normal((64, 8))
    again = audit_nasic(CONFIG, tables(), 12, seed=1, weights=weights, workers=2)
    xr.testing.assert_allclose(again.drop_attrs(), audit.drop_attrs(), rtol=1e-12)
