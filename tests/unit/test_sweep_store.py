"""The store: declared at once, written in order, refused when it is another sweep's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError, NandcosimError
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit, open_store, parse_spec, status, store_digest
from nandcosim.sweep.chunk import Chunk, ChunkResult
from nandcosim.sweep.spec import SweepSpec
from nandcosim.sweep.store import SweepStore

sys.path.insert(0, str(Path(__file__).parents[1]))  # circuits_for_tests

CIRCUIT = "circuits_for_tests:RCDischarge"


def spec_of(**changes: Any) -> SweepSpec:
    document: dict[str, Any] = {
        "circuit": CIRCUIT,
        "samples": 10,
        "seed": 1,
        "axes": {"precharge": [1.0, 2.0], "corner": ["tt", "slow"], "stages": [1, 2, 3]},
    }
    return parse_spec({**document, **changes})


def create(path: Path, chunk: int | None = 4, **changes: Any) -> SweepStore:
    return SweepStore.create(path, spec_of(**changes), load_circuit(CIRCUIT), chunk)


def result_of(chunk: Chunk, code: Status = Status.OK) -> ChunkResult:
    """A result whose numbers tell which sample they belong to."""
    number = chunk.point * 100.0 + np.array(chunk.samples)
    return ChunkResult(
        status=np.full(len(chunk.samples), code, dtype=np.int8),
        reason=["" if code is Status.OK else f"because {k}" for k in chunk.samples],
        responses={"t_half": number, "v_end": -number},
    )


def fill(store: SweepStore) -> None:
    for chunk in store.pending(store.status_codes()):
        store.write(chunk, result_of(chunk))


def test_new_store_is_declared_in_full(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    data = open_store(store)
    assert data.status.dims == ("precharge", "corner", "stages", "sample")
    assert data.status.shape == (2, 2, 3, 10)
    assert data.status.dtype == np.int8
    assert data.status.chunks[-1] == (4, 4, 2)
    assert (data.status == Status.NOT_RUN).all()
    assert data.t_half.isnull().all()
    assert (data.reason == "").all()
    assert data.t_half.attrs == {"units": "s", "long_name": "time of half the precharge voltage"}
    assert data.precharge.attrs["units"] == "V"
    assert data.stages.values.tolist() == [1, 2, 3]
    assert data.sel(corner="slow", precharge=2.0).sizes == {"stages": 3, "sample": 10}
    assert status(store)["counts"]["not_run"] == 120


def test_written_values_are_where_they_belong(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    fill(store)
    data = open_store(store).load()
    assert (data.status == Status.OK).all()
    expected = 100.0 * np.arange(12).reshape(2, 2, 3, 1) + np.arange(10)
    np.testing.assert_array_equal(data.t_half, expected)
    np.testing.assert_array_equal(data.v_end, -expected)
    assert list(store.pending(store.status_codes())) == []


def test_only_asked_responses_are_stored(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr", responses=["v_end"])
    assert set(open_store(store).data_vars) == {"status", "reason", "v_end"}


def test_pending_is_lazy_at_ten_million_samples(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr", chunk=None, samples=10_000_000, axes={})
    chunks = store.pending(store.status_codes())
    assert iter(chunks) is chunks
    first, second = next(chunks), next(chunks)
    assert first == Chunk(0, 0, 1000, tuple(range(1000)))
    assert second.samples == tuple(range(1000, 2000))


@pytest.mark.parametrize(
    ("samples", "lengths", "chunk"),
    [
        (2, (1, 1), 2),
        (100, (1, 1), 10),
        (200, (20, 1), 80),
        (5000, (1, 1), 100),
        (10_000, (200, 10), 1000),
        (200, (250, 400), 200),
    ],
)
def test_chunk_length_follows_the_size_of_the_sweep(
    samples: int, lengths: tuple[int, int], chunk: int, tmp_path: Path
) -> None:
    axes = {
        name: {"start": 1.0, "stop": 2.0, "num": length}
        for name, length in zip(("precharge", "resistance"), lengths, strict=True)
    }
    store = create(tmp_path / "s.zarr", None, samples=samples, axes=axes)
    assert store.chunk == chunk


def test_pending_with_failures(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr", axes={})
    first = next(iter(store.pending(store.status_codes())))
    result = result_of(first)
    result.status[2] = Status.TIMEOUT
    result.reason[2] = "too slow"
    store.write(first, result)
    codes = store.status_codes()
    assert [c.samples for c in store.pending(codes)] == [(4, 5, 6, 7), (8, 9)]
    again = list(store.pending(codes, retry_failed=True))
    assert [c.samples for c in again] == [(2,), (4, 5, 6, 7), (8, 9)]
    found = status(store)
    assert (found["done"], found["failed"], found["total"]) == (4, 1, 10)
    assert found["reasons"] == {"too slow": 1}
    store.write(again[0], result_of(again[0]))
    data = open_store(store).load()
    assert data.t_half.values[:5].tolist()[:4] == [0.0, 1.0, 2.0, 3.0]
    assert (data.reason == "").all()
    assert status(store)["counts"]["ok"] == 4


class _Power:
    """Cuts the power at the n-th write of an array."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def __call__(self) -> None:
        if self.left == 0:
            raise ConnectionAbortedError
        self.left -= 1


@pytest.mark.parametrize("writes", range(5))
@pytest.mark.parametrize("retry", [False, True])
def test_interrupted_write_never_shows_a_status_without_its_data(
    writes: int, retry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = create(tmp_path / "s.zarr", axes={})
    chunk = next(iter(store.pending(store.status_codes())))
    if retry:
        store.write(chunk, result_of(chunk, Status.TIMEOUT))
    before = open_store(store).load().isel(sample=slice(0, 4))
    power = _Power(writes)
    array_type = type(store._array("status"))
    original = array_type.__setitem__

    def write(self: Any, place: Any, value: Any) -> None:
        power()
        original(self, place, value)

    monkeypatch.setattr(array_type, "__setitem__", write)
    finished = result_of(chunk)
    finished.responses["t_half"] += 0.5
    try:
        store.write(chunk, finished)
    except ConnectionAbortedError:
        complete = False
    else:
        complete = True
    monkeypatch.undo()
    after = open_store(store).load().isel(sample=slice(0, 4))
    codes = set(after.status.values.tolist())
    assert complete == (codes == {Status.OK})
    if codes == {Status.OK}:
        assert after.t_half.values.tolist() == [0.5, 1.5, 2.5, 3.5]
    elif codes == {Status.TIMEOUT}:
        assert after.identical(before)
    else:
        assert codes == {Status.NOT_RUN}


def test_digest_sees_every_number_and_no_chunking(tmp_path: Path) -> None:
    digests = []
    for chunk in (4, 10):
        store = create(tmp_path / f"{chunk}.zarr", chunk)
        fill(store)
        store.record_run({"id": str(chunk), "started": "whenever"})
        digests.append(store_digest(store))
    assert digests[0] == digests[1]
    one = Chunk(11, 8, 10, (9,))
    changed = result_of(one)
    changed.responses["v_end"] += 1e-12
    store.write(one, changed)
    assert store_digest(store) != digests[1]


def test_digest_of_a_sweep_without_axes(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr", axes={})
    empty = store_digest(store)
    fill(store)
    assert store_digest(store) != empty


DIFFERENCES = {
    "seed": ({"seed": 2}, "seed is 1 in the store and 2 here"),
    "samples": ({"samples": 11}, "samples is 10 in the store and 11 here"),
    "parameters": (
        {"parameters": {"capacitance": 2e-9}},
        "parameters.capacitance is absent in the store and 2e-09 here",
    ),
    "axes": (
        {"axes": {"corner": ["tt", "slow"], "precharge": [1.0, 2.0], "stages": [1, 2, 3]}},
        r"the axes are \['precharge', 'corner', 'stages'\] in the store",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_other_sweep_is_refused_and_the_difference_named(name: str, tmp_path: Path) -> None:
    changes, message = DIFFERENCES[name]
    store = create(tmp_path / "s.zarr")
    with pytest.raises(InputError, match=rf"s\.zarr: holds another sweep: {message}"):
        store.require_same(spec_of(**changes), load_circuit(CIRCUIT))
    store.require_same(spec_of(), load_circuit(CIRCUIT))


def test_changed_netlist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = tmp_path / "models" / "card.lib"
    card.parent.mkdir()
    card.write_text(".model a nmos level=1\n")
    circuit = load_circuit(CIRCUIT)
    monkeypatch.setattr(type(circuit), "files", lambda self, params: (str(card),))
    store = SweepStore.create(tmp_path / "s.zarr", spec_of(), circuit)
    store.require_same(spec_of(), circuit)
    card.write_text(".model a nmos level=1 vto=1\n")
    with pytest.raises(InputError, match=r"netlists\.models/card\.lib is '[0-9a-f]{64}' in"):
        store.require_same(spec_of(), circuit)


def test_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the store of a sweep"):
        open_store(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        open_store(tmp_path / "none.zarr")
    store = create(tmp_path / "s.zarr")
    (store.path / "zarr.json").write_text("{}")
    with pytest.raises(InputError, match="is not the store of a sweep"):
        open_store(store.path)


def test_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = load_circuit(CIRCUIT)
    monkeypatch.setattr(type(circuit), "files", lambda self, params: ("/no/such/card.lib",))
    with pytest.raises(InputError, match=r"/no/such/card\.lib: cannot be read"):
        SweepStore.create(tmp_path / "s.zarr", spec_of(), circuit)
    assert list(tmp_path.iterdir()) == []


def test_second_writer_is_kept_out(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    with store.locked():
        other = SweepStore.open(store.path, writable=True)
        with pytest.raises(NandcosimError, match="another process"), other.locked():
            pass
    with store.locked():
        pass


def test_store_can_be_moved(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    fill(store)
    digest = store_digest(store)
    shutil.move(store.path, tmp_path / "t.zarr")
    assert store_digest(tmp_path / "t.zarr") == digest
