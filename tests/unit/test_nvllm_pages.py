"""Weights as codewords on pages."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.hardware import HardwareFields
from nandcosim.systems.nvllm.pages import layout, read, store
from nandcosim.systems.nvllm.rber import page_error_rates

pytest.importorskip("bchlib")

SMALL = HardwareFields(clusters=3, planes_per_cluster=2, page_bytes=200, cell_bits=3)


def weights(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


@settings(deadline=None, max_examples=40)
@given(
    st.binary(max_size=2000),
    st.sampled_from(["page", "spare"]),
    st.sampled_from(["bch", "hamming", "none"]),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_read_without_errors_is_what_was_stored(data, place, code, size, bits) -> None:
    config = SMALL.model_copy(
        update={"parity_place": place, "code": code, "segment_bytes": size, "cell_bits": bits}
    )
    stored = store(np.frombuffer(data, np.uint8), layout(config))
    raw = read(stored, 0.0, 1)
    assert raw.weights.tobytes() == data
    assert raw.flips == 0
    assert stored.layout.code.check(raw.data, raw.parity).all()


def test_parity_takes_an_eighth_of_the_page_or_lies_aside() -> None:
    inside = layout(HardwareFields())
    assert inside.segments_per_page == 448  # 131072 / 292
    assert inside.spare_bits == 0
    assert inside.data_share == 0.875
    aside = layout(HardwareFields(parity_place="spare"))
    assert aside.segments_per_page == 512
    assert aside.spare_bits == 512 * 36
    assert aside.data_share == 1.0


def test_segments_lie_one_after_the_other_and_none_on_another() -> None:
    dealt = layout(SMALL)
    segments = np.arange(dealt.segments_per_page * 6 * 3 * 2)  # two addresses of every type
    at = dealt.place(segments)
    assert at.first_bit.max() + dealt.segment_bits <= 8 * 200
    key = np.stack([at.cluster, at.plane, at.address, at.first_bit])
    assert len(np.unique(key, axis=1).T) == len(segments)
    # The planes of a cluster return successive pages at once, then the next cluster's.
    pages = [dealt.place(n * dealt.segments_per_page) for n in range(7)]
    assert [int(p.plane) for p in pages] == [0, 1, 0, 1, 0, 1, 0]
    assert [int(p.cluster) for p in pages] == [0, 0, 1, 1, 2, 2, 0]
    assert [int(p.address) for p in pages] == [0, 0, 0, 0, 0, 0, 1]
    assert (np.bincount(at.page_type) == len(segments) // 3).all()


@given(st.integers(0, 300), st.integers(0, 2))
def test_segments_of_a_type_are_those_placed_on_it(count, page_type) -> None:
    dealt = layout(SMALL)
    placed = np.flatnonzero(dealt.place(np.arange(count)).page_type == page_type)
    assert dealt.of_type(page_type, count).tolist() == placed.tolist()


def test_errors_fall_on_pages_of_their_type() -> None:
    stored = store(weights(50_000), layout(SMALL))
    rates = xr.DataArray([0.0, 1e-2, 0.0], coords={"page": ["lower", "middle", "upper"]})
    raw = read(stored, rates, 7)
    flipped = np.bitwise_count(raw.data ^ stored.data).sum(axis=1)
    flipped += np.bitwise_count(raw.parity ^ stored.parity).sum(axis=1)
    types = stored.layout.place(np.arange(len(flipped))).page_type
    assert flipped.sum() == raw.flips > 0
    assert flipped[types != 1].sum() == 0
    assert ((raw.parity ^ stored.parity) != 0).any()


def test_a_seed_gives_the_same_errors() -> None:
    stored = store(weights(5000), layout(SMALL))
    first, again, other = (read(stored, 1e-2, seed) for seed in (1, 1, 2))
    assert (first.data == again.data).all()
    assert (first.parity == again.parity).all()
    assert (first.data != other.data).any()
    assert stored.layout.code.check(stored.data, stored.parity).all()  # still whole


def test_rates_of_a_configuration_fit_its_pages() -> None:
    config = SMALL.model_copy(update={"rber": 1e-3})
    stored = store(weights(1000).view(np.int8).reshape(10, 100), layout(config))
    assert stored.size == 1000
    assert stored.pages == -(-32 // stored.layout.segments_per_page)
    assert read(stored, page_error_rates(config), 1).flips > 0


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="clusters: found 2 values"):
        layout(HardwareFields(clusters=(8, 16)))
    with pytest.raises(InputError, match="page_bytes = 32, allowed: 37"):
        layout(HardwareFields(page_bytes=32))
    with pytest.raises(InputError, match="found float64, allowed: bytes"):
        store(np.zeros(4), layout(SMALL))
    stored = store(weights(100), layout(SMALL))
    with pytest.raises(InputError, match="found none for middle, upper"):
        read(stored, page_error_rates(HardwareFields(cell_bits=1)), 1)
    with pytest.raises(InputError, match="found dims"):
        read(stored, page_error_rates(HardwareFields(rber=(1e-4, 1e-3))), 1)
