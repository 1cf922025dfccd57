"""One contract, two backends: what a run's status means (and what it never means)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from nandcosim.spice.circuit import StopWhen, Transient
from nandcosim.spice.deck import Deck
from nandcosim.spice.engine import BACKENDS
from nandcosim.spice.process import ProcessBackend
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

RC = "rc discharge\nv1 in 0 0\nr1 in out 1k\nc1 out 0 1p\n.ic v(out)=1"
DIES_MIDWAY = (
    "a source that runs away at 1 ns\nv1 1 0 pulse(0 1 1n 1n 1n 1 2)\n"
    "b1 2 0 v=v(1)>0.5 ? exp(1e4*v(2)) : 0\nr1 2 0 1k"
)
CONTRADICTION = "two sources, one node\nv1 1 0 1\nv2 1 0 2\nr1 1 0 1k"
#: Back-to-back diode chains in a loop that plain Newton does not solve from zero.
NEEDS_STEPPING = "\n".join(
    ["an operating point that needs gmin or source stepping", "v1 1 0 40", "r1 1 2 1"]
    + [
        f"q{i} {2 * i} {2 * i} {2 * i + 2} qm\nb{i} {2 * i + 2} 0 i=1e-3*exp(v({2 * i + 2}))"
        for i in range(1, 6)
    ]
    + [".model qm npn is=1e-18 bf=1000", "r2 12 0 1"]
)


def deck(netlist: str, stop: float = 10e-9, saved: tuple[str, ...] = ("v(out)",), **more) -> Deck:
    step = more.pop("step", stop / 1000)
    return Deck(netlist, Transient(stop, step, step, more.pop("stop_when", None)), saved, **more)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request):
    made = BACKENDS[request.param]()
    yield made
    made.close()


def test_rc_discharge_follows_its_closed_form(backend) -> None:
    result = backend.run(deck(RC))
    assert result.status is Status.OK
    time, out = result.waveforms.time, result.waveforms["v(out)"]
    # trapezoidal rule: relative error per time constant (step / tau)**2 / 12 = 1e-5
    np.testing.assert_allclose(out, np.exp(-time / 1e-9), rtol=0, atol=1e-5)
    assert time[-1] == pytest.approx(10e-9, rel=1e-9)


def test_contradictory_operating_point_is_no_convergence(backend) -> None:
    result = backend.run(deck(CONTRADICTION, saved=("v(1)",)))
    assert result.status is Status.NO_CONVERGENCE
    assert result.reason
    assert "\n" not in result.reason


def test_transient_that_dies_midway_is_truncated_never_success(backend) -> None:
    result = backend.run(deck(DIES_MIDWAY, saved=("v(2)",), step=0.01e-9))
    assert result.status is Status.TRUNCATED
    assert "died at" in result.reason
    assert 0 < result.waveforms.time[-1] < 10e-9, "the partial waveform stays there to look at"


def test_successful_stepping_is_success(backend) -> None:
    result = backend.run(deck(NEEDS_STEPPING, saved=("v(2)",)))
    assert any("stepping" in line for line in result.log), "the deck no longer needs stepping"
    assert result.status is Status.OK


@pytest.mark.parametrize(
    ("netlist", "fragment"),
    [
        ("t\nv1 out 0 1\nm1 out 2 0 0 nomodel w=1u l=1u", "line 3: m1 out 2 0 0 nomodel"),
        ("t\nv1 out 0 1\nr1 out 0 abc", "line 3: r1 out 0 abc"),
        ("t\nv1 out 0 1\n.foo 1 2", "line 3: .foo 1 2"),
        ("t\nv1 out 0 1\nx1 out 0 nosuch", "nosuch"),
        ("t\nv1 out 0 1\n.include /nowhere/card.lib\nr1 out 0 1k", "/nowhere/card.lib"),
        ("t\nv1 out 0 {foo}\nr1 out 0 1k", "foo"),
    ],
)
def test_deck_error_names_the_line(backend, netlist: str, fragment: str) -> None:
    result = backend.run(deck(netlist))
    assert result.status is Status.DECK_ERROR
    assert fragment.lower() in result.reason.lower()
    assert backend.run(deck(RC)).status is Status.OK, "the backend did not recover"


def test_asking_for_a_vector_that_is_not_there_is_a_deck_error(backend) -> None:
    assert backend.run(deck(RC, saved=("v(nowhere)",))).status is Status.DECK_ERROR


def test_time_limit(backend) -> None:
    endless = deck(RC, stop=1.0, step=1e-12)
    result = backend.run(endless, time_limit=0.3)
    assert result.status is Status.TIMEOUT
    assert "0.3 s" in result.reason
    again = backend.run(deck(RC))
    assert again.status is Status.OK
    assert again.waveforms.time[-1] == pytest.approx(10e-9)


def test_session_recovers_bit_for_bit_after_failures(backend) -> None:
    before = backend.run(deck(RC)).waveforms
    for bad in (CONTRADICTION, DIES_MIDWAY, "t\nv1 out 0 {foo}\nr1 out 0 1k"):
        backend.run(deck(bad, saved=("v(2)",) if bad is DIES_MIDWAY else ("v(1)",)))
    after = backend.run(deck(RC)).waveforms
    assert {k: v.tobytes() for k, v in before.items()} == {k: v.tobytes() for k, v in after.items()}


def test_state_does_not_leak_between_decks(backend) -> None:
    """Options, saves and temperature of one deck do not reach the next."""
    reference = backend.run(deck(RC)).waveforms
    loose = deck(
        RC, saved=("v(in)",), options={"reltol": "0.1", "method": "gear"}, temperature=125.0
    )
    assert backend.run(loose).status is Status.OK
    again = backend.run(deck(RC)).waveforms
    assert set(again) == set(reference)
    np.testing.assert_array_equal(again["v(out)"], reference["v(out)"])


def test_init_files_of_the_user_are_not_read(backend, tmp_path: Path) -> None:
    """A ``.spiceinit`` at home or in the working folder can run commands; ours does not let it."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
        (folder / ".spiceinit").write_text(f"shell touch {folder}/ran\n")
    code = (
        "from tests.contract.test_backends import BACKENDS, RC, deck\n"
        f"assert BACKENDS[{backend.name!r}]().run(deck(RC)).status == 0\n"
    )
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", code], cwd=work, env=environment, check=True)
    assert not (home / "ran").exists()
    assert not (work / "ran").exists()


def test_backends_agree_to_the_bit() -> None:
    """Same solver version, same deck: the same numbers, whichever way it runs."""
    if SharedBackend.version() != ProcessBackend.version():
        pytest.skip("library and executable are of different versions")
    shared, process = (BACKENDS[name]().run(deck(RC)).waveforms for name in ("shared", "process"))
    np.testing.assert_allclose(shared["v(out)"], process["v(out)"], rtol=0, atol=1e-12)


class TestShared:
    """What only the in-process backend can do."""

    def test_altered_deck_equals_rebuilt_deck(self) -> None:
        backend = SharedBackend()
        rebuilt = backend.run(deck(RC.replace("1k", "2.5k"))).waveforms
        altered = backend.run(deck(RC), alter={"r1": 2500.0}).waveforms
        np.testing.assert_allclose(altered["v(out)"], rebuilt["v(out)"], rtol=1e-12, atol=1e-15)

    def test_what_was_altered_does_not_leak(self) -> None:
        backend = SharedBackend()
        reference = backend.run(deck(RC)).waveforms
        backend.run(deck(RC), alter={"r1": 2500.0})
        np.testing.assert_array_equal(backend.run(deck(RC)).waveforms["out"], reference["out"])

    def test_altering_back_and_forth_gives_the_same_bits(self) -> None:
        backend = SharedBackend()
        first = backend.run(deck(RC), alter={"r1": 2500.0, "c1": 2e-12}).waveforms
        backend.run(deck(RC), alter={"r1": 2500.0, "c1": 1e-12})
        backend.run(deck(RC), alter={"r1": 1000.0, "c1": 1e-12})
        again = backend.run(deck(RC), alter={"r1": 2500.0, "c1": 2e-12}).waveforms
        np.testing.assert_array_equal(again["out"], first["out"])

    def test_altering_what_is_not_there_is_a_deck_error(self) -> None:
        result = SharedBackend().run(deck(RC), alter={"rnowhere": 2500.0})
        assert result.status is Status.DECK_ERROR
        assert "rnowhere" in result.reason
        assert SharedBackend().run(deck(RC)).status is Status.OK

    def test_library_that_cannot_be_loaded_is_one_line(self, tmp_path: Path) -> None:
        wrong = tmp_path / "libngspice.so"
        wrong.write_text("no library")
        done = subprocess.run(
            [sys.executable, "-m", "nandcosim", "simulate", "nand_string"],
            env={**os.environ, "NGSPICE_LIBRARY_PATH": str(wrong)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "cannot be loaded" in done.stderr

    def test_stop_when_ends_early_and_says_so(self) -> None:
        condition = StopWhen((("v(out)", "<", 0.5),))
        early = SharedBackend().run(deck(RC, stop_when=condition))
        assert early.status is Status.OK
        assert early.stopped_early
        assert early.waveforms["v(out)"][-1] < 0.5
        whole = SharedBackend().run(deck(RC)).waveforms
        count = early.waveforms.time.size
        np.testing.assert_array_equal(early.waveforms["v(out)"], whole["v(out)"][:count])

    def test_condition_never_met_runs_to_the_end(self) -> None:
        condition = StopWhen((("v(out)", ">", 5.0),))
        result = SharedBackend().run(deck(RC, stop_when=condition))
        assert result.status is Status.OK
        assert not result.stopped_early

    def test_condition_met_at_the_last_point_does_not_pause_the_next_run(self) -> None:
        """ngspice keeps the pause request and would stop the next run where it starts."""
        backend = SharedBackend()
        whole = backend.run(deck(RC)).waveforms["v(out)"]
        between = float(whole[-2] + whole[-1]) / 2
        last = backend.run(deck(RC, stop_when=StopWhen((("v(out)", "<", between),))))
        assert last.waveforms.time.size == whole.size
        after = backend.run(deck(RC))
        assert after.status is Status.OK
        np.testing.assert_array_equal(after.waveforms["v(out)"], whole)

    @pytest.mark.long
    def test_memory_is_flat_over_2000_runs(self) -> None:
        backend = SharedBackend()
        one, other = deck(RC), deck(RC.replace("1k", "3k"))
        process = psutil.Process()

        def run(count: int) -> int:
            for index in range(count):
                # half of the runs load a deck, half alter the one in memory
                backend.run((one, other)[index // 2 % 2], alter={"r1": 1e3 + index})
            gc.collect()
            return int(process.memory_info().rss)

        warm = run(200)
        growth = run(2000) - warm
        assert growth < 2000 * 2048, f"{growth / 2000 / 1024:.1f} KiB a run"

    def test_solver_threads_are_pinned(self) -> None:
        backend = SharedBackend()
        backend.run(deck(RC))
        assert SharedBackend._library is not None
        answer = SharedBackend._library.command("echo $num_threads")[-1]
        assert answer.split()[-1] == "1"

    def test_nothing_of_pyspice_reaches_the_user(self) -> None:
        code = (
            "from nandcosim.spice.shared import SharedBackend\n"
            "from tests.contract.test_backends import RC, deck\n"
            "SharedBackend().run(deck(RC))\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", code],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == ""
        assert done.stderr == ""


def test_crash_of_the_executable_is_a_status(tmp_path: Path, monkeypatch) -> None:
    """The process really dies of SIGSEGV; the sample says so and the next one runs."""
    wrapper = tmp_path / "ngspice"
    wrapper.write_text("#!/bin/sh\nkill -SEGV $$\n")
    wrapper.chmod(0o755)
    from nandcosim.spice import installation

    with monkeypatch.context() as patch:
        patch.setenv("NGSPICE", str(wrapper))
        installation.executable.cache_clear()
        result = ProcessBackend().run(deck(RC))
    installation.executable.cache_clear()
    assert result.status is Status.CRASHED
    assert "signal 11" in result.reason
    assert ProcessBackend().run(deck(RC)).status is Status.OK
