"""Scores of masked copies against a loop that masks one token at a time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.evaluation import inference
from bert_jax.suites.forward import Forward
from bert_jax.suites.token_scores import TokenScorer
from tests.suites.masked import CAUSAL, LONGEST, TEXTS, make_model, plainly, plainly_masked


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


@pytest.mark.parametrize("causal", [False, True])
def test_token_scorer_scores_parts_in_their_context(masked, causal, one_device):
    run = masked
    if causal:
        run = make_model(masked.tokenizer_path, **CAUSAL)
    score = TokenScorer(run, ask_pll(8))
    encoded = run.tokenizer.encode_batch([*TEXTS, "cat abc the abc see abc cats abcd abc ."])
    parts = [(1, 3), (1, 1), (2, 9), (0, 1), (0, 2), (12, 19)]
    found = score(encoded, parts=parts)
    for whole, part, values in zip(score(encoded), parts, found, strict=True):
        np.testing.assert_allclose(values, whole[slice(*part)], rtol=1e-6)
    assert [values.tolist() for values in score(encoded[:2], parts=[(0, 0)] * 2)] == [[], []]


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
    found = TokenScorer(run, ask_pll(3)).score_masked(rows, inference.ignore_progress)
    nats, right = zip(*expected, strict=True)
    np.testing.assert_allclose(found[0][0], nats, rtol=1e-4)
    assert found[0][1].tolist() == list(right)
    np.testing.assert_allclose(found[1][0], of_windows[0][0], rtol=1e-4)


@pytest.mark.parametrize("size", [0, 1, 32])
def test_forward_computes_every_row_once(size):
    lengths = np.random.default_rng(0).integers(1, 60, 101)

    def make(some, length, size):
        numbers = np.full((size, 1), -1, np.int32)
        numbers[: len(some), 0] = some
        assert (lengths[some] <= length).all()
        assert (lengths[some] > length / 2).all() or length <= 8  # padding is a part of a row
        return {"numbers": numbers}

    told: list[tuple[int, int]] = []
    forward = Forward(lambda params, batch: batch["numbers"] * params, np.int32(2))
    found = list(forward(lengths, make, size, lambda *done: told.append(done)))
    for some, values in found:
        np.testing.assert_array_equal(values[:, 0], 2 * some)
    assert sorted(np.concatenate([some for some, _ in found]).tolist()) == list(range(101))
    assert told[-1][0] == told[-1][1]
