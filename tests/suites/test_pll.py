"""Suite `pll`: sums over texts against a plain loop, and sentences drawn from a run's corpus."""

import math

import numpy as np
import pytest

from bert_jax.data import prepare
from bert_jax.suites.token_scores import TokenScorer
from tests.corpora import list_documents
from tests.suites.asking import ask
from tests.suites.masked import LONGEST, TEXTS, plainly

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.mark.parametrize("within_word", [False, True])
def test_pll_of_a_file_equals_a_plain_loop(masked, tmp_path, within_word):
    texts = [*TEXTS, "abcde fgh the cats see . cat abc de the sees"]
    (tmp_path / "texts.txt").write_text("\n".join([*texts, "", " "]) + "\n")
    suffix, source = "_word_l2r" * within_word, f"files:{tmp_path / 'texts.txt'}"
    found = ask(masked, "pll", source=source, within_word=within_word, batch_size=7)
    encoded = masked.tokenizer.encode_batch(texts)
    assert max(map(len, encoded)) > LONGEST - 2, "none is longer than a row"
    total = sum(sum(plainly(masked, ids, within_word)) for ids in encoded)
    count = sum(map(len, encoded))
    words = [word for text in texts for word in text.split()]
    expected = {
        "texts": len(texts),
        "tokens": count,
        f"pll{suffix}": total / len(texts),
        f"pseudo_perplexity{suffix}": math.exp(-total / count),
        f"nats_per_word{suffix}": -total / len(words),
        f"nats_per_character{suffix}": -total / sum(map(len, words)),
        "words": len(words),
        "characters": sum(map(len, words)),
    }
    assert found == pytest.approx(expected, rel=1e-5)


def test_pll_of_a_run_draws_the_same_sentences(run, monkeypatch):
    split = prepare.prepare_corpus(run.config).splits["validation"]
    sentences = [tuple(ids) for document in list_documents(split) for ids in document]
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
