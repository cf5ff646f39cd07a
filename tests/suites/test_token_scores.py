"""Scores of tokens that are masked together; the suites hold those of tokens masked singly."""

import dataclasses

import numpy as np

from bert_jax import suites
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.evaluation import inference
from bert_jax.suites.token_scores import TokenScorer
from tests.reference import log_softmax
from tests.suites.masked import read_logits


def test_score_masked_reads_where_most_is_seen(models, one_device):
    """A text of 40 letters in a model that reads 14."""
    wide = models["letters"]
    run = dataclasses.replace(wide, config=dataclasses.replace(wide.config, sequence_length=16))
    ids = np.array(run.tokenizer.encode_batch(["theoldfriendremembers" * 2])[0][:40], np.int32)
    masked = np.random.default_rng(0).random(40) < 0.5
    spans = cut_windows(40, 14, 7, "step")
    chosen = choose_windows(spans, 40)
    special = run.tokenizer.special
    copies = [
        [special.cls, *np.where(masked[a:b], special.mask, ids[a:b]), special.sep] for a, b in spans
    ]
    logits = read_logits(wide, copies, 96)
    logits[..., special.mask] = -np.inf

    def read(window: int, at: int) -> tuple[float, bool]:
        row = logits[window, 1 + at - spans[window][0]]
        return -log_softmax(row)[ids[at]], row.argmax() == ids[at]

    scorer = TokenScorer(run, suites.Options("nelbo", 3))
    rows = [(ids, masked), (ids[:14], masked[:14])]
    found = scorer.score_masked(rows, inference.ignore_progress)
    assert "forward" not in vars(scorer)  # it would hold the parameters once more
    expected = [read(chosen[at], at) for at in np.flatnonzero(masked)]
    np.testing.assert_allclose(np.transpose(found[0]), expected, rtol=1e-4)
    alone = [read(0, at) for at in np.flatnonzero(masked[:14])]
    np.testing.assert_allclose(np.transpose(found[1]), alone, rtol=1e-4)
