"""The files of splits, the share of a single file that is held out, and TFDS."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import Task
from bert_jax.data.task_files import check_files, read_rows
from bert_jax.errors import DataError, MissingError
from tests.data.test_row_formats import write


def read(source: str, split: str = "train", **task) -> list[dict]:
    return [row.fields for row in read_rows(Task(source=source, **task), split)]


def texts_of(source: str, split: str = "train", **task) -> list[str]:
    return [fields["text"] for fields in read(source, split, **task)]


def test_read_rows_finds_the_file_of_a_split(tmp_path):
    for name in ("train", "dev", "test", "dev_matched"):
        write(tmp_path / f"{name}.tsv", f"text\tlabel\n{name}\t1\n")
    pattern = f"files:{tmp_path}/{{split}}.tsv"
    listed = f"files:train={tmp_path}/train.tsv,dev={tmp_path}/dev.tsv,test={tmp_path}/test.tsv"
    for source in (pattern, listed, f"files:{tmp_path}"):
        for split, name in (("train", "train"), ("validation", "dev"), ("test", "test")):
            assert texts_of(source, split) == [name]
    assert texts_of(pattern, "validation_matched") == ["dev_matched"]


def test_read_rows_finds_files_with_and_without_a_folder(tmp_path):
    write(tmp_path / "MRPC" / "a.tsv.gz", gzip.compress(b"text\tlabel\nhere\t1\n"))
    files = {"train": "MRPC/none.tsv|MRPC/a.tsv"}
    for folder in (tmp_path, tmp_path / "MRPC"):
        assert texts_of(f"files:{folder}", files=files) == ["here"]


def test_read_rows_finds_files_of_the_format_asked_for(tmp_path):
    write(tmp_path / "train.tsv", "text\nof the table\n")
    write(tmp_path / "train.jsonl", '{"text": "of lines"}\n')
    assert texts_of(f"files:{tmp_path}", format="jsonl") == ["of lines"]
    write(tmp_path / "words" / "train.txt", "It O\n")
    assert texts_of(f"files:{tmp_path}/words", format="conll") == [["It"]]


def test_read_rows_names_the_splits_that_are_there(tmp_path):
    write(tmp_path / "train.tsv", "text\tlabel\na\t1\n")
    write(tmp_path / "test.tsv", "text\tlabel\na\t1\n")
    with pytest.raises(MissingError, match="no split 'validation'") as caught:
        read(f"files:{tmp_path}/{{split}}.tsv", "validation")
    for name in ("validation", "dev", "valid", "val"):
        assert f"{tmp_path}/{name}.tsv" in str(caught.value)
    assert caught.value.hint == "it has: train, test"
    with pytest.raises(MissingError, match=rf"{tmp_path}/DEV/mine.tsv, {tmp_path}/mine.tsv, "):
        read(f"files:{tmp_path}", "validation", files={"validation": "DEV/mine.tsv"})
    with pytest.raises(MissingError, match="no split 'train'") as caught:
        check_files(Task(source=f"files:{tmp_path}/nowhere"), ["train"])
    assert "is the path right" in caught.value.hint
    with pytest.raises(MissingError, match=r"no file .*/tests\.tsv") as caught:
        read(f"files:{tmp_path}/tests.tsv")
    assert caught.value.hint == f"did you mean '{tmp_path}/test.tsv'?"


# --- a single file --------------------------------------------------------------------------------


def make_ticket(number: int) -> str:
    return f"The machine number {number} does not start."


def write_tickets(path: Path, numbers: list[int], label: str = "") -> str:
    lines = "".join(f"{make_ticket(number)}\t{label}{number % 3}\n" for number in numbers)
    return f"files:{write(path, 'text' + chr(9) + 'label' + chr(10) + lines)}"


def test_hold_out_takes_a_share_by_the_hash_of_texts(tmp_path):
    source = write_tickets(tmp_path / "a.tsv", list(range(30)))
    train, held_out = texts_of(source), texts_of(source, "validation")
    assert (len(train), len(held_out)) == (24, 6)
    assert sorted(train + held_out) == sorted(map(make_ticket, range(30)))
    more = texts_of(source, "validation", validation_fraction=0.5)
    assert len(more) == 15
    assert {*held_out} < {*more}, "a larger share holds the smaller"
    assert texts_of(source, validation_fraction=0.0) == list(map(make_ticket, range(30)))
    assert texts_of(source, "validation", validation_fraction=0.0) == []
    other = write_tickets(tmp_path / "b.tsv", list(range(30))[::-1], label="other")
    assert {*texts_of(other, "validation")} == {*held_out}, "order and labels play no part"
    with pytest.raises(DataError, match="no split 'test'"):
        read(source, "test")


@pytest.mark.fault(14)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.floats(0.01, 0.9))
def test_hold_out_keeps_equal_texts_together(tmp_path_factory, numbers, share):
    path = tmp_path_factory.getbasetemp() / "copies.tsv"
    source = write_tickets(path, [*numbers, 6])
    train, held_out = (
        texts_of(source, split, validation_fraction=share) for split in ("train", "validation")
    )
    assert train
    assert held_out
    assert sorted(train + held_out) == sorted(map(make_ticket, [*numbers, 6]))
    assert not {*train} & {*held_out}
    assert len(held_out) <= max(1, share * (len(numbers) + 1) + 0.5) + len(numbers) / 2 + 0.5


def test_hold_out_keeps_questions_of_a_context_together(tmp_path):
    contexts = [f"Context {n}." for n in range(10)]
    paragraphs = [
        {"context": text, "qas": [{"id": q, "question": f"Why {q}?", "answers": []}] * 5}
        for q, text in enumerate(contexts)
    ]
    nested = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task = {"text": "question", "text_pair": "context", "label": "answers"}
    train, held_out = (
        {fields["context"] for fields in read(f"files:{nested}", split, **task)}
        for split in ("train", "validation")
    )
    assert (len(train), len(held_out)) == (8, 2)
    assert train | held_out == {*contexts}


# --- TensorFlow Datasets --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_read_tfds_reads_a_folder_of_ones_own(tmp_path):
    import tensorflow_datasets as tfds

    class LocalTags(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            tags = tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-LOC"]))
            words = tfds.features.Sequence(tfds.features.Text())
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict({"words": words, "tags": tags})
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "dev": self._generate_examples()}

        def _generate_examples(self):
            yield 0, {"words": ["Zürich", "rains"], "tags": ["B-LOC", "O"]}

    LocalTags(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    for split in ("train", "validation"):
        (row,) = read_rows(Task(source="tfds:local_tags", tfds_dir=str(tmp_path)), split)
        assert row.fields == {"words": ["Zürich", "rains"], "tags": ["B-LOC", "O"]}
        assert row.where == f"tfds:local_tags/{split}, example 0"
    with pytest.raises(DataError, match="no split 'test'") as caught:
        read_rows(Task(source="tfds:local_tags", tfds_dir=str(tmp_path)), "test")
    assert caught.value.hint == "it has: train, dev"
