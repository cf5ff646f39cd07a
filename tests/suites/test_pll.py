"""Suite `pll`: sentences drawn from a run's corpus. The net holds its sums over texts."""

import dataclasses
import itertools

import numpy as np
import pytest

from bert_jax.data import prepare
from bert_jax.data.tokenizer import SPECIALS
from bert_jax.errors import ConfigError
from bert_jax.suites.token_scores import TokenScorer
from tests import reactions
from tests.suites.asking import ask

pytestmark = pytest.mark.usefixtures("one_device")


def test_pll_of_a_run_draws_the_same_sentences(run, monkeypatch):
    split = prepare.prepare_corpus(run.config).splits["validation"]
    ends = [0, *split.sentence_ends.tolist()]
    sentences = [tuple(split.tokens[a:b].tolist()) for a, b in itertools.pairwise(ends)]
    drawn: list[list[tuple[int, ...]]] = []

    def remember(scorer, given, progress):
        drawn.append([tuple(ids) for ids in given])
        return [np.zeros(len(ids)) for ids in given]

    monkeypatch.setattr(TokenScorer, "__call__", remember)
    for limit in (10**6, 3, 3):
        ask(run, "pll", limit=limit)
    assert sorted(drawn[0]) == sorted(sentences)
    assert len(drawn[1]) == 3
    assert drawn[1] == drawn[2]


def test_pll_within_words_needs_words(masked):
    run = dataclasses.replace(masked, tokenizer=reactions.build_tokenizer([*SPECIALS, "C", "O"]))
    with pytest.raises(ConfigError, match="has no words"):
        ask(run, "pll", source="files:x", within_word=True)
