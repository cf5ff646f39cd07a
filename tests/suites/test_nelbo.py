"""Suite `nelbo`: bounds against enumeration and closed forms, and exact likelihoods."""

import dataclasses
import itertools
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.suites import texts
from bert_jax.suites.token_scores import TokenScorer
from tests.predictors.drawing import CAUSAL
from tests.reference import log_softmax
from tests.suites.asking import ask, load_passages, score
from tests.suites.masked import make_model, plainly_masked, read_logits

pytestmark = pytest.mark.usefixtures("one_device")

WORDS = 12  # of a passage


def test_nelbo_of_a_blank_model_is_exact(run, source):
    blank = dataclasses.replace(run, params=jax.tree.map(np.zeros_like, run.params))
    found = ask(blank, "nelbo", source=source, words=WORDS, draws=3)
    nats = math.log(run.tokenizer.size - 1)  # [MASK] is no answer
    assert found["nats_per_token"] == pytest.approx(nats, rel=1e-6)
    words = Path(source.partition(":")[2], "text.txt").read_text().split()
    letters, total = sum(map(len, words)), nats * found["tokens"]
    assert found["nats_per_word"] == pytest.approx(total / len(words), rel=1e-6)
    assert found["nats_per_character"] == pytest.approx(total / letters, rel=1e-6)
    assert (found["words"], found["characters"]) == (len(words), letters)
    assert found["draws"] == 3


def test_nelbo_of_a_blank_model_on_its_corpus(run):
    """Each token costs the same, whatever is masked; rates of both ends make a small error."""
    blank = dataclasses.replace(run, params=jax.tree.map(np.zeros_like, run.params))
    found, each = score(blank, "nelbo", draws=16)
    assert found["nats_per_token"] == pytest.approx(math.log(run.tokenizer.size - 1), rel=0.005)
    nats, tokens = (each[f"nats_per_token.{part}"] for part in ("sum", "count"))
    assert nats.sum() / tokens.sum() == pytest.approx(found["nats_per_token"])
    assert found["tokens"] == tokens.sum()
    assert tokens.max() == run.config.sequence_length - 3  # of a full row: [CLS] and two [SEP]


def test_nelbo_is_the_mean_over_all_masks(models, tmp_path):
    run = models["whole"]
    (tmp_path / "a.txt").write_text("the cat sees that\n")
    ids = np.array(run.tokenizer.encode_batch(["the cat sees that"])[0], np.int32)
    masks = [np.array(mask, bool) for mask in itertools.product((0, 1), repeat=4) if any(mask)]
    found = plainly_masked(run, [(ids, mask) for mask in masks], 96)
    exact = sum(
        sum(nats) / mask.sum() / math.comb(4, mask.sum())
        for mask, (nats, _) in zip(masks, found, strict=True)
    )
    few = ask(run, "nelbo", source=str(tmp_path), draws=400)
    assert few["nats_per_token"] == pytest.approx(exact / 4, rel=0.02)


def test_nelbo_of_a_passage_is_unbiased(models, tmp_path, monkeypatch):
    """Over seeds for one passage, and over passages for one seed.

    A masked token costs k * k nats where k are masked, so that the bound is the sum over k.
    """

    def score(scorer, rows, progress):
        counts = [int(masked.sum()) for _, masked in rows]
        return [(np.full(count, float(count) ** 2), np.ones(count, bool)) for count in counts]

    def bound(seed: int, last: str) -> float:
        monkeypatch.setattr(texts, "SEED", seed)
        (tmp_path / "a.txt").write_text(f"the cat sees the bird in that {last}\n")
        found = ask(models["whole"], "nelbo", source=str(tmp_path), draws=3)
        return found["nats_per_token"] * found["tokens"]

    monkeypatch.setattr(TokenScorer, "score_masked", score)
    monkeypatch.setattr(TokenScorer, "__init__", lambda *_: None)
    monkeypatch.setattr(TokenScorer, "causal", False, raising=False)
    exact = sum(k * k for k in range(1, 9))
    for found in (
        [bound(seed, "garden") for seed in range(100)],
        [bound(0, f"garden{number}") for number in range(100)],
    ):
        assert abs(np.mean(found) - exact) < 3 * np.std(found, ddof=1) / len(found) ** 0.5


def test_nelbo_of_a_causal_model_is_its_likelihood(models, source, caplog):
    tokenizer = models["whole"].tokenizer
    run = make_model(tuple(tokenizer.vocab[5:]), 96, pairs="none", **CAUSAL)
    asked = {"source": source, "words": WORDS, "limit": 5}
    found = ask(run, "nelbo", **asked, draws=3)
    assert "--draws does nothing" in caplog.text
    written = [one.text for one in load_passages(run, **asked)]
    rows = tokenizer.encode_batch(written)
    logits = read_logits(run, [[tokenizer.special.cls, *ids] for ids in rows], 96, "causal_lm")
    chances = log_softmax(logits)
    nats = -sum(
        chances[row, place, token]
        for row, ids in enumerate(rows)
        for place, token in enumerate(ids)
    )
    assert found["draws"] == 1
    assert found["nats_per_token"] == pytest.approx(nats / sum(map(len, rows)), rel=1e-5)
    letters = sum(len(text.replace(" ", "")) for text in written)
    assert found["nats_per_character"] == pytest.approx(nats / letters, rel=1e-5)
