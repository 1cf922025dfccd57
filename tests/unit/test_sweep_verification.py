"""Damaged files of a store are found, named, and made again."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit, open_store, parse_spec, status, store_digest
from nandcosim.sweep.chunk import Chunk, ChunkResult
from nandcosim.sweep.store import SweepStore
from nandcosim.sweep.verification import verify

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

CIRCUIT = "circuits_for_tests:RCDischarge"
DOCUMENT: dict[str, Any] = {
    "circuit": CIRCUIT,
    "samples": 10,
    "seed": 1,
    "axes": {"precharge": [1.0, 2.0], "corner": ["tt", "slow"]},
}


def fill(store: SweepStore, most: int = 1000) -> int:
    """Run what is missing: NaN where sample 0 is, failures where sample 3 is."""
    tasks = list(store.pending(store.status_codes()))[:most]
    for task in tasks:
        k = np.array(task.samples)
        code = np.where(k == 3, Status.TIMEOUT, Status.OK).astype(np.int8)
        number = np.where(k == 0, np.nan, task.point * 100.0 + k)
        reason = ["too slow" if each == 3 else "" for each in k]
        store.write(task, ChunkResult(code, reason, {"t_half": number, "v_end": -number}))
    return sum(len(task.samples) for task in tasks)


def new_store(path: Path, **changes: Any) -> SweepStore:
    spec = parse_spec({**DOCUMENT, **changes})
    return SweepStore.create(path, spec, load_circuit(CIRCUIT), 5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = new_store(tmp_path_factory.mktemp("finished") / "s.zarr")
    fill(store)
    return store.path


def truncate(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES: tuple[Callable[[Path], None], ...] = (truncate, flip, empty, Path.unlink)


def copied(finished: Path, tmp_path: Path) -> SweepStore:
    shutil.copytree(finished, tmp_path / "s.zarr")
    return SweepStore.open(tmp_path / "s.zarr", writable=True)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("array", ["status", "reason", "t_half", "v_end"])
def test_damaged_chunk_is_run_again_and_nothing_else(
    array: str,
    damage: Callable[[Path], None],
    finished: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = copied(finished, tmp_path)
    digest = store_digest(finished)
    name = f"{array}/c/1/0/1"  # point 2, samples 5 to 9
    damage(store.path / name)
    lost = damage is Path.unlink
    if not (lost and array == "status"):  # as if it had not been run
        (found,) = verify(store)
        assert (str(found.file), found.region and found.region.first) == (name, 25)
        assert found.problem == "missing" if lost else found.problem
        with pytest.raises(InputError, match=rf"damaged: {name} \(.+\): samples 25 to 29; the sw"):
            store_digest(store)
        if array == "status":
            with pytest.raises(InputError, match=name):
                status(store)
        with caplog.at_level(logging.WARNING), store.locked():
            assert fill(store) == 5
        (record,) = caplog.records
        assert f"{store.path}: damaged and made again: {name} (" in record.getMessage()
        assert "samples 25 to 29" in record.getMessage()
    else:
        with store.locked():
            assert fill(store) == 5
    assert verify(store) == []
    assert store_digest(store) == digest
    assert status(store)["failed"] == 4


def test_untouched_store_is_whole(finished: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SweepStore.open(finished, writable=True)
    assert verify(store) == []
    with caplog.at_level(logging.WARNING), store.locked():
        assert fill(store) == 0
    assert not caplog.records


def test_chunk_of_nothing_but_fill_values_is_a_file(tmp_path: Path) -> None:
    store = new_store(tmp_path / "s.zarr", samples=5, axes={})
    nothing = np.full(5, np.nan)
    responses = {"t_half": nothing, "v_end": nothing}
    task = Chunk(0, 0, 5, tuple(range(5)))
    store.write(task, ChunkResult(np.zeros(5, dtype=np.int8), [""] * 5, responses))
    assert all((store.path / name / "c/0").exists() for name in ("reason", "t_half", "v_end"))
    assert verify(store) == []


def test_chunk_that_is_not_done_yet_may_be_missing_but_not_damaged(tmp_path: Path) -> None:
    whole = new_store(tmp_path / "whole.zarr")
    fill(whole)
    store = new_store(tmp_path / "s.zarr")
    fill(store, most=2)
    assert verify(store) == []
    stray = store.path / "v_end/c/1/1/1"  # its status was never written
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"half a chu")
    with store.locked():
        assert not stray.exists()
        fill(store)
    assert store_digest(store) == store_digest(whole)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("axis", ["precharge", "corner"])
def test_damaged_coordinate_is_written_anew(
    axis: str, damage: Callable[[Path], None], finished: Path, tmp_path: Path
) -> None:
    store = copied(finished, tmp_path)
    damage(store.path / axis / "c/0")
    assert [str(each.file) for each in verify(store)] == [f"{axis}/c/0"]
    with store.locked():
        assert fill(store) == 0
    assert open_store(store)[axis].values.tolist() == list(store.spec.axes[axis])


def test_many_damages_are_one_warning(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = copied(finished, tmp_path)
    files = sorted((store.path / "v_end/c").rglob("*/*/*"))
    for file in files:
        file.unlink()
    with caplog.at_level(logging.WARNING), store.locked():
        assert fill(store) == 40
    (record,) = caplog.records
    assert record.getMessage().endswith(f"; and {len(files) - 3} files more")
    assert store_digest(store) == store_digest(finished)


def test_leftovers_of_a_killed_writer_are_removed(finished: Path, tmp_path: Path) -> None:
    store = copied(finished, tmp_path)
    leftovers = [store.path / "zarr.1a2b.partial", store.path / "v_end/c/0/0/0.1a2b.partial"]
    for file in leftovers:
        file.write_bytes(b"half")
    with store.locked():
        assert not any(file.exists() for file in leftovers)
    assert store_digest(store) == store_digest(finished)


def test_store_from_before_checksums(finished: Path, tmp_path: Path) -> None:
    """No checksums, and no files for chunks of fill values: both are as they were written."""
    store = copied(finished, tmp_path)
    for name in ("status", "reason", "t_half", "v_end", "precharge", "corner"):
        old = store.array(name)
        values, described = old[...], dict(old.attrs)
        store._group.create_array(
            name, shape=old.shape, chunks=old.chunks, dtype=old.dtype, overwrite=True,
            fill_value=old.fill_value, dimension_names=old.metadata.dimension_names,
            attributes=described, config={"write_empty_chunks": False},
        )[...] = values  # fmt: skip
    store = SweepStore.open(store.path, writable=True)
    assert not (store.path / "reason/c/0/0/1").exists()
    assert verify(store) == []
    assert store_digest(store) == store_digest(finished)
    truncate(store.path / "v_end/c/0/1/0")
    with store.locked():
        assert fill(store) == 5
    assert store_digest(store) == store_digest(finished)


def test_damage_of_the_plan_leaves_the_samples(tmp_path: Path) -> None:
    precision = {"response": "v_end", "half_width": 0.01, "start": 20}
    store = new_store(tmp_path / "s.zarr", samples=20, precision=precision)
    store.set_wanted(np.array([10, 20, 10, 10]))
    fill(store)
    truncate(store.path / "wanted/c/0/0")
    with pytest.raises(InputError, match=r"damaged: wanted/c/0/0 \("):
        status(store)
    with store.locked():
        assert store.wanted().tolist() == [0, 0, 0, 0]
    assert status(store)["done"] == 50


@pytest.mark.parametrize("damage", [truncate, Path.unlink], ids=lambda function: function.__name__)
@pytest.mark.parametrize("array", ["stage", "log_weight"])
def test_damaged_weights_make_their_samples_run_again(
    array: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """The plan writes them again when it comes to these samples."""
    random = [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1}]
    rare = {"failure": "v_end < 0.1"}
    store = new_store(tmp_path / "s.zarr", rare=rare, random=random)
    store.set_wanted(np.array([10, 10, 10, 10]))
    for point in range(4):
        store.write_plan_of(point, 0, np.zeros(10, dtype=np.int8), np.full(10, np.nan))
    fill(store)
    damage(store.path / array / "c/1/0/1")
    with store.locked():
        (again,) = store.pending(store.status_codes())
    assert (again.point, again.samples) == (2, (5, 6, 7, 8, 9))
