"""Token rows against plain statements of what they hold; windows lose nothing and answer for
everything once.

Rows of classify, regress and choice are frozen by tests/net/test_batches.py.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import features, tokenizer
from bert_jax.data.examples import Answer
from bert_jax.data.features import encode_examples
from bert_jax.errors import DataError
from tests.data.letters import STRIDES, TEXT, TOKENIZER, WORD, encode, ids_of, make_example, row_of
from tests.data.small import BPE


@pytest.mark.fault(15)
@pytest.mark.parametrize(("length", "cut"), [(512, 0), (513, 1)])
def test_encode_cuts_and_counts_long_texts(length, cut):
    """What is refused is in tests/net/transcripts/train_rows.txt."""
    long = [make_example(text="a " * (length - 2), label=0), make_example(1, text="b", label=1)]
    found = encode(long, "classify", 512)
    assert (found.cut, found.lengths.max()) == (cut, min(length, 512))
    assert row_of(found, "tokens", 0)[-1] == TOKENIZER.special.sep


@pytest.mark.fault(15)
@given(
    st.lists(st.lists(WORD | st.just("\x07"), max_size=30), min_size=1, max_size=4),
    st.integers(6, 20),
    STRIDES,
)
def test_encode_tag_answers_for_each_word_once(sentences, length, stride):
    meaning, stride = stride
    examples = [
        make_example(i, words=tuple(words), label=tuple(range(len(words))))
        for i, words in enumerate(sentences)
    ]
    found = encode(examples, "tag", length, stride=stride, stride_as=meaning)
    assert found.lengths.max() <= length
    assert found.cut == 0
    seen: list[list[int]] = [[] for _ in sentences]
    for row, number in enumerate(found.example.tolist()):
        held, words, tags = (row_of(found, name, row) for name in ("tokens", "words", "tags"))
        assert (held[0], held[-1]) == (TOKENIZER.special.cls, TOKENIZER.special.sep)
        assert words == tags  # a word's class here is its number
        for token, word in zip(held, words, strict=True):
            if word >= 0:
                assert token == (ids_of(sentences[number][word]) or [TOKENIZER.special.unk])[0]
                seen[number].append(word)
    assert [sorted(one) for one in seen] == [list(range(len(words))) for words in sentences]


@given(
    st.lists(
        st.tuples(TEXT, st.lists(WORD, min_size=1, max_size=30), st.data()), min_size=1, max_size=3
    ),
    st.integers(12, 24),
    STRIDES,
)
def test_encode_span_windows_over_a_context(questions, length, stride):
    meaning, stride = stride
    examples = []
    for i, (question, words, data) in enumerate(questions):
        a = data.draw(st.integers(0, len(words) - 1))
        b = data.draw(st.integers(a, len(words) - 1))
        answer = Answer(" ".join(words[a : b + 1]), len(" ".join([*words[:a], ""])))
        examples.append(make_example(i, text=question, pair=" ".join(words), label=(answer,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "QUESTION", 5)
        found = encode(examples, "span", length, stride=stride, stride_as=meaning)
    # Of each example: token of the context -> number of windows that answer for it.
    shown: list[dict[int, int]] = [{} for _ in examples]
    for row, number in enumerate(found.example.tolist()):
        one = examples[number]
        front = [TOKENIZER.special.cls, *ids_of(one.text)[:5], TOKENIZER.special.sep]
        held = row_of(found, "tokens", row)
        inside = held[len(front) : -1]
        assert held == [*front, *inside, TOKENIZER.special.sep]
        assert len(held) <= length
        places, best = row_of(found, "characters", row), row_of(found, "best", row)
        is_context = [len(front) <= i < len(held) - 1 for i in range(len(held))]
        assert [place != [-1, -1] for place in places] == is_context
        whole = TOKENIZER.encode_with_offsets([one.pair])[0][1]
        first = whole.index(tuple(places[len(front)]))
        assert inside == ids_of(one.pair)[first : first + len(inside)]
        for i in np.flatnonzero(best).tolist():
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
    assert shown == [dict.fromkeys(range(len(ids_of(one.pair))), 1) for one in examples]
    assert found.cut == sum(len(ids_of(one.text)) > 5 for one in examples)


@pytest.mark.fault(15)
def test_encode_span_cuts_or_refuses_what_is_long(monkeypatch):
    long = make_example(text="a", pair="b " * 20, label=(Answer("b", 38),))
    found = encode([long], "span", 10, long="cut")
    assert (len(found.example), found.cut, found.targets["spans"].tolist()) == (1, 1, [[0, 0]])
    monkeypatch.setattr(features, "QUESTION", 2)
    asked = [make_example(text="a b c", pair="d")]
    assert encode(asked, "span").cut == 1
    with pytest.raises(DataError, match=r"tsv:1: a question of 3 tokens, more than 2"):
        encode(asked, "span", long="refuse")


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_encode_span_finds_answers_in_byte_pairs(kind):
    found = tokenizer.load_tokenizer(BPE / kind)
    context = "In 1999 the old man's dog, caf\u00e9 and all, walked along the river."
    for text in ("1999", "the old man", "caf\u00e9", "river"):
        answer = Answer(text, context.index(text))
        one = make_example(text="When?", pair=context, label=(answer,))
        rows = encode_examples([one], "span", found, knobs.Task(), 64, train=False)
        ((start, end),) = rows.targets["spans"].tolist()
        assert context[rows.characters[start, 0] : rows.characters[end, 1]] == text
        column = len(found.encode_batch(["When?"])[0]) + 1 + found.special.separators
        assert (rows.characters[:column] == -1).all()
        assert rows.characters[column].tolist() == [0, 1]
        assert rows.tokens[column - 1] == found.special.sep
