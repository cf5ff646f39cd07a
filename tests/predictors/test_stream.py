"""From lines to results: order, batches, look-ahead, pauses, bad lines, the report."""

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.errors import DataError
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.options import Options
from tests import EXAMPLES
from tests.predictors.drawing import open_golden


def make_stream(*, typed: bool = False, **options) -> predictions.Stream:
    asked = predictions.AskedModel(open_golden("pretraining"), Options(**options))
    return predictions.Stream(asked, "embed", typed=typed)


# --- reading --------------------------------------------------------------------------------------


def read_parts(parts: list[bytes], count: int) -> list[list[bytes]]:
    """The lines of an input of which each read gives a part."""
    left = iter([*parts, b""])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", lambda descriptor, size: next(left))
        return list(predictions.read_lines(0, count))


@settings(max_examples=EXAMPLES or 30)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=30),
    count=st.integers(1, 7),
    chunk=st.integers(1, 40),
    ended=st.booleans(),
)
def test_read_lines_parts_at_newlines(lines, count, chunk, ended):
    data = b"".join(line + b"\n" for line in lines)
    data = data if ended else data.removesuffix(b"\n")
    parts = [data[start : start + chunk] for start in range(0, len(data), chunk)]
    found = read_parts(parts, count)
    expected = [line.removesuffix(b"\n") for line in io.BytesIO(data)]
    assert [line for window in found for line in window] == expected
    assert all(1 <= len(window) <= count for window in found)


def test_read_lines_waits_for_whole_lines():
    found = read_parts([b"a\nb\nhal", b"f\n", b"c"], 100)
    assert found == [[b"a", b"b"], [b"half"], [b"c"]]


@pytest.mark.fault(11)
def test_decode_line_drops_a_byte_order_mark():
    """Behind the first line it is text."""
    line = "\ufeffa".encode()
    assert [predictions.decode_line(number, line) for number in (1, 2)] == ["a", "\ufeffa"]


# --- bad lines ------------------------------------------------------------------------------------

BAD = [
    b'{"text": ',
    b'{"text": 7}',
    b'{"words": "a"}',
    b'{"text": "a", "text_pair": "b"}',
    b"[MASK] " * 99,
]


def test_stream_ends_at_a_bad_line_if_none_is_typed(capsys):
    lines = [b"the cat sat", BAD[0], b"", *BAD[1:4], b"a big red dog", b"mat", b"the", BAD[4]]
    places = [number for number, line in enumerate(lines, 1) if line in BAD]
    good = [line for line in lines if line not in BAD]
    expected = list(make_stream(batch_size=4).answer(good))
    typed = make_stream(typed=True, batch_size=4)
    found = list(typed.answer(lines))
    assert [one["text"].encode() for one in found] == good
    for one, alone in zip(found, expected, strict=True):
        assert one["embedding"] == pytest.approx(alone["embedding"], abs=1e-5)
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("warning: line ") for line in said)
    assert sorted(int(line.split()[2].strip(":")) for line in said) == places
    assert typed.tally.lines == len(lines)
    strict = make_stream(batch_size=4).answer(lines)
    assert next(strict)["text"] == "the cat sat"
    with pytest.raises(DataError, match=r"^line 2: "):
        next(strict)


# --- what is enormous -----------------------------------------------------------------------------


@pytest.mark.fault(10)
def test_read_lines_keeps_little_of_a_long_line(monkeypatch):
    monkeypatch.setattr(predictions, "LINE", 20)
    data = b"a" * 1000 + b"\nfine\n" + b"c" * 90
    parts = [data[start : start + 8] for start in range(0, len(data), 8)]
    found = [line for window in read_parts(parts, 100) for line in window]
    assert [len(line) > 20 for line in found] == [True, False, True]
    assert found[1] == b"fine"
    assert max(map(len, found)) <= 28
    with pytest.raises(DataError, match="line 3: more than 20 bytes"):
        predictions.decode_line(3, found[2])
