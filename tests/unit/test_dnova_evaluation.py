"""D-NOVA's evaluation: axes, references, gaps and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from nandcosim.errors import InputError
from nandcosim.systems import dnova
from nandcosim.systems.dnova.config import group_sizes
from nandcosim.systems.dnova.ivf import exact_neighbours
from nandcosim.systems.dnova.mapping import place
from nandcosim.systems.dnova.recall import recall_per_query
from nandcosim.tables import CalibrationTable, load_tables
from nandcosim.units import to_unit


@pytest.fixture(scope="module")
def corpus() -> dnova.Corpus:
    """Clustered vectors with queries that are noisy copies; relevant is the copied one."""
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((12, 64))
    vectors = (centres[rng.integers(12, size=600)] + 0.6 * rng.standard_normal((600, 64))).astype(
        np.float32
    )
    chosen = rng.integers(600, size=40)
    queries = (vectors[chosen] + 0.3 * rng.standard_normal((40, 64))).astype(np.float32)
    return dnova.Corpus(
        name="made",
        vectors=vectors,
        queries=queries,
        relevance=tuple(np.array([c]) for c in chosen),
    )


CONFIG = dnova.Config(nlist=8, nprobe=(2, 8), k2=100, k1=25, dts=("111", "242"), alpha=(2, 3))


@pytest.fixture(scope="module")
def result(corpus) -> xr.Dataset:
    return dnova.evaluate(CONFIG, workload=corpus)


def test_axes_are_those_of_the_configuration(result) -> None:
    assert result.recall.dims == ("dts", "alpha", "nprobe", "reference", "k")
    assert list(result.k.values) == [25]
    assert list(result.reference.values) == ["judged", "exact", "fp32_ivf"]
    assert result.ivf_recall.dims == ("nprobe", "reference", "k")
    assert bool(result.to_array().notnull().all())


def test_recall_is_that_of_the_search(corpus, result) -> None:
    index = dnova.IvfIndex.build(corpus.vectors, 8, 0)
    found = index.search(corpus.queries, m=(2, 4, 2), alpha=3, nprobe=8, k2=100, k1=25)
    expected = recall_per_query(found.ids, corpus.relevance, 25)
    cell = {"dts": "242", "alpha": 3, "nprobe": 8, "k": 25, "reference": "judged"}
    assert float(result.recall.sel(cell)) == expected.mean()
    error = expected.std(ddof=1) / np.sqrt(expected.size)
    assert float(result.recall_se.sel(cell)) == pytest.approx(error)


def test_probing_every_list_makes_fp32_ivf_exact(result) -> None:
    np.testing.assert_array_equal(result.ivf_recall.sel(nprobe=8, reference="exact"), 1.0)
    np.testing.assert_array_equal(result.ivf_recall.sel(reference="fp32_ivf"), 1.0)


def test_gap_is_the_difference_of_the_recalls(result) -> None:
    difference = (result.ivf_recall - result.recall).transpose(*result.gap.dims)
    xr.testing.assert_allclose(result.gap, difference)


def test_scanned_counts(result) -> None:
    assert (result.scanned.sel(stage=1) == 8).all()
    assert (result.scanned.sel(stage=2, nprobe=8) == 600).all()
    assert (result.scanned.sel(stage=3, nprobe=8) == 100).all()


def test_noise_is_taken_from_the_table(corpus, tmp_path) -> None:
    """A table whose decision boundary lies far off makes every group fail, and recall falls."""
    sizes = [1, 2, 4]

    def table(trip: float) -> CalibrationTable:
        data = {
            name: ("m", np.full(3, value), {"units": "level"})
            for name, value in {"trip_margin": trip, "read_sigma": 0.0}.items()
        }
        dataset = xr.Dataset(data, coords={"m": ("m", sizes, {"interpolation": "exact"})})
        dataset.attrs = {"nandcosim_table": 1, "circuit": "dts_sense"}
        return CalibrationTable(dataset)

    config = CONFIG.model_copy(
        update={"dts": "242", "alpha": 2, "nprobe": 8, "noise": "table", "sigma": 0.0}
    )
    clean = dnova.evaluate(config.model_copy(update={"noise": "none"}), workload=corpus)
    same = dnova.evaluate(config, {"dts_sense": table(0.0)}, corpus)
    xr.testing.assert_equal(same.recall, clean.recall)
    off = dnova.evaluate(config, {"dts_sense": table(30.0)}, corpus)
    exact = {"reference": "exact", "k": 25}
    assert off.recall.sel(exact).item() < 0.5 * clean.recall.sel(exact).item()


def test_noise_without_a_table_is_refused(corpus) -> None:
    config = CONFIG.model_copy(update={"noise": "table"})
    with pytest.raises(InputError, match="noise=table needs the table 'dts_sense'"):
        dnova.evaluate(config, {}, corpus)


def test_no_workload_is_refused() -> None:
    with pytest.raises(InputError, match="no workload"):
        dnova.evaluate(CONFIG)


@pytest.mark.parametrize(
    ("text", "sizes"), [("242", (2, 4, 2)), ("16-8-16", (16, 8, 16)), ("1-1-1", (1, 1, 1))]
)
def test_stage_triples(text, sizes) -> None:
    assert group_sizes(text) == sizes


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"dts": "24"}, "dts: found '24', '24' is no stage triple"),
        ({"dts": "0-1-1"}, "no stage triple"),
        ({"alfa": "2"}, "alfa: unknown, did you mean 'alpha'?"),
        ({"alpha": "0"}, "alpha: found 0"),
        ({"alpha": "2,2"}, "twice"),
        ({"nprobe": "2.5"}, "nprobe: found 2.5"),
        ({"noise": "loud"}, "noise: found 'loud'"),
        ({"sigma": "-1"}, "sigma: found -1"),
        ({"value_range": "sigma:-3"}, "value_range: found 'sigma:-3'"),
        ({"k1": "5,10"}, "k1"),
    ],
)
def test_wrong_settings_are_one_line(settings, fragment) -> None:
    with pytest.raises(InputError) as caught:
        dnova.Config.from_settings(settings, "--set")
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_make_axes() -> None:
    config = dnova.Config.from_settings({"alpha": "1,2,3", "dts": "111,242"}, "--set")
    assert config.axes["alpha"] == (1, 2, 3)
    assert config.axes["dts"] == ("111", "242")


def test_every_field_says_its_unit_and_origin() -> None:
    kinds = {"stated", "derived", "measured", "sourced", "assumed", "calibrated"}
    for name, field in dnova.Config.model_fields.items():
        extra = field.json_schema_extra
        assert extra["unit"] == "" or to_unit(1.0, extra["unit"], name) == 1.0
        assert extra["origin"].split(":")[0] in kinds, name


def test_a_unit_may_be_written() -> None:
    config = dnova.Config.from_settings({"channel_bandwidth": "1 GB/s, 2 GB/s"}, "--set")
    assert config.channel_bandwidth == (1e9, 2e9)
    assert dnova.Config.from_settings({"sense_time": "20 us"}, "--set").sense_time == 20e-6


# ---------------------------------------------------------------- what it costs

TABLES = {name: load_tables()[name] for name in ("dts_discharge", "dts_energy")}

#: 600 vectors in 19 sub-blocks of 32.
COSTLY = dnova.Config(
    nlist=8, nprobe=(2, 8), k2=100, k1=25, dts=("111", "242"), bitlines=32,
    schedule=("serial", "channel", "device"), mapping=("naive", "locality"),
    channels=(1, 4), page_energy=(1e-7, 3e-7), deficit_queries=5, event_queries=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def costs(corpus) -> xr.Dataset:
    return dnova.evaluate(COSTLY, TABLES, corpus)


def test_a_variable_has_the_axes_it_depends_on(costs) -> None:
    assert set(costs.recall.dims) == {"dts", "nprobe", "reference", "k"}
    assert set(costs.activations.dims) == {"dts", "nprobe", "mapping", "schedule", "channels",
                                           "stage"}  # fmt: skip
    assert "page_energy" in costs.energy.dims
    assert "page_energy" not in costs.latency.dims
    assert set(costs.ivf_recall.dims) == {"nprobe", "reference", "k"}


def test_the_breakdown_sums_to_the_total(costs) -> None:
    """All queries touch every sub-block at nprobe 8, so their total is the median too."""
    total = costs.latency.sel(system="dnova", nprobe=8).sum(["stage", "component"])
    median = costs.latency_percentile.sel(nprobe=8, percentile=50)
    spread = costs.activations.sel(nprobe=8, stage=3).max() - 19
    assert float(spread) <= 0
    np.testing.assert_allclose(total, median.transpose(*total.dims), rtol=0.05)


def test_axes_are_their_points(corpus, costs) -> None:
    """Every corner of the axes, evaluated alone, gives what stands in the whole."""
    for choice in (0, -1):
        at = {name: values[choice] for name, values in COSTLY.axes.items()}
        alone = dnova.evaluate(COSTLY.model_copy(update=at), TABLES, corpus)
        for name in ("recall", "latency", "energy", "qps", "bytes_moved", "power_saturated",
                     "deficit", "event_qps", "device_sram_peak"):  # fmt: skip
            whole = costs[name]
            whole = whole.sel({n: v for n, v in at.items() if n in whole.dims})
            np.testing.assert_allclose(
                alone[name].transpose(*whole.dims), whole, rtol=1e-12, err_msg=name
            )


def test_probing_all_lists_touches_every_sub_block(corpus, costs) -> None:
    index = dnova.IvfIndex.build(corpus.vectors, 8, 0)
    for mapping in ("naive", "locality"):
        layout = place(index.list_sizes, index.centroids, index.assignment, 32, mapping)
        found = costs.activations.sel(mapping=mapping, nprobe=8, stage=2)
        assert (found == layout.subblocks).all()
    serial = costs.sel(schedule="serial")
    xr.testing.assert_equal(serial.busiest.drop_attrs(), serial.activations.drop_attrs())
    assert (costs.busiest <= costs.activations).all()


def test_latency_of_a_serial_query_by_hand(corpus) -> None:
    """Table 1 alone: array time is 30 us a sense, 64 / m senses an activation of 64 cells."""
    config = COSTLY.model_copy(
        update={"dts": "242", "nprobe": 8, "schedule": "serial", "mapping": "naive",
                "channels": 1, "page_energy": 1e-7, "event_queries": 0}
    )  # fmt: skip
    found = dnova.evaluate(config, {}, corpus)
    count = found.activations
    expected = 30e-6 * 64 * float((count / xr.DataArray([2, 4, 2], dims="stage")).sum())
    array = found.latency.sel(system="dnova", component="array").sum()
    assert float(array) == pytest.approx(expected, rel=1e-12)


def test_simulation_of_a_query_alone_is_the_closed_form(costs) -> None:
    serial = costs.event_latency_ratio.sel(schedule="serial")
    np.testing.assert_allclose(serial, 1.0, rtol=1e-9)


def test_baselines_are_searched_too_if_asked(corpus) -> None:
    config = CONFIG.model_copy(
        update={"alpha": 2, "dts": "242", "baselines": "executed", "reis_candidates": (30, 600)}
    )
    found = dnova.evaluate(config, TABLES, corpus)
    exact = {"reference": "exact", "k": 25, "nprobe": 8}
    assert float(found.nsp_recall.sel(exact)) > 0.98
    few, all_ = found.reis_recall.sel(exact).values
    assert few < all_
    assert all_ == pytest.approx(float(found.nsp_recall.sel(exact)), abs=0.01)
    assert "reis_candidates" not in found.recall.dims
    assert json.loads(found.attrs["config"])["faiss_bandwidth"] > 0


def test_an_index_too_large_for_the_device_is_refused(corpus) -> None:
    config = CONFIG.model_copy(update={"blocks": 1, "select_lines": 1, "bitlines": 2, "dies": 1})
    with pytest.raises(InputError, match=r"index of 600 vectors .* allowed: "):
        dnova.evaluate(config, {}, corpus)


def test_too_few_planes_are_refused(corpus) -> None:
    with pytest.raises(InputError, match="planes = 1 a die"):
        dnova.evaluate(CONFIG.model_copy(update={"planes": 1}), {}, corpus)


def test_exact_neighbours_are_those_of_a_full_sort(corpus) -> None:
    unit = corpus.vectors / np.linalg.norm(corpus.vectors, axis=1, keepdims=True)
    scores = corpus.queries @ unit.T
    expected = np.argsort(-scores, axis=1)[:, :5]
    found = exact_neighbours(corpus.vectors, corpus.queries, 5)
    assert (np.sort(found) == np.sort(expected)).mean() > 0.99


def noisy_table(trip_error: float) -> CalibrationTable:
    """Trip margin 0.1 for every m, known to `trip_error`; as a fit would describe it."""
    sizes = [1, 2, 4]
    values = {"trip_margin": 0.1, "trip_margin_se": trip_error, "read_sigma": 0.0}
    data = {name: ("m", np.full(3, value), {"units": "level"}) for name, value in values.items()}
    dataset = xr.Dataset(data, coords={"m": ("m", sizes, {"interpolation": "exact"})})
    dataset.trip_margin.attrs |= {"perturb": "normal", "standard_error": "trip_margin_se"}
    dataset.attrs = {"nandcosim_table": 1, "circuit": "dts_sense"}
    return CalibrationTable(dataset)


NOISY = CONFIG.model_copy(
    update={"dts": "242", "alpha": 2, "nprobe": 8, "noise": ("none", "table"), "chip": (0, 1, 2)}
)


def test_chips_differ_by_their_noise_and_not_in_ideal_sensing(corpus) -> None:
    result = dnova.evaluate(NOISY, {"dts_sense": noisy_table(0.0)}, corpus)
    ideal, noisy = (result.recall.sel(noise=n, reference="exact", k=25) for n in ("none", "table"))
    assert len(set(ideal.values)) == 1
    assert len(set(noisy.values)) > 1
    assert "chip" not in result.ivf_recall.dims


def test_uncertainty_of_the_table_reaches_the_result(corpus) -> None:
    """With cells and reads exact, chips differ only by the table's standard error."""
    config = NOISY.model_copy(update={"noise": "table", "sigma": 0.0})
    sure = dnova.evaluate(config, {"dts_sense": noisy_table(0.0)}, corpus).recall
    unsure = dnova.evaluate(config, {"dts_sense": noisy_table(2.0)}, corpus).recall
    assert (sure == sure.isel(chip=0)).all()
    xr.testing.assert_equal(unsure.isel(chip=0), sure.isel(chip=0))
    assert (unsure.isel(chip=slice(1, None)) != sure.isel(chip=slice(1, None))).any()


def test_report_averages_over_chips() -> None:
    from nandcosim.report.retrieval import over_chips

    shape = ("chip", "reference", "k")
    recall = xr.DataArray([[[0.4]], [[0.6]]], dims=shape)
    dataset = xr.Dataset({"recall": recall, "gap": -recall})
    dataset["recall_se"] = dataset["gap_se"] = xr.full_like(recall, 0.1)
    merged = over_chips(dataset)
    assert merged.recall.item() == pytest.approx(0.5)
    # 0.1 over the queries, and two chips whose variance is 0.02
    assert merged.recall_se.item() == pytest.approx(np.sqrt(0.01 + 0.02 / 2))


def test_bits_of_a_cell_are_the_levels_searched(corpus) -> None:
    config = CONFIG.model_copy(update={"alpha": 1, "dts": "111", "nprobe": 8})
    both = dnova.evaluate(config.model_copy(update={"cell_bits": (2, 4)}), TABLES, corpus)
    exact = {"reference": "exact", "k": 25}
    for bits in (2, 4):
        index = dnova.IvfIndex.build(corpus.vectors, 8, 0, levels=2**bits)
        found = index.search(corpus.queries, m=(1, 1, 1), alpha=1, nprobe=8, k2=100, k1=25)
        expected = recall_per_query(
            found.ids, exact_neighbours(corpus.vectors, corpus.queries, 25), 25
        )
        assert float(both.recall.sel(**exact, cell_bits=bits)) == pytest.approx(expected.mean())
    assert "cell_bits" not in both.ivf_recall.dims
    with pytest.raises(InputError, match="noise=table with cell_bits = 2, allowed: 4"):
        dnova.evaluate(
            config.model_copy(update={"cell_bits": 2, "noise": "table"}), load_tables(), corpus
        )


def test_group_sizes_beyond_the_tables_cost_what_table_1_says(corpus) -> None:
    config = CONFIG.model_copy(update={"alpha": 2, "nprobe": 8, "dts": ("111", "16-16-16")})
    found = dnova.evaluate(config, TABLES, corpus)
    assert found.attrs["cost"] == "Table 1 alone: the circuit's tables have no m = 16"
    array = found.latency.sel(system="dnova", component="array", stage=1)
    assert float(array.sel(dts="16-16-16")) == pytest.approx(30e-6 * 64 / 16)
    within = dnova.evaluate(config.model_copy(update={"dts": "111"}), TABLES, corpus)
    assert within.attrs["cost"] == "Table 1 and the circuit's tables"
