"""Training of the query-side adapter: InfoNCE against negatives that DTS itself finds.

Section 4.2, Fig. 9. For a query q_i with relevant passage p+ and negatives p-_ij,

    L = -log( e+ / (e+ + sum_j e-_j) ),    e = exp(sim(q'_i, p) / tau),

where q' is the adapted query and sim the cosine. The negatives come from the best
K_cand passages of a DTS search with the adapter as it stands, searched again every few
epochs; a passage judged relevant to the query is never among them. Passages stay as
they are. Gradients are by autograd, the optimiser is AdamW. Early stopping keeps the
epoch with the best recall@100 of DTS on the validation queries, the untrained
adapter, which is the identity, being the first to beat.

The settings and the seed decide the result bit for bit, on one machine and one build
of its linear algebra library.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from nandcosim import __version__
from nandcosim.errors import InputError, MissingExtraError
from nandcosim.systems.config import SystemConfig, setting
from nandcosim.systems.dnova.adapter import ACTIVATIONS, Adapter
from nandcosim.systems.dnova.config import group_sizes
from nandcosim.systems.dnova.corpus import Corpus, load_corpus
from nandcosim.systems.dnova.ivf import IvfIndex, normalised
from nandcosim.systems.dnova.quantise import parse_range
from nandcosim.systems.dnova.recall import recall_at

__all__ = ["TrainingSettings", "adapt", "corpus_digest", "train", "validation_recall"]

#: Called with epochs done and epochs at most.
ProgressOfEpochs = Callable[[int, int], None]

_RECALL_AT = 100
_WEIGHTS = ("w1", "b1", "w2", "b2")
_DECAYED = ("w1", "w2")
_NEVER = np.float32(-1e9)
"""Logit added to passages that are no negatives of a query."""


def _checked_by(check: Callable[[str], object]) -> AfterValidator:
    def validate(value: str) -> str:
        check(value)
        return value

    return AfterValidator(validate)


_Count = Annotated[int, Field(ge=1)]
_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0.0)]


class TrainingSettings(SystemConfig):
    """How an adapter is trained. Where the paper is silent, validation queries chose."""

    hidden: _Count = setting(
        512, unit="1", meaning="width of the hidden layer", origin="derived: 0.4 M parameters"
    )
    activation: Literal["tanh", "relu"] = setting(
        "tanh", unit="", meaning="nonlinearity", origin="assumed: not stated; by validation"
    )
    temperature: _Positive = setting(
        0.05, unit="1", meaning="tau of InfoNCE", origin="assumed: not stated; by validation"
    )
    learning_rate: _Positive = setting(
        2e-5, unit="1", meaning="step of Adam", origin="assumed: not stated; by validation"
    )
    weight_decay: Annotated[float, Field(ge=0.0)] = setting(
        0.0,
        unit="1",
        meaning="decoupled decay of the weight matrices, times the step",
        origin="assumed: not stated; by validation",
    )
    batch: _Count = setting(64, unit="1", meaning="queries a step", origin="assumed: not stated")
    epochs: _Whole = setting(10, unit="1", meaning="epochs at most", origin="assumed: not stated")
    patience: _Count = setting(
        3, unit="1", meaning="epochs without a better one before stopping", origin="assumed"
    )
    negatives: _Count = setting(
        8, unit="1", meaning="mined negatives a query and step", origin="assumed: not stated"
    )
    pool: _Count = setting(
        1000,
        unit="1",
        meaning="K_cand, the best passages of DTS that negatives are drawn from",
        origin="assumed: not stated; as many as stage 2 keeps",
    )
    in_batch: bool = setting(
        True,
        unit="",
        meaning="whether the passages of a step's other queries are negatives too",
        origin="assumed: not stated; by validation",
    )
    refresh: _Count = setting(
        2, unit="1", meaning="epochs between two searches for negatives", origin="assumed"
    )
    seed: _Whole = setting(0, unit="1", meaning="of weights, order and draws", origin="assumed")
    dts: Annotated[str, _checked_by(group_sizes)] = setting(
        "242", unit="", meaning="wordlines sensed at once by stage", origin="stated: section 6.6"
    )
    alpha: Annotated[int, Field(ge=1, le=16)] = setting(
        2, unit="1", meaning="tolerance in levels", origin="stated: section 5.4"
    )
    value_range: Annotated[str, _checked_by(parse_range)] = setting(
        "sigma:9", unit="", meaning="range that the levels span", origin="assumed: not stated"
    )
    nlist: _Count = setting(128, unit="1", meaning="inverted lists", origin="assumed")
    nprobe: _Count = setting(32, unit="1", meaning="lists probed", origin="assumed")
    index_seed: _Whole = setting(0, unit="1", meaning="of k-means", origin="assumed")
    threads: _Count = setting(
        1, unit="1", meaning="queries searched at a time; no effect on results", origin="assumed"
    )


def train(
    corpus_train: Corpus,
    corpus_validation: Corpus,
    settings: TrainingSettings | None = None,
    progress: ProgressOfEpochs | None = None,
    *,
    index: IvfIndex | None = None,
) -> Adapter:
    """Train an adapter on judged queries.

    Parameters
    ----------
    corpus_train, corpus_validation : Corpus
        The same documents with two disjoint sets of judged queries.
    settings : TrainingSettings, optional
    progress : callable, optional
        Called with epochs done and epochs at most.
    index : IvfIndex, optional
        Over the documents, as the settings build it, if there is one already.

    Returns
    -------
    Adapter
        That of the best epoch. Its provenance has ``settings``, ``corpus``, ``history``
        (loss and validation recall by epoch, epoch 0 being the identity), ``best_epoch``,
        ``validation_recall``, ``versions`` and ``date``.

    Raises
    ------
    InputError
        If queries have no judgements, the documents differ, or a setting does not fit.
    MissingExtraError
        If autograd or FAISS is not installed.
    """
    run = _Training(corpus_train, corpus_validation, settings or TrainingSettings(), index)
    return run.fit(progress)


def adapt(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: TrainingSettings | None = None,
    progress: ProgressOfEpochs | None = None,
) -> Adapter:
    """Train on a corpus' ``train`` split, stop by its ``validation`` split, write to `out`."""
    folder = Path(out).resolve().parent
    if not folder.is_dir():
        raise InputError(f"{out}: no such folder: {folder}")
    splits = [load_corpus(corpus, split=split) for split in ("train", "validation")]
    adapter = train(splits[0], splits[1], settings, progress)
    adapter.save(out)
    return adapter


def validation_recall(
    adapter: Adapter | None,
    corpus: Corpus,
    settings: TrainingSettings,
    index: IvfIndex | None = None,
) -> float:
    """Recall@100 of DTS against the judgements at the training configuration.

    Parameters
    ----------
    adapter : Adapter or None
        None searches with the queries as they are.
    corpus : Corpus
    settings : TrainingSettings
    index : IvfIndex, optional
        As the settings build it, if there is one already.
    """
    index = index or _build(corpus, settings)
    queries = corpus.queries if adapter is None else adapter(corpus.queries)
    return recall_at(_search(index, queries, settings, _RECALL_AT), _judged(corpus), _RECALL_AT)


def corpus_digest(corpus: Corpus) -> str:
    """SHA-256 over vectors, queries and judgements, in hexadecimal."""
    digest = hashlib.sha256()
    for array in (corpus.vectors, corpus.queries):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    digest.update(repr(corpus.relevance).encode())
    return digest.hexdigest()


@dataclass
class _AdamW:
    """Adam with bias correction and decoupled decay of the weight matrices."""

    rate: float
    decay: float
    steps: int = 0
    mean: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    square: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def step(
        self, weights: dict[str, NDArray[np.float32]], gradient: dict[str, NDArray[np.float32]]
    ) -> dict[str, NDArray[np.float32]]:
        self.steps += 1
        moved = {}
        for name, g in gradient.items():
            self.mean[name] = 0.9 * self.mean.get(name, np.float32(0)) + 0.1 * g
            self.square[name] = 0.999 * self.square.get(name, np.float32(0)) + 0.001 * g * g
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            decay = self.decay * weights[name] if name in _DECAYED else 0
            change = self.rate * (mean / (np.sqrt(square) + 1e-8) + decay)
            moved[name] = (weights[name] - change).astype(np.float32)
        return moved


class _Training:
    """One run of `train`."""

    def __init__(
        self,
        corpus_train: Corpus,
        corpus_validation: Corpus,
        settings: TrainingSettings,
        index: IvfIndex | None = None,
    ) -> None:
        if corpus_train.vectors.shape != corpus_validation.vectors.shape or not np.array_equal(
            corpus_train.vectors, corpus_validation.vectors
        ):
            raise InputError("adapter: training and validation corpora have different documents")
        self.settings = settings
        self.corpus = corpus_train
        self.validation = corpus_validation
        self.relevance = _judged(corpus_train)
        _judged(corpus_validation)
        self.index = index or _build(corpus_train, settings)
        self.vectors = normalised(corpus_train.vectors)
        self.queries = normalised(corpus_train.queries)
        self.draw = np.random.default_rng([settings.seed, 1])
        self.gradient = _gradient_of_loss(settings)

    def fit(self, progress: ProgressOfEpochs | None) -> Adapter:
        settings = self.settings
        adapter = Adapter.untrained(
            self.corpus.dimension,
            settings.hidden,
            activation=settings.activation,
            seed=settings.seed,
        )
        optimiser = _AdamW(settings.learning_rate, settings.weight_decay)
        recalls, losses = [self._recall(adapter)], [float("nan")]
        best = adapter
        pools: list[NDArray[np.int64]] = []
        for epoch in range(settings.epochs):
            if epoch % settings.refresh == 0:
                pools = self._mine(adapter)
            adapter, loss = self._epoch(adapter, optimiser, pools)
            losses.append(loss)
            recalls.append(self._recall(adapter))
            if recalls[-1] > max(recalls[:-1]):
                best = adapter
            if progress is not None:
                progress(epoch + 1, settings.epochs)
            if epoch + 1 - int(np.argmax(recalls)) >= settings.patience:
                break
        return _with_provenance(best, self._provenance(losses, recalls))

    def _recall(self, adapter: Adapter) -> float:
        return validation_recall(adapter, self.validation, self.settings, self.index)

    def _mine(self, adapter: Adapter) -> list[NDArray[np.int64]]:
        """For every query the passages DTS ranks best, without the relevant ones."""
        found = _search(self.index, adapter(self.queries), self.settings, self.settings.pool)
        return [
            row[(row >= 0) & ~np.isin(row, relevant)]
            for row, relevant in zip(found, self.relevance, strict=True)
        ]

    def _epoch(
        self, adapter: Adapter, optimiser: _AdamW, pools: Sequence[NDArray[np.int64]]
    ) -> tuple[Adapter, float]:
        weights = {name: getattr(adapter, name) for name in _WEIGHTS}
        losses, counts = [], []
        for rows, passages, bias in self._batches(pools):
            loss, gradient = self.gradient(
                weights, self.queries[rows], self.vectors[passages], bias
            )
            weights = optimiser.step(weights, gradient)
            losses.append(float(loss))
            counts.append(rows.size)
        trained = Adapter(**weights, activation=adapter.activation)
        return trained, float(np.average(losses, weights=counts))

    def _batches(
        self, pools: Sequence[NDArray[np.int64]]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Queries (B,), passages (P,), and what is added to their logits (B, P).

        Passage i is the relevant one of query i; the mined ones follow, query by query.
        A query whose pool is empty brings none.
        """
        order = self.draw.permutation(len(self.queries))
        for start in range(0, order.size, self.settings.batch):
            rows = order[start : start + self.settings.batch]
            positive = np.array([self.draw.choice(self.relevance[i]) for i in rows], np.int64)
            mined = [self._some(pools[i]) for i in rows]
            passages = np.concatenate([positive, *mined])
            owner = np.repeat(np.arange(rows.size), [some.size for some in mined])
            owner = np.concatenate([np.arange(rows.size), owner])
            bias = np.zeros((rows.size, passages.size), np.float32)
            if not self.settings.in_batch:
                bias[owner != np.arange(rows.size)[:, None]] = _NEVER
            for place, row in enumerate(rows):
                bias[place, np.isin(passages, self.relevance[row])] = _NEVER
            np.fill_diagonal(bias, 0)
            yield rows, passages, bias

    def _some(self, pool: NDArray[np.int64]) -> NDArray[np.int64]:
        count = min(self.settings.negatives, pool.size)
        return self.draw.choice(pool, count, replace=False)

    def _provenance(self, losses: list[float], recalls: list[float]) -> dict[str, Any]:
        best = int(np.argmax(recalls))
        return {
            "corpus": {
                "name": self.corpus.name,
                "documents": self.corpus.n,
                "train_queries": self.corpus.nq,
                "train_sha256": corpus_digest(self.corpus),
                "validation_queries": self.validation.nq,
                "validation_sha256": corpus_digest(self.validation),
                "licence": self.corpus.licence,
            },
            "settings": self.settings.model_dump(),
            "history": {
                "loss": [None if np.isnan(loss) else loss for loss in losses],
                "validation_recall": recalls,
            },
            "best_epoch": best,
            "validation_recall": recalls[best],
            "versions": {
                "nandcosim": __version__,
                **{name: version(name) for name in ("numpy", "autograd", "faiss-cpu")},
            },
            "date": datetime.now(UTC).date().isoformat(),
        }


def _gradient_of_loss(settings: TrainingSettings) -> Callable[..., tuple[Any, Any]]:
    """Loss and its gradient by weight: queries (B, D), passages (P, D), bias (B, P)."""
    try:
        import autograd.numpy as anp
        from autograd import value_and_grad
        from autograd.scipy.special import logsumexp
    except ImportError as error:
        raise MissingExtraError("adapter training", "autograd", "adapter") from error
    activation = ACTIVATIONS[settings.activation]
    sharpness = np.float32(1 / settings.temperature)

    def loss(weights: Any, queries: Any, passages: Any, bias: Any) -> Any:
        hidden = activation(anp, anp.dot(queries, weights["w1"]) + weights["b1"])
        adapted = queries + anp.dot(hidden, weights["w2"]) + weights["b2"]
        adapted = adapted / anp.sqrt(anp.sum(adapted * adapted, axis=1, keepdims=True))
        logits = anp.dot(adapted, passages.T) * sharpness + bias
        own = np.arange(len(queries))
        return anp.mean(logsumexp(logits, axis=1) - logits[own, own])

    return value_and_grad(loss)  # type: ignore[no-any-return]


def _build(corpus: Corpus, settings: TrainingSettings) -> IvfIndex:
    return IvfIndex.build(
        corpus.vectors, settings.nlist, settings.index_seed, value_range=settings.value_range
    )


def _search(
    index: IvfIndex, queries: NDArray[np.float32], settings: TrainingSettings, keep: int
) -> NDArray[np.int64]:
    """The `keep` best passages of DTS at the training configuration, shape (nq, keep)."""
    found = index.search(
        queries,
        m=group_sizes(settings.dts),
        alpha=settings.alpha,
        nprobe=settings.nprobe,
        k2=max(1000, keep),
        k1=keep,
        threads=settings.threads,
    )
    return found.ids


def _judged(corpus: Corpus) -> tuple[tuple[int, ...], ...]:
    if corpus.relevance is None:
        raise InputError(f"adapter: corpus {corpus.name} has no relevance judgements")
    for query, relevant in enumerate(corpus.relevance):
        if not relevant:
            raise InputError(f"adapter: query {query} of {corpus.name} has no relevant document")
    return corpus.relevance


def _with_provenance(adapter: Adapter, provenance: dict[str, Any]) -> Adapter:
    return Adapter(
        **{name: getattr(adapter, name) for name in _WEIGHTS},
        activation=adapter.activation,
        provenance=provenance,
    )
