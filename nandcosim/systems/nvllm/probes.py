"""What a language model is measured by: the next token of a text, and words from definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nandcosim.errors import InputError
from nandcosim.systems.nvllm.smollm import Tokenizer
from nandcosim.systems.nvllm.transformer import Tokens, Transformer

__all__ = [
    "Probe",
    "Questions",
    "Score",
    "dictionary_text",
    "read_text",
    "windows",
    "word_questions",
]

CHOICES = 4
#: Entries are taken in steps of this prime, which mixes the alphabet's and WordNet's order.
_STEP = 7919
#: Sequences that are padded to one length and run together.
_BATCH = 32


@dataclass(frozen=True)
class Questions:
    """Which of four words has this definition?

    Attributes
    ----------
    prompts : tuple of ndarray of int
        Tokens up to where the word is to follow.
    choices : ndarray of int, (questions, 4)
        Tokens, one a word; the first is right.
    """

    prompts: tuple[Tokens, ...]
    choices: Tokens


@dataclass(frozen=True)
class Score:
    """How well a model did.

    Attributes
    ----------
    perplexity : float
        exp(mean of -ln p) over the tokens of the text.
    accuracy : float
        Share of the tokens that the model held for the likeliest.
    answers : float
        Share of the questions answered right, NaN without questions; guessing gives 0.25.
    """

    perplexity: float
    accuracy: float
    answers: float = nan


@dataclass(frozen=True)
class Probe:
    """A text, and questions if wanted.

    Attributes
    ----------
    windows : ndarray of int, (windows, length + 1)
        Every token but a window's first is predicted, from those before it in the window.
    questions : Questions, optional
    """

    windows: Tokens
    questions: Questions | None = None

    def score(self, model: Transformer) -> Score:
        """Run a model."""
        states = model.states(self.windows[:, :-1])
        losses, hits = [], []
        for state, target in zip(states, self.windows[:, 1:], strict=True):
            logits = model.logits(state)
            losses.append(_losses(logits, target))
            hits.append(logits.argmax(axis=-1) == target)
        answers = nan if self.questions is None else _answered(model, self.questions)
        with np.errstate(over="ignore"):  # of a broken model; infinite is right
            perplexity = float(np.exp(np.mean(losses)))
        return Score(perplexity, float(np.mean(hits)), answers)


def _losses(logits: NDArray[np.float32], target: Tokens) -> NDArray[np.float64]:
    """-ln p of each target."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    of_target = np.take_along_axis(shifted, target[:, None], axis=-1)[:, 0]
    total = np.exp(shifted).sum(axis=-1, dtype=np.float64)
    losses: NDArray[np.float64] = np.log(total) - of_target
    return losses


def _answered(model: Transformer, questions: Questions) -> float:
    lengths = np.array([len(prompt) for prompt in questions.prompts])
    right = np.zeros(len(lengths), bool)
    order = np.argsort(lengths, kind="stable")
    for batch in np.split(order, range(_BATCH, len(order), _BATCH)):
        longest = int(lengths[batch].max())
        # what follows a prompt does not reach back: any filling does
        padded = np.stack([np.resize(questions.prompts[i], longest) for i in batch])
        last = model.states(padded)[np.arange(len(batch)), lengths[batch] - 1]
        scores = np.take_along_axis(model.logits(last), questions.choices[batch], axis=-1)
        right[batch] = scores.argmax(axis=-1) == 0
    return float(right.mean())


# ---------------------------------------------------------------- texts


def _entries() -> list[tuple[str, str]]:
    """Words and definition of each WordNet entry of the shipped corpus, mixed."""
    from nandcosim.systems.dnova.corpus import load_corpus

    texts = load_corpus("wordnet").texts
    assert texts is not None
    mixed = [texts[i * _STEP % len(texts)] for i in range(len(texts))]
    return [(words, text) for words, _, text in (entry.partition(": ") for entry in mixed)]


def dictionary_text() -> str:
    """Entries of WordNet 3.0, ``words: definition``, one a line (1.5 MB)."""
    return "\n".join(f"{words}: {definition}" for words, definition in _entries())


def read_text(path: Path) -> str:
    """A text of the user's.

    Raises
    ------
    InputError
        If the file cannot be read or is no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: no UTF-8 text") from None


def windows(tokens: Sequence[int], count: int, length: int) -> Tokens:
    """The first windows of a text, `count` predicted tokens together.

    Parameters
    ----------
    tokens : sequence of int
        The text.
    count : int
        Tokens to predict, a multiple of `length`.
    length : int
        Tokens predicted in a window; the last of one is the first that the next one sees.

    Returns
    -------
    ndarray of int, (count / length, length + 1)

    Raises
    ------
    InputError
        If the text is too short, or `count` no multiple.
    """
    if length < 1 or count < 1 or count % length:
        raise InputError(f"tokens: found {count}, allowed: a multiple of the window, {length}")
    if len(tokens) <= count:
        raise InputError(f"tokens: found {count}, allowed: {len(tokens) - 1} of this text at most")
    places = np.arange(0, count, length)[:, None] + np.arange(length + 1)
    cut: Tokens = np.array(tokens[: count + 1], np.int64)[places]
    return cut


def word_questions(tokenizer: Tokenizer, count: int, seed: int = 0) -> Questions:
    """Questions from WordNet: entries of one word that is one token.

    Parameters
    ----------
    tokenizer : Tokenizer
    count : int
        Questions wanted.
    seed : int
        Of the wrong words, which are right ones of other questions.

    Raises
    ------
    InputError
        If there are fewer entries.
    """
    prompts: list[Tokens] = []
    answers: list[int] = []
    for word, definition in _entries():
        token = tokenizer.encode(f" {word}")
        if len(token) == 1 and token[0] not in answers and word not in definition:
            prompt = tokenizer.encode(f"Definition: {definition}.\nWord:")
            prompts.append(np.array(prompt, np.int64))
            answers.append(token[0])
        if len(prompts) == count:
            break
    if not CHOICES <= count == len(prompts):
        raise InputError(f"questions: found {count}, allowed: {CHOICES} to {len(prompts)}")
    rng = np.random.default_rng(seed)
    wrong = [(i + 1 + rng.choice(count - 1, CHOICES - 1, False)) % count for i in range(count)]
    chosen = np.column_stack([np.arange(count), np.array(wrong)])
    return Questions(tuple(prompts), np.array(answers, np.int64)[chosen])
