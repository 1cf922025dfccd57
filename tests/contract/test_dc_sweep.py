"""DC sweeps: the contract of `test_backends`, for the other kind of analysis."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.report.waveforms import plot_waveforms
from nandcosim.spice import installation
from nandcosim.spice.circuit import DcSweep, Marks, SweptSource, Transient
from nandcosim.spice.deck import Deck
from nandcosim.spice.engine import BACKENDS
from nandcosim.spice.netlists import find_netlist
from nandcosim.spice.shared import SharedBackend
from nandcosim.spice.status import Status

DIVIDER = "divider\nv1 in 0 0\nv2 x 0 0\nr1 in out 1k\nr2 out x 3k"
CELL = "\n".join(
    [
        "one cell",
        ".param dvthn=0 dvthp=0 mobn=1 mobp=1",
        find_netlist("planar16lp", "models", ".lib").read_text(),
        "vd d 0 0\nvg g 0 1\nvs s 0 0\nm1 d g s 0 cell w=100n l=30n",
    ]
)
#: -v = 1 + v**2 has no solution; it is asked for once v1 has passed 0.55.
DIES_MIDWAY = "dies\nv1 1 0 0\nb1 2 0 i=v(1)>0.55 ? 1+v(2)*v(2) : 0\nr1 2 0 1"
CONTRADICTION = "two sources, one node\nv1 1 0 1\nv2 1 0 2\nr1 1 0 1k"
ONE = SweptSource("v1", 0.0, 1.0, 11)


def deck(netlist: str, analysis: DcSweep, *saved: str, **more: Any) -> Deck:
    return Deck(netlist, analysis, saved, **more)


@pytest.fixture(params=sorted(BACKENDS))
def backend(request):
    made = BACKENDS[request.param]()
    yield made
    made.close()


def test_divider_follows_its_closed_form(backend) -> None:
    result = backend.run(deck(DIVIDER, DcSweep(ONE), "v(out)", "i(v1)"))
    assert result.status is Status.OK, result.reason
    swept = result.waveforms.swept
    assert result.waveforms.scale == "v-sweep"
    np.testing.assert_allclose(swept, np.linspace(0.0, 1.0, 11), rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.waveforms["v(out)"], 0.75 * swept, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(result.waveforms["i(v1)"], -swept / 4e3, rtol=1e-9, atol=1e-15)


def test_two_sources_the_first_runs_fastest(backend) -> None:
    inner, outer = SweptSource("v1", 1.0, -1.0, 5), SweptSource("v2", 0.0, 0.6, 3)
    result = backend.run(deck(DIVIDER, DcSweep(inner, outer), "v(out)", "v(x)"))
    assert result.status is Status.OK, result.reason
    v1, v2 = np.linspace(1.0, -1.0, 5), np.linspace(0.0, 0.6, 3)[:, None]
    waves = result.waveforms
    np.testing.assert_allclose(waves.swept.reshape(3, 5), np.tile(v1, (3, 1)), atol=1e-12)
    np.testing.assert_allclose(waves["out"].reshape(3, 5), v1 * 0.75 + v2 * 0.25, atol=1e-9)


@pytest.mark.parametrize("points", [1, 2, 7, 1001])
def test_every_point_is_there_whatever_the_step_rounds_to(backend, points) -> None:
    sweep = DcSweep(SweptSource("v1", 0.1, 1.2, points))
    result = backend.run(deck(DIVIDER, sweep, "v(out)"))
    assert result.status is Status.OK, result.reason
    assert result.waveforms["v(out)"].size == points
    assert result.waveforms["v(out)"][0] == pytest.approx(0.075)


def test_swept_current_source(backend) -> None:
    netlist = "a current\ni1 0 out 0\nr1 out 0 2k"
    result = backend.run(deck(netlist, DcSweep(SweptSource("i1", 0.0, 1e-3, 5)), "v(out)"))
    assert result.status is Status.OK, result.reason
    assert result.waveforms.scale == "i-sweep"
    np.testing.assert_allclose(result.waveforms["v(out)"], 2e3 * result.waveforms.swept)


def test_transistor_equals_ngspice_batch_mode(backend, tmp_path: Path) -> None:
    """Currents that ``ngspice -b`` prints itself, without our raw-file reader."""
    sweep = DcSweep(SweptSource("vd", 0.0, 0.8, 5), SweptSource("vg", 0.4, 1.2, 3))
    whole = deck(CELL, sweep, "i(vd)")
    ours = -backend.run(whole).require_ok().waveforms["i(vd)"]
    text = whole.text().replace(".end\n", ".print dc i(vd)\n.end\n")
    (tmp_path / "cell.cir").write_text(text)
    (tmp_path / ".spiceinit").write_text("set numdgt=12\n")
    command = [installation.executable().path, "-b", "cell.cir"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = re.findall(r"^\d+\s+(\S+)\s+(\S+)\s*$", done.stdout, re.MULTILINE)
    theirs = -np.array([float(current) for _, current in rows])
    assert theirs.size == 15
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-18)
    linear = ours.reshape(3, 5)[:, 1:3]
    assert (np.diff(linear, axis=0) > 0).all(), "more gate voltage, more current"


def test_contradictory_operating_point_is_no_convergence(backend) -> None:
    result = backend.run(deck(CONTRADICTION, DcSweep(ONE), "v(1)"))
    assert result.status is Status.NO_CONVERGENCE
    assert result.reason
    assert "\n" not in result.reason


def test_sweep_that_dies_midway_is_truncated_never_success(backend) -> None:
    result = backend.run(deck(DIES_MIDWAY, DcSweep(ONE), "v(2)"))
    assert result.status is Status.TRUNCATED
    assert "died after 6 of 11 points" in result.reason
    assert result.waveforms.swept[-1] == pytest.approx(0.5)


def test_sweeping_what_is_not_there_is_a_deck_error(backend) -> None:
    nowhere = DcSweep(SweptSource("vnowhere", 0.0, 1.0, 3))
    result = backend.run(deck(DIVIDER, nowhere, "v(out)"))
    assert result.status is Status.DECK_ERROR
    assert "vnowhere" in result.reason
    assert backend.run(deck(DIVIDER, DcSweep(ONE), "v(out)")).status is Status.OK


def test_time_limit(backend) -> None:
    endless = deck(DIVIDER, DcSweep(SweptSource("v1", 0.0, 1.0, 10**8)), "v(out)")
    result = backend.run(endless, time_limit=0.3)
    assert result.status is Status.TIMEOUT
    assert backend.run(deck(DIVIDER, DcSweep(ONE), "v(out)")).status is Status.OK


def test_state_does_not_leak_between_analyses(backend) -> None:
    """A transient, a sweep and a failure between two sweeps change no bit of the second."""
    sweep = deck(CELL, DcSweep(SweptSource("vd", 0.0, 0.8, 9)), "i(vd)")
    first = backend.run(sweep).require_ok().waveforms
    other = Deck(CELL, Transient(1e-9, 1e-11, 1e-11), ("v(d)",), temperature=125.0)
    assert backend.run(other).status is Status.OK
    assert backend.run(deck(DIES_MIDWAY, DcSweep(ONE), "v(2)")).status is Status.TRUNCATED
    assert backend.run(deck(DIVIDER, DcSweep(ONE), "v(out)")).status is Status.OK
    again = backend.run(sweep).require_ok().waveforms
    assert {k: v.tobytes() for k, v in first.items()} == {k: v.tobytes() for k, v in again.items()}


@pytest.mark.parametrize(("start", "stop", "points"), [(0.0, 1.0, 0), (0.5, 0.5, 2)])
def test_sweep_without_points_is_refused(start, stop, points) -> None:
    with pytest.raises(InputError, match="sweep of v1"):
        SweptSource("v1", start, stop, points)


class TestShared:
    """What only the in-process backend can do."""

    def test_altered_deck_equals_rebuilt_deck(self) -> None:
        backend, sweep = SharedBackend(), DcSweep(SweptSource("vd", 0.0, 0.8, 9))
        raised = deck(CELL.replace("vg g 0 1\n", "vg g 0 0.9\n"), sweep, "i(vd)")
        rebuilt = backend.run(raised).require_ok().waveforms["i(vd)"]
        altered = backend.run(deck(CELL, sweep, "i(vd)"), alter={"vg": 0.9}).require_ok()
        np.testing.assert_allclose(altered.waveforms["i(vd)"], rebuilt, rtol=1e-6)

    def test_what_was_altered_or_swept_does_not_leak(self) -> None:
        backend, sweep = SharedBackend(), deck(DIVIDER, DcSweep(ONE), "v(out)")
        reference = backend.run(sweep).waveforms["out"]
        backend.run(sweep, alter={"v2": 0.5, "r1": 3e3})
        np.testing.assert_array_equal(backend.run(sweep).waveforms["out"], reference)
        held = DcSweep(SweptSource("v2", 0.0, 1.0, 3))  # v1 is back at the deck's 0 V
        out = backend.run(deck(DIVIDER, held, "v(out)")).waveforms
        np.testing.assert_allclose(out["out"], 0.25 * out.swept, atol=1e-12)


@pytest.mark.parametrize("saved", [("v(out)",), ("i(v1)",), ("v(out)", "i(v1)")])
@pytest.mark.parametrize("points", [1, 5])
def test_picture_is_drawn_against_the_swept_source(tmp_path: Path, saved, points) -> None:
    sweep = DcSweep(SweptSource("v1", 0.1, 1.0, points), SweptSource("v2", 0.0, 1.0, 3))
    waves = SharedBackend().run(deck(DIVIDER, sweep, *saved)).require_ok().waveforms
    picture = tmp_path / "sweep.svg"
    plot_waveforms(waves, Marks(), "divider", picture)
    assert "swept voltage" in picture.read_text()
