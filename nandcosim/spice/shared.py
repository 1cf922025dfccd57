"""Backend ``shared``: libngspice in this process, through PySpice's binding.

PySpice gives the cffi declarations and the callbacks; its judgement of a run
by the text on stderr is replaced (successful gmin stepping would raise, and so
would any run on ngspice >= 42, which names its solver there).

libngspice keeps all its state in static variables, so there is one per process
and one thread at a time uses it. A run goes through ``bg_run``, ngspice's own
thread, which is what makes a time limit possible.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PySpice.Spice.NgSpice.Shared import NgSpiceShared, ffi

from nandcosim.spice import installation
from nandcosim.spice.deck import Deck
from nandcosim.spice.result import RawResult, Waveforms, judge
from nandcosim.spice.status import Status
from nandcosim.spice.trouble import explained, summarise

__all__ = ["SharedBackend"]

# PySpice logs every line of stderr as an error and every version it does not know.
logging.getLogger("PySpice").setLevel(logging.CRITICAL)

#: How long ``bg_halt`` may take to reach the next time point before we give up on the library.
HALT_GRACE_SECONDS = 30.0


class _Library(NgSpiceShared):  # type: ignore[misc]  # PySpice is untyped
    """PySpice's binding without its judgement and its version table."""

    _declared: ClassVar[bool] = False

    def __init__(self, path: str) -> None:
        self.LIBRARY_PATH = path
        self.lines: list[str] = []
        self.finished = threading.Event()
        self.exited = False
        self.thread_id: int | None = None
        self.thread_seconds = 0.0
        super().__init__()

    def _load_library(self, verbose: bool) -> None:
        try:
            if _Library._declared:  # a second cdef of the same types is refused by cffi
                self._ngspice_shared = ffi.dlopen(self.library_path)
            else:
                _Library._declared = True
                super()._load_library(verbose)
        except OSError as error:
            text = f"{self.library_path} cannot be loaded: {error}"
            raise installation.NgspiceNotFoundError(text) from None

    @staticmethod
    def _send_char(message: Any, _ngspice_id: int, user_data: Any) -> int:
        library = ffi.from_handle(user_data)
        library.lines.append(ffi.string(message).decode("utf-8", "replace"))
        return 0

    @staticmethod
    def _exit(_status: int, _immediate: bool, _quit: bool, _id: int, user_data: Any) -> int:
        ffi.from_handle(user_data).exited = True
        return 0

    @staticmethod
    def _background_thread_running(not_running: bool, _id: int, user_data: Any) -> int:
        if not_running:  # called by ngspice's own thread, as the last thing it does
            library = ffi.from_handle(user_data)
            library.thread_id = threading.get_native_id()
            library.thread_seconds = time.thread_time()
            library.finished.set()
        return 0

    def _get_version(self) -> None:
        # Asked for by PySpice's constructor, which looks the answer up in a table that
        # ends at 34; "last" is in that table.
        self._ngspice_version = "last"

    def exec_command(self, command: str, join_lines: bool = True) -> str:
        """Called by PySpice's constructor (``set nomoremode``)."""
        self.command(command)
        return ""

    # ------------------------------------------------------------------ ours

    def command(self, text: str) -> list[str]:
        """Run one command and return what ngspice wrote."""
        start = len(self.lines)
        self._ngspice_shared.ngSpice_Command(text.encode("ascii"))
        return self.lines[start:]

    def forget_history(self) -> None:
        """Free the control structures ngspice keeps of past commands."""
        self._ngspice_shared.ngSpice_Command(ffi.NULL)

    def circ(self, deck: str) -> int:
        """Load a deck; non-zero when ngspice refused and left itself unusable."""
        lines = [ffi.new("char[]", line.encode()) for line in deck.splitlines()]
        return int(self._ngspice_shared.ngSpice_Circ(ffi.new("char *[]", [*lines, ffi.NULL])))

    def current_plot(self) -> str:
        return str(ffi.string(self._ngspice_shared.ngSpice_CurPlot()).decode())

    def vectors(self, plot: str) -> dict[str, np.ndarray]:
        """Copy every real vector of `plot`."""
        names = self._ngspice_shared.ngSpice_AllVecs(plot.encode())
        vectors = {}
        for name in self._convert_string_array(names):
            info = self._ngspice_shared.ngGet_Vec_Info(f"{plot}.{name}".encode())
            if ffi.NULL in (info, info.v_realdata):
                continue
            raw = ffi.buffer(info.v_realdata, info.v_length * 8)
            vectors[name] = np.frombuffer(raw, dtype=np.float64).copy()
        return vectors

    def close(self) -> None:
        """Unload the library, so that the next load starts from fresh static state."""
        # Its thread still has to return through the library's code after it told us.
        while self.thread_id is not None and Path(f"/proc/self/task/{self.thread_id}").exists():
            time.sleep(0.001)
        ffi.dlclose(self._ngspice_shared)


class SharedBackend:
    """Runs decks on libngspice in this process.

    All instances of a process share the one library; a lock keeps threads apart.

    Attributes
    ----------
    can_alter : bool
        Element values can be changed without loading the deck again.
    """

    name = "shared"
    can_alter = True

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _library: ClassVar[_Library | None] = None
    _loaded: ClassVar[str | None] = None
    _dead: ClassVar[str | None] = None
    _altered: ClassVar[dict[str, float]] = {}

    def run(
        self, deck: Deck, alter: Mapping[str, float] | None = None, time_limit: float = 60.0
    ) -> RawResult:
        """Run the deck's analysis.

        Parameters
        ----------
        deck : Deck
            Loaded only if it is not the one in memory.
        alter : Mapping of str to float, optional
            Element name -> new DC value. What an earlier run altered and this
            one does not name makes the deck load again, so no state leaks.
        time_limit : float
            Wall seconds for the analysis.

        Returns
        -------
        RawResult
        """
        cls = type(self)
        alter = alter or {}
        with cls._lock:
            if cls._dead is not None:
                return _failed(Status.CRASHED, cls._dead)
            library = cls._ready()
            library.lines.clear()
            reusable = cls._loaded == deck.digest and cls._altered.keys() <= alter.keys()
            if not reusable and not cls._load(library, deck):
                log = tuple(library.lines)
                cls._recycle()
                return _failed(Status.DECK_ERROR, summarise(log, deck), log)
            # what already has its value is left alone: most cells when only the amplifier varies
            changed = {n: v for n, v in alter.items() if cls._altered.get(n) != v}
            for command in _alter_commands(changed):
                complaint = library.command(command)
                if complaint:  # alter is silent when it succeeds
                    log = tuple(library.lines)  # with the load's, which may hold the cause
                    cls._unload(library)
                    return _failed(Status.DECK_ERROR, summarise(log, deck) or log[-1], log)
            cls._altered.update(changed)
            result = cls._run(library, deck, time_limit)
            if result.status is Status.DECK_ERROR:
                cls._unload(library)
            return result

    def close(self) -> None:
        """Forget the loaded deck and unload the library."""
        with type(self)._lock:
            type(self)._recycle()

    @classmethod
    def version(cls) -> str:
        """Version of the library as it reports itself, e.g. ``"39"``."""
        with cls._lock:
            text = " ".join(cls._ready().command("version -f"))
        return text.partition("ngspice-")[2].split(" ")[0] or "unknown"

    @classmethod
    def features(cls) -> list[str]:
        """Compiled-in features as the library reports them."""
        with cls._lock:
            library = cls._ready()
            text = " ".join(library.command("version -f"))
            if not any("no such command" in line for line in library.command("osdi")):
                text += " OSDI"  # which it does not list
        return [name for name in ("OpenMP", "KLU", "OSDI", "XSPICE", "CIDER") if name in text]

    # -------------------------------------------------------------- internals

    @classmethod
    def _ready(cls) -> _Library:
        if cls._library is None:
            path = installation.shared_library().path
            with _without_init_files():
                try:
                    cls._library = _Library(path)
                except AttributeError as error:  # cffi finds a function missing
                    text = f"{path} is no libngspice: {error}"
                    raise installation.NgspiceNotFoundError(text) from None
            # OpenMP's team start costs more than a small string's device evaluation, and
            # OMP_NUM_THREADS does not reach it: ngspice sets the number itself.
            cls._library.command("set num_threads=1")
            cls._load_models(cls._library)
        return cls._library

    @classmethod
    def _load_models(cls, library: _Library) -> None:
        for model in installation.osdi_models():
            complaint = library.command(f"osdi {model}")
            if complaint:
                cls._recycle()
                name = f"libngspice at {installation.shared_library().path}"
                refusal = installation.osdi_refusal(name, complaint)
                raise installation.NgspiceNotFoundError(refusal or complaint[-1])

    @classmethod
    def _recycle(cls) -> None:
        cls._loaded = None
        cls._altered = {}
        if cls._library is not None and cls._dead is None:
            cls._library.close()
            cls._library = None

    @classmethod
    def _unload(cls, library: _Library) -> None:
        library.command("destroy all")
        if cls._loaded is not None:
            library.command("delete all")  # saves and breakpoints outlive their circuit
            library.command("remcirc")
        cls._loaded = None
        cls._altered = {}

    @classmethod
    def _load(cls, library: _Library, deck: Deck) -> bool:
        cls._unload(library)
        library.forget_history()
        refused = library.circ(deck.text()) != 0 or library.exited
        if not refused and deck.analysis.stop_when is not None:
            library.command(deck.analysis.stop_when.command)
        cls._loaded = deck.digest
        return not refused

    @classmethod
    def _run(cls, library: _Library, deck: Deck, time_limit: float) -> RawResult:
        paused, result = cls._attempt(library, deck, time_limit)
        if paused:
            # A stop condition met at the very last point of a run leaves its pause request
            # behind, and the next run pauses where it starts. That cleared it: run again.
            paused, result = cls._attempt(library, deck, time_limit)
        return result

    @classmethod
    def _attempt(cls, library: _Library, deck: Deck, time_limit: float) -> tuple[bool, RawResult]:
        """Run once; also say whether ngspice paused without having been asked to."""
        library.command("destroy all")
        library.command("set sim_status=1")
        library.finished.clear()
        library.command("bg_run")
        in_time = library.finished.wait(time_limit)
        if not in_time:
            return False, cls._halt(library, deck, time_limit)
        failed = library.command("echo $sim_status")[-1].split()[-1] != "0"
        plot = library.current_plot()
        log = tuple(library.lines)
        if plot.startswith(deck.analysis.plot[0]):
            waves = Waveforms(library.vectors(plot))
            status, reason, early = judge(waves, deck.analysis, failed)
            if status is not Status.OK:
                reason = explained(reason, log, deck)
            result = RawResult(status, reason, waves, early, library.thread_seconds, log)
        else:
            result = _failed(Status.DECK_ERROR, summarise(log, deck), log)
        return not failed and result.status is not Status.OK, result

    @classmethod
    def _halt(cls, library: _Library, deck: Deck, time_limit: float) -> RawResult:
        library.command("bg_halt")
        if not library.finished.wait(HALT_GRACE_SECONDS):
            cls._dead = "libngspice did not stop after its time limit; restart this process"
            return _failed(Status.TIMEOUT, cls._dead)
        plot = library.current_plot()
        vectors = library.vectors(plot) if plot.startswith(deck.analysis.plot[0]) else {}
        reason = f"time limit of {time_limit:g} s hit{_reached(vectors)}"
        log = tuple(library.lines)
        cls._unload(library)  # a halted run would be resumed by the next one
        return RawResult(Status.TIMEOUT, reason, Waveforms(vectors), False, time_limit, log)


@contextmanager
def _without_init_files() -> Iterator[None]:
    """Hide ``.spiceinit`` in the working and home folder: it may run commands and change results.

    ``ngSpice_nospiceinit`` would say so, but exists only since ngspice 43.
    """
    here, home = Path.cwd(), os.environ.get("HOME")
    with tempfile.TemporaryDirectory(prefix="nandcosim-") as empty:
        os.chdir(empty)
        os.environ["HOME"] = empty
        try:
            yield
        finally:
            os.chdir(here)
            if home is None:
                del os.environ["HOME"]
            else:
                os.environ["HOME"] = home


def _reached(vectors: Mapping[str, np.ndarray]) -> str:
    time_points = vectors.get("time")
    if time_points is None or not time_points.size:
        return ""
    return f" at {time_points[-1]:.6g} s of simulated time"


def _failed(status: Status, reason: str, log: tuple[str, ...] = ()) -> RawResult:
    return RawResult(status, reason, Waveforms({}), log=log)


def _alter_commands(alter: Mapping[str, float]) -> Iterable[str]:
    """Join ``alter`` statements into as few commands as ngspice's length limit allows."""
    joined = ""
    for element, value in alter.items():
        statement = f"alter {element} = {value!r}"
        if joined and len(joined) + len(statement) + 2 > NgSpiceShared.MAX_COMMAND_LENGTH:
            yield joined
            joined = statement
        else:
            joined = f"{joined}; {statement}" if joined else statement
    if joined:
        yield joined
