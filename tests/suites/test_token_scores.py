"""Scores of masked copies against a loop that masks one token at a time."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import sharding, suites
from bert_jax.data.task_stream import round_length
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.suites.forward import Forward
from bert_jax.suites.token_scores import MaskedScorer
from tests.suites.masked import LONGEST, TEXTS, make_model, plainly, write_vocabulary


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> runs.TrainedModel:
    return make_model(write_vocabulary(tmp_path_factory.mktemp("vocabulary")))


def ask_pll(batch_size: int = 0) -> suites.Options:
    return suites.Options("pll", batch_size)


@pytest.mark.parametrize("within_word", [False, True])
def test_masked_scorer_equals_a_plain_loop(run, within_word, one_device):
    encoded = run.tokenizer.encode_batch(
        [*TEXTS, "abcde fgh the cats see . cat abc de the sees"]
    )  # longer than a row
    assert max(map(len, encoded)) > LONGEST - 2
    found = MaskedScorer(run, ask_pll(), within_word)(encoded)
    for ids, values in zip(encoded, found, strict=True):
        np.testing.assert_allclose(values, plainly(run, ids, within_word), rtol=1e-5)


def test_masked_scorer_within_word_changes_pieces(run, one_device):
    whole, several = run.tokenizer.encode_batch(["the cat sees .", "the abc ."])
    plain, corrected = (MaskedScorer(run, ask_pll(), on)([whole, several]) for on in (False, True))
    np.testing.assert_array_equal(plain[0], corrected[0])
    changed = plain[1] != corrected[1]
    assert changed.tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]  # the last piece of abc hides nothing more


@pytest.mark.slow
def test_masked_scorer_is_the_same_in_any_batch(run, monkeypatch):
    encoded = run.tokenizer.encode_batch(TEXTS)
    found = [MaskedScorer(run, ask_pll(size))(encoded) for size in (0, 1, 7)]
    auto = (jax.sharding.AxisType.Auto,) * 3
    one = jax.make_mesh((1, 1, 1), sharding.AXES, axis_types=auto, devices=jax.devices()[:1])
    monkeypatch.setattr(sharding, "make_mesh", lambda settings: one)
    found.append(MaskedScorer(run, ask_pll(3))(encoded))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_like_texts_have_exactly_like_scores(run, one_device):
    ids = run.tokenizer.encode_batch(TEXTS)
    found = MaskedScorer(run, ask_pll(1))(ids)
    np.testing.assert_array_equal(found[0], found[4])


@settings(max_examples=200)
@given(st.integers(1, 100_000))
def test_a_row_is_padded_by_at_most_a_third(length):
    shape = round_length(length, inference.FINEST)
    assert shape >= length
    assert length <= 8 or shape * 2 / 3 < length
    assert round_length(shape, inference.FINEST) == shape
    assert len({round_length(n, inference.FINEST) for n in range(1, 513)}) == 22


def test_forward_computes_every_row_once(run):
    lengths = np.random.default_rng(0).integers(1, 60, 101)

    def make(some, length, size):
        numbers = np.full((size, 1), -1, np.int32)
        numbers[: len(some), 0] = some
        assert (lengths[some] <= length).all()
        return {"numbers": numbers}

    for size in (0, 1, 7, 32):
        told: list[tuple[int, int]] = []
        found = list(
            Forward(lambda params, batch: batch["numbers"] * params, np.int32(2))(
                lengths,
                make,
                size,
                lambda done, total, told=told: told.append((done, total)),
            )
        )
        for some, values in found:
            np.testing.assert_array_equal(values[:, 0], 2 * some)
        assert sorted(np.concatenate([some for some, _ in found]).tolist()) == list(range(101))
        assert told[-1][0] == told[-1][1]
