"""The scores of SQuAD by hand; test_scores.py compares them with the original program's."""

from __future__ import annotations

import pytest

from bert_jax.evaluation import squad


def test_squad_counts_words_not_articles():
    """A right text of no words is no answer, and the best of several right texts counts."""
    answers = [["the cat", "a dog"], [], ["..."], ["red fox"]]
    made, doubts = ["Cat!", "cat", "An", "red hen"], [0.1, 0.4, 0.2, 0.3]
    assert squad.evaluate_squad(answers, made) == {"exact": 50.0, "f1": 62.5}
    assert squad.evaluate_squad([["...", "cat"]], [""]) == {"exact": 0.0, "f1": 0.0}
    assert squad.evaluate_squad(answers, made, doubts) == pytest.approx(
        {
            "exact": 50.0,
            "has_answer_exact": 200 / 3,
            "no_answer_exact": 0.0,
            "best_exact": 75.0,
            "best_exact_threshold": 0.2,
            "f1": 62.5,
            "has_answer_f1": 250 / 3,
            "no_answer_f1": 0.0,
            "best_f1": 87.5,
            "best_f1_threshold": 0.3,
        }
    )


@pytest.mark.parametrize("doubts", [[1.0, 2.0], [-3.0, -2.0]])
def test_squad_threshold_below_all_doubts(doubts):
    """It is best to answer nothing where the least doubtful answer is wrong."""
    found = squad.evaluate_squad([[], ["a b"]], ["x", "y"], doubts)
    assert found["best_f1"] == 50.0
    assert found["best_f1_threshold"] < min(doubts)
