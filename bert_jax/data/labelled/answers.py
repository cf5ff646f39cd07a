"""The outputs of a head for rows of tokens, back to one prediction for each example.

Answers in a context are found by the rules of run_squad.py. Two things differ: an answer is the exact text of the
context between its first and last token, and where the best starts and ends give no answer at all, the best single
token is one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.labelled.examples import Example
from bert_jax.data.labelled.features import Features


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One of the best answers; no text is no answer."""

    text: str
    start: int  # characters of the context
    end: int
    score: float  # logit of the start plus logit of the end
    probability: float  # among the best answers


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """An answer: context[start:end]; no text is no answer."""

    text: str
    start: int
    end: int
    score: float  # of the best answer with a text, given or not
    no_answer_score: float  # the lowest of the windows' scores for no answer
    n_best: tuple[Candidate, ...]  # best first; where there may be no answer, that is one of them

    @property
    def best_text(self) -> str:
        """What the answer is if there must be one."""
        return next((one.text for one in self.n_best if one.text), "")


Prediction = np.ndarray | float | tuple[int, ...] | Span


def trim(kind: str, output: np.ndarray, length: int) -> np.ndarray:
    """A head on a row of so many tokens: tag [tokens, C], span [tokens, 2], classify, choice [C], regress [1]."""
    if kind in ("tag", "span"):
        return output[:length]
    return output[:, 0] if kind == "choice" else output[0]


def decode(
    kind: str,
    features: Features,
    examples: Sequence[Example],
    outputs: Sequence[np.ndarray],
    task: knobs.Task,
) -> list[Prediction]:
    """One prediction an example.

    Args:
      kind: the objective.
      features: what `encode` made of the examples with train=False.
      examples: all of them, in order.
      outputs: of each row, without its padding, as `trim` leaves them.
      task: how answers are chosen.

    Returns:
      classify, choice: probabilities [C]; regress: a number; tag: a class for each word, -1 for one that was cut off;
      span: a Span.
    """
    if kind == "classify":
        return [_softmax(output) for output in outputs]
    if kind == "choice":
        return [
            _softmax(output[: len(one.options)])
            for one, output in zip(examples, outputs, strict=True)
        ]
    if kind == "regress":
        return [float(output[0]) for output in outputs]
    if kind == "tag":
        return list(_tags(features, examples, outputs))
    rows: list[list[int]] = [[] for _ in examples]
    for row, number in enumerate(features.example.tolist()):
        rows[number].append(row)
    return [
        _answer(features, mine, outputs, one.pair or "", task)
        for mine, one in zip(rows, examples, strict=True)
    ]


def _softmax(logits: np.ndarray) -> np.ndarray:
    """float64, whatever comes in."""
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    return shifted / shifted.sum()


def _tags(
    features: Features, examples: Sequence[Example], outputs: Sequence[np.ndarray]
) -> list[tuple[int, ...]]:
    """Each word's class, from the row that answers for it."""
    assert features.words is not None, "encode with train=False"
    found = [[-1] * len(one.words) for one in examples]
    for row, (number, output) in enumerate(zip(features.example.tolist(), outputs, strict=True)):
        words = features.words[features.offsets[row] : features.offsets[row + 1]]
        there = np.flatnonzero(words >= 0)
        for word, tag in zip(
            words[there].tolist(), output[there].argmax(axis=-1).tolist(), strict=True
        ):
            found[number][word] = tag
    return [tuple(one) for one in found]


def _answer(
    features: Features,
    rows: list[int],
    outputs: Sequence[np.ndarray],
    context: str,
    task: knobs.Task,
) -> Span:
    """The answer to one question, over its windows."""
    no_answer = min(float(outputs[row][0].astype(np.float64).sum()) for row in rows)
    found = np.concatenate(
        [_pairs(features, row, outputs[row].astype(np.float64), task) for row in rows]
    )  # [A, 3]
    if not len(found):
        found = np.concatenate(
            [_tokens(features, row, outputs[row].astype(np.float64)) for row in rows]
        )
    best: list[tuple[str, int, int, float]] = []
    seen = set()
    for score, start, end in found[np.argsort(-found[:, 0], kind="stable")].tolist():
        text = context[int(start) : int(end)]
        if text not in seen and len(best) < task.n_best:
            seen.add(text)
            best.append((text, int(start), int(end), score))
    none = ("", 0, 0, no_answer)
    chosen = best[0] if best else none
    if task.no_answer or not best:
        best = sorted([*best, none], key=lambda one: -one[3])
    shares = _softmax(np.array([one[3] for one in best]))
    n_best = tuple(Candidate(*one, share) for one, share in zip(best, shares.tolist(), strict=True))
    score = chosen[3]
    if task.no_answer and no_answer - score > task.no_answer_threshold:
        chosen = none
    return Span(*chosen[:3], score, no_answer, n_best)


def _pairs(features: Features, row: int, logits: np.ndarray, task: knobs.Task) -> np.ndarray:
    """Answers of one row, from its best starts and ends: float64 [A, 3], score and characters."""
    characters, best = _shown(features, row)
    ranked = np.argsort(-logits, axis=0, kind="stable")[: task.n_best]
    starts, ends = ranked[best[ranked[:, 0]], 0], ranked[characters[ranked[:, 1], 0] >= 0, 1]
    i, j = (grid.reshape(-1) for grid in np.meshgrid(starts, ends, indexing="ij"))
    fits = (i <= j) & (j - i < task.answer_tokens)
    i, j = i[fits], j[fits]
    return np.stack([logits[i, 0] + logits[j, 1], characters[i, 0], characters[j, 1]], axis=1)


def _tokens(features: Features, row: int, logits: np.ndarray) -> np.ndarray:
    """Every token of the context for which this row answers, as an answer: float64 [A, 3]."""
    characters, best = _shown(features, row)
    return np.concatenate([logits.sum(axis=1, keepdims=True), characters], axis=1)[best]


def _shown(features: Features, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a row's tokens lie in the context, and for which of them it answers."""
    assert features.characters is not None
    assert features.best is not None, "encode with train=False"
    here = slice(features.offsets[row], features.offsets[row + 1])
    return features.characters[here], features.best[here]
