"""The command that is suggested where a level map is missing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from nandcosim.errors import InputError
from nandcosim.spice.netlists import find_netlist
from nandcosim.spice.settings import circuit_params
from nandcosim.sweep import load_circuit

DTS = load_circuit("dts_sense")


def suggested(params: Any) -> dict[str, str]:
    """The settings of the command in the message."""
    with pytest.raises(InputError, match="no level map") as caught:
        DTS.build(params)
    found = re.search(r"run 'nandcosim (.*) --out levels\.toml'", str(caught.value))
    assert found
    command, circuit, *settings = shlex.split(found[1])
    assert (command, circuit, *set(settings[::2])) == ("calibrate", "dts_sense", "--set")
    return dict(text.split("=", 1) for text in settings[1::2])


def test_the_command_has_every_setting_that_was_changed(tmp_path: Path) -> None:
    """And thus makes the map for the very circuit that was refused."""
    card = tmp_path / "my card.lib"
    card.write_text(find_netlist("planar16lp", "models", ".lib").read_text() + "* mine\n")
    params = DTS.Params(
        card=str(card), cells=77, vdd=1.1, v_trip=0.45, v_pass=1.3, w_cell=90e-9, l_cell=25e-9
    )
    assert circuit_params(DTS, suggested(params), "--set") == params


def test_the_command_leaves_the_defaults_out() -> None:
    assert suggested(DTS.Params(cells=77)) == {"cells": "77"}
