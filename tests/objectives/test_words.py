"""Causal language modelling: what is predicted, from what, and how texts are scored."""

import numpy as np
import pytest

from bert_jax import objectives, suites
from bert_jax.config import knobs
from bert_jax.interop import runs
from bert_jax.suites.token_scores import TokenScorer
from tests import tiny
from tests.predictors.drawing import CAUSAL
from tests.reference import log_softmax
from tests.suites.masked import LONGEST, TEXTS, make_model, read_logits


def list_predicted(batch: dict, row: int, end: bool) -> list[tuple[int, int]]:
    """List (column, token after it) of a row, with the [SEP] of an example or without."""
    found = []
    for column in range(batch["tokens"].shape[1] - 1):
        same = batch["segment_ids"][row, column] == batch["segment_ids"][row, column + 1] > 0
        if same and (end or batch["unit_ids"][row, column + 1] >= 0):
            found.append((column, int(batch["tokens"][row, column + 1])))
    return found


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("examples", [1, 2])
def test_causal_loss_equals_a_plain_sum(examples, end):
    """Each token once, the first of a text after [CLS]."""
    batch = tiny.batch(5, 24, seed=3, examples=examples, longest_unit=3)
    logits = np.random.default_rng(0).integers(0, 9, (5, 24, tiny.VOCAB)).astype(np.float32)  # ties
    losses = []
    hits = []
    for row in range(5):
        for column, token in list_predicted(batch, row, end):
            scores = logits[row, column].astype(np.float64)
            losses.append(-log_softmax(scores)[token])
            hits.append(scores.argmax() == token)
    ends = 5 * examples if end else 0
    assert len(losses) == (batch["unit_ids"] >= 0).sum() + ends
    objective = objectives.configure({"causal_lm": knobs.Objective(end=end)})["causal_lm"]
    found = {name: (float(a), float(n)) for name, (a, n) in objective.loss(logits, batch).items()}
    assert found["causal_lm_loss"] == (pytest.approx(sum(losses), rel=1e-6), len(losses))
    assert found["causal_lm_accuracy"] == (sum(hits), len(losses))
    assert float(objective.count(batch)["causal_lm"]) == len(losses)


def score_plainly(run: runs.TrainedModel, ids: list[int]) -> list[float]:
    """Return the log-probability of each token given what precedes it, one forward pass each."""
    room = LONGEST - 1
    found = []
    for at, token in enumerate(ids):
        start = 0
        while at >= start + room:  # the first window that reaches it
            start += room // 2
        row = [run.tokenizer.special.cls, *ids[start:at]]
        logits = read_logits(run, [row], LONGEST, "causal_lm")[0, len(row) - 1]
        found.append(float(log_softmax(logits)[token]))
    return found


def test_token_scores_equal_a_plain_loop():
    run = make_model(pairs="none", **CAUSAL)
    long = "abcde fgh the cats see . cat abc de the sees the cat . see cats"
    encoded = run.tokenizer.encode_batch([*TEXTS, long])
    assert max(map(len, encoded)) > 2 * LONGEST - 8  # several windows
    found = TokenScorer(run, suites.Options("pll", 3))([*encoded, []])
    for ids, values in zip([*encoded, []], found, strict=True):
        np.testing.assert_allclose(values, score_plainly(run, ids), rtol=1e-5)
