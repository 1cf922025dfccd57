"""The main line end to end: ngspice sweep, table, retrieval on real text, one page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nandcosim.errors import NandcosimError
from nandcosim.evaluations import retrieval
from nandcosim.report.folder import report
from nandcosim.report.samples import save_sample
from nandcosim.spice.engine import Engine
from nandcosim.spice.netlists import data_folder
from nandcosim.spice.settings import circuit_params
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit, run_sweep
from nandcosim.systems import dnova
from nandcosim.tables import fit

__all__ = ["CONFIG", "demo"]

#: The evaluation of the demo; queries are fewer than the corpus has, to keep to the minute.
CONFIG = dnova.Config(
    dts=("111", "242"),
    noise=("none", "table"),
    chip=(0, 1, 2),
    nprobe=(1, 2, 4, 8, 16, 32),
    queries=200,
    threads=2,
)


def demo(out: Path, say: Callable[[str], None]) -> Path:
    """Run the demo and return the page.

    Parameters
    ----------
    out : Path
        Made if missing. A sweep that was interrupted there is continued.
    say : callable
        Gets a line at every step.
    """
    tables = out / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    spec = data_folder("sweeps") / "demo.toml"
    say("1/4 ngspice: one sense operation that passes and one that blocks")
    _waveforms(out)
    say(f"2/4 ngspice Monte Carlo over Dask: {spec.name}")
    store = run_sweep(spec, out / "dts_sense.zarr", progress=True)
    say("3/4 calibration table: fit of the sweep")
    fit(store).to_netcdf(tables / "dts_sense.nc")
    say("4/4 D-NOVA: retrieval on real text embeddings, ideal and with that circuit's noise")
    retrieval(CONFIG, "wordnet", out, tables=tables)
    return report(out)


def _waveforms(out: Path) -> None:
    circuit = load_circuit("dts_sense")
    for label, margin in (("all cells conduct", 1.5), ("one cell blocks", -1.5)):
        settings = {"m": 4, "margin": margin}
        params = circuit_params(circuit, settings, "demo")
        outcome = Engine().sample(circuit, params)
        if outcome.status is not Status.OK:
            raise NandcosimError(f"demo: {outcome.status.label}: {outcome.reason}")
        name = f"waveforms_{label.replace(' ', '_')}.nc"
        marks = circuit.marks(params)
        save_sample(outcome.waveforms, marks, settings, label, out / name)
