"""The sentences that show a run learning: which, and what the model makes of them."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.data import corpus, prepare
from bert_jax.evaluation import samples
from bert_jax.interop import runs
from tests import corpora, reference, texts, tiny
from tests.predictors.drawing import CAUSAL
from tests.suites.masked import read_logits


@pytest.fixture(scope="module")
def prepared(base) -> corpus.Prepared:
    return prepare.prepare_corpus(texts.configure(base), log=lambda text: None)


def held_out(prepared: corpus.Prepared) -> list[list[int]]:
    """The ids of every held-out sentence."""
    documents = corpora.list_documents(prepared.splits["validation"])
    return [ids for document in documents for ids in document]


def choose(prepared: corpus.Prepared, count: int = 12, room: int = 30, **options: Any) -> list[Any]:
    given = (prepared.splits["validation"], prepared.tokenizer, count, room)
    return samples.choose_sentences(*given, **{"seed": 0, "causal": False} | options)


# --- which ----------------------------------------------------------------------------------------


def test_choose_gives_as_many_as_asked(prepared):
    found = choose(prepared)
    assert len({one.text for one in found}) == len(found) == 12
    everything = {tuple(ids) for ids in held_out(prepared)}
    assert len(everything) / 2 < len(choose(prepared, 1000)) <= len(everything)
    assert found == choose(prepared) != choose(prepared, seed=1)


def cut_sentences(prepared: corpus.Prepared, *lengths: int) -> corpus.Prepared:
    """The same held-out text in sentences of these lengths, in turn."""
    split = prepared.splits["validation"]
    ends = np.cumsum(np.resize(lengths, len(split.tokens) // max(lengths)))
    cut = dataclasses.replace(split, sentence_ends=ends)
    return dataclasses.replace(prepared, splits={"validation": cut})


def test_choose_prefers_what_is_easily_read(prepared):
    assert {len(one.ids) for one in choose(cut_sentences(prepared, 3, 9, 30))} == {9}
    assert all(one.ids for one in choose(cut_sentences(prepared, 2), causal=True))


def test_build_makes_none_of_single_tokens(base, prepared):
    """Nothing is left of a word beside its mask."""
    config, words = texts.configure(base, logging__samples=12), cut_sentences(prepared, 1)
    assert samples.build_samples(config, words, sharding.make_mesh(config.parallel)) is None


@pytest.mark.parametrize(("room", "masks"), [(30, {1, 2}), (5, {1})])
def test_choose_masks_words_of_one_token(prepared, room, masks):
    tokenizer = prepared.tokenizer
    sentences = {tuple(ids[:room]) for ids in held_out(prepared)}
    found = choose(prepared, 40, room)
    for one in found:
        restored = [*one.ids, 0]
        for place, answer in zip(one.places, one.answers, strict=True):
            assert restored[place - 1] == tokenizer.special.mask
            restored[place - 1] = tokenizer.vocab.index(answer)
            assert answer.isalpha()
            assert not tokenizer.continuation[restored[place]]  # the next one is no rest of it
        assert tokenizer.special.mask not in restored
        assert tuple(restored[:-1]) in sentences
        assert len(one.places) == (2 if len(one.ids) >= samples.TWO else 1)
        assert one.text.count("[MASK]") == len(one.places)
    assert {len(one.places) for one in found} == masks


def test_choose_cuts_sentences_for_a_causal_model(prepared):
    tokenizer = prepared.tokenizer
    for one in choose(prepared, 40, causal=True):
        going_on = [*one.ids, tokenizer.vocab.index(one.answers[0])]
        assert any(ids[: len(going_on)] == going_on for ids in held_out(prepared))
        assert one.places == [len(one.ids)]  # the column of its last token, after [CLS]
        assert one.text == f"{tokenizer.readable(one.ids)} …"


# --- what a model makes of them -------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, CAUSAL | {"pairs": "none"}], ids=["masked", "causal"])
def test_samples_predict_each_sentence_alone(base, prepared, changes):
    """The masked ones on eight devices, with rows that fill up."""
    config = texts.configure(base, **changes, logging__samples=12, model__init_stddev=0.3)
    params = tiny.init(config, vocab=prepared.tokenizer.size)
    with texts.one_device() if changes else contextlib.nullcontext():
        found = samples.build_samples(config, prepared, sharding.make_mesh(config.parallel))
    assert found is not None
    assert len(found.batch["tokens"]) == (12 if changes else 16)
    room, tokenizer = config.sequence_length - 2, prepared.tokenizer
    wanted = choose(prepared, 12, room, causal="causal_lm" in config.objectives)
    run = runs.TrainedModel(Path(), config, tokenizer, Path(), params, 0, {})
    rows = [[tokenizer.special.cls, *one.ids, tokenizer.special.sep] for one in wanted]
    logits = read_logits(run, rows, room + 2, next(iter(config.objectives)))
    for row, one, scores in zip(found(params), wanted, logits, strict=True):
        assert (row["text"], row["answers"]) == (one.text, one.answers)
        for place, guesses in zip(one.places, row["predictions"], strict=True):
            chances = reference.softmax(scores[place])
            best = np.argsort(-chances, kind="stable")[: samples.TOP]
            assert [guess["token"] for guess in guesses] == [tokenizer.vocab[i] for i in best]
            shares = [guess["probability"] for guess in guesses]
            np.testing.assert_allclose(shares, chances[best], atol=2e-6)
