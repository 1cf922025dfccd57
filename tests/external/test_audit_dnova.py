"""An audited read is the circuit that it says it is, by the circuit's own formulas and ngspice."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("faiss")
pytest.importorskip("numba")

from circuits.dts_sense import DtsSense
from circuits.levels import boundary, shift_of
from circuits.string import shifts, stored_levels, wordlines
from nandcosim.audit import audit_dnova, audit_lines, audit_rows, offender_deck, offenders
from nandcosim.audit.amplifier import Amplifier, TripTask, mismatch_of, trip_margins
from nandcosim.audit.strings import string_params, threshold_knob
from nandcosim.errors import InputError
from nandcosim.spice.circuit import Transient
from nandcosim.spice.deck import Deck, netlist_text
from nandcosim.spice.engine import Engine, full_knobs, measure
from nandcosim.spice.installation import executable
from nandcosim.spice.process import ProcessBackend
from nandcosim.systems.dnova import Config, Corpus
from nandcosim.tables import load_tables

DTS = DtsSense()
tables = cache(load_tables)


def read(seed: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Stored thresholds of a string, and the levels that some of its wordlines apply."""
    rng = np.random.default_rng(seed)
    stored = rng.integers(0, 16, 128) + 0.2 * rng.standard_normal(128)
    applied = np.full(128, np.nan)
    applied[first : first + size] = np.ceil(stored[first : first + size]) + rng.integers(0, 3, size)
    return stored, applied


@pytest.mark.parametrize(("first", "size"), [(0, 4), (62, 2), (120, 8), (127, 1)])
def test_every_gate_sees_its_query_and_its_stored_charge(first, size) -> None:
    stored, applied = read(1, first, size)
    params = string_params(DTS, {}, first, size)
    assert params.active.tolist() == list(range(first, first + size))
    gate = wordlines(params) - shifts(params, threshold_knob(stored, applied))
    driven = np.where(np.isnan(applied), params.v_pass, params.v_base + applied * params.spacing)
    expected = driven - shift_of(params, stored)
    np.testing.assert_allclose(gate, expected, rtol=0, atol=1e-12)
    margin = (applied - stored - 0.5)[params.active]
    np.testing.assert_allclose(
        gate[params.active], boundary(params) + margin * params.spacing, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(("first", "size"), [(0, 4), (62, 2)])
def test_it_is_the_deck_with_the_query_on_its_wordlines(first, size) -> None:
    """The same bitline as with every wordline and every stored charge written out."""
    stored, applied = read(2, first, size)
    params = string_params(DTS, {}, first, size)
    wanted = frozenset({"bit", "v_strobe"})
    ours = Engine("process").sample(
        DTS, params, {"threshold": threshold_knob(stored, applied)}, wanted
    )
    error = stored - stored_levels(params)
    text = netlist_text(DTS.build(params, full_knobs(DTS, params, {"threshold": error})))
    for cell in map(int, params.active):
        volts = float(params.v_base + applied[cell] * params.spacing)
        text, changed = re.subn(rf"(?m)^(Vwl{cell} wl{cell} 0) .*$", rf"\1 {volts!r}", text)
        assert changed == 1
    analysis = DTS.analysis(params, wanted)
    assert isinstance(analysis, Transient)
    raw = ProcessBackend().run(Deck(text, analysis, DTS.saved(params)))
    written_out = measure(DTS, params, raw, wanted)
    assert written_out.responses["bit"] == ours.responses["bit"]
    assert written_out.responses["v_strobe"] == pytest.approx(
        ours.responses["v_strobe"], rel=1e-6, abs=1e-9
    )


@pytest.mark.long
@pytest.mark.parametrize("m", [2, 4])
def test_the_linear_amplifier_has_the_tables_trip_margin_and_read_noise(m) -> None:
    """The table's from 8,000 random amplifiers, these from five; within four errors."""
    table = tables()["dts_sense"]
    task = TripTask("dts_sense", {}, m, mismatch_of(table, DTS))
    amplifier = Amplifier.measured(task, trip_margins(task))
    here = table.dataset.sel(m=m)
    for name, found in (("trip_margin", amplifier.trip), ("read_sigma", amplifier.spread)):
        assert abs(found - float(here[name])) < 4 * float(here[f"{name}_se"])
    assert (amplifier.slopes < 0).all()  # an earlier amplifier lets a group pass earlier


# ---------------------------------------------------------------- an audit


def corpus() -> Corpus:
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((400, 256), dtype=np.float32)
    return Corpus("random", vectors, vectors[:5] + 0.3 * rng.standard_normal((5, 256)))


CONFIG = Config(nprobe=4, nlist=8, k2=50, k1=10, queries=5)


@pytest.fixture(scope="module")
def audit() -> xr.Dataset:
    return audit_dnova(CONFIG, corpus(), tables(), 24, seed=1, workers=1)


@pytest.mark.long
def test_an_audit_survives_its_file(audit, tmp_path) -> None:
    audit.to_netcdf(tmp_path / "audit.nc", engine="h5netcdf")
    back = xr.load_dataset(tmp_path / "audit.nc", engine="h5netcdf")
    assert audit_lines(back) == audit_lines(audit)
    assert audit_rows(back) == audit_rows(audit)
    assert json.loads(back.attrs["config"])["noise"] == "table"
    assert json.loads(back.attrs["tables"]) == {"dts_sense": tables()["dts_sense"].digest}
    json.dumps([audit_rows(back), offenders(back)], allow_nan=False)


@pytest.mark.long
def test_far_from_the_decision_circuit_and_model_agree(audit) -> None:
    assert (audit["status"] == 0).all()
    far = np.abs(audit["excess"].values) > 1
    assert far.sum() > 3
    assert (audit["model"].values[far] == audit["circuit"].values[far]).all()
    rows = {(row["comparison"], row["part"]): row for row in audit_rows(audit)}
    assert rows["ideal", "all"]["examined"] == 24
    assert rows["ideal", "as they occur"]["examined"] == 12
    assert float(audit["weight"].sum()) == pytest.approx(1.0)


@pytest.mark.long
def test_the_sample_does_not_depend_on_the_processes(audit) -> None:
    again = audit_dnova(CONFIG, corpus(), tables(), 24, seed=1, workers=2)
    xr.testing.assert_identical(again.drop_attrs(), audit.drop_attrs())


@pytest.mark.long
@pytest.mark.parametrize("comparison", ["ideal", "noisy"])
def test_its_decks_say_the_same_in_ngspice_alone(audit, comparison, tmp_path) -> None:
    near = np.argsort(np.abs(audit["excess"].values))[:6]
    for sample in map(int, near):
        path = tmp_path / f"{sample}.cir"
        path.write_text(offender_deck(audit, sample, comparison))
        done = subprocess.run(
            [executable().path, "-b", path], capture_output=True, text=True, check=True
        )
        (volts,) = re.findall(r"(?m)^bit\s+=\s+(\S+)", done.stdout)
        bit = float(audit["circuit"].sel(comparison=comparison)[sample])
        assert (float(volts) > 0.4) == bool(bit)


@pytest.mark.long
def test_a_sample_that_is_not_there_is_refused(audit) -> None:
    with pytest.raises(InputError, match=r"sample = 24, allowed: 0 \.\. 23"):
        offender_deck(audit, 24)
