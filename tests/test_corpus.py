"""Documents come out as they stand in the files, whatever the format, and whatever is wrong with
the bytes.
"""

from __future__ import annotations

import ast
import dataclasses
import gzip
import json
import math
import random

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import corpus
from bert_jax.data.text import dedup, docstrings, files, prose, readers, sentences
from bert_jax.errors import DataError

TEXT = "One here. Two there.\nThree.\n\nFour.\n\n\n \nFive.\nSix."
DOCUMENTS = [["One here. Two there.", "Three."], ["Four."], ["Five.", "Six."]]


def read(path, tally=None, **options) -> list[list[str]]:
    """Documents of `path` as lists of lines."""
    options = knobs.Corpus(source="files", path=str(path), **options)
    tally = tally or sentences.Tally()
    found: list[list[str]] = []
    held: list[str] = []
    for item in files.items(options)[0]:
        for chunk in readers.read(item, options, tally):
            held += chunk.lines
            if chunk.last:
                found.append(held)
                held = []
    assert not held
    return found


def write(file, data: bytes):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


# --- formats --------------------------------------------------------------------------------------


def rows(documents) -> bytes:
    return b"".join(json.dumps({"id": 1, "text": "\n".join(d)}).encode() + b"\n" for d in documents)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("kind", "data"),
    [("txt", TEXT.encode()), ("jsonl", rows(DOCUMENTS)), ("json", rows(DOCUMENTS))],
)
def test_formats_agree(tmp_path, kind, data, suffix):
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    assert read(write(tmp_path / f"a.{kind}{suffix}", pack(data))) == DOCUMENTS


def test_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    for name, values in (("a", ["\n".join(d) for d in DOCUMENTS]), ("b", [b"Caf\xc3\xa9.", None])):
        pyarrow.parquet.write_table(
            pyarrow.table({"text": values}), tmp_path / f"{name}.parquet", row_group_size=1
        )
    assert read(tmp_path / "a.parquet") == DOCUMENTS
    with pytest.raises(DataError, match=r"b.parquet, row 2: text is NoneType"):
        read(tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet", on_bad_row="skip") == [["Café."]]
    with pytest.raises(DataError, match="no column 'body'") as caught:
        read(tmp_path / "a.parquet", text_field="body")
    assert "text" in caught.value.hint
    with pytest.raises(DataError, match="is a damaged parquet file"):
        read(write(tmp_path / "c.parquet", b"PAR1 no"))


def test_two_frames_and_two_members_are_read_to_the_end(tmp_path):
    halves = [b"One.\n\nTw", b"o.\n"]
    frames = b"".join(zstandard.ZstdCompressor().compress(h) for h in halves)
    assert read(write(tmp_path / "a.txt.zst", frames)) == [["One."], ["Two."]]
    assert read(write(tmp_path / "a.txt.gz", b"".join(map(gzip.compress, halves)))) == [
        ["One."],
        ["Two."],
    ]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compression_is_a_data_error(tmp_path, suffix):
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    data = pack(random.Random(0).randbytes(5000).hex().encode())
    for damaged in (b"not compressed", data[:20] + b"\0\xff\0" + data[23:], data[: len(data) // 2]):
        with pytest.raises(DataError, match=f"a.txt{suffix} is damaged"):
            read(write(tmp_path / f"a.txt{suffix}", damaged))


@pytest.mark.fault(20)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_a_newline_ends_a_line_and_a_byte_order_mark_is_dropped(tmp_path, end):
    lines = ["One\u2028still one.", "Two\x85\x0b\x0c\x1c too.", "Three\rhere."]
    data = "\ufeff" + end.join(lines) + end
    assert read(write(tmp_path / "a.txt", data.encode())) == [lines]
    found = [sentences.sentences(line, "en", sentences.Tally()) for line in lines]
    assert found == [["One still one."], ["Two too."], ["Three here."]]
    row = json.dumps({"text": "\n".join(lines)}, ensure_ascii=False)
    assert read(write(tmp_path / "a.jsonl", ("\ufeff" + row + end).encode())) == [lines]


DOCUMENT = st.lists(
    st.text("abc é字\u2028", min_size=1).filter(lambda s: s.encode().strip()),
    min_size=1,
    max_size=4,
)


@given(st.lists(DOCUMENT, max_size=6), st.integers(1, 3), st.integers(1, 40), st.booleans())
@settings(max_examples=150)
def test_ranges_share_the_documents_out_exactly(tmp_path_factory, documents, blank, size, as_rows):
    folder = tmp_path_factory.mktemp("ranges")
    if as_rows:
        data = b"".join(
            json.dumps({"text": "\n".join(d)}, ensure_ascii=False).encode() + b"\n"
            for d in documents
        )
    else:
        data = (("\n" + " \n" * blank).join("\n".join(d) for d in documents)).encode()
    file = write(folder / ("a.jsonl" if as_rows else "a.txt"), data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "RANGE", size)
        assert (
            len(files.items(knobs.Corpus(source="files", path=str(file)))[0])
            == -(-len(data) // size)
            if data
            else True
        )
        assert (read(file) if data else []) == documents


@given(st.text("a. é字", min_size=1, max_size=200).filter(lambda s: s.strip()), st.integers(8, 40))
@settings(max_examples=150)
def test_long_lines_lose_nothing(tmp_path_factory, line, piece):
    file = write(tmp_path_factory.mktemp("long") / "a.txt", line.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "PIECE", piece)
        pieces = [p for document in read(file) for p in document]
        assert "".join(pieces) == line
        assert all(len(p.encode()) <= piece for p in pieces)
        patch.setattr(sentences, "PIECE", piece)
        chunked = [p for chunk in sentences.chunks(line) for p in chunk.lines]
        assert "".join(chunked) == line


def test_long_lines_are_cut_after_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PIECE", 64)
    line = " ".join(f"This is sentence number {i}." for i in range(50))
    pieces = read(write(tmp_path / "a.txt", line.encode()))[0]
    assert all(p.rstrip().endswith(".") for p in pieces)


def test_a_sentence_without_an_end_is_cut_at_a_space():
    tally = sentences.Tally()
    long = "word " * 10_000
    found = sentences.sentences(long, "en", tally)
    assert " ".join(found).split() == long.split()
    assert max(map(len, found)) <= sentences.SENTENCE
    assert tally.counts["cut_sentences"] == len(found) - 1
    assert len(sentences.sentences("x" * 40_000, None, tally)) == math.ceil(
        40_000 / sentences.SENTENCE
    )


def test_sentences_of_paragraphs_and_lines():
    line = "Mr. Smith came, e.g. by train.  He left!"
    assert sentences.sentences(line, "en", sentences.Tally()) == [
        "Mr. Smith came, e.g. by train.",
        "He left!",
    ]
    assert sentences.sentences(line, None, sentences.Tally()) == [
        "Mr. Smith came, e.g. by train. He left!"
    ]
    assert (
        sentences.sentences(" \t", "en", sentences.Tally())
        == sentences.sentences("", None, sentences.Tally())
        == []
    )


@pytest.mark.parametrize(
    ("line", "expected"), [("It rains. It pours again.", False), ("It rains again.", True)]
)
def test_auto_finds_out_whether_a_line_is_a_sentence(tmp_path, line, expected):
    write(tmp_path / "a.txt", f"{line}\n".encode() * 20)
    options = knobs.Corpus(source="files", path=str(tmp_path))
    items, _ = files.items(options)
    assert corpus.one_sentence_lines(items, options) == (expected, float(not expected))
    for forced in ("lines", "split"):
        found, share = corpus.one_sentence_lines(
            items, dataclasses.replace(options, sentences=forced)
        )
        assert found == (forced == "lines")
        assert math.isnan(share)


# --- bad text and bad rows ------------------------------------------------------------------------

BAD = {
    "utf8": b"Good.\n\nCaf\xe9 bad.\nMore.\n\nLast.\n",
    "nul": b"Good.\n\nCaf\0 bad.\nMore.\n\nLast.\n",
}


@pytest.mark.fault(19)
@pytest.mark.parametrize("kind", BAD)
def test_bad_text_follows_the_policy(tmp_path, kind):
    file = write(tmp_path / "a.txt", BAD[kind])
    with pytest.raises(DataError, match=r"a.txt, byte 10: ") as caught:
        read(file, on_bad_text="fail")
    assert caught.value.code == 3
    tally = sentences.Tally()
    assert read(file, tally)[1] == ["Caf\ufffd bad.", "More."]
    assert tally.counts["bad_text"] == 1
    assert "byte 10" in tally.first["bad_text"]
    options = knobs.Corpus(source="files", path=str(file), on_bad_text="skip")
    (tmp_path / "spool").mkdir()
    corpus.extract(0, files.items(options)[0], options, True, tmp_path / "spool")
    assert corpus.records(tmp_path / "spool", "00000-0000")["bad"].tolist() == [False, True, False]


@pytest.mark.fault(19)
def test_surrogates_and_nul_in_rows(tmp_path):
    file = write(
        tmp_path / "a.jsonl",
        b'{"text": "fine"}\n{"text": "a\\ud800b"}\n{"text": "a\\u0000b \\ud83d\\ude00"}\n',
    )
    assert read(file) == [["fine"], ["a\ufffdb"], ["a\ufffdb \U0001f600"]]
    with pytest.raises(DataError, match=r"a.jsonl:2, character 1: a lone surrogate"):
        read(file, on_bad_text="fail")


@pytest.mark.fault(19)
@given(st.lists(st.binary(max_size=30), max_size=5))
def test_any_bytes_are_read_under_replace(tmp_path_factory, lines):
    data = b"\n".join(lines)
    folder = tmp_path_factory.mktemp("fuzz")
    for line in (
        line for document in read(write(folder / "a.txt", data + b"x")) for line in document
    ):
        line.encode()
        assert "\0" not in line
    read(write(folder / "a.jsonl", data + b"\n"), on_bad_row="skip")


@pytest.mark.fault(27)
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b'{"text": ', "not JSON"),
        (b'{"text": "a", "text": "b"}', "'text' stands twice"),
        (b"[1, 2]", "a JSON list, not an object"),
        (b'{"body": "x"}', r"field 'text' is NoneType, not text \(fields: body\)"),
        (b'{"text": 7}', "is int"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"text": "a\0b"}', "not JSON"),
    ],
)
def test_malformed_rows_name_file_and_line(tmp_path, row, says, monkeypatch):
    monkeypatch.setattr(files, "RANGE", 40)  # the line number must be right in a later range too
    file = write(
        tmp_path / "a.jsonl",
        b'{"text": "one"}\n\n{"text": "two"}\n{"text": "three"}\n' + row + b'\n{"text": "x"}\n',
    )
    with pytest.raises(DataError, match=f"a.jsonl:5: .*{says}"):
        read(file)
    tally = sentences.Tally()
    assert read(file, tally, on_bad_row="skip") == [["one"], ["two"], ["three"], ["x"]]
    assert tally.counts["bad_rows"] == 1
    assert tally.counts["rows"] == 5


def test_a_row_beyond_the_limit_is_malformed(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "ROW", 64)
    monkeypatch.setattr(readers, "PIECE", 16)
    data = b'{"text": "one"}\n' + json.dumps({"text": "x" * 500}).encode() + b'\n{"text": "two"}\n'
    assert read(write(tmp_path / "a.jsonl", data), on_bad_row="skip") == [["one"], ["two"]]


# --- paths ----------------------------------------------------------------------------------------


def names(path):
    found, notes = files.find(knobs.Corpus(source="files", path=str(path)))
    return [name for name, _ in found], notes


def test_a_path_is_a_file_a_folder_or_a_glob(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.jsonl", ".hidden/d.txt", "readme.md", "sub/e.txt.gz"):
        write(tmp_path / name, b"x")
    assert names(tmp_path / "b.txt") == (["b.txt"], [])
    found, notes = names(tmp_path)
    assert found == ["a.txt", "b.txt", "sub/c.jsonl", "sub/e.txt.gz"]
    assert "readme.md" in notes[0]
    assert names(tmp_path / "*.txt")[0] == ["a.txt", "b.txt"]
    assert names(tmp_path / "**" / "*.jsonl")[0] == ["sub/c.jsonl"]


@pytest.mark.fault(30)
def test_links_that_leave_the_folder_are_skipped_with_a_warning(tmp_path):
    write(tmp_path / "secret.txt", b"x")
    write(tmp_path / "in" / "a.txt", b"x")
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "in" / "c.txt").symlink_to("a.txt")
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    for path in (tmp_path / "in", tmp_path / "in" / "*.txt"):
        found, notes = names(path)
        assert found == ["a.txt", "c.txt"]
        assert "1 links that leave" in notes[0]
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert names(tmp_path / "link")[0] == ["a.txt", "c.txt"]
    assert names(tmp_path / "in" / "b.txt")[0] == ["b.txt"]  # named by hand


@pytest.mark.parametrize(
    ("path", "says"),
    [("", "is empty"), ("none", "does not exist"), ("none/*.txt", "does not exist")],
)
def test_missing_paths(tmp_path, path, says):
    with pytest.raises(DataError, match=says) as caught:
        names(path and tmp_path / path)
    assert caught.value.hint
    (tmp_path / "my_texts").mkdir()
    with pytest.raises(DataError, match=says) as caught:
        names(path.replace("none", str(tmp_path / "my_text")))
    assert (caught.value.hint == f"did you mean '{tmp_path}/my_texts'?") == (path == "none")


def test_folders_without_text(tmp_path):
    with pytest.raises(DataError, match="holds no files"):
        names(tmp_path)
    write(tmp_path / "a.bin", b"x")
    with pytest.raises(DataError, match=r"holds no \.txt"):
        names(tmp_path)
    with pytest.raises(DataError, match="not a kind of file"):
        names(tmp_path / "a.bin")


def test_identity_is_of_content_and_is_remembered(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    options = knobs.Corpus(source="files", path=str(tmp_path / "in"))
    write(tmp_path / "in" / "a.txt", b"one")
    first = files.identity(options, cache)
    digests = []
    monkeypatch.setattr(
        files.shards,
        "sha256",
        lambda file, real=files.shards.sha256: digests.append(file) or real(file),
    )
    assert files.identity(options, cache) == first
    assert digests == []
    write(tmp_path / "in" / "a.txt", b"two more")
    assert files.identity(options, cache) != first
    assert len(digests) == 1


# --- deduplication and the split ------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4), st.integers(1, 8)
)
def test_repeats_are_all_but_the_first(volumes, partition):
    flat = [value for volume in volumes for value in volume]
    usable = np.array([value != 3 for value in flat], bool)
    arrays = {str(i): np.array(volume, np.uint64) for i, volume in enumerate(volumes)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedup, "PARTITION", partition)
        found = dedup.repeats(arrays.__getitem__, list(arrays), usable)
    assert found.tolist() == [v != 3 and v in flat[:i] for i, v in enumerate(flat)]


def spool(folder, documents, **options):
    """Reads documents, given as lists of sentences, into one volume; returns marks and counts."""
    folder.mkdir()
    write(folder / "in" / "a.jsonl", rows(documents))
    chosen = knobs.Corpus(source="files", path=str(folder / "in"), **options)
    corpus.extract(0, files.items(chosen)[0], chosen, True, folder)
    (marks,), counts = dedup.marks(folder, ["00000-0000"], chosen)
    return marks, counts


@pytest.mark.fault(22)
def test_copies_are_dropped_before_the_split(tmp_path):
    documents = [[f"Document {i % 60}.", "Same."] for i in range(100)] + [
        [],
        ["Document  0. Same."],
    ]
    marks, counts = spool(tmp_path / "a", documents, validation_fraction=0.3)
    assert counts == {
        "records": 102,
        "empty": 1,
        "bad_documents": 0,
        "duplicates": 41,
        "near_duplicates": 0,
    }
    assert (marks[60:] == dedup.DROP).all()
    assert set(marks[:60].tolist()) == {dedup.TRAIN + dedup.STARTS, dedup.VALIDATION + dedup.STARTS}
    kept, counts = spool(tmp_path / "b", documents, validation_fraction=0.3, deduplicate=False)
    assert counts["duplicates"] == 0
    assert (kept[:60] == marks[:60]).all()
    assert (kept[60:100] == marks[:40]).all()  # copies lie on the same side


def test_the_split_follows_the_text_alone(tmp_path):
    documents = [[f"Document {i}."] for i in range(2000)]
    marks, _ = spool(tmp_path / "a", documents, validation_fraction=0.1)
    share = (marks == dedup.VALIDATION + dedup.STARTS).mean()
    assert abs(share - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 2000)
    backwards, _ = spool(tmp_path / "b", documents[::-1], validation_fraction=0.1)
    assert (backwards == marks[::-1]).all()


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(1, 0.5, 0), (2, 1e-6, 1), (9, 1e-6, 1), (9, 0.0, 0)]
)
def test_few_documents_still_leave_one_on_each_side(tmp_path, count, fraction, expected):
    marks, _ = spool(
        tmp_path / "a", [[f"Document {i}."] for i in range(count)], validation_fraction=fraction
    )
    assert (marks == dedup.VALIDATION + dedup.STARTS).sum() == expected


def test_near_copies_share_a_band_and_others_do_not():
    base = (
        "The quick brown fox jumps over the lazy dog while seven wizards mix a potion of "
        "great power in the old tower"
    )
    near = base.replace("seven", "eleven") + " again"
    bands = docstrings.bands(base)
    assert len(set(bands.tolist())) == docstrings.BANDS
    assert (bands == docstrings.bands(base.upper() + "!")).all()
    assert (bands == docstrings.bands(near)).any()
    assert not (
        bands
        == docstrings.bands("Return the number of characters that were written to the given stream")
    ).any()
    assert (docstrings.bands("Return x.") == docstrings.bands("return X")).all()


# --- docstrings -----------------------------------------------------------------------------------

SAMPLE = """
    Compute the mean of the given values along an axis.

    The mean is taken over the flattened array by default, see :func:`numpy.sum` or
    `the guide <https://example.org/x>`_ [1]_.

    Args:
      values: The values whose mean is computed, as
        an array of numbers.
      axis (int): int
      *args: Further arguments that are passed to the function.

    Parameters
    ----------
    a : array_like, of the shape of the input.
        Array containing numbers whose mean is desired.

    Returns:
      The mean of the values, in the type of the input.

    Here is code::

        x = mean([1, 2, 3])  # this is the mean of the values.

    === =====
    a   b
    === =====

    .. code-block:: python

        the_code = "is in a block of the text."

    .. note:: The **result** may be inexact on some machines.

    >>> mean([1, 2])
    1.5

    ```
    This is fenced code that reads as a sentence of the text.
    ```

    Examples
    --------
    Here we compute the mean of some of the values.
    """


def test_prose_keeps_english_and_nothing_else():
    assert prose.paragraphs(SAMPLE) == [
        "Compute the mean of the given values along an axis.",
        "The mean is taken over the flattened array by default, see sum or the guide.",
        "The values whose mean is computed, as an array of numbers.",
        "Further arguments that are passed to the function.",
        "Array containing numbers whose mean is desired.",
        "The mean of the values, in the type of the input.",
        "The result may be inexact on some machines.",
    ]


@given(st.text("ab \n`*:.>-=|[]()_~^ \t", max_size=200))
def test_prose_takes_any_docstring(source):
    for paragraph in prose.paragraphs(source):
        assert paragraph
        assert "\n" not in paragraph


SOURCE = '''
"""The module does a thing for you."""
def short():
    """Return the short of the thing."""
class Large:
    """A class that is large. It has three of them. They are in the class."""
    def method(self):
        """Call the method of the class."""
class Small:
    """A class that is small."""
def long():
    """Return the long of the thing.

    This is the second sentence of it. And here is the third of them.
    """
    def inner():
        """Return the inner of the function."""
add_newdoc("module", "name", """Return the name of the thing.""")
add_newdoc("module", "name", ("part", """Return the part of the thing."""))
add_newdoc(*names)
'''


def test_a_module_is_a_document_in_the_order_of_its_source():
    chunks = list(docstrings._document(ast.parse(SOURCE), sentences.Tally()))
    assert [chunk.joins for chunk in chunks] == [False] + [True] * (len(chunks) - 1)
    assert [line.split(".")[0] for chunk in chunks for line in chunk.lines] == [
        "The module does a thing for you",
        "Return the short of the thing",
        "A class that is large",
        "Call the method of the class",
        "A class that is small",
        "Return the long of the thing",
        "This is the second sentence of it",
        "Return the inner of the function",
        "Return the name of the thing",
        "Return the part of the thing",
    ]
    assert not list(docstrings._document(ast.parse("x = 1"), sentences.Tally()))


def test_docstring_items_cover_python_and_the_requirements_but_not_this_project():
    items, _ = docstrings.items(knobs.Corpus())
    owners = {item.name for item in items}
    assert {"python", "numpy", "jax", "flax", "pytest"} <= owners
    assert "bert-jax" not in owners
    paths = [path for item in items for path in item.spec]
    assert len(paths) == len(set(paths))
    assert not any("/tests/" in path for path in paths)
    identity = docstrings.identity(knobs.Corpus(), None)
    assert identity["numpy"] == np.__version__
    tally = sentences.Tally()
    argparse = next(path for path in paths if path.endswith("/argparse.py"))
    chunks = list(docstrings.read(sentences.Item("python", 0, (argparse,)), knobs.Corpus(), tally))
    assert any(
        line.startswith("The main entry point for command-line parsing.")
        for line in chunks[0].lines
    )
    assert tally.counts["docstrings"] > 10


@pytest.mark.slow
def test_the_whole_corpus_is_large_enough_to_learn_from():
    options, tally = knobs.Corpus(), sentences.Tally()
    seen: set[tuple[int, int]] = set()
    kept = words = 0
    for item in docstrings.items(options)[0]:
        for chunk in docstrings.read(item, options, tally):
            bands = set(enumerate(docstrings.bands(" ".join(chunk.lines)).tolist()))
            if not seen & bands:
                kept, words = kept + 1, words + sum(len(line.split()) for line in chunk.lines)
            seen |= bands
    assert tally.counts["docstrings"] > 45_000
    assert kept > 33_000
    assert words > 1_300_000


def test_a_document_that_joins_is_never_divided_between_volumes(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "VOLUME", 10)
    groups = [[f"Text {i} of {j}." for i in range(3)] for j in range(4)]
    chunks = [
        sentences.Chunk([line], joins=i > 0) for group in groups for i, line in enumerate(group)
    ]
    monkeypatch.setattr(corpus.SOURCES["files"], "read", lambda *_: iter(chunks))
    done = corpus.extract(
        0, [sentences.Item("x", 1, ())], knobs.Corpus(source="files"), True, tmp_path
    )
    assert [v["records"] for v in done["volumes"]] == [3] * 4
    for volume, group in zip(done["volumes"], groups, strict=True):
        assert corpus.records(tmp_path, volume["name"])["joins"].tolist() == [False, True, True]
        assert [line[:-1] for line in corpus.read_sentences(tmp_path, volume["name"])] == group
