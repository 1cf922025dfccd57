"""The baselines' cost: golden numbers, sums, broadcasting, and wrong inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nandcosim.errors import InputError
from nandcosim.systems.dnova.baseline_study import (
    StudyConfig,
    calibrated_cpu_bandwidth,
    clustered_faiss_index,
    main,
    nq_activity,
    recall_study,
    system_costs,
)
from nandcosim.systems.dnova.baselines import (
    SLOW_SCAN,
    BaselineFields,
    FaissTiming,
    cpu_cost,
    expected_pages,
    nsp_cost,
    reis_cost,
    time_faiss,
)
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex

SYSTEMS = (cpu_cost, nsp_cost, reis_cost)


def activity(dimension: int = 768, listed: int = 167_500) -> xr.Dataset:
    return xr.Dataset(
        {"sensed": ("stage", [1024, listed, 1000])},
        coords={"stage": [1, 2, 3]},
        attrs={"dimension": dimension},
    )


def config(**fields: Any) -> StudyConfig:
    return StudyConfig(**{"nprobe": 64, **fields})


# ---------------------------------------------------------------- golden numbers


def test_nsp_reads_the_int8_bytes_of_the_lists() -> None:
    """NQ, mpnet, nprobe 64: 128.6 MB, 62.8 thousand pages, 8.8 s of one plane."""
    cost = nsp_cost(activity(), config(page_fill="straddling", planes_per_query=1))
    assert cost["pages"].sel(stage=2) == np.ceil(167_500 * 768 / 2048) == 62_813
    time = cost["latency"].sel(stage=2, component="array")
    assert float(time) == pytest.approx(62_813 * 140e-6)
    assert float(time) == pytest.approx(8.8, rel=1e-3)


@pytest.mark.parametrize(("dimension", "a_page"), [(384, 5), (768, 2), (1536, 1)])
def test_whole_vectors_in_a_page(dimension: int, a_page: int) -> None:
    cost = nsp_cost(activity(dimension), config())
    assert cost["pages"].sel(stage=2) == np.ceil(167_500 / a_page)
    assert cost["bytes_moved"].sel(stage=2) == np.ceil(167_500 / a_page) * 2048
    energy = cost["energy"].sel(stage=2, component="array")
    assert float(energy) == pytest.approx(np.ceil(167_500 / a_page) * 294.9e-9)


def test_reis_reranks_20_000_in_233_ms_when_each_has_its_own_page() -> None:
    cost = reis_cost(activity(1536), config())
    assert float(cost["pages"].sel(stage=3)) == pytest.approx(20_000)
    time = float(cost["latency"].sel(stage=3, component="array"))
    assert time == pytest.approx(20_000 / 12 * 140e-6)
    assert time == pytest.approx(0.233, rel=2e-3)


def test_reis_senses_binary_pages_in_stages_1_and_2() -> None:
    cost = reis_cost(activity(384), config(reis_compare_time=10e-6))
    in_a_page = 16_384 // 384
    pages = np.ceil(np.array([1024, 167_500]) / in_a_page)
    np.testing.assert_array_equal(cost["pages"].sel(stage=[1, 2]), pages)
    array = cost["latency"].sel(stage=[1, 2], component="array")
    np.testing.assert_allclose(array, pages / 12 * 40e-6)
    entries = np.array([1024, 20_000])  # 20,000 candidates are more than 1 % of the scanned
    np.testing.assert_allclose(cost["bytes_moved"].sel(stage=[1, 2]), entries * 37 / 8)


def test_cpu_scans_fp32_at_two_rates() -> None:
    fields = config(cpu_bandwidth=1e9, faiss_bandwidth=10e9, cpu_power=100.0, dram_energy=0.0)
    cost = cpu_cost(activity(), fields)
    scanned = (1024 + 167_500) * 768 * 4
    assert float(cost["bytes_moved"].sum()) == scanned
    time = cost["latency"].sum(["stage", "component"])
    np.testing.assert_allclose(time, [scanned / 1e9, scanned / 10e9])
    np.testing.assert_allclose(cost["qps"], 1 / time)
    np.testing.assert_allclose(cost["energy"].sum(["stage", "component"]), 100 * time)


def test_cpu_bandwidth_is_what_claim_d1_needs() -> None:
    default = BaselineFields.model_fields["cpu_bandwidth"].default
    assert default == pytest.approx(calibrated_cpu_bandwidth(), rel=5e-4)


# ---------------------------------------------------------------- expected pages


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 30), st.data())
def test_expected_pages_is_the_hypergeometric_law(n: int, a_page: int, data: Any) -> None:
    wanted = data.draw(st.integers(0, n))
    a_page = min(a_page, n)
    missed = stats.hypergeom.pmf(0, n, a_page, wanted)
    pages = float(expected_pages(n, a_page, wanted))
    assert pages == pytest.approx(n / a_page * (1 - missed), rel=1e-6, abs=1e-9)
    assert pages <= min(wanted, n / a_page) * (1 + 1e-6) + 1e-9


def test_expected_pages_at_its_limits() -> None:
    assert float(expected_pages(0, 5, 0)) == 0
    assert float(expected_pages(3, 5, 1)) == pytest.approx(1)
    assert float(expected_pages(100, 5, 100)) == pytest.approx(20)
    with pytest.raises(InputError, match="more vectors wanted than there are"):
        expected_pages(10, 5, 11)


def test_pages_of_straddling_vectors_are_what_drawing_them_gives() -> None:
    """Vectors of 768 bytes one after the other in pages of 2048 bytes."""
    dimension, page, n, wanted, repeats = 768, 2048, 4000, 700, 300
    draw = np.random.default_rng(0)
    first = np.arange(n) * dimension
    counts = []
    for _ in range(repeats):
        chosen = first[draw.choice(n, wanted, replace=False)]
        touched = np.concatenate([chosen // page, (chosen + dimension - 1) // page])
        counts.append(np.unique(touched).size)
    fields = config(page_fill="straddling", reis_candidates=wanted)
    expected = float(reis_cost(activity(dimension, n), fields)["pages"].sel(stage=3))
    error = np.std(counts, ddof=1) / np.sqrt(repeats)
    assert abs(np.mean(counts) - expected) < 4 * error


# ---------------------------------------------------------------- broadcasting, sums


@pytest.mark.parametrize(
    ("system", "axes"),
    [
        (cpu_cost, {"cpu_bandwidth": (1e8, 1e9), "dram_energy": (0.0, 1e-11)}),
        (nsp_cost, {"planes_per_query": (6, 768), "page_fill": ("whole", "straddling")}),
        (reis_cost, {"reis_candidates": (500, 20_000), "page_fill": ("whole", "straddling")}),
        (reis_cost, {"planes_per_query": (6, 768), "page_bytes": (1024, 2048)}),
    ],
)
def test_axes_give_what_each_configuration_gives(system: Any, axes: dict[str, Any]) -> None:
    fields = config(**axes)
    queries = xr.DataArray([1, 2, 3], dims="query")
    both = activity().drop_attrs().assign_coords(dimension=("dimension", [384, 768]))
    both["sensed"] = both["sensed"] * queries
    whole = system(both, fields)
    for _, point in fields.points():
        at = {name: getattr(point, name) for name in axes}
        for dimension in (384, 768):
            one = activity(dimension)
            one["sensed"] = one["sensed"] * queries
            alone = system(one, point)
            for name, theirs in alone.data_vars.items():
                ours = whole[name].sel(
                    {
                        k: v
                        for k, v in {**at, "dimension": dimension}.items()
                        if k in whole[name].dims
                    }
                )
                aligned = ours.broadcast_like(theirs).transpose(*theirs.dims)
                np.testing.assert_allclose(aligned.values, theirs.values, rtol=1e-12)


@pytest.mark.parametrize("system", [nsp_cost, reis_cost])
def test_one_query_a_stage_and_channel(system: Any) -> None:
    cost = system(activity(), config())
    slowest = cost["latency"].sum("component").max("stage")
    assert float(cost["qps"]) == pytest.approx(8 / float(slowest))


def test_planes_of_more_channels_have_more_buses_and_fewer_streams() -> None:
    one, two = (nsp_cost(activity(), config(planes_per_query=p)) for p in (96, 97))
    bus = [float(c["latency"].sel(stage=2, component="bus")) for c in (one, two)]
    assert bus[0] == pytest.approx(2 * bus[1])
    slowest = float(two["latency"].sum("component").max("stage"))
    assert float(two["qps"]) == pytest.approx(4 / slowest)


def test_reis_with_more_candidates_than_vectors_reads_every_page() -> None:
    cost = reis_cost(activity(listed=5000), config())
    assert float(cost["pages"].sel(stage=3)) == pytest.approx(2500)


def test_every_field_has_unit_and_origin() -> None:
    kinds = ("stated:", "derived:", "measured:", "sourced:", "assumed:", "calibrated:")
    own = set(BaselineFields.__annotations__)
    for name in own:
        extra = BaselineFields.model_fields[name].json_schema_extra
        assert isinstance(extra, dict)
        assert str(extra["origin"]).startswith(kinds), name


# ---------------------------------------------------------------- wrong inputs


@pytest.mark.parametrize("system", [nsp_cost, reis_cost])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"planes_per_query": 769}, "planes_per_query = 769, allowed: 1 .. 768"),
        ({"page_bytes": 64}, "page_bytes = 64, allowed: (96|768) or more"),
    ],
)
def test_impossible_devices_are_one_line(system: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        system(activity(), config(**fields))


@pytest.mark.parametrize("system", SYSTEMS)
def test_incomplete_activities_are_one_line(system: Any) -> None:
    with pytest.raises(InputError, match="no 'sensed' over 'stage'"):
        system(xr.Dataset({"sensed": 3}), config())
    with pytest.raises(InputError, match="no 'dimension'"):
        system(activity().drop_attrs(), config())
    with pytest.raises(InputError, match=r"stages of the activity are \[1, 2\]"):
        system(activity().sel(stage=[1, 2]), config())


# ---------------------------------------------------------------- FAISS, study


def test_faiss_is_timed_on_one_thread_and_left_as_it_was() -> None:
    faiss = pytest.importorskip("faiss")
    index = clustered_faiss_index(2000, 32, 16)
    before = faiss.omp_get_max_threads(), index.nprobe
    queries = np.random.default_rng(0).standard_normal((10, 32))
    timed = time_faiss(index, queries, 16, k1=5, repeats=1)
    assert (faiss.omp_get_max_threads(), index.nprobe) == before
    assert timed.scanned == 2000
    assert timed.bandwidth == pytest.approx((2000 + 16) * 32 * 4 / timed.seconds)
    assert FaissTiming(1.0, 1.0, 0.99 * SLOW_SCAN).slow
    assert not FaissTiming(1.0, 1.0, SLOW_SCAN).slow
    with pytest.raises(InputError, match=r"nprobe = 17, allowed: 1 .. 16"):
        time_faiss(index, queries, 17)


def test_faiss_is_timed_over_the_lists_of_an_index() -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("numba")
    vectors = np.random.default_rng(0).standard_normal((500, 16))
    index = IvfIndex.build(vectors, 8)
    reference = index.fp32().search(vectors[:20], nprobe=3, k1=5)
    timed = time_faiss(index, vectors[:20], 3, k1=5, repeats=1)
    assert timed.scanned == pytest.approx(reference.scanned[:, 1].mean())


def test_the_study_compares_all_systems_on_one_activity() -> None:
    costs = system_costs(nq_activity(384, probes=(64,)), config())
    assert list(costs) == [
        "D-NOVA, DTS242 serial", "REIS", "NSP", "CPU paper_calibrated", "CPU measured_faiss",
    ]  # fmt: skip
    for cost in costs.values():
        assert float(cost["latency"].sum()) > 0
        assert float(cost["energy"].sum()) > 0


def test_recall_study_searches_the_same_lists() -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("numba")
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((400, 24))
    corpus = Corpus(name="small", vectors=vectors, queries=vectors[:5])
    found = {name: r for _, name, r in recall_study(corpus, 4, [4], [400], k=20)}
    np.testing.assert_array_equal(found["REIS 400"].ids, found["NSP"].ids)
    assert (np.sort(found["NSP"].ids)[:, :1] >= 0).all()
    for result in found.values():
        assert (result.scanned[:, 1] == 400).all()


def test_the_study_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims"]) == 0
    claims = capsys.readouterr().out
    assert "62813     83750" in claims
    assert main(["cost"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 2 * 5
    assert main(["split"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 2 * 2 * 3
    assert main(["recall", "--corpus", "no/such", "--queries", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
