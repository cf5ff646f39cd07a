"""Scores of masked copies against a loop that masks one token at a time."""

import dataclasses

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.evaluation import inference
from bert_jax.suites.token_scores import TokenScorer
from tests.suites.masked import LONGEST, TEXTS, plainly, plainly_masked


def ask_pll(batch_size: int = 0) -> suites.Options:
    return suites.Options("pll", batch_size)


@pytest.mark.parametrize("within_word", [False, True])
def test_token_scorer_equals_a_plain_loop(masked, within_word, one_device):
    long = "abcde fgh the cats see . cat abc de the sees"
    encoded = masked.tokenizer.encode_batch([*TEXTS, long])
    assert max(map(len, encoded)) > LONGEST - 2  # longer than a row
    found = TokenScorer(masked, ask_pll(7), within_word)(encoded)
    for ids, values in zip(encoded, found, strict=True):
        np.testing.assert_allclose(values, plainly(masked, ids, within_word), rtol=1e-5)
    np.testing.assert_array_equal(found[0], found[4])  # equal texts, equal to the bit


def test_score_masked_reads_where_most_is_seen(models, one_device):
    """A text of 40 letters in a model that reads 14, against windows that are tried one by one."""
    wide = models["letters"]
    run = dataclasses.replace(wide, config=dataclasses.replace(wide.config, sequence_length=16))
    ids = np.array(run.tokenizer.encode_batch(["theoldfriendremembers" * 2])[0][:40], np.int32)
    masked = np.random.default_rng(0).random(40) < 0.5
    spans = [(start, min(start + 14, 40)) for start in range(0, 33, 7)]
    of_windows = plainly_masked(wide, [(ids[a:b], masked[a:b]) for a, b in spans], 96)
    expected = []
    for at in np.flatnonzero(masked):
        seen = [min(at - a, b - 1 - at) + 0.01 * (b - a) if a <= at < b else -1 for a, b in spans]
        best = int(np.argmax(seen))
        number = int(masked[spans[best][0] : at].sum())  # of the token in its window
        expected.append([values[number] for values in of_windows[best]])
    rows = [(ids, masked), (ids[:14], masked[:14])]
    scorer = TokenScorer(run, ask_pll(3))
    found = scorer.score_masked(rows, inference.ignore_progress)
    assert "forward" not in vars(scorer)  # it would hold the parameters once more
    nats, right = zip(*expected, strict=True)
    np.testing.assert_allclose(found[0][0], nats, rtol=1e-4)
    assert found[0][1].tolist() == list(right)
    np.testing.assert_allclose(found[1][0], of_windows[0][0], rtol=1e-4)
