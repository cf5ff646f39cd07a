"""Sources and formats of labelled data, on files the tests write, and the places that errors name."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import rows
from bert_jax.data.formats import pick
from bert_jax.errors import DataError
from bert_jax.knobs import Task


def silent(text: str) -> None:
    pass


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path | str, split: str = "train", log=silent, **task) -> list[rows.Row]:
    """The rows of one split of a source; a path is all of the training data."""
    source = f"files:train={path}" if isinstance(path, Path) else path
    return list(rows.read(Task(source=source, **task), split, log))


def fields(found: list[rows.Row]) -> list[dict]:
    return [row.fields for row in found]


# --- formats --------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
TABLE = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5)


@given(TABLE)
def test_every_format_returns_the_same_rows(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("same")
    records = [{"text": text, "label": label} for text, label in table]
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("text", "label"), *table])
    files = {
        "a.tsv": "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *table]),
        "a.csv": quoted.getvalue(),
        "a.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "a.json": json.dumps(records, indent=1),
    }
    for name, content in files.items():
        assert fields(read(write(folder / name, content))) == records, name
    assert fields(read(write(folder / "q.tsv", quoted.getvalue().replace('","', '"\t"')), quoting=True)) == records


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_files_may_be_packed(tmp_path, suffix):
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    path = write(tmp_path / f"a.tsv{suffix}", pack(b"text\tlabel\none\t1\n"))
    (row,) = read(path)
    assert row == (f"{path}:2", 0, {"text": "one", "label": "1"}, ())


def test_a_table_without_a_header_needs_names(tmp_path):
    path = write(tmp_path / "a.tsv", "gj04\t1\t*\tIt rains.\ngj04\t0\t\tRains it.\n")
    found = read(path, columns=("source", "label", "original", "sentence"), text="sentence")
    assert [(r.where, r.fields["sentence"], r.fields["label"]) for r in found] == [
        (f"{path}:1", "It rains.", "1"),
        (f"{path}:2", "Rains it.", "0"),
    ]
    with pytest.raises(DataError, match=rf"{path}:1: no column 'sentence'") as caught:
        read(path, text="sentence")
    assert "task.text" in caught.value.hint


def test_a_header_counts_whatever_columns_say(tmp_path):
    path = write(tmp_path / "a.tsv", "index\tsentence\n0\tIt rains.\n")
    (row,) = read(path, columns=("source", "label", "original", "sentence"), text="sentence")
    assert row.fields == {"index": "0", "sentence": "It rains."}


def test_quotes_mean_nothing_in_tsv_and_hold_fields_in_csv(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tlabel\n" he said\t1\nso "he" did"\t0\n')
    assert [r.fields["text"] for r in read(path)] == ['" he said', 'so "he" did"']
    path = write(tmp_path / "a.csv", 'text,label\n"one, two\nthree ""four""",1\nfive,0\n')
    assert [(r.where, r.fields["text"]) for r in read(path)] == [
        (f"{path}:2", 'one, two\nthree "four"'),
        (f"{path}:4", "five"),
    ]


def test_only_a_newline_ends_a_line_and_marks_of_windows_are_no_text(tmp_path):
    path = write(tmp_path / "a.tsv", "\ufefftext\tlabel\r\none\u2028two\x85three\x0b\t1\r\n\r\nfour\t0")
    assert [(r.where, r.number, r.fields["text"]) for r in read(path)] == [
        (f"{path}:2", 0, "one\u2028two\x85three\x0b"),
        (f"{path}:4", 1, "four"),
    ]


def test_long_fields_are_read(tmp_path):
    long = "word " * 60_000  # more than the 131,072 characters at which Python's csv stops
    (row,) = read(write(tmp_path / "a.csv", f'text,label\n"{long}",1\n'))
    assert row.fields["text"] == long


def test_a_column_is_the_first_that_is_there():
    assert pick("sentence1|#1 String", {"#1 String": 1, "Quality": 2}) == "#1 String"
    assert pick("a|b", ["b", "a"]) == "a"
    assert pick("a|b", ["a|b", "a"]) == "a|b"
    assert pick("a|b", ["c"]) is None
    assert pick("a|", ["c"]) == ""


def test_a_json_file_is_lines_an_array_or_squad(tmp_path):
    lines = write(tmp_path / "lines.json", '{"text": "a"}\n\n{"text": "b"}\n')
    assert [(r.where, r.fields["text"]) for r in read(lines)] == [(f"{lines}:1", "a"), (f"{lines}:3", "b")]
    array = write(tmp_path / "array.json", '[\n {"text": "a"},\n\n {"text":\n "b"}, {"text": "]"}\n]\n')
    places = [(f"{array}:2", "a"), (f"{array}:4", "b"), (f"{array}:5", "]")]
    assert [(r.where, r.fields["text"]) for r in read(array)] == places


QA = {
    "data": [
        {"paragraphs": [{"context": "Anna ate.", "qas": [{"id": "q1", "question": "Who ate?", "answers": [1]}]}]},
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Ben slept.",
                    "qas": [
                        {"id": "q2", "question": "Who slept?", "answers": [], "is_impossible": True},
                        {"id": "q3", "question": "Who?"},
                    ],
                }
            ],
        },
    ]
}


@pytest.mark.parametrize("indent", [None, 1])
def test_questions_of_nested_data_have_their_context_and_line(tmp_path, indent):
    path = write(tmp_path / "a.json", json.dumps(QA, indent=indent))
    found = read(path)
    assert [(r.fields["id"], r.fields["context"]) for r in found] == [
        ("q1", "Anna ate."),
        ("q2", "Ben slept."),
        ("q3", "Ben slept."),
    ]
    assert found[0].fields["answers"] == [1]
    assert "answers" not in found[2].fields
    text = path.read_text().split("\n")
    for row in found:
        assert f'"{row.fields["id"]}"' in text[int(row.where.rpartition(":")[2]) - 1]


CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n# NN I-NP O\n\n#tag NN B-NP O\n-DOCSTART- -X- O O\n"


def test_words_in_columns(tmp_path):
    path = write(tmp_path / "a.conll", CONLL)
    first, second = read(path)
    assert first.fields["0"] == ["EU", "#"] == first.fields["text"]
    assert first.fields["3"] == ["B-ORG", "O"] == first.fields["-1"] == first.fields["label"]
    assert first.fields["1"] == ["NNP", "NN"] == first.fields["-3"]
    assert (first.where, first.lines) == (f"{path}:3", (3, 4))
    assert (second.where, second.fields["0"]) == (f"{path}:6", ["#tag"])


def test_words_between_tabs_may_hold_blanks_and_blank_lines_may_hold_a_tab(tmp_path):
    path = write(tmp_path / "a.conll", "New York\tB-LOC\na\xa0b\tO\n\t\nnext\tO\n")
    assert [r.fields["0"] for r in read(path)] == [["New York", "a\xa0b"], ["next"]]
    (row,) = read(write(tmp_path / "b.conll", "a\xa0b  O\n"))
    assert row.fields["0"] == ["a\xa0b"]


def test_one_column_alone_has_no_labels(tmp_path):
    (row,) = read(write(tmp_path / "a.conll", "It\nrains\n"))
    assert row.fields == {"0": ["It", "rains"], "text": ["It", "rains"]}


def test_universal_dependencies(tmp_path):
    def line(number, form, upos):
        return "\t".join([number, form, "_", upos, "_", "_", "_", "_", "_", "_"]) + "\n"

    words = [("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"), ("2.1", "go", "VERB"), ("3", "#", "SYM")]
    path = write(tmp_path / "a.conllu", "# sent_id = 1\n# text = don't #\n" + "".join(line(*w) for w in words) + "\n")
    (row,) = read(path)
    assert row.fields["form"] == ["do", "n't", "#"] == row.fields["text"]
    assert row.fields["upos"] == ["AUX", "PART", "SYM"] == row.fields["label"]
    assert (row.where, row.lines) == (f"{path}:4", (4, 5, 7))


# --- what is malformed ----------------------------------------------------------------------------------------------

MALFORMED = {  # name: (file, content, line, message)
    "too few columns": ("a.tsv", b"text\tlabel\none\t1\ntwo\n", 3, "1 columns, not 2"),
    "too many columns": ("a.tsv", b"text\tlabel\none\t1\t\n", 2, "3 columns, not 2"),
    "csv columns": ("a.csv", b"text,label\none,1\n\ntwo,0,\n", 4, "3 columns, not 2"),
    "open quote": ("a.csv", b'text,label\none,1\n"two,0\nthree,1\n', 3, "not CSV"),
    "text after a quote": ("a.csv", b'text,label\n"two"x,0\n', 2, "not CSV"),
    "UTF-8": ("a.tsv", b"text\tlabel\none\t1\nt\xffwo\t1\n", 3, "invalid UTF-8 at byte 1"),
    "UTF-8 in a quoted field": ("a.csv", b'text,label\n"one\ntw\xffo",1\n', 2, "invalid UTF-8"),
    "NUL": ("a.jsonl", b'{"text": "a"}\n{"text": "a\0b"}\n', 2, "NUL"),
    "UTF-16": ("a.tsv", "text\tlabel\n".encode("utf-16-le"), 1, "is it UTF-8"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n\n{"text": \n', 3, "not JSON"),
    "nested too deep": ("a.jsonl", b"[" * 100_000, 1, "not JSON"),
    "no object": ("a.jsonl", b'{"text": "a"}\n["b"]\n', 2, "a JSON list, not an object"),
    "no object in an array": ("a.json", b'[{"text": "a"},\n\n3]', 3, "a JSON int, not an object"),
    "a broken array": ("a.json", b'[{"text": "a"},\n {"text" "b"}]', 2, "not JSON"),
    "a broken nest": ("a.json", b'{"data": [\n{"paragraphs": [}]}', 2, "not JSON"),
    "no paragraphs": ("a.json", b'{"data": [{"text": "a"}]}', 1, r"data\[0\] has no 'paragraphs'"),
    "no context": ("a.json", b'{"data": [{"paragraphs": [{"qas": []}]}]}', 1, "has no 'context'"),
    "words": ("a.conll", b"EU B-ORG\nsaid O\n\nyes\n", 4, "1 columns, not 2"),
    "ten columns": ("a.conllu", b"# text\n1\tEU\tPROPN\n", 2, "3 columns, not 10"),
    "two columns of a name": ("a.tsv", b"text\ttext\tlabel\na\tb\tc\n", 1, "two columns 'text'"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows_name_file_and_line(tmp_path, name):
    file, content, line, message = MALFORMED[name]
    path = write(tmp_path / file, content)
    with pytest.raises(DataError, match=rf"^{path}:{line}: .*{message}") as caught:
        read(path)
    assert caught.value.code == 3
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_few_malformed_rows_may_be_skipped(tmp_path):
    said: list[str] = []
    lines = [f"row {n}\t1" for n in range(200)]
    lines[6] = "broken"
    path = write(tmp_path / "a.tsv", "\n".join(["text\tlabel", *lines]))
    found = read(path, on_bad_row="skip", log=said.append)
    assert [r.number for r in found] == [n for n in range(200) if n != 6], "numbers are those of the file"
    assert said == [f"warning: 1 of 200 rows are left out, first {path}:8: 1 columns, not 2"]
    lines[7] = lines[8] = "broken"
    write(path, "\n".join(["text\tlabel", *lines]))
    with pytest.raises(DataError, match=rf"^{path}:8: 1 columns, not 2 \(3 bad rows of 200\)"):
        read(path, on_bad_row="skip")


def test_an_open_quote_is_not_one_bad_row(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\n" + "one,1\n" * 200 + '"two,1\n' + "one,1\n" * 100)
    with pytest.raises(DataError, match=rf"^{path}:202: .*101 bad rows of 301"):
        read(path, on_bad_row="skip")


def test_damaged_and_unreadable_files(tmp_path):
    packed = gzip.compress(b"text\tlabel\n" + b"one\t1\n" * 1000)
    path = write(tmp_path / "a.tsv.gz", packed[: len(packed) // 2])
    with pytest.raises(DataError, match=f"{path} is damaged"):
        read(path)
    path = write(tmp_path / "a.tsv.gz", b"not packed")
    with pytest.raises(DataError, match=f"{path} is damaged"):
        read(path)


@given(st.binary(max_size=60), st.sampled_from(["tsv", "csv", "jsonl", "json", "conll", "conllu"]))
def test_any_bytes_are_rows_or_a_data_error(tmp_path_factory, content, kind):
    path = write(tmp_path_factory.getbasetemp() / f"fuzz.{kind}", content)
    for begin in (b"", b"text\tlabel\n", b"text,label\n", b'[{"text": "a"},'):
        write(path, begin + content)
        try:
            for row in read(path, label="text"):
                assert row.where.startswith(f"{path}:")
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017  # either outcome is right


# --- where files are ------------------------------------------------------------------------------------------------


def test_a_format_that_a_name_does_not_tell_is_asked_for(tmp_path):
    path = write(tmp_path / "eng.testa", CONLL)
    with pytest.raises(DataError, match="does not say what format") as caught:
        read(path)
    assert "task.format" in caught.value.hint
    assert len(read(path, format="conll")) == 2


def test_a_pattern_a_list_and_a_folder_name_the_files_of_splits(tmp_path):
    for name in ("train", "dev", "test", "dev_matched"):
        write(tmp_path / f"{name}.tsv", f"text\tlabel\n{name}\t1\n")
    pattern = f"files:{tmp_path}/{{split}}.tsv"
    listed = f"files:train={tmp_path}/train.tsv,dev={tmp_path}/dev.tsv,test={tmp_path}/test.tsv"
    for source in (pattern, listed, f"files:{tmp_path}"):
        assert [read(source, s)[0].fields["text"] for s in ("train", "validation", "test")] == ["train", "dev", "test"]
    assert read(pattern, "validation_matched")[0].fields["text"] == "dev_matched"


def test_names_of_a_usual_layout_are_looked_for_with_and_without_its_folder(tmp_path):
    write(tmp_path / "MRPC" / "a.tsv.gz", gzip.compress(b"text\tlabel\nhere\t1\n"))
    files = {"train": "MRPC/none.tsv|MRPC/a.tsv"}
    for folder in (tmp_path, tmp_path / "MRPC"):
        assert read(f"files:{folder}", files=files)[0].fields["text"] == "here"
    for name in ("../a.tsv", str(tmp_path / "MRPC" / "a.tsv.gz")):
        with pytest.raises(DataError, match="outside the folder"):
            read(f"files:{tmp_path / 'MRPC'}", files={"train": name})


def test_a_split_that_is_not_there(tmp_path):
    write(tmp_path / "train.tsv", "text\tlabel\na\t1\n")
    write(tmp_path / "test.tsv", "text\tlabel\na\t1\n")
    with pytest.raises(DataError, match="no split 'validation'") as caught:
        read(f"files:{tmp_path}/{{split}}.tsv", "validation")
    for name in ("validation", "dev", "valid", "val"):
        assert f"{tmp_path}/{name}.tsv" in str(caught.value)
    assert caught.value.hint == "it has: train, test"
    with pytest.raises(DataError, match=r"dev\.\(tsv\|csv\|jsonl") as caught:
        read(f"files:{tmp_path}", "validation", files={"validation": "DEV/mine.tsv"})
    assert f"{tmp_path}/DEV/mine.tsv, {tmp_path}/mine.tsv" in str(caught.value)
    assert caught.value.code == 3
    with pytest.raises(DataError, match="no split 'train'") as caught:
        read(f"files:{tmp_path}/nowhere")
    assert "is the path right" in caught.value.hint


# --- one file -------------------------------------------------------------------------------------------------------


def ticket(number: int) -> str:
    return f"The machine number {number} does not start."


def test_one_file_is_divided_by_its_text(tmp_path):
    lines = [f"{ticket(n)}\tlabel {n % 3}" for n in range(30)]
    path = write(tmp_path / "tickets.tsv", "\n".join(["text\tlabel", *lines]))
    source = f"files:{path}"
    train, held_out = read(source), read(source, "validation")
    assert (len(train), len(held_out)) == (24, 6)
    assert sorted(r.number for r in train + held_out) == list(range(30))
    assert [r.where for r in held_out] == [f"{path}:{r.number + 2}" for r in held_out]
    assert len(read(source, "validation", validation_fraction=0.5)) == 15
    assert len(read(source, validation_fraction=0.0)) == 30
    more = {r.where for r in read(source, "validation", validation_fraction=0.5)}
    assert {r.where for r in held_out} < more, "a larger share holds the smaller"
    write(path, "\n".join(["text\tlabel", *(line.replace("label", "other") for line in lines)]))
    assert [r.where for r in read(source, "validation")] == [r.where for r in held_out], "labels play no part"
    write(path, "\n".join(["text\tlabel", *lines[::-1]]))
    assert {r.fields["text"] for r in read(source, "validation")} == {r.fields["text"] for r in held_out}
    with pytest.raises(DataError, match="no split 'test'"):
        read(source, "test")
    with pytest.raises(DataError, match="holds no rows out"):
        read(source, "validation", validation_fraction=0.0)


def test_copies_of_a_text_stay_on_one_side(tmp_path):
    lines = [f"{ticket(n % 10)}\t{n}" for n in range(30)]
    source = f"files:{write(tmp_path / 'a.tsv', chr(10).join(['text' + chr(9) + 'label', *lines]))}"
    train, held_out = ({r.fields["text"] for r in read(source, s)} for s in ("train", "validation"))
    assert held_out
    assert not train & held_out
    assert len(train | held_out) == 10


def test_questions_about_one_context_stay_on_one_side(tmp_path):
    def paragraph(n):
        qas = [{"id": f"{n}-{q}", "question": f"Why {q}?", "answers": []} for q in range(5)]
        return {"context": f"Context {n}.", "qas": qas}

    data = {"data": [{"paragraphs": [paragraph(n) for n in range(10)]}]}
    source = f"files:{write(tmp_path / 'a.json', json.dumps(data))}"
    task = {"text": "question", "text_pair": "context", "label": "answers"}
    train, held_out = ({r.fields["context"] for r in read(source, s, **task)} for s in ("train", "validation"))
    assert (len(train), len(held_out)) == (8, 2)
    assert not train & held_out
    rows = [{"q": f"Why {n}?", "passage": f"Context {n // 5}.", "found": [{"text": "C"}] * (n % 2)} for n in range(50)]
    source = f"files:{write(tmp_path / 'b.jsonl', ''.join(json.dumps(row) + chr(10) for row in rows))}"
    task = {"text": "q", "text_pair": "passage", "label": "found"}
    assert {r.fields["passage"] for r in read(source, "validation", **task)} == held_out
