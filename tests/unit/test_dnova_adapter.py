"""The adapter: its size and file, and a training that is repeatable and learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.linalg import expm

pytest.importorskip("numba")
pytest.importorskip("faiss")

from nandcosim.errors import InputError
from nandcosim.systems.dnova.adapter import Adapter, load_adapter
from nandcosim.systems.dnova.adapter_study import (
    expansion_study,
    gap_table,
    main,
    measure_recall,
    of_documents,
)
from nandcosim.systems.dnova.adapter_training import (
    TrainingSettings,
    adapt,
    corpus_digest,
    train,
    validation_recall,
)
from nandcosim.systems.dnova.corpus import Corpus, load_corpus
from nandcosim.systems.dnova.ivf import IvfIndex, normalised
from nandcosim.systems.dnova.recall import recall_at

WEIGHTS = ("w1", "b1", "w2", "b2")
SMALL = TrainingSettings(
    hidden=32,
    epochs=4,
    patience=4,
    batch=32,
    negatives=4,
    pool=50,
    learning_rate=3e-3,
    nlist=8,
    nprobe=4,
)


def rotated_corpora(dim: int = 24, n: int = 600, nq: int = 160) -> tuple[Corpus, Corpus]:
    """Queries that are their document, turned by a fixed rotation: an adapter can undo it."""
    draw = np.random.default_rng(3)
    vectors = normalised(draw.standard_normal((n, dim)))
    skew = draw.standard_normal((dim, dim))
    turn = expm(0.15 * (skew - skew.T))
    targets = draw.choice(n, (2, nq), replace=False)
    made = [
        Corpus(
            name="rotated",
            vectors=vectors,
            queries=normalised(vectors[rows] @ turn + draw.normal(0, 0.05, (nq, dim))),
            relevance=tuple((int(row),) for row in rows),
        )
        for rows in targets
    ]
    return made[0], made[1]


def random_adapter(dimension: int = 24, hidden: int = 7, activation: str = "tanh") -> Adapter:
    draw = np.random.default_rng(5)
    shapes = ((dimension, hidden), (hidden,), (hidden, dimension), (dimension,))
    return Adapter(
        *(draw.standard_normal(shape).astype(np.float32) for shape in shapes),
        activation=activation,
        provenance={"seed": 5, "history": {"loss": [None, 1.5]}},
    )


@pytest.mark.parametrize(("dimension", "parameters"), [(384, 394_112), (768, 787_712)])
def test_size_is_that_of_two_layers_with_biases(dimension: int, parameters: int) -> None:
    adapter = Adapter.untrained(dimension)
    assert (adapter.hidden, adapter.parameters) == (512, parameters)
    queries = np.random.default_rng(0).standard_normal((5, dimension))
    np.testing.assert_array_equal(adapter(queries), normalised(normalised(queries)))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_output_is_the_formula_in_double_precision(activation: str) -> None:
    adapter = random_adapter(activation=activation)
    queries = np.random.default_rng(1).standard_normal((9, 24))
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    inner = np.einsum("qd,dh->qh", unit, adapter.w1.astype(float)) + adapter.b1
    inner = np.tanh(inner) if activation == "tanh" else np.where(inner > 0, inner, 0)
    out = unit + np.einsum("qh,hd->qd", inner, adapter.w2.astype(float)) + adapter.b2
    out /= np.sqrt((out**2).sum(axis=1))[:, None]
    np.testing.assert_allclose(adapter(queries), out, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(adapter(queries), axis=1), 1, atol=1e-6)


def test_file_gives_back_every_bit(tmp_path: Path) -> None:
    adapter = random_adapter(activation="relu")
    adapter.save(tmp_path / "a.nc")
    back = load_adapter(tmp_path / "a.nc")
    for name in WEIGHTS:
        assert getattr(back, name).tobytes() == getattr(adapter, name).tobytes()
    assert (back.activation, back.provenance) == ("relu", adapter.provenance)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


def test_files_that_are_no_adapter_are_refused_in_one_line(tmp_path: Path) -> None:
    random_adapter().save(tmp_path / "good.nc")
    good = xr.load_dataset(tmp_path / "good.nc", engine="h5netcdf")
    wrong = {
        "foreign": (xr.Dataset({"x": ("y", [1.0])}), "format"),
        "future": (good.assign_attrs(version=99), "version 99"),
        "part": (good.drop_vars("b2"), "lacks b2"),
        "short": (good.assign(b1=("other", good.b1.values[1:])), "b1 has shape"),
        "nan": (good.assign(w2=good.w2 * np.nan), "not finite"),
        "activation": (good.assign_attrs(activation="sine"), "sine"),
        "json": (good.assign_attrs(provenance="{"), "JSON"),
    }
    for name, (dataset, _) in wrong.items():
        dataset.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    (tmp_path / "text.nc").write_text("weights")
    whole = (tmp_path / "good.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(whole[: len(whole) // 2])
    expected = {name: part for name, (_, part) in wrong.items()}
    expected |= {"text": "netCDF", "cut": "netCDF", "missing": "no such file"}
    for name, part in expected.items():
        with pytest.raises(InputError, match=part) as caught:
            load_adapter(tmp_path / f"{name}.nc")
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)


def test_queries_of_another_dimension_are_refused() -> None:
    with pytest.raises(InputError, match="25 components, it takes 24"):
        random_adapter()(np.ones((2, 25)))


def test_training_undoes_a_rotation_and_repeats_bit_for_bit() -> None:
    pytest.importorskip("autograd")
    learn, check = rotated_corpora()
    adapter, again = train(learn, check, SMALL), train(learn, check, SMALL)
    for name in WEIGHTS:
        assert getattr(adapter, name).tobytes() == getattr(again, name).tobytes()
    other = train(learn, check, SMALL.model_copy(update={"seed": 1}))
    assert not np.array_equal(other.w1, adapter.w1)

    history = adapter.provenance["history"]["validation_recall"]
    assert history[0] == validation_recall(None, check, SMALL)
    assert adapter.provenance["validation_recall"] == max(history)
    assert validation_recall(adapter, check, SMALL) == max(history)
    # geometry, independent of the search: adapted queries are nearer to their documents
    target = learn.vectors[[rows[0] for rows in check.relevance or ()]]
    before = (normalised(check.queries) * target).sum(axis=1).mean()
    after = (adapter(check.queries) * target).sum(axis=1).mean()
    assert after > before + 0.1


def test_gradient_is_that_of_infonce() -> None:
    """Against central differences of the loss written out query by query, in float64."""
    pytest.importorskip("autograd")
    from nandcosim.systems.dnova.adapter_training import _gradient_of_loss

    draw = np.random.default_rng(2)
    settings = TrainingSettings(temperature=0.2)
    adapter = random_adapter(dimension=6, hidden=4)
    weights = {name: getattr(adapter, name).astype(float) for name in WEIGHTS}
    queries, passages = normalised(draw.random((3, 6))), normalised(draw.random((7, 6)))
    bias = np.zeros((3, 7))
    bias[1, 5] = -1e9

    def written_out(w: dict[str, np.ndarray]) -> float:
        losses = []
        for i, query in enumerate(queries.astype(float)):
            out = query + np.tanh(query @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
            out /= np.linalg.norm(out)
            e = np.exp([out @ p / 0.2 for j, p in enumerate(passages) if bias[i, j] == 0])
            losses.append(-np.log(e[i] / e.sum()))
        return float(np.mean(losses))

    loss, gradient = _gradient_of_loss(settings)(weights, queries, passages, bias)
    assert loss == pytest.approx(written_out(weights), rel=1e-6)
    for name in WEIGHTS:
        at = tuple(0 for _ in weights[name].shape)
        step = {sign: {**weights, name: weights[name].copy()} for sign in (1, -1)}
        for sign, moved in step.items():
            moved[name][at] += sign * 1e-5
        slope = (written_out(step[1]) - written_out(step[-1])) / 2e-5
        assert gradient[name][at] == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_negatives_are_found_by_dts_and_never_relevant() -> None:
    pytest.importorskip("autograd")
    from nandcosim.systems.dnova.adapter_training import _Training

    learn, check = rotated_corpora()
    several = tuple((*rows, (rows[0] + 1) % learn.n) for rows in learn.relevance or ())
    learn = Corpus("several", learn.vectors, learn.queries, several)
    run = _Training(learn, check, SMALL)
    pools = run._mine(Adapter.untrained(learn.dimension))
    found = run.index.search(learn.queries, m=(2, 4, 2), nprobe=4, k2=1000, k1=50).ids
    for i, pool in enumerate(pools):
        assert set(pool) == set(found[i]) - set(several[i]) - {-1}
    for rows, passages, bias in run._batches(pools):
        for place, row in enumerate(rows):
            assert passages[place] in several[row]
            assert bias[place, place] == 0
            others = np.flatnonzero(bias[place] == 0)
            assert not np.isin(passages[others[others != place]], several[row]).any()


def test_wrong_training_inputs_are_one_line(tmp_path: Path) -> None:
    pytest.importorskip("autograd")
    learn, check = rotated_corpora(n=400)
    unjudged = Corpus("unjudged", learn.vectors, learn.queries)
    elsewhere = Corpus("else", -check.vectors, check.queries, check.relevance)
    for corpora, part in (
        ((unjudged, check), "unjudged has no relevance"),
        ((learn, elsewhere), "different documents"),
    ):
        with pytest.raises(InputError, match=part):
            train(*corpora, SMALL)
    with pytest.raises(InputError, match="no such folder"):
        adapt("wordnet", tmp_path / "none" / "a.nc")
    for settings in ({"temperature": "0"}, {"dts": "24"}, {"epoch": "3"}, {"activation": "sine"}):
        with pytest.raises(InputError, match=next(iter(settings))):
            TrainingSettings.from_settings(settings, "test")


def test_gap_table_is_arithmetic_of_recalls() -> None:
    learn, _ = rotated_corpora()
    index = IvfIndex.build(learn.vectors, 8)
    adapters = [None, random_adapter(), Adapter.untrained(24)]
    recall = measure_recall(index, learn, adapters, nprobe=(2, 4))
    found = index.search(adapters[1](learn.queries), m=(2, 4, 2), nprobe=2).ids  # type: ignore[misc]
    point = {"system": "DTS242", "nprobe": 2, "k": 25}
    assert float(recall.sel(point).isel(adapter=1).mean()) == recall_at(found, learn.relevance, 25)
    table = gap_table(recall, resamples=200).sel(point)
    mean = 100 * recall.sel(nprobe=2, k=25).mean("query")
    dts, fp32 = mean.sel(system="DTS242").values, mean.sel(system="FP32-IVF").values
    estimate = table.sel(bound="estimate")
    assert float(estimate["gap_without"]) == pytest.approx(fp32[0] - dts[0])
    assert float(estimate["gap_with"]) == pytest.approx(fp32[1:].mean() - dts[1:].mean())
    assert float(estimate["gain"]) == pytest.approx(dts[1:].mean() - dts[0])
    assert float(table["gain"].sel(bound="low")) < float(table["gain"].sel(bound="high"))


def test_fewer_documents_keep_whole_judgements() -> None:
    learn, _ = rotated_corpora()
    rows = np.random.default_rng(0).permutation(learn.n)[:400]
    base = of_documents(learn, rows)
    whole = [i for i, r in enumerate(learn.relevance or ()) if r[0] in rows]
    assert base.nq == len(whole)
    for i, relevant in zip(whole, base.relevance or (), strict=True):
        assert rows[relevant[0]] == (learn.relevance or ())[i][0]
    np.testing.assert_array_equal(base.vectors, learn.vectors[rows])


def test_expansion_study_inserts_what_training_never_saw() -> None:
    pytest.importorskip("autograd")
    learn, check = rotated_corpora()
    corpora = {"train": learn, "validation": check, "test": check}
    study = expansion_study(corpora, SMALL, splits=2, nprobe=(4,))
    assert study.gap.dims == ("split", "adapter", "system")
    assert (study.train_queries < learn.nq).all()
    # every test query counts, also those of added documents
    assert (study.recall.sel(adapter="with") > study.recall.sel(adapter="without")).all()


def test_study_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["wordnet"], ["wordnet", "--table", "--set", "tau=0.1"], ["none", "--table"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_shipped_adapter_achieves_what_it_records() -> None:
    adapter = load_adapter("wordnet")
    record = adapter.provenance
    corpus = load_corpus("wordnet", split="validation")
    assert record["corpus"]["validation_sha256"] == corpus_digest(corpus)
    assert record["corpus"]["train_sha256"] == corpus_digest(load_corpus("wordnet", split="train"))
    settings = TrainingSettings(**record["settings"])
    assert validation_recall(adapter, corpus, settings) == record["validation_recall"]
    assert adapter.parameters == 394_112
