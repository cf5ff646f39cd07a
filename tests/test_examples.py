"""Checked examples: what rows of every kind become, and what is refused, where, and with which
values.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import Task
from bert_jax.data.labelled import examples
from bert_jax.data.labelled.examples import Answer, Example
from bert_jax.errors import ConfigError, DataError

LABELS = ("billing", "hardware", "software")


def silent(text: str) -> None:
    pass


def write(path: Path, content: str | list[dict]) -> Path:
    if not isinstance(content, str):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def load(path: Path, kind: str, labels=(), split="train", log=silent, **task) -> list[Example]:
    """The examples of a file, as those of a split."""
    return examples.load(Task(source=f"files:{split}={path}", **task), kind, labels, split, log)


# --- one's own task -------------------------------------------------------------------------------

COMPLAINTS = {
    "hardware": "The {} is broken and does not start.",
    "software": "The {} program crashes when I save.",
    "billing": "I was charged twice for the {}.",
}
THINGS = (
    "printer",
    "laptop",
    "screen",
    "phone",
    "router",
    "camera",
    "scanner",
    "keyboard",
    "mouse",
    "server",
)


@pytest.fixture
def complaints(tmp_path) -> Path:
    """Thirty lines of text and label."""
    lines = [
        f"{text.format(thing)}\t{label}" for thing in THINGS for label, text in COMPLAINTS.items()
    ]
    return write(tmp_path / "complaints.tsv", "\n".join(["text\tlabel", *lines]) + "\n")


def test_thirty_lines_are_a_task(complaints):
    said: list[str] = []
    task = Task(source=f"files:{complaints}")
    labels = examples.found_labels(task, "classify", said.append)
    assert labels == LABELS
    train, held_out = (
        examples.load(task, "classify", labels, s, said.append) for s in ("train", "validation")
    )
    assert (len(train), len(held_out)) == (24, 6)
    lines = complaints.read_text().split("\n")
    for example in train + held_out:
        assert (
            lines[int(example.where.rpartition(":")[2]) - 1]
            == f"{example.text}\t{labels[example.label]}"
        )
    assert len({example.id for example in train + held_out}) == 30
    shares = [sum(e.label == n for e in train) for n in range(3)]
    expected = ", ".join(f"{name} {share}" for name, share in zip(labels, shares, strict=True))
    assert said[1] == f"train: 24 examples from {complaints} ({expected})"


def test_a_rare_label_is_found_on_whichever_side_it_falls(complaints):
    for text in ("It smells.", "It hums.", "It is hot."):
        path = write(complaints.parent / "rare.tsv", complaints.read_text() + f"{text}\tother\n")
        task = Task(source=f"files:{path}")
        labels = examples.found_labels(task, "classify", silent)
        assert labels == ("billing", "hardware", "other", "software")
        loaded = [
            examples.load(task, "classify", labels, split, silent)
            for split in ("train", "validation")
        ]
        assert sum(labels[e.label] == "other" for side in loaded for e in side) == 1


def test_the_first_rows_are_trained_on(complaints):
    task = Task(source=f"files:{complaints}", validation_fraction=0.0, rows=7)
    assert [e.id for e in examples.load(task, "classify", LABELS, "train", silent)] == [
        str(n) for n in range(7)
    ]
    task = Task(source=f"files:validation={complaints}", rows=7)
    assert len(examples.load(task, "classify", LABELS, "validation", silent)) == 30


# --- every kind -----------------------------------------------------------------------------------


def test_texts_pairs_and_ids(tmp_path):
    path = write(tmp_path / "a.csv", "key,one,two,gold\nx7,Is it?,It is.,yes\nx8,Was it?,No.,no\n")
    task = {"id": "key", "text": "question|one", "text_pair": "two", "label": "gold"}
    first, second = load(path, "classify", ("no", "yes"), **task)
    assert first == Example(f"{path}:2", "x7", "Is it?", "It is.", label=1)
    assert (second.id, second.label) == ("x8", 0)
    task = {"id": "idx|", "text": "one", "label": "gold"}
    assert [(e.id, e.pair) for e in load(path, "classify", ("no", "yes"), **task)] == [
        ("0", None),
        ("1", None),
    ]


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("negative", 0),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        ("positive", 1),
        (" 1 ", 1),
        (1, 1),
        (True, None),
        ("yes", None),
    ],
)
def test_a_label_is_written_by_name_or_as_values_say(tmp_path, written, label):
    other = {"text": "b", "label": "positive" if label == 0 else "negative"}
    path = write(tmp_path / "a.jsonl", [{"text": "a", "label": written}, other])
    labels = {"labels": ("negative", "positive"), "values": ("0", "1")}
    if label is None:
        with pytest.raises(
            DataError, match=rf"{path}:1: label .* is not one of: negative, positive, 0, 1"
        ):
            load(path, "classify", **labels)
    else:
        assert load(path, "classify", **labels)[0].label == label


def test_values_that_are_names_of_other_labels_are_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "a", "label": "0"}])
    with pytest.raises(ConfigError, match=r"task.values\[0\] = '0' already means label 1"):
        load(path, "classify", ("1", "0"), values=("0", "1"))


@pytest.mark.parametrize("number", [5e38, -5e38, 1e16, 1e400])
def test_a_number_that_float32_cannot_learn_names_its_row(tmp_path, number):
    path = write(
        tmp_path / "a.jsonl", [{"text": "a", "label": 1e15}, {"text": "b", "label": number}]
    )
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: label .* (is too large to learn in float32|is not a finite)"
    ):
        load(path, "regress")


@given(st.lists(st.floats(-1e15, 1e15), min_size=2, max_size=9, unique=True))
def test_regression_reads_the_number_that_is_written(tmp_path_factory, numbers):
    folder = tmp_path_factory.mktemp("numbers")
    as_text = write(folder / "a.tsv", "text\tlabel\n" + "".join(f"t\t{n!r}\n" for n in numbers))
    as_json = write(folder / "a.jsonl", [{"text": "t", "label": n} for n in numbers])
    for path in (as_text, as_json):
        assert [e.label for e in load(path, "regress")] == numbers


def test_words_and_labels(tmp_path):
    columns = write(tmp_path / "a.conll", "#EU B-ORG\nsays O\n\nno O\n")
    lists = write(
        tmp_path / "a.jsonl",
        [{"w": ["#EU", "says"], "t": ["B-ORG", "O"]}, {"w": ["no"], "t": ["O"]}],
    )
    numbers = write(
        tmp_path / "n.jsonl", [{"w": ["#EU", "says"], "t": [1, 0]}, {"w": ["no"], "t": [0]}]
    )
    texts = write(tmp_path / "a.tsv", "w\tt\n#EU says\tB-ORG O\nno\tO\n")
    named = {"text": "w", "label": "t"}
    for path, task in (
        (columns, {}),
        (lists, named),
        (numbers, {**named, "values": ("0", "1")}),
        (texts, named),
    ):
        first, second = load(path, "tag", ("O", "B-ORG"), **task)
        assert (first.words, first.label) == (("#EU", "says"), (1, 0))
        assert (second.words, second.label) == (("no",), (0,))
    assert examples.found_labels(Task(source=f"files:train={columns}"), "tag", silent) == (
        "B-ORG",
        "O",
    )


CONTEXT = "Æsop 😀 ate figs. Æsop slept."
SPAN = {"id": "id", "text": "question", "text_pair": "context", "label": "answers"}


def question(answers, **more) -> list[dict]:
    return [{"id": "q", "question": "Who?", "context": CONTEXT, "answers": answers, **more}]


def test_answers_are_substrings_in_either_notation(tmp_path):
    start = CONTEXT.index("figs")
    expected = (Answer("figs", start), Answer("Æsop", 0))
    listed = [{"text": "figs", "answer_start": start}, {"text": "Æsop", "answer_start": 0}]
    columns = {"text": ["figs", "Æsop"], "answer_start": [start, 0]}
    for number, answers in enumerate((listed, columns)):
        (example,) = load(write(tmp_path / f"{number}.jsonl", question(answers)), "span", **SPAN)
        assert (example.id, example.text, example.pair, example.label) == (
            "q",
            "Who?",
            CONTEXT,
            expected,
        )


def test_no_answer(tmp_path):
    for number, row in enumerate(
        (
            question([]),
            question({"text": [], "answer_start": []}),
            question([{"text": "x"}], is_impossible=True),
        )
    ):
        path = write(tmp_path / f"{number}.jsonl", row)
        assert load(path, "span", no_answer=True, **SPAN)[0].label == ()
        with pytest.raises(DataError, match=rf"{path}:1: a question without an answer") as caught:
            load(path, "span", **SPAN)
        assert "no_answer" in caught.value.hint


def test_options_are_columns_or_a_list_and_may_have_a_common_beginning(tmp_path):
    rows = [{"p": "It fell.", "how": "Then", "a": "it broke.", "b": "it flew.", "label": 1}] * 2
    columns = {"text": "p", "options": ("a", "b")}
    path = write(tmp_path / "a.jsonl", rows)
    example = load(path, "choice", **columns)[0]
    assert (example.text, example.options, example.label) == (
        "It fell.",
        ("it broke.", "it flew."),
        1,
    )
    example = load(path, "choice", **columns, text_pair="how")[0]
    assert example.options == ("Then it broke.", "Then it flew.")
    path = write(tmp_path / "b.jsonl", [{"p": "It fell.", "ends": ["x", "y", "z"], "label": "C"}])
    (example,) = load(path, "choice", text="p", options=("ends",), values=("A", "B", "C"))
    assert (example.options, example.label) == (("x", "y", "z"), 2)


def test_a_question_may_have_fewer_options(tmp_path):
    path = write(tmp_path / "a.csv", "p,a,b,c,label\nq,x,y,z,2\nq,x,y,,1\n")
    first, second = load(path, "choice", text="p", options=("a", "b", "c"))
    assert (first.options, second.options) == (("x", "y", "z"), ("x", "y"))
    path = write(tmp_path / "b.csv", "p,a,b,c,label\nq,x,,z,2\n")
    with pytest.raises(DataError, match=rf"{path}:2: 'option 1' is empty"):
        load(path, "choice", text="p", options=("a", "b", "c"))


# --- splits without labels ------------------------------------------------------------------------


@pytest.mark.parametrize("header", [("text",), ("text", "label")])
@pytest.mark.parametrize("value", ["", "-1"])
def test_a_test_split_may_have_no_labels(tmp_path, header, value):
    rows = [dict(zip(header, (text, value), strict=False)) for text in ("a", "b")]
    path = write(tmp_path / "a.jsonl", rows)
    for kind, labels in (("classify", LABELS), ("regress", ())):
        assert [e.label for e in load(path, kind, labels, split="test_matched")] == [None, None]
        if kind == "classify" or value == "":
            with pytest.raises(DataError, match=rf"^{path}:1: (no column 'label'|label)"):
                load(path, kind, labels, split="validation")
    assert (
        load(write(tmp_path / "a.conll", "It\nrains\n"), "tag", ("O",), split="test")[0].label
        is None
    )
    numbers = write(tmp_path / "tags.jsonl", [{"text": ["It", "rains"], "label": [0, 0]}])
    assert load(numbers, "tag", ("O",), split="test", values=("0",))[0].label == (0, 0)
    questions = [{k: v for k, v in question([])[0].items() if k != "answers"}]
    assert (
        load(write(tmp_path / "q.jsonl", questions), "span", split="test", **SPAN)[0].label is None
    )


def test_some_labels_are_not_none_and_minus_one_may_be_one(tmp_path):
    path = write(
        tmp_path / "a.jsonl", [{"text": "a", "label": "billing"}, {"text": "b", "label": -1}]
    )
    with pytest.raises(
        DataError, match=rf"{path}:2: label '-1' is not one of: billing, hardware, software"
    ):
        load(path, "classify", LABELS, split="test")
    path = write(tmp_path / "b.jsonl", [{"text": "a", "label": -1}])
    assert load(path, "classify", ("-1", "1"), split="test")[0].label == 0


# --- what is refused ------------------------------------------------------------------------------

TEXT = "text\tlabel\nfine\thardware\n"
REFUSED = {  # name: (file, content, kind, task, line, message)
    "label": (
        "a.tsv",
        TEXT + "bad\tHardware\n",
        "classify",
        {},
        3,
        "label 'Hardware' is not one of: billing, hard",
    ),
    "no label": ("a.tsv", TEXT + "bad\t\n", "classify", {}, 3, "label '': column 'label' is empty"),
    "null label": ("a.jsonl", '{"text": "a", "label": null}', "classify", {}, 1, "label None"),
    "list label": ("a.jsonl", '{"text": "a", "label": [1]}', "classify", {}, 1, r"label \[1\]"),
    "no label column": ("a.tsv", TEXT, "classify", {"label": "gold"}, 2, "no column 'gold'"),
    "no id column": ("a.tsv", TEXT, "classify", {"id": "key"}, 2, "no column 'key'"),
    "empty text": ("a.tsv", TEXT + "\thardware\n", "classify", {}, 3, "'text' is empty"),
    "blank text": ("a.tsv", TEXT + " \u3000\thardware\n", "classify", {}, 3, "'text' is empty"),
    "number as text": (
        "a.jsonl",
        '{"text": 3, "label": "billing"}',
        "classify",
        {},
        1,
        "'text' is int, not text",
    ),
    "no text": ("a.jsonl", '{"label": "billing"}', "classify", {}, 1, "no column 'text'"),
    "NUL": ("a.jsonl", '{"text": "a\\u0000", "label": "billing"}', "classify", {}, 1, "NUL"),
    "surrogate": (
        "a.jsonl",
        '{"text": "a\\ud800", "label": "billing"}',
        "classify",
        {},
        1,
        "half a surrogate pair",
    ),
    "one class": (
        "a.tsv",
        TEXT + "more\thardware\n",
        "classify",
        {},
        2,
        "all 2 training rows have the same label",
    ),
    "one class in the first rows": (
        "a.tsv",
        TEXT + "b\tbilling\n",
        "classify",
        {"rows": 1},
        2,
        "all 1 training rows",
    ),
    "NaN": (
        "a.tsv",
        "text\tlabel\na\t1\nb\tNaN\n",
        "regress",
        {},
        3,
        "label 'NaN' of column 'label' is not a finite",
    ),
    "JSON NaN": ("a.jsonl", '{"text": "a", "label": NaN}', "regress", {}, 1, "label nan"),
    "infinity": ("a.tsv", "text\tlabel\na\t1\nb\t-inf\n", "regress", {}, 3, "'-inf'"),
    "too large": ("a.tsv", "text\tlabel\na\t1\nb\t1e999\n", "regress", {}, 3, "'1e999'"),
    "no number": ("a.tsv", "text\tlabel\na\t1\nb\t4,5\n", "regress", {}, 3, "'4,5'"),
    "underscores": ("a.tsv", "text\tlabel\na\t1\nb\t4_5\n", "regress", {}, 3, "'4_5'"),
    "true": ("a.jsonl", '{"text": "a", "label": true}', "regress", {}, 1, "label True"),
    "one value": ("a.tsv", "text\tlabel\na\t1\nb\t1.0\n", "regress", {}, 2, "all 2 training rows"),
    "tag": (
        "a.conll",
        "a O\nb O\n\nc O\nd B-PER\n",
        "tag",
        {},
        5,
        "label 'B-PER' is not one of: O, B-LOC",
    ),
    "one tag": (
        "a.conll",
        "a O\nb O\n\nc O\n",
        "tag",
        {},
        1,
        "all 2 training rows have the same label",
    ),
    "words": (
        "a.jsonl",
        '{"text": ["a", "b"], "label": ["O"]}',
        "tag",
        {},
        1,
        "2 words but 1 labels",
    ),
    "no words": ("a.jsonl", '{"text": [], "label": []}', "tag", {}, 1, "a sentence without words"),
    "empty word": ("a.conll", "a\tO\n \tO\n", "tag", {}, 2, "word 1: 'text' is empty"),
    "word of no text": (
        "a.jsonl",
        '{"text": ["a", 1], "label": ["O", "O"]}',
        "tag",
        {},
        1,
        "word 1: 'text' is int",
    ),
    "no option": (
        "a.csv",
        "p,a,b,label\nq,x,,0\n",
        "choice",
        {"text": "p", "options": ("a", "b")},
        2,
        "1 options",
    ),
    "option": (
        "a.csv",
        "p,a,b,label\nq,x,y,2\n",
        "choice",
        {"text": "p", "options": ("a", "b")},
        2,
        "2 of 2 options",
    ),
    "negative option": (
        *("a.csv", "p,a,b,label\nq,x,y,-1\n", "choice", {"text": "p", "options": ("a", "b")}),
        *(2, "label '-1' is not one of"),
    ),
}
OF_KIND = {"classify": LABELS, "regress": (), "tag": ("O", "B-LOC"), "choice": ()}


@pytest.mark.fault(24)
@pytest.mark.parametrize("name", REFUSED)
def test_unusable_rows_name_file_line_and_value(tmp_path, name):
    file, content, kind, task, line, message = REFUSED[name]
    path = write(tmp_path / file, content)
    with pytest.raises(DataError, match=rf"^{path}:{line}: .*{message}") as caught:
        load(path, kind, OF_KIND[kind], **task)
    assert caught.value.code == 3
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"text": "figs", "answer_start": 5},
            "'figs' at character 5, where the context has '😀 at'",
        ),
        ({"text": "figs", "answer_start": -4}, "starts at -4 of 28"),
        ({"text": "figs", "answer_start": 400}, "starts at 400 of 28"),
        ({"text": "figs", "answer_start": "11"}, "starts at '11'"),
        ({"text": "figs", "answer_start": True}, "starts at True"),
        ({"text": "slept. Then", "answer_start": 23}, "where the context has"),
        ({"text": "", "answer_start": 0}, "'answer' is empty"),
        ({"text": 3, "answer_start": 0}, "'answer' is int, not text"),
        ({"text": "figs"}, "not a list of answers"),
        ("figs", "not a list of answers"),
    ],
)
def test_answers_that_are_not_in_the_context_are_refused(tmp_path, answer, message):
    path = write(tmp_path / "a.jsonl", question([answer]))
    with pytest.raises(DataError, match=rf"^{path}:1: .*{message}"):
        load(path, "span", **SPAN)


def asked(answers: list[tuple[str, int]], context: str = CONTEXT) -> list[dict]:
    """One question an answer."""
    return [
        {
            "id": f"q{n}",
            "question": "Who?",
            "context": context,
            "answers": [{"text": text, "answer_start": start}],
        }
        for n, (text, start) in enumerate(answers)
    ]


@pytest.mark.parametrize(
    ("text", "start", "found", "at"),
    [
        (" figs. ", 11, "figs.", 11),  # other blanks than the context's at its ends
        ("figs.\n", 11, "figs.", 11),
        ("figs", 10, "figs", 11),  # one off
        ("figs", 12, "figs", 11),
        ("ate  figs", 7, "ate figs", 7),
        ("slept.", 23, "slept.", 22),
        (" figs", 10, " figs", 10),  # as the context has it
        ("\tÆsop", 0, "Æsop", 0),
    ],
)
def test_answers_are_found_whatever_their_blanks_and_where_an_offset_is_one_off(
    tmp_path, text, start, found, at
):
    path = write(tmp_path / "a.jsonl", asked([(text, start)]))
    (example,) = load(path, "span", **SPAN)
    assert example.label == (Answer(found, at),)
    assert CONTEXT[at : at + len(found)] == found


def test_single_questions_whose_answer_is_elsewhere_are_left_out_of_training_and_counted(tmp_path):
    said: list[str] = []
    right = ("figs", CONTEXT.index("figs"))
    path = write(tmp_path / "a.jsonl", asked([right] * 9 + [("figs", 0)]))
    found = load(path, "span", log=said.append, **SPAN)
    assert [one.id for one in found] == [f"q{n}" for n in range(9)]
    problem = f"{path}:10: answer 'figs' at character 0, where the context has 'Æsop'"
    assert said[0] == f"warning: train: 1 of 10 questions are left out, first {problem}"
    found = load(path, "span", split="validation", log=said.append, **SPAN)
    assert (len(found), found[-1].label[0].text) == (10, "figs")
    assert "validation: 1 of 10 questions are scored by the answer's text" in said[2]
    path = write(tmp_path / "b.jsonl", asked([right] * 8 + [("figs", 0)]))
    with pytest.raises(
        DataError, match=rf"^{path}:9: answer 'figs' at character 0.* \(1 of 9 questions\)"
    ) as caught:
        load(path, "span", **SPAN)
    assert "answer_start" in caught.value.hint


def test_two_questions_cannot_have_one_id(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        2 * question([{"text": "figs", "answer_start": CONTEXT.index("figs")}]),
    )
    with pytest.raises(DataError, match=rf"^{path}:2: id 'q' is also at {path}:1"):
        load(path, "span", **SPAN)


def test_files_without_rows_are_refused(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\n")
    with pytest.raises(DataError, match="has no rows"):
        load(path, "classify", LABELS)
    with pytest.raises(DataError, match="has no rows"):
        examples.found_labels(Task(source=f"files:train={path}"), "classify", silent)


def test_few_unusable_rows_may_be_skipped(tmp_path):
    said: list[str] = []
    lines = [f"row {n}\t{LABELS[n % 3]}" for n in range(200)]
    lines[50] = "\tbilling"
    lines[60] = "row 60\tBilling"
    path = write(tmp_path / "a.tsv", "\n".join(["text\tlabel", *lines]))
    found = load(path, "classify", LABELS, on_bad_row="skip", log=said.append)
    assert [e.id for e in found] == [str(n) for n in range(200) if n not in (50, 60)]
    assert said[0] == f"warning: 2 of 200 rows are left out, first {path}:52: 'text' is empty"
    lines[70] = "broken"  # malformed and meaningless rows are counted together
    write(path, "\n".join(["text\tlabel", *lines]))
    with pytest.raises(DataError, match=rf"^{path}:72: 1 columns, not 2 \(3 bad rows of 200\)"):
        load(path, "classify", LABELS, on_bad_row="skip")


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.text(max_size=3))
)


@given(
    st.dictionaries(st.sampled_from(["text", "label", "context", "a", "b"]), VALUES),
    st.sampled_from(list(OF_KIND)),
)
def test_any_row_is_an_example_or_a_data_error(tmp_path_factory, row, kind):
    path = write(tmp_path_factory.getbasetemp() / "any.jsonl", [row])
    try:
        (example,) = load(path, kind, OF_KIND[kind], split="test", options=("a", "b"))
    except DataError as error:
        assert str(error).startswith(f"{path}:1: ")  # noqa: PT017  # either outcome is right
        return
    assert example.text.strip() or all(word.strip() for word in example.words)
    if kind == "regress" and example.label is not None:
        assert math.isfinite(example.label)


# --- what is enormous -----------------------------------------------------------------------------

ENORMOUS = 50 << 20
LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from bert_jax.config import knobs
from bert_jax.data.labelled import examples
from bert_jax.errors import DataError
for path, kind, task in json.loads(sys.argv[1]):
    task = {k: tuple(v) if type(v) is list else v for k, v in task.items()}
    task = knobs.Task(source=f"files:train={path}", **task)
    try:
        print("read", examples.load(task, kind, ("0", "1"), "train", print))
    except DataError as error:
        print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.fault(45)
def test_what_is_enormous_is_refused_by_row_and_limit_in_bounded_memory(tmp_path):
    text = "word " * (ENORMOUS // 5)
    less = text[:2_000_000]
    long = "w" * 1021 + " 0\n"
    line, characters = (
        "a line of more than 16,777,216 bytes",
        f"has {ENORMOUS:,} characters, more than 1,000,000",
    )
    choice = {"text": "p", "options": ("a", "b")}
    asked = question([{"text": "word", "answer_start": 0}])[0] | {"context": text}
    cases = {  # file: (content, kind, task, line, what is said)
        "a.tsv": (f"text\tlabel\nfine\t0\n{text}\t1\n", "classify", {}, 3, line),
        "a.csv": (f'text,label\nfine,0\n"{text}",1\n', "classify", {}, 3, line),
        "b.csv": (
            'text,label\nfine,0\n"' + long * (ENORMOUS >> 10),
            "classify",
            {},
            3,
            "a field of more than",
        ),
        "a.jsonl": (f'{{"text": "fine"}}\n{{"text": "{text}"}}', "regress", {}, 2, line),
        "a.json": (
            json.dumps([{"text": text, "label": "1"}]),
            "classify",
            {},
            1,
            f"'text' {characters}",
        ),
        "b.json": (
            json.dumps([{"text": "fine", "label": less}]),
            "classify",
            {},
            1,
            "label 'word word",
        ),
        "c.json": (
            json.dumps([{"p": "so", "a": less, "b": "x"}]),
            "choice",
            choice,
            1,
            "'option 0' has 2,000,000 char",
        ),
        "d.json": (json.dumps([asked]), "span", SPAN, 1, f"'context' {characters}"),
        "a.conll": (f"fine 0\n\n{text}", "tag", {}, 3, line),
        "b.conll": (
            long * (ENORMOUS >> 10),
            "tag",
            {},
            16_401,
            "a sentence of more than 16,777,216 characters",
        ),
    }
    given_ = [
        (str(write(tmp_path / name, case[0])), case[1], case[2]) for name, case in cases.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, json.dumps(given_)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for (name, (*_, number, says)), said in zip(
        cases.items(), done.stdout.splitlines(), strict=True
    ):
        assert said.startswith(f"3 {tmp_path / name}:{number}: "), said[:300]
        assert says in said
        assert len(said) < 400
