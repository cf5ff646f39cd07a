"""The measures of evaluate-v2.0.py of SQuAD, in per cent as there; they hold for SQuAD 1.1 too."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, without punctuation, articles and needless spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(answer: str, prediction: str) -> float:
    """1 if both are the same once normalised."""
    return float(normalize(answer) == normalize(prediction))


def f1(answer: str, prediction: str) -> float:
    """Overlap of the words of both, as often as they occur."""
    a, b = normalize(answer).split(), normalize(prediction).split()
    if not a or not b:
        return float(a == b)
    common = (collections.Counter(a) & collections.Counter(b)).total()
    return 2 * common / (len(a) + len(b))


def evaluate(
    answers: Sequence[Sequence[str]],
    predictions: Sequence[str],
    doubts: Sequence[float] | None = None,
    kept: Sequence[str] | None = None,
) -> dict[str, float]:
    """Scores of predicted texts.

    Args:
      answers: right texts of each question; none means that it has no answer.
      predictions: a text for each question; an empty one says that there is no answer.
      doubts: how much speaks for no answer; with it, the best scores that a threshold on it would give.
      kept: what is answered where a threshold allows it; without it, the predictions.

    Returns:
      exact and f1; with doubts also those of the questions with and without an answer, and best_exact, best_f1 with
      their thresholds: no answer is given where the doubt is greater.
    """
    golds = [[text for text in texts if normalize(text)] or [""] for texts in answers]
    has = np.array([bool(texts) for texts in answers], bool)  # [N]
    scores = {
        "exact": _scores(exact, golds, predictions),
        "f1": _scores(f1, golds, predictions),
    }  # [N] each
    found = {name: 100 * float(values.mean()) for name, values in scores.items()}
    if doubts is None:
        return found
    for part, which in (("has_answer", has), ("no_answer", ~has)):
        if which.any():
            found |= {
                f"{part}_{name}": 100 * float(values[which].mean())
                for name, values in scores.items()
            }
    texts = predictions if kept is None else kept
    for name, measure in (("exact", exact), ("f1", f1)):
        found |= _best(
            name, _scores(measure, golds, texts), texts, has, np.asarray(doubts, np.float64)
        )
    return found


def _scores(measure, golds: Sequence[Sequence[str]], predictions: Sequence[str]) -> np.ndarray:
    """The best over the right answers of each question."""
    pairs = zip(golds, predictions, strict=True)
    return np.array([max(measure(gold, text) for gold in texts) for texts, text in pairs])


def _best(
    name: str, scores: np.ndarray, texts: Sequence[str], has: np.ndarray, doubts: np.ndarray
) -> dict[str, float]:
    """From no answers at all, one question after the other is answered, the least doubtful first."""
    order = np.argsort(doubts, kind="stable")
    gains = np.where(has, scores, -np.array([bool(text) for text in texts], float))[order]
    totals = np.count_nonzero(~has) + np.concatenate([[0.0], np.cumsum(gains)])  # [N + 1]
    most = int(np.argmax(totals))
    # The original says 0 where it is best to answer nothing, which is right for its probabilities alone.
    threshold = doubts[order[most - 1]] if most else min(0.0, np.nextafter(doubts.min(), -np.inf))
    return {
        f"best_{name}": 100 * float(totals[most]) / len(scores),
        f"best_{name}_threshold": float(threshold),
    }
