"""What is recorded of a task's evaluation, counts and worst mistakes, is frozen."""

import json

import numpy as np

from bert_jax.data.answers import Candidate, Span
from bert_jax.data.examples import Answer, Example
from bert_jax.evaluation import mistakes


def example(label, **parts) -> Example:
    return Example("file:1", "1", label=label, **parts)


def span(text: str, start: int = 0, probability: float = 0.5) -> Span:
    best = (Candidate(text, start, start + len(text), 1.0, probability),)
    return Span(text, start, start + len(text), 1.0, 0.0, best)


LABELS = ("no", "yes", "maybe")
CLASSES = [example(i, text=f"text {i}", pair="b" if i else None) for i in (0, 1, 1, 2, 2)]
SHARES = [(0.8, 0.1, 0.1), (0.5, 0.3, 0.2), (0.7, 0.1, 0.2), (0.1, 0.2, 0.7), (0.1, 0.6, 0.3)]
MADE = [np.array(shares) for shares in SHARES]
# A person is found, one is cut short, and a place is cut off.
WORDS = example((1, 3, 1, 2, 3, 0), words=("Ada", "met", "Bo", "Li", "in", "Ulm"))
OPTIONS = [example(1, text="which", options=("a", "b")), example(0, text="w", options=("c", "d"))]
CONTEXT = f"{'x ' * 500}the loud fan is here{' y' * 500}"
RIGHT = (Answer("loud fan", CONTEXT.index("loud fan")),)
ASKED = [example(RIGHT, text=f"q{i}", pair=CONTEXT) for i in range(5)]
ASKED += [example((), text="none", pair=CONTEXT), example((), text="nothing", pair=CONTEXT)]
PREDICTED = [
    *(span("the loud fan"), span("loud")),  # an article is no difference
    *(span("here", probability=0.25), span("x", probability=0.75), span(""), span("")),
    span("here", CONTEXT.index("here"), 0.5),
]
CASES = {
    "classes, by the share of the right one": ("classify", CLASSES, MADE, LABELS),
    "a share that is no number": ("classify", CLASSES[1:2], [np.array([np.nan] * 3)], LABELS),
    "words and entities": ("tag", [WORDS], [(1, 3, 1, 3, 3, -1)], ("B-LOC", "B-PER", "I-PER", "O")),
    "words": ("tag", [WORDS], [(1, 3, 1, 3, 3, 0)], ("a", "b", "c", "d")),
    "answers, by shared words": ("span", ASKED, PREDICTED, ()),
    "options": ("choice", OPTIONS, [np.array([0.9, 0.1]), np.array([0.6, 0.4])], ()),
    "numbers": ("regress", [example(x, text=str(x)) for x in (1.0, 2.0, 3.0)], [1.5, 2.0, 1.0], ()),
}


def test_mistakes_are_frozen(check_frozen):
    lines = []
    for name, case in CASES.items():
        (row,) = mistakes.list_mistakes(*case, most=12)
        worst = row.pop("mistakes")
        lines += [f"# {name}", *(json.dumps(one, allow_nan=False) for one in (row, *worst))]
    check_frozen(lines, "mistakes")


def test_mistakes_are_as_many_as_asked():
    asked = ("classify", CLASSES, MADE, LABELS)
    ((whole,), (first,)) = (mistakes.list_mistakes(*asked, most=most) for most in (12, 1))
    assert first == whole | {"mistakes": whole["mistakes"][:1]}
    assert mistakes.list_mistakes(*asked, most=0) == []
    assert mistakes.list_mistakes("classify", [example(None)], MADE[:1], LABELS, most=12) == []


def test_mistakes_stay_small_for_long_texts():
    text = "word " * 100_000
    words = tuple(text.split())
    long, shares = [example(0, text=text, pair=text)] * 50, [np.array([0.25, 0.75])] * 50
    (row,) = mistakes.list_mistakes("classify", long, shares, ("a", "b"), most=12)
    assert len(json.dumps(row)) < 12 * 800
    tags = [example((0,) * len(words), words=("w" * 999, *words[1:]))]
    (row,) = mistakes.list_mistakes("tag", tags, [(1,) * len(words)], ("A", "B"), most=12)
    assert len(json.dumps(row)) < 1000
    assert row["mistakes"][0]["wrong"] == len(words)
