"""A sweep file is either understood or refused with one clear line."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from nandcosim.errors import InputError
from nandcosim.sweep import SweepSpec, load_circuit, load_spec, parse_spec
from nandcosim.sweep.spec import checked_points

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

HEAD = 'circuit = "circuits_for_tests:RCDischarge"\nsamples = 10\nseed = 1\n'
NORMAL = '[[random]]\ntarget = "excess"\ndistribution = "normal"\nmean = 0.0\nstd = 0.1\n'


def load(tmp_path: Path, text: str) -> SweepSpec:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return load_spec(path)


# (text, parts of the message)
MISTAKES = {
    "invalid TOML": (HEAD + "[axes\n", ["invalid TOML", "line 4"]),
    "unknown key": (HEAD + "sampels = 3\n", ["sampels", "did you mean 'samples'?"]),
    "unknown random key": (
        HEAD + NORMAL + "corelation = 0.1\n",
        ["random[0].corelation", "did you mean 'correlation'?"],
    ),
    "missing key": (
        'circuit = "circuits_for_tests:RCDischarge"\nseed = 1\n',
        ["samples", "missing"],
    ),
    "fractional samples": (HEAD.replace("10", "10.5"), ["samples: found 10.5", "integer"]),
    "no samples": (HEAD.replace("10", "0"), ["samples: found 0", "greater than or equal to 1"]),
    "negative seed": (HEAD.replace("seed = 1", "seed = -1"), ["seed: found -1"]),
    "unknown sampler": (HEAD + 'sampler = "halton"\n', ["sampler: found 'halton'", "'sobol'"]),
    "unknown circuit": (
        HEAD.replace("circuits_for_tests:RCDischarge", "nand_strnig"),
        ["'nand_strnig' is unknown", "registered circuits:"],
    ),
    "circuit that cannot be imported": (
        HEAD.replace("circuits_for_tests:", "no_such_module:"),
        ["no_such_module:RCDischarge cannot be imported"],
    ),
    "class that is no circuit": (
        HEAD.replace(":RCDischarge", ":RCParams"),
        ["expected a Circuit class"],
    ),
    "unknown response": (
        HEAD + 'responses = ["t_halve"]\n',
        ["responses: found 't_halve'", "did you mean 't_half'?", "v_end"],
    ),
    "response twice": (HEAD + 'responses = ["v_end", "v_end"]\n', ["responses", "twice"]),
    "no response": (HEAD + "responses = []\n", ["responses: is empty", "t_half, v_end"]),
    "unknown parameter": (
        HEAD + "[parameters]\nresistanse = 1\n",
        ["parameters.resistanse: unknown", "did you mean 'resistance'?"],
    ),
    "wrong unit": (
        HEAD + '[parameters]\nresistance = "20 fF"\n',
        ["parameters.resistance", "'20 fF'", "ohm"],
    ),
    "text for a number": (
        HEAD + '[parameters]\nresistance = "many"\n',
        ["parameters.resistance", "'many'", "ohm"],
    ),
    "parameter out of bounds": (
        HEAD + "[parameters]\nprecharge = 9.0\n",
        ["parameters.precharge: found 9.0", "less than or equal to 5"],
    ),
    "fraction for a whole number": (
        HEAD + "[parameters]\nstages = 2.5\n",
        ["parameters.stages: found 2.5", "integer"],
    ),
    "number that is not finite": (
        HEAD + "[parameters]\nprecharge = nan\n",
        ["parameters.precharge: found nan", "finite"],
    ),
    "parameter and axis": (
        HEAD + "[parameters]\nprecharge = 1.0\n[axes]\nprecharge = [1.0]\n",
        ["parameters.precharge", "axes.precharge"],
    ),
    "axis out of bounds": (
        HEAD + "[axes]\nprecharge = [1.0, 9.0]\n",
        ["axes.precharge: found 9.0", "less than or equal to 5"],
    ),
    "empty axis": (HEAD + "[axes]\nprecharge = []\n", ["axes.precharge: is empty"]),
    "duplicate axis value": (
        HEAD + '[axes]\ncapacitance = [1e-9, "1 nF"]\n',
        ["axes.capacitance", "'1 nF' appears twice"],
    ),
    "scalar axis": (HEAD + "[axes]\nprecharge = 1.0\n", ["axes.precharge: found 1.0", "list"]),
    "useless axis": (
        HEAD + "[axes]\nprechrage = [1.0]\n",
        ["axes.prechrage", "no random variable uses it", "did you mean 'precharge'?"],
    ),
    "axis with a reserved name": (HEAD + "[axes]\nsample = [1.0]\n", ["axes.sample", "taken"]),
    "axis named like a response": (HEAD + "[axes]\nv_end = [1.0]\n", ["axes.v_end", "taken"]),
    "linspace without num": (
        HEAD + "[axes]\nprecharge = {start = 1, stop = 2}\n",
        ["axes.precharge.num: is missing"],
    ),
    "linspace with an unknown key": (
        HEAD + "[axes]\nprecharge = {start = 1, stop = 2, number = 3}\n",
        ["axes.precharge.number: unknown", "num"],
    ),
    "log axis through zero": (
        HEAD + '[axes]\nprecharge = {start = 0, stop = 2, num = 3, spacing = "log"}\n',
        ["axes.precharge", "log spacing", "> 0"],
    ),
    "linspace of text": (
        HEAD + "[axes]\ncorner = {start = 1, stop = 2, num = 3}\n",
        ["axes.corner", "text"],
    ),
    "unknown target": (
        HEAD + NORMAL.replace("excess", "exces"),
        ["random[0].target: found 'exces'", "did you mean 'excess'?"],
    ),
    "text target": (HEAD + NORMAL.replace("excess", "corner"), ["random[0].target", "'corner'"]),
    "random and axis": (
        HEAD + "[axes]\nprecharge = [1.0]\n" + NORMAL.replace("excess", "precharge"),
        ["random[0].target", "axes.precharge"],
    ),
    "random and fixed": (
        HEAD + "[parameters]\nprecharge = 1.0\n" + NORMAL.replace("excess", "precharge"),
        ["random[0].target", "parameters.precharge"],
    ),
    "random parameter out of bounds": (
        HEAD + NORMAL.replace("excess", "precharge"),
        ["random[0]", "median of 'precharge' is 0.0", "greater than or equal to 0.1"],
    ),
    "unknown distribution": (
        HEAD + NORMAL.replace('"normal"', '"gauss"'),
        ["random[0].distribution: found 'gauss'", "student-t"],
    ),
    "missing distribution parameter": (
        HEAD + NORMAL.replace("std = 0.1\n", ""),
        ["random[0].std: is missing", "mean, std"],
    ),
    "parameter of another distribution": (
        HEAD + NORMAL + "low = 0.0\n",
        ["random[0].low", "no parameter of normal"],
    ),
    "negative std": (HEAD + NORMAL.replace("0.1", "-0.1"), ["random[0]: std = -0.1 is negative"]),
    "truth value for a number": (HEAD + NORMAL.replace("0.1", "true"), ["random[0].std", "True"]),
    "negative std on an axis": (
        HEAD + "[axes]\nsigma = [0.1, -0.2]\n" + NORMAL.replace("0.1", '"sigma"'),
        ["random[0]: std = -0.2 is negative", "axes.sigma"],
    ),
    "std that is no axis": (
        HEAD + "[axes]\nsigma = [0.1]\n" + NORMAL.replace("0.1", '"sgima"'),
        ["random[0].std: found 'sgima'", "did you mean 'sigma'?"],
    ),
    "std on a text axis": (
        HEAD + '[axes]\ncorner = ["tt"]\n' + NORMAL.replace("0.1", '"corner"'),
        ["random[0].std", "'corner' holds text"],
    ),
    "uniform upside down": (
        HEAD + '[[random]]\ntarget = "excess"\ndistribution = "uniform"\nlow = 1.0\nhigh = 1.0\n',
        ["random[0]: low = 1 is not below high = 1"],
    ),
    "lognormal of nothing": (
        HEAD
        + NORMAL.replace("normal", "lognormal").replace("mean", "median").replace("std", "log_std"),
        ["random[0]: median = 0 is not positive"],
    ),
    "correlation too low": (
        HEAD + "[parameters]\nstages = 5\n" + NORMAL + "correlation = -0.3\n",
        ["random[0].correlation: found -0.3", "-0.25 to 1"],
    ),
    "correlation too high": (
        HEAD + NORMAL + "correlation = 1.1\n",
        ["random[0].correlation: found 1.1", "to 1"],
    ),
    "two kinds of correlation": (
        HEAD + NORMAL + "correlation = 0.1\ncorrelation_length = 2.0\n",
        ["random[0].correlation_length", "correlation is also given"],
    ),
    "correlation length of zero": (
        HEAD + NORMAL + "correlation_length = 0.0\n",
        ["random[0].correlation_length: found 0", "> 0"],
    ),
    "correlation of a shared draw": (
        HEAD + NORMAL + "shared = true\ncorrelation = 0.1\n",
        ["random[0].shared"],
    ),
    "unknown group": (
        HEAD + NORMAL + 'cells = "frist"\n',
        ["random[0].cells: found 'frist'", "did you mean 'first'?"],
    ),
    "cell outside": (HEAD + NORMAL + "cells = [0, 2]\n", ["random[0].cells: found 2", "0 to 1"]),
    "cell twice": (HEAD + NORMAL + "cells = [1, 1]\n", ["random[0].cells", "twice"]),
    "cells of a parameter": (
        HEAD + NORMAL.replace("excess", "precharge").replace("0.0", "1.0") + 'cells = "all"\n',
        ["random[0].cells", "'precharge' is a parameter"],
    ),
    "more samples than a store holds": (
        HEAD.replace("10", "1000000000") + NORMAL,
        ["samples: found 1000000000 at each of 1 grid points", "100,000,000 in all"],
    ),
    "Latin hypercube too large": (
        HEAD.replace("10", "90000000") + 'sampler = "latin-hypercube"\n' + NORMAL,
        ["samples: found 90000000 x 2", "use sobol or monte-carlo"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_with_file_and_key(name: str, tmp_path: Path) -> None:
    text, parts = MISTAKES[name]
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{tmp_path / 'sweep.toml'}: ")
    for part in parts:
        assert part in message


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.toml: cannot be read"):
        load_spec(tmp_path / "nothing.toml")


def test_values_are_in_declared_units(tmp_path: Path) -> None:
    text = (
        HEAD
        + '[parameters]\ncapacitance = "20 fF"\n[axes]\ntemperature = ["300 K", 85]\n'
        + 'stages = [1, 2.0]\ncorner = ["tt", "ss"]\n'
        + 'precharge = {start = "800 mV", stop = 1.0, num = 3}\n'
    )
    spec = load(tmp_path, text)
    assert spec.parameters["capacitance"] == pytest.approx(20e-15, rel=1e-12)
    assert spec.axes["temperature"] == pytest.approx((26.85, 85.0))
    assert spec.axes["precharge"] == pytest.approx((0.8, 0.9, 1.0))
    assert spec.axes["stages"] == (1, 2)
    assert all(type(value) is int for value in spec.axes["stages"])
    assert spec.dims == ("temperature", "stages", "corner", "precharge", "sample")
    assert spec.coordinates(1) == {
        "temperature": spec.axes["temperature"][0],
        "stages": 1,
        "corner": "tt",
        "precharge": spec.axes["precharge"][1],
    }
    assert spec.units == {"temperature": "degC", "stages": "1", "corner": "", "precharge": "V"}


def test_spread_of_a_temperature_is_a_difference(tmp_path: Path) -> None:
    text = HEAD + NORMAL.replace("excess", "temperature").replace("0.1", '"9 delta_degF"')
    (entry,) = load(tmp_path, text).random
    assert entry.std == pytest.approx(5.0)


def test_equal_meaning_gives_equal_digest(tmp_path: Path) -> None:
    one = load(tmp_path, HEAD + '[parameters]\nprecharge = 1.0\nstages = 2\ncapacitance = "1 nF"\n')
    two = load(tmp_path, HEAD + "[parameters]\nstages = 2.0\ncapacitance = 1e-9\nprecharge = 1\n")
    assert one.digest == two.digest
    other = load(tmp_path, HEAD.replace("seed = 1", "seed = 2"))
    assert other.digest != one.digest


def test_order_of_axes_is_part_of_the_digest(tmp_path: Path) -> None:
    one = load(tmp_path, HEAD + "[axes]\nprecharge = [1.0]\nstages = [2]\n")
    two = load(tmp_path, HEAD + "[axes]\nstages = [2]\nprecharge = [1.0]\n")
    assert one.digest != two.digest


def test_spec_survives_its_canonical_text(tmp_path: Path) -> None:
    text = HEAD + '[axes]\nsigma = [0.0, 0.1]\ncorner = ["tt"]\n' + NORMAL.replace("0.1", '"sigma"')
    spec = load(tmp_path, text + "cells = [1]\n")
    again = SweepSpec.model_validate_json(spec.canonical_json())
    assert again == spec
    assert again.digest == spec.digest


def test_examples_of_the_documentation_are_valid() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    first, second = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert parse_spec(tomllib.loads(first)).grid_shape == (4, 4, 2, 3)
    head = 'circuit = "dts_sense"\nsamples = 1\nseed = 1\n'
    local, common = parse_spec(tomllib.loads(head + second)).random
    assert (local.shared, common.shared) == (False, True)


def test_large_grids_are_checked_along_every_axis() -> None:
    shape = (200, 300)
    points = list(checked_points(shape))
    assert len(points) == 500
    assert {point // 300 for point in points} == set(range(200))
    assert {point % 300 for point in points} == set(range(300))


def test_registry_names_what_it_knows() -> None:
    with pytest.raises(InputError, match="dts_sense"):
        load_circuit("no_such_circuit")
