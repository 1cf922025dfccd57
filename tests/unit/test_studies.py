"""What commands of studies share: their parts, and errors of one line."""

from __future__ import annotations

import argparse

import pytest

from nandcosim.errors import InputError
from nandcosim.studies import one_line_errors, parse_parts, print_parts, split_settings


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="study")


def test_all_parts_by_default_in_their_order() -> None:
    assert parse_parts(parser(), ["b", "a"], []).parts == ["b", "a"]
    assert parse_parts(parser(), ["b", "a"], ["a"]).parts == ["a"]


def test_unknown_parts_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_parts(parser(), ["a", "b"], ["a", "x"])
    assert left.value.code == 2
    assert "found x, allowed: a, b" in capsys.readouterr().err


def test_parts_are_printed_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_parts({"a": lambda: ["1", "2"], "b": lambda: ["3"]}, ["b", "a"])
    assert capsys.readouterr().out.splitlines() == ["== b", "3", "== a", "1", "2"]


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    @one_line_errors
    def fails() -> None:
        raise InputError("file: key: found 1, allowed: 2")

    assert fails() == InputError.exit_code
    assert capsys.readouterr().err == "error: file: key: found 1, allowed: 2\n"


@pytest.mark.parametrize("settings", [["a"], ["a="], ["=1"], ["a=1", "a=2"]])
def test_wrong_settings(settings: list[str]) -> None:
    with pytest.raises(InputError, match="--set"):
        split_settings(settings)
