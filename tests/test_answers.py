"""From outputs back to predictions: run_squad.py's search told as loops, and answers that come back
as they were.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import tokenizer
from bert_jax.data.labelled import answers, features
from bert_jax.data.labelled.answers import Span
from bert_jax.data.labelled.examples import Answer, Example
from bert_jax.data.labelled.features import Features
from bert_jax.evaluation import scores
from tests.test_features import TEXT, TOKENIZER, WORD, encode, example, ids, row_of

STRIDES = st.sampled_from([("step", 3), ("step", 8), ("overlap", 0), ("overlap", 3)])


def decode(found: Features, examples: list[Example], outputs: list[np.ndarray], **task) -> list:
    kind = {"labels": "classify", "values": "regress", "tags": "tag", "spans": "span"}[
        next(iter(found.targets))
    ]
    kind = "choice" if examples[0].options else kind
    return answers.decode(kind, found, examples, outputs, knobs.Task(**task))


# --- spans ----------------------------------------------------------------------------------------


def run_squad(
    found: Features, examples: list[Example], outputs: list[np.ndarray], task: knobs.Task
) -> list[tuple]:
    """write_predictions of run_squad.py, question by question: what is answered, the n best, the
    null score.
    """
    results = []
    for number, one in enumerate(examples):
        prelim, null = [], math.inf
        for row in np.flatnonzero(found.example == number):
            logits = outputs[row].astype(np.float64).tolist()
            places, best = row_of(found, "characters", row), row_of(found, "best", row)
            null = min(null, logits[0][0] + logits[0][1])
            starts, ends = (
                sorted(range(len(logits)), key=lambda i: -logits[i][side]) for side in (0, 1)
            )
            for start in starts[: task.n_best]:
                for end in ends[: task.n_best]:
                    if places[start][0] < 0 or places[end][0] < 0 or not best[start]:
                        continue
                    if end < start or end - start + 1 > task.answer_tokens:
                        continue
                    prelim.append(
                        (logits[start][0] + logits[end][1], places[start][0], places[end][1])
                    )
        prelim.sort(key=lambda p: -p[0])
        n_best: list[tuple] = []
        for score, start, end in prelim:
            text = one.pair[start:end]
            if len(n_best) < task.n_best and text not in [found[0] for found in n_best]:
                n_best.append((text, start, end, score))
        results.append((n_best, null))
    return results


@given(
    st.lists(st.tuples(TEXT, st.lists(WORD, min_size=1, max_size=25)), min_size=1, max_size=3),
    st.integers(12, 20),
    STRIDES,
    st.integers(1, 6),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([-1.0, 0.0, 1.5]),
    st.integers(0, 99),
)
def test_answers_are_those_of_run_squad(
    questions, length, stride, n_best, longest, no_answer, threshold, seed
):
    examples = [example(i, text=a, pair=" ".join(words)) for i, (a, words) in enumerate(questions)]
    task = knobs.Task(
        question_tokens=5,
        stride_as=stride[0],
        stride=stride[1],
        n_best=n_best,
        answer_tokens=longest,
        no_answer=no_answer,
        no_answer_threshold=threshold,
    )
    found = features.encode(examples, "span", TOKENIZER, task, length, train=False)
    random = np.random.default_rng(seed)
    outputs = [random.normal(size=(n, 2)).astype(np.float32) for n in found.lengths]
    made = answers.decode("span", found, examples, outputs, task)
    for one, span, (n_best, null) in zip(
        examples, made, run_squad(found, examples, outputs, task), strict=True
    ):
        assert one.pair[span.start : span.end] == span.text
        assert span.no_answer_score == pytest.approx(null)
        assert sum(c.probability for c in span.n_best) == pytest.approx(1.0)
        assert [c.score for c in span.n_best] == sorted(
            [c.score for c in span.n_best], reverse=True
        )
        for a, b in zip(span.n_best, span.n_best[1:], strict=False):
            assert a.probability / b.probability == pytest.approx(math.exp(a.score - b.score))
        assert [c.text for c in span.n_best].count("") == no_answer
        texts = [c for c in span.n_best if c.text]
        if not n_best:  # nothing among the best starts and ends: one token, the best of all
            assert len(texts) >= 1
            n_best = [dataclasses.astuple(c)[:4] for c in texts]
            assert all(
                len(ids(c.text)) <= 2 for c in texts
            )  # of a word, which may have more pieces
        assert [(c.text, c.start, c.end) for c in texts] == [tuple(c[:3]) for c in n_best]
        assert [c.score for c in texts] == pytest.approx([c[3] for c in n_best])
        assert span.best_text == n_best[0][0]
        assert span.score == pytest.approx(n_best[0][3])
        withheld = no_answer and null - n_best[0][3] > threshold
        assert (span.text, span.start, span.end) == (
            ("", 0, 0) if withheld else tuple(n_best[0][:3])
        )


def oracle(found: Features) -> list[np.ndarray]:
    """Outputs that are sure of the targets."""
    outputs = []
    for length, (start, end) in zip(found.lengths, found.targets["spans"], strict=True):
        logits = np.zeros((length, 2), np.float32)
        logits[start, 0] = logits[end, 1] = 10
        outputs.append(logits)
    return outputs


def in_a_window(found: Features) -> set[int]:
    """Examples whose answer lies in the very window that is the best for its start, as run_squad.py
    wants it.
    """
    starts = found.targets["spans"][:, 0]
    return set(found.example[(starts > 0) & found.best[found.offsets[:-1] + starts]].tolist())


@given(st.lists(st.text(max_size=6), min_size=1, max_size=20), st.data(), STRIDES)
def test_answers_in_any_text_come_back_to_the_character(words, data, stride):
    """From token border to token border of random characters."""
    context = "".join(words)
    places = TOKENIZER.encode_with_offsets([context])[0][1]
    if not places:
        return
    first = data.draw(st.integers(0, len(places) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(places) - 1)))
    start, end = places[first][0], places[last][1]
    label = (Answer(context[start:end], start),)
    found = encode(
        [one := example(text="a", pair=context, label=label)],
        "span",
        14,
        stride_as=stride[0],
        stride=stride[1],
    )
    (span,) = decode(found, [one], oracle(found))
    if in_a_window(found):
        assert (span.text, span.start, span.end) == (context[start:end], start, end)
    else:
        assert len(places) > 10  # more than a window holds
        assert context[span.start : span.end] == span.text


def squad(file: Path) -> list[Example]:
    raw = file.read_bytes()
    data = json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw)["data"]
    return [
        example(
            text=question["question"],
            pair=paragraph["context"],
            label=tuple(Answer(a["text"], a["answer_start"]) for a in question["answers"]),
        )
        for article in data
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


@pytest.mark.parametrize(
    ("data", "name", "count", "inside", "split", "length", "stride", "stride_as"),
    [
        ("copies", "squad_xquad_en/dev.json", 89, 0, 0, 384, 128, "step"),
        ("copies", "squad_xquad_en/train.json", 475, 1, 0, 128, 32, "overlap"),
        ("shared", "squad2_subjqa/electronics_dev.json.gz", 99, 0, 0, 384, 128, "overlap"),
        ("shared", "squad2_subjqa/restaurants_test.json.gz", 136, 0, 0, 256, 64, "step"),
        ("shared", "squad2_subjqa/tripadvisor_dev.json.gz", 142, 0, 3, 128, 32, "overlap"),
    ],
)
def test_answers_of_real_questions_come_back(
    request, data, name, count, inside, split, length, stride, stride_as
):
    """All but those that end `inside` a token, and those `split` over windows."""
    folder = request.getfixturevalue(data)
    vocab = tokenizer.load(folder / "vocab" / "bert_base_uncased_vocab.txt")
    examples = squad(folder / name)
    task = knobs.Task(stride=stride, stride_as=stride_as, answer_tokens=1000, no_answer=True)
    found = features.encode(examples, "span", vocab, task, length, train=False)
    whole = in_a_window(found)
    made = answers.decode("span", found, examples, oracle(found), task)
    differ = 0
    for number, (one, span) in enumerate(zip(examples, made, strict=True)):
        assert one.pair[span.start : span.end] == span.text
        if number in whole:
            differ += span.text != one.label[0].text
            assert one.label[0].text in span.text
    assert differ == inside
    assert sum(bool(one.label) for one in examples) == count
    assert count - len(whole) == split
    assert all(span.text == "" for one, span in zip(examples, made, strict=True) if not one.label)


def test_a_longer_answer_than_allowed_is_not_found():
    one = example(text="a", pair="b c d e", label=(Answer("b c d", 0),))
    found = encode([one], "span")
    assert decode(found, [one], oracle(found), answer_tokens=3)[0].text == "b c d"
    assert decode(found, [one], oracle(found), answer_tokens=2)[0].text != "b c d"


def test_as_many_answers_are_kept_as_asked_for_and_no_text_twice():
    one = example(text="a", pair="b b c")
    found = encode([one], "span")
    outputs = [np.arange(14, dtype=np.float32).reshape(7, 2)]
    for n_best in (1, 2, 20):
        texts = [c.text for c in decode(found, [one], outputs, n_best=n_best)[0].n_best]
        assert len(texts) == len(set(texts)) <= n_best
    assert set(texts) == {"b", "c", "b b", "b c", "b b c"}


def test_a_context_without_tokens_has_no_answer():
    one = example(text="a", pair=" ")
    found = encode([one], "span")
    (span,) = decode(found, [one], [np.ones((4, 2), np.float32)])
    assert (span.text, span.start, span.end, span.best_text) == ("", 0, 0, "")
    assert len(span.n_best) == 1


def test_the_threshold_tuned_on_development_data_gives_its_best_score():
    random = np.random.default_rng(0)
    examples = [
        example(i, text="a", pair="b c d e f g", label=(Answer("c d", 2),) if i % 2 else ())
        for i in range(40)
    ]
    found = encode(examples, "span")
    outputs = [logits / 4 + random.normal(size=logits.shape) for logits in oracle(found)]
    settings = knobs.Task(no_answer=True)

    def scored(threshold: float) -> dict[str, float]:
        task = dataclasses.replace(settings, no_answer_threshold=threshold)
        return scores.score(
            "span", examples, answers.decode("span", found, examples, outputs, task), (), task
        )

    start = scored(0.0)
    for name in ("exact", "f1"):
        tuned = scored(start[f"best_{name}_threshold"])
        assert tuned[name] == pytest.approx(start[f"best_{name}"])
        assert tuned[name] >= max(scored(t)[name] for t in np.linspace(-9, 9, 25)) - 1e-9
        assert {k: v for k, v in tuned.items() if "best" in k} == {
            k: v for k, v in start.items() if "best" in k
        }
    assert scored(-1e9)["no_answer_exact"] == 100.0
    assert scored(1e9)["no_answer_exact"] == 0.0


# --- the others -----------------------------------------------------------------------------------


@given(
    st.lists(st.lists(WORD, max_size=25), min_size=1, max_size=4),
    st.integers(6, 14),
    STRIDES,
    st.integers(0, 99),
)
def test_each_word_gets_the_tag_of_the_window_that_answers_for_it(sentences, length, stride, seed):
    random = np.random.default_rng(seed)
    truth = [tuple(random.integers(0, 4, len(words)).tolist()) for words in sentences]
    examples = [
        example(i, words=tuple(words), label=t)
        for i, (words, t) in enumerate(zip(sentences, truth, strict=True))
    ]
    if stride == ("overlap", 3):
        length += 2
    found = encode(examples, "tag", length, stride_as=stride[0], stride=stride[1])
    outputs = []
    for row, count in enumerate(found.lengths):
        logits = random.normal(size=(count, 4)) * 50  # what a window has no say in is noise
        for token, tag in enumerate(row_of(found, "tags", row)):
            if tag >= 0:
                logits[token] = np.eye(4)[tag]
        outputs.append(logits)
    assert decode(found, examples, outputs) == truth


def test_words_that_were_cut_off_have_no_tag():
    one = example(words=("a",) * 9)
    found = encode([one], "tag", 6, long="cut")
    outputs = [np.tile([0.0, 0.0, 1.0], (6, 1))]
    assert decode(found, [one], outputs) == [(2, 2, 2, 2, -1, -1, -1, -1, -1)]


def test_classes_numbers_and_options():
    texts = [example(text="a"), example(text="b")]
    found = encode(texts, "classify")
    made = decode(found, texts, [np.log([0.1, 0.9]), np.array([1000.0, 1000.0], np.float32)])
    np.testing.assert_allclose(made, [[0.1, 0.9], [0.5, 0.5]])
    assert decode(
        encode(texts, "regress"), texts, [np.array([1.5], np.float32), np.array([-2.0])]
    ) == [1.5, -2.0]
    questions = [example(text="a", options=("b", "c", "d")), example(text="a", options=("b", "c"))]
    found = encode(questions, "choice")
    made = decode(
        found, questions, [np.log([0.5, 0.2, 0.3]), np.array([0.0, 0.0, 9.0])]
    )  # the last is no option
    np.testing.assert_allclose(made[0], [0.5, 0.2, 0.3])
    np.testing.assert_allclose(made[1], [0.5, 0.5])


def test_every_answer_is_a_plain_value():
    one = example(text="a", pair="b c")
    (span,) = decode(encode([one], "span"), [one], [np.ones((6, 2), np.float32)], no_answer=True)
    assert isinstance(span, Span)
    json.dumps(dataclasses.asdict(span))
    tokens = encode([one := example(words=("a", "b"))], "tag")
    json.dumps(decode(tokens, [one], [np.ones((4, 2), np.float32)]))
