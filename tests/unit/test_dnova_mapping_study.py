"""The footprint study counts what its layouts say; its figure shows the counts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.errors import InputError
from nandcosim.report.mapping import draw_ecdf, draw_study, footprint_table
from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import IvfIndex
from nandcosim.systems.dnova.mapping import place, touched, touched_lists
from nandcosim.systems.dnova.mapping_study import (
    footprint_study,
    main,
    median_reduction,
    summary,
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Clusters in clusters, so that there is a locality to find."""
    draw = np.random.default_rng(1)
    coarse = 3 * draw.standard_normal((12, 48))
    fine = coarse[draw.integers(12, size=90)] + draw.standard_normal((90, 48))
    vectors = fine[draw.integers(90, size=3000)] + 0.5 * draw.standard_normal((3000, 48))
    queries = fine[draw.integers(90, size=60)] + 0.5 * draw.standard_normal((60, 48))
    return Corpus(name="made", vectors=vectors, queries=queries)


@pytest.fixture(scope="module")
def study(corpus):
    return footprint_study(corpus, subblocks=20, nlist=120, nprobes=(4, 8), k2=200)


def test_counts_are_those_of_a_search_of_its_own(corpus, study) -> None:
    arrival = np.random.default_rng(0).permutation(3000)
    rows = corpus.vectors[arrival]
    base = 2400  # a fifth of 3000 later is a quarter of what was before
    built = IvfIndex.build(rows, 120, 0)
    inserted = IvfIndex.build(rows[:base], 120, 0).insert(rows[base:])
    for mapping in ("naive", "locality"):
        whole = place(built.list_sizes, built.centroids, built.assignment, 150, mapping)
        early, later = np.split(inserted.assignment, [base])
        grown = place(
            np.bincount(early, minlength=120), inserted.centroids, early, 150, mapping
        ).append(later, "lists")
        for growth, index, layout in (("built", built, whole), ("lists", inserted, grown)):
            found = index.search(corpus.queries, nprobe=8, k2=200, k1=1)
            got = study["touched"].sel(nprobe=8, k2=200, mapping=mapping, growth=growth)
            assert np.array_equal(got.sel(stage=2), touched_lists(layout, found.lists).counts())
            assert np.array_equal(got.sel(stage=3), touched(layout, found.candidates).counts())


def test_no_mapping_touches_fewer_than_the_least(study) -> None:
    assert (study["touched"] >= study["least"]).all()
    assert (study["touched"].sel(stage=3) <= study["touched"].sel(stage=2)).all()


def test_locality_pays_where_there_is_locality(study) -> None:
    rows = [row for row in summary(study, resamples=300) if row["growth"] == "built"]
    for row in rows:
        if row["stage"] == 2:
            assert row["reduction"].low > 0.2


def test_the_reduction_is_that_of_the_medians_and_its_interval_covers() -> None:
    """Of two known distributions, 95 % of the intervals hold the true reduction."""
    draw = np.random.default_rng(5)
    held = 0
    for seed in range(100):
        common = draw.normal(100, 10, 301)
        before, after = common + 100, 0.5 * common + draw.normal(0, 2, 301) + 50
        found = median_reduction(before, after, resamples=400, seed=seed)
        assert found.value == 1 - np.median(after) / np.median(before)
        held += found.low <= 0.5 <= found.high
    assert 88 <= held <= 100  # 95 of 100 expected; outside with probability 0.4 %


def test_the_figure_draws_each_empirical_distribution(corpus, study) -> None:
    index = IvfIndex.build(corpus.vectors, 120, 0)
    layout = place(index.list_sizes, index.centroids, index.assignment, 150, "locality")
    touches = touched_lists(layout, index.search(corpus.queries, nprobe=4, k1=1).lists)
    (axes,) = draw_ecdf({"locality": touches}, 2).axes
    assert "stage 2" in axes.get_xlabel()
    steps, heights = axes.lines[0].get_data()
    for count in np.unique(touches.counts()):
        drawn = np.asarray(heights)[np.asarray(steps) == count].max()
        assert drawn == pytest.approx(np.mean(touches.counts() <= count))
    figure = draw_study(study, 8, 200)
    assert [len(panel.get_lines()) for panel in figure.axes] == [7, 7]  # and the median's line
    assert len(footprint_table(summary(study, resamples=50))) == 2 * (1 + 2) * 3


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"subblocks": 0}, "subblocks"),
        ({"subblocks": 10, "appended": 0.0}, "appended"),
        ({"subblocks": 10, "nlist": 20, "packing": "best"}, "packing"),
    ],
)
def test_wrong_input_is_one_line(corpus, options, names) -> None:
    with pytest.raises(InputError, match=names) as error:
        footprint_study(corpus, **options)
    assert "\n" not in str(error.value)


def test_the_command_prints_both_mappings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wordnet", "--nlist", "64", "--nprobe", "4", "--queries", "20"]) == 0
    out = capsys.readouterr().out
    assert "20000 vectors in 64 lists, DTS242, 20 queries" in out
    assert len(out.splitlines()) == 3 + 3 * 3
    assert main(["wordnet", "--subblocks", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
