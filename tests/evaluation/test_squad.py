"""SQuAD's rules by hand; test_scores.py compares all scores with the original program's."""

import pytest

from bert_jax.evaluation import squad


def test_squad_takes_the_best_of_right_texts():
    """A right text of no words is no answer."""
    answers = [["a dog", "the cat"], [], ["..."], ["red fox"]]
    made = ["Cat!", "cat", "An", "red hen"]
    assert squad.evaluate_squad(answers, made) == {"exact": 50.0, "f1": 62.5}
    assert squad.evaluate_squad([["...", "cat"]], [""]) == {"exact": 0.0, "f1": 0.0}


@pytest.mark.parametrize("doubts", [[1.0, 2.0], [-3.0, -2.0]])
def test_squad_threshold_below_all_doubts(doubts):
    """It is best to answer nothing where the least doubtful answer is wrong."""
    found = squad.evaluate_squad([[], ["a b"]], ["x", "y"], doubts)
    assert found["best_f1"] == 50.0
    assert found["best_f1_threshold"] < min(doubts)
