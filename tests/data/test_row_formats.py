"""Rows of files in every format, and the places that errors name."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import typing
from pathlib import Path

import pyarrow
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bert_jax.config import data_knobs
from bert_jax.config.knobs import Task
from bert_jax.data.row_formats import READERS, Row, read_file
from bert_jax.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, **task) -> list[Row]:
    return read_file(path, Task(**task))


def fields(path: Path, **task) -> list[dict]:
    return [row.fields for row in read(path, **task)]


TEXTS = st.text(
    st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_read_file_returns_equal_rows_of_any_format(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("same")
    records = [{"text": text, "label": label} for text, label in table]
    quoted = io.StringIO()
    lines = [("text", "label"), *table]
    csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    files = {
        "a.tsv": "".join(f"{text}\t{label}\n" for text, label in lines),
        "a.csv": quoted.getvalue(),
        "a.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "b.json": "".join(json.dumps(record) + "\n" for record in records),
        "a.json": json.dumps(records, indent=1),
    }
    for name, content in files.items():
        assert fields(write(folder / name, content)) == records, name
    parquet.write_table(pyarrow.Table.from_pylist(records), folder / "a.parquet")
    assert fields(folder / "a.parquet") == records


PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_read_file_unpacks(tmp_path, suffix):
    path = write(tmp_path / f"a.tsv{suffix}", PACKERS[suffix](b"text\tlabel\none\t1\n"))
    assert read(path) == [Row(f"{path}:2", {"text": "one", "label": "1"})]
    assert fields(write(tmp_path / "a.data", b"text\none\n"), format="tsv") == [{"text": "one"}]


# --- tables ---------------------------------------------------------------------------------------


def test_read_table_takes_names_without_a_header(tmp_path):
    named = {"columns": ("source", "label", "original", "text")}
    path = write(tmp_path / "a.tsv", "gj04\t1\t*\tIt rains.\ngj04\t0\t\tRains it.\n")
    places = [(row.where, row.fields["text"], row.number) for row in read(path, **named)]
    assert places == [(f"{path}:1", "It rains.", 0), (f"{path}:2", "Rains it.", 1)]
    path = write(tmp_path / "b.tsv", "index\ttext\n0\tIt rains.\n")  # a header counts
    assert fields(path, **named) == [{"index": "0", "text": "It rains."}]
    with pytest.raises(DataError, match=rf"{path}:1: no column 'sentence'") as caught:
        read(path, text="sentence")
    assert "task.text (text_pair, options) to one of: index, text" in caught.value.hint


def test_read_table_holds_quoted_fields_of_csv_only(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tlabel\n" he said\t1\nso "he" did"\t0\n')
    assert [row.fields["text"] for row in read(path)] == ['" he said', 'so "he" did"']
    long = "word " * 60_000  # more than the 131,072 characters at which Python's csv stops
    content = f'text,label\n"one, two\nthree ""four""",1\n\n"{long}",0\n'
    path = write(tmp_path / "a.csv", content)
    places = [(row.where, row.fields["text"]) for row in read(path)]
    assert places == [(f"{path}:2", 'one, two\nthree "four"'), (f"{path}:5", long)]


@pytest.mark.fault(11)
def test_read_lines_ends_lines_at_newlines_only(tmp_path):
    content = "\ufefftext\tlabel\r\none\u2028two\x85three\x0b\t1\r\n\r\nfour\t0"
    path = write(tmp_path / "a.tsv", content)
    places = [(row.where, row.number, row.fields["text"]) for row in read(path)]
    assert places == [(f"{path}:2", 0, "one\u2028two\x85three\x0b"), (f"{path}:4", 1, "four")]


# --- JSON -----------------------------------------------------------------------------------------

QA = {
    "data": [
        {"paragraphs": [{"context": "Anna ate.", "qas": [{"id": "q1", "answers": [1]}]}]},
        {"paragraphs": [{"context": "Ben slept.", "qas": [{"id": "q2"}, {"id": "q3"}]}]},
    ]
}


@pytest.mark.parametrize("indent", [None, 1])
def test_read_json_gives_questions_their_context(tmp_path, indent):
    path = write(tmp_path / "a.json", json.dumps(QA, indent=indent))
    anna, ben = "Anna ate.", "Ben slept."
    assert fields(path) == [
        {"id": "q1", "answers": [1], "context": anna},
        {"id": "q2", "context": ben},
        {"id": "q3", "context": ben},
    ]
    assert [row.where for row in read(path)] == [f"{path}: question q{n}" for n in (1, 2, 3)]


# --- words ----------------------------------------------------------------------------------------


def test_read_conll_names_columns_from_both_ends(tmp_path):
    content = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n# NN I-NP O\n\n#tag NN B-NP O\n"
    path = write(tmp_path / "a.conll", content)
    first, second = read(path)
    assert first.fields["0"] == ["EU", "#"] == first.fields["text"]
    assert first.fields["3"] == ["B-ORG", "O"] == first.fields["-1"] == first.fields["label"]
    assert first.fields["1"] == ["NNP", "NN"] == first.fields["-3"]
    assert (first.where, first.lines) == (f"{path}:3", (3, 4))
    assert (second.where, second.fields["0"]) == (f"{path}:6", ["#tag"])


def test_read_conll_takes_numbered_columns(tmp_path):
    """As Universal NER has them: what is behind the label is there only for entities."""
    content = "# sent_id = n-1\n# text = Ada met\n1\tAda\tB-PER\t-\tann\n2\tmet\tO\n\n1\tYes\tO\n"
    path = write(tmp_path / "a.iob2", content)
    first, second = read(path, text="1", label="2")
    assert (first.fields["1"], first.fields["2"]) == (["Ada", "met"], ["B-PER", "O"])
    assert (first.where, first.lines, second.where) == (f"{path}:3", (3, 4), f"{path}:6")
    with pytest.raises(DataError, match=rf"^{path}:4: 3 columns, not 5"):
        read(path)


def test_read_conll_parts_by_tabs_else_blanks(tmp_path):
    path = write(tmp_path / "a.conll", "New York\tB-LOC\na\xa0b\tO\n\t\n# \tO\n")
    assert [row.fields["0"] for row in read(path)] == [["New York", "a\xa0b"], ["# "]]
    path = write(tmp_path / "b.conll", "a\xa0b  O\n")
    assert fields(path)[0]["0"] == ["a\xa0b"]
    words = ["It", "rains"]
    path = write(tmp_path / "c.conll", "It\nrains\n")  # one column has no labels
    assert fields(path) == [{"text": words, "0": words, "-1": words}]


def test_read_conllu_leaves_out_tokens_of_several_words(tmp_path):
    words = [("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"), ("2.1", "go", "VERB")]
    lines = ["\t".join([*word[:2], "_", word[2], *"_" * 6]) for word in [*words, ("3", "#", "SYM")]]
    path = write(tmp_path / "a.conllu", "\n".join(["# sent_id = 1", "# text = don't #", *lines]))
    (row,) = read(path)
    assert row.fields["form"] == ["do", "n't", "#"] == row.fields["text"]
    assert row.fields["upos"] == ["AUX", "PART", "SYM"] == row.fields["label"]
    assert (row.where, row.lines) == (f"{path}:4", (4, 5, 7))


# --- what cannot be read --------------------------------------------------------------------------

MALFORMED = {  # name: (file, content, place, message)
    "open quote": ("a.csv", b'text,label\none,1\n"two,0\nthree,1\n', ":3", "not CSV"),
    "text after a quote": ("a.csv", b'text,label\n"two"x,0\n', ":2", "not CSV"),
    "UTF-8": ("a.tsv", b"text\tlabel\none\t1\nt\xffwo\t1\n", ":3", "invalid UTF-8 at byte 1"),
    "UTF-8 in quotes": ("a.csv", b'text,label\n"one\ntw\xffo",1\n', ":3", "invalid UTF-8"),
    "UTF-16": ("a.tsv", "text\tlabel\n".encode("utf-16"), ":1", "invalid UTF-8 at byte 0"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n\n{"text": \n', ":3", "not JSON"),
    "nested too deep": ("a.jsonl", b"[" * 100_000, ":1", "nested too deeply"),
    "no object": ("a.jsonl", b'{"text": "a"}\n["b"]\n', ":2", "a JSON list, not an object"),
    "no object in an array": ("a.json", b'[{"text": "a"}, 3]', ": row 1", "a JSON int, not"),
    "a key twice": ("a.jsonl", b'{"text": "b", "text": "c"}\n', ":1", "'text' stands twice"),
    "a broken array": ("a.json", b'[{"text": "a"},\n {"text" "b"}]', ":2", "not JSON"),
    "a broken line of json": ("a.json", b'{"text": "a"}\n{"text"}\n', ":2", "not JSON"),
    "no paragraphs": ("a.json", b'{"data": [{"text": "a"}]}', ": data", "has no 'paragraphs'"),
    "no questions": ("a.json", b'{"data": [{"paragraphs": [{}]}]}', ": data", "has no 'qas'"),
    "a list of texts": ("a.json", b'{"data": ["a"]}', ": data", "not as in SQuAD"),
    "words": ("a.conll", b"EU B-ORG\nsaid O\n\nyes\n", ":4", "1 columns, not 2"),
    "ten columns": ("a.conllu", b"# text\n1\tEU\tPROPN\n", ":2", "3 columns, not 10"),
    "cut short": ("a.tsv.gz", gzip.compress(b"text\n" + b"one\n" * 99)[:20], "", "is damaged"),
    "not packed": ("a.tsv.gz", b"not packed", "", "is damaged"),
    "not parquet": ("a.parquet", b"PAR1", "", "cannot be read"),
    "no format": ("a.txt", b"text\tlabel\n", "", "its name does not say what format it has"),
}


@pytest.mark.fault(12)
@pytest.mark.parametrize("name", MALFORMED)
def test_read_file_names_the_place_of_a_fault(tmp_path, name):
    file, content, place, message = MALFORMED[name]
    path = write(tmp_path / file, content)
    with pytest.raises(DataError, match=rf"^{path}{place}.*{message}") as caught:
        read(path)
    assert caught.value.code == 3
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_knob_names_every_reader():
    assert sorted(typing.get_args(data_knobs.Format)) == sorted(["auto", *READERS])


@pytest.mark.fault(12)
@given(st.binary(max_size=60), st.sampled_from(list(READERS)))
def test_read_file_of_any_bytes_fails_by_name(tmp_path_factory, content, kind):
    path = tmp_path_factory.getbasetemp() / f"fuzz.{kind}"
    for begin in (b"", b"text\tlabel\n", b"text,label\n", b'[{"text": "a"},'):
        write(path, begin + content)
        refusal = str(path)
        rows = []
        try:
            rows = list(read(path, label="text"))
        except DataError as error:
            refusal = str(error)
        assert str(path) in refusal
        assert all(row.where.startswith(f"{path}:") for row in rows)


def test_reading_starts_without_slow_imports():
    import subprocess

    code = (
        "import sys, bert_jax.data.examples; "
        "print({'tensorflow_datasets', 'pyarrow', 'jax'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "set()"
