"""Windows against the loops they come from, and against the tokenizers library."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.windows import best_windows, windows
from bert_jax.errors import ConfigError


def run_squad(length: int, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """The spans of convert_examples_to_features of run_squad.py, as (start, end)."""
    spans = []
    start = 0
    while start < length:
        size = min(length - start, room)
        spans.append((start, start + size))
        if start + size == length:
            break
        start += min(size, doc_stride)
    return spans


def check_is_max_context(spans: list[tuple[int, int]], position: int) -> int:
    """Its _check_is_max_context, told as the index of the best span."""
    best_score, best_index = None, None
    for index, (start, end) in enumerate(spans):
        if not start <= position < end:
            continue
        score = min(position - start, end - 1 - position) + 0.01 * (end - start)
        if best_score is None or score > best_score:
            best_score, best_index = score, index
    return best_index


@given(length=st.integers(1, 300), room=st.integers(1, 60), stride=st.integers(1, 80))
def test_a_step_is_the_original_stride(length, room, stride):
    found = windows(length, room, stride, "step")
    assert found.dtype == np.int64
    assert [tuple(span) for span in found.tolist()] == run_squad(length, room, stride)


@given(length=st.integers(1, 120), room=st.integers(1, 30), stride=st.integers(0, 29))
def test_an_overlap_is_the_stride_of_tokenizers(length, room, stride):
    stride = min(stride, room - 1)
    words = [f"w{i}" for i in range(length)]
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "w0")
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.enable_truncation(max_length=room, stride=stride)
    first = library.encode(" ".join(words))
    expected = [(one.ids[0], one.ids[-1] + 1) for one in (first, *first.overflowing)]
    assert [tuple(span) for span in windows(length, room, stride, "overlap").tolist()] == expected


@given(
    length=st.integers(1, 300),
    room=st.integers(1, 60),
    stride=st.integers(1, 59),
    meaning=st.sampled_from(["step", "overlap"]),
)
def test_each_token_is_best_seen_where_the_original_says(length, room, stride, meaning):
    stride = min(stride, room - 1) if meaning == "overlap" else stride
    spans = windows(length, room, stride, meaning)
    chosen = best_windows(spans, length)
    pairs = [tuple(span) for span in spans.tolist()]
    assert chosen.tolist() == [check_is_max_context(pairs, position) for position in range(length)]


def test_the_same_stride_means_two_things():
    assert windows(400, 150, 128, "step").tolist() == [[0, 150], [128, 278], [256, 400]]
    assert windows(400, 150, 128, "overlap")[:3].tolist() == [[0, 150], [22, 172], [44, 194]]
    assert windows(150, 150, 128, "overlap").tolist() == [[0, 150]]
    assert windows(0, 150, 128, "step").tolist() == [[0, 0]]
    assert best_windows(windows(0, 150, 128, "step"), 0).tolist() == []


@pytest.mark.parametrize(
    ("room", "stride", "meaning"),
    [
        (0, 1, "step"),
        (9, 0, "step"),
        (9, -1, "step"),
        (9, 9, "overlap"),
        (1, 1, "overlap"),
        (1, 0, "step"),
        (0, 0, "overlap"),
        (9, -1, "overlap"),
        (9, 3, "stride"),
    ],
)
def test_windows_that_do_not_move_are_refused(room, stride, meaning):
    with pytest.raises(ConfigError) as caught:
        windows(100, room, stride, meaning)
    hint = caught.value.hint
    if meaning == "stride":
        assert hint == "one of: step, overlap"
    elif not room:
        assert "stride" not in hint
    else:
        fits = int(re.fullmatch(r"--stride=(\d+) \(to train: --config.task.stride=\1\)", hint)[1])
        assert windows(100, room, fits, meaning)[-1, 1] == 100
