"""Backend ``process``: the ngspice executable, one process a run.

Costs the start of a process (about 10 ms) and gives isolation: a crash or a
hang of ngspice cannot reach this process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nandcosim.spice import installation
from nandcosim.spice.deck import Deck
from nandcosim.spice.rawfile import read_raw
from nandcosim.spice.result import RawResult, Waveforms, judge
from nandcosim.spice.status import Status
from nandcosim.spice.trouble import explained, summarise

__all__ = ["ProcessBackend"]

#: Read by ngspice from the run's own folder, which also keeps the user's file out.
INIT_FILE = "set num_threads=1\n"


class ProcessBackend:
    """Runs decks with ``ngspice -b -r``."""

    name = "process"
    can_alter = False

    def run(
        self, deck: Deck, alter: Mapping[str, float] | None = None, time_limit: float = 60.0
    ) -> RawResult:
        """Run the deck's analysis; same contract as `SharedBackend.run`.

        A ``stop_when`` condition is ignored, since batch mode has none outside a
        ``.control`` block, where an aborted transient exits with 0.

        Raises
        ------
        ValueError
            If `alter` is given: this backend takes a rebuilt deck.
        """
        if alter:
            raise ValueError("backend 'process' cannot alter a deck: build it with the new values")
        with tempfile.TemporaryDirectory(prefix="nandcosim-") as name:
            return self._run_in(Path(name), deck, time_limit)

    def close(self) -> None:
        """Nothing is kept between runs."""

    @staticmethod
    def version() -> str:
        """Version of the executable."""
        return installation.executable_version()

    @staticmethod
    def _run_in(folder: Path, deck: Deck, time_limit: float) -> RawResult:
        (folder / "deck.cir").write_text(deck.text())
        models = installation.osdi_models()
        commands = [f"osdi {model}\n" for model in models]
        (folder / ".spiceinit").write_text("".join([INIT_FILE, *commands]))
        environment = {**os.environ, "HOME": str(folder), "OMP_THREAD_LIMIT": "1"}
        command = [installation.executable().path, "-b", "-r", "deck.raw", "deck.cir"]
        start = _children_cpu_seconds()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=time_limit,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            log = _lines(expired.stdout, expired.stderr)
            reason = f"time limit of {time_limit:g} s hit"
            return RawResult(Status.TIMEOUT, reason, Waveforms({}), False, time_limit, log)
        seconds = _children_cpu_seconds() - start
        log = _lines(done.stdout, done.stderr)
        refusal = installation.osdi_refusal(installation.executable().path, log) if models else ""
        if refusal:
            raise installation.NgspiceNotFoundError(refusal)
        if done.returncode < 0:
            reason = f"ngspice died of signal {-done.returncode}"
            return RawResult(Status.CRASHED, reason, Waveforms({}), False, seconds, log)
        raw = folder / "deck.raw"
        plot, vectors = read_raw(raw) if raw.exists() else ("", {})
        if not plot.startswith(deck.analysis.plot[1]):
            # ngspice opens the raw file once the analysis has its first point, so a
            # missing file alone does not tell a refused deck from a failed start.
            started = any("Doing analysis" in line for line in log)
            status = Status.NO_CONVERGENCE if started else Status.DECK_ERROR
            refusals = ("no data saved", "is not in the circuit")  # the latter: a swept source
            if any(refusal in line for line in log for refusal in refusals):
                status = Status.DECK_ERROR
            reason = summarise(log, deck)
            return RawResult(status, reason, Waveforms({}), False, seconds, log)
        waves = Waveforms(vectors)
        status, reason, early = judge(waves, deck.analysis, done.returncode != 0)
        if status is not Status.OK:
            reason = explained(reason, log, deck)
        return RawResult(status, reason, waves, early, seconds, log)


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lines(*streams: bytes | None) -> tuple[str, ...]:
    text = b"\n".join(stream for stream in streams if stream)
    return tuple(text.decode("utf-8", "replace").splitlines())
