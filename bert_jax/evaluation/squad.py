"""The metrics of SQuAD's evaluate-v2.0.py, in per cent as in that script, also for SQuAD 1.1."""

import collections
import re
import string
from collections.abc import Sequence

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower-case a text and drop its punctuation, articles and needless spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(answer: str, prediction: str) -> float:
    """Return 1 if both texts are the same once normalised, else 0."""
    return float(normalize(answer) == normalize(prediction))


def f1(answer: str, prediction: str) -> float:
    """Return the F1 score of the words that both texts share, counted with repeats."""
    a, b = normalize(answer).split(), normalize(prediction).split()
    if not a or not b:
        return float(a == b)
    common = (collections.Counter(a) & collections.Counter(b)).total()
    return 2 * common / (len(a) + len(b))


MEASURES = {"exact": exact, "f1": f1}


def evaluate_squad(
    answers: Sequence[Sequence[str]],
    predictions: Sequence[str],
    doubts: Sequence[float] | None = None,
    kept: Sequence[str] | None = None,
) -> dict[str, float]:
    """Score predicted texts by SQuAD's rules.

    Args:
      answers: right texts of each question; an empty list means that the question has no answer.
      predictions: a text for each question; an empty text means no answer.
      doubts: for each question, a number that rises with the evidence for no answer.
      kept: the predicted text of each question if it must be answered; by default `predictions`.

    Returns:
      {"exact": …, "f1": …}. With doubts there are also exact and f1 of the questions with and
      without an answer. Then best_exact and best_f1 are the best scores that a threshold on the
      doubts would give, and their thresholds are returned too. A doubt above the threshold means no
      answer.
    """
    golds = [[text for text in texts if normalize(text)] or [""] for texts in answers]
    has_answer = np.array([bool(texts) for texts in answers], bool)  # [N]
    metrics: dict[str, float] = {}
    for name in MEASURES:
        values = _score_best(name, golds, predictions)  # [N]
        metrics[name] = 100 * float(values.mean())
        for part, rows in (("has_answer", has_answer), ("no_answer", ~has_answer)):
            if doubts is not None and rows.any():
                metrics[f"{part}_{name}"] = 100 * float(values[rows].mean())
        if doubts is not None:
            texts = predictions if kept is None else kept
            scored = _score_best(name, golds, texts)
            metrics |= _find_threshold(name, scored, texts, has_answer, np.array(doubts, float))
    return metrics


def _score_best(
    name: str, golds: Sequence[Sequence[str]], predictions: Sequence[str]
) -> np.ndarray:
    """Return for each question its prediction's best score over the right answers [N]."""
    pairs = zip(golds, predictions, strict=True)
    return np.array([max(MEASURES[name](gold, text) for gold in texts) for texts, text in pairs])


def _find_threshold(
    name: str, scores: np.ndarray, texts: Sequence[str], has_answer: np.ndarray, doubts: np.ndarray
) -> dict[str, float]:
    """Find the best threshold on the doubts, and the score it gives.

    They are returned as {"best_NAME": score, "best_NAME_threshold": threshold}. At first no
    question is answered. Then questions are answered one by one, the least doubtful first. The
    threshold is where the score is highest.
    """
    order = np.argsort(doubts, kind="stable")
    gains = np.where(has_answer, scores, -np.array([bool(text) for text in texts], float))[order]
    totals = np.count_nonzero(~has_answer) + np.concatenate([[0.0], np.cumsum(gains)])  # [N + 1]
    most = int(np.argmax(totals))
    # The original has threshold 0 where it is best to answer nothing, which is right only for
    # probabilities, as it has them.
    threshold = doubts[order[most - 1]] if most else min(0.0, np.nextafter(doubts.min(), -np.inf))
    return {
        f"best_{name}": 100 * float(totals[most]) / len(scores),
        f"best_{name}_threshold": float(threshold),
    }
