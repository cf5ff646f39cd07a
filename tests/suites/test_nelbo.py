"""Suite `nelbo`: bounds against enumeration and a closed form, and an exact likelihood."""

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest

from bert_jax.suites import texts, token_scores
from tests.predictors.drawing import CAUSAL
from tests.reference import log_softmax
from tests.suites.asking import ask, load_passages, score
from tests.suites.masked import make_model, read_logits

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


def test_nelbo_is_the_mean_over_all_masks(models, tmp_path, monkeypatch):
    """Over seeds for one passage, and over passages for one seed; three masks make a bound.

    A token costs the more the more are masked, and otherwise anything.
    """
    masks = [np.array(mask, bool) for mask in itertools.product((0, 1), repeat=8) if any(mask)]
    random = np.random.default_rng(0)
    nats = {mask.tobytes(): mask.sum() ** 2 * random.random(mask.sum()) for mask in masks}
    weighted = [nats[mask.tobytes()].mean() / math.comb(8, mask.sum()) for mask in masks]

    def look_up(scorer, rows, progress):
        return [(nats[mask.tobytes()], np.ones(mask.sum(), bool)) for _, mask in rows]

    def bound(seed: int, last: str) -> float:
        monkeypatch.setattr(texts, "SEED", seed)
        (tmp_path / "a.txt").write_text(f"the cat sees the bird in that garden{last}\n")
        found = ask(models["whole"], "nelbo", source=str(tmp_path), draws=3)
        return found["nats_per_token"] * found["tokens"]

    monkeypatch.setattr(token_scores.TokenScorer, "score_masked", look_up)
    over_seeds = [bound(seed, "") for seed in range(100)]
    over_texts = [bound(0, str(number)) for number in range(100)]
    for bounds in (over_seeds, over_texts):
        error = np.std(bounds, ddof=1) / len(bounds) ** 0.5
        assert abs(np.mean(bounds) - sum(weighted)) < 3 * error


def test_nelbo_of_a_causal_model_is_its_likelihood(models, source, caplog):
    run = make_model(tuple(models["whole"].tokenizer.vocab[5:]), 96, pairs="none", **CAUSAL)
    asked = {"source": source, "words": 12, "limit": 5}
    found = ask(run, "nelbo", **asked, draws=3)
    assert "--draws does nothing" in caplog.text
    rows = [one.ids.tolist() for one in load_passages(run, **asked)]
    begun = [[run.tokenizer.special.cls, *ids] for ids in rows]
    chances = log_softmax(read_logits(run, begun, 96, "causal_lm"))
    nats = -sum(row[range(len(ids)), ids].sum() for row, ids in zip(chances, rows, strict=True))
    assert found["nats_per_token"] == pytest.approx(nats / sum(map(len, rows)), rel=1e-5)
