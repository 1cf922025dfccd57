"""The design-space study agrees with the plain reference on a small corpus."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.systems.dnova.corpus.collection import Corpus
from nandcosim.systems.dnova.ivf import exact_neighbours, normalised
from nandcosim.systems.dnova.quantise import fit_quantiser
from nandcosim.systems.dnova.range_study import main, range_study
from nandcosim.systems.dnova.recall import recall_at
from nandcosim.systems.dnova.score import Accumulator, score_deficits


def test_each_point_is_an_exhaustive_search() -> None:
    draw = np.random.default_rng(0)
    vectors, queries = draw.standard_normal((300, 24)), draw.standard_normal((6, 24))
    corpus = Corpus(name="small", vectors=vectors, queries=queries)
    ranges = ["sigma:4", "sigma:9"]
    points = list(range_study(corpus, ranges, sizes=(1, 3), latches=(2, None), k=10))
    assert [(p.value_range, p.latch_bits, p.m) for p in points] == [
        (value_range, latch, m) for value_range in ranges for latch in (2, None) for m in (1, 3)
    ]
    exact = exact_neighbours(vectors, queries, 10)
    for point in points:
        quantiser = fit_quantiser(normalised(vectors), policy=point.value_range)
        codes = quantiser.encode(normalised(vectors))
        rule = {"m": point.m, "accumulator": Accumulator(latch_bits=point.latch_bits)}
        scores = np.stack(
            [score_deficits(codes, q, **rule) for q in quantiser.encode(normalised(queries))]
        )
        found = np.argsort(scores, axis=1, kind="stable")[:, :10]
        assert point.recall_exact == recall_at(found, exact, 10)
        assert point.deficit == np.median(np.take_along_axis(scores, found, axis=1)) / 2
        assert np.isnan(point.recall_judged)


def test_an_unknown_range_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wordnet", "--ranges", "minmax:1", "--queries", "1"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "minmax:1" in error


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--alphas", "2", "0"], "alpha: found 0"),
        (["--alphas", "17"], "alpha: found 17"),
        (["--queries", "-1"], "queries: found -1"),
    ],
)
def test_what_an_evaluation_refuses_is_refused(wrong, message, capsys) -> None:
    assert main(["wordnet", *wrong]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert message in printed.err
    assert printed.out == ""
