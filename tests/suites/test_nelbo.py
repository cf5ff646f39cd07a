"""Suite `nelbo`: bounds against enumeration and closed forms."""

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest

from bert_jax.suites import texts
from bert_jax.suites.token_scores import TokenScorer
from tests.suites.asking import ask, score
from tests.suites.masked import plainly_masked

pytestmark = pytest.mark.usefixtures("one_device")


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
