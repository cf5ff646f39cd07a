"""What is recorded of a task's evaluation: counts of right and wrong, and the worst mistakes."""

import json

import numpy as np

from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Answer, Example
from bert_jax.evaluation import mistakes


def example(label, **parts) -> Example:
    return Example("file:1", "1", label=label, **parts)


def record(kind, examples, predictions, labels=(), most=12):
    """Return the row of an evaluation, which JSON can hold."""
    (row,) = mistakes.list_mistakes(kind, examples, predictions, labels, most)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    return row


def test_mistakes_rank_by_the_right_class():
    labels = ("no", "yes", "maybe")
    texts = [example(i, text=f"text {i}", pair="b" if i else None) for i in (0, 1, 1, 2, 2)]
    shares = [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (0.7, 0.1, 0.2), (0.1, 0.2, 0.7), (0.1, 0.6, 0.3)]
    made = [np.array(p) for p in shares]
    row = record("classify", texts, made, labels)
    counts = [["maybe", "maybe", 1], ["maybe", "yes", 1], ["no", "no", 1], ["yes", "no", 2]]
    assert row["counts"] == counts
    worst = {"text": "text 1", "pair": "b", "truth": "yes", "predicted": "no"}
    assert row["mistakes"][0] == worst | {"probability": 0.7, "right": 0.1}
    rest = [(one["truth"], one["right"]) for one in row["mistakes"][1:]]
    assert rest == [("yes", 0.3), ("maybe", 0.3)]  # equal ones by place
    first = record("classify", texts, made, labels, most=1)
    assert first == row | {"mistakes": row["mistakes"][:1]}
    assert mistakes.list_mistakes("classify", texts, made, labels, 0) == []
    assert mistakes.list_mistakes("classify", [example(None)], made[:1], labels, 12) == []
    unknown = record("classify", texts[1:2], [np.array([np.nan] * 3)], labels)
    assert unknown["mistakes"][0]["probability"] is None


def test_mistakes_stay_small_for_long_texts():
    text = "word " * 100_000
    words = tuple(text.split())
    shares = [np.array([0.25, 0.75])] * 50
    row = record("classify", [example(0, text=text, pair=text)] * 50, shares, ("a", "b"))
    assert len(json.dumps(row)) < 12 * 800
    tags = [example((0,) * len(words), words=("w" * 999, *words[1:]))]
    row = record("tag", tags, [(1,) * len(words)], ("A", "B"))
    assert len(json.dumps(row)) < 1000
    assert row["mistakes"][0]["wrong"] == len(words)


def test_mistakes_count_words_and_entities():
    """Of "Ada met Bo Li in Ulm", a person is found, one is cut short, and a place is cut off."""
    labels = ("B-LOC", "B-PER", "I-PER", "O")
    right = example((1, 3, 1, 2, 3, 0), words=("Ada", "met", "Bo", "Li", "in", "Ulm"))
    row = record("tag", [right], [(1, 3, 1, 3, 3, -1)], labels)
    assert row["entities"] == [["LOC", 0, 0, 1], ["PER", 1, 2, 2]]  # found, predicted, there
    words = ["Ada B-PER B-PER", "met O O", "Bo B-PER B-PER", "Li I-PER O", "in O O", "Ulm B-LOC "]
    assert row["mistakes"] == [{"words": [word.split(" ") for word in words], "wrong": 2}]
    assert ["B-LOC", "", 1] in row["counts"]
    assert ["I-PER", "O", 1] in row["counts"]
    assert "entities" not in record("tag", [right], [(1, 3, 1, 3, 3, 0)], ("a", "b", "c", "d"))


def span(text: str, start: int = 0, probability: float = 0.5) -> Span:
    best = (Candidate(text, start, start + len(text), 1.0, probability),)
    return Span(text, start, start + len(text), 1.0, 0.0, best)


def test_mistakes_of_answers_rank_by_shared_words():
    context = f"{'x ' * 500}the loud fan is here{' y' * 500}"
    right = (Answer("loud fan", context.index("loud fan")),)
    asked = [example(right, text=f"q{i}", pair=context) for i in range(5)]
    asked += [example((), text="none", pair=context), example((), text="nothing", pair=context)]
    predicted = [
        *(span("the loud fan"), span("loud")),  # an article is no difference
        *(span("here", probability=0.25), span("x", probability=0.75), span(""), span("")),
        span("here", context.index("here"), 0.5),
    ]
    row = record("span", asked, predicted)
    assert row["counts"] == [
        ["an answer", "another text", 2],
        ["an answer", "exact", 1],
        ["an answer", "in part", 1],
        ["an answer", "no answer", 1],
        ["no answer", "another text", 1],
        ["no answer", "no answer", 1],
    ]
    assert [m["text"] for m in row["mistakes"]] == ["q3", "q4", "nothing", "q2", "q1"]
    first = row["mistakes"][0]
    assert first["truth"] == "loud fan"
    assert "the loud fan is here" in first["pair"]
    assert first["pair"].startswith("…")
    assert len(first["pair"]) < 300


def test_mistakes_of_options_and_numbers():
    asked = [example(1, text="which", options=("a", "b")), example(0, text="w", options=("c", "d"))]
    row = record("choice", asked, [np.array([0.9, 0.1]), np.array([0.6, 0.4])])
    assert [(m["truth"], m["predicted"]) for m in row["mistakes"]] == [("b", "a")]
    rated = [example(x, text=str(x)) for x in (1.0, 2.0, 3.0)]
    row = record("regress", rated, [1.5, 2.0, 1.0])
    assert [(m["truth"], m["predicted"]) for m in row["mistakes"]] == [("3", "1"), ("1", "1.5")]
