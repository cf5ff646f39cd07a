"""Rows of files in every format, the files of splits, and the places that errors name."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import LINE, Task
from bert_jax.data.rows import TableRow, read_rows
from bert_jax.errors import DataError
from tests.data.small import make_parquet, pack_parquet, write


def read(path: Path | str, split: str = "train", **task) -> list[TableRow]:
    source = str(path) if str(path).startswith("files:") else f"files:train={path}"
    return read_rows(Task(source=source, **task), split)


def fields(path: Path | str, split: str = "train", **task) -> list[dict]:
    return [row.fields for row in read(path, split, **task)]


def texts_of(path: Path | str, split: str = "train", **task) -> list[str]:
    return [row["text"] for row in fields(path, split, **task)]


TEXTS = st.text(
    st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_read_rows_are_equal_in_any_format(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("same")
    records = [{"text": text, "label": label} for text, label in table]
    quoted = io.StringIO()
    lines = [("text", "label"), *table]
    csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    tsv = "".join(f"{text}\t{label}\n" for text, label in lines)
    files = {
        "a.tsv": tsv.encode(),
        "a.tsv.gz": gzip.compress(tsv.encode()),
        "a.tsv.zst": zstandard.compress(tsv.encode()),
        "a.csv": quoted.getvalue(),
        "a.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "b.json": "".join(json.dumps(record) + "\n" for record in records),
        "a.json": json.dumps(records, indent=1),
    }
    for name, content in files.items():
        assert fields(write(folder / name, content)) == records, name
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), folder / "a.parquet")
    assert fields(folder / "a.parquet") == records
    for name in ("a.json", "a.parquet"):
        places = [row.where for row in read(folder / name)]
        assert places == [f"{folder / name}, row {n + 1}" for n in range(len(records))]


def test_read_table_takes_names_without_a_header(tmp_path):
    named = {"columns": ("source", "label", "original", "text")}
    path = write(tmp_path / "a.tsv", "gj04\t1\t*\tIt rains.\ngj04\t0\t\tRains it.\n")
    places = [(row.where, row.fields["text"], row.number) for row in read(path, **named)]
    assert places == [(f"{path}:1", "It rains.", 0), (f"{path}:2", "Rains it.", 1)]
    path = write(tmp_path / "b.tsv", "index\ttext\n0\tIt rains.\n")  # a header counts
    assert fields(path, **named) == [{"index": "0", "text": "It rains."}]


def test_read_table_holds_quoted_fields_of_csv_only(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tlabel\n" he said\t1\nso "he" did"\t0\n')
    assert texts_of(path) == ['" he said', 'so "he" did"']
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


def test_read_conll_names_columns_from_both_ends(tmp_path):
    content = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n# NN I-NP O\n\n#tag NN B-NP O\n"
    path = write(tmp_path / "a.conll", content)
    first, second = read(path)
    assert first.fields["0"] == ["EU", "#"] == first.fields["text"]
    assert first.fields["3"] == ["B-ORG", "O"] == first.fields["-1"] == first.fields["label"]
    assert first.fields["1"] == ["NNP", "NN"] == first.fields["-3"]
    assert (first.where, first.lines) == (f"{path}:3", (3, 4))
    assert (second.where, second.fields["0"]) == (f"{path}:6", ["#tag"])
    path = write(tmp_path / "b.conll", "New York\tB-LOC\na\xa0b\tO\n\t\n# \tO\n")
    assert [row.fields["0"] for row in read(path)] == [["New York", "a\xa0b"], ["# "]]


def test_read_conll_takes_numbered_columns(tmp_path):
    """As Universal NER has them: what is behind the label is there only for entities."""
    content = "# sent_id = n-1\n# text = Ada met\n1\tAda\tB-PER\t-\tann\n2\tmet\tO\n\n1\tYes\tO\n"
    path = write(tmp_path / "a.iob2", content)
    first, second = read(path, text="1", label="2")
    assert (first.fields["1"], first.fields["2"]) == (["Ada", "met"], ["B-PER", "O"])
    assert (first.where, first.lines, second.where) == (f"{path}:3", (3, 4), f"{path}:6")


def test_read_conllu_leaves_out_multiword_tokens(tmp_path):
    words = [("1-2", "don't", "_"), ("1", "do", "AUX"), ("2", "n't", "PART"), ("2.1", "go", "VERB")]
    lines = ["\t".join([*word[:2], "_", word[2], *"_" * 6]) for word in [*words, ("3", "#", "SYM")]]
    path = write(tmp_path / "a.conllu", "\n".join(["# sent_id = 1", "# text = don't #", *lines]))
    (row,) = read(path)
    assert row.fields["form"] == ["do", "n't", "#"] == row.fields["text"]
    assert row.fields["upos"] == ["AUX", "PART", "SYM"] == row.fields["label"]
    assert (row.where, row.lines) == (f"{path}:4", (4, 5, 7))


TIMES = pyarrow.array([1], pyarrow.timestamp("ns"))
REFUSED = [(make_parquet(b"one", b"caf\xe9"), "rows 1 to 2: a text is no UTF-8")]
REFUSED += [(pack_parquet(TIMES), "rows 1 to 1: Nanosecond resolution")]


@pytest.mark.fault(12)
@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_read_rows_names_what_cannot_be_read(tmp_path, content, message):
    """Other formats, with their hints, are in tests/net/transcripts/train_rows.txt."""
    path = write(tmp_path / "a.parquet", content)
    with pytest.raises(DataError, match=f"^{path}, {message}") as caught:
        read(path)
    assert (caught.value.code, "\n" in str(caught.value)) == (3, False)
    assert caught.value.hint


@pytest.mark.fault(10)
def test_read_rows_refuses_a_line_of_17_megabytes(tmp_path):
    longest = b"text\n" + b"a" * LINE + b"\r\n"
    assert [len(text) for text in texts_of(write(tmp_path / "a.tsv", longest))] == [LINE]
    path = write(tmp_path / "b.tsv", longest + b"b" * (LINE + 1))
    with pytest.raises(DataError, match=f"^{path}:3: more than 16,777,216 bytes"):
        read(path)


def test_read_rows_finds_the_file_of_a_split(tmp_path):
    for name in ("train", "dev", "test", "dev_matched"):
        write(tmp_path / f"{name}.tsv", f"text\tlabel\n{name}\t1\n")
    pattern = f"files:{tmp_path}/{{split}}.tsv"
    listed = f"files:train={tmp_path}/train.tsv,dev={tmp_path}/dev.tsv,test={tmp_path}/test.tsv"
    for source in (pattern, listed, f"files:{tmp_path}"):
        for split, name in (("train", "train"), ("validation", "dev"), ("test", "test")):
            assert texts_of(source, split) == [name]
    assert texts_of(pattern, "validation_matched") == ["dev_matched"]
    write(tmp_path / "MRPC" / "a.tsv.gz", gzip.compress(b"text\tlabel\nhere\t1\n"))
    write(tmp_path / "MRPC" / "train.jsonl", '{"text": "of lines"}\n')
    for folder in (tmp_path, tmp_path / "MRPC"):
        files = {"train": "MRPC/none.tsv|MRPC/a.tsv"}
        assert texts_of(f"files:{folder}", files=files) == ["here"]
    assert texts_of(f"files:{tmp_path}/MRPC", format="jsonl") == ["of lines"]


def write_tickets(path: Path, numbers: list[int], label: str = "") -> str:
    lines = [f"The machine {number} stops.\t{label}{number % 3}" for number in numbers]
    content = "\n".join(["text\tlabel", *lines])
    return f"files:{write(path, content)}"


def test_hold_out_takes_a_share_by_the_hash_of_texts(tmp_path):
    source = write_tickets(tmp_path / "a.tsv", list(range(30)))
    train, held_out = texts_of(source), texts_of(source, "validation")
    assert (len(train), len(held_out), len({*train, *held_out})) == (24, 6, 30)
    more = texts_of(source, "validation", validation_fraction=0.5)
    assert len(more) == 15
    assert {*held_out} < {*more}, "a larger share holds the smaller"
    assert texts_of(source, "validation", validation_fraction=0.0) == []
    other = write_tickets(tmp_path / "b.tsv", list(range(30))[::-1], label="other")
    assert {*texts_of(other, "validation")} == {*held_out}, "order and labels play no part"
    with pytest.raises(DataError, match="no split 'test'"):
        read(source, "test")


@pytest.mark.fault(14)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.floats(0.01, 0.9))
def test_hold_out_keeps_equal_texts_together(tmp_path_factory, numbers, share):
    source = write_tickets(tmp_path_factory.getbasetemp() / "copies.tsv", [*numbers, 6])
    train, held_out = (
        texts_of(source, split, validation_fraction=share) for split in ("train", "validation")
    )
    assert train
    assert held_out
    assert len(train) + len(held_out) == len(numbers) + 1
    assert not {*train} & {*held_out}


def test_hold_out_keeps_questions_of_a_context(tmp_path):
    paragraphs = [
        {"context": f"Context {q}.", "qas": [{"id": q, "question": "Why?", "answers": []}] * 5}
        for q in range(10)
    ]
    nested = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task = {"text": "question", "text_pair": "context", "label": "answers"}
    train, held_out = (
        {row["context"] for row in fields(f"files:{nested}", split, **task)}
        for split in ("train", "validation")
    )
    assert (len(train), len(held_out), len(train | held_out)) == (8, 2, 10)
