"""Turn the outputs of a head for rows of tokens into one prediction for each example.

Answers in a context are found by the rules of run_squad.py, with two differences. An answer is the
exact text of the context between its first and last token. If the best starts and ends give no
answer at all, the best single token is the answer.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.examples import Example
from bert_jax.data.features import Features

BEST = 20  # answers to a question that are kept, and starts and ends considered


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One of the best answers to a question. An empty text means "no answer"."""

    text: str
    start: int  # characters of the context
    end: int
    score: float  # logit of the start plus logit of the end
    probability: float  # among the best answers


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Predicted answer, context[start:end]. An empty text means "no answer"."""

    text: str
    start: int
    end: int
    score: float  # of the best answer with a text, even if no answer is predicted
    no_answer_score: float  # the lowest of the windows' scores for no answer
    n_best: tuple[Candidate, ...]  # best first; no answer is one of them if there may be none

    @property
    def best_text(self) -> str:
        """Return the best answer that is not empty; "" if all answers are empty."""
        return next((candidate.text for candidate in self.n_best if candidate.text), "")


Prediction = np.ndarray | float | tuple[int, ...] | Span


def trim_output(kind: str, output: np.ndarray, length: int) -> np.ndarray:
    """Remove the padding from a head's output of one row.

    Returns:
      [tokens, C] for tag, [tokens, 2] for span, [C] for classify, [options] for choice, [1] for
      regress.
    """
    if kind in ("tag", "span"):
        return output[:length]
    return output[:, 0] if kind == "choice" else output[0]


def decode_outputs(
    kind: str,
    features: Features,
    examples: Sequence[Example],
    outputs: Sequence[np.ndarray],
    task: knobs.Task,
    most: int = BEST,
) -> list[Prediction]:
    """Return one prediction for each example, given the outputs of all rows.

    Args:
      kind: the objective, such as "classify".
      features: the rows of all examples, in order, from `encode_examples` with train=False.
      examples: the examples.
      outputs: the output of each row, as `trim_output` returns it.
      task: the settings of answers to questions.
      most: the number of best answers to keep for a question.

    Returns:
      For classify and choice, probabilities [C]. For regress, a number. For tag, a class for each
      word, or -1 for a word that was cut off. For span, a Span.
    """
    if kind == "regress":
        return [float(output[0]) for output in outputs]
    if kind == "classify":
        return [_softmax(output) for output in outputs]
    if kind == "choice":
        counts = [len(example.options) for example in examples]
        return [_softmax(output[:n]) for output, n in zip(outputs, counts, strict=True)]
    if kind == "tag":
        return list(_decode_tags(features, examples, outputs))
    rows: list[list[int]] = [[] for _ in examples]  # of each example
    for row, number in enumerate(features.example.tolist()):
        rows[number].append(row)
    spans = []
    for example, of_one in zip(examples, rows, strict=True):
        spans.append(_decode_span(features, of_one, outputs, example.pair or "", task, most))
    return list(spans)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Compute the softmax in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    return shifted / shifted.sum()


def _decode_tags(
    features: Features, examples: Sequence[Example], outputs: Sequence[np.ndarray]
) -> list[tuple[int, ...]]:
    """Return for each example the class of each word, or -1 if no row answers for the word.

    A word may lie in several rows. Only the row that shows most of its surroundings answers for it.
    """
    assert features.words is not None, "encode with train=False"
    tags = [np.full(len(example.words), -1) for example in examples]
    for row, (number, output) in enumerate(zip(features.example.tolist(), outputs, strict=True)):
        words = features.words[features.offsets[row] : features.offsets[row + 1]]
        firsts = words >= 0  # tokens that begin a word
        tags[number][words[firsts]] = output[firsts].argmax(axis=-1)
    return [tuple(classes.tolist()) for classes in tags]


def _decode_span(
    features: Features,
    rows: list[int],
    outputs: Sequence[np.ndarray],
    context: str,
    task: knobs.Task,
    most: int,
) -> Span:
    """Return the answer to one question, given the rows of the windows over its context."""
    logits = {row: outputs[row].astype(np.float64) for row in rows}
    pairs = [_pair_ends(features, row, logits[row], task.answer_tokens, most) for row in rows]
    spans = np.concatenate(pairs)  # [A, 3]
    if not len(spans):
        spans = np.concatenate([_list_tokens(features, row, logits[row]) for row in rows])
    found: dict[str, tuple[str, int, int, float]] = {}  # by text, the best first
    for score, start, end in spans[np.argsort(-spans[:, 0], kind="stable")].tolist():
        text = context[int(start) : int(end)]
        if len(found) < most:
            found.setdefault(text, (text, int(start), int(end), score))
    best = list(found.values())
    no_answer = min(float(logits[row][0].sum()) for row in rows)  # a logit pair on [CLS]
    none = ("", 0, 0, no_answer)
    chosen = best[0] if best else none
    score = chosen[3]
    if task.no_answer or not best:
        best = sorted([*best, none], key=lambda answer: -answer[3])
    if task.no_answer and no_answer - score > task.no_answer_threshold:
        chosen = none
    shares = _softmax(np.array([answer[3] for answer in best])).tolist()
    n_best = tuple(Candidate(*answer, share) for answer, share in zip(best, shares, strict=True))
    return Span(*chosen[:3], score, no_answer, n_best)


def _pair_ends(
    features: Features, row: int, logits: np.ndarray, longest: int, most: int
) -> np.ndarray:
    """Return answers that combine a row's best start tokens and best end tokens.

    Returns:
      float64 [A, 3]: the score of the answer, and its start and end in characters of the context.
    """
    characters, best = _show_context(features, row)
    ranked = np.argsort(-logits, axis=0, kind="stable")[:most]  # [n, 2]
    starts = ranked[best[ranked[:, 0]], 0]
    ends = ranked[characters[ranked[:, 1], 0] >= 0, 1]
    # Every start with every end, [starts * ends]: starts 4, 7 and ends 5, 9 -> 4-5 4-9 7-5 7-9.
    i = np.repeat(starts, len(ends))
    j = np.tile(ends, len(starts))
    fits = (i <= j) & (j - i < longest)
    i = i[fits]
    j = j[fits]
    return np.stack([logits[i, 0] + logits[j, 1], characters[i, 0], characters[j, 1]], axis=1)


def _list_tokens(features: Features, row: int, logits: np.ndarray) -> np.ndarray:
    """Return all answers of one token: a context token that the row answers for is an answer.

    Returns:
      float64 [A, 3]: the score of the answer, and its start and end in characters of the context.
    """
    characters, best = _show_context(features, row)
    return np.concatenate([logits.sum(axis=1, keepdims=True), characters], axis=1)[best]


def _show_context(features: Features, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each token of a row in the context, and whether the row answers for it.

    Returns:
      The start and the end in characters [tokens, 2], -1 outside the context; and bools [tokens].
    """
    assert features.characters is not None
    assert features.best is not None, "encode with train=False"
    tokens = slice(features.offsets[row], features.offsets[row + 1])
    return features.characters[tokens], features.best[tokens]
