"""One sample in a child process, observed: its deck and waveforms are written to a folder.

The child runs it the way a sweep does. If the sample kills the child or hangs, the answer
says so as `nandcosim.sweep.isolated` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from nandcosim.errors import SimulationError
from nandcosim.spice.deck import build_deck
from nandcosim.spice.engine import Engine
from nandcosim.spice.result import Waveforms
from nandcosim.spice.status import Status
from nandcosim.sweep import isolated
from nandcosim.sweep.chunk import Job
from nandcosim.sweep.simulation import SampleResult, drawn, parsed, simulate_sample
from nandcosim.sweep.watch import patience

__all__ = ["DECK", "WAVEFORMS", "load_waveforms", "observe"]

#: Files made in the folder.
DECK, WAVEFORMS = "deck.cir", "waveforms.nc"


def observe(job: Job, folder: Path) -> SampleResult:
    """Run the one sample of a job in a child process.

    Parameters
    ----------
    job : Job
    folder : Path
        Where the child writes `DECK`, unless the deck cannot be built, and `WAVEFORMS`, if
        there are any.

    Raises
    ------
    SimulationError
        If the child reports an error that is not the sample's.
    """
    # What this process can import, the child must be able to import too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    document = {"job": isolated.document_of(job), "folder": str(folder)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(document),
            capture_output=True,
            text=True,
            env=environment,
            timeout=patience(job.time_limit),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return isolated.death(0, True, job.time_limit)
    if not done.stdout:
        return isolated.death(done.returncode, False, job.time_limit)
    told: dict[str, Any] = json.loads(done.stdout)
    if "error" in told:
        raise SimulationError(told["error"])
    responses = {name: float.fromhex(text) for name, text in told["responses"].items()}
    return SampleResult(Status(told["status"]), told["reason"], responses)


def load_waveforms(file: Path) -> Waveforms:
    """Read what `observe` wrote."""
    import xarray as xr

    with xr.open_dataset(file, engine="h5netcdf", decode_times=False) as dataset:
        variables = dataset.load().variables.values()
    return Waveforms({each.attrs["ngspice"]: np.asarray(each.values) for each in variables})


# -------------------------------------------------------------- the child


def main() -> None:
    """Read a job from standard input, run it, report on standard output."""
    # ngspice and user code may print; the answer goes where nobody else writes.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    document = json.load(sys.stdin)
    try:
        result = _observed(isolated.job_of(document["job"]), Path(document["folder"]))
    except Exception as error:  # noqa: BLE001 - the parent raises it again
        told: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    else:
        # Hexadecimal: exact, and NaN and infinities are not JSON.
        responses = {name: float(v).hex() for name, v in result.responses.items()}
        told = {"status": int(result.status), "reason": result.reason, "responses": responses}
    json.dump(told, report)
    report.flush()


def _observed(job: Job, folder: Path) -> SampleResult:
    """Run the sample and write its deck and waveforms."""
    spec, circuit = parsed(job.spec)
    (k,) = job.chunk.samples
    wanted = frozenset(spec.responses)
    try:
        params, knobs = drawn(job, *job.chunk.samples)
        (folder / DECK).write_text(build_deck(circuit, params, knobs, wanted).text())
        outcome = Engine(job.backend, job.time_limit).sample(circuit, params, knobs, wanted)
    except OSError:
        raise
    except Exception:  # noqa: BLE001 - what it means for a sample is said in one place
        return simulate_sample(spec, circuit, job, k)
    if outcome.waveforms.scale:
        _save_waveforms(outcome.waveforms, folder / WAVEFORMS)
    return SampleResult(outcome.status, outcome.reason, outcome.responses)


def _save_waveforms(waveforms: Waveforms, file: Path) -> None:
    """Write waveforms as netCDF over their scale; ``ngspice`` holds a vector's own name."""
    import xarray as xr  # slow to import, and the child is waited for

    scale = waveforms.scale
    dataset = xr.Dataset()
    for name, values in waveforms.items():
        plain = name.replace("#branch", "_current").replace("/", "_")
        unit = "s" if name == "time" else "A" if plain != name or name == "i-sweep" else "V"
        dataset[plain] = (scale, values, {"units": unit, "ngspice": name})
    dataset.to_netcdf(file, engine="h5netcdf")


if __name__ == "__main__":
    main()
