"""From outputs back to predictions: run_squad.py's search told as loops, and words that were cut.

Other kinds are compared with transformers in tests/predictors/test_labelled.py.
"""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import answers, features
from bert_jax.data.features import encode_examples
from tests.data.letters import STRIDES, TEXT, TOKENIZER, WORD, encode, ids_of, make_example, row_of


def run_squad(found, number, context, outputs, task, most) -> tuple[list[tuple], float]:
    """write_predictions of run_squad.py for one question: the n best, and the null score."""
    prelim, null = [], math.inf
    for row in np.flatnonzero(found.example == number):
        logits = outputs[row].astype(np.float64).tolist()
        places, best = row_of(found, "characters", row), row_of(found, "best", row)
        null = min(null, logits[0][0] + logits[0][1])
        starts, ends = (
            sorted(range(len(logits)), key=lambda i: -logits[i][side])[:most] for side in (0, 1)
        )
        for start in starts:
            for end in ends:
                if places[start][0] < 0 or places[end][0] < 0 or not best[start]:
                    continue
                if end < start or end - start + 1 > task.answer_tokens:
                    continue
                score = logits[start][0] + logits[end][1]
                prelim.append((score, places[start][0], places[end][1]))
    n_best: list[tuple] = []
    for score, start, end in sorted(prelim, key=lambda p: -p[0]):
        text = context[start:end]
        if len(n_best) < most and text not in [found[0] for found in n_best]:
            n_best.append((text, start, end, score))
    return n_best, null


@given(
    st.lists(st.tuples(TEXT, st.lists(WORD, min_size=1, max_size=25)), min_size=1, max_size=3),
    st.integers(12, 20),
    STRIDES,
    st.fixed_dictionaries(
        {
            "answer_tokens": st.integers(1, 8),
            "no_answer": st.booleans(),
            "no_answer_threshold": st.sampled_from([-1.0, 0.0, 1.5]),
        }
    ),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_decode_span_answers_as_run_squad(questions, length, stride, settings, most, seed):
    examples = [
        make_example(i, text=a, pair=" ".join(words)) for i, (a, words) in enumerate(questions)
    ]
    task = knobs.Task(stride_as=stride[0], stride=stride[1], **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "QUESTION", 5)
        found = encode_examples(examples, "span", TOKENIZER, task, length, train=False)
    random = np.random.default_rng(seed)
    outputs = [random.normal(size=(n, 2)).astype(np.float32) for n in found.lengths]
    made = answers.decode_outputs("span", found, examples, outputs, task, most)
    for number, (one, span) in enumerate(zip(examples, made, strict=True)):
        n_best, null = run_squad(found, number, one.pair, outputs, task, most)
        assert one.pair[span.start : span.end] == span.text
        assert span.no_answer_score == pytest.approx(null)
        ranks = [candidate.score for candidate in span.n_best]
        assert ranks == sorted(ranks, reverse=True)
        shares = np.exp(np.array(ranks) - ranks[0])
        assert [c.probability for c in span.n_best] == pytest.approx(list(shares / shares.sum()))
        assert [c.text for c in span.n_best].count("") == task.no_answer
        texts = [c for c in span.n_best if c.text]
        if not n_best:  # nothing among the best starts and ends: one token, the best of all
            n_best = [dataclasses.astuple(c)[:4] for c in texts]
            assert all(len(ids_of(c.text)) <= 2 for c in texts)  # a word may have two pieces
        assert [(c.text, c.start, c.end) for c in texts] == [tuple(c[:3]) for c in n_best]
        assert [c.score for c in texts] == pytest.approx([c[3] for c in n_best])
        assert span.best_text == n_best[0][0]
        assert span.score == pytest.approx(n_best[0][3])
        withheld = task.no_answer and null - n_best[0][3] > task.no_answer_threshold
        chosen = ("", 0, 0) if withheld else tuple(n_best[0][:3])
        assert (span.text, span.start, span.end) == chosen


def test_decode_tag_marks_words_that_were_cut():
    one = make_example(words=("a",) * 9)
    outputs = [np.tile([0.0, 0.0, 1.0], (6, 1))]
    found = encode([one], "tag", 6, long="cut")
    made = answers.decode_outputs("tag", found, [one], outputs, knobs.Task())
    assert made == [(2, 2, 2, 2, -1, -1, -1, -1, -1)]
    json.dumps(made)
