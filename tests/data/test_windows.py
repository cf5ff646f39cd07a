"""Windows against the loops they come from, and against the tokenizers library."""

import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.windows import choose_windows, cut_windows


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
    """Its _check_is_max_context, told as the index of the best span: the first of equals."""

    def score(index: int) -> float:
        start, end = spans[index]
        return min(position - start, end - 1 - position) + 0.01 * (end - start)

    return max((i for i, (a, b) in enumerate(spans) if a <= position < b), key=score)


@given(length=st.integers(1, 120), room=st.integers(1, 30), stride=st.integers(0, 29))
def test_cut_windows_overlaps_as_tokenizers(length, room, stride):
    stride = min(stride, room - 1)
    words = {f"w{i}": i for i in range(length)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "w0"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.enable_truncation(max_length=room, stride=stride)
    first = library.encode(" ".join(words))
    expected = [[one.ids[0], one.ids[-1] + 1] for one in (first, *first.overflowing)]
    assert cut_windows(length, room, stride, "overlap").tolist() == expected


@given(
    length=st.integers(1, 300),
    room=st.integers(1, 60),
    stride=st.integers(1, 80),
    meaning=st.sampled_from(["step", "overlap"]),
)
def test_windows_are_cut_and_chosen_as_run_squad(length, room, stride, meaning):
    stride = min(stride, room - 1) if meaning == "overlap" else stride
    spans = cut_windows(length, room, stride, meaning)
    pairs = [tuple(span) for span in spans.tolist()]
    assert meaning == "overlap" or pairs == run_squad(length, room, stride)
    expected = [check_is_max_context(pairs, position) for position in range(length)]
    assert choose_windows(spans, length).tolist() == expected
