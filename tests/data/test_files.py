"""Documents come out as they stand in the files, whatever the format and the bytes.

Damaged files and their messages are held by tests/net/transcripts/prepare.txt.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import files
from bert_jax.errors import DataError
from tests.data.small import write

TEXT = b"One here. Two there.\nThree.\n\nFour.\n\n\n \nFive.\nSix."
DOCUMENTS = [["One here. Two there.", "Three."], ["Four."], ["Five.", "Six."]]
ROWS = b"".join(json.dumps({"text": "\n".join(d)}).encode() + b"\n" for d in DOCUMENTS)
PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def read(path: Path) -> list[list[str]]:
    """Return the lines of each document."""
    documents: list[list[str]] = []
    for text in files.read_file(str(path), "text"):
        if text.starts:
            documents.append([])
        documents[-1] += text.text.removesuffix("\n").split("\n")
    return documents


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(("kind", "data"), [("txt", TEXT), ("jsonl", ROWS), ("json", ROWS)])
def test_read_file_reads_any_format(tmp_path, kind, data, suffix):
    assert read(write(tmp_path / f"a.{kind}{suffix}", PACK[suffix](data))) == DOCUMENTS


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_read_file_names_what_is_cut_short(tmp_path, suffix):
    data = PACK[suffix](random.Random(0).randbytes(5000).hex().encode())
    with pytest.raises(DataError, match=f"a.txt{suffix} is damaged"):
        read(write(tmp_path / f"a.txt{suffix}", data[: len(data) // 2]))


@pytest.mark.fault(11)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_read_file_ends_lines_at_newlines_only(tmp_path, end):
    lines = ["One\u2028still one.", "Two\x85\x0b\x0c\x1c too.", "Three\rhere."]
    data = "\ufeff" + end.join(lines) + end  # the byte order mark is dropped
    (found,) = read(write(tmp_path / "a.txt", data.encode()))
    assert [line.removesuffix("\r") for line in found] == lines
    row = json.dumps({"text": "\n".join(lines)}, ensure_ascii=False)
    assert read(write(tmp_path / "a.jsonl", ("\ufeff" + row + end).encode())) == [lines]


LINES = st.text("abc é字\u2028", min_size=1).filter(lambda line: line.strip(files.BLANK))


@given(st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=6), st.integers(1, 40))
def test_read_file_loses_nothing_in_parts(tmp_path_factory, documents, size):
    file = tmp_path_factory.mktemp("parts") / "a.txt"
    write(file, "\n \n\n".join("\n".join(lines) for lines in documents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PART", size)
        assert read(file) == documents


@pytest.mark.fault(11)
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_read_file_takes_any_bytes(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("fuzz") / "a.txt"
    for document in read(write(file, b"\n".join(lines) + b"x")):
        "".join(document).encode()


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b'{"text": "a", "text": "b"}', "'text' stands twice"),
        (b"[1, 2]", "Expected `object`, got `array`"),
        (b'{"text": "a\0b"}', "not JSON"),
    ],
)
def test_read_file_names_malformed_rows(tmp_path, row, says):
    data = b'{"text": "one"}\n\n{"text": ["two", "lines"]}\n'
    assert read(write(tmp_path / "a.jsonl", data)) == [["one"], ["two", "lines"]]
    with pytest.raises(DataError, match=f"a.jsonl:4: .*{says}") as caught:
        read(write(tmp_path / "a.jsonl", data + row + b'\n{"text": "x"}\n'))
    assert caught.value.code == 3


def names(path: Path) -> tuple[list[str], list[str]]:
    found, notes = files.find_files(knobs.Corpus(source="files", path=str(path)))
    return [name for name, _ in found], notes


def test_find_files_takes_files_folders_and_globs(tmp_path):
    kept = ("b.txt", "a.TXT", "sub/c.jsonl", "sub/e.txt.gz")
    for name in (*kept, ".hidden/d.txt", "readme.md", "LICENSE", "f.gz", "g.parquet.gz"):
        write(tmp_path / name, b"x")
    assert names(tmp_path / "b.txt") == (["b.txt"], [])
    found, notes = names(tmp_path)
    assert found == sorted(kept)
    assert notes[0].startswith("4 files of other kinds were skipped")
    assert names(tmp_path / "*.txt")[0] == ["b.txt"]
    write(tmp_path / "x" / "y" / "z.jsonl", b"")
    assert names(tmp_path / "**" / "*" / "**" / "z.jsonl")[0] == ["x/y/z.jsonl"], "named once"
    with pytest.raises(DataError, match=r"holds no \.txt"):
        names(tmp_path / "*.md")


def test_identify_remembers_digests_of_files(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    settings = knobs.Corpus(source="files", path=str(tmp_path / "in"))
    write(tmp_path / "in" / "a.txt", b"one")
    first = files.identify(settings, cache)
    opened: list[str] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda f, kind: opened.append(f) or digest(f, kind))
    assert files.identify(settings, cache) == first
    assert opened == []
    write(tmp_path / "in" / "a.txt", b"two more")
    assert files.identify(settings, cache) != first
    assert len(opened) == 1
