"""Measured arrays: kept, recalled, and measured again where the file is not what it should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nandcosim.spice import measured as module
from nandcosim.spice.measured import cache_folder, measured


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_held", {})


class Maker:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"values": np.arange(3.0) + self.calls}


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process would."""
    monkeypatch.setattr(module, "_held", {})


def test_recalled_from_memory_and_from_disk(monkeypatch) -> None:
    make = Maker()
    first = measured("x", "a deck", make)
    assert measured("x", "a deck", make) is first
    forget(monkeypatch)
    np.testing.assert_array_equal(measured("x", "a deck", make)["values"], first["values"])
    assert make.calls == 1
    measured("x", "another deck", make)
    measured("y", "a deck", make)
    assert make.calls == 3
    assert len(list(cache_folder().iterdir())) == 3, "and no draft is left"


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "other", "pickle"])
def test_damaged_file_is_measured_again(damage: str, monkeypatch) -> None:
    make = Maker()
    measured("x", "a deck", make)
    (path,) = cache_folder().iterdir()
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(b"no archive")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other":  # another content under this name
        np.savez(path, key=np.array("another key"), values=np.zeros(3))
    else:
        np.savez(path, key=np.array([object()], dtype=object))
    forget(monkeypatch)
    assert measured("x", "a deck", make)["values"][0] == 2.0
    forget(monkeypatch)
    assert measured("x", "a deck", make)["values"][0] == 2.0, "it was written anew"
    assert make.calls == 2


def test_flipped_bit_is_noticed(monkeypatch) -> None:
    make = Maker()
    measured("x", "a deck", make)
    (path,) = cache_folder().iterdir()
    content = bytearray(path.read_bytes())
    place = content.index(np.array([1.0]).tobytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))
    forget(monkeypatch)
    measured("x", "a deck", make)
    assert make.calls == 2


def test_folder_that_cannot_be_written_keeps_it_in_memory(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make = Maker()
    measured("x", "a deck", make)
    measured("x", "a deck", make)
    assert make.calls == 1
    forget(monkeypatch)
    measured("x", "a deck", make)
    assert make.calls == 2
