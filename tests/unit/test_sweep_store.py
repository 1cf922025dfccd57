"""The store: declared at once, written in order, refused when it is another sweep's."""

from __future__ import annotations

import math
import shutil
import sys
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nandcosim.errors import InputError, NandcosimError
from nandcosim.report.listing import status_lines
from nandcosim.spice.status import Status
from nandcosim.sweep import load_circuit, open_store, parse_spec, status, store_digest
from nandcosim.sweep.chunk import Chunk, ChunkResult
from nandcosim.sweep.layout import regions, sample_arrays, slabs
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
    assert first == Chunk(0, 0, 10_000, tuple(range(10_000)))
    assert second.samples == tuple(range(10_000, 20_000))


def test_planning_takes_one_byte_a_sample(tmp_path: Path) -> None:
    samples = 10_000_000
    store = create(tmp_path / "s.zarr", chunk=None, samples=samples, axes={})
    store.status_codes()  # what is loaded at the first use only
    tracemalloc.start()
    try:
        codes = store.status_codes()
        for _ in islice(store.pending(codes, length=lambda: 100), 1000):
            pass
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert samples <= held < 1.2 * samples
    assert most < 2.5 * samples  # zarr's own copy, while it reads


@pytest.mark.parametrize(
    ("samples", "lengths", "chunks"),
    [
        (12, (), (12,)),
        (2, (1, 1), (1, 1, 2)),
        (100, (20, 4), (2, 4, 100)),
        (200, (3, 7), (1, 4, 200)),
        (200, (25, 400), (1, 5, 200)),
        (31_250, (8, 4), (1, 1, 7813)),
        (1_000_000, (), (10_000,)),
    ],
)
def test_chunks_are_few_and_bounded(
    samples: int, lengths: tuple[int, ...], chunks: tuple[int, ...], tmp_path: Path
) -> None:
    axes = {
        name: {"start": 1.0, "stop": 2.0, "num": length}
        for name, length in zip(("precharge", "resistance"), lengths, strict=False)
    }
    store = create(tmp_path / "s.zarr", None, samples=samples, axes=axes)
    array = store.array("status")
    assert array.chunks == chunks
    covered = list(regions(array))
    numbers = np.arange(math.prod(array.shape)).reshape(array.shape)
    for region in covered[:50]:
        np.testing.assert_array_equal(
            numbers[region.place].ravel(), np.arange(region.first, region.stop)
        )
    assert covered[-1].stop == numbers.size
    joined = np.concatenate([np.ravel(numbers[slab]) for slab in slabs(array)])
    np.testing.assert_array_equal(joined, np.arange(numbers.size))


def test_a_million_samples_are_a_few_hundred_files(tmp_path: Path) -> None:
    axes = {"precharge": {"start": 1.0, "stop": 2.0, "num": 32}}
    store = create(tmp_path / "s.zarr", None, samples=31_250, axes=axes)
    files = len(list(regions(store.array("status")))) * len(sample_arrays(store.spec))
    assert 100 < files < 1000


def test_length_of_a_task_is_asked_anew(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr", axes={})  # chunks of 4, 4 and 2 samples
    lengths = iter([1, 2, 3, 100, 100])
    tasks = list(store.pending(store.status_codes(), length=lambda: next(lengths)))
    assert [task.samples for task in tasks] == [(0,), (1, 2), (3,), (4, 5, 6, 7), (8, 9)]
    assert all((t.start, t.stop) == (t.samples[0], t.samples[-1] + 1) for t in tasks)
    for task in tasks:
        store.write(task, result_of(task))
    assert open_store(store).t_half.values.tolist() == list(map(float, range(10)))


def test_tasks_of_the_fast_engine_are_whole_blocks_or_samples_run_again(tmp_path: Path) -> None:
    circuit = "fast_circuits_for_tests:FastRC"
    fast = {"circuit": circuit, "engine": "fast", "audit": 0.25, "axes": {}, "samples": 38}
    store = SweepStore.create(tmp_path / "s.zarr", spec_of(**fast), load_circuit(circuit))
    assert store.spec.block == 4

    def tasks(codes: np.ndarray, length: int) -> list[tuple[int, int, int]]:
        pending = store.pending(codes, retry_failed=True, length=lambda: length)
        return [(task.start, task.stop, len(task.samples)) for task in pending]

    codes = store.status_codes()
    assert tasks(codes, 1) == [(k, min(k + 4, 38), min(4, 38 - k)) for k in range(0, 38, 4)]
    assert tasks(codes, 19) == [(0, 16, 16), (16, 32, 16), (32, 38, 6)]
    codes[0, :16] = Status.OK
    codes[0, [5, 11]] = Status.TIMEOUT
    codes[0, 24:28] = Status.OK
    assert tasks(codes, 19) == [(4, 12, 2), (16, 24, 8), (28, 38, 10)]


def planned_spec(**changes: Any) -> SweepSpec:
    precision = {"response": "v_end", "half_width": 0.01, "start": 20}
    return spec_of(**{"samples": 100, "precision": precision, **changes})


def test_planned_sweep_runs_what_is_wanted(tmp_path: Path) -> None:
    spec = planned_spec()
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(CIRCUIT))
    assert open_store(store).wanted.dims == tuple(spec.axes)
    codes = store.status_codes()
    assert list(store.pending(codes)) == []
    empty = store.digest()
    assert status(store)["fraction_done"] == 0.0
    wanted = np.zeros(spec.points, dtype=int)
    wanted[[0, 5]] = 3, 101
    store.set_wanted(wanted)
    assert store.wanted().tolist() == [3, 0, 0, 0, 0, 100, *[0] * 6]
    assert store.digest() != empty
    found = [(task.point, task.start, task.stop) for task in store.pending(codes)]
    assert found == [(0, 0, 3), (5, 0, 100)]
    first = next(store.pending(codes))
    store.write(first, result_of(first))
    store.record_plan({"complete": False, "runs": 103, "uniform_runs": 1200})
    told = status(store)
    assert (told["total"], told["done"], told["counts"]["not_run"]) == (103, 3, 100)
    assert told["plan"]["uniform_runs"] == 1200
    found_codes, values = store.outcomes(0, ["v_end"], 4)
    assert found_codes.tolist() == [0, 0, 0, Status.NOT_RUN]
    assert values["v_end"].tolist()[:3] == [0.0, -1.0, -2.0]


def test_planned_sweep_without_axes_and_with_blocks(tmp_path: Path) -> None:
    circuit = "fast_circuits_for_tests:FastRC"
    fast = {"circuit": circuit, "engine": "fast", "audit": 0.25, "axes": {}}
    store = SweepStore.create(tmp_path / "s.zarr", planned_spec(**fast), load_circuit(circuit))
    store.set_wanted(np.array([21]))
    assert store.wanted().tolist() == [24]
    assert open_store(store).wanted.item() == 24


def test_rare_event_keeps_its_plan_beside_the_samples(tmp_path: Path) -> None:
    event = {"failure": "v_end < 0.1"}
    random = [{"target": "excess", "distribution": "normal", "mean": 0.0, "std": 0.1}]
    spec = spec_of(samples=50, rare=event, random=random)
    store = SweepStore.create(tmp_path / "s.zarr", spec, load_circuit(CIRCUIT))
    before = store.digest()
    store.write_plan_of(3, 2, np.array([1, 2], dtype=np.int8), np.array([-0.5, -7.0]))
    assert store.digest() != before
    _, values = store.outcomes(3, ["stage", "log_weight"], 5)
    assert values["stage"].tolist() == [-1, -1, 1, 2, -1]
    np.testing.assert_array_equal(values["log_weight"], [np.nan, np.nan, -0.5, -7.0, np.nan])


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
    assert found["failures"] == [
        {"status": "timeout", "reason": "too slow", "count": 1, "samples": [2]}
    ]
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
    array_type = type(store.array("status"))
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


@pytest.mark.parametrize("name", ["zarr.json", "v_end/zarr.json", "precharge/zarr.json"])
def test_truncated_metadata_is_named(name: str, tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    file = store.path / name
    file.write_text(file.read_text()[:60])
    with pytest.raises(InputError, match=rf"the store is damaged, its file {name} cannot be read"):
        open_store(store.path)
    file.unlink()
    message = "is not the store" if name == "zarr.json" else "its array '[a-z_]+' is missing"
    with pytest.raises(InputError, match=message):
        open_store(store.path)


def test_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = load_circuit(CIRCUIT)
    monkeypatch.setattr(type(circuit), "files", lambda self, params: ("/no/such/card.lib",))
    with pytest.raises(InputError, match=r"/no/such/card\.lib: cannot be read"):
        SweepStore.create(tmp_path / "s.zarr", spec_of(), circuit)
    assert list(tmp_path.iterdir()) == []


def test_second_writer_is_kept_out(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    assert not status(store)["running"]
    with store.locked():
        assert status(store)["running"]
        other = SweepStore.open(store.path, writable=True)
        with pytest.raises(NandcosimError, match="another process"), other.locked():
            pass
    with store.locked():
        pass


def test_status_names_failures_rate_and_time_left(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    for chunk in store.pending(store.status_codes()):
        if chunk.point in {1, 3}:
            result = result_of(chunk)
            result.status[-1] = Status.CRASHED if chunk.point == 1 else Status.TIMEOUT
            result.reason[-1] = "it died" if chunk.point == 1 else f"hit at {chunk.start}.5e-9 s"
            store.write(chunk, result)
    assert status(store)["rate"] is None
    assert status(store)["remaining"] is None
    store.record_run({"id": "a", "samples": 0, "seconds": 0.5})
    store.record_run({"id": "a", "samples": 20, "seconds": 10.0})
    found = status(store)
    assert (found["rate"], found["remaining"]) == (2.0, 50.0)
    hits = {f"hit at {start}.5e-9 s": 1 for start in (0, 4, 8)}
    assert found["reasons"] == {"it died": 3, **hits}
    assert found["failures"] == [
        {
            "status": "timeout",
            "reason": "hit at 0.5e-9 s (and alike)",
            "count": 3,
            "samples": [33, 37, 39],
        },
        {"status": "crashed", "reason": "it died", "count": 3, "samples": [13, 17, 19]},
    ]
    text = status_lines(found)
    assert "  3 x crashed: it died (samples 13, 17, 19)" in text
    assert f"nandcosim reproduce-sample {store.path} 33" in text
    assert "  2/s in the last run, 0:50 left at that rate" in text


def test_store_can_be_moved(tmp_path: Path) -> None:
    store = create(tmp_path / "s.zarr")
    fill(store)
    digest = store_digest(store)
    shutil.move(store.path, tmp_path / "t.zarr")
    assert store_digest(tmp_path / "t.zarr") == digest
