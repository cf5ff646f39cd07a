"""From lines to results: order, batches, look-ahead, pauses, bad lines, the report."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import cli
from bert_jax.data.task_stream import round_length
from bert_jax.errors import DataError
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.base import Work
from bert_jax.predictors.options import Options
from tests import EXAMPLES, texts
from tests.predictors.drawing import GOLDEN, open_golden

MODEL = GOLDEN / "pretraining"
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "mat", "big", "red"]


def make_stream(*, typed: bool = False, **options) -> predictions.Stream:
    asked = predictions.AskedModel(open_golden("pretraining"), Options(**options))
    return predictions.Stream(asked, "embed", typed=typed)


# --- reading --------------------------------------------------------------------------------------


def read_parts(parts: list[bytes], count: int) -> list[list[bytes]]:
    """What is read of a pipe that is fed part by part, each once the last is read."""
    source, sink = os.pipe()
    left = iter([*parts, None, *(b"" for _ in range(999))])

    def read(descriptor: int, size: int) -> bytes:
        """Feed a part, as a program does that waits for its answer, then read what is there."""
        part = next(left)
        if part is None:
            os.close(sink)
        elif part:
            os.write(sink, part)
        return os_read(descriptor, size)

    os_read = os.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "read", read)
        found = list(predictions.read_lines(source, count))
    os.close(source)
    return found


@settings(max_examples=EXAMPLES or 30)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=30),
    count=st.integers(1, 7),
    chunk=st.integers(1, 40),
    ended=st.booleans(),
)
def test_read_lines_parts_at_newlines(lines, count, chunk, ended, tmp_path_factory):
    data = b"".join(line + b"\n" for line in lines)
    data = data if ended else data.removesuffix(b"\n")
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(predictions, "CHUNK", chunk)
        found = list(predictions.read_lines(file.fileno(), count))
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


@pytest.mark.fault(11)
def test_bytes_of_no_text_are_replaced_and_counted(capsys):
    stream = make_stream()
    found = [row["text"] for row in stream.answer([b"caf\xe9", b"the cat", b"\xff\xfe"])]
    assert found == ["caf\ufffd", "the cat", "\ufffd\ufffd"]
    predictions.warn_of_replaced(stream.tally.replaced)
    assert capsys.readouterr().err.startswith("warning: 2 lines have bytes that are no UTF-8")


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 64, 97])
def test_work_computes_each_row_once_by_length(count):
    lengths, seen = np.random.default_rng(count).integers(2, 90, count), []

    def compute(chosen, length, size):
        assert length == round_length(int(lengths[chosen].max()))
        assert len(chosen) <= size <= 16
        seen.append(lengths[chosen])
        numbers = np.pad(chosen, (0, size - len(chosen)), constant_values=-1)
        return numbers, {"twice": 2 * numbers}

    found = Work(lengths, compute, iter).compute_rows(16)
    assert [int(number) for number, _ in found] == list(range(count))
    assert [int(one["twice"]) for _, one in found] == [2 * i for i in range(count)]
    assert [len(one) for one in seen] == [16] * (count // 16) + [count % 16] * (count % 16 > 0)
    # No batch could be shorter.
    assert all(a.min() >= b.max() for a, b in itertools.pairwise(seen))


def make_lines(count: int, most: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, most))) for _ in range(count)]


# --- bad lines ------------------------------------------------------------------------------------

BAD = [
    b'{"text": ',
    b'{"text": 7}',
    b'{"words": "a"}',
    b'{"text": "a", "text_pair": "b"}',
    b"[MASK] " * 99,
]


def test_stream_ends_at_a_bad_line_if_none_is_typed(capsys):
    good = [line.encode() for line in make_lines(20, 5, seed=0)]
    lines = [*good, *BAD]
    random.Random(0).shuffle(lines)
    places = [number for number, line in enumerate(lines, 1) if line in BAD]
    expected = list(make_stream(batch_size=4).answer(good))
    typed = make_stream(typed=True, batch_size=4)
    found = list(typed.answer(lines))
    assert [one["text"].encode() for one in found] == [line for line in lines if line not in BAD]
    by_text = {one["text"]: one["embedding"] for one in expected}
    assert all(one["embedding"] == pytest.approx(by_text[one["text"]], abs=1e-5) for one in found)
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("warning: line ") for line in said)
    assert sorted(int(line.split()[2].strip(":")) for line in said) == places
    assert typed.tally.lines == len(lines)
    strict = make_stream(batch_size=4)
    results = []

    def collect() -> None:
        for result in strict.answer(lines):
            results.append(result["text"].encode())

    with pytest.raises(DataError, match=f"^line {places[0]}: "):
        collect()
    assert results == lines[: places[0] - 1]


# --- in a process of its own ----------------------------------------------------------------------


def test_predict_answers_each_line_of_a_pipe():
    answered = []
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(texts.start("predict", "embed", f"--model={MODEL}"))
        stack.callback(process.kill)
        watch = threading.Timer(120, process.kill)  # else it would wait for more lines for ever
        watch.start()
        stack.callback(watch.cancel)
        for line in ("the cat", "", "a dog sat"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answered.append(json.loads(process.stdout.readline())["text"])
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0
        assert "3 lines, " in process.stderr.read()
    assert answered == ["the cat", "", "a dog sat"]


# --- what is enormous -----------------------------------------------------------------------------


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    ("megabytes", "says"),
    [(50, "more than 16,777,216 bytes"), (15, "15,728,640 characters, more than 1,000,000")],
)
def test_predict_refuses_an_enormous_line(tmp_path, capsys, megabytes, says):
    text = ("word " * (10 << 20))[: megabytes << 20]
    file = tmp_path / "in.txt"
    file.write_text(f"the cat\n{text}\na dog\n")
    words = ["predict", "embed", f"--model={MODEL}", f"--input={file}"]
    assert cli.execute(words) == 3
    out, err = capsys.readouterr()
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["the cat"]
    assert err.splitlines()[0] == f"error: line 2: {says}"


@pytest.mark.fault(10)
def test_read_lines_keeps_little_of_a_long_line(monkeypatch):
    monkeypatch.setattr(predictions, "CHUNK", 8)
    monkeypatch.setattr(predictions, "LINE", 20)
    parts = [b"a" * 500, b"b" * 500 + b"\nfine\n", b"c" * 90]
    found = [line for window in read_parts(parts, 100) for line in window]
    assert [len(line) > 20 for line in found] == [True, False, True]
    assert found[1] == b"fine"
    assert max(map(len, found)) <= 28
    with pytest.raises(DataError, match="line 3: more than 20 bytes"):
        predictions.decode_line(3, found[2])
