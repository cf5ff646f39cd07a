"""Sources and formats of labelled data, on files the tests write, and places that errors name."""

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

from bert_jax.config.knobs import Task
from bert_jax.data.labelled import rows
from bert_jax.data.labelled.formats import pick
from bert_jax.errors import DataError


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


# --- formats --------------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=12
)
TABLE = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5)


@given(TABLE)
def test_every_format_returns_the_same_rows(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("same")
    records = [{"text": text, "label": label} for text, label in table]
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [("text", "label"), *table]
    )
    files = {
        "a.tsv": "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *table]),
        "a.csv": quoted.getvalue(),
        "a.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "a.json": json.dumps(records, indent=1),
    }
    for name, content in files.items():
        assert fields(read(write(folder / name, content))) == records, name
    assert (
        fields(
            read(write(folder / "q.tsv", quoted.getvalue().replace('","', '"\t"')), quoting=True)
        )
        == records
    )


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


@pytest.mark.fault(20)
def test_only_a_newline_ends_a_line_and_marks_of_windows_are_no_text(tmp_path):
    path = write(
        tmp_path / "a.tsv", "\ufefftext\tlabel\r\none\u2028two\x85three\x0b\t1\r\n\r\nfour\t0"
    )
    assert [(r.where, r.number, r.fields["text"]) for r in read(path)] == [
        (f"{path}:2", 0, "one\u2028two\x85three\x0b"),
        (f"{path}:4", 1, "four"),
    ]


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_columns_of_csv_are_divided_by_what_the_first_line_says(tmp_path, mark):
    path = write(
        tmp_path / "a.csv", f'"text"{mark}label\n"one{mark} two"{mark}1,5\n'.replace("1,5", "1")
    )
    assert fields(read(path)) == [{"text": f"one{mark} two", "label": "1"}]
    path = write(tmp_path / "b.csv", f"a{mark}b\n")
    with pytest.raises(DataError, match="no column 'text'") as caught:
        read(path)
    assert "one of: a, b" in caught.value.hint
    path = write(tmp_path / "c.csv", f"one{mark}1\n")
    assert fields(read(path, columns=("text", "label"))) == [{"text": "one", "label": "1"}]


def test_tabs_and_stray_quotes_in_a_csv_file_name_the_format_that_reads_them(tmp_path):
    path = write(tmp_path / "a.csv", 'text\tlabel\n"one" two\t1\n')
    with pytest.raises(DataError, match=r"a.csv:2: not CSV: .*task.format=tsv"):
        read(path)
    assert read(path, format="tsv")[0].fields["text"] == '"one" two'


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_as_spreadsheets_write_it_is_read(tmp_path, codec):
    text = '\ufefftext,label\r\n"Ωmega \U0001f600\u2028\u0a0a\nnew",1\r\n'
    (row,) = read(write(tmp_path / "a.csv", text.encode(codec)))
    assert row.fields == {"text": "Ωmega \U0001f600\u2028\u0a0a\nnew", "label": "1"}
    path = write(tmp_path / "b.csv", (text + "a\ud800b,2\n").encode(codec, "surrogatepass"))
    with pytest.raises(DataError, match=rf"^{path}:4: invalid UTF-8 at byte 1") as caught:
        read(path)
    assert "iconv -f" in caught.value.hint
    path = write(tmp_path / "c.csv", text.encode(codec) + b"a")
    with pytest.raises(DataError, match=rf"^{path}:4: invalid UTF-8 at byte 0"):
        read(path)


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_columns_beyond_those_that_are_named_are_refused_or_left_out_and_counted(tmp_path, suffix):
    mark = {"tsv": "\t", "csv": ","}[suffix]
    lines = [("MSRvid", "5.0", "A plane."), ("MSRpar", "1.2", "A bird.", "source", "")]
    path = write(tmp_path / f"a.{suffix}", "".join(mark.join(line) + "\n" for line in lines))
    named = {"columns": ("genre", "label", "text")}
    with pytest.raises(DataError, match=rf"^{path}:2: 5 columns, not 3") as caught:
        read(path, **named)
    assert "task.extra_columns=true" in caught.value.hint
    said: list[str] = []
    found = read(path, **named, extra_columns=True, log=said.append)
    assert fields(found) == [dict(zip(named["columns"], line[:3], strict=True)) for line in lines]
    assert said == ["1 of 2 rows have more columns than are named: these are left out"]
    short = write(tmp_path / f"b.{suffix}", f"a{mark}b\n")
    with pytest.raises(DataError, match="2 columns, not 3"):
        read(short, **named, extra_columns=True)


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
    assert [(r.where, r.fields["text"]) for r in read(lines)] == [
        (f"{lines}:1", "a"),
        (f"{lines}:3", "b"),
    ]
    array = write(
        tmp_path / "array.json", '[\n {"text": "a"},\n\n {"text":\n "b"}, {"text": "]"}\n]\n'
    )
    places = [(f"{array}:2", "a"), (f"{array}:4", "b"), (f"{array}:5", "]")]
    assert [(r.where, r.fields["text"]) for r in read(array)] == places


QA = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Anna ate.",
                    "qas": [{"id": "q1", "question": "Who ate?", "answers": [1]}],
                }
            ]
        },
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Ben slept.",
                    "qas": [
                        {
                            "id": "q2",
                            "question": "Who slept?",
                            "answers": [],
                            "is_impossible": True,
                        },
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


CONLL = (
    "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\n# NN I-NP O\n\n#tag NN B-NP O\n-DOCSTART- -X- O O\n"
)


def test_words_in_columns(tmp_path):
    path = write(tmp_path / "a.conll", CONLL)
    first, second = read(path)
    assert first.fields["0"] == ["EU", "#"] == first.fields["text"]
    assert first.fields["3"] == ["B-ORG", "O"] == first.fields["-1"] == first.fields["label"]
    assert first.fields["1"] == ["NNP", "NN"] == first.fields["-3"]
    assert (first.where, first.lines) == (f"{path}:3", (3, 4))
    assert (second.where, second.fields["0"]) == (f"{path}:6", ["#tag"])


def test_words_that_are_numbered_and_comments(tmp_path):
    path = write(tmp_path / "a.iob2", NUMBERED)
    first, second = read(path)
    assert first.fields == {
        "0": ["1", "2", "3", "4"],
        "1": ["Ada", "met", "#", "1"],
        "2": ["B-PER", "O", "O", "O"],
        "text": ["Ada", "met", "#", "1"],
        "label": ["B-PER", "O", "O", "O"],
    }
    assert (first.where, first.lines, second.where) == (f"{path}:4", (4, 5, 6, 7), f"{path}:10")
    path = write(tmp_path / "b.iob2", NUMBERED + "1\tNo\tO\n2\tmore\n")
    with pytest.raises(DataError, match=rf"^{path}:13: 2 columns, not 3"):
        read(path)


def test_comments_stand_before_a_sentence_and_tokens_may_begin_like_them(tmp_path):
    heads = "###MEDLINE:95369245\n\nIL-2\tB-DNA\ngene\tO\n\n"
    tokens = "#tag\tO\n# \tO\n#\tO\n"
    path = write(tmp_path / "a.conll", heads + "# x = y\n# a comment\n" + tokens)
    assert [r.fields["text"] for r in read(path)] == [["IL-2", "gene"], ["#tag", "# ", "#"]]
    blanks = write(
        tmp_path / "b.conll", "# x = y\n# one more\n1 CD B-NP O\n\n# NN I-NP O\n#tag NN I-NP O\n"
    )
    assert [r.fields["text"] for r in read(blanks)] == [["1"], ["#", "#tag"]]
    path = write(tmp_path / "c.conll", "EU B-ORG\n\n#tag\n")
    with pytest.raises(DataError, match=rf"^{path}:3: 1 columns, not 2"):
        read(path)


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

    words = [
        ("1-2", "don't", "_"),
        ("1", "do", "AUX"),
        ("2", "n't", "PART"),
        ("2.1", "go", "VERB"),
        ("3", "#", "SYM"),
    ]
    path = write(
        tmp_path / "a.conllu",
        "# sent_id = 1\n# text = don't #\n" + "".join(line(*w) for w in words) + "\n",
    )
    (row,) = read(path)
    assert row.fields["form"] == ["do", "n't", "#"] == row.fields["text"]
    assert row.fields["upos"] == ["AUX", "PART", "SYM"] == row.fields["label"]
    assert (row.where, row.lines) == (f"{path}:4", (4, 5, 7))


# --- what is malformed ----------------------------------------------------------------------------

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
    "nested too deep": ("a.jsonl", b"[" * 100_000, 1, "nested too deeply"),
    "no object": ("a.jsonl", b'{"text": "a"}\n["b"]\n', 2, "a JSON list, not an object"),
    "no object in an array": ("a.json", b'[{"text": "a"},\n\n3]', 3, "a JSON int, not an object"),
    "a key twice": ("a.jsonl", b'{"text": "a"}\n{"text": "b", "text": "c"}\n', 2, "'text' stands"),
    "a key twice in the first row": ("a.json", b'{"text": "b", "text": "c"}\n', 1, "'text' stands"),
    "a key twice in an array": (
        "a.json",
        b'[{"text": "a"},\n\n{"text": "b",\n "text": "c"},\n {"text": "d"}]',
        3,
        "'text' stands",
    ),
    "a broken array": ("a.json", b'[{"text": "a"},\n {"text" "b"}]', 2, "not JSON"),
    "a broken nest": ("a.json", b'{"data": [\n{"paragraphs": [}]}', 2, "not JSON"),
    "no paragraphs": ("a.json", b'{"data": [{"text": "a"}]}', 1, r"data\[0\] has no 'paragraphs'"),
    "no context": ("a.json", b'{"data": [{"paragraphs": [{"qas": []}]}]}', 1, "has no 'context'"),
    "words": ("a.conll", b"EU B-ORG\nsaid O\n\nyes\n", 4, "1 columns, not 2"),
    "ten columns": ("a.conllu", b"# text\n1\tEU\tPROPN\n", 2, "3 columns, not 10"),
    "two columns of a name": ("a.tsv", b"text\ttext\tlabel\na\tb\tc\n", 1, "two columns 'text'"),
}


@pytest.mark.fault(27)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows_name_file_and_line(tmp_path, name):
    file, content, line, message = MALFORMED[name]
    path = write(tmp_path / file, content)
    with pytest.raises(DataError, match=rf"^{path}:{line}: .*{message}") as caught:
        read(path)
    assert caught.value.code == 3
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.fault(27)
def test_few_malformed_rows_may_be_skipped(tmp_path):
    said: list[str] = []
    lines = [f"row {n}\t1" for n in range(200)]
    lines[6] = "broken"
    path = write(tmp_path / "a.tsv", "\n".join(["text\tlabel", *lines]))
    found = read(path, on_bad_row="skip", log=said.append)
    assert [r.number for r in found] == [n for n in range(200) if n != 6], (
        "numbers are those of the file"
    )
    assert said == [f"warning: 1 of 200 rows are left out, first {path}:8: 1 columns, not 2"]
    lines[7] = lines[8] = "broken"
    write(path, "\n".join(["text\tlabel", *lines]))
    with pytest.raises(DataError, match=rf"^{path}:8: 1 columns, not 2 \(3 bad rows of 200\)"):
        read(path, on_bad_row="skip")


def test_an_open_quote_is_not_one_bad_row(tmp_path):
    path = write(
        tmp_path / "a.csv", "text,label\n" + "one,1\n" * 200 + '"two,1\n' + "one,1\n" * 100
    )
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


@pytest.mark.fault(27)
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


# --- where files are ------------------------------------------------------------------------------


SICK = "pair_ID\tsentence_A\trelatedness\n1\tA dog runs.\t4.5\n2\tA cat sits.\t3.3\n"
NUMBERED = (  # as Universal NER has them: what is behind the label is there for entities alone
    "# newdoc id = n\n# sent_id = n-1\n# text = Ada met # 1\n"
    "1\tAda\tB-PER\t-\tann\n2\tmet\tO\n3\t#\tO\n4\t1\tO\n\n# sent_id = n-2\n1\tYes\tO\n\n"
)


@pytest.mark.parametrize(
    ("name", "content", "task", "first"),
    [
        ("eng.testa", CONLL, {}, {"text": ["EU", "#"], "label": ["B-ORG", "O"]}),
        ("a.conll.txt", "EU B-ORG\n", {}, {"text": ["EU"], "label": ["B-ORG"]}),
        (
            "SICK.txt",
            SICK,
            {"text": "sentence_A"},
            {"sentence_A": "A dog runs.", "relatedness": "4.5"},
        ),
        (
            "a.txt",
            SICK.split("\n", 1)[1],
            {"columns": ("id", "text", "score")},
            {"text": "A dog runs."},
        ),
        ("a.data", "text;label\none, two;1\n", {}, {"text": "one, two", "label": "1"}),
        ("b.data", '{"text": "one"}\n', {}, {"text": "one"}),
        ("c.data", '[\n{"text": "one"}]\n', {}, {"text": "one"}),
        ("d.data", '[{"text": "one"}]\n', {}, {"text": "one"}),
        (
            "e.data",
            "\t".join(["1", "EU", "_", "PROPN", *"_" * 6]) + "\n",
            {},
            {"text": ["EU"], "label": ["PROPN"]},
        ),
        (
            "f.txt",
            NUMBERED,
            {},
            {"text": ["Ada", "met", "#", "1"], "label": ["B-PER", "O", "O", "O"]},
        ),
    ],
)
def test_a_format_that_a_name_does_not_tell_is_found_in_the_file(
    tmp_path, name, content, task, first
):
    (row, *_) = read(write(tmp_path / name, content), **task)
    assert row.fields.items() >= first.items()


@pytest.mark.parametrize(
    "content", ["", "Some prose.\n\nIn two paragraphs, with commas.\n", "one\ntwo\n", "\0\xff" * 9]
)
def test_a_format_that_nothing_tells_is_asked_for(tmp_path, content):
    path = write(tmp_path / "notes.txt", content)
    with pytest.raises(
        DataError, match=f"^{path}: neither its name nor its first lines say"
    ) as caught:
        read(path)
    assert "task.format" in caught.value.hint
    path = write(tmp_path / "eng.testa", CONLL)
    assert len(read(path, format="conll")) == 2


def test_a_folder_may_hold_text_files_of_any_format(tmp_path):
    write(tmp_path / "train.txt", CONLL)
    assert read(f"files:{tmp_path}")[0].fields["text"] == ["EU", "#"]


def test_a_pattern_a_list_and_a_folder_name_the_files_of_splits(tmp_path):
    for name in ("train", "dev", "test", "dev_matched"):
        write(tmp_path / f"{name}.tsv", f"text\tlabel\n{name}\t1\n")
    pattern = f"files:{tmp_path}/{{split}}.tsv"
    listed = f"files:train={tmp_path}/train.tsv,dev={tmp_path}/dev.tsv,test={tmp_path}/test.tsv"
    for source in (pattern, listed, f"files:{tmp_path}"):
        assert [read(source, s)[0].fields["text"] for s in ("train", "validation", "test")] == [
            "train",
            "dev",
            "test",
        ]
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
    with pytest.raises(DataError, match=r"no file .*/tests\.tsv") as caught:
        read(f"files:{tmp_path}/tests.tsv")
    assert caught.value.hint == f"did you mean '{tmp_path}/test.tsv'?"


# --- one file -------------------------------------------------------------------------------------


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
    assert [r.where for r in read(source, "validation")] == [r.where for r in held_out], (
        "labels play no part"
    )
    write(path, "\n".join(["text\tlabel", *lines[::-1]]))
    assert {r.fields["text"] for r in read(source, "validation")} == {
        r.fields["text"] for r in held_out
    }
    with pytest.raises(DataError, match="no split 'test'"):
        read(source, "test")
    with pytest.raises(DataError, match="holds no rows out"):
        read(source, "validation", validation_fraction=0.0)


@pytest.mark.fault(22)
def test_copies_of_a_text_stay_on_one_side(tmp_path):
    lines = [f"{ticket(n % 10)}\t{n}" for n in range(30)]
    source = f"files:{write(tmp_path / 'a.tsv', chr(10).join(['text' + chr(9) + 'label', *lines]))}"
    train, held_out = ({r.fields["text"] for r in read(source, s)} for s in ("train", "validation"))
    assert held_out
    assert not train & held_out
    assert len(train | held_out) == 10


def test_a_text_that_all_rows_have_cannot_be_held_out(tmp_path):
    path = write(
        tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"the same\t{n}\n" for n in range(8))
    )
    for split in ("train", "validation"):
        with pytest.raises(DataError, match="all 8 rows have the same text") as caught:
            read(f"files:{path}", split)
        assert "task.text" in caught.value.hint
        assert caught.value.code == 3
    assert len(read(f"files:{path}", validation_fraction=0.0)) == 8


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.floats(0.01, 0.9))
def test_both_parts_have_rows_and_no_text_is_in_both(tmp_path_factory, numbers, share):
    lines = "".join(f"{ticket(n)}\t1\n" for n in [*numbers, 6])
    path = write(tmp_path_factory.getbasetemp() / "copies.tsv", "text\tlabel\n" + lines)
    train, held_out = (
        [r.fields["text"] for r in read(f"files:{path}", s, validation_fraction=share)]
        for s in ("train", "validation")
    )
    assert train
    assert held_out
    assert len(train) + len(held_out) == len(numbers) + 1
    assert not set(train) & set(held_out)
    assert len(held_out) <= max(1, share * (len(numbers) + 1) + 0.5) + len(numbers) / 2 + 0.5


def test_questions_about_one_context_stay_on_one_side(tmp_path):
    def paragraph(n):
        qas = [{"id": f"{n}-{q}", "question": f"Why {q}?", "answers": []} for q in range(5)]
        return {"context": f"Context {n}.", "qas": qas}

    data = {"data": [{"paragraphs": [paragraph(n) for n in range(10)]}]}
    source = f"files:{write(tmp_path / 'a.json', json.dumps(data))}"
    task = {"text": "question", "text_pair": "context", "label": "answers"}
    train, held_out = (
        {r.fields["context"] for r in read(source, s, **task)} for s in ("train", "validation")
    )
    assert (len(train), len(held_out)) == (8, 2)
    assert not train & held_out
    rows = [
        {"q": f"Why {n}?", "passage": f"Context {n // 5}.", "found": [{"text": "C"}] * (n % 2)}
        for n in range(50)
    ]
    source = (
        f"files:{write(tmp_path / 'b.jsonl', ''.join(json.dumps(row) + chr(10) for row in rows))}"
    )
    task = {"text": "q", "text_pair": "passage", "label": "found"}
    assert {r.fields["passage"] for r in read(source, "validation", **task)} == held_out
