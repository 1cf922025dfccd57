"""An index on disk: found again bit for bit, read list by list, refused when damaged."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.errors import InputError
from nandcosim.systems.dnova import index_files
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.noise import SensingNoise

NOISE = SensingNoise.from_margins(0.3, {2: 0.1, 4: 0.2}, {2: 0.1, 4: 0.2})
RULE = {"nprobe": 4, "k2": 80, "k1": 30}
ALL = ("ids", "scores", "scanned", "lists", "candidates")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    draw = np.random.default_rng(7)
    return draw.standard_normal((25, 40))[draw.integers(0, 25, 900)] + draw.normal(
        0, 0.9, (900, 40)
    )


@pytest.fixture(scope="module")
def index(vectors: np.ndarray) -> IvfIndex:
    return IvfIndex.build(vectors[:800], 12, seed=3, value_range="dimension-sigma:6")


def same(first: IvfIndex, second: IvfIndex, queries: np.ndarray, **rule: object) -> None:
    one, other = (index.search(queries, **{**RULE, **rule}) for index in (first, second))
    for name in ALL:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_an_opened_index_searches_the_same(
    index: IvfIndex, vectors: np.ndarray, tmp_path: Path
) -> None:
    index.save(tmp_path / "index")
    opened = IvfIndex.open(tmp_path / "index", verify=True)
    for noise in (None, NOISE):
        same(opened, index, vectors[::50], noise=noise)
    np.testing.assert_array_equal(opened.vectors, index.vectors)
    found = opened.fp32().search(vectors[::50], nprobe=3, k1=10)
    np.testing.assert_array_equal(
        found.ids, index.fp32().search(vectors[::50], nprobe=3, k1=10).ids
    )
    header = json.loads((tmp_path / "index" / "index.json").read_text())
    assert header["provenance"].keys() == {"nandcosim", "numpy", "written"}
    assert not list(tmp_path.glob(".*"))


def test_saving_again_appends_only(index: IvfIndex, vectors: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index.save(folder)
    files = {path: path.stat() for path in folder.rglob("*.npy")}
    (folder / "segment-001").mkdir()  # what a save left that did not come to its end
    (folder / "segment-001" / "ids.npy").write_bytes(b"half")
    opened = IvfIndex.open(folder).insert(vectors[800:850])
    opened.save(folder)
    index.insert(vectors[800:850]).insert(vectors[850:]).save(folder)  # from memory, too
    for path, before in files.items():
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    again = IvfIndex.open(folder, verify=True)
    assert len(again.segments) == 3
    same(again, index.insert(vectors[800:]), vectors[::50])
    again.save(folder)  # nothing to do


def test_another_index_is_not_overwritten(
    index: IvfIndex, vectors: np.ndarray, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    index.insert(vectors[800:]).save(folder)
    other = IvfIndex.build(vectors, 12, seed=4)
    for wrong in (other, index, index.insert(vectors[:100])):
        with pytest.raises(InputError, match="holds another index"):
            wrong.save(folder)
    (tmp_path / "notes").mkdir()
    with pytest.raises(InputError, match=r"notes: no index\.json in it"):
        index.save(tmp_path / "notes")


def test_a_save_that_fails_leaves_nothing(
    index: IvfIndex, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = np.save
    written = []

    def full_disk(path: Path, *arguments: object, **options: object) -> None:
        if len(written) == 3:
            raise OSError("No space left on device")
        written.append(path)
        saved(path, *arguments, **options)

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        index.save(tmp_path / "index")
    assert not list(tmp_path.iterdir())
    written.clear()
    monkeypatch.undo()
    index.save(tmp_path / "index")
    monkeypatch.setattr(np, "save", full_disk)
    written += [0, 0]
    with pytest.raises(OSError, match="No space left"):
        index.insert(vectors[800:]).save(tmp_path / "index")
    monkeypatch.undo()
    same(IvfIndex.open(tmp_path / "index"), index, vectors[::50])


def damage_header(folder: Path, **changes: object) -> None:
    path = folder / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "index.json").unlink(), r"no index\.json in it"),
        (lambda f: (f / "index.json").write_text("{"), "no header of an index"),
        (lambda f: (f / "index.json").write_text("[1]"), "no header of an index"),
        (lambda f: damage_header(f, nandcosim_index=99), "format 99, allowed: 1"),
        (lambda f: damage_header(f, arrays={}), "does not describe centroids"),
        (lambda f: damage_header(f, lists=13), "do not fit together"),
        (lambda f: damage_header(f, dimension=500), "do not fit together"),
        (lambda f: (f / "segment-000" / "planes.npy").unlink(), "planes.npy: missing"),
        (lambda f: truncate(f / "segment-000" / "planes.npy"), "bytes, allowed: "),
        (lambda f: flip(f / "centroids.npy"), "content has changed"),
        (lambda f: flip(f / "segment-000" / "offsets.npy"), "content has changed"),
    ],
)
def test_what_is_refused(index: IvfIndex, tmp_path: Path, harm: object, message: str) -> None:
    folder = tmp_path / "index"
    index.save(folder)
    harm(folder)
    with pytest.raises(InputError, match=message) as caught:
        IvfIndex.open(folder)
    assert "\n" not in str(caught.value)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def test_a_changed_list_is_found_when_asked_for(index: IvfIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    flip(tmp_path / "index" / "segment-000" / "planes.npy")
    IvfIndex.open(tmp_path / "index")
    with pytest.raises(InputError, match=r"planes\.npy: its content has changed"):
        IvfIndex.open(tmp_path / "index", verify=True)


def test_pickles_are_not_read(index: IvfIndex, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index.save(folder)
    path = folder / "centroids.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    header = json.loads((folder / "index.json").read_text())
    header["arrays"]["centroids"] |= {
        "bytes": path.stat().st_size,
        "sha256": index_files._file_digest(path),
    }
    damage_header(folder, **header)
    with pytest.raises(InputError, match=r"centroids\.npy: no array"):
        IvfIndex.open(folder)


def big_index(folder: Path, n: int, dim: int, lists: int) -> None:
    draw = np.random.default_rng(0)
    centroids = draw.standard_normal((lists, dim), dtype=np.float32)
    first = IvfIndex.build(draw.standard_normal((lists, dim)), lists, iterations=1)
    member = np.arange(n) % lists
    vectors = centroids[member] + draw.standard_normal((n, dim), dtype=np.float32)
    index = IvfIndex.from_lists(vectors, centroids, member, first.quantiser, keep_vectors=False)
    index.save(folder)


def resident(path: Path) -> int:
    """Bytes of a mapped file that this process has touched."""
    found = 0
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


LIMITED = """
import resource, sys
import numpy as np
from nandcosim.systems.dnova.ivf import IvfIndex

small, big = sys.argv[1:]
queries = np.random.default_rng(1).standard_normal((8, 768))
rule = {"k2": 1000, "k1": 100}
IvfIndex.open(small).search(queries, nprobe=2, **rule)  # compiled before the limit
used = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmData" in line)
limit = used * 1024 + 40 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.load(big + "/segment-000/planes.npy")
except MemoryError:
    print("does not fit")
index = IvfIndex.open(big)
found = index.search(queries, nprobe=index.nlist, **rule)
print(int(found.scanned[:, 1].sum()), bool((found.ids >= 0).all()))
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA and /proc are Linux's")
def test_an_index_larger_than_memory(tmp_path: Path) -> None:
    """Every list is searched in a process that may not hold the planes."""
    big_index(tmp_path / "small", 1000, 768, 8)
    big_index(tmp_path / "big", 250_000, 768, 100)
    size = (tmp_path / "big" / "segment-000" / "planes.npy").stat().st_size
    assert size > 90 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "small"), str(tmp_path / "big")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["does", "not", "fit", str(8 * 250_000), "True"], done.stderr
    shutil.rmtree(tmp_path / "big")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_only_the_probed_lists_are_read(tmp_path: Path) -> None:
    big_index(tmp_path / "index", 40_000, 128, 20)
    planes = (tmp_path / "index" / "segment-000" / "planes.npy").resolve()
    opened = IvfIndex.open(tmp_path / "index")
    before = resident(planes)
    query = np.random.default_rng(1).standard_normal((1, 128))
    opened.search(query, nprobe=2, k2=1000, k1=100)
    few = resident(planes)
    opened.search(query, nprobe=20, k2=1000, k1=100)
    everything = resident(planes)
    size = planes.stat().st_size
    assert before < 0.05 * size
    assert 0.08 * size < few < 0.25 * size
    assert everything > 0.95 * size
