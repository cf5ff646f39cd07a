"""Documents come out as they stand in the files, whatever the format and the bytes.

Damaged files and their messages are held by tests/net/transcripts/prepare.txt.
"""

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
from tests.data.small import make_parquet, write

PACK = {".gz": gzip.compress, ".zst": zstandard.compress}


def read(path: Path) -> list[list[str]]:
    """Return the lines of each document."""
    documents: list[list[str]] = []
    for text in files.read_file(str(path), "text"):
        if text.starts:
            documents.append([])
        documents[-1] += text.text.removesuffix("\n").split("\n")
    return documents


@pytest.mark.parametrize("suffix", PACK)
def test_read_file_names_what_is_cut_short(tmp_path, suffix):
    text = random.Random(0).randbytes(5000).hex()
    data = PACK[suffix](text.encode())
    assert read(write(tmp_path / f"A.TXT{suffix.upper()}", data)) == [[text]]
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
    for size in ("", "large_"):
        packed = make_parquet("\n".join(lines).encode(), b"caf\xe9", size=size)
        assert read(write(tmp_path / "a.parquet", packed)) == [lines, ["caf\ufffd"]]


LINES = st.text("abc é字\u2028", min_size=1).filter(lambda line: line.strip(files.BLANK))


@given(st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=6), st.integers(1, 40))
def test_read_file_loses_nothing_in_parts(tmp_path_factory, documents, size):
    file = tmp_path_factory.mktemp("parts") / "a.txt"
    write(file, "\n \n\n".join("\n".join(lines) for lines in documents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PART", size)
        assert read(file) == documents


def test_read_file_joins_the_texts_of_a_row(tmp_path):
    data = b'{"text": "one"}\n\n{"text": ["two", "lines"]}\n'
    assert read(write(tmp_path / "a.jsonl", data)) == [["one"], ["two", "lines"]]


def test_identify_needs_no_cache_to_write_in(tmp_path):
    file = write(tmp_path / "a.txt", "a b\n")
    ((name, digest),) = files.identify(knobs.Corpus(source="files", path=str(file)), cache=file)
    assert (name, digest) == ("a.txt", hashlib.sha256(b"a b\n").hexdigest())


def names(path: Path) -> tuple[list[str], list[str]]:
    found, notes = files.find_files(knobs.Corpus(source="files", path=str(path)))
    return [name for name, _ in found], notes


def test_find_files_takes_files_folders_and_globs(tmp_path):
    kept = ("b.txt", "a.TXT", "sub/c.jsonl", "sub/e.txt.gz", "sub/e.jsonl.zst")
    for name in (*kept, ".hidden/d.txt", "readme.md", "LICENSE", "f.gz", "g.parquet.gz"):
        write(tmp_path / name, b"x")
    assert names(tmp_path / "b.txt") == (["b.txt"], [])
    found, notes = names(tmp_path)
    assert found == sorted(kept)
    assert notes[0].startswith("4 files of other kinds were skipped")
    assert names(tmp_path / "*.txt")[0] == ["b.txt"]
    write(tmp_path / "x" / "y" / "z.jsonl", b"")
    assert names(tmp_path / "**" / "*" / "**" / "z.jsonl")[0] == ["x/y/z.jsonl"], "named once"
