"""Token rows against plain statements of what they hold; windows lose nothing and answer for
everything once.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import encoding, tokenizer
from bert_jax.data.labelled import features
from bert_jax.data.labelled.examples import Answer, Example
from bert_jax.data.labelled.features import Features
from bert_jax.data.tokenizer import SPECIALS, Style
from bert_jax.errors import ConfigError, DataError

LETTERS = "abcdefghij"
PIECES = [*LETTERS, *("##" + c for c in LETTERS), "cafe", "##de", "字", ".", "-", "ᄒ", "##ᅡ", "##ᆫ"]
TOKENIZER = tokenizer.Tokenizer([*SPECIALS, *PIECES], Style())
SPECIAL = TOKENIZER.special
FLAT = ("tokens", "type_ids", "positions", "segment_ids")

WORD = st.text(LETTERS, min_size=1, max_size=4)
TEXT = st.lists(WORD, max_size=12).map(" ".join)
STRIDES = st.sampled_from([("step", 1), ("step", 3), ("step", 50), ("overlap", 0), ("overlap", 2)])


def ids(text: str) -> list[int]:
    return TOKENIZER.encode_batch([text])[0]


def example(number: int = 0, **fields) -> Example:
    return Example(where=f"data.tsv:{number + 1}", id=str(number), **fields)


def encode(
    examples: list[Example], kind: str, length: int = 32, train: bool = False, **task
) -> Features:
    return features.encode(examples, kind, TOKENIZER, knobs.Task(**task), length, train=train)


def row_of(found: Features, name: str, row: int) -> list:
    values = found.targets[name] if name in found.targets else getattr(found, name)
    return values[found.offsets[row] : found.offsets[row + 1]].tolist()


def tokens(found: Features) -> list[list[int]]:
    return [row_of(found, "tokens", row) for row in range(len(found.example))]


# --- texts and pairs ------------------------------------------------------------------------------


@given(st.lists(st.tuples(TEXT, st.none() | TEXT), min_size=1, max_size=6), st.integers(8, 40))
def test_rows_of_texts_and_pairs(texts, length):
    found = encode(
        [example(i, text=a, pair=b, label=i % 2) for i, (a, b) in enumerate(texts)],
        "classify",
        length,
    )
    cut = 0
    for row, (a, b) in enumerate(texts):
        room = length - (2 if b is None else 3)
        cut += len(ids(a)) + len(ids(b or "")) > room
        first, second = encoding.truncate(
            ids(a), ids(b or ""), room
        )  # which is shown in test_encoding.py
        expected = [SPECIAL.cls, *first, SPECIAL.sep] + (
            [] if b is None else [*second, SPECIAL.sep]
        )
        assert row_of(found, "tokens", row) == expected
        assert row_of(found, "type_ids", row) == [0] * (len(first) + 2) + [1] * (
            len(expected) - len(first) - 2
        )
        assert row_of(found, "positions", row) == list(range(len(expected)))
    assert found.cut == cut
    assert found.longest == max(len(one) for one in tokens(found)) <= length
    assert set(found.segment_ids.tolist()) == {1}
    assert found.cls_positions.tolist() == [[0]] * len(texts)
    assert found.example.tolist() == list(range(len(texts)))
    assert found.targets["labels"].tolist() == [[i % 2] for i in range(len(texts))]


def test_targets_of_numbers_and_of_what_has_no_label():
    found = encode([example(text="a", label=2.5), example(text="b")], "regress")
    assert found.targets["values"].dtype == np.float32
    assert found.targets["values"][0, 0] == 2.5
    assert np.isnan(found.targets["values"][1, 0])
    assert encode([example(text="a")], "classify").targets["labels"].tolist() == [[-1]]
    assert encode([example(words=("a", "b"))], "tag").targets["tags"].tolist() == [-1] * 4
    assert encode([example(text="a", pair="b c")], "span").targets["spans"].tolist() == [[-1, -1]]


@pytest.mark.fault(26)
@pytest.mark.parametrize(("length", "cut"), [(511, 0), (512, 0), (513, 1)])
def test_texts_over_the_length_are_cut_and_counted_or_refused(length, cut):
    long = [example(text=" ".join(["a"] * (length - 2)), label=0), example(1, text="a b", label=1)]
    found = encode(long, "classify", 512)
    assert (found.cut, found.longest) == (cut, min(length, 512))
    assert tokens(found)[0][-1] == SPECIAL.sep
    if cut:
        with pytest.raises(DataError, match=r"data\.tsv:1: 513 tokens, and sequence_length = 512"):
            encode(long, "classify", 512, long="refuse")
    else:
        assert encode(long, "classify", 512, long="refuse").cut == 0
    with pytest.raises(ConfigError, match="'windows' has no meaning for classify"):
        encode(long, "classify", long="windows")


@pytest.mark.fault(26)
@pytest.mark.parametrize(("length", "rows"), [(511, 1), (512, 1), (513, 2)])
def test_a_text_over_the_length_is_looked_at_in_windows_that_lose_nothing(length, rows):
    words = example(words=("a",) * (length - 2), label=(1,) * (length - 2))
    span = example(1, text="a", pair="b " * (length - 4), label=(Answer("b", 2 * (length - 5)),))
    for found in (encode([words], "tag", 512), encode([span], "span", 512)):
        assert (len(found.example), found.cut) == (rows, 0)
        assert found.longest == min(length, 512)
    tags = encode([words], "tag", 512)
    assert sorted(tags.words[tags.words >= 0].tolist()) == list(range(length - 2))
    last = encode([span], "span", 512).targets["spans"].tolist()[-1]
    assert last[0] == last[1] > 0, "the last window holds the last word"
    with pytest.raises(DataError, match="513 tokens") if length > 512 else contextlib.nullcontext():
        encode([words], "tag", 512, long="refuse")


# --- batches --------------------------------------------------------------------------------------


def all_kinds() -> list[tuple[str, Features]]:
    """A few rows of every kind, with and without windows."""
    answer = (Answer("c d", 4),)
    return [
        (
            "classify",
            encode([example(i, text="a " * (i + 1), label=i) for i in range(5)], "classify"),
        ),
        (
            "regress",
            encode([example(i, text="a " * (i + 1), label=i / 2) for i in range(5)], "regress"),
        ),
        (
            "choice",
            encode(
                [example(text="a", options=("b", "c d", "e")[: i + 1], label=0) for i in range(3)],
                "choice",
            ),
        ),
        (
            "tag",
            encode(
                [example(words=("ab",) * n, label=(1,) * n) for n in (1, 5, 9)], "tag", 9, stride=4
            ),
        ),
        (
            "span",
            encode(
                [example(text="a", pair="a b c d" * n, label=answer) for n in (1, 3)],
                "span",
                9,
                stride=2,
            ),
        ),
    ]


@pytest.mark.parametrize(("kind", "found"), all_kinds(), ids=[kind for kind, _ in all_kinds()])
@pytest.mark.parametrize("wider", [0, 3])
def test_a_batch_is_its_rows_padded_and_padding_is_never_counted(kind, found, wider):
    count = len(found.example)
    chosen = np.array([count - 1, 0, 0])
    length, size = found.longest + wider, 7
    made = features.gather(found, chosen, length, size, SPECIAL)
    for name in FLAT:
        assert made[name].shape == (size, length)
        assert made[name].dtype == np.int32
        for at, row in enumerate(chosen):
            held = row_of(found, name, row)
            padding = [SPECIAL.pad if name == "tokens" else 0] * (length - len(held))
            assert made[name][at].tolist() == held + padding
    assert made["example_ids"].tolist() == [[count - 1], [0], [0], [-1], [-1], [-1], [-1]]
    assert made["cls_positions"].tolist() == [
        *found.cls_positions[chosen].tolist(),
        *[[0] * made["cls_positions"].shape[1]] * 4,
    ]
    assert (made["segment_ids"][3:] == 0).all()
    (target,) = set(made) - {*FLAT, "example_ids", "cls_positions"}
    values = made[target]
    shape = {"labels": (size, 1), "values": (size, 1), "tags": (size, length), "spans": (size, 2)}[
        target
    ]
    assert values.shape == shape
    if target == "values":
        assert np.isnan(values[3:]).all()
        assert values.dtype == np.float32
    else:
        assert (values[3:] == -1).all()
        assert values.dtype == np.int32
    if target == "tags":
        assert (values[made["segment_ids"] == 0] == -1).all()
    else:
        np.testing.assert_array_equal(values[:3], found.targets[target][chosen])


def test_a_batch_without_rows_and_one_too_short():
    found = encode([example(text="a b c", label=0)], "classify")
    empty = features.gather(found, np.array([], np.int64), 8, 2, SPECIAL)
    assert (empty["tokens"] == SPECIAL.pad).all()
    assert (empty["labels"] == -1).all()
    with pytest.raises(ValueError, match="a row of 5 tokens in a batch of length 4"):
        features.gather(found, np.array([0]), 4, 1, SPECIAL)


def test_features_travel_between_processes_and_training_needs_fewer():
    for kind, found in all_kinds():
        again = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(again.tokens, found.tokens)
        assert (found.words is not None) == (kind == "tag")
        assert (found.characters is not None) == (found.best is not None) == (kind == "span")
    lean = encode([example(text="a", pair="b", label=())], "span", train=True)
    assert lean.characters is lean.best is None
    assert encode([example(words=("a",), label=(0,))], "tag", train=True).words is None


NAMED = """
from bert_jax.config import knobs
from bert_jax.data import tokenizer
from bert_jax.data.labelled import batches, examples, features
words = tokenizer.Tokenizer([*tokenizer.SPECIALS, "a", "b"], tokenizer.Style())
rows = [examples.Example("f:1", "0", "a b", label=0)]
found = features.encode(rows, "classify", words, knobs.Task(), 8, train=True)
print(batches.Source(found, words.special, knobs.Config()).fingerprint)
"""


def test_a_stream_has_the_same_name_in_every_process():
    """What training leaves out is None, whose bytes would be its address."""
    root = Path(__file__).resolve().parents[1]
    started = [
        subprocess.Popen([sys.executable, "-c", NAMED], cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    first, second = (process.communicate()[0] for process in started)
    assert len(first.strip()) == 64
    assert first == second


# --- choices --------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=2, max_size=4)), min_size=1, max_size=4),
    st.integers(12, 30),
)
def test_options_of_a_question_share_a_row(questions, length):
    given_ = [
        example(i, text=a, options=tuple(options), label=1)
        for i, (a, options) in enumerate(questions)
    ]
    found = encode(given_, "choice", length)
    most = max(len(options) for _, options in questions)
    assert found.cls_positions.shape == (len(questions), most)
    for row, (premise, options) in enumerate(questions):
        alone = encode(
            [example(text=premise, pair=option, label=0) for option in options], "classify", length
        )
        for name in ("tokens", "type_ids", "positions"):
            assert row_of(found, name, row) == [
                value for i in range(len(options)) for value in row_of(alone, name, i)
            ]
        expected = [i + 1 for i, one in enumerate(tokens(alone)) for _ in one]
        assert row_of(found, "segment_ids", row) == expected
        starts = [expected.index(i + 1) for i in range(len(options))]
        assert found.cls_positions[row].tolist() == starts + [0] * (most - len(options))
    assert found.targets["labels"].tolist() == [[1]] * len(questions)


# --- tags -----------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(WORD | st.just("\x07"), max_size=30), min_size=1, max_size=4),
    st.integers(6, 20),
    STRIDES,
)
def test_every_word_is_answered_for_exactly_once(sentences, length, stride):
    stride_as, stride = stride
    given_ = [
        example(i, words=tuple(words), label=tuple(range(len(words))))
        for i, words in enumerate(sentences)
    ]
    found = encode(given_, "tag", length, stride=stride, stride_as=stride_as)
    assert found.longest <= length
    assert found.cut == 0
    seen: list[list[int]] = [[] for _ in sentences]
    for row, number in enumerate(found.example.tolist()):
        held, words, tags = (row_of(found, name, row) for name in ("tokens", "words", "tags"))
        assert (held[0], held[-1]) == (SPECIAL.cls, SPECIAL.sep)
        assert words == tags  # a word's class here is its number
        for token, word in zip(held, words, strict=True):
            if word >= 0:
                assert (
                    token == (ids(sentences[number][word]) or [SPECIAL.unk])[0]
                )  # its first piece
                seen[number].append(word)
    assert [sorted(one) for one in seen] == [list(range(len(words))) for words in sentences]


def test_words_are_read_one_by_one_and_those_that_vanish_are_unknown():
    found = encode([example(words=("#a", "\x07", "ab.c", "字"), label=(0, 1, 2, 3))], "tag")
    pieces = [TOKENIZER.vocab[i] for i in tokens(found)[0]]
    assert pieces == ["[CLS]", "[UNK]", "a", "[UNK]", "a", "##b", ".", "c", "字", "[SEP]"]
    assert row_of(found, "words", 0) == [-1, 0, -1, 1, 2, -1, -1, -1, 3, -1]


def test_words_beyond_a_cut_are_counted_as_text_lost():
    words = example(words=("a",) * 20, label=tuple(range(20)))
    found = encode([words], "tag", 10, long="cut")
    assert (found.cut, row_of(found, "words", 0)) == (1, [-1, *range(8), -1])
    with pytest.raises(DataError, match=r"data\.tsv:1: 22 tokens"):
        encode([words], "tag", 10, long="refuse")


# --- spans ----------------------------------------------------------------------------------------


def run_squad_windows(count: int, room: int, stride: int) -> list[tuple[int, int]]:
    spans, start = [], 0
    while start < count:
        size = min(count - start, room)
        spans.append((start, start + size))
        if start + size == count:
            break
        start += min(size, stride)
    return spans


@given(
    st.lists(
        st.tuples(TEXT, st.lists(WORD, min_size=1, max_size=30), st.data()), min_size=1, max_size=3
    ),
    st.integers(12, 24),
    STRIDES,
)
def test_windows_over_a_context(questions, length, stride):
    stride_as, stride = stride
    given_ = []
    for i, (question, words, data) in enumerate(questions):
        a = data.draw(st.integers(0, len(words) - 1))
        b = data.draw(st.integers(a, len(words) - 1))
        start = len(" ".join([*words[:a], ""]))
        answer = Answer(" ".join(words[a : b + 1]), start)
        given_.append(example(i, text=question, pair=" ".join(words), label=(answer,)))
    found = encode(given_, "span", length, question_tokens=5, stride=stride, stride_as=stride_as)
    shown: list[dict[int, int]] = [
        {} for _ in given_
    ]  # token of the context -> windows that are best for it
    for row, number in enumerate(found.example.tolist()):
        one = given_[number]
        context, question = ids(one.pair), ids(one.text)[:5]
        held = row_of(found, "tokens", row)
        front = [SPECIAL.cls, *question, SPECIAL.sep]
        inside = held[len(front) : -1]
        assert held == [*front, *inside, SPECIAL.sep]
        assert len(held) <= length
        places, best = row_of(found, "characters", row), row_of(found, "best", row)
        assert all(
            (place == [-1, -1]) == (not len(front) <= i < len(held) - 1)
            for i, place in enumerate(places)
        )
        whole = TOKENIZER.encode_with_offsets([one.pair])[0][1]
        first = whole.index(tuple(places[len(front)]))
        assert inside == context[first : first + len(inside)]
        if stride_as == "step":
            assert (first, first + len(inside)) in run_squad_windows(
                len(context), length - len(front) - 1, stride
            )
        for i, is_best in enumerate(best):
            if is_best:
                token = first + i - len(front)
                shown[number][token] = shown[number].get(token, 0) + 1
        answer = one.label[0]
        start, end = found.targets["spans"][row].tolist()
        if start:
            assert one.pair[places[start][0] : places[end][1]] == answer.text
            assert places[start][0] == answer.start
        else:
            begins, ends = [place[0] for place in places], [place[1] for place in places]
            assert end == 0
            assert answer.start not in begins or answer.start + len(answer.text) not in ends
    assert shown == [dict.fromkeys(range(len(ids(one.pair))), 1) for one in given_]
    assert found.cut == sum(len(ids(one.text)) > 5 for one in given_)


def test_answers_inside_tokens_take_the_whole_token_and_spaces_take_none():
    def target(text: str, start: int) -> list[int]:
        return (
            encode([example(text="a", pair="cafe  d-e \x07", label=(Answer(text, start),))], "span")
            .targets["spans"][0]
            .tolist()
        )

    assert target("cafe", 0) == [3, 3]  # [CLS] a [SEP] cafe d - e [SEP]
    assert target("af", 1) == [3, 3]
    assert target("fe  d-", 2) == [3, 5]
    assert target(" d-e ", 5) == [4, 6]
    assert target("\x07", 10) == [0, 0]  # no token shows it
    assert encode([example(text="a", pair="b", label=())], "span").targets["spans"].tolist() == [
        [0, 0]
    ]


def test_an_answer_that_is_not_in_the_context_has_no_loss_and_the_next_one_stands_for_it():
    lost, there = Answer("x", -1, "elsewhere"), Answer("c", 2)
    examples = [
        example(n, text="a", pair="b c", label=label)
        for n, label in enumerate([(lost,), (lost, there)])
    ]
    assert encode(examples, "span").targets["spans"].tolist() == [[-1, -1], [4, 4]]


def test_a_context_that_is_cut_or_empty_and_a_question_without_room():
    long = example(text="a", pair="b " * 20, label=(Answer("b", 38),))
    found = encode([long], "span", 10, long="cut")
    assert (len(found.example), found.cut, found.targets["spans"].tolist()) == (1, 1, [[0, 0]])
    with pytest.raises(DataError, match=r"data\.tsv:1: 24 tokens"):
        encode([long], "span", 10, long="refuse")
    assert tokens(encode([example(text="a", pair="")], "span")) == [
        [SPECIAL.cls, ids("a")[0], SPECIAL.sep, SPECIAL.sep]
    ]
    with pytest.raises(
        DataError, match="sequence_length = 10 cannot hold 7 tokens of a question"
    ) as caught:
        encode([example(text="a " * 9, pair="b")], "span", 10, question_tokens=7)
    assert "question_tokens" in caught.value.hint
    asked = [example(text="a b c", pair="d")]
    assert encode(asked, "span", question_tokens=2).cut == 1
    with pytest.raises(
        DataError, match=r"data\.tsv:1: a question of 3 tokens, and task\.question_tokens = 2"
    ):
        encode(asked, "span", question_tokens=2, long="refuse")


# --- where tokens lie -----------------------------------------------------------------------------

ODD = st.text(
    st.sampled_from("aAbÉé\u0301\u0300 字.-\t\x07\x00\ufffd\u200d한😀ﬁİ\u00a0\u2028ǅ")
    | st.characters(),
    max_size=20,
)


@given(ODD)
def test_places_of_tokens_in_any_text(text):
    ((found, places),) = TOKENIZER.encode_with_offsets([text])
    assert len(found) == len(places)
    clean = "".join("\ufffd" if unicodedata.category(c) == "Cs" else c for c in text)
    assert found == ids(clean)
    before = 0
    for token, (start, end) in zip(found, places, strict=True):
        assert 0 <= start < end <= len(text)
        assert before <= end
        before = end
        piece = TOKENIZER.vocab[token].removeprefix("##")
        if token != SPECIAL.unk:  # the text there, as the model reads it
            shown = unicodedata.normalize("NFD", text[start:end])
            shown = "".join(
                c
                for c in shown
                if unicodedata.category(c) not in ("Mn", "Cc", "Cf") and c != "\ufffd"
            )
            assert piece in unicodedata.normalize("NFD", shown.lower())
    starts = [start for start, _ in places]
    assert starts == sorted(starts)


def test_accents_case_ideographs_and_emoji_keep_their_places():
    text = "CAFE\u0301de 字字 😀x \u00c9 한"
    ((found, places),) = TOKENIZER.encode_with_offsets([text])
    shown = [(TOKENIZER.vocab[i], text[a:b]) for i, (a, b) in zip(found, places, strict=True)]
    assert shown == [
        ("cafe", "CAFE\u0301"),  # a mark stays with its letter
        ("##de", "de"),
        ("字", "字"),
        ("字", "字"),
        ("[UNK]", "😀x"),
        ("e", "\u00c9"),
        ("ᄒ", "한"),  # three pieces of one character
        ("##ᅡ", "한"),
        ("##ᆫ", "한"),
    ]
    assert TOKENIZER.encode_with_offsets(["a \ud83d\ude00 b"])[0][1][-1] == (
        5,
        6,
    )  # halves of a pair count as two


def test_a_context_of_marks_alone_has_no_token_and_no_place():
    assert TOKENIZER.encode_with_offsets(["\u0301"]) == [([], [])]
