"""Checked examples: what rows of every kind become; refusals name the file and the line.

What is refused and why, and what is left out, is in tests/net/transcripts/train_rows.txt.
"""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import Task
from bert_jax.data.examples import Answer, Example, find_labels, hash_examples, load_examples
from bert_jax.errors import DataError
from tests.data.small import write

LABELS = ("billing", "hardware", "software")


def silent(line: str) -> None:
    pass


def write_rows(path: Path, rows: list[dict]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def load(path: Path, kind: str, labels=(), split="train", **task) -> list[Example]:
    """Return the examples of a file, as those of a split."""
    return load_examples(Task(source=f"files:{split}={path}", **task), kind, labels, split, silent)


def test_find_labels_finds_what_is_held_out(tmp_path):
    lines = [f"The machine {n} is broken.\t{LABELS[n % 3]}" for n in range(30)]
    for text in ("It smells.", "It hums.", "It is hot."):
        rare = "\n".join(["text\tlabel", *lines, f"{text}\tother\n"])
        task = Task(source=f"files:{write(tmp_path / 'rare.tsv', rare)}")
        assert find_labels(task, "classify", silent) == ("billing", "hardware", "other", "software")
    path = write(tmp_path / "a.conll", "#EU B-ORG\nsays O\n\nno O\n")
    assert find_labels(Task(source=f"files:train={path}"), "tag", silent) == ("B-ORG", "O")


def test_hash_examples_depends_on_content_only():
    one, two = Example("a.tsv:1", "0", text="It rains."), Example("a.tsv:2", "1", text="It pours.")
    moved = Example("b.tsv:1", "0", text="It rains.")
    digests = [hash_examples(*both) for both in (([one, two], []), ([one], []), ([], [one]))]
    assert len(set(digests)) == 3
    assert hash_examples([moved], []) == digests[1]


def test_load_keeps_the_numbers_of_rows_after_a_skip(tmp_path):
    lines = [f"{n}\tWhy {n}?\tHow?\t{n % 2}" for n in range(200)]
    lines[50] = "50\tWhy?"
    lines[60] = "60\t\tHow?\t1"
    path = write(tmp_path / "a.tsv", "\n".join(["idx\tquestion1\tquestion2\tlabel", *lines]))
    task = {"text": "question1", "text_pair": "question2"}
    found = load(path, "classify", ("0", "1"), name="qqp", **task)
    assert [one.id for one in found] == [str(n) for n in range(200) if n not in (50, 60)]


CONTEXT = "Æsop 😀 ate figs. Æsop slept."
FIGS = {"text": "figs", "answer_start": CONTEXT.index("figs")}
SPAN = {"id": "id", "text": "question", "text_pair": "context", "label": "answers"}
NO_ANSWER = SPAN | {"no_answer": True}
BITS = {"values": ("0", "1")}
PAIR = BITS | {"id": "key", "text": "question|one", "text_pair": "two", "label": "gold"}
WORDS = {"text": "w", "label": "t"}
ENDS = {"text": "p", "options": ("a", "b", "c")}
LISTED = {"text": "p", "options": ("ends",), "values": ("A", "B")}
AT_11 = (Answer("figs", 11),)
EU = {"words": ("#EU", "says"), "label": (1, 0)}


def ask(*answers, **more) -> list[dict]:
    """Return one question for each list of answers."""
    question = {"question": "Who?", "context": CONTEXT, **more}
    return [{"id": f"q{n}", "answers": listed, **question} for n, listed in enumerate(answers)]


IN_PAIR = {"key": "x7", "one": "Is it?", "two": "It is.", "gold": "O"}
TAGGED = {"w": ["#EU", "says"], "t": ["B-ORG", "O"]}
CHOICES = {"p": "q", "how": "Then", "a": "x", "b": "y", "c": "z", "label": 2}
LOADED = [  # kind, task, row, fields of the example
    *(("classify", BITS, {"text": "a", "label": x}, {"label": 0}) for x in ("O", "0", 0, 0.0)),
    *(("classify", BITS, {"text": "a", "label": x}, {"label": 1}) for x in ("B-ORG", " 1 ", 1)),
    ("classify", PAIR, IN_PAIR, {"id": "x7", "text": "Is it?", "pair": "It is.", "label": 0}),
    ("classify", {"values": ("-1", "1"), "id": "idx|"}, {"text": "a", "label": -1}, {"id": "0"}),
    ("regress", {}, {"text": "a", "label": " 2.5"}, {"label": 2.5}),
    ("tag", WORDS, TAGGED, EU),
    ("tag", WORDS | BITS, TAGGED | {"t": [1, 0]}, EU),
    ("tag", WORDS, {"w": "#EU says", "t": "B-ORG O"}, EU),
    ("choice", ENDS, CHOICES | {"c": "", "label": 1}, {"options": ("x", "y"), "label": 1}),
    ("choice", ENDS | {"text_pair": "how"}, CHOICES, {"options": ("Then x", "Then y", "Then z")}),
    ("choice", LISTED, {"p": "q", "ends": ["x", "y"], "label": "B"}, {"label": 1}),
    ("span", SPAN, *ask([FIGS]), {"text": "Who?", "pair": CONTEXT, "label": AT_11}),
    ("span", SPAN, *ask({"text": ["figs"], "answer_start": [11]}), {"label": AT_11}),
    ("span", NO_ANSWER, *ask([]), {"label": ()}),
    ("span", NO_ANSWER, *ask({"text": [], "answer_start": []}), {"label": ()}),
    ("span", NO_ANSWER, *ask([{"text": "x"}], is_impossible=True), {"label": ()}),
    # What stands for no label in a test split.
    ("classify", {}, {"text": "a"}, {"label": None}),
    ("classify", {}, {"": "0", "text": "a"}, {"label": None}),  # the index column of a table
    ("classify", {}, {"text": "a", "label": ""}, {"label": None}),
    ("regress", {}, {"text": "a", "label": -1}, {"label": None}),
    ("tag", {}, {"text": ["It", "rains"], "label": [-1, -1]}, {"label": None}),
    ("tag", BITS, {"text": ["It", "rains"], "label": [0, 0]}, {"label": (0, 0)}),
    ("span", SPAN, *ask([]), {"label": None}),
]


CLASSES = dict.fromkeys(("classify", "tag"), ("O", "B-ORG"))


@pytest.mark.parametrize(("kind", "task", "row", "fields"), LOADED, ids=range(len(LOADED)))
def test_load_makes_an_example_of_a_row(tmp_path, kind, task, row, fields):
    path = write_rows(tmp_path / "a.jsonl", [row])
    labels = CLASSES.get(kind, ())
    (one,) = load(path, kind, labels, split="test", **task)
    assert one.where == f"{path}:1"
    assert {name: getattr(one, name) for name in fields} == fields
    if fields.get("label", 0) is None and kind != "regress":  # -1 is a number elsewhere
        with pytest.raises(DataError, match=rf"^{path}:1: "):
            load(path, kind, labels, split="validation", **task)


NEAR = [  # as the file has it, and as the context has it
    *((" figs. ", 11, "figs.", 11), ("figs.\n", 11, "figs.", 11), ("ate  figs", 7, "ate figs", 7)),
    *(("figs", 10, "figs", 11), ("figs", 12, "figs", 11), ("slept.", 23, "slept.", 22)),
    *(("\tÆsop", 0, "Æsop", 0), ("Æsop", 16, "Æsop", 17)),
]


@pytest.mark.parametrize(("text", "start", "found", "at"), NEAR)
def test_load_span_searches_near_the_offset(tmp_path, text, start, found, at):
    path = write_rows(tmp_path / "a.jsonl", ask([{"text": text, "answer_start": start}]))
    (one,) = load(path, "span", **SPAN)
    assert one.label == (Answer(found, at),)
    assert CONTEXT[at : at + len(found)] == found


def test_load_span_drops_or_keeps_misplaced_answers(tmp_path):
    rows = ask(*[[FIGS]] * 9, [{"text": "figs", "answer_start": 0}])
    path = write_rows(tmp_path / "a.jsonl", rows)
    assert [one.id for one in load(path, "span", **SPAN)] == [f"q{n}" for n in range(9)]
    found = load(path, "span", split="validation", **SPAN)
    assert (len(found), found[-1].label[0].text) == (10, "figs")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(["text", "label", "context", "a", "b"])
ROWS = st.dictionaries(NAMES, VALUES | st.lists(st.text(max_size=3)))


@pytest.mark.fault(12)
@given(ROWS, st.sampled_from(["classify", "regress", "tag", "choice"]))
def test_load_of_any_row_fails_by_file_and_line(tmp_path_factory, row, kind):
    path = write_rows(tmp_path_factory.getbasetemp() / "any.jsonl", [row])
    examples, refusal = [], f"{path}:1: "
    try:
        examples = load(path, kind, CLASSES.get(kind, ()), split="test", options=("a", "b"))
    except DataError as error:
        refusal = str(error)
    assert refusal.startswith(f"{path}:1: ")
    for one in examples:
        assert one.text.strip() or all(word.strip() for word in one.words)
        assert kind != "regress" or one.label is None or math.isfinite(one.label)
